//! What a log hands to a witness (c2sp.org/tlog-witness, "add-checkpoint").

use super::{decimal, unbase64};
use crate::digest::Hash;
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use core::fmt;

/// Hashes of a consistency proof at most: trees of fewer than 2^63 leaves have no longer one.
const PATH_HASHES: usize = 63;

/// A checkpoint, and the proof that it goes on from the one that the witness had last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Size of the checkpoint that the witness had last; 0 where it had none, or the log does not know.
    pub old: u64,
    /// Consistency proof from that size; empty from 0.
    pub path: Vec<Hash>,
    /// The signed checkpoint, verbatim and unchecked: a [`super::Note`] as text.
    pub checkpoint: String,
}

/// Why a text is no submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSubmission {
    /// The first line is not `old` and a size.
    #[error("a submission's first line is `old` and digits without leading zeros")]
    Old,
    /// Not base64 of 32 bytes, or a line too many.
    #[error(
        "line {line} of the proof is not the base64 of 32 bytes, or beyond {PATH_HASHES} lines"
    )]
    Path {
        /// From 1, the first after the size.
        line: usize,
    },
    /// The proof does not end in an empty line.
    #[error("a submission has an empty line between its proof and its checkpoint")]
    Checkpoint,
}

impl Submission {
    /// Takes a whole submission; its `Display` gives the same bytes back.
    pub fn parse(text: &str) -> Result<Self, BadSubmission> {
        let (first, mut rest) = text.split_once('\n').ok_or(BadSubmission::Old)?;
        let old = first.strip_prefix("old ").and_then(decimal);
        let old = old.ok_or(BadSubmission::Old)?;
        let mut path = Vec::new();
        loop {
            let (line, after) = rest.split_once('\n').ok_or(BadSubmission::Checkpoint)?;
            rest = after;
            if line.is_empty() {
                break;
            }
            let hash = unbase64(line).and_then(|bytes| Hash::from_slice(&bytes).ok());
            let number = path.len() + 1;
            let hash = hash.filter(|_| number <= PATH_HASHES);
            path.push(hash.ok_or(BadSubmission::Path { line: number })?);
        }
        Ok(Self {
            old,
            path,
            checkpoint: rest.into(),
        })
    }
}

impl fmt::Display for Submission {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "old {}", self.old)?;
        for hash in &self.path {
            writeln!(formatter, "{}", STANDARD.encode(hash.as_bytes()))?;
        }
        write!(formatter, "\n{}", self.checkpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;
    use alloc::vec;

    #[test]
    fn a_submission_comes_back_as_it_was() {
        let one = Submission {
            old: 12,
            path: vec![Hash([7; 32]), Hash([9; 32])],
            checkpoint: "a\n\nb\n".into(),
        };
        assert_eq!(Submission::parse(&one.to_string()), Ok(one));
        let first = Submission::parse("old 0\n\nnote").unwrap();
        assert_eq!((first.old, first.path.len()), (0, 0));
    }

    #[test]
    fn what_is_no_submission_is_refused() {
        let hash = STANDARD.encode([7; 32]);
        let many =
            |lines: usize| alloc::format!("old 1\n{}\n", alloc::format!("{hash}\n").repeat(lines));
        assert!(Submission::parse(&many(63)).is_ok());
        for (text, error) in [
            ("", BadSubmission::Old),
            ("old 1", BadSubmission::Old),
            ("old 01\n\n", BadSubmission::Old),
            ("old -1\n\n", BadSubmission::Old),
            ("old  1\n\n", BadSubmission::Old),
            ("old 1\r\n\n", BadSubmission::Old),
            ("old 18446744073709551616\n\n", BadSubmission::Old),
            ("old 1\n", BadSubmission::Checkpoint),
            ("old 1\nAAAA\n\n", BadSubmission::Path { line: 1 }),
            (&many(64), BadSubmission::Path { line: 64 }),
        ] {
            assert_eq!(Submission::parse(text), Err(error), "{text:?}");
        }
    }
}
