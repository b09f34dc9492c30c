//! `onrecord coverage RUN`: which facts a record of use should have, and whether a run has them.

use super::terminal::{Column, Screen, show, table};
use super::which_run::RunArg;
use crate::client::Client;
use serde_json::Value;

/// Arguments of `onrecord coverage`.
#[derive(Clone, Debug, clap::Args)]
pub struct CoverageArgs {
    #[command(flatten)]
    run: RunArg,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What a narrow terminal shows last is left out first.
const COLUMNS: [Column; 5] = [
    Column::kept("FACT"),
    Column::kept("STATE"),
    Column {
        leave_out: 3,
        ..Column::kept("FRAME")
    },
    Column {
        leave_out: 2,
        ..Column::kept("SOURCE")
    },
    Column {
        leave_out: 1,
        ..Column::kept("RECORDED BY")
    },
];

/// Runs the command.
pub async fn run(args: CoverageArgs, client: Client) -> anyhow::Result<()> {
    let run = args.run.resolve(&client).await?;
    let body: Value = client.read(&format!("/v1/runs/{run}/coverage")).await?;
    if args.json {
        return super::print(&format!("{body}\n"));
    }
    let facts = body["facts"].as_array().into_iter().flatten();
    let rows: Vec<Vec<String>> = facts
        .map(|fact| {
            let text = |name: &str| fact[name].as_str().unwrap_or_default().to_owned();
            let seq = fact["seq"].as_u64().map(|seq| seq.to_string());
            vec![
                text("fact"),
                text("state").replace('_', " "),
                seq.unwrap_or_default(),
                text("source"),
                text("how"),
            ]
        })
        .collect();
    show(&table(Screen::stdout(), &COLUMNS, &rows))?;
    for limit in body["limits"].as_array().into_iter().flatten() {
        super::terminal::tell(limit.as_str().unwrap_or_default());
    }
    Ok(())
}
