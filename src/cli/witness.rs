//! `onrecord witness`: a witness of logs, for a customer or an auditor to run.

use super::serve::{cannot_listen, stop_signal};
use super::terminal::{show, tell};
use crate::witness::{Witness, serve};
use anyhow::Context as _;
use clap::Subcommand;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Arguments of `onrecord witness`.
#[derive(Clone, Debug, clap::Args)]
pub struct WitnessArgs {
    #[command(subcommand)]
    command: WitnessCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum WitnessCommand {
    /// Make a witness's folder with a key, and print its line for trust files
    Init {
        /// Its name, which stands in evidence: a host and a path, such as witness.example/w1
        name: String,
        /// Folder to make
        #[arg(short, long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
        output: PathBuf,
    },
    /// Run it: cosign checkpoints of the logs in DIR/logs.txt, which is read again at SIGHUP
    Run {
        /// Its folder
        #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
        folder: PathBuf,
        /// Address to listen on
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8471")]
        listen: String,
        /// Log as JSON
        #[arg(long, env = "ONRECORD_LOG_JSON")]
        log_json: bool,
    },
}

/// Runs the command.
pub async fn run(args: WitnessArgs) -> anyhow::Result<()> {
    match args.command {
        WitnessCommand::Init { name, output } => {
            let key = Witness::init(&name, &output)
                .with_context(|| format!("no witness was made in {}", output.display()))?;
            tell(format_args!(
                "add the logs that it witnesses to {}/logs.txt, then: onrecord witness run {0}",
                output.display()
            ));
            show(&format!("witness {name} {key}\n"))
        }
        WitnessCommand::Run {
            folder,
            listen,
            log_json,
        } => {
            super::log(log_json);
            let witness = Arc::new(Witness::open(&folder)?);
            let listener = TcpListener::bind(&listen)
                .await
                .with_context(|| cannot_listen(&listen))?;
            let stop = stop_signal()?;
            let mut hang_up = signal(SignalKind::hangup())?;
            tell(format_args!(
                "witness {} at http://{}",
                witness.verifier(),
                listener.local_addr()?
            ));
            for (origin, size) in witness.sizes() {
                tell(format_args!("  {origin}: {size} entries seen"));
            }
            let reloading = witness.clone();
            let reloads = tokio::spawn(async move {
                while hang_up.recv().await.is_some() {
                    match reloading.reload() {
                        Ok(()) => tracing::info!("the list of logs was read again"),
                        Err(error) => {
                            tracing::error!(%error, "the list of logs is kept as it was");
                        }
                    }
                }
            });
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
            serve(listener, witness, stop).await;
            reloads.abort();
            Ok(())
        }
    }
}
