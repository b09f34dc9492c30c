//! Many frames in one request: a result for each line, streamed both ways.

use crate::api::{Api, NDJSON, receipt};
use crate::running::Server;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use reqwest::{Body, Response};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;

/// A request whose lines are sent one at a time while its answers are read.
struct Dialogue {
    lines: mpsc::UnboundedSender<Bytes>,
    response: Response,
    buffer: Vec<u8>,
}

impl Dialogue {
    async fn begin(api: &Api, run: &str, first: &str) -> Self {
        let (lines, receiver) = mpsc::unbounded_channel::<Bytes>();
        lines.send(first.to_owned().into()).unwrap();
        let body = stream::unfold(receiver, |mut receiver| async move {
            receiver
                .recv()
                .await
                .map(|line| (Ok::<_, Infallible>(line), receiver))
        });
        let response = api
            .request(reqwest::Method::POST, &format!("/v1/runs/{run}/frames"))
            .header("content-type", NDJSON)
            .body(Body::wrap_stream(body))
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        Self {
            lines,
            response,
            buffer: Vec::new(),
        }
    }

    fn send(&self, text: &str) {
        self.lines.send(text.to_owned().into()).unwrap();
    }

    /// The next line of the answer, whether or not the body has ended.
    async fn answer(&mut self) -> Value {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                let line = std::mem::replace(&mut self.buffer, rest);
                return serde_json::from_slice(&line).unwrap();
            }
            let chunk = self.response.chunk().await.unwrap();
            self.buffer.extend_from_slice(&chunk.expect("another line"));
        }
    }

    async fn end(self) -> Vec<Value> {
        let Self {
            lines,
            response,
            mut buffer,
        } = self;
        drop(lines);
        let mut rest = response.bytes_stream();
        while let Some(chunk) = rest.next().await {
            buffer.extend_from_slice(&chunk.unwrap());
        }
        let text = String::from_utf8(buffer).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn frame(n: usize) -> String {
    json!({"kind": "observation", "key": format!("k{n}"), "body": {"n": n}}).to_string() + "\n"
}

#[tokio::test(flavor = "multi_thread")]
async fn results_come_before_the_body_ends() {
    let server = Server::start().await;
    let opened = server.api.any_run().await;
    let run = opened.run.to_string();
    let mut receipts = vec![opened];
    let mut dialogue = Dialogue::begin(&server.api, &run, &frame(0)).await;
    for n in 1..6 {
        let answer = dialogue.answer().await;
        assert_eq!(answer["status"], 201);
        receipts.push(receipt(&answer));
        // What is acknowledged is there while the stream goes on.
        server.audit(&run, &receipts).await;
        // Half a line is no frame yet.
        let line = frame(n);
        let (head, tail) = line.split_at(line.len() / 2);
        dialogue.send(head);
        assert_eq!(server.api.size(&run).await, receipts.len() as u64);
        dialogue.send(tail);
    }
    receipts.push(receipt(&dialogue.answer().await));
    assert_eq!(dialogue.end().await, [json!({"done": 6, "failed": 0})]);
    server.audit(&run, &receipts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_line_does_not_hinder_the_others() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run.to_string();
    let huge = json!({"kind": "observation", "body": {"x": "y".repeat(70_000)}}).to_string();
    let payload =
        json!({"kind": "observation", "payloads": [{"name": "p", "text": "y".repeat(300_000)}]});
    let lines = [
        ("first", frame(1), 201),
        ("an empty line", "\n".to_owned(), 0),
        ("garbage", "not json at all\n".to_owned(), 400),
        ("a carriage return", frame(2).replace('\n', "\r\n"), 201),
        ("only a carriage return", "\r\n".to_owned(), 0),
        ("no frame", "{\"kind\":\"nope\"}\n".to_owned(), 422),
        ("a list", "[]\n".to_owned(), 422),
        ("a huge frame", huge + "\n", 413),
        ("a long payload", payload.to_string() + "\n", 201),
        (
            "two on a line",
            frame(3).replace('\n', " ") + &frame(4),
            400,
        ),
        (
            "a dead link",
            "{\"kind\":\"observation\",\"links\":[{\"rel\":\"uses\",\"seq\":99}]}\n".to_owned(),
            422,
        ),
        (
            "a closed turn",
            "{\"kind\":\"observation\",\"turn\":3}\n".to_owned(),
            409,
        ),
        ("spaces", "   \n".to_owned(), 400),
        ("not UTF-8", String::new(), 400),
        ("the last has no end", frame(5).replace('\n', ""), 201),
    ];
    let mut body = Vec::new();
    for (name, line, _) in &lines {
        if *name == "not UTF-8" {
            body.extend_from_slice(b"{\"kind\":\"observation\",\"body\":{\"a\":\"\xff\"}}\n");
        } else {
            body.extend_from_slice(line.as_bytes());
        }
    }
    let answers = server.api.frames(&run, body).await;
    let expected: Vec<_> = lines.iter().filter(|(.., status)| *status > 0).collect();
    assert_eq!(answers.len(), expected.len() + 1);
    let mut receipts = Vec::new();
    for (answer, (name, _, status)) in answers.iter().zip(&expected) {
        assert_eq!(answer["status"], *status, "{name}: {answer}");
        if *status == 201 {
            receipts.push(receipt(answer));
        } else {
            let code = answer["problem"]["code"].as_str().unwrap();
            crate::api::assert_problem(&answer["problem"], *status, code);
        }
    }
    let failed = expected
        .iter()
        .filter(|(.., status)| *status != 201)
        .count();
    let last = answers.last().unwrap();
    assert_eq!(*last, json!({"done": expected.len(), "failed": failed}));
    assert_eq!(server.api.size(&run).await, receipts.len() as u64 + 1);
    server.audit(&run, &receipts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_lines_keep_their_order() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run.to_string();
    let count = 3_000;
    let body: String = (0..count).map(frame).collect();
    let answers = server.api.frames(&run, body).await;
    assert_eq!(answers.len(), count + 1);
    let receipts: Vec<_> = answers[..count].iter().map(receipt).collect();
    for (place, receipt) in receipts.iter().enumerate() {
        assert_eq!(receipt.seq, place as u64 + 1);
    }
    assert_eq!(answers[count], json!({"done": count, "failed": 0}));
    server
        .audit(&run, &[receipts[0].clone(), receipts[count - 1].clone()])
        .await;
    // A page of them.
    let path = format!("/v1/runs/{run}/frames?from=1000&limit=700");
    let page = server.api.get(&path).await.is(200);
    assert_eq!(page.header("onrecord-frames"), "700");
    let lines = page.lines();
    assert_eq!(lines.len(), 700);
    assert_eq!(
        (lines[0]["seq"].as_u64(), lines[699]["seq"].as_u64()),
        (Some(1000), Some(1699))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_without_end_ends_the_stream() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run.to_string();
    let mut body = frame(1).into_bytes();
    body.resize(
        body.len() + onrecord::record::intake::REQUEST_BYTES + (8 << 20),
        b' ',
    );
    body.extend_from_slice(frame(2).as_bytes());
    let answers = server.api.frames(&run, body).await;
    assert_eq!(answers[0]["status"], 201);
    let last = answers.last().unwrap();
    assert_eq!(last["problem"]["code"], "too_large");
    assert_eq!(last["done"], 1);
    assert_eq!(server.api.size(&run).await, 2);
    server.audit(&run, &[receipt(&answers[0])]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_stalls_is_ended_with_what_it_got() {
    let server = Server::start_as(|app| app.body_idle = Duration::from_millis(300)).await;
    let run = server.api.any_run().await.run.to_string();
    let mut dialogue = Dialogue::begin(&server.api, &run, &frame(1)).await;
    let first = receipt(&dialogue.answer().await);
    dialogue.send("{\"kind\":\"obs");
    let last = dialogue.answer().await;
    assert_eq!(last["problem"]["code"], "body_timeout");
    assert_eq!(
        (last["done"].as_u64(), last["failed"].as_u64()),
        (Some(1), Some(0))
    );
    assert_eq!(server.api.size(&run).await, 2);
    server.audit(&run, &[first]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_with_one_frame_does_not_go_with_many() {
    let server = Server::start().await;
    let opened = server.api.any_run().await;
    let path = format!("/v1/runs/{}/frames", opened.run);
    let head = format!("\"{}\"", opened.hash);
    let with_head = server
        .api
        .request(reqwest::Method::POST, &path)
        .header("content-type", NDJSON)
        .header("if-match", head)
        .body(frame(1));
    crate::api::Answer::of(with_head)
        .await
        .problem(400, "malformed_parameter");
    let signed = server
        .api
        .send(&format!("{path}?receipt=signed"), NDJSON, frame(1))
        .await;
    signed.problem(400, "malformed_parameter");
    let nowhere = "/v1/runs/01K7Q4Z8V2N5R3T6Y9B1C0D4E8/frames";
    server
        .api
        .send(nowhere, NDJSON, frame(1))
        .await
        .problem(404, "run_not_found");
    let empty = server.api.frames(&opened.run, "").await;
    assert_eq!(empty, [json!({"done": 0, "failed": 0})]);
    // A sealed run is told line by line, since retries still find their frames.
    let first = server.api.frames(&opened.run, frame(1)).await;
    server
        .api
        .post(&format!("/v1/runs/{}/seal", opened.run), &json!({}))
        .await
        .is(201);
    let answers = server.api.frames(&opened.run, frame(1) + &frame(2)).await;
    assert_eq!(receipt(&answers[0]), receipt(&first[0]));
    assert_eq!(answers[1]["problem"]["code"], "run_sealed");
    server
        .audit(&opened.run, &[opened.clone(), receipt(&first[0])])
        .await;
}
