//! Presentation: whether a payload that somebody shows is one that the run committed to. Nothing of it is kept.

use super::intake::{self, IntakeCode, IntakeError};
use super::{RecordError, Recorder, offload, own};
use crate::access::Caller;
use crate::store::{self, StoreError};
use crate::vault;
use onrecord_core::digest::Hash;
use onrecord_core::id::RunId;
use onrecord_core::{json, payload};

/// A payload as it is shown.
pub struct Presentation {
    salt: Hash,
    bytes: Vec<u8>,
}

/// What is found of it.
#[derive(Clone, Copy, Debug)]
pub struct Presented {
    /// The frame that committed.
    pub seq: u64,
    /// Whether it is that payload.
    pub matches: bool,
}

impl Presentation {
    /// Reads `{salt | dek, json | text | base64}`.
    pub fn read(bytes: &[u8]) -> Result<Self, RecordError> {
        let (mut salt, mut content) = (None, None);
        for member in intake::request_members(bytes)? {
            let here = intake::pointer("", &member.name);
            let taken = |twice| shape(&here, twice);
            match member.name.as_str() {
                "salt" | "dek" if salt.is_some() => {
                    return Err(taken("one of salt and dek, not two").into());
                }
                "salt" => {
                    let found: Result<Hash, _> = json::typed(member.raw);
                    salt = Some(found.map_err(|_| taken("64 lower-case hex digits"))?);
                }
                "dek" => {
                    let found = json::string(member.raw);
                    let found = found.ok().and_then(|text| own::dek(&text));
                    let dek = found.ok_or_else(|| taken("32 bytes in base64"))?;
                    salt = Some(vault::salt_of(&dek.0)?);
                }
                _ => match intake::content(&here, &member)? {
                    Some(_) if content.is_some() => {
                        return Err(taken("one of json, text and base64, not two").into());
                    }
                    Some((bytes, _)) => content = Some(bytes),
                    None => return Err(intake::unknown(&here, &member.name).into()),
                },
            }
        }
        Ok(Self {
            salt: salt.ok_or_else(|| missing("salt or dek"))?,
            bytes: content.ok_or_else(|| missing("json, text or base64"))?,
        })
    }
}

impl Recorder {
    /// Whether a payload is the one that a commitment of a run is of.
    ///
    /// # Errors
    /// [`RecordError::NoPayload`]: the run has no such commitment, or its payload was erased.
    pub async fn present(
        &self,
        caller: Caller,
        run: RunId,
        commit: Hash,
        shown: Presentation,
    ) -> Result<Presented, RecordError> {
        let recorder = self.clone();
        let (seq, size) = self
            .detached(async move {
                let mut tx = recorder.store.snapshot(&caller.tenant).await?;
                store::runs::find(&mut tx, &run)
                    .await?
                    .ok_or_else(|| RecordError::NoRun(run.clone()))?;
                let place = store::payloads::place(&mut tx, &run, &commit).await?;
                tx.commit().await.map_err(StoreError::from)?;
                place.ok_or(RecordError::NoPayload { run, commit })
            })
            .await?;
        let matches = offload(shown.bytes.len(), || {
            payload::is_committed(&commit, size, &shown.salt.0, &shown.bytes)
        });
        Ok(Presented { seq, matches })
    }
}

fn missing(names: &str) -> IntakeError {
    IntakeError {
        code: IntakeCode::MissingMember,
        pointer: String::new(),
        detail: format!("{names} is needed"),
    }
}

fn shape(pointer: &str, expected: &str) -> IntakeError {
    IntakeError {
        code: IntakeCode::Shape,
        pointer: pointer.to_owned(),
        detail: expected.to_owned(),
    }
}
