//! A store that has all keys of its own, and contradicts itself in what it signs.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot write its bundle fails"
)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer as _, SigningKey};
use onrecord_core::bundle::{header, manifest_line, padding};
use onrecord_core::chain::genesis;
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::json::to_canonical;
use onrecord_core::merkle::{inclusion_path, root_of};
use onrecord_core::note::{Checkpoint, SignatureType, TlogProof, VerifierKey};
use onrecord_core::payload::commitment;
use onrecord_core::statement::{PAYLOAD_TYPE, envelope, pae};
use onrecord_verify::{Code, LedgerCopy, Options, Trust, verify};
use serde_json::{Value, json};

const TENANT: &str = "t_7f3k9q2m4x8w";
const RUN: &str = "01K7Q4Z8V2N5R3T6Y9B1C0D4E8";
const ORIGIN: &str = "evidence.example/t/9d2v6c1p8h4z";

fn key(label: &str) -> SigningKey {
    SigningKey::from_bytes(&Hash::of(&[b"onrecord test key: ", label.as_bytes()]).0)
}

fn spki(key: &SigningKey) -> Vec<u8> {
    let mut der = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00".to_vec();
    der.extend_from_slice(key.verifying_key().as_bytes());
    der
}

fn trust() -> Trust {
    let log = VerifierKey::new(
        ORIGIN,
        SignatureType::Text,
        key("log").verifying_key().to_bytes(),
    );
    let seal = STANDARD.encode(spki(&key("seal")));
    let text = format!(
        "log {}\nquorum none\nseal-key {seal} {TENANT} {ORIGIN}\n",
        log.unwrap()
    );
    Trust::parse(&text).unwrap()
}

/// The time so many seconds after eleven.
fn at(second: u64) -> String {
    format!("2026-08-09T11:00:{second:02}.000000Z")
}

fn canonical(value: &Value) -> Vec<u8> {
    to_canonical(value).unwrap()
}

/// A statement about the run, or about frames where it has a digest of them.
fn statement(name: &str, subject: (&str, Hash), mut predicate: Value) -> Vec<u8> {
    let key = key("seal");
    let keyid = Hash::of(&[&spki(&key)]);
    predicate["suite"] = "onrecord-v1".into();
    predicate["tenant"] = TENANT.into();
    predicate["signer"] = json!({"keyid": keyid});
    let payload = canonical(&json!({
        "_type": "https://in-toto.io/Statement/v1",
        "predicate": predicate,
        "predicateType": format!("https://onrecord.dev/attestation/{name}/v1"),
        "subject": [{"digest": {"sha256": subject.1}, "name": subject.0}],
    }));
    let sig = key.sign(&pae(PAYLOAD_TYPE, &payload)).to_bytes();
    envelope(&payload, &keyid, &sig)
}

fn of_run(name: &str, predicate: Value) -> Vec<u8> {
    let genesis = genesis(&TENANT.parse().unwrap(), &RUN.parse().unwrap());
    statement(name, (RUN, genesis), predicate)
}

fn by() -> Value {
    json!({"id": "ops", "type": "human"})
}

fn hold(second: u64) -> Vec<u8> {
    let hold = json!({"action": "set", "at": at(second), "by": by(), "matter": "m", "run": RUN});
    of_run("hold", hold)
}

fn revocation(second: u64) -> Vec<u8> {
    let der = spki(&key("seal"));
    let keyid = Hash::of(&[&der]);
    let revoked = json!({"action": "revoked", "at": at(second), "keyid": keyid, "role": "seal",
        "spki": STANDARD.encode(der)});
    statement("key", (&keyid.hex(), keyid), revoked)
}

fn unknown() -> Vec<u8> {
    statement("weather", ("sky", Hash([0; 32])), json!({}))
}

/// A run of three frames with one payload; `change` is made to the middle one before it is hashed.
struct Run {
    lines: Vec<Vec<u8>>,
    commit: Hash,
}

impl Run {
    fn new(change: impl FnOnce(&mut Value)) -> Self {
        let commit = commitment(&[7; 32], b"hello");
        let session =
            json!({"ledger": ORIGIN, "nonce": "0".repeat(64), "run_no": 1, "suite": "onrecord-v1"});
        let payloads =
            json!([{"commit": commit, "media": "text/plain", "name": "p", "size": 256, "tier": 1}]);
        let mut change = Some(change);
        let mut prev = genesis(&TENANT.parse().unwrap(), &RUN.parse().unwrap());
        let mut lines = Vec::new();
        for (seq, kind) in ["session", "context", "session_end"]
            .into_iter()
            .enumerate()
        {
            let mut frame = json!({"actor": {"id": "coder-1", "type": "agent"}, "at": at(1), "body": {},
                "key": format!("k{seq}"), "kind": kind, "onrecord": "frame/1", "prev": prev, "run": RUN,
                "seq": seq, "tenant": TENANT});
            match seq {
                0 => frame["body"] = session.clone(),
                1 => {
                    frame["payloads"] = payloads.clone();
                    change.take().unwrap()(&mut frame);
                }
                _ => {}
            }
            let line = canonical(&frame);
            prev = leaf_hash(&line);
            lines.push(line);
        }
        Self { lines, commit }
    }

    fn file(&self, size: usize) -> Vec<u8> {
        let lines = self.lines[..size].iter();
        lines.flat_map(|line| [&line[..], b"\n"].concat()).collect()
    }

    /// A statement about the first frames.
    fn state(&self, size: usize, more: Value) -> Value {
        let mut state = more;
        let hashes: Vec<Hash> = self.lines[..size]
            .iter()
            .map(|line| leaf_hash(line))
            .collect();
        state["head"] = json!(hashes[size - 1]);
        state["root"] = json!(root_of(hashes));
        state["run"] = RUN.into();
        state["size"] = size.into();
        state
    }

    fn of_frames(&self, name: &str, size: usize, more: Value) -> Vec<u8> {
        let subject = ("frames.ndjson", Hash::of(&[&self.file(size)]));
        statement(name, subject, self.state(size, more))
    }

    fn open(&self, second: u64) -> Vec<u8> {
        self.of_frames("run-open", 1, json!({"at": at(second), "run_no": 1}))
    }

    fn head(&self, size: usize, second: u64) -> Vec<u8> {
        self.of_frames("run-head", size, json!({"at": at(second)}))
    }

    fn erasure(&self, second: u64, more: Value) -> Vec<u8> {
        let mut erasure = json!({"at": at(second), "by": by(), "count": 1, "method": "key", "policy": "p",
            "reason": "r"});
        erasure
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        of_run("erasure", self.state(3, erasure))
    }

    /// Sealed at second 10, opened at this index.
    fn seal(&self, open_index: u64, change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut seal = json!({"completeness": "full", "kinds": {"context": 1, "session": 1, "session_end": 1},
            "ledger": {"open_index": open_index, "origin": ORIGIN}, "opened_at": at(1), "outcome": "unknown",
            "payloads": {"count": 1, "erased": 0, "missing": 0}, "run_no": 1, "sealed_at": at(10)});
        change(&mut seal);
        self.of_frames("run-seal", 3, seal)
    }
}

fn checkpoint(entries: &[Vec<u8>]) -> String {
    let text = Checkpoint {
        origin: ORIGIN.into(),
        size: entries.len() as u64,
        root: root_of(entries.iter().map(|entry| leaf_hash(entry))),
    }
    .to_text();
    let log = key("log");
    let name = VerifierKey::new(ORIGIN, SignatureType::Text, log.verifying_key().to_bytes());
    let signature = name
        .unwrap()
        .signature(log.sign(text.as_bytes()).to_bytes());
    format!("{text}\n{signature}\n")
}

fn proof(entries: &[Vec<u8>], index: usize) -> String {
    let node = |level: u8, at: u64| {
        let start = (at as usize) << level;
        let leaves = entries[start..start + (1 << level)].iter();
        Ok::<_, ()>(root_of(leaves.map(|entry| leaf_hash(entry))))
    };
    TlogProof {
        index: index as u64,
        path: inclusion_path(index as u64, entries.len() as u64, node).unwrap(),
        checkpoint: checkpoint(entries),
    }
    .to_string()
}

fn tar(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, bytes) in members {
        tar.extend_from_slice(&header(name, bytes.len() as u64).unwrap());
        tar.extend_from_slice(bytes);
        tar.resize(tar.len() + padding(bytes.len() as u64), 0);
    }
    tar.resize(tar.len() + 1_024, 0);
    tar
}

fn copy(entries: &[Vec<u8>]) -> LedgerCopy {
    let hashes = entries.iter().flat_map(|entry| leaf_hash(entry).0);
    let bundle = entries
        .iter()
        .flat_map(|entry| [&(entry.len() as u16).to_be_bytes()[..], entry].concat());
    let width = entries.len();
    let ledger = tar(&[
        ("checkpoint", checkpoint(entries).into_bytes()),
        (&format!("tile/0/000.p/{width}"), hashes.collect()),
        (&format!("tile/entries/000.p/{width}"), bundle.collect()),
    ]);
    LedgerCopy::read(&ledger[..], Some(&trust()))
}

/// The bundle of a run: which entry is the seal, the lines of `ledger.ndjson` as ledger and index, and the
/// state of the one payload.
fn bundle(
    run: &Run,
    seal: (&[Vec<u8>], usize),
    lines: &[(&[Vec<u8>], usize)],
    told: Value,
) -> Vec<u8> {
    let mut counts =
        json!({"disclosed": 0, "erased": 0, "missing": 0, "not_kept": 0, "withheld": 0});
    let word = told["state"].as_str().unwrap_or("withheld").to_owned();
    counts[&word] = 1.into();
    let mut told = told;
    told["commit"] = json!(run.commit);
    let ledger = lines.iter().flat_map(|(entries, index)| {
        let entry = std::str::from_utf8(&entries[*index]).unwrap();
        let mut line = canonical(&json!({"entry": entry, "proof": proof(entries, *index)}));
        line.push(b'\n');
        line
    });
    let mut members = vec![
        ("seal.dsse.json", seal.0[seal.1].clone()),
        ("seal.tlog-proof", proof(seal.0, seal.1).into_bytes()),
        ("frames.ndjson", run.file(3)),
        ("ledger.ndjson", ledger.collect()),
        (
            "disclosures.ndjson",
            [&canonical(&told)[..], b"\n"].concat(),
        ),
    ];
    let manifest: String = members
        .iter()
        .map(|(name, bytes)| manifest_line(&Hash::of(&[bytes]), name))
        .collect();
    let export = json!({"at": at(50), "by": by(), "payloads": counts, "purpose": "p", "run": RUN});
    let subject = ("MANIFEST.sha256", Hash::of(&[manifest.as_bytes()]));
    let export = statement("export", subject, export);
    members.push(("MANIFEST.sha256", manifest.into_bytes()));
    members.push(("export.dsse.json", export));
    tar(&members)
}

fn code(bundle: &[u8], ledger: Option<&[Vec<u8>]>) -> Code {
    let options = Options {
        trust: Some(trust()),
        ledger: ledger.map(copy),
        ..Options::default()
    };
    verify(bundle, &options).verdict.code
}

fn withheld() -> Value {
    json!({"state": "withheld"})
}

/// The verdict on a run that stands in one ledger, with these lines.
fn told(run: &Run, entries: &[Vec<u8>], seal: usize, lines: &[usize]) -> Code {
    let lines: Vec<_> = lines.iter().map(|index| (entries, *index)).collect();
    code(&bundle(run, (entries, seal), &lines, withheld()), None)
}

#[test]
fn a_word_has_one_spelling() {
    let plain = Run::new(|_| ());
    let ledger = [plain.open(1), plain.seal(0, |_| ())];
    assert_eq!(told(&plain, &ledger, 1, &[0]), Code::Verified);
    let lines = [(&ledger[..], 0)];
    let state = json!({"state": {"withheld": null}});
    let disclosed = bundle(&plain, (&ledger, 1), &lines, state);
    assert_eq!(code(&disclosed, None), Code::Disclosures);
    for run in [
        Run::new(|frame| frame["kind"] = json!({"context": null})),
        Run::new(|frame| frame["actor"]["type"] = json!({"agent": null})),
    ] {
        let ledger = [run.open(1), run.seal(0, |_| ())];
        assert_eq!(told(&run, &ledger, 1, &[0]), Code::FrameShape);
    }
    for change in [
        |seal: &mut Value| seal["completeness"] = json!({"full": null}),
        |seal: &mut Value| seal["previous"] = Value::Null,
    ] {
        let ledger = [plain.open(1), plain.seal(0, change)];
        assert_eq!(told(&plain, &ledger, 1, &[0]), Code::Statement);
    }
}

#[test]
fn a_certificate_names_tiers_or_payloads_and_no_null() {
    let run = Run::new(|_| ());
    for (more, expected) in [
        (json!({"commits": [run.commit]}), Code::Verified),
        (
            json!({"commits": [run.commit], "tier": null}),
            Code::Statement,
        ),
        (json!({"tiers": [0, 1, 3]}), Code::Verified),
        (json!({"tiers": [2, 3]}), Code::ErasureUncertified),
        (json!({"tiers": []}), Code::Statement),
        (json!({"tiers": [1]}), Code::Statement),
        (json!({"tiers": [2, 1]}), Code::Statement),
        (json!({"tiers": [1, 1]}), Code::Statement),
        (json!({"tiers": [1, 4]}), Code::Statement),
        (json!({"tier": 1, "tiers": [1, 2]}), Code::Statement),
        (
            json!({"commits": [run.commit], "tiers": [1, 2]}),
            Code::Statement,
        ),
    ] {
        let ledger = [run.open(1), run.seal(0, |_| ()), run.erasure(20, more)];
        let lines = [(&ledger[..], 0), (&ledger[..], 2)];
        let erased = json!({"index": 2, "state": "erased"});
        let bundle = bundle(&run, (&ledger, 1), &lines, erased);
        assert_eq!(code(&bundle, None), expected);
    }
}

#[test]
fn who_did_it_has_the_form_of_an_actor() {
    let run = Run::new(|_| ());
    for (id, expected) in [
        ("ops", Code::Verified),
        ("", Code::Statement),
        ("a\nb", Code::Statement),
    ] {
        let by = json!({"id": id, "type": "human"});
        let hold = json!({"action": "set", "at": at(20), "by": by, "matter": "m", "run": RUN});
        let ledger = [run.open(1), run.seal(0, |_| ()), of_run("hold", hold)];
        assert_eq!(told(&run, &ledger, 1, &[0, 2]), expected, "{id:?}");
    }
}

#[test]
fn another_suite_is_told_apart_from_a_malformed_session() {
    let run = Run::new(|_| ());
    let other = |change: fn(&mut Value)| {
        let mut first: Value = serde_json::from_slice(&run.lines[0]).unwrap();
        change(&mut first);
        let mut lines = run.lines.clone();
        lines[0] = canonical(&first);
        let run = Run {
            lines,
            commit: run.commit,
        };
        told(&run, &[run.open(1), run.seal(0, |_| ())], 1, &[0])
    };
    assert_eq!(other(|frame| frame["seq"] = "0".into()), Code::FrameShape);
    for change in [
        |frame: &mut Value| frame["onrecord"] = json!(["frame/1"]),
        |frame: &mut Value| frame["body"] = json!([]),
        |frame: &mut Value| {
            frame["body"]["suite"] = "onrecord-v2".into();
            frame["seq"] = "0".into();
        },
    ] {
        assert_eq!(other(change), Code::Suite);
    }
}

#[test]
fn a_seal_is_not_before_its_frames() {
    let run = Run::new(|_| ());
    let ledger = [
        run.open(0),
        run.seal(0, |seal| seal["sealed_at"] = at(0).into()),
    ];
    assert_eq!(told(&run, &ledger, 1, &[0]), Code::SealSummary);
}

#[test]
fn times_do_not_go_back_around_the_seal() {
    let run = Run::new(|_| ());
    let seal = || run.seal(0, |_| ());
    let tier = || json!({"tier": 1});
    for (ledger, at, lines) in [
        (vec![run.open(11), seal()], 1, vec![0]),
        (vec![run.open(1), run.head(2, 11), seal()], 2, vec![0, 1]),
        (
            vec![run.open(1), seal(), run.erasure(9, tier())],
            1,
            vec![0, 2],
        ),
    ] {
        assert_eq!(told(&run, &ledger, at, &lines), Code::LedgerOrder);
    }
    let ledger = [run.open(10), seal(), run.erasure(10, tier())];
    assert_eq!(told(&run, &ledger, 1, &[0, 2]), Code::Verified);
}

#[test]
fn lines_stand_in_their_order_whatever_their_names() {
    let run = Run::new(|_| ());
    let ledger = [unknown(), run.open(1), unknown(), run.seal(1, |_| ())];
    assert_eq!(told(&run, &ledger, 3, &[0, 1, 2]), Code::Verified);
    assert_eq!(told(&run, &ledger, 3, &[2, 1]), Code::LedgerOrder);
    assert_eq!(told(&run, &ledger, 3, &[0, 0, 1]), Code::LedgerOrder);
    let ledger = [run.head(1, 1), run.open(1), run.seal(1, |_| ())];
    assert_eq!(told(&run, &ledger, 2, &[0, 1]), Code::LedgerOrder);
}

#[test]
fn one_bundle_has_one_view_of_the_ledger() {
    let run = Run::new(|_| ());
    let seal = || run.seal(0, |_| ());
    let sealed = [run.open(1), seal()];
    for entry in [
        run.head(2, 10),
        run.erasure(10, json!({"tier": 1})),
        unknown(),
    ] {
        let other = [run.open(1), entry];
        let lines = [(&sealed[..], 0), (&other[..], 1)];
        let bundle = bundle(&run, (&sealed, 1), &lines, withheld());
        assert_eq!(code(&bundle, None), Code::SplitView);
    }
    let one = [run.open(1), hold(3), seal()];
    let other = [run.open(1), unknown(), seal()];
    let bundle = bundle(&run, (&one, 2), &[(&other[..], 0)], withheld());
    assert_eq!(code(&bundle, None), Code::SplitView);
}

#[test]
fn a_copy_of_the_ledger_tells_what_was_left_out() {
    let run = Run::new(|_| ());
    let seal = || run.seal(0, |_| ());
    let other = Run::new(|frame| frame["body"] = json!({"other": true}));
    for (ledger, expected) in [
        (
            vec![run.open(1), run.head(2, 2), run.head(2, 2), seal()],
            Code::Verified,
        ),
        (
            vec![run.open(1), other.head(2, 2), run.head(2, 2), seal()],
            Code::RunHead,
        ),
        (
            vec![run.open(1), unknown(), revocation(2), seal()],
            Code::KeyRevoked,
        ),
        (
            vec![run.open(1), unknown(), run.open(2), seal()],
            Code::SecondOpen,
        ),
    ] {
        let bundle = bundle(&run, (&ledger, 3), &[(&ledger[..], 0)], withheld());
        assert_eq!(code(&bundle, None), Code::Verified);
        assert_eq!(code(&bundle, Some(&ledger)), expected);
    }
}

#[test]
fn a_copy_of_the_ledger_tells_of_a_hold_at_the_erasure() {
    let run = Run::new(|_| ());
    let tier = json!({"tier": 1});
    let ledger = [
        run.open(1),
        run.seal(0, |_| ()),
        hold(20),
        run.erasure(21, tier),
    ];
    let lines = [(&ledger[..], 0), (&ledger[..], 3)];
    let erased = json!({"index": 3, "state": "erased"});
    let rests = bundle(&run, (&ledger, 1), &lines, erased);
    assert_eq!(code(&rests, None), Code::Verified);
    assert_eq!(code(&rests, Some(&ledger)), Code::ErasureHeld);
    // A bundle from before the erasure does not rest on it.
    let earlier = bundle(&run, (&ledger, 1), &lines[..1], withheld());
    assert_eq!(code(&earlier, Some(&ledger)), Code::Verified);
}
