//! `onrecord commit`: a commitment to a payload that is kept, made offline.

use crate::vault::{Commitment, commit_to};
use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Arguments of `onrecord commit`.
#[derive(Clone, Debug, clap::Args)]
pub struct CommitArgs {
    /// The payload, exactly as it counts; `-` reads standard input
    #[arg(value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Commit with this key, 32 bytes in base64, instead of a new one
    #[arg(long, value_name = "BASE64")]
    dek: Option<String>,
    /// Print a line for `onrecord verify --present`: the commitment, the salt and the payload itself
    #[arg(long, requires = "dek")]
    presentation: bool,
    /// Print the answer as JSON
    #[arg(long, conflicts_with = "presentation")]
    json: bool,
}

/// Runs the command.
pub fn run(args: CommitArgs) -> anyhow::Result<()> {
    let payload = if args.file.as_os_str() == "-" {
        let mut payload = Vec::new();
        std::io::stdin().lock().read_to_end(&mut payload)?;
        payload
    } else {
        fs::read(&args.file).with_context(|| args.file.display().to_string())?
    };
    let dek = args.dek.as_deref().map(read_dek).transpose()?;
    let Commitment {
        commit,
        dek,
        salt,
        size,
    } = commit_to(&payload, dek)?;
    if args.presentation {
        let line = json!({ "commit": commit, "salt": salt, "data": STANDARD.encode(&payload) });
        return super::print(&format!("{line}\n"));
    }
    let dek = STANDARD.encode(&dek[..]);
    if args.json {
        let answer = json!({ "commit": commit, "dek": dek, "salt": salt, "size": size });
        return super::print(&format!("{answer}\n"));
    }
    super::print(&format!(
        "commit  {commit}\ndek     {dek}\nsalt    {salt}\nsize    {size}\n"
    ))
}

fn read_dek(text: &str) -> anyhow::Result<Zeroizing<[u8; 32]>> {
    let bytes = Zeroizing::new(STANDARD.decode(text).unwrap_or_default());
    match bytes.as_slice().try_into() {
        Ok(dek) => Ok(Zeroizing::new(dek)),
        Err(_) => bail!("--dek: 32 bytes in base64, as `onrecord commit` printed them"),
    }
}
