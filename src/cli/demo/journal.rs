//! What goes on record, over HTTP, as any agent's own program would send it.

use crate::client::{Client, ServerArgs};
use anyhow::{Context as _, ensure};
use onrecord_core::id::RunId;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::cell::Cell;

/// A frame to append. What it says stands in `body`, what is private in `payloads`.
pub(super) struct Entry<'a> {
    /// One of the kinds of the format.
    pub kind: &'a str,
    /// Ids, enums and counts.
    pub body: Value,
    /// `[{name, text | json}]`.
    pub payloads: Value,
    /// `[{rel, seq}]`.
    pub links: Value,
    /// The tool that answers; `None` for whom the token speaks for.
    pub tool: Option<&'a str>,
    /// Whether it belongs to no turn.
    pub run_level: bool,
}

impl Default for Entry<'_> {
    fn default() -> Self {
        Self {
            kind: "",
            body: json!({}),
            payloads: json!([]),
            links: json!([]),
            tool: None,
            run_level: false,
        }
    }
}

/// One writer of a run, with a token of its own.
pub(super) struct Journal {
    client: Client,
    run: RunId,
    /// Part of each key, so that two writers of a run never use the same.
    writer: &'static str,
    count: Cell<u32>,
}

impl Journal {
    /// A writer of a run that is open.
    pub fn new(client: Client, run: RunId, writer: &'static str) -> Self {
        Self {
            client,
            run,
            writer,
            count: Cell::new(0),
        }
    }

    /// Opens a run with its session frame; its id.
    pub async fn open(client: &Client, request: &Value) -> anyhow::Result<RunId> {
        let (status, opened): (StatusCode, Value) = client.post("/v1/runs", request).await?;
        ensure!(
            status == StatusCode::CREATED && opened["seq"] == 0,
            "the run was not opened: {status} {opened}"
        );
        serde_json::from_value(opened["run"].clone()).context("the server names no run")
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// The connection that it writes through.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Appends a frame; its number. Every frame has a key, so that it is recorded once however often
    /// the connection breaks.
    pub async fn append(&self, entry: Entry<'_>) -> anyhow::Result<u64> {
        let number = self.count.get() + 1;
        self.count.set(number);
        let mut request = json!({
            "kind": entry.kind,
            "key": format!("demo/{}/{number}", self.writer),
            "body": entry.body,
            "payloads": entry.payloads,
            "links": entry.links,
        });
        if let Some(tool) = entry.tool {
            request["actor"] = json!({ "type": "tool", "id": tool });
        }
        if entry.run_level {
            request["turn"] = Value::Null;
        }
        let path = format!("/v1/runs/{}/frames", self.run);
        let (status, receipt): (StatusCode, Value) = self.client.post(&path, &request).await?;
        ensure!(
            status == StatusCode::CREATED,
            "a {} was answered with {status}: {receipt}",
            entry.kind
        );
        receipt["seq"]
            .as_u64()
            .with_context(|| format!("the receipt of a {} has no seq: {receipt}", entry.kind))
    }
}

/// A client with a new token, made with the owner's.
pub(super) async fn client_for(
    owner: &Client,
    role: &str,
    actor: (&str, &str),
) -> anyhow::Result<Client> {
    let (kind, id) = actor;
    let request = json!({ "name": id, "roles": [role], "actor": { "type": kind, "id": id } });
    let (_, made): (StatusCode, Value) = owner.post("/v1/tokens", &request).await?;
    let token = made["token"].as_str().context("no token was made")?;
    Ok(Client::new(&ServerArgs {
        url: owner.base().to_owned(),
        token: Some(token.to_owned()),
    })?)
}
