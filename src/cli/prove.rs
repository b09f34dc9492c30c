//! `onrecord prove RUN`: one turn, or one frame, as a file that anyone can check.

use super::export::save;
use super::which_run::RunArg;
use crate::client::Client;
use std::path::PathBuf;

/// Arguments of `onrecord prove`.
#[derive(Clone, Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("what").required(true)))]
pub struct ProveArgs {
    #[command(flatten)]
    run: RunArg,
    /// A turn of a sealed run, whole: with all of its frames
    #[arg(long, value_name = "N", group = "what")]
    pub turn: Option<u64>,
    /// A frame, by its place; of an open run under a head that is signed for it
    #[arg(long, value_name = "SEQ", group = "what")]
    pub frame: Option<u64>,
    /// File to write, `-` for standard output [default: turn-N.turn-proof.json, or
    /// frame-SEQ.frame-proof.json]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Disclose the turn's payloads, for this purpose, which stands on the ledger; without, they are left out
    #[arg(long, value_name = "WHY", conflicts_with = "frame")]
    pub purpose: Option<String>,
    /// Leave some of the payloads out: name:NAME, tier:TIER, kind:KIND of frames, or frames:FIRST-LAST; may be given several times
    #[arg(long, value_name = "RULE", value_delimiter = ',', requires = "purpose")]
    pub withhold: Vec<String>,
    /// Print what was written as JSON
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub async fn run(args: ProveArgs, client: Client) -> anyhow::Result<()> {
    let run = args.run.resolve(&client).await?;
    let (path, name) = match (args.turn, args.frame) {
        (Some(turn), _) => {
            let mut query = match args.purpose {
                Some(purpose) => vec![("purpose", purpose)],
                None => vec![("payloads", "none".to_owned())],
            };
            if !args.withhold.is_empty() {
                query.push(("withhold", args.withhold.join(",")));
            }
            let query = super::runs::encode(&query)?;
            (
                format!("/v1/runs/{run}/turns/{turn}/proof?{query}"),
                format!("turn-{turn}.turn-proof.json"),
            )
        }
        (None, seq) => {
            let seq = seq.unwrap_or_default();
            (
                format!("/v1/runs/{run}/frames/{seq}/proof"),
                format!("frame-{seq}.frame-proof.json"),
            )
        }
    };
    let output = args.output.unwrap_or_else(|| PathBuf::from(name));
    save(&client, &path, &output, args.json).await
}
