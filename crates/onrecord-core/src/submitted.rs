//! What an agent signs of its own frame (spec: `docs/spec/frames.md`, "Submitted frames").

use crate::digest::Hash;
use crate::json::{JsonError, Limits, members, write_string};
use alloc::format;
use alloc::vec::Vec;

const LABEL: &[u8] = b"onrecord/submitted/1\n";
/// Members of a frame that the store gives it, which the agent cannot know.
const OF_THE_STORE: [&str; 3] = ["seq", "prev", "at"];

/// `"onrecord/submitted/1\n" ‖ [hex(first) ‖ "\n"] ‖ frame without seq, prev, at and submitted.sig`
///
/// `frame` are canonical bytes. `first` is the hash of frame 0, given exactly where `submitted.n` is 1.
///
/// # Errors
/// The bytes are no JSON object, or their `submitted` is none.
pub fn message(frame: &[u8], first: Option<&Hash>) -> Result<Vec<u8>, JsonError> {
    let mut out = Vec::with_capacity(frame.len() + 128);
    out.extend_from_slice(LABEL);
    if let Some(first) = first {
        out.extend_from_slice(format!("{first}\n").as_bytes());
    }
    object(&mut out, frame, &OF_THE_STORE, |out, name, raw| {
        if name == "submitted" {
            object(out, raw, &["sig"], |out, _, raw| {
                out.extend_from_slice(raw);
                Ok(())
            })
        } else {
            out.extend_from_slice(raw);
            Ok(())
        }
    })?;
    Ok(out)
}

/// Writes an object again without some of its members. Canonical order stays canonical.
fn object(
    out: &mut Vec<u8>,
    input: &[u8],
    without: &[&str],
    mut value: impl FnMut(&mut Vec<u8>, &str, &[u8]) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    out.push(b'{');
    let mut first = true;
    for member in members(input, Limits::FRAME)? {
        if without.contains(&member.name.as_str()) {
            continue;
        }
        if !first {
            out.push(b',');
        }
        first = false;
        write_string(out, &member.name);
        out.push(b':');
        value(out, &member.name, member.raw)?;
    }
    out.push(b'}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_out_what_is_the_stores_and_the_signature() {
        let frame = br#"{"at":"x","key":"k","prev":"p","seq":3,"submitted":{"keyid":"a","n":1,"sig":"s"},"turn":1}"#;
        let rest = br#"{"key":"k","submitted":{"keyid":"a","n":1},"turn":1}"#;
        let first = Hash([1; 32]);
        let mut expected = b"onrecord/submitted/1\n".to_vec();
        expected.extend_from_slice(rest);
        assert_eq!(message(frame, None).unwrap(), expected);
        let mut expected = b"onrecord/submitted/1\n".to_vec();
        expected.extend_from_slice(format!("{first}\n").as_bytes());
        expected.extend_from_slice(rest);
        assert_eq!(message(frame, Some(&first)).unwrap(), expected);
        assert!(message(br#"{"submitted":1}"#, None).is_err());
    }
}
