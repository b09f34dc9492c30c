//! Proofs that an entry is in a log, complete in one file (c2sp.org/tlog-proof).

use super::{decimal, unbase64};
use crate::digest::Hash;
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use core::fmt;

const HEADER: &str = "c2sp.org/tlog-proof@v1";
/// The longest path in a tree of fewer than 2^64 leaves.
const PATH_HASHES: usize = 64;

/// The index of an entry, its inclusion path and the checkpoint that the path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlogProof {
    /// Of the entry, from 0.
    pub index: u64,
    /// From the leaf's sibling up to a child of the root.
    pub path: Vec<Hash>,
    /// The signed checkpoint, verbatim and unchecked: a [`super::Note`] as text.
    pub checkpoint: String,
}

/// Why a text is no proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTlogProof {
    /// It begins otherwise.
    #[error("a proof's first line is {HEADER}")]
    Header,
    /// `extra` without base64 of at least one byte.
    #[error("a proof's extra line is `extra` and base64")]
    Extra,
    /// No `index` line, or its number is no number below 2^64 or not written the one way.
    #[error("a proof has a line of `index` and digits without leading zeros")]
    Index,
    /// Not base64 of 32 bytes, or a line too many.
    #[error("line {line} of the path is not the base64 of 32 bytes, or beyond {PATH_HASHES} lines")]
    Path {
        /// From 1, the first after the index.
        line: usize,
    },
    /// The path does not end in an empty line.
    #[error("a proof has an empty line between its path and its checkpoint")]
    Checkpoint,
}

impl TlogProof {
    /// Takes a whole proof. An `extra` line is checked and dropped: nobody signs it, and we write none.
    /// All else comes back from `Display` as it was.
    pub fn parse(text: &str) -> Result<Self, BadTlogProof> {
        let mut lines = Lines(text);
        if lines.take() != Some(HEADER) {
            return Err(BadTlogProof::Header);
        }
        let mut line = lines.take();
        if let Some(extra) = line.and_then(|line| line.strip_prefix("extra ")) {
            if unbase64(extra).is_none_or(|bytes| bytes.is_empty()) {
                return Err(BadTlogProof::Extra);
            }
            line = lines.take();
        }
        let index = line
            .and_then(|line| line.strip_prefix("index "))
            .and_then(decimal)
            .ok_or(BadTlogProof::Index)?;
        let mut path = Vec::new();
        loop {
            match lines.take().ok_or(BadTlogProof::Checkpoint)? {
                "" => break,
                line => path.push(hash(line).filter(|_| path.len() < PATH_HASHES).ok_or(
                    BadTlogProof::Path {
                        line: path.len() + 1,
                    },
                )?),
            }
        }
        Ok(Self {
            index,
            path,
            checkpoint: lines.0.into(),
        })
    }
}

impl fmt::Display for TlogProof {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{HEADER}\nindex {}", self.index)?;
        for hash in &self.path {
            writeln!(formatter, "{}", STANDARD.encode(hash.as_bytes()))?;
        }
        write!(formatter, "\n{}", self.checkpoint)
    }
}

/// What is left of the text.
struct Lines<'a>(&'a str);

impl<'a> Lines<'a> {
    /// The next line, if it ends.
    fn take(&mut self) -> Option<&'a str> {
        let (line, rest) = self.0.split_once('\n')?;
        self.0 = rest;
        Some(line)
    }
}

fn hash(line: &str) -> Option<Hash> {
    Hash::from_slice(&unbase64(line)?).ok()
}
