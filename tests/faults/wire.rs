//! As much of PostgreSQL's protocol (version 3) as shows where its messages end and what they say.

use std::collections::HashMap;

/// Length of a message's tag and its length field.
const HEAD: usize = 5;

/// One message, with its tag and its length field.
pub struct Message(Vec<u8>);

impl Message {
    /// Takes the first message off a buffer, if it is there whole.
    pub fn take(buffer: &mut Vec<u8>) -> Option<Self> {
        let length = buffer.get(1..HEAD)?;
        let length = u32::from_be_bytes(length.try_into().expect("four bytes"));
        let end = 1 + usize::try_from(length).expect("a length");
        (buffer.len() >= end).then(|| Self(buffer.drain(..end).collect()))
    }

    pub fn tag(&self) -> u8 {
        self.0[0]
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// A message of a tag and what stands in it.
    pub fn new(tag: u8, body: &[u8]) -> Self {
        let length = u32::try_from(body.len() + 4).expect("a short message");
        let mut bytes = vec![tag];
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(body);
        Self(bytes)
    }

    /// An error of a severity and a code of five characters.
    pub fn error(severity: &str, code: &str) -> Self {
        let body = format!(
            "S{severity}\0V{severity}\0C{code}\0Mthe proxy of the tests answers {code}\0\0"
        );
        Self::new(b'E', body.as_bytes())
    }

    /// The texts that a message begins with, each of which a zero ends.
    fn texts(&self) -> impl Iterator<Item = String> {
        let body = self.0[HEAD..].split(|byte| *byte == 0);
        body.map(|text| String::from_utf8_lossy(text).into_owned())
    }

    /// The code in an error or a notice.
    pub fn code(&self) -> Option<String> {
        if !matches!(self.tag(), b'E' | b'N') {
            return None;
        }
        self.texts()
            .find_map(|field| field.strip_prefix('C').map(str::to_owned))
    }
}

/// What a message of the client makes the database do.
pub struct Command {
    /// The statement, in lower case.
    pub text: String,
    /// Whether frames are on disk once it is answered.
    pub commits_frames: bool,
}

impl Command {
    pub fn writes_frames(&self) -> bool {
        self.text.contains("insert into frames")
    }
}

/// What one connection has prepared, and which transaction it is in.
#[derive(Default)]
pub struct Session {
    statements: HashMap<String, String>,
    portals: HashMap<String, String>,
    in_transaction: bool,
    wrote: bool,
    /// Requests for a `ReadyForQuery`; the start of the connection is one.
    pub asked: usize,
    /// `ReadyForQuery`s that came.
    pub ready: usize,
}

impl Session {
    pub fn new() -> Self {
        Self {
            asked: 1,
            ..Self::default()
        }
    }

    /// Takes note of a message of the client; returns the command that it is, if it is one.
    pub fn hear_client(&mut self, message: &Message) -> Option<Command> {
        let mut texts = message.texts();
        let mut next = || texts.next().unwrap_or_default();
        match message.tag() {
            b'P' => {
                let (name, text) = (next(), next());
                self.statements.insert(name, text.to_lowercase());
                None
            }
            b'B' => {
                let (portal, name) = (next(), next());
                let text = self.statements.get(&name).cloned();
                self.portals.insert(portal, text.unwrap_or_default());
                None
            }
            b'S' => {
                self.asked += 1;
                None
            }
            b'E' => {
                let text = self.portals.get(&next()).cloned();
                Some(self.command(text.unwrap_or_default()))
            }
            b'Q' => {
                self.asked += 1;
                let text = next().to_lowercase();
                Some(self.command(text))
            }
            _ => None,
        }
    }

    fn command(&mut self, text: String) -> Command {
        let begins = |word: &str| text.trim_start().starts_with(word);
        let mut command = Command {
            commits_frames: false,
            text: text.clone(),
        };
        let writes = command.writes_frames();
        if begins("begin") || begins("start transaction") {
            self.in_transaction = true;
            self.wrote = false;
        } else if begins("commit") || begins("rollback") && !begins("rollback to") {
            command.commits_frames = begins("commit") && self.wrote;
            self.in_transaction = false;
        } else if writes {
            self.wrote = true;
            command.commits_frames = !self.in_transaction;
        }
        command
    }

    /// Takes note of a message of the database.
    pub fn hear_database(&mut self, message: &Message) {
        if message.tag() == b'Z' {
            self.ready += 1;
        }
    }
}
