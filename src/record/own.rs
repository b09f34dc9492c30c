//! Commitments that agents make themselves: beside the payload and its key, where the agent signs its frame, or instead
//! of the payload, where it keeps it.

use super::intake::{IntakeCode, IntakeError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::digest::Hash;
use onrecord_core::json;
use onrecord_core::payload;
use std::fmt;
use zeroize::Zeroizing;

/// A commitment as it was sent.
#[derive(Debug)]
pub enum Own {
    /// The payload comes along, and the key that the commitment is made with.
    Sent {
        /// The commitment.
        commit: Hash,
        /// Its key.
        dek: Dek,
    },
    /// The agent keeps the payload.
    Kept {
        /// The commitment.
        commit: Hash,
        /// Length after padding, in bytes.
        size: u64,
    },
}

/// A payload's key that is not for logs.
pub struct Dek(pub Zeroizing<[u8; 32]>);

impl fmt::Debug for Dek {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}

impl Own {
    /// The commitment.
    pub fn commit(&self) -> &Hash {
        match self {
            Self::Sent { commit, .. } | Self::Kept { commit, .. } => commit,
        }
    }

    /// Whether the agent keeps the payload.
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::Kept { .. })
    }
}

/// Members of a payload that are about its commitment, as they are read one by one.
#[derive(Default)]
pub(super) struct Members {
    commit: Option<Hash>,
    dek: Option<Dek>,
    kept: bool,
    size: Option<u64>,
}

impl Members {
    /// Reads a member, if it is one of them.
    pub(super) fn read(&mut self, name: &str, here: &str, raw: &[u8]) -> Result<bool, IntakeError> {
        let wrong = |expected| Err(shape(here, expected));
        match name {
            "commit" => match json::typed(raw) {
                Ok(commit) => self.commit = Some(commit),
                Err(_) => return wrong("64 lower-case hex digits"),
            },
            "dek" => match json::string(raw).ok().and_then(|text| dek(&text)) {
                Some(dek) => self.dek = Some(dek),
                None => return wrong("32 bytes in base64 of the standard alphabet, padded"),
            },
            "kept" => match json::typed(raw) {
                Ok(false) => self.kept = true,
                _ => return wrong("false, where you keep the payload; leave it out otherwise"),
            },
            "size" => match json::typed(raw) {
                Ok(size) if payload::is_bucket(size) => self.size = Some(size),
                _ => return wrong("the length after padding: `onrecord commit` says it"),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The commitment, if there is one. `content` says whether the payload came along, `media` whether its type did.
    pub(super) fn finish(
        self,
        at: &str,
        content: bool,
        media: bool,
    ) -> Result<Option<Own>, IntakeError> {
        let missing = |name: &str, why: &str| IntakeError {
            code: IntakeCode::MissingMember,
            pointer: at.to_owned(),
            detail: format!("{name} is needed {why}"),
        };
        if self.kept {
            let with = "beside `kept: false`";
            if content {
                return Err(shape(
                    &format!("{at}/kept"),
                    "a payload that you keep is not sent: leave json, text or base64 out, or `kept`",
                ));
            }
            if self.dek.is_some() {
                return Err(shape(
                    &format!("{at}/dek"),
                    "the key of a payload that you keep is yours alone: leave it out",
                ));
            }
            if !media {
                return Err(missing("media", with));
            }
            let commit = self.commit.ok_or_else(|| missing("commit", with))?;
            let size = self.size.ok_or_else(|| missing("size", with))?;
            return Ok(Some(Own::Kept { commit, size }));
        }
        if self.size.is_some() {
            return Err(shape(
                &format!("{at}/size"),
                "goes with `kept: false` only; the store counts the bytes that it gets",
            ));
        }
        match (self.commit, self.dek) {
            (None, None) => Ok(None),
            (Some(commit), Some(dek)) => Ok(Some(Own::Sent { commit, dek })),
            (Some(_), None) => Err(missing("dek", "beside a commitment of your own")),
            (None, Some(_)) => Err(missing("commit", "beside a key of your own")),
        }
    }
}

/// A key in base64.
pub(super) fn dek(text: &str) -> Option<Dek> {
    let bytes = Zeroizing::new(STANDARD.decode(text).ok()?);
    let key: [u8; 32] = bytes.as_slice().try_into().ok()?;
    Some(Dek(Zeroizing::new(key)))
}

fn shape(pointer: &str, expected: &str) -> IntakeError {
    IntakeError {
        code: IntakeCode::Shape,
        pointer: pointer.to_owned(),
        detail: expected.to_owned(),
    }
}
