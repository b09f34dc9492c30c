//! The rules of strict JSON one by one: where a fault is, and what is said about it.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use onrecord_core::json::{
    JsonError, Limits, NotCanonical, Reason, canonicalize, check_canonical, elements, members,
    string, to_canonical,
};

fn fault(input: &str) -> (Reason, usize, String) {
    let error = canonicalize(input.as_bytes(), Limits::FRAME).unwrap_err();
    let parts = members(input.as_bytes(), Limits::FRAME).unwrap_err();
    assert_eq!(parts, error);
    (error.reason, error.offset, error.pointer)
}

#[test]
fn a_fault_has_its_place_and_pointer() {
    let cases = [
        (
            r#"{"a":[1,{"b/~":1e400}]}"#,
            Reason::NumberOverflow,
            15,
            "/a/1/b~1~0",
        ),
        (
            r#"{"a":{"\u0062":[0,9007199254740992]}}"#,
            Reason::IntegerRange,
            18,
            "/a/b/1",
        ),
        (
            r#"{"x":[{"b":1,"a":2,"\u0062":3}]}"#,
            Reason::DuplicateKey,
            19,
            "/x/0/b",
        ),
        (
            r#"{"a":1,"b":2,"a":3,"b":4}"#,
            Reason::DuplicateKey,
            13,
            "/a",
        ),
        (r#"{"a":"xy\ud800"}"#, Reason::LoneSurrogate, 8, "/a"),
        ("{\"a\":\"\u{fffe}\"}", Reason::Noncharacter, 6, "/a"),
        (r#"{"a":["\x"]}"#, Reason::Syntax, 7, "/a/0"),
        (r#"{"a" 1}"#, Reason::Syntax, 5, ""),
        (r#"{"a":1}x"#, Reason::Syntax, 7, ""),
        (r#" [1]"#, Reason::NotObject, 1, ""),
        (r#" [1,"#, Reason::Syntax, 4, "/1"),
        (r#""#, Reason::Syntax, 0, ""),
    ];
    for (input, reason, offset, pointer) in cases {
        assert_eq!(
            fault(input),
            (reason, offset, pointer.to_owned()),
            "{input}"
        );
    }
}

/// A duplicate counts at the end of its object, sorted or not, so that the same input has one reason.
#[test]
fn a_fault_inside_an_object_comes_before_its_duplicate_keys() {
    assert_eq!(fault(r#"{"a":1,"a":01}"#).0, Reason::Syntax);
    assert_eq!(fault(r#"{"b":1,"a":1,"a":01}"#).0, Reason::Syntax);
    assert_eq!(fault(r#"{"b":1,"a":1,"a":1} 2"#).0, Reason::DuplicateKey);
}

#[test]
fn a_long_key_is_not_repeated_in_the_pointer() {
    let key = "k".repeat(257);
    let input = format!(r#"{{"a":{{"{key}":{{"b":1e400}}}}}}"#);
    assert_eq!(fault(&input).2, "/a");
}

#[test]
fn utf8_is_judged_before_what_it_says() {
    let error = canonicalize(b"{,\xff", Limits::FRAME).unwrap_err();
    assert_eq!((error.reason, error.offset), (Reason::Utf8, 2));
    let long = [b' '; 20];
    let limits = Limits {
        bytes: 19,
        ..Limits::FRAME
    };
    let error = canonicalize(&long, limits).unwrap_err();
    assert_eq!((error.reason, error.offset), (Reason::Size, 19));
}

#[test]
fn depth_counts_arrays_and_objects_only() {
    let limits = Limits {
        depth: 2,
        ..Limits::FRAME
    };
    assert!(canonicalize(br#"{"a":[1,"x",null],"b":{"c":1},"d":[]}"#, limits).is_ok());
    let error = canonicalize(br#"{"a":[1,{}]}"#, limits).unwrap_err();
    assert_eq!(
        (error.reason, error.offset, error.pointer.as_str()),
        (Reason::Depth, 8, "/a/1")
    );
    let deep = "[".repeat(1_000_000);
    let error = canonicalize(deep.as_bytes(), Limits::PAYLOAD).unwrap_err();
    assert_eq!((error.reason, error.offset), (Reason::Depth, 32));
}

#[test]
fn a_number_counts_by_value_up_to_the_length_of_a_frame() {
    let long = |zeros: usize| format!("[0.{}1e{}]", "0".repeat(zeros), zeros + 1);
    let answer = canonicalize(long(60_000).as_bytes(), Limits::PAYLOAD);
    assert_eq!(answer.unwrap(), b"[1]");
    let error = canonicalize(long(700_000).as_bytes(), Limits::PAYLOAD).unwrap_err();
    assert_eq!((error.reason, error.offset), (Reason::Size, 1));
}

#[test]
fn members_come_as_they_stand() {
    let input = br#" { "b" : [1, 2] , "\u0061":{"z":1,"y":2 } } "#;
    let parts = members(input, Limits::PAYLOAD).unwrap();
    let parts: Vec<_> = parts
        .iter()
        .map(|part| (part.name.as_str(), part.raw, part.offset))
        .collect();
    let second: &[u8] = br#"{"z":1,"y":2 }"#;
    assert_eq!(parts, [("b", &b"[1, 2]"[..], 9), ("a", second, 27)]);
    assert_eq!(elements(b" [ ] ", Limits::FRAME).unwrap(), [b""; 0]);
    let parts = elements(br#"[ [1] ,{"a":[2]}, 3 ]"#, Limits::FRAME).unwrap();
    assert_eq!(parts, [&b"[1]"[..], br#"{"a":[2]}"#, b"3"]);
    assert_eq!(string(br#" "a\u0000\"" "#).unwrap(), "a\0\"");
    assert_eq!(string(b"1").unwrap_err().reason, Reason::Syntax);
}

#[test]
fn own_values_are_held_to_the_same_rules() {
    let value = std::collections::BTreeMap::from([("b", vec![1]), ("a", vec![u64::MAX])]);
    let error = to_canonical(&value).unwrap_err();
    assert_eq!(
        (error.reason, error.pointer.as_str()),
        (Reason::IntegerRange, "/a/0")
    );
    let no_strings = std::collections::BTreeMap::from([((1, 2), 3)]);
    assert_eq!(
        to_canonical(&no_strings).unwrap_err().reason,
        Reason::Syntax
    );
}

#[test]
fn a_refusal_says_where_and_what_to_do() {
    let error = JsonError {
        reason: Reason::IntegerRange,
        offset: 5,
        pointer: "/a".to_owned(),
    };
    assert_eq!(
        error.to_string(),
        "at byte 5 (/a): the number is beyond 2^53 - 1, where readers round it: send it as a string"
    );
    let other = check_canonical(br#"{"a": 1}"#, Limits::FRAME);
    assert_eq!(other, Err(NotCanonical::Differs { offset: 5 }));
    // The fault is named although the space comes first: bytes that are no JSON are not merely spelled otherwise.
    let error = check_canonical(br#"{"a": 1,"a":2}"#, Limits::FRAME).unwrap_err();
    assert!(matches!(error, NotCanonical::Json(error) if error.reason == Reason::DuplicateKey));
}
