//! `onrecord signing-keys`: the keys that sign for a tenant.

use super::terminal::{Column, Screen, show, table};
use crate::client::Client;
use anyhow::Context as _;
use clap::Subcommand;
use serde_json::{Value, json};

/// Arguments of `onrecord signing-keys`.
#[derive(Clone, Debug, clap::Args)]
pub struct SigningKeysArgs {
    #[command(subcommand)]
    command: SigningKeysCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum SigningKeysCommand {
    /// List the keys that sign for the tenant, and those that did
    List {
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Put another seal key in force, and revoke the one before it
    Rotate {
        /// Why, as the ledger says for ever: `rotation`, `compromised` …
        #[arg(long, value_name = "TEXT", default_value = "rotation")]
        reason: String,
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
}

const COLUMNS: [Column; 4] = [
    Column::kept("KEY ID"),
    Column {
        least: Some(12),
        ..Column::kept("SIGNS")
    },
    Column {
        leave_out: 1,
        ..Column::kept("FROM ENTRY")
    },
    Column::kept("STATE"),
];

/// Runs the command.
pub async fn run(args: SigningKeysArgs, client: Client) -> anyhow::Result<()> {
    match args.command {
        SigningKeysCommand::List { json: as_json } => {
            let keys: Value = client.read("/v1/keys").await?;
            if as_json {
                return show(&format!("{keys}\n"));
            }
            let all = ["seal", "agents"].map(|name| keys[name].as_array());
            let rows: Vec<Vec<String>> = all.into_iter().flatten().flatten().map(row).collect();
            show(&table(Screen::stdout(), &COLUMNS, &rows))
        }
        SigningKeysCommand::Rotate {
            reason,
            json: as_json,
        } => {
            // Named, so that a request that is sent again after a lost answer does not revoke the new key too.
            let keys: Value = client.read("/v1/keys").await?;
            let mut seal = keys["seal"].as_array().into_iter().flatten();
            let in_force = seal.find(|key| key["in_force"] == true);
            let keyid = in_force.context("the server names no seal key in force")?["keyid"].clone();
            let request = json!({ "reason": reason, "keyid": keyid });
            let (_, done): (_, Value) = client.post("/v1/keys/seal/rotation", &request).await?;
            if as_json {
                return super::print(&format!("{done}\n"));
            }
            let text = |name: &str| done[name].as_str().unwrap_or_default().to_owned();
            super::print(&format!(
                "in force {}\nrevoked  {} from entry {} of the ledger on\n",
                text("keyid"),
                text("revoked"),
                done["revoked_index"]
            ))?;
            super::terminal::tell(
                "auditors need the new trust file: `onrecord trust`; and the keys folder a new backup",
            );
            Ok(())
        }
    }
}

fn row(key: &Value) -> Vec<String> {
    let state = match (&key["revoked_index"], key["in_force"] == true) {
        (Value::Number(index), _) => format!("revoked from {index}"),
        (_, true) => "in force".to_owned(),
        _ => "not in force".to_owned(),
    };
    vec![
        key["keyid"].as_str().unwrap_or_default().to_owned(),
        key["actor"].as_str().map_or_else(
            || "statements".to_owned(),
            |actor| format!("frames of {actor}"),
        ),
        key["added_index"].to_string(),
        state,
    ]
}
