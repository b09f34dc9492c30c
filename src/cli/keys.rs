//! `onrecord keys`: epochs of the tenant's keys, and the move to a new one.

use super::WithServer;
use super::terminal::{Column, Screen, seconds, show, table, tell};
use crate::client::Client;
use anyhow::bail;
use clap::Subcommand;
use serde_json::{Value, json};
use std::time::Duration;

/// Where epochs are read, and rotations begun.
const PATH: &str = "/v1/keys/rotations";
/// How often it is asked how far a rotation is.
const PAUSE: Duration = Duration::from_millis(300);
/// Answers after one another that say that nothing goes on, before that is believed: another process may do it.
const PATIENCE: u32 = 20;

/// What is said of a rotation that does not go on.
const STOPPED: &str = "it stopped; the server's log says why. Run the command again to go on";

/// Arguments of `onrecord keys`.
#[derive(clap::Args)]
pub struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Subcommand)]
enum KeysCommand {
    /// Show the epochs of the tenant's keys, and how far a rotation is
    Status(WithServer<StatusArgs>),
    /// Move the tenant to a new epoch and destroy the old one's key, or finish such a move
    Rotate(WithServer<RotateArgs>),
}

/// Arguments of `onrecord keys status`.
#[derive(clap::Args)]
struct StatusArgs {
    /// Print the server's answer as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `onrecord keys rotate`.
#[derive(clap::Args)]
struct RotateArgs {
    /// Return when it has begun; the server goes on
    #[arg(long)]
    no_wait: bool,
    /// Print the server's last answer as JSON
    #[arg(long)]
    json: bool,
}

const COLUMNS: [Column; 5] = [
    Column::kept("EPOCH"),
    Column::kept("KEYS"),
    Column::kept("MADE (UTC)"),
    Column {
        leave_out: 1,
        ..Column::kept("CLOSED (UTC)")
    },
    Column::kept("DESTROYED (UTC)"),
];

/// Runs the command.
pub async fn run(args: KeysArgs) -> anyhow::Result<()> {
    match args.command {
        KeysCommand::Status(args) => {
            let (args, client) = args.client()?;
            let answer: Value = client.read(PATH).await?;
            print(&answer, args.json)
        }
        KeysCommand::Rotate(args) => {
            let (args, client) = args.client()?;
            let before: Value = client.read(PATH).await?;
            let (_, begun): (_, Value) = client.post(PATH, &json!({})).await?;
            if args.no_wait {
                return print(&begun, args.json);
            }
            let after = finished(&client, begun).await?;
            if before["state"] == "idle" && newest(&before) == newest(&after) {
                bail!(STOPPED);
            }
            print(&after, args.json)
        }
    }
}

/// Number of the newest epoch.
fn newest(answer: &Value) -> Option<&Value> {
    answer["epochs"].as_array()?.last()?.get("epoch")
}

/// Waits for the end of a rotation, and tells how far it is.
async fn finished(client: &Client, mut answer: Value) -> anyhow::Result<Value> {
    let (mut told, mut idle) = (Value::Null, 0);
    while answer["state"] == "rotating" {
        let is_moving = answer["here"] == true || answer["done"] != told;
        idle = if is_moving { 0 } else { idle + 1 };
        if idle > PATIENCE {
            bail!(STOPPED);
        }
        if answer["done"] != told {
            tell(format_args!("{} of {} keys", answer["done"], answer["of"]));
            told = answer["done"].clone();
        }
        tokio::time::sleep(PAUSE).await;
        answer = client.read(PATH).await?;
    }
    Ok(answer)
}

fn print(answer: &Value, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return super::print(&format!("{answer}\n"));
    }
    let epochs = answer["epochs"].as_array().map(Vec::as_slice);
    let rows: Vec<Vec<String>> = epochs.unwrap_or_default().iter().map(row).collect();
    show(&table(Screen::stdout(), &COLUMNS, &rows))?;
    if answer["state"] == "rotating" {
        tell(format_args!(
            "rotating: {} of {} keys are under the newest epoch",
            answer["done"], answer["of"]
        ));
    }
    Ok(())
}

fn row(epoch: &Value) -> Vec<String> {
    let time = |name: &str| seconds(&epoch[name]);
    vec![
        epoch["epoch"].to_string(),
        epoch["keys"].to_string(),
        time("made_at"),
        time("closed_at"),
        time("destroyed_at"),
    ]
}
