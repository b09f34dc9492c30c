//! `onrecord show RUN`: a run as a timeline.

use super::terminal::{BAD, BOLD, DIM, DOUBTFUL, GOOD, Line, Screen, seconds, show};
use super::timeline::Timeline;
use super::which_run::RunArg;
use crate::client::Client;
use clap::builder::PossibleValuesParser;
use onrecord_core::frame::Kind;
use onrecord_core::id::RunId;
use serde_json::Value;

/// Frames that are fetched at once.
const PAGE: u64 = 1_000;

/// Arguments of `onrecord show`.
#[derive(Clone, Debug, clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    run: RunArg,
    /// Only frames of this turn
    #[arg(long, value_name = "N")]
    turn: Option<u64>,
    /// Only frames of this kind; may be given several times
    #[arg(long = "kind", value_name = "KIND", value_parser = PossibleValuesParser::new(Kind::ALL.iter().map(|kind| kind.as_str())))]
    kinds: Vec<String>,
    /// Whole frames: bodies, payloads' commitments, links, keys, both times
    #[arg(long)]
    full: bool,
    /// Print the run and its frames as JSON lines, frames in their canonical bytes
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub async fn run(args: ShowArgs, client: Client) -> anyhow::Result<()> {
    let id = args.run.resolve(&client).await?;
    let run: Value = client.read(&format!("/v1/runs/{id}")).await?;
    let session = session(&client, &id).await?;
    let screen = Screen::stdout();
    show(&if args.json {
        format!("{run}\n")
    } else {
        header(screen, &run, &session)
    })?;
    let unknown = run["unknown_outcomes"]["frames"].as_array();
    let unknown = unknown.into_iter().flatten().filter_map(Value::as_u64);
    let mut timeline = Timeline::new(screen, args.full, &session).unknown(unknown);
    let size = run["size"].as_u64().unwrap_or(0);
    let mut shown = 0_usize;
    for from in (0..size).step_by(PAGE as usize) {
        let path = format!("/v1/runs/{id}/frames?from={from}&limit={PAGE}");
        let page = client.read_bytes(&path).await?;
        let mut out = String::new();
        for line in page.split(|byte| *byte == b'\n') {
            if line.is_empty() {
                continue;
            }
            let frame: Value = serde_json::from_slice(line)?;
            let turn = frame["turn"].as_u64();
            if args.turn.is_some() && turn > args.turn {
                // Turns come one after the other.
                show(&out)?;
                tell_if_none(shown);
                return Ok(());
            }
            let kind = frame["kind"].as_str().unwrap_or("");
            let wanted = args.turn.is_none_or(|wanted| turn == Some(wanted))
                && (args.kinds.is_empty() || args.kinds.iter().any(|wanted| wanted == kind));
            if !wanted {
                continue;
            }
            shown += 1;
            if args.json {
                out.push_str(&String::from_utf8_lossy(line));
                out.push('\n');
            } else {
                out.push_str(&timeline.lines(&frame));
            }
        }
        show(&out)?;
    }
    tell_if_none(shown);
    Ok(())
}

/// Says that no frame is of the turn and kinds that were asked for, which a header alone does not.
fn tell_if_none(shown: usize) {
    if shown == 0 {
        eprintln!("no such frames");
    }
}

/// Frame 0 of a run.
pub(super) async fn session(client: &Client, run: &RunId) -> anyhow::Result<Value> {
    Ok(client.read(&format!("/v1/runs/{run}/frames/0")).await?)
}

/// What a run is, before its frames.
pub(super) fn header(screen: Screen, run: &Value, session: &Value) -> String {
    let text = |name: &str| run[name].as_str().unwrap_or("");
    let mut lines = vec![Line::default(); 3];
    lines[0]
        .text("run ")
        .add(BOLD, text("run"))
        .text(&format!("  no. {}", run["run_no"]));
    if let Some(agent) = run["agent"].as_str() {
        lines[0].text("  ").add(BOLD, agent);
    }
    lines[1]
        .add(status_style(text("status")), text("status"))
        .text(", outcome ")
        .add(status_style(text("outcome")), text("outcome"))
        .text(&format!(
            ", {}, {}, {}",
            counted(&run["size"], "frame"),
            counted(&run["turns"], "turn"),
            counted(&run["payloads"], "payload")
        ));
    lines[2].text(&format!("opened {}", seconds(&run["opened_at"])));
    if run["sealed_at"].is_string() {
        lines[2].text(&format!(
            ", sealed {}, ledger entry {}",
            seconds(&run["sealed_at"]),
            run["ledger"]["seal_index"]
        ));
    } else {
        lines[2].text(&format!(", last frame {}", seconds(&run["last_at"])));
    }
    if let Some(format) = session["body"]["imported"]["format"].as_str() {
        let mut line = Line::default();
        line.text(&format!(
            "imported from {format}: times are the transcript's"
        ));
        lines.push(line);
    }
    if let Some(count) = run["unknown_outcomes"]["count"].as_u64() {
        let mut line = Line::default();
        line.add(
            DOUBTFUL,
            &match count {
                1 => "1 tool call has no result: whether it had an effect is not known".to_owned(),
                _ => format!(
                    "{count} tool calls have no result: whether they had an effect is not known"
                ),
            },
        );
        lines.push(line);
    }
    for flag in run["flags"].as_array().into_iter().flatten() {
        let mut line = Line::default();
        line.add(DOUBTFUL, &super::flag::words(flag));
        lines.push(line);
    }
    let mut head = Line::default();
    head.add(DIM, &format!("head {}", text("head")));
    lines.push(head);
    let lines: String = lines.iter().map(|line| line.render(screen)).collect();
    lines + "\n"
}

fn status_style(word: &str) -> anstyle::Style {
    match word {
        "completed" | "sealed" => GOOD,
        "failed" => BAD,
        _ => DOUBTFUL,
    }
}

fn counted(count: &Value, what: &str) -> String {
    let plural = if count.as_u64() == Some(1) { "" } else { "s" };
    format!("{count} {what}{plural}")
}
