//! What is told about the files: a line for people, or a line of JSON.

use std::path::PathBuf;

use serde::{Serialize, Serializer};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A file's run was opened, or found.
    Following,
    /// New frames are on record.
    Appended,
    /// A run was sealed.
    Sealed,
    /// A session went on after its seal; what is new is in another run.
    Continued,
    /// The content is not the one that is on record; it is in another run.
    Rewritten,
    /// A file has another name.
    Renamed,
    /// A file is gone.
    Gone,
    /// A file is of no format that is followed.
    Ignored,
    /// A line could not be read.
    Notice,
    /// A file is not followed until it is tried again.
    Failed,
    /// The server does not answer, or refuses everything.
    Away,
    /// The server answers again.
    Back,
    /// Something about the state file.
    State,
    /// Watching stopped.
    Stopped,
}

/// An event.
#[derive(Clone, Debug, Serialize)]
pub struct Told {
    /// What happened.
    pub event: What,
    /// To which file.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_shown")]
    pub file: Option<PathBuf>,
    /// Its run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// How many frames are new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<u64>,
    /// In words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub what: String,
}

/// A name that is no UTF-8 has no JSON form of its own, and is told all the same.
fn as_shown<S: Serializer>(file: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    file.as_ref()
        .map(|file| file.to_string_lossy())
        .serialize(to)
}

impl Told {
    /// An event without details.
    pub fn new(event: What, what: impl Into<String>) -> Self {
        Self {
            event,
            file: None,
            run: None,
            frames: None,
            what: what.into(),
        }
    }

    /// Of a file. What is told of it does not name it once more.
    pub fn of(self, file: impl Into<PathBuf>) -> Self {
        let file = file.into();
        let named = format!("{}: ", file.display());
        let what = self.what.strip_prefix(&named).map(str::to_owned);
        Self {
            what: what.unwrap_or(self.what),
            file: Some(file),
            ..self
        }
    }

    /// Of a run.
    pub fn run(self, run: Option<&str>) -> Self {
        Self {
            run: run.map(str::to_owned),
            ..self
        }
    }

    /// Of so many frames.
    pub fn frames(self, frames: u64) -> Self {
        Self {
            frames: Some(frames),
            ..self
        }
    }

    /// Whether it is told only to those who want to hear everything.
    pub fn is_detail(&self) -> bool {
        matches!(self.event, What::Appended | What::Ignored)
    }

    /// Whether it is something to look after.
    pub fn is_complaint(&self) -> bool {
        matches!(
            self.event,
            What::Failed | What::Away | What::Back | What::Notice | What::Rewritten | What::State
        )
    }

    /// A line for people.
    pub fn line(&self) -> String {
        let mut line = String::new();
        if let Some(file) = &self.file {
            line.push_str(&format!("{}: ", file.display()));
        }
        line.push_str(match self.event {
            What::Following => "following",
            What::Appended => "appended",
            What::Sealed => "sealed",
            What::Continued => "goes on after its seal",
            What::Rewritten => "rewritten",
            What::Renamed => "renamed",
            What::Gone => "gone",
            What::Ignored => "not followed",
            What::Notice => "note",
            What::Failed => "not followed for now",
            What::Away => "waiting for the server",
            What::Back => "the server is back",
            What::State => "state file",
            What::Stopped => "stopped",
        });
        if let Some(frames) = self.frames {
            line.push_str(&format!(", {frames} frames"));
        }
        if let Some(run) = &self.run {
            line.push_str(&format!(", run {run}"));
        }
        if !self.what.is_empty() {
            line.push_str(&format!(": {}", self.what));
        }
        line
    }
}
