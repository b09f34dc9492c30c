//! The ledger over HTTP: tiles, entries, proofs and the archive, against the functions that everybody has.

use crate::api::Api;
use crate::api::audit::{check, trust};
use crate::api::bundle::Bundle;
use crate::running::Server;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::merkle::{self, Frontier};
use onrecord_core::note::{Checkpoint, Note, Tile, TileKind, TlogProof, read_entries, write_entry};
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The log of the tenant's ledger.
async fn log(api: &Api) -> String {
    let ledger = api.get("/v1/ledger").await.is(200).json();
    format!("/t/{}", ledger["log"].as_str().unwrap())
}

/// A checkpoint's text, whoever signed it.
fn checkpoint(note: &str) -> Checkpoint {
    Checkpoint::parse(&Note::parse(note).unwrap().text).unwrap()
}

fn hash(text: &Value) -> Hash {
    Hash::from_slice(&STANDARD.decode(text.as_str().unwrap()).unwrap()).unwrap()
}

/// All entries, page by page.
async fn entries(api: &Api) -> Vec<Value> {
    let (mut all, mut from) = (Vec::new(), Some(0));
    while let Some(next) = from {
        let path = format!("/v1/ledger/entries?from={next}&limit=256");
        let page = api.get(&path).await.is(200).json();
        all.extend(page["entries"].as_array().unwrap().iter().cloned());
        from = page["next"].as_u64();
    }
    all
}

/// The tree over entries: its nodes, and its root at each size.
struct Tree {
    nodes: BTreeMap<(u8, u64), Hash>,
    roots: Vec<Hash>,
}

impl Tree {
    fn over(entries: &[Value]) -> Self {
        let (mut nodes, mut frontier) = (BTreeMap::new(), Frontier::new());
        let mut roots = vec![frontier.root()];
        for entry in entries {
            let leaf = leaf_hash(entry["entry"].as_str().unwrap().as_bytes());
            frontier.push_with(leaf, |level, index, hash| {
                nodes.insert((level, index), hash);
            });
            roots.push(frontier.root());
        }
        Self { nodes, roots }
    }

    /// The bytes of a tile of it.
    fn tile(&self, tile: &Tile, entries: &[Value]) -> Vec<u8> {
        let (level, indexes) = tile.nodes();
        let mut bytes = Vec::new();
        for index in indexes {
            match tile.kind {
                TileKind::Hashes { .. } => bytes.extend_from_slice(&self.nodes[&(level, index)].0),
                TileKind::Entries => {
                    let entry = &entries[usize::try_from(index).unwrap()]["entry"];
                    write_entry(&mut bytes, entry.as_str().unwrap().as_bytes()).unwrap();
                }
            }
        }
        bytes
    }
}

/// A ledger with more than one tile: entries of every kind that are cheap to come by.
async fn long(server: &Server) -> u64 {
    let run = server.api.any_run().await.run.to_string();
    server
        .api
        .post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    for _ in 0..256 {
        server.api.any_run().await;
    }
    let ledger = server.api.get("/v1/ledger").await.is(200).json();
    ledger["size"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tiles_entries_and_archive_are_the_same_ledger() {
    let server = Server::start().await;
    let size = long(&server).await;
    let (api, everybody) = (&server.api, server.api.anonymous());
    let log = log(api).await;
    let entries = entries(api).await;
    assert_eq!(entries.len() as u64, size);
    let tree = Tree::over(&entries);

    let ledger = api.get("/v1/ledger").await.is(200).json();
    let note = everybody.get(&format!("{log}/checkpoint")).await.is(200);
    assert_eq!(note.text(), ledger["checkpoint"].as_str().unwrap());
    let latest = checkpoint(&note.text());
    assert_eq!(ledger["origin"], latest.origin.as_str());
    assert!(latest.origin.ends_with(&log), "{}", latest.origin);
    assert_eq!(
        (latest.size, latest.root),
        (size, *tree.roots.last().unwrap())
    );
    assert_eq!(hash(&ledger["root"]), latest.root);
    let key = ledger["verifier_key"].as_str().unwrap();
    let trusted = trust(api).await;
    assert!(trusted.contains(&format!("log {key}\n")), "{trusted}");

    // The archive: what the verifier takes, and each of its members as it is served alone.
    let archive = api.get("/v1/ledger/archive").await.is(200);
    assert_eq!(archive.header("content-type"), "application/x-tar");
    let report = check(&archive.bytes, &trusted, &[]);
    assert_eq!(report.verdict.exit_code, 0, "{:#?}", report.findings);
    assert_eq!(report.facts.size, Some(size));
    let bundle = Bundle::read(&archive.bytes);
    assert_eq!(
        bundle.write(),
        archive.bytes,
        "the tar is the one allowed form"
    );
    let mut names = vec!["checkpoint".to_owned()];
    names.extend(Tile::all(size).map(|tile| tile.to_string()));
    let members: Vec<&String> = bundle.0.iter().map(|(name, _)| name).collect();
    assert_eq!(members, names.iter().collect::<Vec<_>>());
    for tile in Tile::all(size) {
        let by = match tile.kind {
            TileKind::Hashes { .. } => &everybody,
            TileKind::Entries => api,
        };
        let answer = by.get(&format!("{log}/{tile}")).await.is(200);
        assert_eq!(answer.header("content-type"), "application/octet-stream");
        assert_eq!(answer.bytes, tree.tile(&tile, &entries), "{tile}");
        assert_eq!(answer.bytes, bundle.member(&tile.to_string()), "{tile}");
    }
    // A tile of which there is more by now, as somebody asks for it who has an older checkpoint.
    for path in ["tile/0/000.p/3", "tile/entries/000.p/7", "tile/1/000.p/1"] {
        let answer = api.get(&format!("{log}/{path}")).await.is(200);
        let expected = tree.tile(&Tile::parse(path).unwrap(), &entries);
        assert_eq!(answer.bytes, expected, "{path}");
    }
    let bundle = api.get(&format!("{log}/tile/entries/000")).await.is(200);
    assert_eq!(read_entries(&bundle.bytes).unwrap().len(), 256);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_and_its_proof_lead_to_a_checkpoint() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run.to_string();
    let path = format!("/v1/runs/{run}/seal");
    let seal = server.api.post(&path, &json!({})).await.is(201).json();
    server.api.any_run().await;
    let api = server.api.role("auditor").await;
    let entries = entries(&api).await;
    let tree = Tree::over(&entries);
    let names: Vec<&str> = entries
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["key", "key", "run-open", "run-seal", "run-open"]);
    assert_eq!(entries[3]["run"], run.as_str());
    assert_eq!(entries[3]["entry"], seal["seal"]);
    assert_eq!(entries[3]["at"], seal["sealed_at"]);
    assert_eq!(entries[0].get("run"), None);

    for (index, entry) in entries.iter().enumerate() {
        let path = format!("/v1/ledger/entries/{index}");
        let bytes = api.get(&path).await.is(200);
        assert_eq!(bytes.text(), entry["entry"].as_str().unwrap());
        let leaf = leaf_hash(&bytes.bytes);
        assert_eq!(entry["leaf"], leaf.hex().as_str());
        assert_eq!(entry["index"], index);
        let proof = api.get(&format!("{path}/proof")).await.is(200).text();
        let proof = TlogProof::parse(&proof).unwrap();
        let under = checkpoint(&proof.checkpoint);
        assert_eq!((proof.index, under.size), (index as u64, 5));
        assert_eq!(under.root, tree.roots[5]);
        merkle::verify_inclusion(&leaf, proof.index, 5, &proof.path, &under.root).unwrap();
    }
    // The seal's own proof is the one under the checkpoint that was made with it.
    let earlier = api.get("/v1/ledger/entries/3/proof?size=4").await.is(200);
    assert_eq!(earlier.text(), seal["proof"].as_str().unwrap());
    // The two keys of the tenant went in together, so that nobody signed a ledger with one of them.
    let none = api.get("/v1/ledger/entries/0/proof?size=1").await;
    let none = none.problem(404, "checkpoint_not_found");
    assert!(
        none["detail"].as_str().unwrap().ends_with("has 2"),
        "{none}"
    );

    // Pages.
    let page = api.get("/v1/ledger/entries?from=1&limit=2").await.is(200);
    assert_eq!(
        page.json(),
        json!({"entries": entries[1..3], "size": 5, "next": 3})
    );
    let page = api.get("/v1/ledger/entries?from=3").await.is(200).json();
    assert_eq!(page, json!({"entries": entries[3..], "size": 5}));
    let page = api.get("/v1/ledger/entries?from=9").await.is(200).json();
    assert_eq!(page, json!({"entries": [], "size": 5}));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_size_is_the_beginning_of_every_later_one() {
    let server = Server::start().await;
    for _ in 0..11 {
        server.api.any_run().await;
    }
    let tree = Tree::over(&entries(&server.api).await);
    let size = tree.roots.len() as u64 - 1;
    for from in 0..=size {
        for to in from..=size {
            let path = format!("/v1/ledger/consistency?from={from}&to={to}");
            let proof = server.api.get(&path).await.is(200).json();
            let (first, second) = (hash(&proof["from"]["root"]), hash(&proof["to"]["root"]));
            assert_eq!(first, tree.roots[usize::try_from(from).unwrap()]);
            assert_eq!(second, tree.roots[usize::try_from(to).unwrap()]);
            assert_eq!(
                (&proof["from"]["size"], &proof["to"]["size"]),
                (&json!(from), &json!(to))
            );
            let path: Vec<Hash> = proof["hashes"]
                .as_array()
                .unwrap()
                .iter()
                .map(hash)
                .collect();
            merkle::verify_consistency(from, to, &first, &second, &path).unwrap();
        }
    }
    let latest = server.api.get("/v1/ledger/consistency?from=3").await;
    assert_eq!(latest.is(200).json()["to"]["size"], size);
}

#[tokio::test(flavor = "multi_thread")]
async fn hashes_are_for_all_and_entries_for_the_tenants_readers() {
    let server = Server::start().await;
    server.api.any_run().await;
    let log = log(&server.api).await;
    let open = [format!("{log}/checkpoint"), format!("{log}/tile/0/000.p/3")];
    let any = [
        "/v1/ledger".to_owned(),
        "/v1/ledger/consistency?from=1".to_owned(),
    ];
    let readers = [
        format!("{log}/tile/entries/000.p/3"),
        "/v1/ledger/entries".to_owned(),
        "/v1/ledger/entries/1".to_owned(),
        "/v1/ledger/entries/1/proof".to_owned(),
        "/v1/ledger/archive".to_owned(),
    ];
    let everybody = server.api.anonymous();
    let other = server.api.new_tenant().await;
    for path in &open {
        everybody.get(path).await.is(200);
        other.get(path).await.is(200);
    }
    for path in any.iter().chain(&readers) {
        everybody.get(path).await.problem(401, "unauthenticated");
    }
    for role in ["agent", "gate"] {
        let api = server.api.role(role).await;
        for path in &any {
            api.get(path).await.is(200);
        }
        for path in &readers {
            api.get(path).await.problem(403, "role_missing");
        }
    }
    for role in ["auditor", "compliance", "admin"] {
        let api = server.api.role(role).await;
        for path in any.iter().chain(&readers) {
            api.get(path).await.is(200);
        }
    }
    // The owner of another tenant reads its own ledger under the same addresses, and no entry of this one.
    other.get(&readers[0]).await.problem(403, "other_tenant");
    let own = other.get("/v1/ledger").await.is(200).json();
    assert_ne!(own["log"], log.trim_start_matches("/t/"));
    assert_eq!(own["size"], 2);
    let mine = entries(&server.api).await;
    for entry in entries(&other).await {
        assert!(mine.iter().all(|one| one["entry"] != entry["entry"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_changes_may_be_kept_and_a_checkpoint_is_asked_for_anew() {
    let server = Server::start().await;
    let everybody = server.api.anonymous();
    let log = log(&server.api).await;
    let tile = everybody
        .get(&format!("{log}/tile/0/000.p/2"))
        .await
        .is(200);
    assert_eq!(
        tile.header("cache-control"),
        "public, max-age=31536000, immutable"
    );
    for path in [
        format!("{log}/tile/entries/000.p/2"),
        "/v1/ledger/entries/0".to_owned(),
    ] {
        let entries = server.api.get(&path).await.is(200);
        assert_eq!(
            entries.header("cache-control"),
            "private, max-age=31536000, immutable"
        );
        assert_eq!(entries.header("vary"), "Authorization");
    }
    let path = format!("{log}/checkpoint");
    let first = everybody.get(&path).await.is(200);
    assert_eq!(first.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(first.header("cache-control"), "public, no-cache");
    let ask = async |tag: String| {
        let request = everybody.request(Method::GET, &path);
        crate::api::Answer::of(request.header("if-none-match", tag)).await
    };
    let tag = first.header("etag").to_owned();
    for same in [tag.clone(), format!("\"a\", W/{tag}")] {
        let answer = ask(same).await.is(304);
        assert!(answer.bytes.is_empty());
        assert_eq!(answer.header("etag"), tag);
    }
    ask("\"a\"".to_owned()).await.is(200);
    server.api.any_run().await;
    let second = ask(tag.clone()).await.is(200);
    assert_ne!(second.header("etag"), tag);
    assert_ne!(second.bytes, first.bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_told_by_name() {
    let server = Server::start().await;
    let log = log(&server.api).await;
    let api = &server.api;
    for path in [
        "tile/8/000",
        "tile/00/000",
        "tile/-1/000",
        "tile/x/000",
        "tile/0/0",
        "tile/0/0000",
        "tile/0/000.p/0",
        "tile/0/000.p/256",
        "tile/0/000.p/01",
        "tile/0/000.p/1/",
        "tile/0/x000/001",
        "tile/0/001/001",
        "tile/0/000.p",
        "tile/0/000%2ep/1x",
        "tile/entries/x",
        "tile/entries/000.p/-1",
    ] {
        let answer = api.get(&format!("{log}/{path}")).await;
        answer.problem(400, "malformed_parameter");
    }
    for path in [
        "tile/0/000",
        "tile/0/000.p/3",
        "tile/1/000.p/1",
        "tile/7/000.p/1",
        "tile/entries/000.p/3",
        "tile/0/x999/999",
    ] {
        let answer = api.get(&format!("{log}/{path}")).await;
        let problem = answer.problem(404, "beyond_checkpoint");
        assert!(
            problem["detail"].as_str().unwrap().contains("2 entries"),
            "{problem}"
        );
    }
    for path in ["checkpoint", "tile/0/000.p/1", "tile/entries/000.p/1"] {
        for unknown in [
            "nothing",
            "%00",
            "%ff",
            "a%2ft%2fb",
            &format!("x{}", &log[3..]),
        ] {
            let answer = api.get(&format!("/t/{unknown}/{path}")).await;
            if unknown == "%ff" {
                answer.problem(400, "malformed_parameter");
            } else {
                answer.problem(404, "ledger_not_found");
            }
        }
    }
    for path in [
        "entries/2",
        "entries/2/proof",
        "entries/0/proof?size=3",
        "entries/1/proof?size=9007199254740990",
        "consistency?from=3",
        "consistency?from=1&to=3",
    ] {
        let answer = api.get(&format!("/v1/ledger/{path}")).await;
        answer.problem(404, "beyond_checkpoint");
    }
    for path in [
        "entries/x",
        "entries/-1",
        "entries?limit=0",
        "entries?limit=257",
        "entries?from=x",
        "entries/0/proof?size=x",
        "consistency",
        "consistency?from=2&to=1",
        "consistency?from=-1",
    ] {
        let answer = api.get(&format!("/v1/ledger/{path}")).await;
        answer.problem(400, "malformed_parameter");
    }
    server.alive().await;
}
