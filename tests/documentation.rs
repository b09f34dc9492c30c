//! The documents are true where a machine can tell: what sources cite is there, links lead somewhere,
//! vectors and addresses that are named exist, and the steps by hand do what the page says.

#![allow(clippy::unwrap_used, reason = "a test that cannot read a file fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path.as_ref())).unwrap()
}

/// All files with an extension below some folders.
fn files(folders: &[&str], extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found
}

fn has_heading(page: &str, heading: &str) -> bool {
    page.lines()
        .any(|line| line.starts_with('#') && line.trim_start_matches('#').trim() == heading)
}

/// The section that a text names right after a page, in double quotes.
fn section(after: &str) -> Option<&str> {
    after.strip_prefix(", \"")?.split('"').next()
}

#[test]
fn what_sources_cite_is_there() {
    let mut cited = 0;
    for path in files(&["src", "crates", "migrations"], "rs") {
        let source = fs::read_to_string(&path).unwrap();
        for (at, _) in source.match_indices("`docs/") {
            let rest = &source[at + 1..];
            let (page, after) = rest.split_once('`').unwrap();
            let file = root().join(page);
            assert!(file.exists(), "{} cites {page}", path.display());
            if let Some(section) = section(after) {
                assert!(
                    has_heading(&text(page), section),
                    "{} cites {page}, {section:?}",
                    path.display()
                );
            }
            cited += 1;
        }
    }
    assert!(cited > 20, "{cited} citations");
}

#[test]
fn links_lead_somewhere() {
    for path in files(&["docs"], "md") {
        let page = fs::read_to_string(&path).unwrap();
        for (at, _) in page.match_indices("](") {
            let rest = &page[at + 2..];
            let (target, after) = rest.split_once(')').unwrap();
            if target.contains("://") || target.starts_with('#') {
                continue;
            }
            let file = path.parent().unwrap().join(target);
            assert!(file.exists(), "{} links {target}", path.display());
            if let Some(section) = section(after) {
                let target = fs::read_to_string(&file).unwrap();
                assert!(
                    has_heading(&target, section),
                    "{} names {section:?}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn pages_of_the_specification_begin_with_an_example_and_say_what_is_refused() {
    for path in files(&["docs/spec"], "md") {
        let page = fs::read_to_string(&path).unwrap();
        if path.ends_with("README.md") {
            continue;
        }
        let fence = page.find("```").unwrap_or(usize::MAX);
        let section = page.find("\n## ").unwrap();
        let is_example = path.ends_with("example.md");
        assert!(is_example || fence < section, "{}", path.display());
        assert!(
            has_heading(&page, "What must be refused"),
            "{}",
            path.display()
        );
        let index = text("docs/spec/README.md");
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(index.contains(&format!("({name})")), "{name} in the index");
    }
}

/// Names of vectors, without folders and endings.
fn vectors() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let json = |path: &str| -> serde_json::Value {
        serde_json::from_str(&text(Path::new("tests/vectors").join(path))).unwrap()
    };
    let cases = json("json/cases.json");
    names.extend(cases["valid"].as_object().unwrap().keys().cloned());
    names.extend(cases["invalid"].as_object().unwrap().keys().cloned());
    let mut named = |list: &serde_json::Value, member: &str| {
        for one in list.as_array().unwrap() {
            names.insert(one[member].as_str().unwrap().to_owned());
        }
    };
    named(&json("frames/invalid.json"), "name");
    named(&json("statements/invalid.json"), "name");
    named(&json("statements/entries.json"), "name");
    named(&json("merkle/invalid.json"), "name");
    named(&json("payload/payloads.json")["invalid"], "name");
    named(&json("tampered/expected.json"), "attack");
    names
}

#[test]
fn vectors_that_pages_name_exist() {
    let vectors = vectors();
    let mut named = 0;
    for path in files(&["docs/spec"], "md") {
        let page = fs::read_to_string(&path).unwrap();
        let refused = page.split("## What must be refused").nth(1).unwrap_or("");
        // Words in back quotes alternate with what stands between them.
        for word in refused.split('`').skip(1).step_by(2) {
            let is_file = word.contains('/') || word.ends_with(".txt");
            let is_name = word
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
            if is_file {
                let vectors = root().join("tests/vectors");
                let exists = [vectors.join(word), root().join(word)]
                    .iter()
                    .any(|file| file.exists());
                assert!(exists, "{} names {word}", path.display());
                named += 1;
            } else if is_name && word.contains('-') && !is_line_of_trust(word) {
                assert!(vectors.contains(word), "{} names {word}", path.display());
                named += 1;
            }
        }
    }
    assert!(named > 200, "{named} vectors are named");
}

fn is_line_of_trust(word: &str) -> bool {
    ["seal-key", "agent-key", "time-anchor", "time-authority"].contains(&word)
}

#[test]
fn every_address_of_the_api_stands_in_its_page() {
    let document: serde_json::Value = serde_json::from_str(&onrecord::http::openapi()).unwrap();
    let page = text("docs/api.md");
    let section = page.split("\n## Addresses\n").nth(1).unwrap();
    let table = section.split("\n## ").next().unwrap();
    let mut written: BTreeSet<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .flat_map(|line| line.split('|').next().unwrap_or("").split('`'))
        .filter(|word| word.contains(" /"))
        .collect();
    // These two describe the others.
    assert!(written.remove("GET /openapi.json") && written.remove("GET /docs"));
    let mut served = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            served.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    assert_eq!(served, written.into_iter().map(str::to_owned).collect());
}

/// Whether the programs are there that the pages use; says so if they are not.
fn tools() -> bool {
    let found = Command::new("bash")
        .args(["-c", "command -v jq xxd openssl sha256sum base64 awk tar && openssl version | grep -q 'OpenSSL 3'"])
        .output()
        .is_ok_and(|done| done.status.success());
    if !found {
        eprintln!("skipped: bash, jq, xxd, OpenSSL 3 and coreutils are not all installed");
    }
    found
}

/// The last line that the steps of `docs/spec/bundle.md` print.
fn by_hand(bundle: &str) -> String {
    let page = text("docs/spec/bundle.md");
    let section = page.split("\n## By hand\n").nth(1).unwrap();
    let steps = section
        .split("```sh\n")
        .nth(1)
        .unwrap()
        .split("\n```")
        .next()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let vectors = root().join("tests/vectors");
    let done = Command::new("bash")
        .args(["-eu", "-c", steps])
        .env("BUNDLE", vectors.join(bundle))
        .env("TRUST", vectors.join("trust.txt"))
        .env("D", folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    let last = said.lines().last().unwrap_or("").to_owned();
    assert_eq!(
        done.status.success(),
        last == "ok  checkpoint",
        "{bundle}: {said}"
    );
    last
}

#[test]
fn the_steps_by_hand_tell_good_bundles_from_tampered_ones() {
    if !tools() {
        return;
    }
    for (bundle, last) in [
        (
            "minimal/run-01K7Q4Z8V2N5R3T6Y9B1C0D4E8.onrecord.tar",
            "ok  checkpoint",
        ),
        (
            "rich/run-01K7Q52D6WZX9M4H7P0S3V8G1A.onrecord.tar",
            "ok  checkpoint",
        ),
        (
            "interrupted/run-01K7Q4ZB5CVV0A1B2C3D4E5F6G.onrecord.tar",
            "ok  checkpoint",
        ),
        ("tampered/edit.tar", "BAD frame 5"),
        ("tampered/edit-relink.tar", "BAD head"),
        ("tampered/truncate.tar", "BAD head"),
        ("tampered/seal-resigned.tar", "BAD manifest"),
        (
            "tampered/export-edited.tar",
            "BAD signature of export.dsse.json",
        ),
        (
            "tampered/key-in-bundle.tar",
            "BAD the seal is by no key of the trust file",
        ),
        (
            "tampered/key-in-bundle-same-keyid.tar",
            "BAD signature of seal.dsse.json",
        ),
        (
            "tampered/other-tenant-key.tar",
            "BAD the key is another tenant's or ledger's",
        ),
        ("tampered/resign-stolen-key.tar", "BAD entry 3 of 4"),
        ("tampered/graft-other-ledger.tar", "BAD origin"),
    ] {
        assert_eq!(by_hand(bundle), last, "{bundle}");
    }
}

#[test]
fn the_worked_example_prints_what_it_says() {
    if !tools() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let bundle = root().join("tests/vectors/minimal/run-01K7Q4Z8V2N5R3T6Y9B1C0D4E8.onrecord.tar");
    let unpacked = Command::new("tar")
        .arg("-xf")
        .arg(bundle)
        .arg("-C")
        .arg(folder.path())
        .status();
    assert!(unpacked.unwrap().success());
    let page = text("docs/spec/example.md");
    let blocks: Vec<&str> = page.split("```sh\n").skip(1).collect();
    assert_eq!(blocks.len(), 6);
    for block in blocks {
        let block = block.split("\n```").next().unwrap();
        let (mut script, mut printed, mut goes_on) = (String::new(), String::new(), false);
        for line in block.lines() {
            let command = line.strip_prefix("$ ").or(goes_on.then_some(line));
            let target = if command.is_some() {
                &mut script
            } else {
                &mut printed
            };
            goes_on = command.is_some_and(|command| command.ends_with('\\'));
            target.push_str(command.unwrap_or(line));
            target.push('\n');
        }
        let done = Command::new("bash")
            .args(["-c", &script])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(done.stdout).unwrap(), printed, "{script}");
    }
}

/// Every command below one, with its words.
fn commands(command: &clap::Command, words: &str, found: &mut Vec<(String, clap::Command)>) {
    for sub in command.get_subcommands() {
        let name = format!("{words} {}", sub.get_name());
        found.push((name.clone(), sub.clone()));
        commands(sub, &name, found);
    }
}

#[test]
fn every_command_option_and_variable_stands_in_the_page_of_the_command_line() {
    use clap::CommandFactory as _;
    let page = text("docs/cli.md");
    let (all, _) = page.split_once("\n## onrecord ").unwrap();
    let mut found = Vec::new();
    commands(&onrecord::cli::Cli::command(), "onrecord", &mut found);
    for (name, command) in &found {
        let heading = page
            .lines()
            .find(|line| line.starts_with('#') && line.trim_start_matches('#').trim() == name);
        let heading = heading.unwrap_or_else(|| panic!("docs/cli.md has no section {name:?}"));
        let section = page.split(&format!("\n{heading}\n")).nth(1).unwrap();
        let section = section.split("\n#").next().unwrap();
        for option in command.get_arguments().filter(|one| !one.is_hide_set()) {
            let long = option.get_long().map(|long| format!("--{long}"));
            if let Some(long) = long {
                let is_told =
                    section.contains(&format!("`{long}")) || all.contains(&format!("`{long}"));
                assert!(is_told, "docs/cli.md, {name:?} does not tell {long}");
            }
            if let Some(variable) = option.get_env().and_then(|name| name.to_str()) {
                assert!(
                    page.contains(variable),
                    "docs/cli.md does not tell {variable}"
                );
            }
        }
    }
    let written = page
        .lines()
        .filter(|line| line.starts_with('#') && line.contains("# onrecord "))
        .count();
    assert_eq!(
        written,
        found.len(),
        "sections of docs/cli.md, and commands"
    );
}
