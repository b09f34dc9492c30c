//! The golden vectors of strict JSON.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use onrecord_core::digest::leaf_hash;
use onrecord_core::json::{Limits, NotCanonical, canonicalize, check_canonical};
use std::fs;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/json")
}

fn cases(kind: &str) -> Vec<(String, String, Vec<u8>)> {
    let text = fs::read_to_string(folder().join("cases.json")).unwrap();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let case = |(name, answer): (&String, &serde_json::Value)| {
        let input = fs::read(folder().join(format!("{kind}/{name}.in"))).unwrap();
        (name.clone(), answer.as_str().unwrap().to_owned(), input)
    };
    all[kind].as_object().unwrap().iter().map(case).collect()
}

#[test]
fn valid_frames_have_the_golden_bytes_and_hash() {
    let cases = cases("valid");
    assert_eq!(cases.len(), 26);
    for (name, hash, input) in cases {
        let golden = fs::read(folder().join(format!("valid/{name}.out"))).unwrap();
        let canonical = canonicalize(&input, Limits::FRAME).unwrap();
        assert_eq!(canonical, golden, "{name}");
        assert_eq!(leaf_hash(&canonical).hex(), hash, "{name}");
        assert_eq!(check_canonical(&golden, Limits::FRAME), Ok(()), "{name}");
        match check_canonical(&input, Limits::FRAME) {
            Ok(()) => assert_eq!(input, golden, "{name}"),
            Err(NotCanonical::Differs { offset }) => {
                assert_eq!(input[..offset], golden[..offset], "{name}");
                assert_ne!(input.get(offset), golden.get(offset), "{name}");
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn invalid_frames_are_refused_for_the_golden_reason() {
    let cases = cases("invalid");
    assert_eq!(cases.len(), 83);
    for (name, reason, input) in cases {
        let error = canonicalize(&input, Limits::FRAME).expect_err(&name);
        assert_eq!(error.reason.as_str(), reason, "{name}");
        assert!(error.offset <= input.len().max(65_536), "{name}");
        let checked = check_canonical(&input, Limits::FRAME);
        assert_eq!(checked, Err(NotCanonical::Json(error)), "{name}");
    }
}

#[test]
fn numbers_have_the_golden_spelling() {
    let lines = fs::read_to_string(folder().join("numbers.tsv")).unwrap();
    assert!(lines.lines().count() >= 500);
    for line in lines.lines() {
        let (spelling, golden) = line.split_once('\t').unwrap();
        let input = format!(r#"{{"a":{spelling}}}"#);
        let answer = canonicalize(input.as_bytes(), Limits::FRAME);
        if let Some(reason) = golden.strip_prefix('!') {
            let error = answer.expect_err(spelling);
            assert_eq!(error.reason.as_str(), reason, "{spelling}");
            assert_eq!((error.offset, error.pointer.as_str()), (5, "/a"));
        } else {
            let golden = format!(r#"{{"a":{golden}}}"#).into_bytes();
            assert_eq!(answer.as_ref(), Ok(&golden), "{spelling}");
            assert_eq!(check_canonical(&golden, Limits::FRAME), Ok(()));
        }
    }
}
