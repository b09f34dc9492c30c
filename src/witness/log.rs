//! What a witness knows of one log: its keys, and the checkpoint that was cosigned last, which is a file.

use super::{Answer, WitnessError, at};
use crate::durable;
use onrecord_core::digest::Hash;
use onrecord_core::merkle::verify_consistency;
use onrecord_core::note::{
    Checkpoint, Note, NoteSignature, SignatureType, Submission, VerifierKey,
};
use onrecord_verify::PublicKey;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Checkpoints that a log signed and that contradict what was seen, kept of one log at most.
const REFUSED: usize = 100;

/// The keys of a log.
pub(super) type Keys = Vec<(VerifierKey, PublicKey)>;

/// One log.
pub(super) struct Log {
    keys: Keys,
    /// Where what was seen of it is kept.
    path: PathBuf,
    /// Where what was refused of it is kept.
    refused: PathBuf,
    /// Under the lock from the comparison to the signature: two submissions cannot both go on from one checkpoint.
    latest: Arc<Mutex<Checkpoint>>,
}

impl Log {
    /// Reads what was seen of a log; of a new one that is nothing.
    pub(super) fn open(folder: &Path, origin: &str, keys: Keys) -> Result<Self, WitnessError> {
        let name = Hash::of(&[origin.as_bytes()]).hex();
        let path = folder.join(format!("{name}.checkpoint"));
        let latest = match fs::read_to_string(&path) {
            Ok(text) => {
                let note = Note::parse(&text).ok();
                let seen = note.and_then(|note| Checkpoint::parse(&note.text).ok());
                let seen = seen.filter(|seen| seen.origin == origin);
                seen.ok_or_else(|| WitnessError::State {
                    path: path.clone(),
                    origin: origin.to_owned(),
                })?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Checkpoint {
                origin: origin.to_owned(),
                size: 0,
                root: Hash::of(&[]),
            },
            Err(error) => return Err(at(&path)(error)),
        };
        Ok(Self {
            keys,
            path,
            refused: folder.join("refused").join(name),
            latest: Arc::new(Mutex::new(latest)),
        })
    }

    /// The same log under other keys.
    pub(super) fn with_keys(&self, keys: Keys) -> Self {
        Self {
            keys,
            path: self.path.clone(),
            refused: self.refused.clone(),
            latest: self.latest.clone(),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.latest().size
    }

    fn latest(&self) -> MutexGuard<'_, Checkpoint> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The note with the log's own signatures only, if one is there and none is false.
    pub(super) fn signed(&self, note: &Note) -> Option<Note> {
        let mut signatures = Vec::new();
        for (verifier, key) in &self.keys {
            for bytes in note.signatures_of(verifier) {
                let signature = bytes.try_into().ok()?;
                if !key.verifies(note.text.as_bytes(), signature) {
                    return None;
                }
                signatures.push(verifier.signature(bytes));
            }
        }
        (!signatures.is_empty()).then(|| Note {
            text: note.text.clone(),
            signatures,
        })
    }

    /// Goes on to a checkpoint and signs it, if it goes on from the one before.
    pub(super) fn advance(
        &self,
        submission: &Submission,
        next: &Checkpoint,
        note: &Note,
        sign: impl FnOnce(&str) -> Result<NoteSignature, WitnessError>,
    ) -> Result<Answer, WitnessError> {
        let mut latest = self.latest();
        if submission.old != latest.size {
            return Ok(Answer::Size(latest.size));
        }
        if next.size == latest.size && next.root != latest.root {
            self.keep_refused(note);
            return Ok(Answer::Size(latest.size));
        }
        let (old, path) = (latest.size, &submission.path);
        if let Err(error) = verify_consistency(old, next.size, &latest.root, &next.root, path) {
            self.keep_refused(note);
            return Ok(Answer::Inconsistent(error.to_string()));
        }
        if *next != *latest {
            durable::replace(&self.path, note.to_string().as_bytes()).map_err(at(&self.path))?;
            // A crash from here on leaves a checkpoint that counts as seen and was not answered: the log is told its size, and
            // gets it signed when it asks from there.
            latest.clone_from(next);
        }
        Ok(Answer::Cosigned(sign(&note.text)?))
    }

    /// Keeps what a log signed although it contradicts what it signed before: evidence of two histories, unless only the
    /// proof was wrong.
    fn keep_refused(&self, note: &Note) {
        let name = Hash::of(&[note.text.as_bytes()]).hex();
        let path = self.refused.join(format!("{name}.checkpoint"));
        let origin = note.text.lines().next().unwrap_or_default();
        let kept = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.refused)
            .and_then(|()| fs::read_dir(&self.refused))
            .and_then(|kept| {
                if kept.count() < REFUSED {
                    durable::write_new(&path, note.to_string().as_bytes())?;
                }
                Ok(())
            });
        match kept {
            Ok(()) => tracing::error!(
                origin,
                kept = %path.display(),
                "a checkpoint that the log signed does not go on from what this witness saw: another history, or a wrong proof"
            ),
            Err(error) => tracing::error!(
                origin,
                %error,
                "a checkpoint that the log signed does not go on from what this witness saw, and it could not be kept"
            ),
        }
    }
}

/// Reads a list of logs: `log VKEY [URL]` or the key alone, a line each.
pub(super) fn read_list(path: &Path, limit: u64) -> Result<BTreeMap<String, Keys>, WitnessError> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(limit).read_to_string(&mut text))
        .map_err(at(path))?;
    let mut logs = BTreeMap::<String, Keys>::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |problem: String| WitnessError::Logs {
            path: path.to_owned(),
            line: number,
            problem,
        };
        let parts: Vec<&str> = line.split_ascii_whitespace().collect();
        let key = match parts[..] {
            [] => continue,
            [first, ..] if first.starts_with('#') => continue,
            ["log", key] | ["log", key, _] | [key] => key,
            _ => return Err(wrong("expected `log VKEY`".to_owned())),
        };
        let verifier = VerifierKey::parse(key).map_err(|error| wrong(error.to_string()))?;
        if verifier.signature_type() != SignatureType::Text {
            return Err(wrong("a log's key has type 0x01".to_owned()));
        }
        let public = PublicKey::from_bytes(verifier.public_key());
        let public = public.map_err(|error| wrong(error.to_string()))?;
        let keys = logs.entry(verifier.name().to_owned()).or_default();
        if keys.iter().any(|(known, _)| *known == verifier) {
            return Err(wrong("this key stands here a second time".to_owned()));
        }
        keys.push((verifier, public));
    }
    if text.len() as u64 == limit {
        return Err(at(path)(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{limit} bytes or more"),
        )));
    }
    Ok(logs)
}
