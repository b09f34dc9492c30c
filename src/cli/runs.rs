//! `onrecord runs`: a list of runs.

use super::terminal::{Column, Screen, seconds, show, table, tell};
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
    /// Only runs opened then or later: 2026-11-30, 2026-11-30T08:00:00Z, or how long ago by the
    /// database's clock, such as 15m, 2h or 3d
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only runs opened before
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Only runs that this is true of, such as 'size > 100 and not (outcome = completed)'
    #[arg(long, value_name = "FILTER", requires = "purpose")]
    pub filter: Option<String>,
    /// Why, as a code; stands on the ledger. Needed with a filter
    #[arg(long, value_name = "CODE")]
    pub purpose: Option<String>,
    /// At most so many, newest first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Print a JSON line for each run
    #[arg(long)]
    pub json: bool,
}

/// What a narrow terminal shows last is left out first.
pub(super) const COLUMNS: [Column; 7] = [
    Column {
        leave_out: 4,
        ..Column::kept("NO")
    },
    Column::kept("RUN"),
    Column {
        leave_out: 1,
        ..Column::kept("STATUS")
    },
    Column {
        leave_out: 2,
        ..Column::kept("OUTCOME")
    },
    Column {
        leave_out: 5,
        ..Column::kept("FRAMES")
    },
    Column {
        leave_out: 3,
        ..Column::kept("OPENED (UTC)")
    },
    Column {
        least: Some(12),
        ..Column::kept("AGENT")
    },
];

/// Runs the command.
pub async fn run(args: RunsArgs, client: Client) -> anyhow::Result<()> {
    let filters: Vec<(&str, String)> = [
        ("agent", &args.agent),
        ("status", &args.status),
        ("outcome", &args.outcome),
        ("since", &args.since),
        ("until", &args.until),
        ("filter", &args.filter),
        ("purpose", &args.purpose),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value.clone()?)))
    .collect();
    let screen = Screen::stdout();
    let (mut cursor, mut left, mut rows) = (None::<String>, args.limit, Vec::new());
    // A cursor goes on with pages of any size.
    while left > 0 {
        let mut query = vec![("limit", left.min(500).to_string())];
        query.extend(filters.iter().cloned());
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let page: Value = client
            .read(&format!("/v1/runs?{}", encode(&query)?))
            .await?;
        let runs = page["runs"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        left = left.saturating_sub(u32::try_from(runs.len()).unwrap_or(u32::MAX));
        if args.json {
            show(
                &runs
                    .iter()
                    .map(|run| format!("{run}\n"))
                    .collect::<String>(),
            )?;
        } else {
            rows.extend(runs.iter().map(|run| row(screen, run)));
        }
        cursor = page["next"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if args.json {
        return Ok(());
    }
    if rows.is_empty() {
        tell(if filters.is_empty() {
            "no runs; `onrecord import auto FILE` brings some, and so does any agent that posts"
        } else {
            "no such runs"
        });
        return Ok(());
    }
    show(&table(screen, &COLUMNS, &rows))?;
    if cursor.is_some() {
        tell("there are more; --limit N shows more of them");
    }
    Ok(())
}

/// A run, a cell for each column.
pub(super) fn row(screen: Screen, run: &Value) -> Vec<String> {
    let mut opened = seconds(&run["opened_at"]);
    if screen.is_narrow() {
        // To the minute.
        opened.truncate(16);
    }
    let text = |name: &str| run[name].as_str().unwrap_or("").to_owned();
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
