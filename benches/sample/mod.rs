//! What the benches measure: frames of 1 KiB as a coding agent writes them, and the bundle of a run of them.

#![allow(
    dead_code,
    reason = "each bench is a program of its own and uses its part"
)]
#![allow(clippy::unwrap_used, reason = "a bench may stop where it stands")]

use onrecord::vault::{RootSource, SealKey, TenantKeys, Vault};
use onrecord_core::bundle::{Member, header, manifest_line, padding};
use onrecord_core::chain::Chain;
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Actor, ActorType, Draft, Kind, Link, PayloadRef, Rel};
use onrecord_core::id::{Origin, RunId, TenantId};
use onrecord_core::statement::{
    Completeness, Export, ExportCounts, FRAMES_SUBJECT, LedgerPosition, MANIFEST_SUBJECT, Outcome,
    PayloadCounts, Predicate, RunSeal, State,
};
use onrecord_core::timestamp::Timestamp;
use onrecord_verify::{Options, Trust};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// Bytes of a frame.
pub const FRAME: usize = 1_024;
const ORIGIN: &str = "evidence.example/t/9d2v6c1p8h4z";

pub fn tenant() -> TenantId {
    "t_7f3k9q2m4x8w".parse().unwrap()
}

pub fn run() -> RunId {
    "01K7Q4Z8V2N5R3T6Y9B1C0D4E8".parse().unwrap()
}

pub fn at() -> Timestamp {
    "2026-08-09T11:00:00.000000Z".parse().unwrap()
}

fn actor() -> Actor {
    Actor {
        id: "coder-1".into(),
        keyid: None,
        kind: ActorType::Agent,
    }
}

/// The body of a tool call, with so many characters of text.
pub fn body(text: usize) -> String {
    let text: String = "It says \\\"ok\\\" and goes on. "
        .chars()
        .cycle()
        .take(text)
        .collect();
    // An escape is not to be cut in two.
    let text = text.trim_end_matches('\\');
    format!(
        r#"{{"arguments":{{"command":"cargo test --locked","cwd":"/home/agent/repo","timeout_ms":120000}},"exit":0,"name":"shell","note":"{text}","tokens":{{"input":12345,"output":512}}}}"#
    )
}

/// A tool call with a payload and a link, of [`FRAME`] bytes in a run that is not yet long.
pub fn draft(number: u64, withheld: bool) -> Draft {
    let payload = PayloadRef {
        commit: Hash::of(&[&number.to_be_bytes()]),
        kept: None,
        media: "application/json".into(),
        name: "arguments".into(),
        redactions: None,
        size: 256,
        tier: 1,
    };
    Draft {
        kind: Kind::ToolCall,
        key: format!("call/{number:08}"),
        occurred_at: Some(at()),
        turn: Some(1),
        actor: actor(),
        body: body(if withheld { 326 } else { 480 }).into_bytes(),
        payloads: if withheld { vec![payload] } else { Vec::new() },
        links: vec![Link {
            hash: None,
            rel: Rel::Caused,
            run: None,
            seq: Some(0),
        }],
        trace: None,
        submitted: None,
    }
}

fn bare(kind: Kind, turn: Option<u64>, body: String) -> Draft {
    Draft {
        kind,
        key: kind.as_str().into(),
        occurred_at: None,
        turn,
        actor: actor(),
        body: body.into_bytes(),
        payloads: Vec::new(),
        links: Vec::new(),
        trace: None,
        submitted: None,
    }
}

/// A run in its first turn, and its two lines.
pub fn opened() -> (Chain, Vec<Vec<u8>>) {
    let mut chain = Chain::new(tenant(), run());
    let session = format!(
        r#"{{"ledger":"{ORIGIN}","nonce":"{}","run_no":1,"suite":"onrecord-v1"}}"#,
        "0".repeat(64)
    );
    let first = chain.place(&bare(Kind::Session, None, session), at());
    let second = chain.place(&bare(Kind::Turn, Some(1), "{}".into()), at());
    let lines = vec![first.unwrap(), second.unwrap()];
    (chain, lines)
}

/// The lines of a run of so many calls, to its end.
pub fn lines(calls: u64) -> (Chain, Vec<Vec<u8>>) {
    let (mut chain, mut lines) = opened();
    lines.extend((0..calls).map(|call| chain.place(&draft(call, false), at()).unwrap()));
    let end = serde_json::to_string(&chain.turn_end().unwrap()).unwrap();
    let end = chain.place(&bare(Kind::TurnEnd, Some(1), end), at());
    let last = chain.place(&bare(Kind::SessionEnd, None, "{}".into()), at());
    lines.extend([end.unwrap(), last.unwrap()]);
    (chain, lines)
}

/// The keys of a tenant in a vault of their own.
pub fn keys() -> Arc<TenantKeys> {
    let folder = tempfile::tempdir().unwrap();
    waited(async {
        let vault = Vault::open(&folder.path().join("keys"), &RootSource::File(None), true).await;
        let keys = vault.unwrap().create_tenant(&tenant(), &origin()).await;
        keys.unwrap()
    })
}

fn waited<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(work)
}

/// A seal key of a tenant in a vault of its own.
pub fn seal_key() -> Arc<SealKey> {
    let folder = tempfile::tempdir().unwrap();
    waited(async {
        let vault = Vault::open(&folder.path().join("keys"), &RootSource::File(None), true).await;
        let vault = vault.unwrap();
        vault.create_tenant(&tenant(), &origin()).await.unwrap();
        let keyid = vault.new_seal_key(&tenant()).await.unwrap().keyid;
        vault.seal_key(&tenant(), &keyid).await.unwrap()
    })
}

pub fn origin() -> Origin {
    ORIGIN.parse().unwrap()
}

/// Trusts the tenant's seal key, and no log.
pub fn options(key: &SealKey) -> Options {
    let text = format!("seal-key {} {} {ORIGIN}\n", key.public().spki, tenant());
    Options {
        trust: Some(Trust::parse(&text).unwrap()),
        ..Options::default()
    }
}

pub fn seal(chain: &Chain) -> Predicate {
    let opened = chain.opened().unwrap();
    Predicate::RunSeal(RunSeal {
        completeness: Completeness::Full,
        kinds: chain.kinds().clone(),
        ledger: LedgerPosition {
            open_index: 0,
            origin: opened.ledger.clone(),
        },
        opened_at: opened.at,
        outcome: Outcome::Unknown,
        payloads: PayloadCounts {
            count: chain.payloads(),
            ..PayloadCounts::default()
        },
        previous: None,
        run_no: opened.run_no,
        sealed_at: at(),
        state: State {
            head: chain.head(),
            root: chain.root(),
            run: chain.run().clone(),
            size: chain.size(),
        },
    })
}

pub fn sealed(chain: &Chain, key: &SealKey) -> Vec<u8> {
    let subject = Some((FRAMES_SUBJECT, chain.file_digest()));
    key.sign(&tenant(), &seal(chain), subject).unwrap()
}

/// A bundle in memory, made as the exporter makes it: each member hashed on its way.
pub struct Bundle {
    pub bytes: Vec<u8>,
    manifest: String,
}

impl Bundle {
    /// Of a run without payloads.
    pub fn of(chain: &Chain, lines: &[Vec<u8>], seal: &[u8], key: &SealKey) -> Self {
        let mut bundle = Self {
            bytes: Vec::with_capacity(chain.file_bytes() as usize + 65_536),
            manifest: String::new(),
        };
        bundle.member(&Member::Seal, [seal]);
        bundle.member(
            &Member::Frames,
            lines.iter().flat_map(|line| [&line[..], b"\n"]),
        );
        bundle.member(&Member::Ledger, []);
        bundle.member(&Member::Disclosures, []);
        let manifest = std::mem::take(&mut bundle.manifest);
        bundle.member(&Member::Manifest, [manifest.as_bytes()]);
        let export = Predicate::Export(Export {
            at: at(),
            by: actor(),
            payloads: ExportCounts::default(),
            purpose: "a bench".into(),
            run: run(),
        });
        let subject = Some((MANIFEST_SUBJECT, Hash::of(&[manifest.as_bytes()])));
        let export = key.sign(&tenant(), &export, subject).unwrap();
        bundle.member(&Member::Export, [&export[..]]);
        bundle.bytes.extend_from_slice(&[0; 1_024]);
        bundle
    }

    fn member<'a>(&mut self, member: &Member, parts: impl IntoIterator<Item = &'a [u8]>) {
        let (begin, mut hasher) = (self.bytes.len(), Sha256::new());
        self.bytes
            .extend_from_slice(&header(&member.name(), 0).unwrap());
        let body = self.bytes.len();
        for part in parts {
            hasher.update(part);
            self.bytes.extend_from_slice(part);
        }
        let size = (self.bytes.len() - body) as u64;
        self.bytes[begin..body].copy_from_slice(&header(&member.name(), size).unwrap());
        self.bytes.resize(self.bytes.len() + padding(size), 0);
        let digest = Hash(hasher.finalize().into());
        self.manifest
            .push_str(&manifest_line(&digest, &member.name()));
    }
}
