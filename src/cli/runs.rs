//! `onrecord runs`: a list of runs.

use super::table::{seconds, table};
use crate::client::Client;
use serde_json::Value;

/// Arguments of `onrecord runs`.
#[derive(Clone, Debug, clap::Args)]
pub struct RunsArgs {
    /// Only runs of this agent
    #[arg(long)]
    pub agent: Option<String>,
    /// Only open or only sealed runs
    #[arg(long, value_parser = ["open", "sealed"])]
    pub status: Option<String>,
    /// Only runs with this outcome
    #[arg(long, value_parser = ["completed", "failed", "cancelled", "unknown"])]
    pub outcome: Option<String>,
    /// At most so many, newest first
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Print a JSON line for each run
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub async fn run(args: RunsArgs, client: Client) -> anyhow::Result<()> {
    let (mut before, mut left, mut rows) = (None::<u64>, args.limit, Vec::new());
    while left > 0 {
        let mut query = vec![("limit", left.min(500).to_string())];
        let filters = [
            ("agent", args.agent.clone()),
            ("status", args.status.clone()),
            ("outcome", args.outcome.clone()),
            ("before", before.map(|number| number.to_string())),
        ];
        query.extend(
            filters
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let page: Value = client
            .read(&format!("/v1/runs?{}", encode(&query)?))
            .await?;
        let runs = page["runs"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        left = left.saturating_sub(u32::try_from(runs.len()).unwrap_or(u32::MAX));
        if args.json {
            runs.iter()
                .try_for_each(|run| super::print(&format!("{run}\n")))?;
        } else {
            rows.extend(runs.iter().map(row));
        }
        before = page["next"].as_u64();
        if before.is_none() {
            break;
        }
    }
    if args.json {
        return Ok(());
    }
    if rows.is_empty() {
        let filtered = args.agent.is_some() || args.status.is_some() || args.outcome.is_some();
        eprintln!(
            "{}",
            if filtered {
                "no such runs"
            } else {
                "no runs; `onrecord import auto FILE` brings some, and so does any agent that posts"
            }
        );
        return Ok(());
    }
    super::print(&table(
        &[
            "NO", "RUN", "STATUS", "OUTCOME", "FRAMES", "OPENED", "AGENT",
        ],
        &rows,
    ))?;
    if before.is_some() {
        eprintln!("there are more; --limit N shows more of them");
    }
    Ok(())
}

fn row(run: &Value) -> Vec<String> {
    let text = |name: &str| run[name].as_str().unwrap_or("").to_owned();
    let opened = seconds(&run["opened_at"]);
    vec![
        run["run_no"].to_string(),
        text("run"),
        text("status"),
        text("outcome"),
        run["size"].to_string(),
        opened,
        text("agent"),
    ]
}

/// A query string.
pub(super) fn encode(pairs: &[(&str, String)]) -> anyhow::Result<String> {
    let url = reqwest::Url::parse_with_params("http://x/", pairs)?;
    Ok(url.query().unwrap_or_default().to_owned())
}
