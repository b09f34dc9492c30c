//! A log that does whatever a test wants, over HTTP: what is signed with its keys, and what is not.

use axum::Router;
use axum::http::{StatusCode, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::pkcs8::EncodePublicKey as _;
use ed25519_dalek::{Signer as _, SigningKey};
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::merkle::Frontier;
use onrecord_core::note::{
    Checkpoint, Note, SignatureType, Tile, TileKind, VerifierKey, write_entry,
};
use onrecord_core::statement::{self, *};
use onrecord_core::timestamp::Timestamp;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

pub const ORIGIN: &str = "records.example/t/abc";
const TENANT: &str = "t_0000000000000000";

type Files = Arc<Mutex<HashMap<String, Vec<u8>>>>;

pub struct FakeLog {
    pub base: String,
    pub entries: Vec<Vec<u8>>,
    log: SigningKey,
    pub seal: SigningKey,
    files: Files,
    /// Seconds since 1970 of the next entry.
    pub clock: i64,
}

impl FakeLog {
    pub async fn start() -> Self {
        let files = Files::default();
        let shown = files.clone();
        let app = Router::new().fallback(move |uri: Uri| async move {
            let found = shown.lock().unwrap().get(uri.path()).cloned();
            found.ok_or(StatusCode::NOT_FOUND)
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/t/abc", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self {
            base,
            entries: Vec::new(),
            log: SigningKey::from_bytes(&[1; 32]),
            seal: SigningKey::from_bytes(&[2; 32]),
            files,
            clock: 1_790_000_000,
        }
    }

    fn verifier(&self) -> VerifierKey {
        let public = self.log.verifying_key().to_bytes();
        VerifierKey::new(ORIGIN, SignatureType::Text, public).unwrap()
    }

    pub fn trust(&self) -> String {
        format!(
            "log {}\nquorum none\nseal-key {} {TENANT} {ORIGIN}\n",
            self.verifier(),
            spki(&self.seal)
        )
    }

    /// A witness that did not sign, asked for.
    pub fn trust_with_witness(&self) -> String {
        let public = SigningKey::from_bytes(&[3; 32]).verifying_key().to_bytes();
        let key = VerifierKey::new("w.example/w", SignatureType::Cosignature, public).unwrap();
        self.trust()
            .replace("quorum none", &format!("witness w {key}\nquorum w"))
    }

    pub fn now(&mut self) -> Timestamp {
        self.clock += 1;
        Timestamp::from_micros(self.clock * 1_000_000).unwrap()
    }

    /// Signs an entry and adds it.
    pub fn add(&mut self, predicate: &Predicate) {
        let key = self.seal.clone();
        self.add_signed(predicate, &key);
    }

    pub fn add_signed(&mut self, predicate: &Predicate, key: &SigningKey) {
        let tenant: TenantId = TENANT.parse().unwrap();
        let fixed = predicate.fixed_subject(&tenant);
        let (subject, digest) = fixed.unwrap_or((FRAMES_SUBJECT.to_owned(), hash(b"lines")));
        let payload = predicate
            .payload(&tenant, &keyid(key), &subject, &digest)
            .unwrap();
        let sig = key.sign(&statement::pae(PAYLOAD_TYPE, &payload)).to_bytes();
        self.entries.push(envelope(&payload, &keyid(key), &sig));
    }

    /// Runs that are opened and sealed.
    pub fn runs(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            self.open(number);
            self.seal(number, 2);
        }
    }

    pub fn open(&mut self, number: u64) {
        let at = self.now();
        self.add(&Predicate::RunOpen(RunOpen {
            at,
            run_no: number,
            state: state(number, 1),
        }));
    }

    pub fn seal(&mut self, number: u64, size: u64) {
        let (at, previous) = (self.now(), self.last_seal());
        // The last one, which in a long log is near.
        let open_index = self.entries.iter().rposition(
            |entry| matches!(says(entry), Predicate::RunOpen(open) if open.run_no == number),
        );
        self.add(&Predicate::RunSeal(RunSeal {
            completeness: Completeness::Full,
            kinds: BTreeMap::new(),
            ledger: LedgerPosition {
                open_index: open_index.unwrap_or(0) as u64,
                origin: ORIGIN.parse().unwrap(),
            },
            opened_at: at,
            outcome: Outcome::Unknown,
            payloads: PayloadCounts::default(),
            previous,
            run_no: number,
            sealed_at: at,
            state: state(number, size),
        }));
    }

    fn last_seal(&self) -> Option<Previous> {
        self.entries
            .iter()
            .rev()
            .find_map(|entry| match says(entry) {
                Predicate::RunSeal(seal) => Some(Previous {
                    hash: leaf_hash(entry),
                    run: seal.state.run,
                }),
                _ => None,
            })
    }

    /// The checkpoint of the first entries.
    pub fn checkpoint(&self, size: usize) -> String {
        let mut tree = Frontier::new();
        self.entries[..size]
            .iter()
            .for_each(|entry| tree.push(leaf_hash(entry)));
        self.sign(size as u64, tree.root())
    }

    pub fn sign(&self, size: u64, root: Hash) -> String {
        let checkpoint = Checkpoint {
            origin: ORIGIN.to_owned(),
            size,
            root,
        };
        let text = checkpoint.to_text();
        let signature = self.log.sign(text.as_bytes()).to_bytes();
        let signatures = vec![self.verifier().signature(signature)];
        Note { text, signatures }.to_string()
    }

    /// Shows the log as it is.
    pub fn publish(&self) {
        self.files.lock().unwrap().clear();
        let mut nodes: BTreeMap<u8, Vec<Hash>> = BTreeMap::new();
        let mut tree = Frontier::new();
        for entry in &self.entries {
            tree.push_with(leaf_hash(entry), |level, _, hash| {
                nodes.entry(level).or_default().push(hash);
            });
        }
        for tile in Tile::all(self.entries.len() as u64) {
            let (level, range) = tile.nodes();
            let range = range.start as usize..range.end as usize;
            let mut bytes = Vec::new();
            match tile.kind {
                TileKind::Hashes { .. } => {
                    nodes[&level][range]
                        .iter()
                        .for_each(|hash| bytes.extend_from_slice(&hash.0));
                }
                TileKind::Entries => {
                    for entry in &self.entries[range] {
                        write_entry(&mut bytes, entry).unwrap();
                    }
                }
            }
            self.show(&tile.to_string(), bytes);
        }
        self.show("checkpoint", self.checkpoint(self.entries.len()));
    }

    /// Shows something else under a name.
    pub fn show(&self, name: &str, bytes: impl Into<Vec<u8>>) {
        let path = format!("/t/abc/{name}");
        self.files.lock().unwrap().insert(path, bytes.into());
    }

    pub fn hide(&self, name: &str) {
        self.files.lock().unwrap().remove(&format!("/t/abc/{name}"));
    }
}

pub fn spki(key: &SigningKey) -> String {
    STANDARD.encode(key.verifying_key().to_public_key_der().unwrap())
}

pub fn keyid(key: &SigningKey) -> Hash {
    hash(key.verifying_key().to_public_key_der().unwrap().as_bytes())
}

pub fn hash(bytes: &[u8]) -> Hash {
    Hash::of(&[bytes])
}

pub fn says(entry: &[u8]) -> Predicate {
    Signed::parse(entry).unwrap().predicate().unwrap().unwrap()
}

pub fn run(number: u64) -> RunId {
    RunId::from_bits(u128::from(number) << 80)
}

/// Frames of a run, which nobody looks at.
pub fn state(number: u64, size: u64) -> State {
    State {
        head: hash(format!("{number}/{size}").as_bytes()),
        root: hash(format!("root {number}/{size}").as_bytes()),
        run: run(number),
        size,
    }
}
