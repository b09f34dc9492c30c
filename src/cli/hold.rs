//! `onrecord hold`: what may not be erased.

use super::runs::encode;
use super::terminal::{show, tell};
use crate::client::Client;
use anyhow::bail;
use clap::Subcommand;
use onrecord_core::id::RunId;
use serde_json::{Value, json};
use std::time::Duration;

/// How often the server is asked how far an order is.
const PAUSE: Duration = Duration::from_millis(500);

/// Arguments of `onrecord hold`.
#[derive(Clone, Debug, clap::Args)]
pub struct HoldArgs {
    #[command(subcommand)]
    command: HoldCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum HoldCommand {
    /// Set a hold: nothing that it is over is erased while it is in force
    Set {
        #[command(flatten)]
        over: Over,
        /// What it is for, as a code: it stands on the ledger
        #[arg(long)]
        matter: String,
        /// Why, as a code: it stands on the ledger
        #[arg(long)]
        reason: Option<String>,
        /// Do not wait until every hold of an order is set; nothing that it found is erased all the same
        #[arg(long)]
        no_wait: bool,
        /// Print the hold, or the order, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Release a hold, or an order with all its holds
    Release {
        #[command(flatten)]
        which: Which,
        /// Take back a request that waits for another person, instead
        #[arg(long)]
        withdraw: bool,
        /// Do not wait until every hold of an order is released
        #[arg(long)]
        no_wait: bool,
        /// Print the hold, or the order, as JSON
        #[arg(long)]
        json: bool,
    },
    /// List the holds that are in force
    List {
        /// Only for this matter
        #[arg(long)]
        matter: Option<String>,
        /// Only over this run itself
        #[arg(long)]
        run: Option<RunId>,
        /// Also those that were released
        #[arg(long)]
        all: bool,
        /// Print one hold a line, as JSON
        #[arg(long)]
        json: bool,
    },
    /// List the orders that are in force, newest first, or show one
    Orders {
        /// The order
        order: Option<RunId>,
        /// Also those that were released
        #[arg(long)]
        all: bool,
        /// Print one order a line, as JSON
        #[arg(long)]
        json: bool,
    },
}

/// What a hold is over.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Over {
    /// Over a run
    #[arg(long)]
    run: Option<RunId>,
    /// Over each run that this filter finds now
    #[arg(long)]
    filter: Option<String>,
    /// Over each run with a payload about this subject, now and later
    #[arg(long, value_name = "ID")]
    subject: Option<String>,
    /// Over the whole tenant
    #[arg(long)]
    tenant: bool,
}

/// What is to be released.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// Number of the hold, as `hold list` has it
    hold: Option<u64>,
    /// The order, as `hold orders` has it
    #[arg(long)]
    order: Option<RunId>,
}

/// Runs the command.
pub async fn run(args: HoldArgs, client: Client) -> anyhow::Result<()> {
    match args.command {
        HoldCommand::Set {
            over,
            matter,
            reason,
            no_wait,
            json,
        } => {
            let mut wanted = match over {
                Over { run: Some(run), .. } => json!({"run": run.to_string()}),
                Over {
                    filter: Some(filter),
                    ..
                } => json!({ "filter": filter }),
                Over {
                    subject: Some(subject),
                    ..
                } => json!({ "subject": subject }),
                Over { tenant, .. } => json!({ "tenant": tenant }),
            };
            wanted["matter"] = matter.into();
            if let Some(reason) = reason {
                wanted["reason"] = reason.into();
            }
            let (_, set): (_, Value) = client.post("/v1/holds", &wanted).await?;
            if set["order"].is_string() && set["hold"].is_null() {
                let order = through(&client, set, no_wait).await?;
                return one_order(&order, json);
            }
            one(&set, json)
        }
        HoldCommand::Release {
            which,
            withdraw,
            no_wait,
            json,
        } => {
            let path = match (which.hold, which.order) {
                (Some(hold), _) => format!("/v1/holds/{hold}/release"),
                (None, Some(order)) => format!("/v1/hold-orders/{order}/release"),
                (None, None) => bail!("give the number of a hold, or --order"),
            };
            if withdraw {
                client.delete(&path).await?;
                tell(format_args!("nobody is waited for any longer"));
                return Ok(());
            }
            let (_, answer): (_, Value) = client.post(&path, &json!({})).await?;
            if answer["released"].is_null() && answer["release_requested"].is_object() {
                tell(format_args!(
                    "still in force; waiting for {}",
                    text(&answer["release_requested"]["needs"])
                ));
            }
            if answer["hold"].is_null() {
                let order = through(&client, answer, no_wait).await?;
                return one_order(&order, json);
            }
            one(&answer, json)
        }
        HoldCommand::List {
            matter,
            run,
            all,
            json,
        } => list(&client, matter, run, all, json).await,
        HoldCommand::Orders {
            order: Some(order),
            json,
            ..
        } => {
            let order: Value = client.read(&format!("/v1/hold-orders/{order}")).await?;
            one_order(&order, json)
        }
        HoldCommand::Orders {
            order: None,
            all,
            json,
        } => orders(&client, all, json).await,
    }
}

/// Waits until nothing is to be done about an order any more, and says how far it is meanwhile.
async fn through(client: &Client, mut order: Value, no_wait: bool) -> anyhow::Result<Value> {
    let path = format!("/v1/hold-orders/{}", text(&order["order"]));
    while !no_wait && matches!(order["state"].as_str(), Some("holding" | "releasing")) {
        let done = match order["state"].as_str() {
            Some("holding") => &order["held"],
            _ => &order["let_go"],
        };
        tell(format_args!(
            "{}: {done} of {} runs",
            text(&order["state"]),
            order["found"]
        ));
        tokio::time::sleep(PAUSE).await;
        order = client.read(&path).await?;
    }
    Ok(order)
}

async fn list(
    client: &Client,
    matter: Option<String>,
    run: Option<RunId>,
    all: bool,
    json: bool,
) -> anyhow::Result<()> {
    let state = if all { "all" } else { "in-force" };
    let mut said = vec![("state", state.to_owned())];
    said.extend(matter.map(|matter| ("matter", matter)));
    said.extend(run.map(|run| ("run", run.to_string())));
    let path = format!("/v1/holds?{}", encode(&said)?);
    let mut after = String::new();
    let mut listed = 0_usize;
    loop {
        let page: Value = client.read(&format!("{path}{after}")).await?;
        let Some(holds) = page["holds"].as_array() else {
            bail!("the server's answer has no list of holds");
        };
        listed += holds.len();
        holds.iter().try_for_each(|hold| one(hold, json))?;
        let Some(next) = page["next"].as_u64() else {
            break;
        };
        after = format!("&after={next}");
    }
    if listed == 0 {
        tell(format_args!("no hold is in force"));
    }
    Ok(())
}

async fn orders(client: &Client, all: bool, json: bool) -> anyhow::Result<()> {
    let state = if all { "all" } else { "in-force" };
    let mut before = String::new();
    let mut listed = 0_usize;
    loop {
        let path = format!("/v1/hold-orders?state={state}{before}");
        let page: Value = client.read(&path).await?;
        let Some(orders) = page["orders"].as_array() else {
            bail!("the server's answer has no list of orders");
        };
        listed += orders.len();
        orders.iter().try_for_each(|order| one_order(order, json))?;
        let Some(next) = page["next"].as_str() else {
            break;
        };
        before = format!("&before={next}");
    }
    if listed == 0 {
        tell(format_args!("no order is in force"));
    }
    Ok(())
}

fn text(value: &Value) -> String {
    onrecord_verify::escape(value.as_str().unwrap_or_default()).to_string()
}

fn why(value: &Value) -> String {
    match value["reason"].as_str() {
        Some(_) => format!(" ({})", text(&value["reason"])),
        None => String::new(),
    }
}

/// How a release is, in words: decided or asked for.
fn end(release: &Value, asked: &Value) -> String {
    if release.is_object() {
        let with = match release["with"]["id"].as_str() {
            Some(_) => format!(" with {}", text(&release["with"]["id"])),
            None => String::new(),
        };
        let by = text(&release["by"]["id"]);
        format!(", released {} by {by}{with}", text(&release["at"]))
    } else if asked.is_object() {
        let by = text(&asked["by"]["id"]);
        format!(", its release asked for {} by {by}", text(&asked["at"]))
    } else {
        String::new()
    }
}

fn one(hold: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return show(&format!("{hold}\n"));
    }
    let over = hold["run"].as_str().unwrap_or("the whole tenant");
    show(&format!(
        "hold {} over {over} for {}{}: set {} by {}{}\n",
        hold["hold"],
        text(&hold["matter"]),
        why(hold),
        text(&hold["at"]),
        text(&hold["by"]["id"]),
        end(&hold["released"], &hold["release_requested"]),
    ))
}

fn one_order(order: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return show(&format!("{order}\n"));
    }
    let over = match order["filter"].as_str() {
        Some(_) => format!("runs with {}", text(&order["filter"])),
        None => "a subject".to_owned(),
    };
    show(&format!(
        "order {} over {over} for {}{}: {}, {} runs found, {} held, {} let go; ordered {} by {}{}\n",
        text(&order["order"]),
        text(&order["matter"]),
        why(order),
        text(&order["state"]),
        order["found"],
        order["held"],
        order["let_go"],
        text(&order["at"]),
        text(&order["by"]["id"]),
        end(&order["release"], &order["release_requested"]),
    ))
}
