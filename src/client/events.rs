//! Server-sent events, as the HTML standard's section "Server-sent events" has them.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use reqwest::Response;

use super::{ANSWER_BYTES, Client, ClientError, Request};

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub id: Option<u64>,
    /// What it is.
    pub name: String,
    /// What it says.
    pub data: String,
}

/// A stream of events, read as they come.
pub struct Events {
    client: Client,
    chunks: BoxStream<'static, reqwest::Result<Bytes>>,
    rest: BytesMut,
    event: Event,
}

impl Client {
    /// Opens a stream of events. Silence for two minutes counts as a broken connection.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn events(&self, path: &str) -> Result<Events, ClientError> {
        let answer: Response = self.send(&Request::read(path)).await?;
        Ok(Events {
            client: self.clone(),
            chunks: answer.bytes_stream().boxed(),
            rest: BytesMut::new(),
            event: Event::default(),
        })
    }
}

impl Events {
    /// The next event; `None` where the server ended the stream. What is cut off in the middle is none.
    ///
    /// # Errors
    /// [`ClientError::Broken`].
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            while let Some(feed) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(feed + 1);
                if let Some(event) = take_line(&mut self.event, &line) {
                    return Ok(Some(event));
                }
            }
            let Some(chunk) = self.chunks.next().await else {
                return Ok(None);
            };
            self.rest
                .extend_from_slice(&chunk.map_err(|error| self.client.broken(&error))?);
            if self.rest.len() + self.event.data.len() > ANSWER_BYTES {
                return Err(self.client.broken_off("an event of more than 64 MiB"));
            }
        }
    }
}

/// Adds a line to an event, or ends it with an empty one.
fn take_line(event: &mut Event, line: &[u8]) -> Option<Event> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
    if line.is_empty() {
        // Without data it was a comment.
        return Some(std::mem::take(event)).filter(|event| !event.data.is_empty());
    }
    let (name, value) = line.split_once(':').unwrap_or((&line, ""));
    let value = value.strip_prefix(' ').unwrap_or(value);
    match name {
        "id" => event.id = value.parse().ok(),
        "event" => value.clone_into(&mut event.name),
        "data" => {
            if !event.data.is_empty() {
                event.data.push('\n');
            }
            event.data.push_str(value);
        }
        // Comments, and what a later standard may add.
        _ => {}
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_line_by_line() {
        let text = ":\n\nid: 3\nevent: frame\ndata: {\"a\":1}\n\nretry: 5\n\r\ndata:x\r\ndata: y\r\n\r\nid: 9\ndata: cut";
        let mut event = Event::default();
        let events: Vec<Event> = text
            .split_inclusive('\n')
            .filter_map(|line| take_line(&mut event, line.as_bytes()))
            .collect();
        let frame = Event {
            id: Some(3),
            name: "frame".to_owned(),
            data: "{\"a\":1}".to_owned(),
        };
        let other = Event {
            data: "x\ny".to_owned(),
            ..Event::default()
        };
        assert_eq!(events, [frame, other]);
    }
}
