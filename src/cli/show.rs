//! `onrecord show RUN`: a run as a timeline.

use super::table::{fit, is_narrow};
use crate::client::Client;
use onrecord_core::id::RunId;
use onrecord_verify::escape;
use serde_json::Value;

/// Frames that are fetched at once.
const PAGE: u64 = 1_000;
/// Members of bodies that are shown before the others.
const FIRST: [&str; 5] = ["verdict", "status", "name", "exit", "agent"];

/// Arguments of `onrecord show`.
#[derive(Clone, Debug, clap::Args)]
pub struct ShowArgs {
    /// The run
    pub run: RunId,
    /// Print the run and its frames as JSON lines, in their canonical bytes
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub async fn run(args: ShowArgs, client: Client) -> anyhow::Result<()> {
    let run: Value = client.read(&format!("/v1/runs/{}", args.run)).await?;
    super::print(&if args.json {
        format!("{run}\n")
    } else {
        header(&run)
    })?;
    let size = run["size"].as_u64().unwrap_or(0);
    let unknown: Vec<u64> = run["unknown_outcomes"]["frames"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .collect();
    for from in (0..size).step_by(PAGE as usize) {
        let page = client
            .read_bytes(&format!(
                "/v1/runs/{}/frames?from={from}&limit={PAGE}",
                args.run
            ))
            .await?;
        if args.json {
            super::print(&String::from_utf8_lossy(&page))?;
            continue;
        }
        for line in page
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let frame: Value = serde_json::from_slice(line)?;
            super::print(&timeline(&frame, &unknown))?;
        }
    }
    Ok(())
}

fn header(run: &Value) -> String {
    let text = |name: &str| escape(run[name].as_str().unwrap_or("")).to_string();
    let mut lines = vec![format!(
        "run {} (no. {}) of {}",
        text("run"),
        run["run_no"],
        text("agent")
    )];
    lines.push(format!(
        "{}, outcome {}, {} frames, {} payloads, opened {}",
        text("status"),
        text("outcome"),
        run["size"],
        run["payloads"],
        text("opened_at")
    ));
    if let Some(at) = run["sealed_at"].as_str() {
        lines.push(format!(
            "sealed {at}, ledger entry {}",
            run["ledger"]["seal_index"]
        ));
    }
    if let Some(count) = run["unknown_outcomes"]["count"].as_u64() {
        lines.push(match count {
            1 => "1 tool call has no result: whether it had an effect is not known".to_owned(),
            _ => format!(
                "{count} tool calls have no result: whether they had an effect is not known"
            ),
        });
    }
    lines.push(format!("head {}", text("head")));
    lines.join("\n") + "\n\n"
}

/// One line: time, place, kind, who, and what the body says in short.
fn timeline(frame: &Value, unknown: &[u64]) -> String {
    let seq = frame["seq"].as_u64().unwrap_or(0);
    let kind = frame["kind"].as_str().unwrap_or("");
    let indent = if frame["turn"].is_u64() && !matches!(kind, "turn" | "turn_end") {
        "  "
    } else {
        ""
    };
    let clock = frame["at"]
        .as_str()
        .and_then(|at| at.get(11..23))
        .unwrap_or("");
    let actor = format!(
        "{}:{}",
        frame["actor"]["type"].as_str().unwrap_or(""),
        frame["actor"]["id"].as_str().unwrap_or("")
    );
    // The end of a line is cut to the terminal, so what people look for comes first.
    let mut facts = Vec::new();
    if let Some(turn) = frame["turn"].as_u64().filter(|_| kind == "turn") {
        facts.push(format!("#{turn}"));
    }
    if unknown.contains(&seq) {
        facts.push("OUTCOME UNKNOWN".to_owned());
    }
    let mut members: Vec<_> = frame["body"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !matches!(name.as_str(), "root" | "nonce" | "suite"))
        .collect();
    members.sort_by_key(|(name, _)| {
        let place = FIRST.iter().position(|first| first == name);
        place.unwrap_or(FIRST.len())
    });
    for (name, value) in members {
        match value {
            Value::String(text) => facts.push(format!("{name}={text}")),
            Value::Number(_) | Value::Bool(_) => facts.push(format!("{name}={value}")),
            _ => {}
        }
    }
    let payloads: Vec<&str> = frame["payloads"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|payload| payload["name"].as_str())
        .collect();
    if !payloads.is_empty() {
        facts.push(format!("[{}]", payloads.join(" ")));
    }
    for link in frame["links"].as_array().into_iter().flatten() {
        if let (Some(rel), Some(to)) = (link["rel"].as_str(), link["seq"].as_u64()) {
            facts.push(format!("{rel}→{to}"));
        }
    }
    let actor_width = if is_narrow() { 12 } else { 24 };
    // A kind inside a turn is indented; the columns after it are not.
    let kind = format!("{indent}{kind}");
    let line = format!(
        "{clock} {seq:>5}  {kind:<15} {:<actor_width$} {}",
        escape(&actor),
        escape(&facts.join(" "))
    );
    fit(line.trim_end()) + "\n"
}
