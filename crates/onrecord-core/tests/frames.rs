//! Chains that break at one rule: the golden `frames/invalid.json`.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot read its vectors fails"
)]

use onrecord_core::chain::{Chain, Fault, Seen};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    code: String,
    first_bad_seq: u64,
    frames: Vec<String>,
}

fn read(frames: &[String]) -> Result<(), Fault> {
    let first = Chain::read(frames[0].as_bytes(), 0)?;
    let mut chain = Chain::new(first.tenant.clone(), first.run.clone());
    let mut seen = Seen::default();
    for frame in frames {
        chain.extend(frame.as_bytes(), Some(&mut seen))?;
    }
    Ok(())
}

#[test]
fn every_chain_breaks_where_it_should() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/vectors/frames/invalid.json"
    );
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert!(cases.len() > 50);
    let mut wrong = Vec::new();
    for case in cases {
        match read(&case.frames) {
            Err(fault)
                if (fault.code.as_str(), fault.seq) == (case.code.as_str(), case.first_bad_seq) => {
            }
            other => wrong.push(format!(
                "{}: expected {} at {}, found {other:?}",
                case.name, case.code, case.first_bad_seq
            )),
        }
        // Everything before the last frame is well.
        if let Err(fault) = case
            .frames
            .split_last()
            .filter(|(_, before)| !before.is_empty())
            .map_or(Ok(()), |(_, before)| read(before))
        {
            wrong.push(format!(
                "{}: breaks before its last frame: {fault}",
                case.name
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
