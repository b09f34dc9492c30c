//! Payloads that somebody presents beside the evidence, such as an agent its kept ones
//! (spec: `docs/spec/verification.md`, "Presented payloads").

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::digest::Hash;
use onrecord_core::payload;
use serde::{Deserialize, Serialize};

/// A payload with the salt of its commitment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presented {
    /// The commitment that it is said to be of.
    pub commit: Hash,
    /// The salt.
    pub salt: Hash,
    /// The payload.
    pub data: Vec<u8>,
}

/// A presented payload that is the one that a frame committed to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matched {
    /// The commitment.
    pub commit: Hash,
    /// The frame.
    pub seq: u64,
}

/// Why a text is no list of presented payloads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPresented {
    /// A line is none.
    #[error("presented payloads, line {line}: {cause}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        cause: String,
    },
    /// None at all, which would check nothing.
    #[error("no presented payloads in the file")]
    None,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    commit: Hash,
    salt: Hash,
    data: String,
}

/// Reads presented payloads, one `{commit, salt, data}` a line, `data` in base64.
pub fn parse_presented(text: &str) -> Result<Vec<Presented>, BadPresented> {
    let mut presented = Vec::new();
    let lines = text.lines().enumerate();
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let bad = |cause: String| BadPresented::Line {
            line: index + 1,
            cause,
        };
        let shape: Shape =
            onrecord_core::json::typed(line.as_bytes()).map_err(|error| bad(error.to_string()))?;
        let data = STANDARD
            .decode(&shape.data)
            .map_err(|_| bad("data is not base64".into()))?;
        presented.push(Presented {
            commit: shape.commit,
            salt: shape.salt,
            data,
        });
    }
    if presented.is_empty() {
        return Err(BadPresented::None);
    }
    Ok(presented)
}

impl Presented {
    /// Whether it is what a frame committed to, at this length after padding.
    pub(crate) fn is(&self, size: u64) -> bool {
        payload::is_committed(&self.commit, size, &self.salt.0, &self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_what_is_none_is_refused() {
        let (commit, salt) = ("ab".repeat(32), "cd".repeat(32));
        let line = |rest: &str| format!(r#"{{"commit":"{commit}","salt":"{salt}"{rest}}}"#);
        let text = format!("{}\n\n{}", line(r#","data":"eWVz""#), line(r#","data":"""#));
        let presented = parse_presented(&text).unwrap();
        assert_eq!((presented.len(), &presented[0].data[..]), (2, &b"yes"[..]));
        assert_eq!(presented[0].commit.hex(), commit);
        for (text, line) in [
            (line(""), 1),
            (line(r#","data":"eWVz","more":1"#), 1),
            (line(r#","data":"eWVz","data":"eWVz""#), 1),
            (line(r#","data":"eWV""#), 1),
            (line(r#","data":"-_-_""#), 1),
            (line(r#","data":null"#), 1),
            (format!("{text}\nx"), 4),
        ] {
            match parse_presented(&text) {
                Err(BadPresented::Line { line: found, .. }) => assert_eq!(found, line, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert_eq!(parse_presented(" \n"), Err(BadPresented::None));
    }
}
