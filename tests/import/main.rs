//! The import: what files become, and that posting them can be repeated.
#![allow(clippy::disallowed_methods, reason = "tests compare values")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails so"
)]

mod antigravity;
mod chat;
mod check;
mod client;
mod codex;
mod copilot;
mod cursor;
mod droid;
mod fake;
mod foreign;
mod gemini;
mod grok;
mod inspect;
mod inspect_archive;
mod langfuse;
mod mapping;
mod mini_swe;
mod odd;
mod opencode;
mod openhands;
mod posting;
mod restore;
mod same;
#[path = "../shared/mod.rs"]
mod shared;
mod steady;
mod torn;
mod watching;

use std::path::{Path, PathBuf};

/// Our own fixtures.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/import")
        .join(name)
}

const SESSION: &str = "claude/5f0c9a52-6d1e-4b7a-9c35-0e8d2a4b6c01.jsonl";

/// The files below a folder that end so, in order.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}
