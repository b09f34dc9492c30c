//! The evidence format `onrecord-v1` and its rules, without I/O.
//!
//! Every rule of the format has its one home here and is used both to write and to check. The
//! specification is in `docs/spec/`; each module names the section that it follows.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod account;
pub mod bundle;
pub mod chain;
pub mod coverage;
pub mod custody;
pub mod digest;
pub mod facts;
pub mod frame;
pub mod id;
pub mod invariants;
pub mod json;
pub mod limits;
pub mod merkle;
pub mod note;
pub mod payload;
pub mod pins;
pub mod receipt;
pub mod replayable;
pub mod statement;
pub mod submitted;
pub mod timestamp;
