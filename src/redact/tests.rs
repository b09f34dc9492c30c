//! The engine on samples of our own making: secrets are made when the test runs, by the shapes that issuers describe,
//! so that none stands in this repository.

mod properties;
mod samples;

use super::check::{base62, crc32};
use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::json::{Limits, canonicalize, check_canonical};
use samples::{any, samples};
use serde_json::{Value, json};
use std::sync::LazyLock;

static RULES: LazyLock<RuleSet> = LazyLock::new(|| RuleSet::builtin().unwrap());

/// A token with the checksum of its issuer.
fn github(seed: u64) -> String {
    let body = any(30, seed);
    let sum = base62(crc32(body.as_bytes()));
    format!("ghp_{body}{}", String::from_utf8_lossy(&sum))
}

fn redacted(text: &str) -> String {
    match RULES.redact(text.as_bytes(), Shape::Text) {
        Some(redacted) => String::from_utf8(redacted.bytes).unwrap(),
        None => text.to_owned(),
    }
}

fn redacted_json(value: &Value) -> Value {
    let payload = canonicalize(value.to_string().as_bytes(), Limits::PAYLOAD).unwrap();
    match RULES.redact(&payload, Shape::Json) {
        Some(redacted) => {
            check_canonical(&redacted.bytes, Limits::PAYLOAD).unwrap();
            serde_json::from_slice(&redacted.bytes).unwrap()
        }
        None => value.clone(),
    }
}

fn same_shape(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            before.len() == after.len()
                && before
                    .iter()
                    .all(|(key, value)| after.get(key).is_none_or(|after| same_shape(value, after)))
        }
        (Value::Array(before), Value::Array(after)) => {
            before.len() == after.len() && before.iter().zip(after).all(|(a, b)| same_shape(a, b))
        }
        (Value::Number(_), Value::String(after)) => after.starts_with("[redacted:"),
        (before, after) => std::mem::discriminant(before) == std::mem::discriminant(after),
    }
}

/// Whether a secret can be read out of bytes, in any spelling that readers undo without a thought.
fn leaks(bytes: &[u8], secret: &str) -> bool {
    let inner = STANDARD.encode(secret);
    let spellings = [
        secret.to_owned(),
        onrecord_core::digest::hex(secret.as_bytes()),
        // The last characters share bits with what follows.
        inner[..secret.len() * 8 / 6 - 1].to_owned(),
        json!(secret).to_string().trim_matches('"').to_owned(),
    ];
    let text = String::from_utf8_lossy(bytes).into_owned();
    spellings.iter().any(|spelling| text.contains(spelling))
}

#[test]
fn each_family_is_found_by_its_own_rule_wherever_it_stands() {
    for seed in 1..20 {
        for (rule, secret) in samples(seed) {
            for text in [
                secret.clone(),
                format!("it is {secret}, keep it"),
                format!("say '{secret}'\n"),
                format!("\u{1b}[32m{secret}\u{1b}[0m"),
                format!("line\\n{secret}\\n"),
            ] {
                let found = RULES.find(text.as_bytes(), Shape::Text);
                assert!(
                    found.iter().any(|one| one.rule == rule),
                    "{rule}: {text}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn a_right_checksum_tells_a_token_that_nothing_around_it_does() {
    let token = github(7);
    let glued = format!("prefix{token}suffix");
    assert_eq!(redacted(&glued), "prefix[redacted:github_token]suffix");
    let wrong = format!("prefix{}Z{}suffix", &token[..12], &token[13..]);
    assert_eq!(redacted(&wrong), wrong);
}

#[test]
fn names_say_what_their_values_are() {
    let secret = "s3cr3t-pass";
    for (before, after) in [
        ("password=", ""),
        ("PGPASSWORD=", " psql"),
        ("export DB_PASSWORD=\"", "\""),
        ("\"password\": \"", "\""),
        ("{\\\"password\\\":\\\"", "\\\"}"),
        ("password: '", "'"),
        ("--password ", " -h x"),
        ("curl -u admin:", " https://h.example"),
        ("postgres://app:", "@db:5432/x"),
        ("<password>", "</password>"),
        ("dbPassword = \"", "\";"),
        ("Server=a;Pwd=", ";"),
        ("https://h.example/?password=", "&a=b"),
        ("x-api-key: ", ""),
        ("config['api_key'] = '", "'"),
        ("password: str = \"", "\""),
    ] {
        let text = format!("{before}{secret}{after}");
        let out = redacted(&text);
        assert!(
            out.starts_with(before) && out.ends_with(after),
            "{text}: {out}"
        );
        assert!(
            !out.contains(secret) && out.contains("[redacted:"),
            "{text}: {out}"
        );
        assert_eq!(redacted(&out), out);
    }
}

#[test]
fn headers_and_cookies_lose_their_values_and_keep_their_names() {
    for (text, expected) in [
        (
            "Authorization: Basic dXNlcjpzM2NyM3QtcGFzcw==",
            "Authorization: Basic [redacted:basic_auth]",
        ),
        (
            "authorization: token 0a1b2c3d4e5f6071",
            "authorization: token [redacted:authorization]",
        ),
        (
            "Set-Cookie: sid=0a1b2c3d4e5f; HttpOnly; Path=/",
            "Set-Cookie: sid=[redacted:cookie]; HttpOnly; Path=/",
        ),
        (
            "Cookie: a=0a1b2c3d; theme=dark\nHost: x",
            "Cookie: a=[redacted:cookie]; theme=dark\nHost: x",
        ),
    ] {
        assert_eq!(redacted(text), expected);
    }
}

#[test]
fn json_is_read_as_it_is_meant() {
    let token = github(3);
    for (before, after) in [
        (
            json!({"req": {"cookie": {"sid": "q1w2e3"}, "path": "/x"}, "tail": "kept"}),
            json!({"req": {"cookie": {"sid": "[redacted:cookie]"}, "path": "/x"}, "tail": "kept"}),
        ),
        (
            json!({"req": {"api_key": 8_675_309, "next": "kept"}}),
            json!({"req": {"api_key": "[redacted:api_key]", "next": "kept"}}),
        ),
        (
            json!({"authorization": ["Bearer x1y2z3x1y2z3", "Basic bjpw"]}),
            json!({"authorization": ["Bearer [redacted:authorization]", "Basic [redacted:authorization]"]}),
        ),
        (
            json!({"name": "API_KEY", "value": "0a1b2c3d4e5f"}),
            json!({"name": "API_KEY", "value": "[redacted:api_key]"}),
        ),
        (
            json!([["x-api-key", "0a1b2c3d4e5f"], ["accept", "text/html"]]),
            json!([["x-api-key", "[redacted:api_key]"], ["accept", "text/html"]]),
        ),
        (
            json!({"a": "-----BEGIN PRIVATE KEY-----", "c": "-----END PRIVATE KEY-----"}),
            json!({"a": "-----BEGIN PRIVATE KEY-----", "c": "-----END PRIVATE KEY-----"}),
        ),
        (
            json!({"arguments": r#"{"password":"pa\"ss\\word1","keep":1}"#}),
            json!({"arguments": r#"{"password":"[redacted:password]","keep":1}"#}),
        ),
        (
            json!({"arguments": r#"{"api_key":8675309,"keep":1}"#}),
            json!({"arguments": r#"{"api_key":"[redacted:api_key]","keep":1}"#}),
        ),
        (
            json!({"properties": {"password": {"type": "string"}}, "usage": {"max_tokens": 1_000_000}}),
            json!({"properties": {"password": {"type": "string"}}, "usage": {"max_tokens": 1_000_000}}),
        ),
        (
            json!({token.clone(): 1, "b": 2}),
            json!({"[redacted:github_token]": 1, "b": 2}),
        ),
        (
            json!({token.clone(): 1, github(4): 2}),
            json!({"[redacted:github_token]": 1, "[redacted:github_token].2": 2}),
        ),
    ] {
        let out = redacted_json(&before);
        let values = |value: &Value| {
            value
                .as_object()
                .map(|object| object.values().cloned().collect::<Vec<_>>())
        };
        if before.get(&token).is_some()
            && values(&before).is_some_and(|all| all.len() == 2 && after.get("b").is_none())
        {
            // Which of two keys comes first follows from the secrets.
            assert_eq!(out.as_object().unwrap().len(), 2);
            assert!(
                after
                    .as_object()
                    .unwrap()
                    .keys()
                    .all(|key| out.get(key).is_some()),
                "{out}"
            );
        } else {
            assert_eq!(out, after);
        }
        assert_eq!(redacted_json(&out), out);
    }
}

#[test]
fn placeholders_are_pointed_at() {
    let token = github(5);
    let payload = json!({"a/b": ["x", format!("see {token}")], "password": "hunter2x"});
    let payload = canonicalize(payload.to_string().as_bytes(), Limits::PAYLOAD).unwrap();
    let found = RULES.redact(&payload, Shape::Json).unwrap();
    let places: Vec<&Place> = found.marks.iter().map(|mark| &mark.place).collect();
    assert_eq!(
        places,
        [
            &Place::Pointer("/a~1b/1".to_owned()),
            &Place::Pointer("/password".to_owned())
        ]
    );
    assert_eq!(found.marks[0].secret.as_slice(), token.as_bytes());
    let text = format!("see {token} and {token}");
    let found = RULES.redact(text.as_bytes(), Shape::Text).unwrap();
    for mark in &found.marks {
        let Place::Range(start, end) = mark.place else {
            panic!("{mark:?}")
        };
        let at = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
        assert_eq!(&found.bytes[at], b"[redacted:github_token]");
    }
    assert_eq!(found.marks.len(), 2);
}

#[test]
fn what_is_wrapped_or_cut_is_found() {
    let token = github(9);
    let wrapped = STANDARD.encode(format!("GITHUB_TOKEN={token}\nOTHER=1\n"));
    assert!(!leaks(
        redacted(&format!("data: {wrapped}")).as_bytes(),
        &token
    ));
    let lines = wrapped
        .as_bytes()
        .chunks(30)
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect::<Vec<_>>()
        .join("\n");
    assert!(redacted(&lines).contains("[redacted:"), "{lines}");
    let cut = format!("  {}\n  {} done", &token[..17], &token[17..]);
    assert_eq!(redacted(&cut), "  [redacted:github_token] done");
    let coloured = format!("{}\u{1b}[0m{}", &token[..12], &token[12..]);
    assert_eq!(redacted(&coloured), "[redacted:github_token]");
}

#[test]
fn a_secret_is_taken_out_wherever_it_is_repeated() {
    let secret = "s3cr3t-pass";
    let text = format!(
        "password={secret}\nechoed {secret}, {} and {} end",
        STANDARD.encode(format!("user:{secret}")),
        onrecord_core::digest::hex(secret.as_bytes())
    );
    let out = redacted(&text);
    assert!(!leaks(out.as_bytes(), secret), "{out}");
    assert!(
        out.contains("echoed [redacted:password], ") && out.ends_with(" end"),
        "{out}"
    );
}

#[test]
fn keys_in_pem_keep_their_lines() {
    let body = any(64, 2);
    let pem =
        format!("-----BEGIN RSA PRIVATE KEY-----\n{body}\n{body}\n-----END RSA PRIVATE KEY-----\n");
    let expected =
        "-----BEGIN RSA PRIVATE KEY-----\n[redacted:private_key]\n-----END RSA PRIVATE KEY-----\n";
    assert_eq!(redacted(&pem), expected);
    assert_eq!(redacted_json(&json!([pem])), json!([expected]));
    let endless = format!("-----BEGIN PRIVATE KEY-----\n{body}\n{body}");
    assert_eq!(
        redacted(&endless),
        "-----BEGIN PRIVATE KEY-----\n[redacted:private_key]"
    );
    let public = pem.replace("RSA PRIVATE", "PUBLIC");
    assert_eq!(redacted(&public), public);
}

#[test]
fn what_only_looks_like_a_secret_stays() {
    for text in [
        "a3bb189e-8bf9-4888-9912-ace4e6543002",
        "trace_id=4bf92f3577b34da6a3ce929d0e0e4736",
        "startTimeUnixNano: 1544712660000000000",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "commit 5ba5ee830903e91240fc6f9f3a7a9293d49e69c9",
        "order 4111 1111 1111 1112",
        "https://cdn.example.com/app.3f9a1c2b4d5e6f708192a3b4c5d6e7f8.js",
        "msg_01AbCdEfGhJkMnPqRsTuVwXy",
        "call_abcdefghijklmnopqrstuvwx",
        "the most basic authentication-less setup is fine here",
        "https://example.com/a:b@c",
        "user@host:/path",
        "the password is stored in the vault",
        "token: yes",
        "password = getpass.getpass()",
        "api_key=os.environ[\"OPENAI_API_KEY\"]",
        "https://${user}:${password}@host.example",
        "password: ${DB_PASSWORD}",
        "Authorization: Bearer <token>",
        "\"secret\": \"github-token-name\"",
        "--- PASS: TestBasicAuth401 (0.00s)",
        "PublicKeyToken=b03f5f7f11d50a3a",
        "max_tokens=4096, total_tokens: 123456789",
        "next_page_token: CAUQAA1234567890abcd",
        "if token == \"abcdef0123456789abcdef\":",
        "sk-toggleable__content",
        "password: changeme",
        "api_key: YOUR_API_KEY_1",
        "\"password\": \"********\"",
        "token = tokens[index + 1]",
        "secret_key = settings.SECRET_KEY",
        "-----BEGIN CERTIFICATE-----",
        "Cookie: theme=dark",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAF",
    ] {
        assert_eq!(redacted(text), text);
    }
}

#[test]
fn literal_secrets_are_found_in_every_spelling_and_short_ones_are_refused() {
    let rules = |value: &str| {
        RuleSet::read(&format!(
            "version = \"x/1\"\n[[literal]]\nid = \"ours\"\nvalue = {}",
            json!(value)
        ))
    };
    for short in ["{", "a", "\n", "ab", "1234567"] {
        let error = rules(short).err().unwrap().to_string();
        assert!(
            error.contains("ours") && error.contains("at least 8"),
            "{error}"
        );
    }
    let secret = "un\"guessable";
    let rules = rules(secret).unwrap();
    for text in [
        secret.to_owned(),
        json!({"a": secret}).to_string(),
        STANDARD.encode(format!("abc{secret}def")),
        onrecord_core::digest::hex(secret.as_bytes()),
        "un%22guessable".to_owned(),
    ] {
        let out = rules.redact(text.as_bytes(), Shape::Text).unwrap();
        assert!(!leaks(&out.bytes, secret), "{text}");
        assert_eq!(out.marks[0].rule, "ours");
    }
}

#[test]
fn rule_sets_that_cannot_be_used_say_which_rule_it_is() {
    for (text, expected) in [
        ("version = 1", "malformed"),
        ("version = \"x\"\nunknown = 1", "unknown"),
        (
            "version = \"x\"\n[[token]]\nid = \"t\"\nkind = \"t\"\nanchors = []\npattern = 'a'",
            "rule t: a token needs anchors",
        ),
        (
            "version = \"x\"\n[[token]]\nid = \"t\"\nkind = \"t\"\nanchors = [\"a\"]\npattern = '('",
            "rule t: ",
        ),
        (
            "version = \"x\"\n[[token]]\nid = \"t\"\nkind = \"T]\"\nanchors = [\"a\"]\npattern = 'a'",
            "rule t: a kind",
        ),
    ] {
        let error = RuleSet::read(text).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Whoever says that a payload is JSON may be wrong.
#[test]
fn what_is_no_json_after_all_is_read_as_text() {
    let token = github(11);
    for payload in [
        format!("[}}{token}"),
        format!("{{:\"{token}\""),
        format!("{}{token}", "[".repeat(100_000)),
        format!("[ ,\"{token}\"]"),
    ] {
        let out = RULES.redact(payload.as_bytes(), Shape::Json).unwrap();
        assert!(!leaks(&out.bytes, &token));
        assert_eq!(out.marks.len(), 1);
    }
}
