//! `onrecord flag`: runs that somebody marks.

use super::runs::encode;
use super::terminal::show;
use crate::client::Client;
use onrecord_core::id::RunId;
use serde_json::{Value, json};

/// Arguments of `onrecord flag`.
#[derive(Clone, Debug, clap::Args)]
pub struct FlagArgs {
    /// The run
    run: RunId,
    /// The flag, as a code: it stands on the ledger
    #[arg(value_parser = code)]
    flag: String,
    /// The incident that it is about, as a code
    #[arg(long)]
    incident: Option<String>,
    /// Why, as a code
    #[arg(long)]
    reason: Option<String>,
    /// Take the flag off: that of the incident, or without one each that has the name
    #[arg(long)]
    clear: bool,
    /// Print the flag as JSON
    #[arg(long)]
    json: bool,
}

/// What is one step of an address, also where it is put there as it is.
fn code(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let first = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    if first && text.bytes().all(fits) {
        return Ok(text.to_owned());
    }
    Err("a code has letters, digits, `.`, `_` and `-`, the first a letter or a digit".to_owned())
}

/// Runs the command.
pub async fn run(args: FlagArgs, client: Client) -> anyhow::Result<()> {
    let path = format!("/v1/runs/{}/flags", args.run);
    if !args.clear {
        let mut wanted = json!({ "flag": args.flag });
        for (name, code) in [("incident", args.incident), ("reason", args.reason)] {
            if let Some(code) = code {
                wanted[name] = code.into();
            }
        }
        let (_, flag): (_, Value) = client.post(&path, &wanted).await?;
        return one(&flag, args.json);
    }
    let said = [("incident", args.incident), ("reason", args.reason)];
    let said: Vec<_> = said
        .into_iter()
        .filter_map(|(name, code)| Some((name, code?)))
        .collect();
    let path = format!("{path}/{}?{}", args.flag, encode(&said)?);
    let ended: Value = client.delete_and_read(&path).await?;
    let mut flags = ended["flags"].as_array().into_iter().flatten();
    flags.try_for_each(|flag| one(flag, args.json))
}

fn one(flag: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return show(&format!("{flag}\n"));
    }
    show(&format!("{}\n", words(flag)))
}

/// A flag in words.
pub(super) fn words(flag: &Value) -> String {
    let text =
        |value: &Value| onrecord_verify::escape(value.as_str().unwrap_or_default()).to_string();
    let mut words = format!("flag {}", text(&flag["flag"]));
    if flag["incident"].is_string() {
        words.push_str(&format!(", incident {}", text(&flag["incident"])));
    }
    if flag["reason"].is_string() {
        words.push_str(&format!(" ({})", text(&flag["reason"])));
    }
    let by = text(&flag["by"]["id"]);
    words.push_str(&format!(": set {} by {by}", text(&flag["at"])));
    let cleared = &flag["cleared"];
    if cleared.is_object() {
        let by = text(&cleared["by"]["id"]);
        words.push_str(&format!(", cleared {} by {by}", text(&cleared["at"])));
    }
    words
}
