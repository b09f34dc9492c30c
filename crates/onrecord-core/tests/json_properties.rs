//! Strict JSON against `serde_json_canonicalizer` and against itself.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use onrecord_core::json::{
    Limits, NotCanonical, Reason, canonicalize, check_canonical, elements, members, string,
    to_canonical, write_string,
};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Number, Value};

const SAFE: i64 = 9_007_199_254_740_991;

fn is_noncharacter(character: char) -> bool {
    let code = u32::from(character);
    code & 0xfffe == 0xfffe || (0xfdd0..=0xfdef).contains(&code)
}

/// Characters of every length and of every rule.
fn character() -> impl Strategy<Value = char> {
    prop_oneof![
        4 => proptest::char::range('a', 'f'),
        2 => proptest::char::range('\0', '\u{7f}'),
        1 => proptest::sample::select(vec!['"', '\\', '/', '\u{2028}', '\u{7f}', '\u{80}', '~']),
        // Either side of where UTF-16 and UTF-8 order differ.
        1 => proptest::sample::select(vec!['\u{d7ff}', '\u{e000}', '\u{fffd}', '\u{10000}', '\u{10fffd}']),
        1 => any::<char>(),
    ]
    .prop_filter("characters for interchange", |character| !is_noncharacter(*character))
}

fn text() -> impl Strategy<Value = String> {
    vec(character(), 0..20).prop_map(|characters| characters.into_iter().collect())
}

fn double() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        -1e16..1e16,
        (any::<i32>(), 0..12i32).prop_map(|(digits, scale)| f64::from(digits) / 10f64.powi(scale)),
        (any::<u64>(), -330..20i32)
            .prop_map(|(digits, scale)| { format!("{digits}e{scale}").parse().unwrap() }),
    ]
    .prop_filter("doubles in range", |value| value.abs() <= SAFE as f64)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-SAFE..=SAFE).prop_map(Value::from),
        (-20..20i64).prop_map(Value::from),
        double().prop_map(|value| Number::from_f64(value).map_or(Value::Null, Value::Number)),
        text().prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 60, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..8).prop_map(Value::Array),
            vec((text(), inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Writes a value in one of the many ways that mean it, as `choices` have it.
struct Speller {
    out: String,
    choices: Vec<u8>,
    next: usize,
}

impl Speller {
    fn choose(&mut self, count: usize) -> usize {
        let choice = self.choices.get(self.next % self.choices.len().max(1));
        self.next += 1;
        usize::from(choice.copied().unwrap_or(0)) % count
    }

    fn space(&mut self) {
        let space = ["", "", "", " ", "\n\t", "\r\n  "][self.choose(6)];
        self.out.push_str(space);
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            let choice = self.choose(8);
            let must = matches!(character, '"' | '\\' | '\0'..='\u{1f}');
            if choice == 0 || (must && choice < 4) {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let unit = format!("{unit:04x}");
                    let upper = self.choose(2) == 0;
                    let unit = if upper { unit.to_uppercase() } else { unit };
                    self.out.push_str("\\u");
                    self.out.push_str(&unit);
                }
            } else if character == '/' && choice < 4 {
                self.out.push_str("\\/");
            } else if must {
                let quoted = serde_json::to_string(&character).unwrap();
                self.out.push_str(&quoted[1..quoted.len() - 1]);
            } else {
                self.out.push(character);
            }
        }
        self.out.push('"');
    }

    fn number(&mut self, number: &Number) {
        let value = number.as_f64().unwrap();
        let spelling = match self.choose(5) {
            0 => format!("{value:e}"),
            1 => format!("{value:E}").replace('E', "E+").replace("+-", "-"),
            2 => format!("{value:.1100}"),
            3 if value.fract() == 0.0 && value != 0.0 => format!("{value}0e-1"),
            _ => number.to_string(),
        };
        self.out.push_str(&spelling);
    }

    fn value(&mut self, value: &Value) {
        self.space();
        match value {
            Value::String(text) => self.text(text),
            Value::Number(number) => self.number(number),
            Value::Array(elements) => {
                self.out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    self.out.push_str(if index == 0 { "" } else { "," });
                    self.value(element);
                }
                self.space();
                self.out.push(']');
            }
            Value::Object(object) => self.object(object),
            other => self.out.push_str(&other.to_string()),
        }
        self.space();
    }

    fn object(&mut self, object: &Map<String, Value>) {
        self.out.push('{');
        let mut members: Vec<_> = object.iter().collect();
        if !members.is_empty() {
            let turn = self.choose(members.len());
            members.rotate_left(turn);
        }
        for (index, (key, value)) in members.into_iter().enumerate() {
            self.out.push_str(if index == 0 { "" } else { "," });
            self.space();
            self.text(key);
            self.space();
            self.out.push(':');
            self.value(value);
        }
        self.space();
        self.out.push('}');
    }
}

fn spell(value: &Value, choices: Vec<u8>) -> String {
    let mut speller = Speller {
        out: String::new(),
        choices,
        next: 0,
    };
    speller.value(value);
    speller.out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_spelling_has_the_bytes_of_the_reference(value in value(), choices in vec(any::<u8>(), 1..200)) {
        let golden = serde_json_canonicalizer::to_vec(&value).unwrap();
        let spelled = spell(&value, choices);
        let canonical = canonicalize(spelled.as_bytes(), Limits::PAYLOAD).unwrap();
        prop_assert_eq!(std::str::from_utf8(&canonical).unwrap(), std::str::from_utf8(&golden).unwrap());
        prop_assert_eq!(check_canonical(&canonical, Limits::PAYLOAD), Ok(()));
        prop_assert_eq!(&canonicalize(&canonical, Limits::PAYLOAD).unwrap(), &canonical);
        prop_assert_eq!(&to_canonical(&value).unwrap(), &golden);
        let checked = check_canonical(spelled.as_bytes(), Limits::PAYLOAD);
        let offset = spelled.bytes().zip(&canonical).take_while(|(a, b)| a == *b).count();
        if spelled.as_bytes() == canonical {
            prop_assert_eq!(checked, Ok(()));
        } else {
            prop_assert_eq!(checked, Err(NotCanonical::Differs { offset }));
        }
    }

    #[test]
    fn the_parts_are_the_whole(value in value(), choices in vec(any::<u8>(), 1..200)) {
        let spelled = spell(&value, choices);
        let members = members(spelled.as_bytes(), Limits::PAYLOAD);
        let elements = elements(spelled.as_bytes(), Limits::PAYLOAD);
        let text = string(spelled.as_bytes());
        let read = |raw: &[u8]| serde_json::from_slice::<Value>(raw).unwrap();
        match &value {
            Value::Object(object) => {
                let members = members.unwrap();
                for member in &members {
                    prop_assert_eq!(&spelled.as_bytes()[member.offset..][..member.raw.len()], member.raw);
                    prop_assert_eq!(member.raw, member.raw.trim_ascii());
                }
                prop_assert!(members.is_sorted_by_key(|member| member.offset));
                let parts: Map<_, _> = members.into_iter().map(|member| (member.name, read(member.raw))).collect();
                prop_assert_eq!(to_canonical(&parts).unwrap(), to_canonical(object).unwrap());
                prop_assert!(elements.is_err() && text.is_err());
            }
            Value::Array(array) => {
                let parts: Vec<_> = elements.unwrap().into_iter().map(read).collect();
                prop_assert_eq!(to_canonical(&parts).unwrap(), to_canonical(array).unwrap());
                prop_assert_eq!(members.unwrap_err().reason, Reason::NotObject);
                prop_assert!(text.is_err());
            }
            Value::String(string) => {
                prop_assert_eq!(&text.unwrap(), string);
                let mut written = Vec::new();
                write_string(&mut written, string);
                prop_assert_eq!(written, serde_json_canonicalizer::to_vec(string).unwrap());
                prop_assert!(members.is_err() && elements.is_err());
            }
            _ => prop_assert!(members.is_err() && elements.is_err() && text.is_err()),
        }
    }

    #[test]
    fn one_changed_byte_is_refused_or_means_another_value(value in value(), flips in vec(1..=255u8, 1..50)) {
        let canonical = to_canonical(&value).unwrap();
        for at in 0..canonical.len() {
            let mut changed = canonical.clone();
            changed[at] ^= flips[at % flips.len()];
            let written = canonicalize(&changed, Limits::PAYLOAD);
            match check_canonical(&changed, Limits::PAYLOAD) {
                Ok(()) => {
                    prop_assert_eq!(&written.unwrap(), &changed);
                    let other: Value = serde_json::from_slice(&changed).unwrap();
                    prop_assert_ne!(&other, &serde_json::from_slice::<Value>(&canonical).unwrap());
                }
                Err(NotCanonical::Differs { offset }) => {
                    let written = written.unwrap();
                    prop_assert_eq!(&written[..offset], &changed[..offset]);
                    prop_assert_ne!(written.get(offset), changed.get(offset));
                }
                Err(NotCanonical::Json(error)) => prop_assert_eq!(error, written.unwrap_err()),
            }
        }
    }

    #[test]
    fn a_key_never_stands_twice(object in vec((text(), -9..9i64), 1..12), at in any::<prop::sample::Index>(), choices in vec(any::<u8>(), 1..200)) {
        let object: Map<_, _> = object.into_iter().map(|(key, value)| (key, Value::from(value))).collect();
        let key = object.keys().nth(at.index(object.len())).unwrap().clone();
        let once = spell(&Value::Object(object), choices.clone());
        prop_assert!(canonicalize(once.as_bytes(), Limits::FRAME).is_ok());
        let mut second = Speller { out: String::new(), choices, next: 7 };
        second.text(&key);
        let place = once.rfind('}').unwrap();
        let twice = format!("{},{}:null{}", &once[..place], second.out, &once[place..]);
        let error = canonicalize(twice.as_bytes(), Limits::FRAME).unwrap_err();
        prop_assert_eq!((error.reason, error.offset), (Reason::DuplicateKey, place + 1));
        prop_assert_eq!(members(twice.as_bytes(), Limits::FRAME).unwrap_err(), error.clone());
        prop_assert_eq!(check_canonical(twice.as_bytes(), Limits::FRAME), Err(NotCanonical::Json(error)));
    }

    #[test]
    fn whatever_comes_is_answered(input in prop_oneof![
        vec(any::<u8>(), 0..64),
        r#"[\[\]{}:,"\\u0-9a-f.eE+ \n-]{0,40}"#.prop_map(String::into_bytes),
        r#"(\{("[ab]?"|"\\u006[12]"):(1|-0|\[\]|"\\ud83[d-f]\\udf[f0]f"|1e[0-9]{1,3}|[0-9]{15,18}\.?[05]),?\}?){0,4}"#.prop_map(String::into_bytes),
    ]) {
        let limits = Limits { bytes: 60, depth: 3, object: false };
        let written = canonicalize(&input, limits);
        let checked = check_canonical(&input, limits);
        let strict = serde_json::from_slice::<Value>(&input);
        match written {
            Ok(bytes) => {
                prop_assert_eq!(checked.is_ok(), bytes == input);
                prop_assert_eq!(serde_json_canonicalizer::to_vec(&strict.unwrap()).unwrap(), bytes);
            }
            Err(error) => {
                prop_assert!(error.offset <= input.len());
                if matches!(error.reason, Reason::Syntax | Reason::Utf8 | Reason::LoneSurrogate | Reason::NumberOverflow) {
                    prop_assert!(strict.is_err());
                }
                prop_assert_eq!(checked, Err(NotCanonical::Json(error)));
            }
        }
    }
}

/// Where another crate of the tree turns the feature on as well, only the manifest can tell that we do.
#[test]
fn serde_json_parses_fractions_exactly() {
    let line = include_str!("../../../Cargo.toml")
        .lines()
        .find(|line| line.starts_with("serde_json = "));
    assert!(line.unwrap().contains("\"float_roundtrip\""));
    assert!(include_str!("../Cargo.toml").contains("serde_json.workspace = true"));
    for text in [
        "31.245270191439438",
        "121.48791951161945",
        "100.78399658203125",
    ] {
        let value: f64 = serde_json::from_str(text).unwrap();
        assert_eq!(value.to_string(), text);
        assert_eq!(value.to_bits(), text.parse::<f64>().unwrap().to_bits());
    }
}
