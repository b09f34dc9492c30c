//! Generated bundles: large ones verify in little memory, and what the golden files have no example of.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot write its bundle fails"
)]

use ed25519_dalek::{Signer as _, SigningKey};
use onrecord_core::bundle::{Disclosure, Member, header, manifest_line, padding};
use onrecord_core::chain::Chain;
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Actor, ActorType, Draft, Kind, PayloadRef};
use onrecord_core::json::to_canonical;
use onrecord_core::payload::{commitment, padded_size};
use onrecord_core::statement::{
    Completeness, Export, ExportCounts, FRAMES_SUBJECT, LedgerPosition, MANIFEST_SUBJECT, Outcome,
    PAYLOAD_TYPE, PayloadCounts, Predicate, RunSeal, State, envelope, pae,
};
use onrecord_verify::{Code, Options, Status, Trust, verify};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

const TENANT: &str = "t_7f3k9q2m4x8w";
const RUN: &str = "01K7Q4Z8V2N5R3T6Y9B1C0D4E8";
const ORIGIN: &str = "evidence.example/t/9d2v6c1p8h4z";
const AT: &str = "2026-08-09T11:00:00.000000Z";

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors")
}

/// The seal key of the golden vectors, by their seed rule.
fn seal_key() -> SigningKey {
    SigningKey::from_bytes(&Hash::of(&[b"onrecord test key: seal"]).0)
}

fn sign(predicate: &Predicate, subject: &str, digest: &Hash) -> Vec<u8> {
    let key = seal_key();
    let mut der = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00".to_vec();
    der.extend_from_slice(key.verifying_key().as_bytes());
    let keyid = Hash::of(&[&der]);
    let tenant = TENANT.parse().unwrap();
    let payload = predicate.payload(&tenant, &keyid, subject, digest).unwrap();
    let sig = key.sign(&pae(PAYLOAD_TYPE, &payload)).to_bytes();
    envelope(&payload, &keyid, &sig)
}

/// A run of `calls` tool calls with a payload of so many bytes each.
struct Shape {
    calls: u64,
    payload_bytes: usize,
    /// Bytes by which the size in the frame is beyond the bucket.
    beyond: u64,
}

impl Shape {
    fn payload(&self, call: u64) -> Vec<u8> {
        let mut bytes = call.to_be_bytes().to_vec();
        bytes.resize(self.payload_bytes, call as u8);
        bytes
    }

    fn salt(call: u64) -> Hash {
        Hash::of(&[b"salt", &call.to_be_bytes()])
    }

    /// Places all frames and hands out their bytes, the same each time.
    fn frames(&self, mut each: impl FnMut(&[u8])) -> Chain {
        let mut chain = Chain::new(TENANT.parse().unwrap(), RUN.parse().unwrap());
        let nonce = "0".repeat(64);
        let body = format!(
            r#"{{"ledger":"{ORIGIN}","nonce":"{nonce}","run_no":1,"suite":"onrecord-v1"}}"#
        );
        let mut place = |kind, body: String, payloads| {
            let draft = Draft {
                kind,
                key: format!("{}", chain.size()),
                occurred_at: None,
                turn: None,
                actor: Actor {
                    id: "coder-1".into(),
                    keyid: None,
                    kind: ActorType::Agent,
                },
                body: body.into_bytes(),
                payloads,
                links: Vec::new(),
                trace: None,
                submitted: None,
            };
            each(&chain.place(&draft, AT.parse().unwrap()).unwrap());
        };
        place(Kind::Session, body, Vec::new());
        for call in 0..self.calls {
            let payload = PayloadRef {
                commit: commitment(&Self::salt(call).0, &self.payload(call)),
                kept: None,
                media: "application/octet-stream".into(),
                name: "arguments".into(),
                redactions: None,
                size: padded_size(self.payload_bytes as u64) + self.beyond,
                tier: 2,
            };
            let body = format!(r#"{{"name":"read","operation":"op-{call}"}}"#);
            place(Kind::ToolCall, body, vec![payload]);
        }
        place(Kind::SessionEnd, "{}".into(), Vec::new());
        chain
    }

    fn seal(&self, chain: &Chain) -> Vec<u8> {
        let seal = RunSeal {
            completeness: Completeness::Full,
            kinds: chain.kinds().clone(),
            ledger: LedgerPosition {
                open_index: 0,
                origin: ORIGIN.parse().unwrap(),
            },
            opened_at: AT.parse().unwrap(),
            outcome: Outcome::Unknown,
            payloads: PayloadCounts {
                count: self.calls,
                ..PayloadCounts::default()
            },
            previous: None,
            run_no: 1,
            sealed_at: AT.parse().unwrap(),
            state: State {
                head: chain.head(),
                root: chain.root(),
                run: RUN.parse().unwrap(),
                size: chain.size(),
            },
        };
        sign(
            &Predicate::RunSeal(seal),
            FRAMES_SUBJECT,
            &chain.file_digest(),
        )
    }

    fn write(&self, out: impl Write) {
        let mut calls: Vec<(Hash, u64)> = (0..self.calls)
            .map(|call| (commitment(&Self::salt(call).0, &self.payload(call)), call))
            .collect();
        let disclosures: Vec<u8> = calls
            .iter()
            .flat_map(|(commit, call)| {
                let line = Disclosure::disclosed(*commit, Self::salt(*call));
                let mut line = to_canonical(&line).unwrap();
                line.push(b'\n');
                line
            })
            .collect();
        calls.sort_unstable();
        let chain = self.frames(|_| ());
        let mut bundle = Bundle {
            out,
            manifest: String::new(),
        };
        bundle.member(&Member::Seal, &self.seal(&chain));
        bundle.begin(&Member::Frames, chain.file_bytes());
        let out = &mut bundle.out;
        self.frames(|line| {
            out.write_all(line).unwrap();
            out.write_all(b"\n").unwrap();
        });
        bundle.end(&Member::Frames, chain.file_bytes(), chain.file_digest());
        bundle.member(&Member::Ledger, b"");
        bundle.member(&Member::Disclosures, &disclosures);
        for (commit, call) in calls {
            bundle.member(&Member::Payload(commit), &self.payload(call));
        }
        let manifest = std::mem::take(&mut bundle.manifest);
        bundle.member(&Member::Manifest, manifest.as_bytes());
        let export = Export {
            at: AT.parse().unwrap(),
            by: Actor {
                id: "u_auditor".into(),
                keyid: None,
                kind: ActorType::Human,
            },
            payloads: ExportCounts {
                disclosed: self.calls,
                ..ExportCounts::default()
            },
            purpose: "a test".into(),
            run: RUN.parse().unwrap(),
        };
        let digest = Hash::of(&[manifest.as_bytes()]);
        let export = sign(&Predicate::Export(export), MANIFEST_SUBJECT, &digest);
        bundle.member(&Member::Export, &export);
        bundle.out.write_all(&[0; 1_024]).unwrap();
        bundle.out.flush().unwrap();
    }
}

struct Bundle<W> {
    out: W,
    manifest: String,
}

impl<W: Write> Bundle<W> {
    fn begin(&mut self, member: &Member, size: u64) {
        self.out
            .write_all(&header(&member.name(), size).unwrap())
            .unwrap();
    }

    fn end(&mut self, member: &Member, size: u64, digest: Hash) {
        self.out.write_all(&vec![0; padding(size)]).unwrap();
        self.manifest
            .push_str(&manifest_line(&digest, &member.name()));
    }

    fn member(&mut self, member: &Member, bytes: &[u8]) {
        let size = bytes.len() as u64;
        self.begin(member, size);
        self.out.write_all(bytes).unwrap();
        self.end(member, size, Hash(Sha256::digest(bytes).into()));
    }
}

fn written(name: &str, shape: &Shape) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    shape.write(BufWriter::new(File::create(&path).unwrap()));
    path
}

#[test]
fn a_generated_bundle_verifies() {
    let shape = Shape {
        calls: 300,
        payload_bytes: 1_000,
        beyond: 0,
    };
    let mut bytes = Vec::new();
    shape.write(&mut bytes);
    let trust = std::fs::read_to_string(vectors().join("trust-seal-key-only.txt")).unwrap();
    let options = Options {
        trust: Some(Trust::parse(&trust).unwrap()),
        full: true,
        ..Options::default()
    };
    let report = verify(&bytes[..], &options);
    assert_eq!(report.verdict.status, Status::Verified, "{report:?}");
    assert_eq!(report.payloads.disclosed, 300);
    // The ledger is not checked without a log line, and the report says so.
    assert!(report.not_checked.iter().any(|one| one.contains("log")));
    assert_eq!(
        (report.meaning.warnings.len(), report.meaning.more),
        (100, 200)
    );
}

#[test]
fn a_payload_of_another_size_than_its_frame_says_is_not_the_one() {
    let shape = Shape {
        calls: 2,
        payload_bytes: 100,
        beyond: 256,
    };
    let mut bytes = Vec::new();
    shape.write(&mut bytes);
    let report = verify(&bytes[..], &Options::default());
    assert_eq!(report.verdict.code, Code::PayloadCommit, "{report:?}");
    assert_eq!(report.verdict.first_bad_seq, Some(1));
}

#[cfg(target_os = "linux")]
#[test]
fn a_bundle_larger_than_the_memory_verifies() {
    let shape = Shape {
        calls: 3_000,
        payload_bytes: 40_000,
        beyond: 0,
    };
    let path = written("larger-than-memory.onrecord.tar", &shape);
    assert!(std::fs::metadata(&path).unwrap().len() > 110_000_000);
    // 64 MiB of address space, the program itself included.
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 65536 && exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_onrecord-verify"))
        .arg("--trust")
        .arg(vectors().join("trust-seal-key-only.txt"))
        .arg(&path)
        .output()
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// To be measured by hand: leaves its file for `/usr/bin/time -v onrecord-verify`.
#[test]
#[ignore = "writes 1 GiB"]
fn one_gibibyte_is_written() {
    let shape = Shape {
        calls: 120_000,
        payload_bytes: 8_192,
        beyond: 0,
    };
    let path = written("one-gibibyte.onrecord.tar", &shape);
    assert!(std::fs::metadata(&path).unwrap().len() > 1 << 30);
}
