//! The run that a command is about: by its id, by how the id begins, or the newest.

use super::runs::encode;
use crate::client::Client;
use anyhow::bail;
use onrecord_core::id::RunId;
use serde_json::Value;

/// Runs that are named where a beginning is not enough.
const NAMED: usize = 3;

/// Which run.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct RunArg {
    /// The run's id, or how it begins
    #[arg(value_parser = beginning)]
    pub run: Option<String>,
    /// The newest run
    #[arg(long)]
    pub last: bool,
}

impl RunArg {
    /// The run's id.
    pub(super) async fn resolve(&self, client: &Client) -> anyhow::Result<RunId> {
        let prefix = self.run.clone().unwrap_or_default();
        if let Ok(run) = prefix.parse() {
            return Ok(run);
        }
        let limit = if self.last { 1 } else { NAMED + 1 };
        let query = encode(&[("prefix", prefix.clone()), ("limit", limit.to_string())])?;
        let list: Value = client.read(&format!("/v1/runs?{query}")).await?;
        let runs: Vec<&str> = list["runs"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|run| run["run"].as_str())
            .collect();
        match runs.as_slice() {
            [] if self.last => bail!("there are no runs yet"),
            [] => bail!("no run begins with {prefix}; `onrecord runs` lists them"),
            [run] => Ok(run.parse()?),
            [..] => {
                let more = if runs.len() > NAMED { " …" } else { "" };
                let named = runs[..runs.len().min(NAMED)].join(" ");
                bail!("several runs begin with {prefix}: {named}{more}; give more of the id")
            }
        }
    }
}

/// The beginning of a run's id, in the case that ids have.
fn beginning(text: &str) -> Result<String, String> {
    let id = text.to_ascii_uppercase();
    if id.is_empty() || !RunId::may_begin_with(&id) {
        return Err(
            "the id of a run has 26 of 0-9 and A-Z without I, L, O and U; `onrecord runs` lists them"
                .to_owned(),
        );
    }
    Ok(id)
}
