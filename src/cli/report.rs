//! `onrecord report RUN`: how complete the record of a run is, and who had to do with it.

use super::terminal::tell;
use super::which_run::RunArg;
use crate::client::Client;
use anyhow::Context as _;
use serde_json::Value;
use std::path::PathBuf;

/// Arguments of `onrecord report`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReportArgs {
    #[command(flatten)]
    run: RunArg,
    /// As a page that can be printed, instead of JSON
    #[arg(long)]
    pub html: bool,
    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Runs the command.
pub async fn run(args: ReportArgs, client: Client) -> anyhow::Result<()> {
    let run = args.run.resolve(&client).await?;
    let path = format!("/v1/runs/{run}/report");
    let text = if args.html {
        let page = client.read_bytes(&format!("{path}.html")).await?;
        String::from_utf8_lossy(&page).into_owned()
    } else {
        let report: Value = client.read(&path).await?;
        format!("{report}\n")
    };
    let Some(output) = args.output.filter(|output| output.as_os_str() != "-") else {
        return super::print(&text);
    };
    std::fs::write(&output, text).with_context(|| output.display().to_string())?;
    tell(format_args!("wrote {}", output.display()));
    Ok(())
}
