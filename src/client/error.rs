//! Requests that did not succeed, and what a person can do about it.

use std::path::PathBuf;

use reqwest::StatusCode;

use super::DEFAULT_URL;

/// Characters of an answer that is no problem document which are repeated in an error.
const EXCERPT_CHARS: usize = 200;

/// A problem as the server tells it (RFC 9457).
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct Problem {
    /// A URI that names the kind of problem.
    pub r#type: String,
    /// One line about the kind.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code.
    pub code: String,
    /// What happened here.
    pub detail: String,
    /// What to do, in words of the API.
    pub action: String,
    /// JSON pointer into the request.
    pub pointer: Option<String>,
    /// The character of the filter, from 1, that is wrong.
    pub at: Option<usize>,
}

/// A request that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is none.
    #[error(
        "`{url}` is no address of a server: give one such as {DEFAULT_URL} with --url or ONRECORD_URL"
    )]
    Address {
        /// What was given.
        url: String,
    },
    /// The token has characters that no HTTP header may have.
    #[error("the token is not one line of visible characters: copy it again")]
    Token,
    /// Nobody listens there.
    #[error("no answer from {url}: is `onrecord serve` running there? ({why})")]
    Unreachable {
        /// The server.
        url: String,
        /// What the connection said.
        why: String,
    },
    /// The connection broke, and trying again did not help.
    #[error(
        "the connection to {url} broke off: {why}; what was acknowledged is kept, run the command again to go on"
    )]
    Broken {
        /// The server.
        url: String,
        /// How.
        why: String,
    },
    /// The server refused, and says why.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// The answer is not the API's.
    #[error("{url} answered {status}, but not as an onrecord server does: {excerpt}")]
    Foreign {
        /// What was asked.
        url: String,
        /// The status.
        status: StatusCode,
        /// The beginning of the answer.
        excerpt: String,
    },
    /// The answer could not be written to its file.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
}

impl std::fmt::Display for Problem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(if self.title.is_empty() {
            "the server refused"
        } else {
            &self.title
        })?;
        if !self.detail.is_empty() {
            write!(formatter, ": {}", self.detail)?;
        }
        if let Some(pointer) = &self.pointer {
            write!(formatter, " (at {pointer})")?;
        }
        if !self.code.is_empty() {
            write!(formatter, " [{} {}]", self.status, self.code)?;
        }
        // What to do in words of the command line, where it has them; else the server's.
        match self.code.as_str() {
            "run_not_found" => {
                return formatter.write_str("; `onrecord runs` lists those that are there");
            }
            "token_not_found" => {
                return formatter.write_str("; `onrecord token list` lists those that are there");
            }
            "saved_query_not_found" => {
                return formatter.write_str("; `onrecord query saved` lists those that are there");
            }
            "run_open" => return formatter.write_str("; `onrecord seal RUN` seals it"),
            _ => {}
        }
        match self.status {
            401 => formatter.write_str("; give a token with --token or ONRECORD_TOKEN"),
            403 => formatter.write_str("; ask for a token that may do this"),
            _ if self.action.is_empty() => Ok(()),
            _ => write!(formatter, ". {}", self.action.trim_end_matches('.')),
        }
    }
}

impl ClientError {
    /// The HTTP status of an answer, where there was one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Problem(problem) => Some(problem.status),
            Self::Foreign { status, .. } => Some(status.as_u16()),
            _ => None,
        }
    }

    /// The stable code of the problem, where the server gave one.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Problem(problem) => Some(&problem.code),
            _ => None,
        }
    }
}

/// An answer that is not the API's.
pub(super) fn foreign(url: String, status: StatusCode, body: &[u8]) -> ClientError {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * EXCERPT_CHARS)]);
    let excerpt = text
        .chars()
        .filter(|one| !one.is_control())
        .take(EXCERPT_CHARS)
        .collect();
    ClientError::Foreign {
        url,
        status,
        excerpt,
    }
}
