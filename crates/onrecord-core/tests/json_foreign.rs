//! Other people's vectors of JSON and RFC 8785. They live beside the project and are skipped aloud where they are absent.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

#[path = "../../../tests/shared/mod.rs"]
mod shared;

use onrecord_core::json::{
    Limits, Reason, canonicalize, check_canonical, elements, members, string, to_canonical,
    write_string,
};
use serde_json::Value;
use shared::shared;
use std::fs;
use std::path::Path;

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{}", folder.display());
    files
}

/// A number's text as an element of a payload.
fn number(spelling: &str) -> Result<Vec<u8>, Reason> {
    canonicalize(spelling.as_bytes(), Limits::PAYLOAD).map_err(|error| error.reason)
}

#[test]
fn cyberphone_pairs() {
    let Some(folder) = shared("vectors/rfc8785-cyberphone") else {
        return;
    };
    for (name, input) in files(&folder.join("input")) {
        let golden = fs::read(folder.join("output").join(&name)).unwrap();
        let hex = fs::read_to_string(folder.join("outhex").join(name.replace("json", "txt")));
        let hex = hex.unwrap().split_whitespace().collect::<String>();
        assert_eq!(onrecord_core::digest::hex(&golden), hex, "{name}");
        let answer = canonicalize(&input, Limits::PAYLOAD);
        if name == "values.json" {
            // It has 1E30, which RFC 8785 writes as an integer that the range forbids.
            assert_eq!(answer.unwrap_err().reason, Reason::IntegerRange);
            let input = String::from_utf8(input).unwrap().replace("1E30", "1e15");
            let golden = String::from_utf8(golden).unwrap();
            let golden = golden.replace("1e+30", "1000000000000000");
            let answer = canonicalize(input.as_bytes(), Limits::PAYLOAD).unwrap();
            assert_eq!(String::from_utf8(answer).unwrap(), golden);
        } else {
            assert_eq!(answer.unwrap(), golden, "{name}");
            assert_eq!(check_canonical(&golden, Limits::PAYLOAD), Ok(()), "{name}");
        }
    }
}

/// The double of these bits, spelled in full, has the text that is expected, or is out of range.
fn double_is(bits: &str, expected: &str) {
    let value = f64::from_bits(u64::from_str_radix(bits, 16).unwrap());
    let spelling = format!("{value:e}");
    if !value.is_finite() {
        assert_eq!(number(expected), Err(Reason::Syntax), "{bits}");
    } else if value.abs() > 9_007_199_254_740_991.0 {
        assert_eq!(number(&spelling), Err(Reason::IntegerRange), "{bits}");
        assert_eq!(number(expected), Err(Reason::IntegerRange), "{bits}");
    } else {
        assert_eq!(number(&spelling).unwrap(), expected.as_bytes(), "{bits}");
        let checked = check_canonical(expected.as_bytes(), Limits::PAYLOAD);
        assert_eq!(checked, Ok(()), "{bits}");
    }
}

#[test]
fn numbers_of_rfc_8785() {
    let Some(folder) = shared("vectors/rfc8785-numbers") else {
        return;
    };
    for name in ["es6testfile1000.txt", "es6testfile10k.txt"] {
        let lines = fs::read_to_string(folder.join(name)).unwrap();
        assert!(lines.lines().count() >= 1000);
        for line in lines.lines() {
            let (bits, expected) = line.split_once(',').unwrap();
            double_is(bits, expected);
        }
    }
    let appendix: Value =
        serde_json::from_slice(&fs::read(folder.join("appendix-b.json")).unwrap()).unwrap();
    for case in appendix["cases"].as_array().unwrap() {
        // NaN and the infinities have no text.
        let expected = case["expected"].as_str().unwrap_or("NaN");
        double_is(case["ieee754"].as_str().unwrap(), expected);
    }
    let order: Value =
        serde_json::from_slice(&fs::read(folder.join("key-order.json")).unwrap()).unwrap();
    let keys = order["keys"].as_array().unwrap();
    let object: serde_json::Map<String, Value> = keys
        .iter()
        .map(|key| (key.as_str().unwrap().to_owned(), Value::Null))
        .collect();
    let canonical = to_canonical(&object).unwrap();
    let names: Vec<_> = members(&canonical, Limits::FRAME)
        .unwrap()
        .into_iter()
        .map(|member| Value::String(member.name))
        .collect();
    assert_eq!(&names, order["expected_order"].as_array().unwrap());
}

/// What the suite lets in and I-JSON does not.
const BEYOND_I_JSON: [&str; 15] = [
    "y_number.json integer_range",
    "y_number_real_capital_e.json integer_range",
    "y_number_real_exponent.json integer_range",
    "y_number_real_fraction_exponent.json integer_range",
    "y_object_duplicated_key.json duplicate_key",
    "y_object_duplicated_key_and_value.json duplicate_key",
    "y_object_extreme_numbers.json integer_range",
    "y_string_escaped_noncharacter.json noncharacter",
    "y_string_last_surrogates_1_and_2.json noncharacter",
    "y_string_nonCharacterInUTF-8_U+10FFFF.json noncharacter",
    "y_string_nonCharacterInUTF-8_U+FFFF.json noncharacter",
    "y_string_unicode_U+10FFFE_nonchar.json noncharacter",
    "y_string_unicode_U+1FFFE_nonchar.json noncharacter",
    "y_string_unicode_U+FDD0_nonchar.json noncharacter",
    "y_string_unicode_U+FFFE_nonchar.json noncharacter",
];

#[test]
fn json_test_suite() {
    let Some(folder) = shared("vectors/JSONTestSuite") else {
        return;
    };
    let mut refused = Vec::new();
    for (name, input) in files(&folder.join("test_parsing")) {
        let answer = canonicalize(&input, Limits::PAYLOAD);
        match (name.as_bytes()[0], answer) {
            (b'y', Err(error)) => refused.push(format!("{name} {}", error.reason)),
            (b'n', Ok(bytes)) => panic!("{name} was taken for {bytes:?}"),
            (b'n', Err(error)) => {
                let reasons = [
                    Reason::Syntax,
                    Reason::Utf8,
                    Reason::Bom,
                    Reason::Depth,
                    Reason::LoneSurrogate,
                ];
                assert!(reasons.contains(&error.reason), "{name}: {error}");
            }
            (_, Ok(bytes)) => {
                assert_eq!(check_canonical(&bytes, Limits::PAYLOAD), Ok(()), "{name}");
                let whole: Value = serde_json::from_slice(&input).unwrap();
                let reference = serde_json_canonicalizer::to_vec(&whole).unwrap();
                assert_eq!(bytes, reference, "{name}");
            }
            (_, Err(_)) => {}
        }
    }
    assert_eq!(refused, BEYOND_I_JSON);
    for (_, input) in files(&folder.join("test_transform")) {
        if let Ok(bytes) = canonicalize(&input, Limits::PAYLOAD) {
            assert_eq!(check_canonical(&bytes, Limits::PAYLOAD), Ok(()));
        }
    }
}

#[test]
fn naughty_strings_survive() {
    let Some(folder) = shared("vectors/naughty-strings") else {
        return;
    };
    let list = fs::read(folder.join("blns.json")).unwrap();
    // One of them is U+FFFE, so the list as a whole is refused; it is taken out by hand.
    let error = canonicalize(&list, Limits::PAYLOAD).unwrap_err();
    assert_eq!(error.reason, Reason::Noncharacter);
    let strings: Vec<String> = serde_json::from_slice(&list).unwrap();
    let index: usize = error.pointer[1..].parse().unwrap();
    assert!(strings[index].contains('\u{fffe}'));
    let good: Vec<_> = strings
        .iter()
        .filter(|text| !text.contains('\u{fffe}'))
        .collect();
    assert_eq!(good.len() + 1, strings.len());
    let canonical = to_canonical(&good).unwrap();
    let reference = serde_json_canonicalizer::to_vec(&good).unwrap();
    assert_eq!(canonical, reference);
    assert_eq!(check_canonical(&canonical, Limits::PAYLOAD), Ok(()));
    let elements = elements(&canonical, Limits::PAYLOAD).unwrap();
    assert_eq!(elements.len(), good.len());
    for (raw, text) in elements.into_iter().zip(good) {
        assert_eq!(&string(raw).unwrap(), text);
        let mut spelled = Vec::new();
        write_string(&mut spelled, text);
        assert_eq!(spelled, raw);
    }
}
