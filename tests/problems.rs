//! `docs/problems.md` has every code that the server can answer with, with its status, and no other.

#![allow(clippy::unwrap_used, reason = "a test that cannot read a file fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A code that a source gives, and the status beside it where one stands there.
type Codes = BTreeMap<String, Option<u16>>;

fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// A code is a word in quotes that a title in quotes follows; titles begin with a capital letter.
fn codes_of(source: &str) -> Codes {
    let mut codes = Codes::new();
    for (at, _) in source.match_indices('"') {
        let rest = &source[at + 1..];
        let Some(end) = rest.find('"') else { break };
        let word = &rest[..end];
        let after = rest[end + 1..].trim_start();
        let titled = after
            .strip_prefix(',')
            .and_then(|after| after.trim_start().strip_prefix('"'))
            .is_some_and(|title| title.starts_with(char::is_uppercase));
        if is_word(word) && titled {
            codes.insert(word.to_owned(), status_before(source[..at].trim_end()));
        }
    }
    codes
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

fn status_before(before: &str) -> Option<u16> {
    let word = before.rsplit(|byte: char| byte.is_whitespace()).next()?;
    let word = word
        .rsplit_once("StatusCode::")
        .map_or(word, |(_, name)| name);
    match word {
        "BAD_REQUEST," => Some(400),
        "UNAUTHORIZED," => Some(401),
        "FORBIDDEN," => Some(403),
        "NOT_FOUND," => Some(404),
        "METHOD_NOT_ALLOWED," => Some(405),
        "REQUEST_TIMEOUT," => Some(408),
        "PRECONDITION_FAILED," => Some(412),
        "PAYLOAD_TOO_LARGE," => Some(413),
        "UNSUPPORTED_MEDIA_TYPE," => Some(415),
        "UNPROCESSABLE_ENTITY," => Some(422),
        "INTERNAL_SERVER_ERROR," => Some(500),
        "SERVICE_UNAVAILABLE," => Some(503),
        "INSUFFICIENT_STORAGE," => Some(507),
        _ if word.ends_with("conflict(") => Some(409),
        _ if word.ends_with("missing(") => Some(404),
        _ => None,
    }
}

/// The words that an enum's `as_str` answers: `Self::Variant => "word",`.
fn words_of(source: &str) -> Vec<String> {
    let arms = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Self::"));
    arms.filter_map(|arm| {
        let word = arm.split_once(" => \"")?.1.strip_suffix("\",")?;
        is_word(word).then(|| word.to_owned())
    })
    .collect()
}

fn sources() -> Codes {
    let mut codes = Codes::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http");
    let folders = [folder.clone(), folder.join("problem")];
    let entries = folders.iter().flat_map(|one| fs::read_dir(one).unwrap());
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // The pages of reports give no codes.
            let is_known = folders.contains(&path) || path.ends_with("report");
            assert!(is_known, "{path:?} is not looked at");
            continue;
        }
        // The words of figures look like codes.
        if path.ends_with("metrics.rs") {
            continue;
        }
        let source = fs::read_to_string(path).unwrap();
        codes.extend(codes_of(&source));
    }
    for reason in words_of(&text("crates/onrecord-core/src/json/error.rs")) {
        // A size has a code of its own.
        if reason != "size" {
            let syntax = ["syntax", "utf8", "bom"].contains(&reason.as_str());
            codes.insert(
                format!("json_{reason}"),
                Some(if syntax { 400 } else { 422 }),
            );
        }
    }
    for code in words_of(&text("crates/onrecord-core/src/chain.rs")) {
        codes.insert(code, Some(422));
    }
    codes
}

/// Rows of the page's tables: `| `code` | status | …`.
fn documented() -> BTreeMap<String, String> {
    let page = text("docs/problems.md");
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let code = cells.next()?.strip_suffix('`')?;
        let status = cells.next()?;
        status
            .starts_with(|digit: char| digit.is_ascii_digit())
            .then(|| (code.to_owned(), status.to_owned()))
    });
    rows.collect()
}

#[test]
fn every_code_stands_in_the_page_with_its_status() {
    let (sources, documented) = (sources(), documented());
    for (code, status) in &sources {
        let found = documented.get(code).map(String::as_str);
        assert!(found.is_some(), "docs/problems.md does not have {code}");
        if let Some(status) = status {
            assert_eq!(found, Some(status.to_string().as_str()), "status of {code}");
        }
    }
    for code in documented.keys() {
        assert!(
            sources.contains_key(code),
            "docs/problems.md has {code}, which no source gives"
        );
    }
}

#[test]
fn codes_are_found_in_a_source() {
    let source = r#"Self::new(
        StatusCode::CONFLICT, "not_this", "lower case",
        StatusCode::FORBIDDEN,
        "role_missing",
        "The token has not the role",
    ); missing("run_not_found", "No such run")"#;
    let expected = [
        ("role_missing".to_owned(), Some(403)),
        ("run_not_found".to_owned(), Some(404)),
    ];
    assert_eq!(codes_of(source), Codes::from(expected));
    assert!(sources().len() > 40, "{:?}", sources());
}
