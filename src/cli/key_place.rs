//! Where the keys are, and the root key that opens them.

use crate::start::{RootSource, TransitSource};
use anyhow::{Context as _, bail};
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Where a server has its keys.
#[derive(Clone, Debug, clap::Args)]
pub struct KeyPlace {
    /// Folder for keys, the first token and the embedded PostgreSQL [default: /var/lib/onrecord for
    /// root, else onrecord in the user's data folder]
    #[arg(long, env = "ONRECORD_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Folder of the keys [default: keys in the data folder]
    #[arg(long, env = "ONRECORD_KEYS", value_name = "DIR")]
    pub keys: Option<PathBuf>,
    /// File of the root key, 64 hex digits; ONRECORD_ROOT_KEY holds its name or the digits themselves
    /// [default: root.key among systemd's credentials or in the folder of the keys]
    #[arg(long, value_name = "FILE")]
    pub root_key: Option<PathBuf>,
    /// The same, which the environment may have: 64 hex digits are the key, anything else a file
    #[arg(
        long,
        env = "ONRECORD_ROOT_KEY",
        hide = true,
        hide_env_values = true,
        value_parser = Digits::parse
    )]
    root_key_variable: Option<Digits>,
    #[command(flatten)]
    transit: TransitArgs,
    /// Folder of systemd's credentials
    #[arg(long, env = "CREDENTIALS_DIRECTORY", value_name = "DIR", hide = true)]
    pub credentials: Option<PathBuf>,
}

/// A root key in a transit engine.
#[derive(Clone, Debug, clap::Args)]
struct TransitArgs {
    /// Transit engine of HashiCorp Vault or OpenBao with the root key, such as
    /// https://vault.example:8200/v1/transit
    #[arg(long, env = "ONRECORD_ROOT_KEY_TRANSIT", value_name = "URL")]
    root_key_transit: Option<String>,
    /// Name of the key there
    #[arg(
        long,
        env = "ONRECORD_ROOT_KEY_TRANSIT_KEY",
        value_name = "NAME",
        default_value = "onrecord"
    )]
    root_key_transit_key: String,
    /// File with the token for it, which may be renewed there
    #[arg(long, env = "ONRECORD_ROOT_KEY_TRANSIT_TOKEN", value_name = "FILE")]
    root_key_transit_token: Option<PathBuf>,
}

/// A text that may be a key, and is not for logs.
#[derive(Clone)]
pub struct Digits(Zeroizing<String>);

impl Digits {
    /// Takes any text: what it means is seen where it is used.
    #[expect(clippy::unnecessary_wraps, reason = "the shape of clap's parsers")]
    pub(super) fn parse(text: &str) -> Result<Self, std::convert::Infallible> {
        Ok(Self(text.to_owned().into()))
    }

    /// A root key: the digits of one, or the file that has it.
    pub(super) fn source(&self) -> RootSource {
        let is_key = self.0.len() == 64 && self.0.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_key {
            RootSource::Given(self.0.to_ascii_lowercase().into())
        } else {
            RootSource::File(Some(PathBuf::from(self.0.as_str())))
        }
    }
}

impl std::fmt::Debug for Digits {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("[secret]")
    }
}

impl KeyPlace {
    /// The folder of the data.
    pub(super) fn data_dir(&self) -> anyhow::Result<PathBuf> {
        data_dir(self.data_dir.as_ref())
    }

    /// The folder of the keys.
    pub(super) fn keys_folder(&self) -> anyhow::Result<PathBuf> {
        match &self.keys {
            Some(keys) => Ok(keys.clone()),
            None => Ok(self.data_dir()?.join("keys")),
        }
    }

    /// Where the root key is.
    pub(super) fn root_key(&self) -> anyhow::Result<RootSource> {
        let variable = self.root_key_variable.as_ref();
        let variable = variable.filter(|variable| !variable.0.is_empty());
        let url = self.transit.root_key_transit.as_ref();
        if let Some(url) = url.filter(|url| !url.is_empty()) {
            if self.root_key.is_some() || variable.is_some() {
                bail!(
                    "--root-key-transit and --root-key (or ONRECORD_ROOT_KEY) are two root keys; give one"
                );
            }
            let token = self.transit.root_key_transit_token.clone();
            return Ok(RootSource::Transit(TransitSource {
                url: url.clone(),
                key: self.transit.root_key_transit_key.clone(),
                token_file: token
                    .context("--root-key-transit needs --root-key-transit-token FILE")?,
            }));
        }
        if self.root_key.is_none()
            && let Some(variable) = variable
        {
            return Ok(variable.source());
        }
        let credential = self.credentials.as_ref().map(|dir| dir.join("root.key"));
        let credential = credential.filter(|path| path.exists());
        Ok(RootSource::File(self.root_key.clone().or(credential)))
    }
}

/// The folder of the data that was named, or the one that is meant where none is.
pub(super) fn data_dir(named: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    match named {
        Some(dir) => Ok(dir.clone()),
        None => {
            default_data_dir().context("no --data-dir, and the environment names no home folder")
        }
    }
}

/// Root's data belongs where PostgreSQL's user may go.
fn default_data_dir() -> Option<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the default folder is the environment's, as the XDG base directories say"
    )]
    let variable = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/onrecord"));
    }
    let data =
        variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")))?;
    Some(data.join("onrecord"))
}
