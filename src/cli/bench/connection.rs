//! One connection: the bytes of a request out, its answer in. Plain HTTP/1.1, kept alive.
//!
//! It shares the machine with the server that it measures, so it does as little as it can: it knows where
//! an answer ends and what its status is, and leaves the rest of the head alone.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::either::Either;

/// Room for an answer before it has to grow; a single frame's takes a few hundred bytes.
const INPUT_BYTES: usize = 16 * 1024;
/// An answer that is longer is none of an onrecord server.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// Members of an answer's head that are told apart; a server or proxy that sends more is refused.
const HEADERS: usize = 64;

/// Where a server listens.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(to),
            Self::Unix(path) => path.display().fmt(to),
        }
    }
}

/// Why there is no answer: whether the server has the frame, nobody knows.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The connection broke, or could not be made.
    #[error("{}", .0.kind())]
    Io(#[from] io::Error),
    /// The server closed it before the end of an answer.
    #[error("closed before the end of an answer")]
    Closed,
    /// What came is not HTTP/1.1 with a length.
    #[error("no HTTP answer")]
    NotHttp,
    /// The answer does not end.
    #[error("an answer of more than 64 MiB")]
    TooLong,
}

/// An answer.
pub(super) struct Answer<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The body, whole.
    pub body: &'a [u8],
    /// Whether the server closes the connection after it.
    pub closes: bool,
}

/// A connection to a server.
pub(super) struct Connection {
    stream: Either<TcpStream, UnixStream>,
    input: Vec<u8>,
    /// The body of an answer in chunks, put together.
    body: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub async fn open(place: &Place) -> Result<Self, Broken> {
        let stream = match place {
            Place::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Either::Left(stream)
            }
            Place::Unix(path) => Either::Right(UnixStream::connect(path).await?),
        };
        Ok(Self {
            stream,
            input: Vec::with_capacity(INPUT_BYTES),
            body: Vec::new(),
        })
    }

    /// Sends a request and reads its answer. After an error the connection is of no use.
    pub async fn ask(&mut self, request: &[u8]) -> Result<Answer<'_>, Broken> {
        self.input.clear();
        self.stream.write_all(request).await?;
        let head = loop {
            self.fill().await?;
            if let Some(head) = Head::read(&self.input)? {
                break head;
            }
        };
        let body = match head.length {
            Some(length) => {
                let end = head.bytes.checked_add(length).ok_or(Broken::TooLong)?;
                while self.input.len() < end {
                    self.fill().await?;
                }
                &self.input[head.bytes..end]
            }
            None => {
                self.chunks(head.bytes).await?;
                &self.body
            }
        };
        Ok(Answer {
            status: head.status,
            body,
            closes: head.closes,
        })
    }

    /// Reads chunks to the last one, from a place in the input on.
    async fn chunks(&mut self, mut at: usize) -> Result<(), Broken> {
        self.body.clear();
        loop {
            let size = httparse::parse_chunk_size(&self.input[at..]);
            let httparse::Status::Complete((start, size)) = size.map_err(|_| Broken::NotHttp)?
            else {
                self.fill().await?;
                continue;
            };
            let size = usize::try_from(size).map_err(|_| Broken::TooLong)?;
            let begin = at + start;
            let end = begin.checked_add(size).ok_or(Broken::TooLong)?;
            // A line end follows each chunk, also the empty last one: the server sends no trailers.
            while self.input.len() < end.saturating_add(2) {
                self.fill().await?;
            }
            self.body.extend_from_slice(&self.input[begin..end]);
            at = end + 2;
            if size == 0 {
                return Ok(());
            }
        }
    }

    async fn fill(&mut self) -> Result<(), Broken> {
        if self.input.len() > ANSWER_BYTES {
            return Err(Broken::TooLong);
        }
        self.input.reserve(INPUT_BYTES / 2);
        match self.stream.read_buf(&mut self.input).await? {
            0 => Err(Broken::Closed),
            _ => Ok(()),
        }
    }
}

/// What an answer's head says about where the answer ends.
struct Head {
    status: u16,
    /// Length of the head itself.
    bytes: usize,
    /// Length of the body; `None` where it comes in chunks.
    length: Option<usize>,
    closes: bool,
}

impl Head {
    /// `None` while it is not all there.
    fn read(input: &[u8]) -> Result<Option<Self>, Broken> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut answer = httparse::Response::new(&mut headers);
        let parsed = answer.parse(input).map_err(|_| Broken::NotHttp)?;
        let httparse::Status::Complete(bytes) = parsed else {
            return Ok(None);
        };
        let mut head = Self {
            status: answer.code.unwrap_or(0),
            bytes,
            length: None,
            closes: false,
        };
        let mut is_chunked = false;
        for header in answer.headers.iter() {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            if is("content-length") {
                let length = std::str::from_utf8(header.value).ok();
                let length = length.and_then(|length| length.trim().parse().ok());
                head.length = Some(length.ok_or(Broken::NotHttp)?);
            } else if is("transfer-encoding") {
                is_chunked = header.value.eq_ignore_ascii_case(b"chunked");
            } else if is("connection") {
                head.closes = header.value.eq_ignore_ascii_case(b"close");
            }
        }
        if head.length.is_some() == is_chunked {
            return Err(Broken::NotHttp);
        }
        Ok(Some(head))
    }
}

/// Frames that an answer acknowledges, of so many that were sent: those that were placed and are durable,
/// and no other. The rest is counted by status and code.
pub(super) fn acknowledged(
    answer: &Answer<'_>,
    sent: u64,
    refused: &mut BTreeMap<String, u64>,
) -> u64 {
    let mut refuse = |status: u16, body: &[u8], frames: u64| {
        let name = match code(body) {
            Some(code) => format!("{status} {code}"),
            None => status.to_string(),
        };
        *refused.entry(name).or_default() += frames;
    };
    match (answer.status, sent) {
        (201, 1) => return 1,
        // 200 to one frame is a retry's answer, and nothing here is sent twice.
        (200, 2..) => {}
        (other, _) => {
            refuse(other, answer.body, sent);
            return 0;
        }
    }
    let (mut acknowledged, mut others) = (0, 0);
    for line in answer.body.split(|byte| *byte == b'\n') {
        if line.starts_with(CREATED) {
            acknowledged += 1;
        } else if line.starts_with(b"{\"status\":") {
            others += 1;
            refuse(status(line), line, 1);
        } else if line.starts_with(b"{\"done\":") && code(line).is_some() {
            let unread = sent.saturating_sub(acknowledged + others);
            others += unread;
            refuse(200, line, unread);
        }
    }
    let unanswered = sent.saturating_sub(acknowledged + others);
    if unanswered > 0 {
        refuse(200, b"\"code\":\"(lines without an answer)\"", unanswered);
    }
    acknowledged
}

/// How the server's answer to a line begins that was placed.
const CREATED: &[u8] = b"{\"status\":201,";

/// The status of a line of an answer, 0 where it has none.
fn status(line: &[u8]) -> u16 {
    let digits = line
        .strip_prefix(b"{\"status\":")
        .and_then(|rest| rest.get(..3));
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// The code of a problem.
fn code(body: &[u8]) -> Option<String> {
    const BEFORE: &[u8] = b"\"code\":\"";
    let at = body.windows(BEFORE.len()).position(|part| part == BEFORE)?;
    let rest = &body[at + BEFORE.len()..];
    let end = rest.iter().position(|byte| *byte == b'"')?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Frames of so many that an answer acknowledges, and what else it says.
    fn counted(status: u16, sent: u64, body: &str) -> (u64, Vec<(String, u64)>) {
        let mut refused = BTreeMap::new();
        let answer = Answer {
            status,
            body: body.as_bytes(),
            closes: false,
        };
        let acknowledged = acknowledged(&answer, sent, &mut refused);
        (acknowledged, refused.into_iter().collect())
    }

    fn one(name: &str, count: u64) -> Vec<(String, u64)> {
        vec![(name.to_owned(), count)]
    }

    #[test]
    fn only_what_is_created_is_acknowledged() {
        assert_eq!(counted(201, 1, "{}"), (1, vec![]));
        assert_eq!(counted(200, 1, r#"{"run":"…"}"#), (0, one("200", 1)));
        let busy = r#"{"status":503,"code":"busy"}"#;
        assert_eq!(counted(503, 1, busy), (0, one("503 busy", 1)));
        assert_eq!(counted(503, 100, busy), (0, one("503 busy", 100)));
        assert_eq!(counted(502, 1, "<html>"), (0, one("502", 1)));
        // A batch is answered with 200 and lines, or not at all.
        assert_eq!(counted(201, 2, "{}"), (0, one("201", 2)));
    }

    #[test]
    fn every_line_of_a_batch_is_counted() {
        let created = "{\"status\":201,\"run\":\"…\"}\n";
        let conflict = "{\"status\":409,\"problem\":{\"status\":409,\"code\":\"key_conflict\"}}\n";
        let repeated = "{\"status\":200,\"run\":\"…\"}\n";
        let done = "{\"done\":3,\"failed\":1}\n";
        let whole = format!("{created}{conflict}{created}{done}");
        assert_eq!(counted(200, 3, &whole), (2, one("409 key_conflict", 1)));
        let twice = format!("{created}{repeated}{created}{done}");
        assert_eq!(counted(200, 3, &twice), (2, one("200", 1)));
        let cut = format!("{created}{created}");
        assert_eq!(
            counted(200, 3, &cut),
            (2, one("200 (lines without an answer)", 1))
        );
        let stopped = format!(
            "{created}{{\"done\":1,\"failed\":0,\"problem\":{{\"code\":\"body_broken\"}}}}\n"
        );
        assert_eq!(counted(200, 3, &stopped), (1, one("200 body_broken", 2)));
    }

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

    /// What is read of an answer that comes in these pieces.
    async fn read(pieces: &'static [&'static str]) -> Result<(u16, String), String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            // Closed over a request that nobody read, a connection is reset.
            stream.read_exact(&mut [0; REQUEST.len()]).await.unwrap();
            for piece in pieces {
                stream.write_all(piece.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        let mut connection = Connection::open(&Place::Tcp(address)).await.unwrap();
        match connection.ask(REQUEST).await {
            Ok(answer) => Ok((
                answer.status,
                String::from_utf8_lossy(answer.body).into_owned(),
            )),
            Err(broken) => Err(broken.to_string()),
        }
    }

    #[tokio::test]
    async fn answers_end_where_they_say() {
        let lengths = &[
            "HTTP/1.1 201 Created\r\nContent-",
            "Length: 4\r\n\r\nab",
            "cdef",
        ];
        assert_eq!(read(lengths).await, Ok((201, "abcd".to_owned())));
        let chunks = &[
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r",
            "\n1",
            "\r\nd\r\n0\r\n\r",
            "\n",
        ];
        assert_eq!(read(chunks).await, Ok((200, "abcd".to_owned())));
        let closed = Err("closed before the end of an answer".to_owned());
        assert_eq!(
            read(&["HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nab"]).await,
            closed
        );
        assert_eq!(
            read(&["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"]).await,
            closed
        );
        let none = Err("no HTTP answer".to_owned());
        assert_eq!(read(&["SSH-2.0-x\r\n\r\n"]).await, none);
        assert_eq!(read(&["HTTP/1.1 200 OK\r\n\r\nno length"]).await, none);
    }
}
