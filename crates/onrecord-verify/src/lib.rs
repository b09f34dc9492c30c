//! Checks onrecord evidence offline, trusting nobody but the keys that the reader pins.
//!
//! What is checked, in which order, and what must be refused is in `docs/spec/verification.md`. Parsing
//! is in `onrecord-core` and `tar`, cryptography in `signature`, policy in `trust`; the server
//! and both command lines call [`verify`] and give the same [`Report`].

mod alone;
mod authority;
mod certificate;
mod check;
pub mod cli;
mod code;
mod copy;
mod der;
mod entries;
mod frame;
mod frames;
mod leaves;
mod ledger;
mod ledger_lines;
mod lines;
mod manifest;
mod payloads;
mod piecewise;
mod presented;
mod proof;
mod receipts;
mod render;
mod report;
mod run;
mod scratch;
mod seal;
mod signature;
mod statement;
mod submitted;
mod tar;
mod time_stamp;
mod trust;
mod turn;

pub use alone::TURN_BYTES;
pub use code::{Code, Status};
pub use copy::LedgerCopy;
pub use piecewise::{LedgerWalk, SignedCheckpoint, SignedFrames, ToldRun, check_seal};
pub use presented::{BadPresented, Matched, Presented, parse_presented};
pub use receipts::{BadReceipts, Receipts, parse_receipts};
pub use render::{escape, render};
pub use report::{Facts, Finding, Line, LineState, PROVES, Payloads, Report, Verdict, What};
pub use signature::{BadKey, PublicKey};
pub use time_stamp::{BadStamp, STAMP_BYTES, TimeStamp};
pub use trust::{TRUST_BYTES, Trust, TrustError, TrustFault};

use crate::check::Check;
use crate::code::Stage;
use crate::tar::{Archive, TarError};
use onrecord_core::receipt::Receipt;
use std::io::{BufRead, BufReader, Read};

/// Bytes read at a time.
pub(crate) const BUFFER_BYTES: usize = 256 * 1_024;

/// What to check against.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whom to trust; without, integrity is checked and the verdict is `no_trust` at best.
    pub trust: Option<Trust>,
    /// Whether withheld payloads are a gap.
    pub full: bool,
    /// An own copy of the ledger.
    pub ledger: Option<LedgerCopy>,
    /// Receipts that were kept.
    pub receipts: Vec<Receipt>,
    /// Envelopes of `run-head`s that were kept.
    pub signed_receipts: Vec<String>,
    /// Payloads that somebody presents.
    pub presented: Vec<Presented>,
}

/// Checks a run bundle, a turn proof, a frame proof or a whole ledger, told apart by content, in one pass.
///
/// Memory does not grow with the input but for some tens of bytes a frame and more a payload; of long runs
/// the frames' hashes are in a file without a name in the folder for temporary files, 32 bytes each, as far as
/// there is room. A turn proof is held whole, up to [`TURN_BYTES`]. The frames of a large bundle are read on as many threads as there are
/// cores, with the same report. Never fails: input that cannot be read is a verdict too.
pub fn verify(input: impl Read, options: &Options) -> Report {
    let mut check = Check::new(options.trust.as_ref());
    let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
    let first = match input.fill_buf() {
        Ok(bytes) => bytes.first().copied(),
        Err(error) => {
            return Report::unusable(Code::Input, format!("the input could not be read: {error}"));
        }
    };
    match first {
        None => check.push(Stage::Container, Code::Input, "the input is empty"),
        Some(b'{') => alone::verify(&mut check, input, options),
        Some(_) => archive(&mut check, Archive::new(input), options),
    }
    check.finish()
}

fn archive<R: BufRead>(check: &mut Check<'_>, mut archive: Archive<R>, options: &Options) {
    match archive.next() {
        Ok(Some(first)) if first.name == ledger::CHECKPOINT => {
            ledger::verify(check, &mut archive, first);
            if !options.presented.is_empty() {
                check.skip("presented payloads: they are compared with runs and turns");
            }
        }
        Ok(Some(first)) => run::verify(check, &mut archive, first, options),
        Ok(None) => check.push_tar(&TarError::Malformed("the archive is empty".into())),
        Err(error) => check.push_tar(&error),
    }
}
