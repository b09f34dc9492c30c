//! `onrecord trust`: the trust file for the server's keys.

use crate::client::Client;

/// Arguments of `onrecord trust`.
#[derive(Clone, Debug, clap::Args)]
pub struct TrustArgs {}

/// Runs the command.
pub async fn run(_: TrustArgs, client: Client) -> anyhow::Result<()> {
    let text = client.read_bytes("/v1/trust").await?;
    super::print(&String::from_utf8_lossy(&text))
}
