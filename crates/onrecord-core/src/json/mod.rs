//! Strict JSON and its canonical bytes (spec: `docs/spec/json.md`).
//!
//! Input is RFC 8259 under the limits of I-JSON (RFC 7493), canonical bytes are RFC 8785. One scanner
//! reads the bytes once, in `scan.rs`; what is done with what it finds is the business of its target:
//! writing canonical bytes, noticing that the input is not canonical, or splitting it into members.
//!
//! When several reasons apply, the first of these is named: size of the input, byte order mark, UTF-8,
//! the first fault in reading order (duplicate keys count at the end of their object), top value, size
//! of the canonical bytes.

mod check;
mod error;
mod keys;
mod number;
mod scan;
mod split;
mod text;
mod typed;
mod write;

use crate::limits::{DEPTH, ENVELOPE_BYTES, FRAME_BYTES, PAYLOAD_BYTES};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

pub use error::{JsonError, NotCanonical, Reason};
pub use split::Member;
pub use text::write_string;
pub(crate) use text::{plain_run, unescape};
pub use typed::typed;
pub(crate) use typed::typed_value;

/// What is refused beyond the grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes at most, of the input and of its canonical form.
    pub bytes: usize,
    /// Nesting at most: the outer array or object is 1.
    pub depth: usize,
    /// Whether the top value has to be an object.
    pub object: bool,
}

impl Limits {
    /// A frame.
    pub const FRAME: Self = Self {
        bytes: FRAME_BYTES,
        depth: DEPTH,
        object: true,
    };
    /// A payload that is stored as JSON: any value.
    pub const PAYLOAD: Self = Self {
        bytes: PAYLOAD_BYTES,
        depth: DEPTH,
        object: false,
    };
    /// The envelope of a statement.
    pub const ENVELOPE: Self = Self {
        bytes: ENVELOPE_BYTES,
        depth: DEPTH,
        object: true,
    };
    /// Bytes that are in memory already and were bounded by whoever took them in.
    const UNSIZED: Self = Self {
        bytes: usize::MAX,
        depth: DEPTH,
        object: false,
    };
}

/// The RFC 8785 bytes of strict JSON.
///
/// # Errors
/// Names the first rule that the input breaks, see [`Reason`].
pub fn canonicalize(input: &[u8], limits: Limits) -> Result<Vec<u8>, JsonError> {
    canonical(input, limits).map_err(|fault| *fault)
}

fn canonical(input: &[u8], limits: Limits) -> Result<Vec<u8>, Box<JsonError>> {
    let text = scan::admit(input, limits)?;
    let output = scan::scan(text, limits, write::Writer::new(text))?.finish();
    if output.len() > limits.bytes {
        return Err(JsonError::at(Reason::Size, limits.bytes));
    }
    Ok(output)
}

/// Whether the input is strict JSON and exactly its own canonical form. Does not allocate if it is.
///
/// # Errors
/// [`NotCanonical::Json`] with what [`canonicalize`] answers, or where the canonical bytes differ.
pub fn check_canonical(input: &[u8], limits: Limits) -> Result<(), NotCanonical> {
    let text = scan::admit(input, limits).map_err(|fault| NotCanonical::Json(*fault))?;
    let mut differs = false;
    let scanned = scan::scan(text, limits, check::Checker::new(text, &mut differs)).map(drop);
    if differs {
        // The checker does not find every fault of input that is not canonical, so the answer is the writer's.
        let output = canonicalize(input, limits).map_err(NotCanonical::Json)?;
        let same = input.iter().zip(&output).take_while(|(a, b)| a == b);
        return Err(NotCanonical::Differs {
            offset: same.count(),
        });
    }
    scanned.map_err(|fault| NotCanonical::Json(*fault))
}

/// The text that the input is, if nothing forbids to read it.
pub(crate) fn text(input: &[u8], limits: Limits) -> Option<&str> {
    scan::admit(input, limits).ok()
}

/// The place after the value that begins at `at` of a text, if it is strict JSON and canonical as it stands
/// there, inside of so many arrays and objects.
pub(crate) fn canonical_value(text: &str, at: usize, depth: usize) -> Option<usize> {
    let mut differs = false;
    let checker = check::Checker::new(text, &mut differs);
    let end = scan::value(text, at, depth, Limits::UNSIZED, checker).ok()?;
    (!differs).then_some(end)
}

/// The members of the object that the input is, in their order, with the bytes of each value as they stand.
///
/// # Errors
/// As [`canonicalize`], the size of the canonical bytes aside; `not_object` whatever the limits say.
pub fn members(input: &[u8], limits: Limits) -> Result<Vec<Member<'_>>, JsonError> {
    let limits = Limits {
        object: true,
        ..limits
    };
    split::members(input, limits).map_err(|fault| *fault)
}

/// The elements of the array that the input is, as they stand.
///
/// # Errors
/// As [`canonicalize`], the size of the canonical bytes aside; `syntax` at the top value if it is no array.
pub fn elements(input: &[u8], limits: Limits) -> Result<Vec<&[u8]>, JsonError> {
    let limits = Limits {
        object: false,
        ..limits
    };
    split::elements(input, limits).map_err(|fault| *fault)
}

/// The text of one JSON string.
///
/// # Errors
/// As [`canonicalize`]; `syntax` if the input is another value.
pub fn string(raw: &[u8]) -> Result<String, JsonError> {
    split::string(raw, Limits::UNSIZED).map_err(|fault| *fault)
}

/// The canonical bytes of a value of our own types.
///
/// # Errors
/// As [`canonicalize`], size aside; `syntax` if the value has no JSON form, such as a map whose keys are no strings.
pub fn to_canonical<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, JsonError> {
    let json = serde_json::to_vec(value).map_err(|_| *JsonError::at(Reason::Syntax, 0))?;
    canonicalize(&json, Limits::UNSIZED)
}
