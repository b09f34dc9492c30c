//! `onrecord signing-keys`: the keys that sign for a tenant.

use super::terminal::{Column, Screen, show, table, tell};
use crate::client::Client;
use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;
use onrecord_core::frame::signature;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

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
    /// Register a key that an agent signs its frames with, all of them from then on
    AgentAdd {
        /// Id of the agent, as an actor; one that wrote no frame yet
        actor: String,
        /// The public half, SPKI PEM
        #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        public: PathBuf,
        /// The key's signature that shows that the agent has it: 64 bytes, as they are or in base64
        #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        proof: PathBuf,
        /// Take it though the actor wrote frames that it did not sign, which are faults under the trust file then
        #[arg(long)]
        unsigned_before: bool,
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke an agent's key: it signs nothing more
    AgentRevoke {
        /// Key id
        keyid: String,
        /// Why, as the ledger says for ever
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Print it as JSON
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
            tell(
                "auditors need the new trust file: `onrecord trust`; and the keys folder a new backup",
            );
            Ok(())
        }
        SigningKeysCommand::AgentAdd {
            actor,
            public,
            proof,
            unsigned_before,
            json: as_json,
        } => {
            let request = json!({
                "actor": actor,
                "spki": fs::read_to_string(&public).with_context(|| public.display().to_string())?,
                "proof": read_proof(&proof)?,
                "unsigned_before": unsigned_before,
            });
            let (_, added): (_, Value) = client.post("/v1/agent-keys", &request).await?;
            if as_json {
                return super::print(&format!("{added}\n"));
            }
            let keyid = added["keyid"].as_str().unwrap_or_default();
            super::print(&format!("{keyid}\n"))?;
            tell(format_args!(
                "from now on {actor} signs each of its frames; auditors need the new trust file: `onrecord trust`"
            ));
            Ok(())
        }
        SigningKeysCommand::AgentRevoke {
            keyid,
            reason,
            json: as_json,
        } => {
            if keyid.len() != 64 || !keyid.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                bail!(
                    "that is no key id: `onrecord signing-keys list` has them in its first column"
                );
            }
            let mut path = format!("/v1/agent-keys/{keyid}");
            if let Some(reason) = reason {
                path.push('?');
                path.push_str(&super::runs::encode(&[("reason", reason)])?);
            }
            client.delete(&path).await?;
            if as_json {
                return super::print(&format!("{}\n", json!({ "revoked": keyid })));
            }
            super::print(&format!("revoked {keyid}\n"))
        }
    }
}

/// A signature as openssl leaves it, or in base64.
fn read_proof(path: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    if bytes.len() == 64 {
        return Ok(STANDARD.encode(bytes));
    }
    let text = String::from_utf8(bytes).unwrap_or_default();
    let text = text.trim();
    if signature(text).is_none() {
        bail!("{}: neither 64 bytes nor their base64", path.display());
    }
    Ok(text.to_owned())
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
