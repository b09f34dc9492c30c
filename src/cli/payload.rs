//! `onrecord payload RUN WHICH`: reads one payload, for a stated purpose.

use super::runs::encode;
use super::terminal::tell;
use crate::client::Client;
use anyhow::{Context as _, bail};
use onrecord_core::digest::Hash;
use onrecord_core::id::RunId;
use serde_json::Value;
use std::path::PathBuf;
use std::str::FromStr;

/// Arguments of `onrecord payload`.
#[derive(Clone, Debug, clap::Args)]
pub struct PayloadArgs {
    /// The run
    run: RunId,
    /// The payload: its commitment, or SEQ/NAME for that of a frame
    #[arg(value_name = "COMMIT|SEQ/NAME")]
    which: Which,
    /// Why, as a code such as a ticket's number; stands on the ledger, with who reads it
    #[arg(long)]
    purpose: String,
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A payload of a run.
#[derive(Clone, Debug)]
enum Which {
    Commit(Hash),
    Named(u64, String),
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(commit) = text.parse() {
            return Ok(Self::Commit(commit));
        }
        let named = text.split_once('/').and_then(|(seq, name)| {
            let seq = seq.parse().ok()?;
            (!name.is_empty()).then(|| Self::Named(seq, name.to_owned()))
        });
        named.ok_or_else(|| {
            "a payload is named by its commitment (64 hex digits), or by SEQ/NAME: 3/result is the payload `result` of frame 3"
                .to_owned()
        })
    }
}

/// Runs the command.
pub async fn run(args: PayloadArgs, client: Client) -> anyhow::Result<()> {
    let commit = match args.which {
        Which::Commit(commit) => commit.to_string(),
        Which::Named(seq, name) => {
            let frame: Value = client
                .read(&format!("/v1/runs/{}/frames/{seq}", args.run))
                .await?;
            find(&frame, &name).with_context(|| format!("frame {seq} of {}", args.run))?
        }
    };
    let query = encode(&[("purpose", args.purpose)])?;
    let path = format!("/v1/runs/{}/payloads/{commit}?{query}", args.run);
    match args.output.as_deref() {
        Some(file) if file.as_os_str() != "-" => {
            let bytes = client.download(&path, file).await?;
            tell(format_args!("wrote {} ({bytes} bytes)", file.display()));
        }
        _ => {
            client.print(&path).await?;
        }
    }
    Ok(())
}

/// The commitment of a frame's payload with a name.
fn find(frame: &Value, name: &str) -> anyhow::Result<String> {
    let payloads = frame["payloads"].as_array().map_or(&[][..], Vec::as_slice);
    let named = payloads.iter().find(|one| one["name"] == name);
    if let Some(commit) = named.and_then(|one| one["commit"].as_str()) {
        return Ok(commit.to_owned());
    }
    let names: Vec<&str> = payloads
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    if names.is_empty() {
        bail!("it has no payloads");
    }
    bail!("it has no payload {name:?}; it has {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_payload_is_named_in_two_ways() {
        let commit = "ab".repeat(32);
        assert!(matches!(commit.parse(), Ok(Which::Commit(_))));
        assert!(matches!("3/result".parse(), Ok(Which::Named(3, name)) if name == "result"));
        for wrong in ["", "3", "3/", "/result", "x/result", "ab"] {
            assert!(wrong.parse::<Which>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_name_that_is_not_there_is_told_with_those_that_are() {
        let frame = json!({"payloads": [{"name": "result", "commit": "aa"}, {"name": "log", "commit": "bb"}]});
        assert_eq!(find(&frame, "log").unwrap(), "bb");
        let why = find(&frame, "output").unwrap_err().to_string();
        assert!(why.contains("result, log"), "{why}");
        assert!(
            find(&json!({}), "x")
                .unwrap_err()
                .to_string()
                .contains("no payloads")
        );
    }
}
