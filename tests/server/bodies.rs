//! Bodies that are too long, do not come, or come in a form that is not taken (case 46).

use crate::api::raw::Raw;
use crate::api::{Answer, JSON};
use crate::running::Server;
use onrecord::record::intake::REQUEST_BYTES;
use onrecord_core::limits::PAYLOAD_BYTES;
use serde_json::json;
use std::time::Duration;

struct Wire {
    server: Server,
    run: String,
}

impl Wire {
    async fn new() -> Self {
        let server = Server::start_as(|app| app.body_idle = Duration::from_millis(300)).await;
        let run = server.api.any_run().await.run.to_string();
        Self { server, run }
    }

    async fn post(&self, headers: &[&str]) -> Raw {
        let mut raw = Raw::connect(self.server.api.address()).await;
        let mut all = vec!["content-type: application/json"];
        all.extend_from_slice(headers);
        let line = format!("POST /v1/runs/{}/frames", self.run);
        let token = self.server.api.token.clone().unwrap();
        raw.head(&line, &token, &all).await;
        raw
    }

    /// Nothing was stored and an ordinary append still works, on the same server.
    async fn end(self) {
        assert_eq!(self.server.api.size(&self.run).await, 1);
        let frame = json!({"kind": "observation"});
        let receipt = self
            .server
            .api
            .frame(&self.run, &frame)
            .await
            .is(201)
            .receipt();
        self.server.audit(&self.run, &[receipt]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_over_the_limit_is_refused_from_the_header() {
    let wire = Wire::new().await;
    let mut raw = wire
        .post(&[&format!("content-length: {}", REQUEST_BYTES + 1)])
        .await;
    // Refused before a byte of the body; who sends on all the same still gets to read the answer.
    let answer = raw.answer().await;
    let problem = answer.problem(413, "too_large");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains(&REQUEST_BYTES.to_string())
    );
    for _ in 0..64 {
        raw.send(&[b' '; 16 * 1024]).await;
    }
    wire.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_before_sending_is_told() {
    let wire = Wire::new().await;
    let expect = "expect: 100-continue";
    let length = format!("content-length: {}", REQUEST_BYTES + 1);
    let mut raw = wire.post(&[&length, expect]).await;
    raw.answer().await.problem(413, "too_large");
    let body = r#"{"kind":"observation","body":1}"#;
    let mut raw = wire
        .post(&[&format!("content-length: {}", body.len()), expect])
        .await;
    let head = raw.read_head().await;
    assert!(head.starts_with("HTTP/1.1 100 "), "{head}");
    raw.send(body.as_bytes()).await;
    raw.answer().await.problem(422, "json_not_object");
    wire.end().await;
}

/// Writes chunks until the server answers or hangs up; the answer comes while chunks are still sent.
async fn endless(raw: Raw, mebibytes: usize) -> Option<crate::api::raw::RawAnswer> {
    let (read, mut write) = raw.0.into_split();
    let writer = tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        let chunk = vec![b' '; 1024 * 1024];
        for _ in 0..mebibytes {
            let head = format!("{:x}\r\n", chunk.len());
            if write.write_all(head.as_bytes()).await.is_err()
                || write.write_all(&chunk).await.is_err()
                || write.write_all(b"\r\n").await.is_err()
            {
                break;
            }
        }
        let _ = write.write_all(b"0\r\n\r\n").await;
        write
    });
    let mut bytes = Vec::new();
    let mut read = read;
    use tokio::io::AsyncReadExt as _;
    // The connection ends, orderly or not, once the server has had enough.
    while let Ok(count) = read.read_buf(&mut bytes).await {
        if count == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        if body.ends_with('}') {
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            let answer = crate::api::raw::RawAnswer {
                status,
                head: head.to_owned(),
                body: body.as_bytes().to_vec(),
            };
            let _ = writer.await;
            return Some(answer);
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_over_the_limit_are_refused_and_endless_ones_cut() {
    let wire = Wire::new().await;
    let limit_mib = REQUEST_BYTES / (1024 * 1024);
    for mebibytes in [limit_mib + 1, 8 * limit_mib] {
        let raw = wire.post(&["transfer-encoding: chunked"]).await;
        let answer = endless(raw, mebibytes).await.expect("an answer");
        answer.problem(413, "too_large");
    }
    wire.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stops_coming_times_out() {
    let wire = Wire::new().await;
    for headers in ["content-length: 10", "transfer-encoding: chunked"] {
        let mut raw = wire.post(&[headers]).await;
        if headers.ends_with("chunked") {
            raw.chunk(b"{\"kin").await.unwrap();
        } else {
            raw.send(b"{\"kin").await;
        }
        raw.answer().await.problem(408, "body_timeout");
    }
    // A body that breaks off is no shorter body.
    let body = br#"{"kind":"observation"}"#;
    let mut raw = wire
        .post(&[&format!("content-length: {}", body.len() + 1)])
        .await;
    raw.send(body).await;
    drop(raw);
    let mut raw = wire.post(&["transfer-encoding: chunked"]).await;
    raw.chunk(body).await.unwrap();
    drop(raw);
    wire.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_media_are_not_taken() {
    let wire = Wire::new().await;
    let api = &wire.server.api;
    let path = format!("/v1/runs/{}/frames", wire.run);
    let body = json!({"kind": "observation"});
    for media in [
        "text/plain",
        "application/jsonp",
        "multipart/form-data",
        "application/cbor",
    ] {
        for path in [&path, "/v1/runs"] {
            let answer = api.send(path, media, body.to_string()).await;
            answer.problem(415, "media_type");
        }
    }
    let bare = api
        .request(reqwest::Method::POST, &path)
        .body(body.to_string());
    Answer::of(bare).await.problem(415, "media_type");
    wire.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_has_sixteen_mebibytes_and_no_more() {
    let server = Server::start().await;
    let opened = server.api.any_run().await;
    let path = format!("/v1/runs/{}/frames", opened.run);
    let post = |length: usize| {
        let body = format!(
            r#"{{"kind":"observation","payloads":[{{"name":"p","text":"{}"}}]}}"#,
            "x".repeat(length)
        );
        server.api.send(&path, JSON, body)
    };
    let problem = post(PAYLOAD_BYTES + 1)
        .await
        .problem(413, "payload_too_large");
    assert_eq!(problem["pointer"], "/payloads/0/text");
    assert_eq!(server.api.size(&opened.run).await, 1);
    let largest = post(PAYLOAD_BYTES).await.is(201).receipt();
    server.audit(&opened.run, &[opened.clone(), largest]).await;
}
