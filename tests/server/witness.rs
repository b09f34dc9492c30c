//! A witness alone: what it signs, what it never signs, and what is left of it after a kill.

use ed25519_dalek::{Signer as _, SigningKey};
use onrecord::vault::WitnessKey;
use onrecord::witness::{Answer, Witness, WitnessError};
use onrecord_core::digest::Hash;
use onrecord_core::merkle::{Frontier, consistency_path};
use onrecord_core::note::{
    Checkpoint, Cosignature, Note, SignatureType, Submission, TlogProof, VerifierKey,
    cosigned_message,
};
use onrecord_verify::PublicKey;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Barrier};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// A log of leaves that a test gives it.
struct Log {
    key: SigningKey,
    verifier: VerifierKey,
    leaves: Vec<Hash>,
}

impl Log {
    fn new(origin: &str) -> Self {
        let key = SigningKey::from_bytes(&Hash::of(&[origin.as_bytes()]).0);
        let public = key.verifying_key().to_bytes();
        let verifier = VerifierKey::new(origin, SignatureType::Text, public).unwrap();
        Self {
            key,
            verifier,
            leaves: Vec::new(),
        }
    }

    /// Leaves up to a size; `history` makes them others.
    fn grow(&mut self, size: usize, history: &str) {
        while self.leaves.len() < size {
            let leaf = format!("{history} {}", self.leaves.len());
            self.leaves.push(Hash::of(&[leaf.as_bytes()]));
        }
    }

    fn root(&self, size: usize) -> Hash {
        onrecord_core::merkle::root_of(self.leaves[..size].iter().copied())
    }

    fn note(&self, size: usize) -> Note {
        let checkpoint = Checkpoint {
            origin: self.verifier.name().to_owned(),
            size: size as u64,
            root: self.root(size),
        };
        let text = checkpoint.to_text();
        let signature = self.key.sign(text.as_bytes()).to_bytes();
        Note {
            text,
            signatures: vec![self.verifier.signature(signature)],
        }
    }

    fn submission(&self, old: usize, size: usize) -> Submission {
        let mut nodes = BTreeMap::new();
        let mut frontier = Frontier::new();
        for leaf in &self.leaves[..size] {
            frontier.push_with(*leaf, |level, index, hash| {
                nodes.insert((level, index), hash);
            });
        }
        let path = consistency_path(old as u64, size as u64, |level, index| {
            nodes.get(&(level, index)).copied().ok_or(())
        });
        Submission {
            old: old as u64,
            path: path.unwrap(),
            checkpoint: self.note(size).to_string(),
        }
    }

    fn submit(&self, witness: &Witness, old: usize, size: usize) -> Answer {
        let body = self.submission(old, size).to_string();
        witness.add_checkpoint(body.as_bytes()).unwrap()
    }
}

fn folder(logs: &[&Log]) -> (TempDir, VerifierKey) {
    let folder = TempDir::new().unwrap();
    let key = Witness::init("witness.example/w1", folder.path()).unwrap();
    list(folder.path(), logs);
    (folder, key)
}

fn list(folder: &Path, logs: &[&Log]) {
    let lines = logs.iter().map(|log| format!("log {}\n", log.verifier));
    fs::write(folder.join("logs.txt"), lines.collect::<String>()).unwrap();
}

/// That an answer is a cosignature of the checkpoint, by the verifier's own rules.
fn cosigned(answer: &Answer, key: &VerifierKey, text: &str) {
    let Answer::Cosigned(line) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(
        (line.name.as_str(), line.key_id),
        (key.name(), key.key_id())
    );
    let one = Cosignature::from_bytes(&line.bytes).unwrap();
    let public = PublicKey::from_bytes(key.public_key()).unwrap();
    assert!(public.verifies(cosigned_message(one.time, text).as_bytes(), &one.signature));
}

#[test]
fn it_signs_what_goes_on_and_nothing_else() {
    let mut log = Log::new("log.example/t/one");
    log.grow(20, "a");
    let (folder, key) = folder(&[&log]);
    let witness = Witness::open(folder.path()).unwrap();
    let text = |size| log.note(size).text;

    cosigned(&log.submit(&witness, 0, 0), &key, &text(0));
    cosigned(&log.submit(&witness, 0, 5), &key, &text(5));
    // What was signed may be signed again, and is not behind what came since.
    cosigned(&log.submit(&witness, 5, 5), &key, &text(5));
    cosigned(&log.submit(&witness, 5, 9), &key, &text(9));
    assert_eq!(log.submit(&witness, 5, 9), Answer::Size(9));
    assert_eq!(log.submit(&witness, 0, 20), Answer::Size(9));
    // A smaller tree than the one that it knows is never signed, whatever is claimed.
    for old in 0..=7 {
        assert_eq!(log.submit(&witness, old, 7), Answer::Size(9));
    }
    let mut back = log.submission(7, 9);
    back.old = 9;
    back.checkpoint = log.note(7).to_string();
    let answer = witness.add_checkpoint(back.to_string().as_bytes()).unwrap();
    assert!(matches!(answer, Answer::Malformed(_)), "{answer:?}");
    assert_eq!(witness.sizes(), [("log.example/t/one".to_owned(), 9)]);

    // The same log with another history: at the same size, and grown from it.
    let mut other = Log::new("log.example/t/one");
    other.leaves = log.leaves[..6].to_vec();
    other.grow(20, "b");
    assert_eq!(other.submit(&witness, 9, 9), Answer::Size(9));
    let answer = other.submit(&witness, 9, 14);
    assert!(matches!(answer, Answer::Inconsistent(_)), "{answer:?}");
    // Both are kept, as evidence against the log that signed them.
    let kept = fs::read_dir(folder.path().join("refused")).unwrap().next();
    let kept = fs::read_dir(kept.unwrap().unwrap().path()).unwrap();
    let kept: BTreeSet<String> = kept
        .map(|one| fs::read_to_string(one.unwrap().path()).unwrap())
        .collect();
    let expected = [9, 14].map(|size| other.note(size).to_string());
    assert_eq!(kept, expected.into());

    // A proof that is not that of the sizes, or more than is asked for.
    let mut wrong = log.submission(9, 14);
    wrong.path.pop();
    let answer = witness
        .add_checkpoint(wrong.to_string().as_bytes())
        .unwrap();
    assert!(matches!(answer, Answer::Inconsistent(_)), "{answer:?}");
    cosigned(&log.submit(&witness, 9, 14), &key, &text(14));
}

#[test]
fn it_answers_nobody_else() {
    let mut log = Log::new("log.example/t/one");
    log.grow(8, "a");
    let mut stranger = Log::new("log.example/t/two");
    stranger.grow(8, "a");
    let (folder, _) = folder(&[&log]);
    let witness = Witness::open(folder.path()).unwrap();
    let add = |text: &str| witness.add_checkpoint(text.as_bytes()).unwrap();

    assert_eq!(stranger.submit(&witness, 0, 8), Answer::UnknownLog);
    let honest = log.submission(0, 8).to_string();
    let mut forged = log.submission(0, 8);
    // Signed by somebody else, under the log's name and id.
    let mut note = log.note(8);
    let sig = stranger.key.sign(note.text.as_bytes()).to_bytes();
    note.signatures = vec![log.verifier.signature(sig)];
    forged.checkpoint = note.to_string();
    assert_eq!(add(&forged.to_string()), Answer::UnknownKey);
    note.signatures = vec![stranger.verifier.signature(sig)];
    forged.checkpoint = note.to_string();
    assert_eq!(add(&forged.to_string()), Answer::UnknownKey);
    for malformed in [
        "",
        "old 0\n",
        &honest.replacen("old 0", "old 00", 1),
        &honest.replacen("old 0", "old 9", 1),
        &honest.replacen("\n8\n", "\n08\n", 1),
        &honest[..honest.len() - 1],
        &honest.replace("\u{2014}", "-"),
    ] {
        let answer = add(malformed);
        assert!(
            matches!(answer, Answer::Malformed(_)),
            "{malformed:?}: {answer:?}"
        );
    }
    assert_eq!(
        witness.add_checkpoint(b"\xff").unwrap(),
        Answer::Malformed("a submission is UTF-8".to_owned())
    );
    // Nothing of it counts as seen.
    assert_eq!(witness.sizes(), [("log.example/t/one".to_owned(), 0)]);

    // A log that is added to the list while it runs.
    list(folder.path(), &[&log, &stranger]);
    add(&honest);
    witness.reload().unwrap();
    assert!(matches!(
        stranger.submit(&witness, 0, 8),
        Answer::Cosigned(_)
    ));
    let sizes = witness.sizes().into_iter().map(|(_, size)| size);
    assert_eq!(sizes.collect::<Vec<_>>(), [8, 8]);
    // A list that cannot be read changes nothing.
    fs::write(folder.path().join("logs.txt"), "log nonsense\n").unwrap();
    let error = witness.reload().unwrap_err();
    assert!(error.to_string().contains("line 1"), "{error}");
    assert_eq!(witness.sizes().len(), 2);
}

#[test]
fn of_two_histories_at_once_one_is_signed() {
    let mut log = Log::new("log.example/t/one");
    log.grow(64, "a");
    let (folder, _) = folder(&[&log]);
    let witness = Arc::new(Witness::open(folder.path()).unwrap());
    for old in [0, 8, 16, 24] {
        let start = Arc::new(Barrier::new(8));
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let (witness, start) = (witness.clone(), start.clone());
                let mut own = Log::new("log.example/t/one");
                own.leaves = log.leaves[..old].to_vec();
                own.grow(old + 8, &format!("of {number}"));
                std::thread::spawn(move || {
                    start.wait();
                    match own.submit(&witness, old, old + 8) {
                        Answer::Cosigned(_) => Some(own.leaves),
                        other => {
                            assert_eq!(other, Answer::Size(old as u64 + 8));
                            None
                        }
                    }
                })
            })
            .collect();
        let signed: Vec<Vec<Hash>> = threads
            .into_iter()
            .filter_map(|thread| thread.join().unwrap())
            .collect();
        assert_eq!(signed.len(), 1, "from {old}");
        log.leaves = signed.into_iter().next().unwrap();
        assert_eq!(witness.sizes()[0].1, old as u64 + 8);
    }
}

#[test]
fn it_does_not_begin_anew() {
    let mut log = Log::new("log.example/t/one");
    log.grow(20, "a");
    let (folder, key) = folder(&[&log]);
    let path = folder.path();
    let witness = Witness::open(path).unwrap();
    assert!(matches!(log.submit(&witness, 0, 9), Answer::Cosigned(_)));
    // Two on one folder would not know of each other's signatures.
    assert!(matches!(
        Witness::open(path),
        Err(WitnessError::Running { .. })
    ));
    drop(witness);

    let witness = Witness::open(path).unwrap();
    assert_eq!(witness.verifier(), &key);
    assert_eq!(log.submit(&witness, 0, 12), Answer::Size(9));
    cosigned(&log.submit(&witness, 9, 12), &key, &log.note(12).text);
    // A log that was off the list for a time is known from before.
    list(path, &[]);
    witness.reload().unwrap();
    assert_eq!(log.submit(&witness, 12, 14), Answer::UnknownLog);
    list(path, &[&log]);
    witness.reload().unwrap();
    assert_eq!(log.submit(&witness, 0, 14), Answer::Size(12));
    drop(witness);

    // A state that cannot be read is no empty one.
    let state = path.join(format!("{}.checkpoint", Hash::of(&[b"log.example/t/one"])));
    let good = fs::read_to_string(&state).unwrap();
    for bad in [
        "",
        "nonsense",
        &good[..good.len() / 2],
        &good.replace("one", "two"),
    ] {
        fs::write(&state, bad).unwrap();
        let refused = Witness::open(path).err().unwrap();
        assert!(matches!(refused, WitnessError::State { .. }), "{refused}");
    }
    fs::write(&state, &good).unwrap();
    // Nor is a key made over another one, or read by everybody.
    assert!(Witness::init("witness.example/w2", path).is_err());
    let file = path.join("witness.key");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(Witness::open(path).is_err());
}

/// What was written down of a checkpoint before a crash, and not answered, is signed when it is asked for again.
#[test]
fn what_was_kept_and_not_answered_is_answered_later() {
    let mut log = Log::new("log.example/t/one");
    log.grow(20, "a");
    let (folder, key) = folder(&[&log]);
    let path = folder.path();
    drop(Witness::open(path).unwrap());
    // As after a kill between the file and the answer.
    let state = path.join(format!("{}.checkpoint", Hash::of(&[b"log.example/t/one"])));
    fs::write(&state, log.note(9).to_string()).unwrap();
    let witness = Witness::open(path).unwrap();
    assert_eq!(log.submit(&witness, 0, 9), Answer::Size(9));
    cosigned(&log.submit(&witness, 9, 9), &key, &log.note(9).text);
}

#[test]
fn its_signature_is_that_of_the_golden_ones() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let bundle =
        fs::read(vectors.join("minimal/run-01K7Q4Z8V2N5R3T6Y9B1C0D4E8.onrecord.tar")).unwrap();
    let start = bundle
        .windows(26)
        .position(|at| at == b"c2sp.org/tlog-proof@v1\nind")
        .unwrap();
    let length = 459;
    let text = std::str::from_utf8(&bundle[start..start + length]).unwrap();
    let note = Note::parse(&TlogProof::parse(text).unwrap().checkpoint).unwrap();
    let golden = note
        .signatures
        .iter()
        .find(|one| one.name == "witness.example/w1")
        .unwrap();

    // The key of that witness, by the rule of the vectors' keys.
    let seed = Hash::of(&[b"onrecord test key: witness 1"]).0;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("witness.key");
    let secret = [&[4][..], &seed].concat();
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, secret);
    fs::write(
        &file,
        format!("PRIVATE+KEY+witness.example/w1+3f5d39a7+{encoded}\n"),
    )
    .unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let key = WitnessKey::open(&file).unwrap();
    let keys = fs::read_to_string(vectors.join("keys.json")).unwrap();
    assert!(keys.contains(&key.verifier().to_string()));
    let time = Cosignature::from_bytes(&golden.bytes).unwrap().time;
    assert_eq!(&key.cosign(time, &note.text).unwrap(), golden);
}

/// `onrecord witness run` over a folder.
pub struct Process {
    child: Child,
    pub url: String,
    /// Lines of its log that say that it read its list again.
    reloads: tokio::sync::Mutex<tokio::sync::mpsc::UnboundedReceiver<()>>,
}

impl Process {
    pub async fn start(folder: &Path, listen: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_onrecord"))
            .args(["witness", "run", "--listen", listen])
            .arg(folder)
            .env_clear()
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = lines.next_line().await.unwrap().unwrap();
        let (_, url) = first.split_once(" at ").expect("its address");
        let (reload, reloads) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if line.contains("was read again") {
                    // Few tests wait for it.
                    let _ = reload.send(());
                }
            }
        });
        Self {
            child,
            url: url.to_owned(),
            reloads: tokio::sync::Mutex::new(reloads),
        }
    }

    /// Waits until it has read its list again.
    pub async fn reloaded(&self) {
        self.reloads.lock().await.recv().await.expect("it runs");
    }

    /// SIGKILL.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    pub fn hang_up(&self) {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        let id = rustix::process::Pid::from_raw(id).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::HUP).unwrap();
    }
}

async fn post(url: &str, body: String) -> (u16, String, String) {
    let sent = reqwest::Client::new()
        .post(format!("{url}/add-checkpoint"))
        .body(body);
    let answer = sent.send().await.unwrap();
    let kind = answer.headers().get("content-type");
    let kind = kind.map(|kind| kind.to_str().unwrap().to_owned());
    let status = answer.status().as_u16();
    (
        status,
        kind.unwrap_or_default(),
        answer.text().await.unwrap(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_it_keeps_to_the_protocol_and_survives_a_kill() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut log = Log::new("log.example/t/one");
    log.grow(200, "a");
    let (folder, key) = folder(&[&log]);
    let process = Process::start(folder.path(), "127.0.0.1:0").await;
    let (url, body) = (process.url.as_str(), |old, size| {
        log.submission(old, size).to_string()
    });

    let (status, _, line) = post(url, body(0, 5)).await;
    assert_eq!(status, 200, "{line}");
    // What comes back goes under the note as it is, and is one.
    let note = Note::parse(&format!("{}{line}", log.note(5))).unwrap();
    assert_eq!(note.signatures_of(&key).count(), 1);
    let (status, kind, size) = post(url, body(0, 9)).await;
    assert_eq!(
        (status, kind.as_str(), size.as_str()),
        (409, "text/x.tlog.size", "5\n")
    );
    let mut other = Log::new("log.example/t/one");
    other.grow(9, "b");
    assert_eq!(post(url, other.submission(5, 9).to_string()).await.0, 422);
    assert_eq!(post(url, other.submission(5, 5).to_string()).await.0, 409);
    let mut stranger = Log::new("log.example/t/two");
    stranger.grow(9, "b");
    assert_eq!(
        post(url, stranger.submission(0, 9).to_string()).await.0,
        404
    );
    stranger.verifier = log.verifier.clone();
    assert_eq!(
        post(url, stranger.submission(5, 9).to_string()).await.0,
        403
    );
    assert_eq!(post(url, "old x\n\n".to_owned()).await.0, 400);
    assert_eq!(post(url, "x".repeat(65_537)).await.0, 413);

    // Killed again and again while it signs: whatever was answered is what it goes on from.
    let mut answered = 5;
    let mut process = process;
    for round in 0..4 {
        let url = process.url.clone();
        let (report, mut reports) = tokio::sync::mpsc::unbounded_channel();
        let bodies: Vec<(usize, String)> = (answered..answered + 40)
            .map(|old| (old + 1, log.submission(old, old + 1).to_string()))
            .collect();
        let client = tokio::spawn(async move {
            for (size, body) in bodies {
                let sent = reqwest::Client::new().post(format!("{url}/add-checkpoint"));
                match sent.body(body).send().await {
                    Ok(answer) if answer.status() == 200 => report.send(size).unwrap(),
                    _ => return,
                }
            }
        });
        // Another number of signatures each round.
        for _ in 0..=2 * round {
            answered = reports.recv().await.unwrap();
        }
        process.kill().await;
        client.await.unwrap();
        while let Ok(size) = reports.try_recv() {
            answered = size;
        }
        process = Process::start(folder.path(), "127.0.0.1:0").await;
        let (status, _, size) = post(&process.url, log.submission(0, 200).to_string()).await;
        let known: usize = size.trim().parse().unwrap();
        assert_eq!(status, 409);
        // At most the one that was written and not answered.
        assert!(
            known == answered || known == answered + 1,
            "{known}, {answered}"
        );
        let (status, _, line) = post(&process.url, log.submission(known, known).to_string()).await;
        assert_eq!(status, 200, "{line}");
        answered = known;
    }
}
