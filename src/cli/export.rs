//! `onrecord export RUN`: a bundle that anyone can check.

use crate::client::Client;
use onrecord_core::id::RunId;
use std::path::PathBuf;

/// Arguments of `onrecord export`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExportArgs {
    /// The run
    pub run: RunId,
    /// File to write, `-` for standard output [default: run-RUN.onrecord.tar, or
    /// turn-N.turn-proof.json]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Why; stands in the signed export statement
    #[arg(long, default_value = "export")]
    pub purpose: String,
    /// Leave all payloads out; the rest still verifies
    #[arg(long)]
    pub no_payloads: bool,
    /// One turn alone, as a turn proof
    #[arg(long, value_name = "N", conflicts_with = "purpose")]
    pub turn: Option<u64>,
}

/// Runs the command.
pub async fn run(args: ExportArgs, client: Client) -> anyhow::Result<()> {
    let payloads = if args.no_payloads { "none" } else { "all" };
    let (path, name) = match args.turn {
        Some(turn) => (
            format!(
                "/v1/runs/{}/turns/{turn}/proof?payloads={payloads}",
                args.run
            ),
            format!("turn-{turn}.turn-proof.json"),
        ),
        None => {
            let query = super::runs::encode(&[
                ("purpose", args.purpose),
                ("payloads", payloads.to_owned()),
            ])?;
            (
                format!("/v1/runs/{}/export?{query}", args.run),
                format!("run-{}.onrecord.tar", args.run),
            )
        }
    };
    let output = args.output.unwrap_or_else(|| PathBuf::from(name));
    if output.as_os_str() == "-" {
        client.print(&path).await?;
        return Ok(());
    }
    let bytes = client.download(&path, &output).await?;
    eprintln!(
        "wrote {} ({bytes} bytes); check it with: onrecord verify --trust FILE {}",
        output.display(),
        output.display()
    );
    Ok(())
}
