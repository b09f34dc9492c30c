//! `onrecord redaction`: the tenant's rules of redaction, and what rules would do.

use crate::client::Client;
use anyhow::{Context as _, bail};
use clap::Subcommand;
use serde_json::{Map, Value, json};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Bytes of a sample.
const SAMPLE_BYTES: u64 = 1024 * 1024;

/// Arguments of `onrecord redaction`.
#[derive(Clone, Debug, clap::Args)]
pub struct RedactionArgs {
    #[command(subcommand)]
    command: RedactionCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum RedactionCommand {
    /// Print the rules that the tenant has added, or replace them
    Rules {
        /// Replace them by this file: TOML, or JSON where it is called `.json`
        #[arg(long, value_name = "FILE", conflicts_with = "version")]
        set: Option<PathBuf>,
        /// Print this version instead of the one that holds
        #[arg(long, value_name = "N")]
        version: Option<u64>,
        /// Print the answer as JSON: version, set, at, by, index, media and document
        #[arg(long)]
        json: bool,
    },
    /// Show what rules would do to a sample, and would have refused of what is recorded
    Try {
        /// Rules to try instead of the tenant's, in the same form as for `rules --set`
        #[arg(long, value_name = "FILE")]
        rules: Option<PathBuf>,
        /// Look at what so many of the newest runs have outside of payloads
        #[arg(long, value_name = "N")]
        last: Option<u32>,
        /// Read the sample as text, also if it is JSON
        #[arg(long)]
        text: bool,
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
        /// The sample; `-` for standard input
        #[arg(value_name = "SAMPLE")]
        sample: Option<PathBuf>,
    },
}

/// Runs the command.
///
/// # Errors
/// A file cannot be read, or the server refuses.
pub async fn run(args: RedactionArgs, client: Client) -> anyhow::Result<()> {
    match args.command {
        RedactionCommand::Rules { set, version, json } => {
            let answer = match set {
                Some(path) => {
                    let (media, text) = document(&path)?;
                    let path = "/v1/redaction/rules";
                    client.put::<Value>(path, media, text).await?.1
                }
                None => {
                    let query =
                        version.map_or_else(String::new, |version| format!("?version={version}"));
                    client.read(&format!("/v1/redaction/rules{query}")).await?
                }
            };
            if json {
                return super::print(&format!("{answer}\n"));
            }
            super::print(&told_rules(&answer))
        }
        RedactionCommand::Try {
            rules,
            last,
            text,
            json,
            sample,
        } => {
            if sample.is_none() && last.is_none() {
                bail!("give a sample, or runs to look at with --last");
            }
            let mut request = Map::new();
            if let Some(path) = rules {
                let (media, text) = document(&path)?;
                let is_json = media == "application/json";
                let rules = if is_json {
                    serde_json::from_str(&text)?
                } else {
                    text.into()
                };
                request.insert("rules".into(), rules);
            }
            if let Some(path) = sample {
                request.insert("sample".into(), read_sample(&path, text)?);
            }
            if let Some(last) = last {
                request.insert("runs".into(), json!({ "last": last }));
            }
            let (_, answer): (_, Value) = client.post("/v1/redaction/dry-run", &request).await?;
            if json {
                return super::print(&format!("{answer}\n"));
            }
            super::print(&told(&answer))
        }
    }
}

/// A document of rules and its media type.
fn document(path: &Path) -> anyhow::Result<(&'static str, String)> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let is_json = path
        .extension()
        .is_some_and(|extension| extension == "json");
    let media = if is_json {
        "application/json"
    } else {
        "application/toml"
    };
    Ok((media, text))
}

fn read_sample(path: &Path, as_text: bool) -> anyhow::Result<Value> {
    let mut bytes = Vec::new();
    let mut read =
        |from: &mut dyn std::io::Read| from.take(SAMPLE_BYTES + 1).read_to_end(&mut bytes);
    let read = if path.as_os_str() == "-" {
        read(&mut std::io::stdin().lock())
    } else {
        std::fs::File::open(path).and_then(|mut file| read(&mut file))
    };
    read.with_context(|| path.display().to_string())?;
    if bytes.len() as u64 > SAMPLE_BYTES {
        bail!("a sample has at most {SAMPLE_BYTES} bytes");
    }
    if !as_text && let Ok(value) = serde_json::from_slice::<Value>(&bytes) {
        return Ok(json!({ "json": value }));
    }
    let text = String::from_utf8(bytes).context("the sample is no UTF-8")?;
    Ok(json!({ "text": text }))
}

fn told_rules(answer: &Value) -> String {
    let set = answer["set"]
        .as_str()
        .unwrap_or("none: the server does not redact");
    let Some(document) = answer["document"].as_str() else {
        return format!("# rules: {set}; the tenant has added none\n");
    };
    let by = onrecord_verify::escape(answer["by"]["id"].as_str().unwrap_or_default());
    let at = answer["at"].as_str().unwrap_or_default();
    format!("# rules: {set}, of {at} by {by}\n{document}")
}

fn told(answer: &Value) -> String {
    let mut text = format!("rules: {}\n", answer["set"].as_str().unwrap_or_default());
    let rows = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let word =
        |value: &Value| onrecord_verify::escape(value.as_str().unwrap_or_default()).to_string();
    if let Some(sample) = answer.get("sample") {
        for mark in rows(&sample["found"]) {
            let place = match mark.get("pointer") {
                Some(pointer) => word(pointer),
                None => format!("bytes {} to {}", mark["range"][0], mark["range"][1]),
            };
            text.push_str(&format!(
                "{place}: {} ({})\n",
                word(&mark["kind"]),
                word(&mark["rule"])
            ));
        }
        match (sample.get("json"), sample["text"].as_str()) {
            (Some(json), _) => text.push_str(&format!("{json:#}\n")),
            (None, sample) => {
                text.push_str(&format!("{}\n", sample.unwrap_or_default().trim_end()))
            }
        }
    }
    if let Some(runs) = answer.get("runs") {
        for found in rows(&runs["found"]) {
            text.push_str(&format!(
                "{} ({}): {} in recorded metadata\n",
                word(&found["kind"]),
                word(&found["rule"]),
                found["count"]
            ));
            for place in rows(&found["places"]) {
                text.push_str(&format!(
                    "  {} frame {} {}\n",
                    word(&place["run"]),
                    place["seq"],
                    word(&place["pointer"])
                ));
            }
        }
        let whole = if runs["complete"] == true {
            ""
        } else {
            "; there are more"
        };
        text.push_str(&format!(
            "looked at {} frames of {} runs{whole}\n",
            runs["frames"], runs["runs"]
        ));
    }
    text
}
