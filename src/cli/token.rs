//! `onrecord token`: API tokens of the tenant.

use super::terminal::{Column, Screen, seconds, show, table};
use crate::client::Client;
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
        TokenCommand::Revoke { id } => {
            client.delete(&format!("/v1/tokens/{id}")).await?;
            super::print(&format!("revoked {id}\n"))
        }
    }
}

fn row(token: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let roles: Vec<&str> = token["roles"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let any = |value: &Value| value.as_str().unwrap_or("any").to_owned();
    let state = match (&token["revoked_at"], &token["expires_at"]) {
        (at @ Value::String(_), _) => format!("revoked {}", seconds(at)),
        (_, at @ Value::String(_)) => format!("until {}", seconds(at)),
        _ => "live".to_owned(),
    };
    vec![
        text(&token["id"]),
        text(&token["name"]),
        roles.join(","),
        format!(
            "{}:{}",
            any(&token["actor"]["type"]),
            any(&token["actor"]["id"])
        ),
        seconds(&token["created_at"]),
        state,
    ]
}
