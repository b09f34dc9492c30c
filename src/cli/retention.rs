//! `onrecord retention`: how long what is kept, what would go, and how far the sweeper is.

use super::runs::encode;
use super::terminal::{show, tell};
use crate::client::Client;
use anyhow::{Context as _, bail};
use clap::Subcommand;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Arguments of `onrecord retention`.
#[derive(Clone, Debug, clap::Args)]
pub struct RetentionArgs {
    #[command(subcommand)]
    command: RetentionCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum RetentionCommand {
    /// Print the retention policy
    Show {
        /// Print this version instead of the one that holds
        #[arg(long, value_name = "N")]
        version: Option<u64>,
        /// Print the answer as JSON: version, policy, at, by and index
        #[arg(long)]
        json: bool,
    },
    /// Put another policy in the place of the one that holds
    Set {
        /// The policy, as JSON
        file: PathBuf,
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// List policies to begin with, or print one of them
    Presets {
        /// Its name
        name: Option<String>,
    },
    /// Show what would go, when and why; nothing is erased
    DryRun {
        /// What would be gone by then: RFC 3339, or a date; by default now
        #[arg(long, value_name = "TIME")]
        at: Option<String>,
        /// Under this policy instead of the one that holds
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// List what would go, a tier of a run a line
        #[arg(long)]
        list: bool,
        /// Print the sums as JSON; with --list what would go, one a line
        #[arg(long)]
        json: bool,
    },
    /// Show how far the sweeper is
    Status {
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Erase what expired now, and not when the sweeper comes by
    Sweep,
}

/// Runs the command.
///
/// # Errors
/// A file cannot be read, or the server refuses.
pub async fn run(args: RetentionArgs, client: Client) -> anyhow::Result<()> {
    match args.command {
        RetentionCommand::Show { version, json } => {
            let query = version.map_or_else(String::new, |version| format!("?version={version}"));
            let answer: Value = client.read(&format!("/v1/retention/policy{query}")).await?;
            if json {
                return show(&format!("{answer}\n"));
            }
            match answer["version"].as_u64() {
                None | Some(0) => tell(format_args!("there is no policy; nothing expires")),
                Some(_) => tell(format_args!("{}", standing(&answer))),
            }
            document(&answer["policy"])
        }
        RetentionCommand::Set { file, json } => {
            let (status, answer) = client
                .put::<Value>("/v1/retention/policy", "application/json", text(&file)?)
                .await?;
            if json {
                return show(&format!("{answer}\n"));
            }
            let before = if status.as_u16() == 200 {
                "held already: "
            } else {
                ""
            };
            show(&format!("{before}{}\n", standing(&answer)))
        }
        RetentionCommand::Presets { name } => presets(&client, name).await,
        RetentionCommand::DryRun {
            at,
            policy,
            list,
            json,
        } => dry_run(&client, at, policy, (list, json)).await,
        RetentionCommand::Status { json } => status(&client, json).await,
        RetentionCommand::Sweep => sweep(&client).await,
    }
}

fn text(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn standing(answer: &Value) -> String {
    let by = onrecord_verify::escape(answer["by"]["id"].as_str().unwrap_or_default());
    let at = answer["at"].as_str().unwrap_or_default();
    format!(
        "version {}, {at} by {by}, ledger entry {}",
        answer["version"], answer["index"]
    )
}

fn document(policy: &Value) -> anyhow::Result<()> {
    if policy.is_null() {
        return Ok(());
    }
    show(&format!("{}\n", serde_json::to_string_pretty(policy)?))
}

async fn presets(client: &Client, name: Option<String>) -> anyhow::Result<()> {
    let answer: Value = client.read("/v1/retention/presets").await?;
    let Some(presets) = answer["presets"].as_array() else {
        bail!("the server's answer has no list of presets");
    };
    let schedule = |preset: &Value, member: &str| {
        let text = preset["schedules"][0][member].as_str();
        text.unwrap_or_default().to_owned()
    };
    let Some(name) = name else {
        return presets.iter().try_for_each(|preset| {
            let (name, source) = (schedule(preset, "name"), schedule(preset, "source"));
            show(&format!("{name:<12}{source}\n"))
        });
    };
    let mut found = presets.iter();
    match found.find(|preset| schedule(preset, "name") == name) {
        Some(preset) => document(preset),
        None => bail!("there is no preset {name:?}; `onrecord retention presets` lists them"),
    }
}

/// Sums of a tier under a schedule: runs, payloads, bytes, payloads that are held.
type Sums = BTreeMap<(String, u64), [u64; 4]>;

async fn dry_run(
    client: &Client,
    at: Option<String>,
    policy: Option<PathBuf>,
    (list, json): (bool, bool),
) -> anyhow::Result<()> {
    let policy = policy.map(|file| text(&file)).transpose()?;
    let policy: Option<Value> = policy
        .map(|text| serde_json::from_str(&text).context("the policy is no JSON"))
        .transpose()?;
    let (mut sums, mut runs, mut next) = (Sums::new(), 0, None::<String>);
    loop {
        let query = [("at", at.clone()), ("after", next)];
        let query = query
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let query = encode(&Vec::from_iter(query))?;
        let path = format!("/v1/retention/dry-run?{query}");
        let page: Value = match &policy {
            Some(policy) => client.post(&path, policy).await?.1,
            None => client.read(&path).await?,
        };
        runs += page["runs"].as_u64().unwrap_or(0);
        for total in page["totals"].as_array().into_iter().flatten() {
            let schedule = total["schedule"].as_str().unwrap_or_default().to_owned();
            let sum = sums
                .entry((schedule, total["tier"].as_u64().unwrap_or(0)))
                .or_default();
            for (sum, member) in sum.iter_mut().zip(["runs", "payloads", "bytes", "held"]) {
                *sum += total[member].as_u64().unwrap_or(0);
            }
        }
        if list {
            for one in page["going"].as_array().into_iter().flatten() {
                going(one, json)?;
            }
        }
        next = page["next"].as_str().map(str::to_owned);
        if next.is_none() {
            break;
        }
    }
    if !list {
        totals(&sums, runs, json)?;
    }
    Ok(())
}

fn going(one: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return show(&format!("{one}\n"));
    }
    let text = |member: &str| one[member].as_str().unwrap_or_default();
    let rule = match one["rule"].as_u64() {
        Some(rule) => format!("rule {rule}"),
        None => "the default".to_owned(),
    };
    let sampled = if one["sampled_out"] == true {
        ", in no sample"
    } else {
        ""
    };
    let held = match one["held"].as_str() {
        Some(matter) => format!(", held for {}", onrecord_verify::escape(matter)),
        None => String::new(),
    };
    show(&format!(
        "{} tier {}: {} payloads, {} bytes, due {} under {} by {rule}{sampled}{held}\n",
        text("run"),
        one["tier"],
        one["payloads"],
        one["bytes"],
        text("due"),
        text("schedule"),
    ))
}

fn totals(sums: &Sums, runs: u64, json: bool) -> anyhow::Result<()> {
    if json {
        let totals: Vec<Value> = sums
            .iter()
            .map(|((schedule, tier), [runs, payloads, bytes, held])| {
                json!({"schedule": schedule, "tier": tier, "runs": runs, "payloads": payloads, "bytes": bytes, "held": held})
            })
            .collect();
        return show(&format!("{}\n", json!({"runs": runs, "totals": totals})));
    }
    if sums.is_empty() {
        return show(&format!("nothing of {runs} runs would go\n"));
    }
    for ((schedule, tier), [of, payloads, bytes, held]) in sums {
        let held = match held {
            0 => String::new(),
            held => format!("; {held} of them stay, on hold"),
        };
        show(&format!(
            "{schedule} tier {tier}: {payloads} payloads of {of} runs, {bytes} bytes{held}\n"
        ))?;
    }
    tell(format_args!("{runs} runs were looked at"));
    Ok(())
}

async fn status(client: &Client, json: bool) -> anyhow::Result<()> {
    let answer: Value = client.read("/v1/retention").await?;
    if json {
        return show(&format!("{answer}\n"));
    }
    if answer["version"] == 0 {
        return show("there is no policy; nothing expires\n");
    }
    let mut text = format!(
        "policy version {}: {} runs have something due, for up to {} s; {} runs are not looked at yet\n",
        answer["version"], answer["due"], answer["lag_seconds"], answer["unlisted"]
    );
    let last = &answer["last"];
    if let Some(at) = last["begun_at"].as_str() {
        text.push_str(&format!(
            "last round {at}: {} payloads of {} runs in {} ms, {} a second\n",
            last["payloads"], last["runs"], last["busy_ms"], last["payloads_per_second"]
        ));
    }
    show(&text)
}

async fn sweep(client: &Client) -> anyhow::Result<()> {
    let (mut runs, mut payloads) = (0, 0);
    loop {
        let (_, swept): (_, Value) = client.post("/v1/retention/sweep", &json!({})).await?;
        runs += swept["runs"].as_u64().unwrap_or(0);
        payloads += swept["payloads"].as_u64().unwrap_or(0);
        if swept["more"] != true {
            break;
        }
        tell(format_args!(
            "{payloads} payloads of {runs} runs are erased"
        ));
    }
    show(&format!("{payloads} payloads of {runs} runs are erased\n"))
}
