//! Other people's accidents with redaction: cases beside the repository, each with what must not happen again.

use crate::shared::shared;
use onrecord::redact::{Literals, RuleSet, Shape};
use onrecord_core::json::{Limits, canonicalize};
use serde_json::Value;

fn case(name: &str) -> Option<Value> {
    let text = std::fs::read_to_string(shared(&format!("cases/{name}.json"))?).unwrap();
    Some(serde_json::from_str(&text).unwrap())
}

fn texts(case: &Value, member: &str) -> Vec<String> {
    let texts = case["input"][member].as_array().unwrap().iter();
    texts
        .map(|text| text.as_str().unwrap().to_owned())
        .collect()
}

fn redacted(rules: &RuleSet, text: &str, shape: Shape) -> String {
    match rules.redact(text.as_bytes(), shape) {
        Some(redacted) => String::from_utf8(redacted.bytes).unwrap(),
        None => text.to_owned(),
    }
}

#[test]
fn redaction_does_not_break_json() {
    let Some(case) = case("36-redaction-breaks-json") else {
        return;
    };
    let rules = RuleSet::builtin().unwrap();
    for body in texts(&case, "bodies") {
        let body = canonicalize(body.as_bytes(), Limits::PAYLOAD).unwrap();
        let body = String::from_utf8(body).unwrap();
        let once = redacted(&rules, &body, Shape::Json);
        let value: Value = serde_json::from_str(&once).unwrap();
        for kept in ["\"kept\"", "\\\"keep\\\":1"] {
            assert_eq!(once.contains(kept), body.contains(kept), "{once}");
        }
        if let Some(arguments) = value["arguments"].as_str() {
            assert!(serde_json::from_str::<Value>(arguments).is_ok(), "{once}");
        }
        assert_eq!(redacted(&rules, &once, Shape::Json), once);
    }
}

#[test]
fn secrets_in_addresses_headers_colours_and_strings_are_found() {
    let Some(case) = case("38-secret-url-header-ansi-nested") else {
        return;
    };
    let rules = RuleSet::builtin().unwrap();
    let secrets = [
        "Pa55w0rd",
        "A1b2C3d4",
        "E5f6G7h8",
        "dXNlcjpzM2",
        "abcdef0123",
        "s3cr3t-pass",
        "f3f3f3f3",
        "testing123",
        "wJalrXUtnFEMI",
        "q7Vd/2+Lr",
    ];
    for text in texts(&case, "texts") {
        let out = redacted(&rules, &text, Shape::Text);
        assert!(out.contains("[redacted:"), "{text}: {out}");
        assert!(
            !secrets.iter().any(|secret| out.contains(secret)),
            "{text}: {out}"
        );
        let kept = [
            "pkgs.example.com",
            "github.com",
            "h.example",
            "db:5432",
            "HttpOnly",
            "reader",
            "admin",
        ];
        for kept in kept {
            assert_eq!(out.contains(kept), text.contains(kept), "{text}: {out}");
        }
        // Known to the operator, they are found in the same places.
        for secret in secrets.iter().filter(|secret| text.contains(*secret)) {
            let literals = Literals::read(secret).unwrap();
            let rules = RuleSet::composed(literals.as_ref(), None).unwrap();
            assert!(!redacted(&rules, &text, Shape::Text).contains(secret));
        }
    }
    for text in texts(&case, "negatives") {
        assert_eq!(redacted(&rules, &text, Shape::Text), text);
    }
}

#[test]
fn what_is_no_secret_stays_and_short_literals_are_refused() {
    let Some(case) = case("39-over-redaction") else {
        return;
    };
    let rules = RuleSet::builtin().unwrap();
    for text in texts(&case, "texts_must_stay") {
        assert_eq!(redacted(&rules, &text, Shape::Text), text);
    }
    for literal in texts(&case, "literal_secrets_config") {
        // The end of a line alone is no literal, and nothing is redacted for it.
        match Literals::read(&literal) {
            Ok(none) => assert!(none.is_none() && literal == "\n", "{literal:?}"),
            Err(error) => assert!(error.to_string().contains("at least 8"), "{error}"),
        }
    }
}
