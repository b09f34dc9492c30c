//! `onrecord hold`: what may not be erased.

use super::terminal::{show, tell};
use crate::client::Client;
use anyhow::bail;
use clap::Subcommand;
use onrecord_core::id::RunId;
use serde_json::{Value, json};

/// Arguments of `onrecord hold`.
#[derive(Clone, Debug, clap::Args)]
pub struct HoldArgs {
    #[command(subcommand)]
    command: HoldCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum HoldCommand {
    /// Set a hold: nothing of the run, or of the tenant, is erased while it is in force
    Set {
        /// The run; needed unless the hold is over the whole tenant
        #[arg(required_unless_present = "tenant", conflicts_with = "tenant")]
        run: Option<RunId>,
        /// Over the whole tenant
        #[arg(long)]
        tenant: bool,
        /// What it is for, as a code: it stands on the ledger
        #[arg(long)]
        matter: String,
        /// Print the hold as JSON
        #[arg(long)]
        json: bool,
    },
    /// Release a hold
    Release {
        /// Number of the hold, as `hold list` has it
        hold: u64,
        /// Print the hold as JSON
        #[arg(long)]
        json: bool,
    },
    /// List the holds that are in force
    List {
        /// Also those that were released
        #[arg(long)]
        all: bool,
        /// Print one hold a line, as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
pub async fn run(args: HoldArgs, client: Client) -> anyhow::Result<()> {
    match args.command {
        HoldCommand::Set {
            run,
            tenant,
            matter,
            json,
        } => {
            let wanted = match run {
                Some(run) => json!({"matter": matter, "run": run.to_string()}),
                None => json!({"matter": matter, "tenant": tenant}),
            };
            let (_, hold): (_, Value) = client.post("/v1/holds", &wanted).await?;
            one(&hold, json)
        }
        HoldCommand::Release { hold, json } => {
            let path = format!("/v1/holds/{hold}/release");
            let (_, hold): (_, Value) = client.post(&path, &json!({})).await?;
            one(&hold, json)
        }
        HoldCommand::List { all, json } => {
            let state = if all { "all" } else { "in-force" };
            let answer: Value = client.read(&format!("/v1/holds?state={state}")).await?;
            let Some(holds) = answer["holds"].as_array() else {
                bail!("the server's answer has no list of holds");
            };
            if holds.is_empty() {
                tell(format_args!("no hold is in force"));
            }
            holds.iter().try_for_each(|hold| one(hold, json))
        }
    }
}

fn one(hold: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return show(&format!("{hold}\n"));
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let over = hold["run"].as_str().unwrap_or("the whole tenant");
    let released = &hold["released"];
    let end = if released.is_object() {
        format!(
            ", released {} by {}",
            text(&released["at"]),
            text(&released["by"]["id"])
        )
    } else {
        String::new()
    };
    show(&format!(
        "hold {} over {over} for {}: set {} by {}{end}\n",
        hold["hold"],
        text(&hold["matter"]),
        text(&hold["at"]),
        text(&hold["by"]["id"]),
    ))
}
