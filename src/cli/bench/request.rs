//! Requests as bytes, made once: for each sending only the run and the keys are written over.

use onrecord_core::digest::Hash;

/// Digits of a frame's key.
const KEY_DIGITS: usize = 16;
/// How a key looks before it is written.
const NO_KEY: &str = "0000000000000000";
/// Letters of filler: text that neither JSON nor PostgreSQL writes in another way, and that does not
/// compress to nothing.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Text of so many bytes that looks random and is the same for the same `seed`.
pub(super) fn filler(seed: u64, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 32);
    let mut block = 0_u64;
    while text.len() < bytes {
        let digest = Hash::of(&[&seed.to_be_bytes(), &block.to_be_bytes()]);
        text.extend(
            digest
                .0
                .iter()
                .map(|byte| char::from(LETTERS[usize::from(byte & 63)])),
        );
        block += 1;
    }
    text.truncate(bytes);
    text
}

/// What a frame of a workload is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bytes of text in the body.
    pub body_bytes: usize,
    /// Bytes of text in the payload; 0 for none.
    pub payload_bytes: usize,
}

impl Shape {
    /// The frame's request, as JSON on one line.
    pub fn json(self, key: &str, seed: u64) -> String {
        let text = filler(seed, self.body_bytes);
        let payloads = match self.payload_bytes {
            0 => String::new(),
            bytes => {
                let text = filler(seed.wrapping_add(1), bytes);
                format!(r#","payloads":[{{"name":"content","text":"{text}"}}]"#)
            }
        };
        format!(
            r#"{{"kind":"observation","key":"{key}","body":{{"source":"onrecord bench","text":"{text}"}}{payloads}}}"#
        )
    }
}

/// Where requests go.
#[derive(Clone, Debug)]
pub(super) struct Destination {
    /// For the `Host` of requests.
    pub host: String,
    /// What stands before `/v1`; empty unless the server's address has a path.
    pub path: String,
    /// The token.
    pub token: String,
}

/// A request that is sent again and again, to one run or another, with keys that are never the same.
pub(super) struct Prepared {
    bytes: Vec<u8>,
    run_at: usize,
    keys_at: Vec<usize>,
    /// The next key; the upper half is the connection's.
    next: u64,
}

impl Prepared {
    /// Of `frames` frames; `connection` tells its keys from those of other connections.
    pub fn new(to: &Destination, shape: Shape, frames: usize, connection: u32) -> Self {
        let seed = u64::from(connection) << 32;
        let line = shape.json(NO_KEY, seed);
        let media = if frames == 1 {
            "application/json"
        } else {
            crate::client::NDJSON
        };
        // A batch's lines are all ended by a line feed, a lone frame is not.
        let body_bytes = if frames == 1 {
            line.len()
        } else {
            (line.len() + 1) * frames
        };
        let address = format!("POST {}/v1/runs/", to.path);
        let head = format!(
            "{address}{run}/frames HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: {media}\r\nContent-Length: {body_bytes}\r\n\r\n",
            to.host,
            to.token,
            run = "0".repeat(RUN_BYTES),
        );
        let key_in_line = line.find(NO_KEY).unwrap_or_default();
        let mut bytes = Vec::with_capacity(head.len() + body_bytes);
        bytes.extend_from_slice(head.as_bytes());
        let mut keys_at = Vec::with_capacity(frames);
        for _ in 0..frames {
            keys_at.push(bytes.len() + key_in_line);
            bytes.extend_from_slice(line.as_bytes());
            if frames > 1 {
                bytes.push(b'\n');
            }
        }
        Self {
            bytes,
            run_at: address.len(),
            keys_at,
            next: seed,
        }
    }

    /// The next request, for a run; the id has as many characters as all ids have.
    pub fn next(&mut self, run: &str) -> &[u8] {
        let place = &mut self.bytes[self.run_at..self.run_at + RUN_BYTES];
        place.copy_from_slice(run.as_bytes());
        for at in &self.keys_at {
            write_key(&mut self.bytes[*at..*at + KEY_DIGITS], self.next);
            self.next += 1;
        }
        &self.bytes
    }
}

/// Characters of a run's id.
const RUN_BYTES: usize = 26;

fn write_key(place: &mut [u8], mut key: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b"0123456789abcdef"[usize::try_from(key & 15).unwrap_or_default()];
        key >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn requests_are_whole_and_no_key_comes_twice() {
        let to = Destination {
            host: "h:1".to_owned(),
            path: String::new(),
            token: "t".to_owned(),
        };
        let shape = Shape {
            body_bytes: 40,
            payload_bytes: 100,
        };
        let run = "01M8N005FDHQ6P3YBYZVPD1PVM";
        let mut keys = BTreeSet::new();
        for (connection, frames) in [(0, 1), (1, 3)] {
            let mut prepared = Prepared::new(&to, shape, frames, connection);
            for _ in 0..20 {
                let request = String::from_utf8(prepared.next(run).to_vec()).unwrap();
                let (head, body) = request.split_once("\r\n\r\n").unwrap();
                assert!(head.starts_with(&format!("POST /v1/runs/{run}/frames HTTP/1.1\r\n")));
                assert!(head.ends_with(&format!("Content-Length: {}", body.len())));
                let lines: Vec<&str> = body.lines().collect();
                assert_eq!(lines.len(), frames);
                for line in lines {
                    let frame: serde_json::Value = serde_json::from_str(line).unwrap();
                    keys.insert(frame["key"].as_str().unwrap().to_owned());
                    assert_eq!(frame["body"]["text"].as_str().unwrap().len(), 40);
                    assert_eq!(frame["payloads"][0]["text"].as_str().unwrap().len(), 100);
                }
            }
        }
        assert_eq!(keys.len(), 20 + 60);
    }
}
