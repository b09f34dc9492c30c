//! `onrecord keys`: epochs of the tenant's keys, and the move to a new one.

use super::WithServer;
use super::key_place::{Digits, KeyPlace};
use super::terminal::{Column, Screen, seconds, show, table, tell};
use crate::client::Client;
use crate::start::{RootSource, TransitSource, rewrap_root};
use anyhow::{Context as _, bail};
use clap::Subcommand;
use onrecord_core::id::RunId;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Where epochs are read, and rotations begun.
const PATH: &str = "/v1/keys/rotations";
/// How long it waits before it asks how far a rotation is: at first, and at most, since the answer counts keys.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(3));
/// Answers after one another that say that nothing goes on, before that is believed: another process may do it.
const PATIENCE: u32 = 10;

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
    /// Move all keys to another root key, while no server runs on them
    RewrapRoot(RewrapRootArgs),
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
    /// Only the keys of this run, within their epoch
    #[arg(long, value_name = "RUN", conflicts_with = "no_wait")]
    run: Option<RunId>,
    /// Return when it has begun; the server goes on
    #[arg(long)]
    no_wait: bool,
    /// Print the server's last answer as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `onrecord keys rewrap-root`: where the keys are, the root key that they are under, and the next one.
#[derive(clap::Args)]
struct RewrapRootArgs {
    #[command(flatten)]
    place: KeyPlace,
    #[command(flatten)]
    to: NextRoot,
    /// Print how many key files were wrapped again as JSON
    #[arg(long)]
    json: bool,
}

/// The root key to move to.
#[derive(clap::Args)]
struct NextRoot {
    /// Move to a root key in this file, which is made if it is not there
    #[arg(long, value_name = "FILE")]
    to_file: Option<PathBuf>,
    /// Move to the root key whose 64 hex digits ONRECORD_NEXT_ROOT_KEY holds
    #[arg(long)]
    to_variable: bool,
    /// Move to a root key in this transit engine
    #[arg(long, value_name = "URL")]
    to_transit: Option<String>,
    /// Name of the key there
    #[arg(long, value_name = "NAME", default_value = "onrecord")]
    to_transit_key: String,
    /// File with the token for it
    #[arg(long, value_name = "FILE")]
    to_transit_token: Option<PathBuf>,
    /// What `--to-variable` means
    #[arg(
        long,
        env = "ONRECORD_NEXT_ROOT_KEY",
        hide = true,
        hide_env_values = true,
        value_parser = Digits::parse
    )]
    to_digits: Option<Digits>,
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
            if let Some(run) = args.run {
                let path = format!("/v1/runs/{run}/keys/rotation");
                let (_, done): (_, Value) = client.post(&path, &json!({})).await?;
                if args.json {
                    return show(&format!("{done}\n"));
                }
                let count = &done["rewrapped"];
                tell(format_args!(
                    "{run} has new keys; those of {count} payloads were wrapped again"
                ));
                return Ok(());
            }
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
        KeysCommand::RewrapRoot(args) => rewrap(args).await,
    }
}

async fn rewrap(args: RewrapRootArgs) -> anyhow::Result<()> {
    let folder = args.place.keys_folder()?;
    let (old, new) = (args.place.root_key()?, args.to.source()?);
    let told = |done, of| tell(format_args!("{done} of {of} key files"));
    let wrapped = rewrap_root(&folder, &old, &new, told).await?;
    if args.json {
        return super::print(&format!("{}\n", json!({ "wrapped": wrapped })));
    }
    super::print(&format!(
        "{wrapped} key files wrapped again; start the servers with the new root key, and keep it apart from the backups\n"
    ))
}

impl NextRoot {
    fn source(self) -> anyhow::Result<RootSource> {
        match (self.to_file, self.to_variable, self.to_transit) {
            (Some(file), false, None) => Ok(RootSource::File(Some(file))),
            (None, true, None) => match self.to_digits.as_ref().map(Digits::source) {
                Some(given @ RootSource::Given(_)) => Ok(given),
                _ => bail!("--to-variable: ONRECORD_NEXT_ROOT_KEY does not hold 64 hex digits"),
            },
            (None, false, Some(url)) => Ok(RootSource::Transit(TransitSource {
                url,
                key: self.to_transit_key,
                token_file: self
                    .to_transit_token
                    .context("--to-transit needs --to-transit-token FILE")?,
            })),
            _ => bail!("give one of --to-file, --to-variable and --to-transit"),
        }
    }
}

/// Number of the newest epoch.
fn newest(answer: &Value) -> Option<&Value> {
    answer["epochs"].as_array()?.last()?.get("epoch")
}

/// Waits for the end of a rotation, and tells how far it is.
async fn finished(client: &Client, mut answer: Value) -> anyhow::Result<Value> {
    let (mut told, mut idle, mut pause) = (Value::Null, 0, PAUSES.0);
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
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSES.1);
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
