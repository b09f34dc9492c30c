//! The chain of a run: what may follow what, and what the seal says of it (spec: `docs/spec/chain.md`).
//!
//! [`Links::extend`] is the one rule: the store places every frame with it, the verifier reads every
//! frame with it.

mod links;
mod saved;
mod seen;

pub use links::{Line, Links, Opened};
pub use seen::Seen;

use crate::digest::{Hash, leaf_hash_in};
use crate::frame::{BadFrame, Draft, Frame};
use crate::id::{RunId, TenantId};
use crate::json::NotCanonical;
use crate::submitted::Counts;
use crate::timestamp::Timestamp;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Deref;
use sha2::{Digest as _, Sha256};

/// `SHA-256("onrecord/genesis/1\n" tenant "\n" run "\n")`: the `prev` of frame 0.
pub fn genesis(tenant: &TenantId, run: &RunId) -> Hash {
    Hash::of(&[format!("onrecord/genesis/1\n{tenant}\n{run}\n").as_bytes()])
}

/// Which rule a frame breaks; the word is the verdict's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameCode {
    /// Not strict JSON.
    FrameJson,
    /// Not the canonical spelling.
    FrameCanonical,
    /// Another format or suite.
    Suite,
    /// A member is absent, unknown or of the wrong shape.
    FrameShape,
    /// Another tenant or run.
    FrameScope,
    /// Not the next place.
    FrameSeq,
    /// Does not name the frame before.
    FramePrev,
    /// The store's time went back.
    FrameTime,
    /// Not allowed at this place of the run.
    FrameStructure,
    /// A `turn_end` does not describe its turn.
    TurnRoot,
}

impl FrameCode {
    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FrameJson => "frame_json",
            Self::FrameCanonical => "frame_canonical",
            Self::Suite => "suite",
            Self::FrameShape => "frame_shape",
            Self::FrameScope => "frame_scope",
            Self::FrameSeq => "frame_seq",
            Self::FramePrev => "frame_prev",
            Self::FrameTime => "frame_time",
            Self::FrameStructure => "frame_structure",
            Self::TurnRoot => "turn_root",
        }
    }
}

/// A frame that may not stand where it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", .code.as_str())]
pub struct Fault {
    /// The rule.
    pub code: FrameCode,
    /// The frame that shows it: for `frame_prev` the one before the link that does not fit.
    pub seq: u64,
    /// What was found and what was expected.
    pub detail: String,
}

/// A run up to some frame: everything that the next frame, the seal and a head need, of a size that
/// does not grow with the run.
#[derive(Clone)]
pub struct Chain {
    links: Links,
    file: Sha256,
    counts: Counts,
}

/// What a chain says of its frames, which its [`Links`] say.
impl Deref for Chain {
    type Target = Links;

    fn deref(&self) -> &Links {
        &self.links
    }
}

impl Chain {
    /// A run before its first frame.
    pub fn new(tenant: TenantId, run: RunId) -> Self {
        Self {
            links: Links::new(tenant, run),
            file: Sha256::new(),
            counts: Counts::default(),
        }
    }

    /// How far agents' keys have counted. Whether a frame counts on is not asked by [`Chain::extend`], since it is a
    /// check of its own; who places one asks before ([`Counts::check`]).
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Plain SHA-256 of `frames.ndjson`: every line with its newline.
    pub fn file_digest(&self) -> Hash {
        Hash(self.file.clone().finalize().into())
    }

    /// Gives a draft its place at a time and extends the chain with it.
    ///
    /// Errors: the frame may not stand here; the chain is as it was.
    pub fn place(&mut self, draft: &Draft, at: Timestamp) -> Result<Vec<u8>, Fault> {
        let bytes = draft.write(self.tenant(), self.run(), self.size(), &self.head(), at);
        self.extend(&bytes, None)?;
        Ok(bytes)
    }

    /// Reads the next line, without its newline, and extends the chain with it.
    ///
    /// Errors: the first rule that it breaks, in the order of [`FrameCode`]; the chain is as it was.
    pub fn extend<'a>(
        &mut self,
        bytes: &'a [u8],
        seen: Option<&mut Seen>,
    ) -> Result<Frame<'a>, Fault> {
        let frame = Self::read(bytes, self.size())?;
        self.extend_read(&frame, bytes, seen)?;
        Ok(frame)
    }

    /// Extends the chain with a frame that [`Chain::read`] made of these bytes, on whatever thread.
    ///
    /// Errors: as [`Chain::extend`] of a frame that could be read; the chain is as it was.
    pub fn extend_read(
        &mut self,
        frame: &Frame<'_>,
        bytes: &[u8],
        seen: Option<&mut Seen>,
    ) -> Result<(), Fault> {
        let mut file = self.file.clone();
        let hash = leaf_hash_in(bytes, &mut file, self.file_bytes());
        self.links.extend(frame, Line { bytes, hash }, seen)?;
        self.file = file;
        if let Some(submitted) = &frame.submitted {
            self.counts.take(submitted);
        }
        Ok(())
    }

    /// Reads a frame that stands at `seq`, without its newline: what the rules of a frame alone say.
    ///
    /// Errors: `frame_json`, `frame_canonical`, `suite` or `frame_shape`.
    pub fn read(bytes: &[u8], seq: u64) -> Result<Frame<'_>, Fault> {
        let fault = |code, detail| Fault { code, seq, detail };
        let read = Frame::canonical(bytes).map_err(|error| match error {
            NotCanonical::Json(error) => fault(FrameCode::FrameJson, format!("{error}")),
            NotCanonical::Differs { offset } => fault(
                FrameCode::FrameCanonical,
                format!("not the canonical spelling at byte {offset}"),
            ),
        })?;
        read.map_err(|error| match error {
            BadFrame::Suite(detail) => fault(FrameCode::Suite, detail),
            BadFrame::Shape(detail) => fault(FrameCode::FrameShape, detail),
        })
    }
}
