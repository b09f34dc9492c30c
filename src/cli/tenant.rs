//! `onrecord tenant`: new tenants.

use crate::client::Client;
use clap::Subcommand;
use serde_json::{Value, json};

/// Arguments of `onrecord tenant`.
#[derive(Clone, Debug, clap::Args)]
pub struct TenantArgs {
    #[command(subcommand)]
    command: TenantCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum TenantCommand {
    /// Make a tenant and print its id and its owner's token, this once
    Create {
        /// What people call it; never in evidence
        name: String,
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
pub async fn run(args: TenantArgs, client: Client) -> anyhow::Result<()> {
    let TenantCommand::Create {
        name,
        json: as_json,
    } = args.command;
    let (_, made): (_, Value) = client.post("/v1/tenants", &json!({ "name": name })).await?;
    if as_json {
        return super::print(&format!("{made}\n"));
    }
    super::print(&format!(
        "{}\n{}\n",
        made["tenant"].as_str().unwrap_or_default(),
        made["token"].as_str().unwrap_or_default()
    ))
}
