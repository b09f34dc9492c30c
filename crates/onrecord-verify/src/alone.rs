//! What is shown without the rest of its run, as one JSON text: a turn, or a frame.

use crate::Options;
use crate::check::Check;
use crate::code::{Code, Stage};
use crate::{frame, turn};
use onrecord_core::bundle::{FRAME_PROOF, TURN_PROOF};
use onrecord_core::json::{self, Limits};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::Read;

/// Bytes of a turn proof, which is the one input that is held in memory.
pub const TURN_BYTES: u64 = 256 << 20;

/// Which of the two it is.
#[derive(Deserialize)]
struct Marked {
    onrecord: String,
}

/// Checks a proof of a turn or of a frame.
pub(crate) fn verify(check: &mut Check<'_>, input: impl Read, options: &Options) {
    if let Err(cause) = read(check, input, options) {
        check.note_trust();
        check.push(Stage::Container, Code::Input, cause);
    }
}

fn read(check: &mut Check<'_>, input: impl Read, options: &Options) -> Result<(), String> {
    let bytes = bytes(input)?;
    let Marked { onrecord } = typed(&bytes)?;
    match onrecord.as_str() {
        TURN_PROOF => turn::verify(check, typed(&bytes)?, options),
        FRAME_PROOF => frame::verify(check, typed(&bytes)?, options),
        other => {
            return Err(format!(
                "the input is {other:?}, expected {TURN_PROOF:?} or {FRAME_PROOF:?}"
            ));
        }
    }
    Ok(())
}

fn bytes(input: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = input.take(TURN_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("the input could not be read: {error}"))?;
    if bytes.len() as u64 > TURN_BYTES {
        return Err(format!("a turn proof has at most {TURN_BYTES} bytes"));
    }
    let limits = Limits {
        bytes: usize::MAX,
        ..Limits::FRAME
    };
    json::check_canonical(&bytes, limits).map_err(|error| format!("no proof: {error}"))?;
    Ok(bytes)
}

fn typed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    json::typed(bytes).map_err(|error| format!("no proof: {error}"))
}
