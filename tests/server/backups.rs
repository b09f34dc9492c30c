//! What an earlier copy of the database is worth after an erasure: with every key that is left it opens nothing of it, and
//! what was said cannot be guessed either.

use crate::running::Server;
use onrecord::retention::erasure::Finality;
use onrecord::start::RootSource;
use onrecord::vault::{Vault, WrappedRunKey};
use onrecord_core::digest::Hash;
use onrecord_core::id::{Origin, RunId, TenantId};
use onrecord_core::payload::Committer;
use serde_json::json;
use sqlx::Row as _;
use std::time::Duration;

/// A copy of the rows that have anything to do with what was said, as a base backup or the WAL has them.
#[derive(Default)]
struct Copy {
    run_keys: Vec<WrappedRunKey>,
    payloads: Vec<Payload>,
}

struct Payload {
    tier: i16,
    media: String,
    commit: Hash,
    wrapped_dek: Vec<u8>,
    ciphertext: Vec<u8>,
}

impl Copy {
    async fn of(server: &Server, run: &str) -> Self {
        let mut sql = server.sql().await;
        let keys = sqlx::query(
            "select tier, version, epoch, wrapped from keys.run_keys where run = run_uuid($1)",
        )
        .bind(run)
        .fetch_all(&mut sql)
        .await
        .unwrap();
        let payloads = sqlx::query("select * from payloads where run = run_uuid($1)")
            .bind(run)
            .fetch_all(&mut sql)
            .await
            .unwrap();
        let run_keys = keys.iter().map(|row| WrappedRunKey {
            tier: row.get("tier"),
            version: row.get("version"),
            epoch: row.get("epoch"),
            wrapped: row.get("wrapped"),
        });
        let payloads = payloads.iter().map(|row| Payload {
            tier: row.get("tier"),
            media: row.get("media"),
            commit: Hash(row.get::<Vec<u8>, _>("commit").try_into().unwrap()),
            wrapped_dek: row.get("wrapped_dek"),
            ciphertext: row.get("ciphertext"),
        });
        Self {
            run_keys: run_keys.collect(),
            payloads: payloads.collect(),
        }
    }
}

/// Everything that some copies of the database together and all keys of the keys folder give: what they open, and every salt.
async fn opened(server: &Server, run: &str, copies: &[&Copy]) -> Vec<(Vec<u8>, Hash)> {
    let (tenant, origin): (String, String) = sqlx::query_as("select tenant, origin from tenants")
        .fetch_one(&mut server.sql().await)
        .await
        .unwrap();
    let (tenant, origin): (TenantId, Origin) = (tenant.parse().unwrap(), origin.parse().unwrap());
    let run: RunId = run.parse().unwrap();
    let folder = server.data_dir.path().join("keys");
    let vault = Vault::open(&folder, &RootSource::File(None), false)
        .await
        .unwrap();
    let keys = vault.tenant(&tenant, &origin).await.unwrap();
    let mut found = Vec::new();
    // Each key of the run by itself: one that does not open must not hide another that does.
    for key in copies.iter().flat_map(|copy| &copy.run_keys) {
        let Ok(run_keys) = keys.open_run(&run, std::slice::from_ref(key)) else {
            continue;
        };
        for one in copies.iter().flat_map(|copy| &copy.payloads) {
            // Under whatever version it is said to be.
            let (wrapped, ciphertext) = (&one.wrapped_dek, &one.ciphertext);
            let opened = run_keys.open(
                one.tier,
                key.version,
                &one.media,
                &one.commit,
                wrapped,
                ciphertext,
            );
            found.extend(opened.map(|opened| (opened.plaintext, opened.salt)));
        }
    }
    found
}

/// Whether somebody who has these salts finds out which of two words a commitment is of.
fn guessed(commit: &Hash, salts: &[Hash]) -> Option<&'static str> {
    let zero = [Hash([0; 32])];
    ["yes", "no"].into_iter().find(|word| {
        salts
            .iter()
            .chain(&zero)
            .chain(std::iter::once(commit))
            .any(|salt| {
                let mut committer = Committer::new(&salt.0);
                committer.update(word.as_bytes());
                committer.finish() == *commit
            })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_copy_opens_nothing_of_what_was_erased_since() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    for (key, text) in [
        ("one-bit", "yes"),
        ("kept", "what survives"),
        ("more", "of the same tier"),
    ] {
        let frame =
            json!({"kind": "observation", "key": key, "payloads": [{"name": "p", "text": text}]});
        api.frame(&run, &frame).await.is(201);
    }
    let frame = api
        .get(&format!("/v1/runs/{run}/frames/1"))
        .await
        .is(200)
        .json();
    let commit = frame["payloads"][0]["commit"].as_str().unwrap();
    let hash: Hash = commit.parse().unwrap();
    let salts = |found: &[(Vec<u8>, Hash)]| found.iter().map(|(_, salt)| *salt).collect::<Vec<_>>();

    // Before, the copy and the keys give everything: the attack is one that works.
    let before = Copy::of(&server, &run).await;
    let found = opened(&server, &run, &[&before]).await;
    assert_eq!(found.len(), 3);
    assert!(found.iter().any(|(text, _)| text == b"yes"));
    assert_eq!(guessed(&hash, &salts(&found)), Some("yes"));

    let wanted = json!({"run": run, "commits": [commit], "reason": "r"});
    let erasure = api.post("/v1/erasures", &wanted).await.is(201).json();
    assert_eq!(erasure["state"], "ciphertext_removed");
    let path = format!("/v1/erasures/{}", erasure["erasure"].as_str().unwrap());
    // The database as it is opens nothing of it. With the copy it would, as long as the epoch is there: it is not final.
    let after = Copy::of(&server, &run).await;
    let found = opened(&server, &run, &[&after]).await;
    assert_eq!(found.len(), 2);
    assert_eq!(guessed(&hash, &salts(&found)), None);
    assert!(
        opened(&server, &run, &[&before, &after])
            .await
            .iter()
            .any(|(text, _)| text == b"yes")
    );
    let disposal = api.get(&format!("{path}/certificate")).await.is(200);
    assert!(
        !disposal.text().contains("final"),
        "nothing claims that it is"
    );

    let finality = Finality {
        rotate_after: Some(Duration::ZERO),
        key_backup_days: Some(30),
    };
    server.app.recorder.erase_pending(finality).await.unwrap();
    let done = api.get(&path).await.is(200).json();
    assert_eq!(done["state"], "final");
    // Every key that is left, with every copy of before and after: what survives opens, and nothing else.
    let now = Copy::of(&server, &run).await;
    let found = opened(&server, &run, &[&before, &after, &now]).await;
    assert!(
        !found.is_empty() && found.iter().all(|(text, _)| text != b"yes"),
        "{}",
        found.len()
    );
    assert!(found.iter().any(|(text, _)| text == b"what survives"));
    assert_eq!(guessed(&hash, &salts(&found)), None);
    // The run verifies, and goes on.
    let report = crate::api::audit::check(
        &crate::api::audit::export(api, &run).await,
        &crate::api::audit::trust(api).await,
        &[],
    );
    assert_eq!(report.payloads.erased, 1);
    assert_eq!(
        report.findings.len(),
        1,
        "it is open, and that is all: {:#?}",
        report.findings
    );
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    // Final, it is on the ledger, with the day from which no backup of a key is left.
    let mut sql = server.sql().await;
    let entries: Vec<Vec<u8>> =
        sqlx::query_scalar("select bytes from ledger_entries where name = 'disposal'")
            .fetch_all(&mut sql)
            .await
            .unwrap();
    assert_eq!(entries.len(), 1);
    let signed = onrecord_core::statement::Signed::parse(&entries[0]).unwrap();
    let Some(onrecord_core::statement::Predicate::Disposal(disposal)) = signed.predicate().unwrap()
    else {
        panic!("a disposal");
    };
    let (last, dead) = (
        disposal.final_at.unwrap(),
        disposal.backups_dead_at.unwrap(),
    );
    assert_eq!(dead.micros() - last.micros(), 30 * 86_400_000_000);
    // Once more changes nothing.
    server.app.recorder.erase_pending(finality).await.unwrap();
    let count: i64 =
        sqlx::query_scalar("select count(*) from ledger_entries where name = 'disposal'")
            .fetch_one(&mut sql)
            .await
            .unwrap();
    assert_eq!(count, 1);
}
