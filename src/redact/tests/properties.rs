//! What holds of every payload.

use super::*;
use proptest::prelude::*;

/// A text with secrets in it, and what else stands in texts.
fn piece() -> impl Strategy<Value = String> {
    let secret = (1u64..1_000, 0usize..32).prop_map(|(seed, index)| samples(seed)[index].1.clone());
    let around = prop::sample::select(vec![
        "password=",
        "\"token\": \"",
        "\"",
        " ",
        "\n",
        "\\n",
        "\u{1b}[31m",
        "Cookie: a=",
        "://u:",
        "@h",
        "Bearer ",
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "é",
        "\\",
        "'",
        "-----BEGIN PRIVATE KEY-----",
        "=",
        "\0",
    ]);
    let wrapped = secret
        .clone()
        .prop_map(|secret| STANDARD.encode(format!("key: {secret} ")));
    prop_oneof![
        2 => secret,
        1 => wrapped,
        4 => around.prop_map(str::to_owned),
        2 => "[a-zA-Z0-9 ]{0,12}",
    ]
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        prop::collection::vec(piece(), 0..4).prop_map(|pieces| Value::String(pieces.concat())),
        proptest::prelude::any::<i32>().prop_map(Value::from),
        Just(Value::Null),
        Just(Value::Bool(true)),
    ];
    let key = prop_oneof![
        prop::sample::select(vec![
            "password",
            "api_key",
            "cookie",
            "authorization",
            "name",
            "value",
            "token",
            "text"
        ])
        .prop_map(str::to_owned),
        "[a-z~/]{1,6}",
        piece(),
    ];
    leaf.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((key.clone(), inner.clone()), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
            inner.prop_map(|inner| Value::String(inner.to_string())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn redacted_json_is_canonical_of_the_same_shape_and_has_nothing_left_to_redact(document in document()) {
        let payload = canonicalize(document.to_string().as_bytes(), Limits::PAYLOAD).unwrap();
        if let Some(out) = RULES.redact(&payload, Shape::Json) {
            prop_assert!(check_canonical(&out.bytes, Limits::PAYLOAD).is_ok());
            let after: Value = serde_json::from_slice(&out.bytes).unwrap();
            prop_assert!(same_shape(&document, &after), "{document} {after}");
            for mark in &out.marks {
                let Place::Pointer(pointer) = &mark.place else { panic!("{mark:?}") };
                prop_assert!(after.pointer(pointer).is_some(), "{pointer} in {after}");
            }
            let again = RULES.find(&out.bytes, Shape::Json);
            prop_assert!(again.is_empty(), "{again:?} in {after}");
        }
    }

    #[test]
    fn no_secret_that_was_found_is_left_in_any_spelling(pieces in prop::collection::vec(piece(), 0..12)) {
        let text = pieces.concat();
        if let Some(out) = RULES.redact(text.as_bytes(), Shape::Text) {
            for mark in &out.marks {
                let secret = String::from_utf8_lossy(&mark.secret).into_owned();
                if is_telling(secret.as_bytes()) {
                    prop_assert!(!leaks(&out.bytes, &secret), "{secret} in {}", String::from_utf8_lossy(&out.bytes));
                }
            }
            let again = RULES.find(&out.bytes, Shape::Text);
            prop_assert!(again.is_empty(), "{again:?} in {}", String::from_utf8_lossy(&out.bytes));
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(proptest::prelude::any::<u8>(), 0..600), pieces in prop::collection::vec(piece(), 0..6)) {
        let mut mixed = bytes;
        for piece in pieces {
            let at = mixed.len() / 2;
            mixed.splice(at..at, piece.bytes());
        }
        for shape in [Shape::Json, Shape::Text] {
            let found = RULES.find(&mixed, shape);
            prop_assert!(found.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert_eq!(RULES.redact(&mixed, shape).is_some(), !found.is_empty());
        }
    }
}
