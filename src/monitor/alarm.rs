//! What a monitor says: alarms, rounds, and why one could not be made.

use crate::client::ClientError;
use onrecord_core::note::Checkpoint;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// A checkpoint that is smaller than one that was believed, of the same tree.
pub const ROLLBACK: &str = "rollback";
/// A run that was opened long ago and has no seal.
pub const LEFT_OPEN: &str = "run_left_open";

/// Something that somebody has to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// A code of the verifier, or `rollback` or `run_left_open`.
    pub alarm: String,
    /// The log.
    pub origin: String,
    /// The entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// The run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Size of the checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// What was found and what was expected.
    pub cause: String,
    /// The folder with both signed checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<PathBuf>,
    /// What tells it from others of its kind: letters, digits and hyphens.
    pub(super) mark: String,
}

impl Alarm {
    /// The same for the same thing, in every round.
    pub fn key(&self) -> String {
        format!("{}-{}", self.alarm, self.mark)
    }
}

/// What a round came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// The log.
    pub origin: String,
    /// Entries that are believed.
    pub size: u64,
    /// How many of them are new.
    pub new: u64,
    /// All alarms that stand.
    pub alarms: Vec<Alarm>,
    /// Alarms about entries that are not among them.
    pub more: u64,
}

/// Why a round could not be made, which says nothing of the ledger.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// The server did not answer, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// What it sent is nothing that could be checked.
    #[error(
        "{what}: {cause}; is this the address of a log, such as https://records.example/t/LOGID?"
    )]
    Answer {
        /// What was asked for.
        what: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The trust file pins no log, or several and the address names none.
    #[error("{0}")]
    Trust(String),
    /// The folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process monitors with it.
    #[error("{} is in use by another monitor", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is not as a monitor leaves it.
    #[error("{}: {cause}; start with an empty folder, and keep this one to compare", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What was found.
        cause: String,
    },
}

impl MonitorError {
    /// Whether looking again would not help.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Self::Client(_) | Self::Answer { .. })
    }
}

/// An alarm about a checkpoint.
pub(super) fn of_checkpoint(
    code: &str,
    checkpoint: &Checkpoint,
    cause: &str,
    mark: String,
) -> Alarm {
    Alarm {
        alarm: code.to_owned(),
        origin: checkpoint.origin.clone(),
        index: None,
        run: None,
        size: Some(checkpoint.size),
        cause: cause.to_owned(),
        evidence: None,
        mark,
    }
}
