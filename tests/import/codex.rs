//! Codex: rollouts, and what `codex exec` prints.

use std::path::PathBuf;

use onrecord::import::Format;

use crate::check::{Records, check_files};
use crate::shared::shared;

#[test]
fn other_peoples_rollouts_are_mapped() {
    let Some(data) = shared("data") else { return };
    let mut paths: Vec<PathBuf> = Vec::new();
    for folder in ["agent-sessions/codex", "agentsview/codex"] {
        paths.extend(crate::files(&data.join(folder), ".jsonl"));
    }
    for name in ["050_legacy", "051_usage", "052_raw", "053_rate_limit"] {
        paths.push(data.join(format!("agent-sessions/codex_{name}.jsonl")));
    }
    check_files(Format::Codex, &Records::Lines, &paths);
    let document = [data.join("strands-live-spans/codex_session_rollout.json")];
    check_files(Format::Codex, &Records::Document, &document);
    let exec = [data.join("strands-live-spans/codex_exec_json.json")];
    check_files(Format::CodexExec, &Records::Document, &exec);
}
#[test]
fn tmp_detect() {
    let Some(data) = shared("data") else { return };
    for path in crate::files(&data, "") {
        match onrecord::import::detect(&path) {
            Ok(format) => eprintln!("{:?} {}", format, path.display()),
            Err(_) => {}
        }
    }
    check_files(
        Format::MiniSweAgent,
        &Records::Document,
        &crate::files(&data.join("mini-swe-agent"), ".json"),
    );
    check_files(
        Format::Copilot,
        &Records::Lines,
        &crate::files(&data.join("agent-sessions/copilot"), ".jsonl"),
    );
}
