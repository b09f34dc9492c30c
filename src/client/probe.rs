//! One look at a server, for whoever wants to know how it is: no retries, and refusals are answers.

use reqwest::StatusCode;
use reqwest::header::DATE;
use serde_json::Value;

use super::{Client, ClientError};

/// What a server answered.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The status.
    pub status: StatusCode,
    /// The server's clock, as it says in `Date` (RFC 9110), to the second.
    pub date: Option<String>,
    /// The answer, `null` where it is no JSON.
    pub body: Value,
}

impl Client {
    /// Reads an address once.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] and [`ClientError::Broken`].
    pub async fn probe(&self, path: &str) -> Result<Probe, ClientError> {
        let answer = self.http.get(self.address(path)).send().await;
        let answer = answer.map_err(|error| self.lost(error))?;
        let status = answer.status();
        let date = answer.headers().get(DATE);
        let date = date.and_then(|date| date.to_str().ok()).map(str::to_owned);
        let body = self.bytes(answer).await?;
        Ok(Probe {
            status,
            date,
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        })
    }
}
