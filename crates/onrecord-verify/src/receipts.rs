//! Receipts that a writer kept (spec: `docs/spec/ledger.md`, "Receipts").

use crate::check::Check;
use crate::code::{Code, Stage};
use crate::frames::Frames;
use crate::statement::{self, Signer};
use onrecord_core::digest::Hash;
use onrecord_core::id::{Origin, RunId};
use onrecord_core::json;
use onrecord_core::receipt::Receipt;
use onrecord_core::statement::Predicate;
use onrecord_core::timestamp::Timestamp;
use serde::Deserialize;

/// Why a text is no list of receipts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReceipts {
    /// A line is none.
    #[error("receipts, line {line}: {cause}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        cause: String,
    },
    /// None at all, which would check nothing.
    #[error("no receipts in the file")]
    None,
}

/// Receipts as they were kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipts {
    /// What appends answered.
    pub plain: Vec<Receipt>,
    /// Envelopes of `run-head`s, which say the same under the store's signature.
    pub signed: Vec<String>,
}

/// The answer of an append, as it is or cut down to the receipt.
#[derive(Deserialize)]
struct Answer {
    at: Timestamp,
    hash: Hash,
    run: RunId,
    seq: u64,
    #[serde(default)]
    result: Option<Receipt>,
    #[serde(default)]
    signed: Option<String>,
}

/// What only an envelope has.
#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "payloadType")]
    _payload_type: String,
}

/// Reads receipts, one a line: `{run, seq, hash, at}`, the whole answer of an append (with its `result` and `signed`), or the
/// envelope of a `run-head`.
pub fn parse_receipts(text: &str) -> Result<Receipts, BadReceipts> {
    let mut receipts = Receipts::default();
    for (index, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        if json::typed::<Envelope>(line.as_bytes()).is_ok() {
            receipts.signed.push(line.trim().to_owned());
            continue;
        }
        let answer: Answer = json::typed(line.as_bytes()).map_err(|error| BadReceipts::Line {
            line: index + 1,
            cause: error.to_string(),
        })?;
        let (at, hash, run, seq) = (answer.at, answer.hash, answer.run, answer.seq);
        receipts.plain.push(Receipt { at, hash, run, seq });
        receipts.plain.extend(answer.result);
        receipts.signed.extend(answer.signed);
    }
    if receipts == Receipts::default() {
        return Err(BadReceipts::None);
    }
    Ok(receipts)
}

/// Holds signed receipts against the frames of a run, which have passed.
pub(crate) fn check_signed(
    check: &mut Check<'_>,
    signed: &[String],
    frames: &Frames,
    origin: Option<&Origin>,
) {
    let mut others = 0;
    for envelope in signed {
        let trust = check.trust;
        let findings = &mut check.findings;
        let mut emit = |code, cause: String| {
            let cause = format!("a signed receipt: {cause}");
            findings.push(Stage::Receipts, code, None, cause);
        };
        let read = statement::check(envelope.as_bytes(), trust, origin, Code::Receipt, &mut emit);
        let Some(statement) = read else { continue };
        let head = match statement.predicate {
            Some(Predicate::RunHead(head)) => head,
            Some(_) => {
                let cause = format!("it is a {}, and not a run-head", statement.signed.name);
                emit(Code::Receipt, cause);
                continue;
            }
            None => continue,
        };
        if frames.run().is_some_and(|run| *run != head.state.run) {
            others += 1;
            continue;
        }
        // What nobody that is trusted signed is named, and is not held against anything.
        if matches!(statement.signer, Signer::Unknown | Signer::False) {
            continue;
        }
        match frames.agree(&head.state, Some(&statement.signed.digest)) {
            Ok(()) => check.receipts += 1,
            Err(cause) => emit(Code::Receipt, cause),
        }
    }
    if others > 0 {
        check.skip(format!("{others} signed receipts of other runs"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_receipt_an_answer_or_an_envelope() {
        let receipt = r#"{"at":"2026-08-09T11:02:32.500000Z","hash":"010f6d4023d68250504426fd87c925e3f474154767e63c4747d485d4d68b49f1","run":"01K7Q53Q0BT5J2N9R6F8W1C4KM","seq":2}"#;
        let envelope =
            r#"{"payload":"e30=","payloadType":"application/vnd.in-toto+json","signatures":[]}"#;
        let signed = serde_json::to_string(envelope).unwrap();
        let answer = format!(
            r#"{{"status":201,"result":{receipt},"signed":{signed},{}"#,
            &receipt[1..]
        );
        let read = parse_receipts(&format!("{receipt}\n\n{answer}\n{envelope}\n")).unwrap();
        assert_eq!(read.plain.len(), 3);
        assert_eq!(read.signed, [envelope, envelope]);
        assert_eq!(parse_receipts("\n"), Err(BadReceipts::None));
        assert!(matches!(
            parse_receipts(&format!("{receipt}\n{{}}\n")),
            Err(BadReceipts::Line { line: 2, .. })
        ));
    }
}
