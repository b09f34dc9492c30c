//! Requests byte by byte, for what no client would send.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub struct Raw(pub TcpStream);

/// What came back until the server closed the connection.
#[derive(Debug)]
pub struct RawAnswer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Raw {
    pub async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        Self(stream)
    }

    /// Sends a request line and headers; an empty line is added.
    pub async fn head(&mut self, line: &str, token: &str, headers: &[&str]) {
        let mut head =
            format!("{line} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n");
        for header in headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        self.send(head.as_bytes()).await;
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.expect("the server takes it");
    }

    pub async fn chunk(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0
            .write_all(format!("{:x}\r\n", bytes.len()).as_bytes())
            .await?;
        self.0.write_all(bytes).await?;
        self.0.write_all(b"\r\n").await
    }

    /// The head of an answer, without its empty line.
    pub async fn read_head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await.expect("a head"));
        }
        String::from_utf8(head).expect("a head of text")
    }

    /// One answer of a known length; the connection may stay open.
    pub async fn answer(&mut self) -> RawAnswer {
        let head = self.read_head().await;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length = length.expect("a length").parse().expect("a number");
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.expect("a body");
        let status = head.split(' ').nth(1).expect("a status");
        RawAnswer {
            status: status.parse().expect("a number"),
            head,
            body,
        }
    }
}

impl RawAnswer {
    #[track_caller]
    pub fn problem(&self, status: u16, code: &str) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "{text}");
        assert!(self.head.contains(super::PROBLEM), "{}", self.head);
        let problem = serde_json::from_slice(&self.body).expect("a problem");
        super::assert_problem(&problem, status, code);
        problem
    }
}
