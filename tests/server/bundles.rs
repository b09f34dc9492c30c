//! Bundles of our server: complete, withheld, interrupted, and altered in every way that a file can be.

use crate::api::audit::{audit, check, export, trust};
use crate::api::bundle::Bundle;
use crate::api::{Api, receipt};
use crate::running::Server;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::pkcs8::EncodePublicKey as _;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::{Signer as _, SigningKey};
use onrecord_core::digest::Hash;
use onrecord_core::merkle::root_of;
use onrecord_core::statement::{Predicate, Signed, envelope, pae};
use onrecord_verify::{Code, Options, PublicKey, Trust, verify};
use serde_json::{Value, json};

/// A sealed run with two turns and payloads.
async fn sealed(api: &Api) -> String {
    let run = api
        .open(
            &json!({"session": {"agent": "smith"}, "payloads": [{"name": "task", "text": "work"}]}),
        )
        .await
        .run
        .to_string();
    for n in 0..2 {
        api.frame(&run, &json!({"kind": "turn"})).await.is(201);
        let call = json!({"kind": "tool_call", "key": format!("c{n}"), "body": {"name": "shell"},
            "payloads": [{"name": "arguments", "json": {"n": n}}],
            "result": {"payloads": [{"name": "output", "text": "done"}]}});
        api.frame(&run, &call).await.is(201);
    }
    api.frame(
        &run,
        &json!({"kind": "outcome", "body": {"status": "failed"}}),
    )
    .await
    .is(201);
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    run
}

fn code_of(bytes: &[u8], trust: &str) -> (Code, u8) {
    let verdict = check(bytes, trust, &[]).verdict;
    (verdict.code, verdict.exit_code)
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_without_payloads_and_open_ones() {
    let server = Server::start().await;
    let api = &server.api;
    let opened = api.any_run().await;
    let (_, bundle) = server
        .audit(&opened.run, std::slice::from_ref(&opened))
        .await;
    assert!(!bundle.has("seal.dsse.json") && !bundle.has("seal.tlog-proof"));
    assert!(bundle.has("ledger.ndjson") && bundle.has("export.dsse.json"));
    assert_eq!(bundle.member("disclosures.ndjson"), b"");
    assert!(
        !bundle
            .0
            .iter()
            .any(|(name, _)| name.starts_with("payloads/"))
    );
    api.post(&format!("/v1/runs/{}/seal", opened.run), &json!({}))
        .await
        .is(201);
    let (report, bundle) = server
        .audit(&opened.run, std::slice::from_ref(&opened))
        .await;
    assert_eq!(report.payloads.count, 0);
    assert_eq!(bundle.frames().len(), 2);
    // A bundle from before the seal is still what it was, and still no more than that.
    let (_, open) = audit(api, api.any_run().await.run, &[]).await;
    assert_eq!(
        code_of(&open.write(), &trust(api).await),
        (Code::Unsealed, 2)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_may_be_withheld_and_are_named() {
    let server = Server::start().await;
    let run = sealed(&server.api).await;
    let agent = server.api.role("agent").await;
    let path = format!("/v1/runs/{run}/export?payloads=none&purpose=for%20the%20customer");
    let bytes = agent.get(&path).await.is(200).bytes.to_vec();
    let text = trust(&server.api).await;
    let options = |full| Options {
        trust: Some(Trust::parse(&text).unwrap()),
        full,
        ..Options::default()
    };
    let report = verify(&bytes[..], &options(false));
    assert_eq!(
        (report.verdict.code, report.verdict.exit_code),
        (Code::Verified, 0)
    );
    assert_eq!((report.payloads.count, report.payloads.withheld), (5, 5));
    assert!(
        report
            .not_checked
            .iter()
            .any(|line| line.contains("withheld")),
        "{:?}",
        report.not_checked
    );
    let report = verify(&bytes[..], &options(true));
    assert_eq!(
        (report.verdict.code, report.verdict.exit_code),
        (Code::PayloadWithheld, 2)
    );
    let bundle = Bundle::read(&bytes);
    assert!(
        !bundle
            .0
            .iter()
            .any(|(name, _)| name.starts_with("payloads/"))
    );
    let statement: Value = serde_json::from_slice(bundle.member("export.dsse.json")).unwrap();
    let statement = STANDARD
        .decode(statement["payload"].as_str().unwrap())
        .unwrap();
    let statement: Value = serde_json::from_slice(&statement).unwrap();
    assert_eq!(statement["predicate"]["purpose"], "for the customer");
    assert_eq!(statement["predicate"]["payloads"]["withheld"], 5);
    assert_eq!(
        statement["predicate"]["by"],
        json!({"id": "a agent", "type": "agent"})
    );
    // A turn as well.
    let path = format!("/v1/runs/{run}/turns/2/proof?payloads=none");
    let proof = agent.get(&path).await.is(200).bytes;
    assert_eq!(
        verify(&proof[..], &options(false)).verdict.code,
        Code::Verified
    );
    assert_eq!(
        verify(&proof[..], &options(true)).verdict.code,
        Code::PayloadWithheld
    );
    // Without a trust file it is incomplete at best.
    let report = verify(&bytes[..], &Options::default());
    assert_eq!(
        (report.verdict.code, report.verdict.exit_code),
        (Code::NoTrust, 2)
    );
    server.audit(&run, &[]).await;
}

/// An envelope with the same statement, but for the signer, under another key.
fn resigned(envelope_bytes: &[u8], key: &SigningKey, named: Hash) -> Vec<u8> {
    let old: Value = serde_json::from_slice(envelope_bytes).unwrap();
    let payload = STANDARD.decode(old["payload"].as_str().unwrap()).unwrap();
    let old_keyid = old["signatures"][0]["keyid"].as_str().unwrap();
    let payload = String::from_utf8(payload)
        .unwrap()
        .replace(old_keyid, &named.hex());
    let message = pae(old["payloadType"].as_str().unwrap(), payload.as_bytes());
    envelope(payload.as_bytes(), &named, &key.sign(&message).to_bytes())
}

/// Replaces the seal key of a bundle by another, with everything that goes with it; signatures name
/// `named`.
fn with_key(bundle: &Bundle, key: &SigningKey, named: Option<Hash>) -> Vec<u8> {
    let der = key.verifying_key().to_public_key_der().unwrap();
    let keyid = Hash::of(&[der.as_bytes()]);
    let named = named.unwrap_or(keyid);
    let mut bundle = bundle.clone();
    let pem = key
        .verifying_key()
        .to_public_key_pem(LineEnding::LF)
        .unwrap();
    for (name, bytes) in &mut bundle.0 {
        match name.as_str() {
            "seal.dsse.json" => *bytes = resigned(bytes, key, named),
            _ if name.ends_with(".pem") => {
                *name = format!("keys/{keyid}.pem");
                *bytes = pem.clone().into_bytes();
            }
            _ => {}
        }
    }
    resign_export(&mut bundle, key, named);
    bundle.write()
}

/// The manifest of these members, and an export statement over it.
fn resign_export(bundle: &mut Bundle, key: &SigningKey, named: Hash) {
    let old = Hash::of(&[bundle.member("MANIFEST.sha256")]);
    let manifest = bundle.manifest();
    let new = Hash::of(&[manifest.as_bytes()]);
    bundle.set("MANIFEST.sha256", manifest);
    let export: Value = serde_json::from_slice(bundle.member("export.dsse.json")).unwrap();
    let payload = STANDARD
        .decode(export["payload"].as_str().unwrap())
        .unwrap();
    let payload = String::from_utf8(payload)
        .unwrap()
        .replace(&old.hex(), &new.hex());
    let mut export = export;
    export["payload"] = STANDARD.encode(payload).into();
    let export = resigned(export.to_string().as_bytes(), key, named);
    bundle.set("export.dsse.json", export);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_out_of_the_bundle_is_trusted_by_nobody() {
    let server = Server::start().await;
    let run = sealed(&server.api).await;
    let (_, bundle) = server.audit(&run, &[]).await;
    let trust = trust(&server.api).await;
    let keyid: Hash = bundle
        .0
        .iter()
        .find_map(|(name, _)| name.strip_prefix("keys/")?.strip_suffix(".pem"))
        .unwrap()
        .parse()
        .unwrap();
    let other = SigningKey::from_bytes(&[7; 32]);
    // Signed anew by a key that nobody pinned: not known, so not checked.
    assert_eq!(
        code_of(&with_key(&bundle, &other, None), &trust),
        (Code::SignerUnknown, 2)
    );
    // Under the name of the pinned key the signature is false.
    assert_eq!(
        code_of(&with_key(&bundle, &other, Some(keyid)), &trust),
        (Code::SealSignature, 1)
    );
    // The PEM alone is a copy that the export statement does not cover.
    let mut swapped = bundle.clone();
    let name = format!("keys/{keyid}.pem");
    swapped.set(
        &name,
        other
            .verifying_key()
            .to_public_key_pem(LineEnding::LF)
            .unwrap(),
    );
    assert_eq!(code_of(&swapped.write(), &trust), (Code::Manifest, 1));
    let manifest = swapped.manifest();
    swapped.set("MANIFEST.sha256", manifest);
    assert_eq!(code_of(&swapped.write(), &trust), (Code::Manifest, 1));
    // What verifies for another tenant of this server does not for this one, nor the other way.
    let tenant = server.api.new_tenant().await;
    let theirs = crate::api::audit::trust(&tenant).await;
    assert_eq!(code_of(&bundle.write(), &theirs), (Code::SignerUnknown, 2));
    let both = format!("{trust}{}", theirs.lines().last().unwrap());
    let run = sealed(&tenant).await;
    let foreign = Bundle::read(&export(&tenant, &run).await);
    let mut graft = bundle.clone();
    for name in ["seal.dsse.json", "seal.tlog-proof"] {
        graft.set(name, foreign.member(name));
    }
    assert_eq!(check(&graft.write(), &both, &[]).verdict.exit_code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_altered_byte_verifies() {
    let server = Server::start().await;
    let run = sealed(&server.api).await;
    let bytes = export(&server.api, &run).await;
    let trust = trust(&server.api).await;
    assert_eq!(code_of(&bytes, &trust), (Code::Verified, 0));
    let mut altered = bytes.clone();
    // Seven is prime to the block size, so that every place of a header is met.
    for place in (0..bytes.len()).step_by(7) {
        let bit = 1 << (place % 8);
        altered[place] ^= bit;
        let (code, exit) = code_of(&altered, &trust);
        assert_ne!(exit, 0, "byte {place} altered, {code:?}");
        altered[place] ^= bit;
    }
    for length in (0..bytes.len()).step_by(251) {
        assert_ne!(
            code_of(&bytes[..length], &trust).1,
            0,
            "cut to {length} bytes"
        );
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert_ne!(code_of(&longer, &trust).1, 0);
    let proof = server
        .api
        .get(&format!("/v1/runs/{run}/turns/1/proof?purpose=test"))
        .await
        .is(200)
        .bytes
        .to_vec();
    let mut altered = proof.clone();
    for place in (0..proof.len()).step_by(5) {
        altered[place] ^= 1 << (place % 7);
        assert_ne!(
            code_of(&altered, &trust).1,
            0,
            "byte {place} of a turn proof"
        );
        altered[place] = proof[place];
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_taken_away_or_exchanged_show() {
    let server = Server::start().await;
    let run = sealed(&server.api).await;
    let other = Bundle::read(&export(&server.api, &sealed(&server.api).await).await);
    let bundle = Bundle::read(&export(&server.api, &run).await);
    let trust = trust(&server.api).await;
    for place in 0..bundle.0.len() {
        let name = bundle.0[place].0.clone();
        let mut less = bundle.clone();
        less.0.remove(place);
        assert_ne!(code_of(&less.write(), &trust).1, 0, "without {name}");
        if other.has(&name) && other.member(&name) != bundle.member(&name) {
            let mut mixed = bundle.clone();
            mixed.set(&name, other.member(&name));
            assert_ne!(
                code_of(&mixed.write(), &trust).1,
                0,
                "{name} of another run"
            );
        }
        let mut twice = bundle.clone();
        twice.0.insert(place, bundle.0[place].clone());
        assert_eq!(code_of(&twice.write(), &trust).1, 3, "{name} twice");
    }
    let mut none = bundle.clone();
    none.set("frames.ndjson", "");
    assert_eq!(code_of(&none.write(), &trust), (Code::NoFrames, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_breaks_off_is_sealed_as_interrupted() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run;
    api.frame(&run, &json!({"kind": "turn"})).await.is(201);
    let path = format!("/v1/runs/{run}/seal");
    let seal = api
        .post(&path, &json!({"interrupted": true}))
        .await
        .is(201)
        .json();
    assert_eq!(seal["completeness"], "interrupted");
    let (_, bundle) = server.audit(&run, &[]).await;
    let last: Value = serde_json::from_slice(bundle.frames().last().unwrap()).unwrap();
    assert_eq!(last["kind"], "turn_end");
    // One that had ended before is complete, whatever is asked.
    let run = api.any_run().await.run;
    api.frame(&run, &json!({"kind": "session_end"}))
        .await
        .is(201);
    let path = format!("/v1/runs/{run}/seal");
    let seal = api
        .post(&path, &json!({"interrupted": true}))
        .await
        .is(201)
        .json();
    assert_eq!(seal["completeness"], "full");
    server.audit(&run, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_runs_are_sealed_in_every_tenant() {
    let server = Server::start().await;
    let api = &server.api;
    let other = api.new_tenant().await;
    let mut runs = Vec::new();
    for api in [api, api, &other] {
        let run = api.any_run().await.run.to_string();
        api.frame(&run, &json!({"kind": "turn"})).await.is(201);
        runs.push((api.clone(), run));
    }
    let done = sealed(api).await;
    // Nobody has been idle for an hour, but everybody for no time.
    assert_eq!(server.app.recorder.seal_idle(Some(3_600)).await.unwrap(), 0);
    assert_eq!(api.run(&runs[0].1).await["status"], "open");
    assert_eq!(server.app.recorder.seal_idle(Some(0)).await.unwrap(), 3);
    assert_eq!(server.app.recorder.seal_idle(Some(0)).await.unwrap(), 0);
    for (api, run) in &runs {
        let seal = api
            .get(&format!("/v1/runs/{run}/seal"))
            .await
            .is(200)
            .json();
        assert_eq!(seal["completeness"], "interrupted");
        audit(api, run, &[]).await;
    }
    server.audit(&done, &[]).await;
}

/// Checks the signature of a `run-head` by hand and returns what it says.
fn head_of(signed: &str, trust: &str) -> onrecord_core::statement::RunHead {
    let key = trust
        .lines()
        .find_map(|line| line.strip_prefix("seal-key "))
        .unwrap();
    let (keyid, key) = PublicKey::from_spki(key.split(' ').next().unwrap()).unwrap();
    let signed = Signed::parse(signed.as_bytes()).unwrap();
    assert_eq!(signed.keyid, keyid);
    assert!(key.verifies(&signed.pae(), &signed.sig));
    match signed.predicate().unwrap().unwrap() {
        Predicate::RunHead(head) => head,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_are_signed_for_whoever_asks() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    let trust = trust(api).await;
    let path = format!("/v1/runs/{run}/frames?receipt=signed");
    let mut signed = Vec::new();
    for n in 0..4 {
        let frame = json!({"kind": "observation", "key": format!("k{n}")});
        let answer = api.post(&path, &frame).await.is(201).json();
        signed.push((
            receipt(&answer),
            answer["signed"].as_str().unwrap().to_owned(),
        ));
    }
    let call = json!({"kind": "tool_call", "key": "c", "result": {}});
    let answer = api.post(&path, &call).await.is(201).json();
    // Over the result that stands behind the call.
    signed.push((
        receipt(&answer["result"]),
        answer["signed"].as_str().unwrap().to_owned(),
    ));
    // Asked for later, with a retry, it is the same state.
    let again = api
        .post(&path, &json!({"kind": "observation", "key": "k1"}))
        .await
        .is(200)
        .json();
    signed.push((
        receipt(&again),
        again["signed"].as_str().unwrap().to_owned(),
    ));
    let frames = api
        .get(&format!("/v1/runs/{run}/frames"))
        .await
        .is(200)
        .bytes;
    let lines: Vec<&[u8]> = frames.split_inclusive(|byte| *byte == b'\n').collect();
    for (receipt, signed) in &signed {
        let head = head_of(signed, &trust);
        let size = usize::try_from(receipt.seq).unwrap() + 1;
        assert_eq!(head.state.size, receipt.seq + 1);
        assert_eq!(head.state.head, receipt.hash);
        assert_eq!(head.state.run, receipt.run);
        assert_eq!(head.at, receipt.at);
        let hash = |line: &&[u8]| onrecord_core::digest::leaf_hash(&line[..line.len() - 1]);
        assert_eq!(head.state.root, root_of(lines[..size].iter().map(hash)));
        let file = Signed::parse(signed.as_bytes()).unwrap();
        assert_eq!(file.subject, "frames.ndjson");
        assert_eq!(file.digest, Hash::of(&lines[..size]));
        let path = format!("/v1/runs/{run}/head?size={size}");
        assert_eq!(api.get(&path).await.is(200).text(), *signed);
    }
    let plain = api
        .frame(&run, &json!({"kind": "observation"}))
        .await
        .is(201)
        .json();
    assert!(plain.get("signed").is_none());
    let now = api
        .get(&format!("/v1/runs/{run}/head"))
        .await
        .is(200)
        .text();
    assert_eq!(head_of(&now, &trust).state.head, receipt(&plain).hash);
    let receipts: Vec<_> = signed.into_iter().map(|(receipt, _)| receipt).collect();
    server.audit(&run, &receipts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_gives_the_verdict_that_everybody_gets() {
    let server = Server::start().await;
    let api = &server.api;
    let run = sealed(api).await;
    let bytes = export(api, &run).await;
    let trust = trust(api).await;
    let mut altered = Bundle::read(&bytes);
    let frames = String::from_utf8(altered.member("frames.ndjson").to_vec()).unwrap();
    altered.set("frames.ndjson", frames.replace("smith", "jones"));
    for bytes in [
        bytes.clone(),
        altered.write(),
        bytes[..700].to_vec(),
        b"nonsense".to_vec(),
        Vec::new(),
    ] {
        let own = api
            .send("/v1/verify", "application/octet-stream", bytes.clone())
            .await
            .is(200)
            .json();
        let options = Options {
            trust: Some(Trust::parse(&trust).unwrap()),
            ..Options::default()
        };
        let report = serde_json::to_value(verify(&bytes[..], &options)).unwrap();
        assert_eq!(own, report);
    }
    server.audit(&run, &[]).await;
}
