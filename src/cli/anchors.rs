//! What others say of the tenant's ledger: `onrecord ledger anchors` and `accept-rewind`.

use super::terminal::{show, tell};
use crate::client::Client;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Shows witnesses, stamps and rewinds.
pub(super) async fn read(client: &Client, json: bool) -> anyhow::Result<()> {
    let state: Value = client.read("/v1/ledger/anchors").await?;
    if json {
        return show(&format!("{state}\n"));
    }
    show(&anchors(&state))
}

/// Accepts that the ledger goes on from before what was published.
pub(super) async fn accept(client: &Client, reason: &str, json: bool) -> anyhow::Result<()> {
    let wanted = json!({"reason": reason});
    let (_, accepted): (_, Value) = client.post("/v1/ledger/rewind", &wanted).await?;
    if json {
        return show(&format!("{accepted}\n"));
    }
    tell(format_args!("recording goes on"));
    show(&format!(
        "entry {} says that the ledger goes on from {} entries\n",
        accepted["index"], accepted["size"]
    ))
}

/// The state for people. Writing to a string cannot fail.
fn anchors(state: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut out = String::new();
    let each = |name: &str| state[name].as_array().cloned().unwrap_or_default();
    for one in each("witnesses") {
        let name = text(&one["witness"]);
        let name = name.split('+').next().unwrap_or_default();
        let _ = match one.get("cosigned") {
            Some(at) => write!(
                out,
                "witness {name}: {} entries, {}",
                at["number"],
                text(&at["at"])
            ),
            None => write!(out, "witness {name}: nothing cosigned yet"),
        };
        if let Some(problem) = one.get("problem") {
            let _ = write!(out, "; now: {}", text(problem));
        }
        out.push('\n');
    }
    if let Some(size) = state.get("cosigned_size") {
        let _ = writeln!(out, "cosigned by enough of them: {size} entries");
    }
    if let Some(authority) = state.get("authority") {
        let problem = authority.get("problem").map(text);
        let _ = writeln!(
            out,
            "time stamps by {}: {}",
            text(&authority["url"]),
            problem.unwrap_or_else(|| "it answers".to_owned())
        );
    }
    for (name, what) in [
        ("stamped_seal", "seal at index"),
        ("stamped_checkpoint", "checkpoint of size"),
    ] {
        if let Some(at) = state.get(name) {
            let _ = writeln!(
                out,
                "last stamped {what} {}: {}",
                at["number"],
                text(&at["at"])
            );
        }
    }
    for one in each("rewinds") {
        let is_accepted = one["accepted"] == true;
        let _ = writeln!(
            out,
            "rewound: {} entries were published, told by {}, and the ledger had {}: {}",
            one["published_size"],
            text(&one["told_by"]),
            one["size"],
            if is_accepted {
                "accepted"
            } else {
                "NOT ACCEPTED, nothing is recorded"
            }
        );
    }
    if out.is_empty() {
        out.push_str(
            "no witness and no time-stamping authority is asked, and nothing is missing\n",
        );
    }
    out
}
