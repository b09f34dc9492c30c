//! `onrecord token`: API tokens of the tenant.

use super::terminal::{Column, Screen, seconds, show, table};
use crate::client::Client;
use anyhow::bail;
use clap::Subcommand;
use serde_json::{Value, json};

/// Arguments of `onrecord token`.
#[derive(Clone, Debug, clap::Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum TokenCommand {
    /// Make a token and print it, this once
    Create {
        /// What people call it
        name: String,
        /// What it may do; may be given several times
        #[arg(long = "role", required = true, value_parser = ["agent", "gate", "auditor", "compliance", "admin"])]
        roles: Vec<String>,
        /// Type of the actor that it may speak for [default: any that its roles allow]
        #[arg(long, value_name = "TYPE")]
        actor_type: Option<String>,
        /// Id of the actor that it may speak for [default: any]
        #[arg(long, value_name = "ID")]
        actor_id: Option<String>,
        /// From when it opens nothing, such as 2027-01-01T00:00:00Z
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
        /// Print the answer as JSON: id and token
        #[arg(long)]
        json: bool,
    },
    /// List tokens, without their secrets
    List {
        /// Print a JSON line for each token
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token: from now on it opens nothing
    Revoke {
        /// Its id, the part between the two underscores
        id: String,
        /// Print the id as JSON
        #[arg(long)]
        json: bool,
    },
}

const COLUMNS: [Column; 6] = [
    Column::kept("ID"),
    Column {
        least: Some(10),
        ..Column::kept("NAME")
    },
    Column {
        least: Some(10),
        ..Column::kept("ROLES")
    },
    Column {
        least: Some(12),
        ..Column::kept("ACTOR")
    },
    Column {
        leave_out: 1,
        ..Column::kept("CREATED (UTC)")
    },
    Column::kept("STATE"),
];

/// Runs the command.
pub async fn run(args: TokenArgs, client: Client) -> anyhow::Result<()> {
    match args.command {
        TokenCommand::Create {
            name,
            roles,
            actor_type,
            actor_id,
            expires_at,
            json: as_json,
        } => {
            let mut request = json!({ "name": name, "roles": roles });
            if actor_type.is_some() || actor_id.is_some() {
                let parts = [("type", actor_type), ("id", actor_id)]
                    .into_iter()
                    .filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
                request["actor"] = Value::Object(parts.collect());
            }
            if let Some(time) = expires_at {
                request["expires_at"] = time.into();
            }
            let (_, token): (_, Value) = client.post("/v1/tokens", &request).await?;
            if as_json {
                return super::print(&format!("{token}\n"));
            }
            super::print(&format!(
                "{}\n",
                token["token"].as_str().unwrap_or_default()
            ))
        }
        TokenCommand::List { json } => {
            let list: Value = client.read("/v1/tokens").await?;
            let tokens = list["tokens"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            if json {
                return show(
                    &tokens
                        .iter()
                        .map(|token| format!("{token}\n"))
                        .collect::<String>(),
                );
            }
            let rows: Vec<Vec<String>> = tokens.iter().map(row).collect();
            show(&table(Screen::stdout(), &COLUMNS, &rows))
        }
        TokenCommand::Revoke { id, json: as_json } => {
            let id = token_id(&id)?;
            client.delete(&format!("/v1/tokens/{id}")).await?;
            if as_json {
                return super::print(&format!("{}\n", json!({ "revoked": id })));
            }
            super::print(&format!("revoked {id}\n"))
        }
    }
}

/// The id of a token. A whole token is taken for its id, so that nobody's secret gets into an address.
fn token_id(text: &str) -> anyhow::Result<&str> {
    let id = match text.strip_prefix("onr_") {
        Some(rest) => rest.split('_').next().unwrap_or(rest),
        None => text,
    };
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        bail!("that is no id of a token: `onrecord token list` has them in its first column");
    }
    Ok(id)
}

/// What a token may be used for.
pub(super) fn roles(token: &Value) -> Vec<&str> {
    let roles = token["roles"].as_array().into_iter().flatten();
    roles.filter_map(Value::as_str).collect()
}

fn row(token: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let any = |value: &Value| value.as_str().unwrap_or("any").to_owned();
    let state = match (&token["revoked_at"], &token["expires_at"]) {
        (at @ Value::String(_), _) => format!("revoked {}", seconds(at)),
        (_, at @ Value::String(_)) => format!("until {}", seconds(at)),
        _ => "live".to_owned(),
    };
    vec![
        text(&token["id"]),
        text(&token["name"]),
        roles(token).join(","),
        format!(
            "{}:{}",
            any(&token["actor"]["type"]),
            any(&token["actor"]["id"])
        ),
        seconds(&token["created_at"]),
        state,
    ]
}
