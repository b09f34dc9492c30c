//! `onrecord ledger`: the tenant's ledger, its entries and their proofs.

use super::runs::encode;
use super::terminal::{Column, Screen, seconds, show, table, tell};
use crate::client::Client;
use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;
use indicatif::HumanBytes;
use onrecord_core::digest::Hash;
use onrecord_core::merkle;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Arguments of `onrecord ledger`.
#[derive(Clone, Debug, clap::Args)]
pub struct LedgerArgs {
    #[command(subcommand)]
    command: LedgerCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum LedgerCommand {
    /// Show the ledger as it is now: its name, size, root and checkpoint
    Show {
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// List entries by their index
    Entries {
        /// The first index
        #[arg(long, value_name = "INDEX", default_value_t = 0)]
        from: u64,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
        limit: u64,
        /// Print a JSON line for each entry, with the envelope as it was signed
        #[arg(long)]
        json: bool,
    },
    /// Export the whole ledger as an archive that `onrecord verify` takes
    Export {
        /// File to write, `-` for standard output
        #[arg(short, long, value_name = "FILE", default_value = "ledger.tar")]
        output: PathBuf,
        /// Print what was written as JSON
        #[arg(long)]
        json: bool,
    },
    /// Prove that an entry is in the ledger: a C2SP .tlog-proof
    Prove {
        /// The entry
        index: u64,
        /// Size of the checkpoint that the proof leads to, instead of the latest
        #[arg(long, value_name = "N")]
        size: Option<u64>,
        /// File to write, `-` for standard output
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
        /// Print what was written as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show which witnesses cosigned it, which seals were stamped, and whether it lacks what was published
    Anchors {
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Let recording go on after the database was put back, with an entry that says what was published before
    AcceptRewind {
        /// Why, as the ledger says for ever
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
    },
    /// Check that the ledger of one size is the beginning of that of another
    Consistency {
        /// The smaller size
        #[arg(long, value_name = "N")]
        from: u64,
        /// The larger size, by default that of now
        #[arg(long, value_name = "N")]
        to: Option<u64>,
        /// Print the proof as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
pub async fn run(args: LedgerArgs, client: Client) -> anyhow::Result<()> {
    match args.command {
        LedgerCommand::Show { json } => {
            let ledger: Value = client.read("/v1/ledger").await?;
            if json {
                return show(&format!("{ledger}\n"));
            }
            let text = |name: &str| ledger[name].as_str().unwrap_or_default().to_owned();
            show(&format!(
                "ledger {} of {} entries\nroot {}\nkey {}\n\n{}",
                text("origin"),
                ledger["size"],
                text("root"),
                text("verifier_key"),
                text("checkpoint"),
            ))
        }
        LedgerCommand::Entries { from, limit, json } => entries(&client, from, limit, json).await,
        LedgerCommand::Export { output, json } => {
            write(&client, "/v1/ledger/archive", &output, json).await
        }
        LedgerCommand::Prove {
            index,
            size,
            output,
            json,
        } => {
            let size = size.map(|size| format!("?size={size}")).unwrap_or_default();
            let path = format!("/v1/ledger/entries/{index}/proof{size}");
            write(&client, &path, &output, json).await
        }
        LedgerCommand::Anchors { json } => super::anchors::read(&client, json).await,
        LedgerCommand::AcceptRewind { reason, json } => {
            super::anchors::accept(&client, &reason, json).await
        }
        LedgerCommand::Consistency { from, to, json } => consistency(&client, from, to, json).await,
    }
}

const COLUMNS: [Column; 4] = [
    Column::kept("INDEX"),
    Column {
        leave_out: 1,
        ..Column::kept("AT (UTC)")
    },
    Column::kept("STATES"),
    Column {
        leave_out: 2,
        ..Column::kept("RUN")
    },
];

async fn entries(client: &Client, from: u64, limit: u64, json: bool) -> anyhow::Result<()> {
    let screen = Screen::stdout();
    let (mut next, mut left, mut rows) = (Some(from), limit, Vec::new());
    while let Some(from) = next.filter(|_| left > 0) {
        let query = [
            ("from", from.to_string()),
            ("limit", left.min(256).to_string()),
        ];
        let page = format!("/v1/ledger/entries?{}", encode(&query)?);
        let page: Value = client.read(&page).await?;
        let entries = page["entries"].as_array();
        let entries = entries.context("the server's answer has no list of entries")?;
        for entry in entries {
            if json {
                show(&format!("{entry}\n"))?;
            } else {
                rows.push(row(entry));
            }
        }
        left = left.saturating_sub(entries.len() as u64);
        next = page["next"].as_u64();
    }
    if json {
        return Ok(());
    }
    if rows.is_empty() {
        tell("no such entries");
        return Ok(());
    }
    show(&table(screen, &COLUMNS, &rows))?;
    if let Some(next) = next {
        tell(format_args!("there are more; --from {next} goes on"));
    }
    Ok(())
}

fn row(entry: &Value) -> Vec<String> {
    let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    vec![
        entry["index"].to_string(),
        seconds(&entry["at"]),
        text("name"),
        text("run"),
    ]
}

/// Writes what is at an address of the server to a file, or to standard output.
async fn write(client: &Client, path: &str, output: &Path, json: bool) -> anyhow::Result<()> {
    if output.as_os_str() == "-" {
        if json {
            bail!("standard output takes the file or the JSON: give -o FILE with --json");
        }
        client.print(path).await?;
        return Ok(());
    }
    let bytes = client.download(path, output).await?;
    if json {
        let file = output.display().to_string();
        return show(&format!("{}\n", json!({"file": file, "bytes": bytes})));
    }
    tell(format_args!(
        "wrote {} ({})",
        output.display(),
        HumanBytes(bytes)
    ));
    Ok(())
}

async fn consistency(
    client: &Client,
    from: u64,
    to: Option<u64>,
    json: bool,
) -> anyhow::Result<()> {
    let to = to.map(|to| format!("&to={to}")).unwrap_or_default();
    let path = format!("/v1/ledger/consistency?from={from}{to}");
    let proof: Value = client.read(&path).await?;
    let tree = |name: &str| {
        let size = proof[name]["size"].as_u64();
        let root = hash(&proof[name]["root"]);
        size.zip(root)
            .context("the server's answer has no size and root")
    };
    let ((from, first), (to, second)) = (tree("from")?, tree("to")?);
    let path = proof["hashes"].as_array();
    let path: Option<Vec<Hash>> = path.and_then(|path| path.iter().map(hash).collect());
    let path = path.context("the server's answer has no hashes")?;
    merkle::verify_consistency(from, to, &first, &second, &path).with_context(|| {
        format!("the ledger of {from} entries is not the beginning of that of {to}")
    })?;
    if json {
        return show(&format!("{proof}\n"));
    }
    let text = |hash: &Hash| STANDARD.encode(hash.as_bytes());
    show(&format!(
        "the ledger of {from} entries is the beginning of that of {to}\nroot of {from}: {}\nroot of {to}: {}\n",
        text(&first),
        text(&second)
    ))
}

fn hash(text: &Value) -> Option<Hash> {
    Hash::from_slice(&STANDARD.decode(text.as_str()?).ok()?).ok()
}
