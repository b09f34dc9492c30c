//! `onrecord seal RUN`.

use crate::client::Client;
use onrecord_core::id::RunId;
use serde_json::{Value, json};

/// Arguments of `onrecord seal`.
#[derive(Clone, Debug, clap::Args)]
pub struct SealArgs {
    /// The run
    pub run: RunId,
    /// The run broke off: no session_end is written, and the seal says so
    #[arg(long)]
    pub interrupted: bool,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub async fn run(args: SealArgs, client: Client) -> anyhow::Result<()> {
    let (_, seal): (_, Value) = client.post(&format!("/v1/runs/{}/seal", args.run), &json!({ "interrupted": args.interrupted })).await?;
    if args.json {
        return super::print(&format!("{seal}\n"));
    }
    let text = |name: &str| seal[name].as_str().unwrap_or("").to_owned();
    super::print(&format!("sealed {} at {}: {} frames, {}, outcome {}\nhead {}\nledger entry {}\n", args.run, text("sealed_at"), seal["size"], text("completeness"), text("outcome"), text("head"), seal["index"]))
}
