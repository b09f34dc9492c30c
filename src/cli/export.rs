//! `onrecord export RUN`: a bundle that anyone can check.

use super::terminal::{show, tell};
use super::which_run::RunArg;
use crate::client::Client;
use anyhow::bail;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Arguments of `onrecord export`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExportArgs {
    #[command(flatten)]
    run: RunArg,
    /// File to write, `-` for standard output [default: run-RUN.onrecord.tar, or
    /// turn-N.turn-proof.json]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Why, as a code such as a ticket's number; stands on the ledger and in the signed export
    /// statement. Needed unless all payloads are left out
    #[arg(long, required_unless_present = "no_payloads")]
    pub purpose: Option<String>,
    /// Leave all payloads out; the rest still verifies
    #[arg(long)]
    pub no_payloads: bool,
    /// Leave some payloads out: name:NAME, tier:TIER, kind:KIND of frames, or frames:FIRST-LAST; may be given several times
    #[arg(
        long,
        value_name = "RULE",
        value_delimiter = ',',
        conflicts_with = "no_payloads"
    )]
    pub withhold: Vec<String>,
    /// One turn alone, as a turn proof
    #[arg(long, value_name = "N")]
    pub turn: Option<u64>,
    /// Print what was written as JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub async fn run(args: ExportArgs, client: Client) -> anyhow::Result<()> {
    let run = args.run.resolve(&client).await?;
    let payloads = if args.no_payloads { "none" } else { "all" };
    let mut query = vec![("payloads", payloads.to_owned())];
    query.extend(args.purpose.map(|purpose| ("purpose", purpose)));
    if !args.withhold.is_empty() {
        query.push(("withhold", args.withhold.join(",")));
    }
    let query = super::runs::encode(&query)?;
    let (path, name) = match args.turn {
        Some(turn) => (
            format!("/v1/runs/{run}/turns/{turn}/proof?{query}"),
            format!("turn-{turn}.turn-proof.json"),
        ),
        None => (
            format!("/v1/runs/{run}/export?{query}"),
            format!("run-{run}.onrecord.tar"),
        ),
    };
    let output = args.output.unwrap_or_else(|| PathBuf::from(name));
    if args.turn.is_none() && output.as_os_str() != "-" {
        let found: Value = client.read(&format!("/v1/runs/{run}")).await?;
        if found["status"] == "open" {
            tell(format_args!(
                "the run is open: the bundle ends where the run does now, and verifies as INCOMPLETE (unsealed)"
            ));
        }
    }
    save(&client, &path, &output, args.json).await
}

/// Writes what the server answers into a file that is whole or not there, and says so; `-` is standard output.
pub(super) async fn save(
    client: &Client,
    path: &str,
    output: &Path,
    as_json: bool,
) -> anyhow::Result<()> {
    if output.as_os_str() == "-" {
        if as_json {
            bail!("standard output takes the file or the JSON: give -o FILE with --json");
        }
        client.print(path).await?;
        return Ok(());
    }
    let bytes = download(client, path, output).await?;
    if as_json {
        let file = output.display().to_string();
        return show(&format!("{}\n", json!({"file": file, "bytes": bytes})));
    }
    tell(format_args!(
        "wrote {} ({}); check it with: onrecord verify --trust FILE {}",
        output.display(),
        HumanBytes(bytes),
        output.display()
    ));
    Ok(())
}

/// Writes what the server answers into a file that is whole or not there, and says so.
pub(super) async fn fetch(client: &Client, path: &str, output: &Path) -> anyhow::Result<()> {
    let bytes = download(client, path, output).await?;
    tell(format_args!(
        "wrote {} ({})",
        output.display(),
        HumanBytes(bytes)
    ));
    Ok(())
}

async fn download(client: &Client, path: &str, output: &Path) -> anyhow::Result<u64> {
    // On a terminal only, and gone when the file is there.
    let bar = ProgressBar::new_spinner().with_style(ProgressStyle::with_template(
        "{spinner} {bytes} {bytes_per_sec}",
    )?);
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    let done = client
        .download_with(path, output, |bytes| bar.set_position(bytes))
        .await;
    bar.finish_and_clear();
    Ok(done?)
}
