//! `onrecord erase`: payloads erased, and certificates of it.

use super::terminal::{show, tell};
use crate::client::Client;
use anyhow::{Context as _, bail};
use clap::Subcommand;
use onrecord_core::digest::Hash;
use onrecord_core::id::RunId;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `onrecord erase`.
#[derive(Clone, Debug, clap::Args)]
pub struct EraseArgs {
    #[command(subcommand)]
    command: EraseCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum EraseCommand {
    /// Erase single payloads of a run
    Payloads {
        /// The run
        run: RunId,
        /// Commitments of the payloads, as the frames have them
        #[arg(required = true)]
        commits: Vec<Hash>,
        #[command(flatten)]
        why: Why,
    },
    /// Erase a tier of a run: all its payloads until now
    Tier {
        /// The run
        run: RunId,
        /// 0 to 3
        #[arg(value_parser = clap::value_parser!(u8).range(0..=3))]
        tier: u8,
        #[command(flatten)]
        why: Why,
    },
    /// Erase all payloads that their writers named a subject in
    Subject {
        /// Its id
        subject: String,
        #[command(flatten)]
        why: Why,
    },
    /// Erase every payload of the tenant
    Tenant {
        /// Said again, since nothing brings it back
        #[arg(long, required = true)]
        everything: bool,
        #[command(flatten)]
        why: Why,
    },
    /// Show an erasure: how far it is
    Show {
        /// Its id
        erasure: RunId,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// List erasures, newest first
    List {
        /// At most so many
        #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,
        /// Print one a line, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Write the certificate of an erasure, and the list of ledger entries that it is signed over
    Certificate {
        /// Id of the erasure
        erasure: RunId,
        /// Folder to write to [default: the present one]
        #[arg(short, long, value_name = "FOLDER")]
        output: Option<PathBuf>,
    },
}

/// Why something is erased.
#[derive(Clone, Debug, clap::Args)]
struct Why {
    /// Why, as a code: it stands on the ledger
    #[arg(long)]
    reason: String,
    /// Under which policy
    #[arg(long, default_value = "request")]
    policy: String,
    /// Do not wait for the end
    #[arg(long)]
    no_wait: bool,
    /// Print the erasure as JSON
    #[arg(long)]
    json: bool,
}

/// How often the server is asked how far an erasure is.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs the command.
pub async fn run(args: EraseArgs, client: Client) -> anyhow::Result<()> {
    match args.command {
        EraseCommand::Payloads { run, commits, why } => {
            let commits: Vec<String> = commits.iter().map(ToString::to_string).collect();
            erase(
                &client,
                json!({"run": run.to_string(), "commits": commits}),
                why,
            )
            .await
        }
        EraseCommand::Tier { run, tier, why } => {
            erase(&client, json!({"run": run.to_string(), "tier": tier}), why).await
        }
        EraseCommand::Subject { subject, why } => {
            erase(&client, json!({"subject": subject}), why).await
        }
        EraseCommand::Tenant { everything, why } => {
            erase(&client, json!({"tenant": everything}), why).await
        }
        EraseCommand::Show { erasure, json } => {
            let erasure: Value = client.read(&format!("/v1/erasures/{erasure}")).await?;
            one(&erasure, json)
        }
        EraseCommand::List { limit, json } => {
            let page: Value = client.read(&format!("/v1/erasures?limit={limit}")).await?;
            let Some(erasures) = page["erasures"].as_array() else {
                bail!("the server's answer has no list of erasures");
            };
            if erasures.is_empty() {
                tell(format_args!("nothing was erased yet"));
            }
            erasures.iter().try_for_each(|erasure| one(erasure, json))
        }
        EraseCommand::Certificate { erasure, output } => {
            let folder = output.unwrap_or_default();
            let path = format!("/v1/erasures/{erasure}");
            let files = [
                (
                    "certificate",
                    folder.join(format!("erasure-{erasure}.dsse.json")),
                ),
                (
                    "entries",
                    folder.join(format!("erasure-{erasure}.entries.txt")),
                ),
            ];
            for (what, file) in files {
                client.download(&format!("{path}/{what}"), &file).await?;
                tell(format_args!("wrote {}", file.display()));
            }
            Ok(())
        }
    }
}

async fn erase(client: &Client, mut wanted: Value, why: Why) -> anyhow::Result<()> {
    let members = wanted.as_object_mut().context("the request is an object")?;
    members.insert("reason".to_owned(), why.reason.into());
    members.insert("policy".to_owned(), why.policy.into());
    let (_, mut erasure): (_, Value) = client.post("/v1/erasures", &wanted).await?;
    let id = erasure["erasure"].as_str().unwrap_or_default().to_owned();
    let waits = |erasure: &Value| {
        let under_way = matches!(
            erasure["state"].as_str(),
            Some("requested" | "keys_destroyed")
        );
        under_way && !erasure["held"].is_string() && !why.no_wait
    };
    while waits(&erasure) {
        tell(format_args!(
            "{} of {} parts done, {} payloads erased",
            erasure["parts_done"], erasure["parts"], erasure["count"]
        ));
        tokio::time::sleep(PAUSE).await;
        erasure = client.read(&format!("/v1/erasures/{id}")).await?;
    }
    one(&erasure, why.json)
}

fn one(erasure: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return show(&format!("{erasure}\n"));
    }
    let text = |name: &str| erasure[name].as_str().unwrap_or_default().to_owned();
    let state = match erasure["state"].as_str() {
        Some("requested") => "asked for",
        Some("keys_destroyed") => "keys destroyed",
        Some("ciphertext_removed") => {
            "keys destroyed and ciphertexts removed; final with the next rotation of the epoch"
        }
        Some("final") => "final: no copy of the database opens any of it",
        _ => "in a state that this program does not know",
    };
    let held = match erasure["held"].as_str() {
        Some(matter) => format!(", held for {matter}"),
        None => String::new(),
    };
    let of = match (erasure["run"].as_str(), erasure["tier"].as_u64()) {
        (Some(run), Some(tier)) => format!("tier {tier} of {run}"),
        (Some(run), None) => format!("payloads of {run}"),
        (None, _) => text("scope"),
    };
    show(&format!(
        "erasure {} of {of} for {}: {} payloads, {state}{held}\n",
        text("erasure"),
        text("reason"),
        erasure["count"],
    ))
}
