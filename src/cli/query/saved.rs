//! `onrecord query save`, `saved`, `forget` and `log`: filters under names, and which queries were asked.

use super::wrong;
use crate::cli::runs::encode;
use crate::cli::terminal::{Column, Screen, seconds, show, table, tell};
use crate::client::Client;
use anyhow::Context as _;
use serde_json::{Value, json};

/// Arguments of `onrecord query save`.
#[derive(Clone, Debug, clap::Args)]
pub struct SaveArgs {
    /// Its name, as a code
    name: String,
    /// What it is a filter of
    #[arg(value_parser = ["runs", "frames", "payload-records"])]
    resource: String,
    /// The filter (docs/queries.md)
    #[arg(long, value_name = "FILTER")]
    filter: String,
    /// Print what is kept as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `onrecord query log`.
#[derive(Clone, Debug, clap::Args)]
pub struct LogArgs {
    /// At most so many, the last first
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print one a line, as JSON
    #[arg(long)]
    json: bool,
    /// Remove what the query at this index of the ledger asked, because its filter names somebody who is to be forgotten; the
    /// entry stays. For admins
    #[arg(long, value_name = "INDEX", conflicts_with_all = ["limit", "json"])]
    remove: Option<u64>,
}

const SAVED: [Column; 4] = [
    Column::kept("NAME"),
    Column {
        leave_out: 1,
        ..Column::kept("OF")
    },
    Column {
        leave_out: 2,
        ..Column::kept("SAVED (UTC)")
    },
    Column {
        least: Some(20),
        ..Column::kept("FILTER")
    },
];

const LOG: [Column; 6] = [
    Column::kept("INDEX"),
    Column {
        leave_out: 2,
        ..Column::kept("AT (UTC)")
    },
    Column {
        leave_out: 3,
        ..Column::kept("BY")
    },
    Column::kept("PURPOSE"),
    Column {
        leave_out: 1,
        ..Column::kept("OF")
    },
    Column {
        least: Some(20),
        ..Column::kept("ASKED")
    },
];

pub(super) async fn save(args: SaveArgs, client: &Client) -> anyhow::Result<()> {
    let path = format!("/v1/saved-queries/{}", step(&args.name)?);
    let body = json!({"resource": args.resource, "filter": args.filter});
    let kept = client
        .put(&path, "application/json", body.to_string())
        .await;
    let (status, kept): (_, Value) =
        kept.map_err(|error| wrong::with_caret(error.into(), &args.filter))?;
    if args.json {
        return show(&format!("{kept}\n"));
    }
    let instead = if status.as_u16() == 201 {
        ""
    } else {
        ", in place of what was kept there"
    };
    tell(format_args!(
        "kept as {}{instead}; --saved {} asks with it",
        args.name, args.name
    ));
    Ok(())
}

pub(super) async fn list(client: &Client, json: bool) -> anyhow::Result<()> {
    let (mut after, mut rows) = (String::new(), Vec::new());
    loop {
        let query = encode(&[("limit", "500".to_owned()), ("after", after.clone())])?;
        let page: Value = client.read(&format!("/v1/saved-queries?{query}")).await?;
        let found = page["saved"].as_array();
        rows.extend_from_slice(found.context("the server's answer has no list of filters")?);
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut after),
            None => break,
        }
    }
    if json {
        return show(&lines(&rows));
    }
    if rows.is_empty() {
        tell("none is kept; `onrecord query save` keeps one");
        return Ok(());
    }
    let cells = rows.iter().map(|row| {
        vec![
            text(&row["name"]),
            text(&row["resource"]),
            seconds(&row["at"]),
            text(&row["filter"]),
        ]
    });
    show(&table(Screen::stdout(), &SAVED, &Vec::from_iter(cells)))
}

pub(super) async fn forget(client: &Client, name: &str) -> anyhow::Result<()> {
    let path = format!("/v1/saved-queries/{}", step(name)?);
    client.delete(&path).await?;
    tell(format_args!("{name} is removed"));
    Ok(())
}

pub(super) async fn log(args: LogArgs, client: &Client) -> anyhow::Result<()> {
    if let Some(index) = args.remove {
        client.delete(&format!("/v1/queries/{index}")).await?;
        tell(format_args!(
            "what query {index} asked is removed; its entry in the ledger stays"
        ));
        return Ok(());
    }
    let (mut left, mut before, mut rows) = (args.limit, None::<u64>, Vec::new());
    while left > 0 {
        let mut query = vec![("limit", left.min(500).to_string())];
        query.extend(before.map(|index| ("before", index.to_string())));
        let page: Value = client
            .read(&format!("/v1/queries?{}", encode(&query)?))
            .await?;
        let found = page["queries"].as_array();
        let found = found.context("the server's answer has no list of queries")?;
        left = left.saturating_sub(u32::try_from(found.len()).unwrap_or(u32::MAX));
        rows.extend_from_slice(found);
        before = page["next"].as_u64();
        if before.is_none() {
            break;
        }
    }
    if args.json {
        return show(&lines(&rows));
    }
    if rows.is_empty() {
        tell("no query was asked");
        return Ok(());
    }
    let cells = rows.iter().map(|row| {
        vec![
            row["index"].to_string(),
            seconds(&row["at"]),
            text(&row["by"]["id"]),
            text(&row["purpose"]),
            text(&row["resource"]),
            asked(&row["text"]),
        ]
    });
    show(&table(Screen::stdout(), &LOG, &Vec::from_iter(cells)))?;
    if before.is_some() {
        tell("there are more; --limit N shows more of them");
    }
    Ok(())
}

/// What a query asked, for people: its filter first, then what else is not as always.
fn asked(text: &Value) -> String {
    let said: Value = serde_json::from_str(text.as_str().unwrap_or_default()).unwrap_or_default();
    let mut parts = Vec::new();
    parts.extend(said["saved"].as_str().map(|name| format!("[{name}]")));
    parts.push(said["filter"].as_str().unwrap_or("everything").to_owned());
    if let Some(by) = said["by"].as_array() {
        let by: Vec<&str> = by.iter().filter_map(Value::as_str).collect();
        parts.push(format!("by {}", by.join(",")));
    } else if said["count"] == true {
        parts.push("counted".to_owned());
    }
    let format = said["format"].as_str().filter(|format| *format != "json");
    parts.extend(format.map(|format| format!("as {format}")));
    parts.join(" ")
}

/// A name as a step of an address: what is no code is refused by the server, as it was written.
fn step(name: &str) -> anyhow::Result<String> {
    let mut url = reqwest::Url::parse("http://x/")?;
    if let Ok(mut steps) = url.path_segments_mut() {
        steps.clear().push(name);
    }
    Ok(url.path().trim_start_matches('/').to_owned())
}

fn lines(rows: &[Value]) -> String {
    rows.iter().map(|row| format!("{row}\n")).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_is_told_in_short() {
        let said = |text: &str| asked(&Value::from(text));
        assert_eq!(said(r#"{"resource":"runs"}"#), "everything");
        assert_eq!(
            said(
                r#"{"filter":"size = 1","saved":"small","by":["day","gate.verdict"],"format":"csv"}"#
            ),
            "[small] size = 1 by day,gate.verdict as csv"
        );
        assert_eq!(
            said(r#"{"filter":"size = 1","count":true,"format":"json"}"#),
            "size = 1 counted"
        );
    }

    #[test]
    fn a_name_is_one_step_of_an_address() {
        assert_eq!(step("failed-runs").unwrap(), "failed-runs");
        assert_eq!(step("a/b?c#d e").unwrap(), "a%2Fb%3Fc%23d%20e");
    }
}
