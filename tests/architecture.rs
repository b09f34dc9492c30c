//! Who sees whom: the sources are held against the table of rooms in `docs/ARCHITECTURE.md`.

#![allow(clippy::unwrap_used, reason = "a test that cannot read a file fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Rooms = BTreeMap<String, BTreeSet<String>>;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The sources in a folder and all below it.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The text of a source without comments, and without the tests at its end.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    lines.collect::<Vec<_>>().join("\n")
}

/// The room of a source: the first folder or file below `src`. The program's own two files are none.
fn room(path: &Path) -> Option<String> {
    let below = path.strip_prefix(root().join("src")).unwrap();
    let first = below.components().next()?.as_os_str().to_str()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!matches!(name, "lib" | "main")).then(|| name.to_owned())
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// What follows each `prefix` that stands at the beginning of a path.
fn paths<'a>(code: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    code.match_indices(prefix).filter_map(move |(at, _)| {
        let begins = !code[..at].ends_with(|before| is_name(before) || before == ':');
        begins.then(|| &code[at + prefix.len()..])
    })
}

fn name(text: &str) -> String {
    text.chars().take_while(|next| is_name(*next)).collect()
}

fn used() -> Rooms {
    let mut rooms = Rooms::new();
    for path in sources(&root().join("src")) {
        let Some(room) = room(&path) else { continue };
        let code = code(&path);
        assert!(
            !code.contains("crate::{"),
            "{}: one `use crate::…` a room, so that it can be seen",
            path.display()
        );
        let seen = paths(&code, "crate::")
            .map(name)
            .filter(|seen| *seen != room);
        let seen: BTreeSet<String> = seen.collect();
        rooms.entry(room).or_default().extend(seen);
    }
    rooms
}

/// The table's rows: the room, what happens there, and whom it sees.
fn written() -> Rooms {
    let page = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    let section = page.split("\n## Rooms of `src/`\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split('|').collect();
        let room = cells[0].trim().trim_end_matches('`').to_owned();
        let sees = cells[2].split('`').filter(|word| !word.trim().is_empty());
        Some((room, sees.map(str::to_owned).collect()))
    });
    rows.collect()
}

#[test]
fn rooms_see_what_the_table_says() {
    let (used, written) = (used(), written());
    assert_eq!(
        used.keys().collect::<Vec<_>>(),
        written.keys().collect::<Vec<_>>(),
        "rooms of src/ and rows of the table"
    );
    for (room, sees) in &used {
        assert_eq!(
            sees, &written[room],
            "what {room} sees, and what the table says"
        );
    }
}

#[test]
fn the_database_is_named_in_the_store_only() {
    for path in sources(&root().join("src")) {
        if room(&path).as_deref() != Some("store") {
            let found = paths(&code(&path), "sqlx::").count();
            assert_eq!(found, 0, "{} names sqlx", path.display());
        }
    }
}

#[test]
fn handlers_cannot_reach_a_key() {
    for path in sources(&root().join("src/http")) {
        let code = code(&path);
        for word in ["crate::vault", "recorder.vault", "TenantKeys", "RunKeys"] {
            assert!(!code.contains(word), "{} names {word}", path.display());
        }
    }
}

#[test]
fn the_store_carries_wrapped_keys_and_opens_none() {
    for path in sources(&root().join("src/store")) {
        let code = code(&path);
        for rest in paths(&code, "crate::vault") {
            assert!(
                rest.starts_with("::WrappedRunKey;"),
                "{} names vault{}",
                path.display(),
                rest.lines().next().unwrap_or("")
            );
        }
    }
}

fn names_none_of(folder: &str, words: &[&str]) {
    let found = sources(&root().join(folder));
    assert!(!found.is_empty(), "{folder} has sources");
    for path in found {
        let code = code(&path);
        for word in words {
            assert_eq!(
                paths(&code, word).count(),
                0,
                "{} names {word}",
                path.display()
            );
        }
    }
}

#[test]
fn core_has_no_surroundings() {
    let words = [
        "std::",
        "tokio",
        "tracing",
        "log::",
        "getrandom",
        "rand::",
        "jiff",
        "ed25519_dalek",
        "async ",
        "SystemTime",
        "Instant",
        "println!",
        "eprintln!",
    ];
    names_none_of("crates/onrecord-core/src", &words);
    let lib = fs::read_to_string(root().join("crates/onrecord-core/src/lib.rs")).unwrap();
    assert!(lib.contains("#![no_std]"));
}

#[test]
fn the_verifier_has_no_network() {
    let words = [
        "tokio",
        "sqlx",
        "axum",
        "reqwest",
        "hyper",
        "std::net",
        "TcpStream",
        "async ",
        "SystemTime",
    ];
    names_none_of("crates/onrecord-verify/src", &words);
}

/// The functions of a source: name, signature and body.
fn functions(code: &str) -> Vec<(String, &str, &str)> {
    let mut begins: Vec<usize> = code.match_indices("fn ").map(|(at, _)| at).collect();
    begins.retain(|at| !code[..*at].ends_with(is_name));
    let ends = begins.iter().skip(1).copied().chain([code.len()]);
    let cut = begins.iter().zip(ends).filter_map(|(at, end)| {
        let text = &code[at + 3..end];
        let (signature, body) = text.split_once('{')?;
        Some((name(text), signature, body))
    });
    cut.collect()
}

/// Where words stand in the sources of a folder: the file and the function.
fn standing(folder: &str, words: &[&str]) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for path in sources(&root().join(folder)) {
        let code = code(&path);
        let file = path.strip_prefix(root()).unwrap().display().to_string();
        for (name, _, body) in functions(&code) {
            let body = body.split_whitespace().collect::<Vec<_>>().join(" ");
            if words.iter().any(|word| body.contains(word)) {
                found.insert((file.clone(), name));
            }
        }
    }
    found
}

fn listed(list: &[(&str, &str)]) -> BTreeSet<(String, String)> {
    let owned = |(file, name): &(&str, &str)| (format!("src/{file}"), (*name).to_owned());
    list.iter().map(owned).collect()
}

/// The statements that take a key or a ciphertext away, and what they ask for before they do. A new one has to be added here,
/// and either takes the leave that `retention::decide` gives or takes nothing away that could still be opened.
const DESTROYING: [(&str, &str, &str); 7] = [
    ("store/erasing.rs", "destroy_keys_of", "&Permit"),
    ("store/erasing.rs", "remove", "&Certified"),
    ("store/expiring.rs", "remove", "&[Going]"),
    ("store/expiring.rs", "remove_keys_of", "&[Going]"),
    // Keys are wrapped again, and what they had been wrapped with goes.
    ("store/erasing.rs", "rewrapped", ""),
    ("store/keys.rs", "remove_outlived_run_keys", ""),
    ("store/keys.rs", "replace", ""),
];

#[test]
fn every_way_of_erasing_is_decided_in_one_place() {
    let words = [
        "delete from payloads",
        "update payloads",
        "delete from keys.run_keys",
        "update keys.run_keys",
        "delete from keys.epochs",
    ];
    let known: Vec<_> = DESTROYING.iter().map(|one| (one.0, one.1)).collect();
    assert_eq!(standing("src", &words), listed(&known));
    for (file, wanted, leave) in DESTROYING {
        let code = code(&root().join("src").join(file));
        let found = functions(&code);
        let (_, signature, _) = found.iter().find(|one| one.0 == wanted).unwrap();
        assert!(
            signature.contains(leave),
            "{wanted} of {file} takes {leave}"
        );
    }
    // Who may say so.
    assert_eq!(
        standing("src", &["Permit::decided("]),
        listed(&[("retention/decide.rs", "verdict")])
    );
    assert_eq!(
        standing("src", &["Certified::stated("]),
        listed(&[
            ("store/erasures.rs", "certified"),
            ("store/expiring.rs", "certified"),
        ])
    );
    // What asks for no leave is called where keys are renewed, and by what does ask.
    assert_eq!(
        standing("src", &["remove_outlived_run_keys("]),
        listed(&[
            ("retention/work.rs", "renew_run"),
            ("store/keys.rs", "remove_run_keys"),
        ])
    );
    let code = code(&root().join("src/store/keys.rs"));
    let found = functions(&code);
    let (_, signature, _) = found.iter().find(|one| one.0 == "remove_run_keys").unwrap();
    assert!(signature.contains("&Certified"));
    // Who decides, in the transaction that certifies.
    assert_eq!(
        standing("src", &["decide::may_erase", "known.verdict("]),
        listed(&[
            ("retention/decide.rs", "may_erase"),
            ("retention/erasure.rs", "request_erasure"),
            ("retention/expire.rs", "decide"),
            ("retention/work.rs", "certify"),
            // It erases nothing: what would go.
            ("retention/dry_run.rs", "of_run"),
        ])
    );
}

#[test]
fn paths_are_found_where_they_begin() {
    let code = "use crate::vault::Key; x_crate::no; self::crate::no(crate::store::one())";
    let found: Vec<String> = paths(code, "crate::").map(name).collect();
    assert_eq!(found, ["vault", "store"]);
}
