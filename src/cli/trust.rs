//! `onrecord trust`: the trust file for the server's keys.

use crate::client::Client;
use serde_json::json;

/// Arguments of `onrecord trust`.
#[derive(Clone, Debug, clap::Args)]
pub struct TrustArgs {
    /// Print it as JSON: its text and its lines in words
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub async fn run(args: TrustArgs, client: Client) -> anyhow::Result<()> {
    let text = client.read_bytes("/v1/trust").await?;
    let text = String::from_utf8_lossy(&text);
    if !args.json {
        return super::print(&text);
    }
    let lines: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    super::print(&format!("{}\n", json!({"lines": lines, "text": text})))
}
