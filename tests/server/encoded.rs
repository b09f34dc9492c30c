//! Encoded bodies: taken wherever a body is, and bombs among them stopped at the limit (case 18).

use crate::api::{Answer, Api, JSON, NDJSON, PROBLEM, receipt};
use crate::cases;
use crate::running::Server;
use flate2::Compression;
use flate2::write::GzEncoder;
use onrecord::http::body::Memory;
use onrecord::record::intake::REQUEST_BYTES;
use reqwest::Method;
use serde_json::{Value, json};
use std::io::Write as _;
use std::time::Duration;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

const MIB: usize = 1024 * 1024;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
    zstd_safe::compress(&mut out, bytes, 3).unwrap();
    out
}

/// A frame of zstd that says that it needs a window of so many bits, and does not say how long it is.
fn zstd_with_window(bytes: &[u8], log: u32) -> Vec<u8> {
    let mut context = CCtx::create();
    context.set_parameter(CParameter::WindowLog(log)).unwrap();
    context
        .set_parameter(CParameter::ChecksumFlag(true))
        .unwrap();
    let mut out = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
    {
        let mut output = OutBuffer::around(&mut out);
        let mut input = InBuffer::around(bytes);
        context.compress_stream(&mut output, &mut input).unwrap();
        assert_eq!(input.pos(), bytes.len());
        assert_eq!(context.end_stream(&mut output).unwrap(), 0);
    }
    out
}

type Encode = fn(&[u8]) -> Vec<u8>;

const BOTH: [(&str, Encode); 2] = [("gzip", gzip), ("zstd", zstd)];

async fn send(api: &Api, path: &str, media: &str, encoding: &str, body: Vec<u8>) -> Answer {
    let request = api.request(Method::POST, path);
    let request = request.header("content-type", media);
    Answer::of(request.header("content-encoding", encoding).body(body)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_address_that_takes_a_body_takes_it_encoded() {
    let server = Server::start().await;
    let api = &server.api;
    for (encoding, encode) in BOTH {
        let post = |path: String, media: &'static str, body: String| async move {
            send(api, &path, media, encoding, encode(body.as_bytes())).await
        };
        let opened = post(
            "/v1/runs".into(),
            JSON,
            json!({"session": {"agent": "a"}}).to_string(),
        )
        .await
        .is(201)
        .receipt();
        let (run, path) = (&opened.run, format!("/v1/runs/{}/frames", opened.run));
        let text = "a payload over a MiB ".repeat(100_000);
        let frame =
            json!({"kind": "observation", "key": "one", "payloads": [{"name": "p", "text": text}]});
        let single = post(path.clone(), JSON, frame.to_string())
            .await
            .is(201)
            .receipt();
        // The same request as it is: the encoding is none of its parts.
        assert_eq!(api.frame(run, &frame).await.is(200).receipt(), single);
        let lines: String = (0..2_000)
            .map(|n| format!("{{\"kind\":\"observation\",\"key\":\"k/{n}\"}}\r\n"))
            .collect();
        let answers = post(path, NDJSON, lines).await.is(200).lines();
        assert_eq!(answers.last(), Some(&json!({"done": 2_000, "failed": 0})));
        let sealed = post(format!("/v1/runs/{run}/seal"), JSON, json!({}).to_string()).await;
        assert_eq!(sealed.is(201).json()["size"], 2_003);
        let (_, bundle) = server.audit(run, &[opened.clone(), single]).await;

        let token = json!({"name": "t", "roles": ["agent"]}).to_string();
        post("/v1/tokens".into(), JSON, token).await.is(201);
        let tenant = json!({"name": "another"}).to_string();
        post("/v1/tenants".into(), JSON, tenant).await.is(201);
        let bytes = encode(&bundle.write());
        let report = send(
            api,
            "/v1/verify",
            "application/octet-stream",
            encoding,
            bytes,
        )
        .await;
        assert_eq!(report.is(200).json()["verdict"]["exit_code"], 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_encodings_are_refused_with_those_that_are_taken() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run;
    let path = format!("/v1/runs/{run}/frames");
    for encoding in [
        "br",
        "deflate",
        "gzip, identity",
        "gzip,gzip",
        "aws-chunked",
        "é",
    ] {
        for path in [&path, "/v1/runs", "/v1/tokens", "/v1/verify"] {
            let answer = send(api, path, JSON, encoding, b"{}".to_vec()).await;
            answer.problem(415, "content_encoding");
            assert_eq!(answer.header("accept-encoding"), "gzip, zstd");
        }
        let many = send(api, &path, NDJSON, encoding, b"{}".to_vec()).await;
        many.problem(415, "content_encoding");
    }
    let twice = api
        .request(Method::POST, &path)
        .header("content-type", JSON);
    let twice = twice
        .header("content-encoding", "gzip")
        .header("content-encoding", "zstd");
    Answer::of(twice.body("{}"))
        .await
        .problem(415, "content_encoding");
    // Another media type is another matter.
    let media = send(api, &path, "text/plain", "gzip", gzip(b"{}")).await;
    media.problem(415, "media_type");
    assert!(!media.headers.contains_key("accept-encoding"));
    assert_eq!(api.size(&run).await, 1);
    for (encoding, body) in [
        ("identity", b"{\"kind\":\"decision\"}".to_vec()),
        ("Identity", b"{\"kind\":\"decision\"}".to_vec()),
        ("", b"{\"kind\":\"decision\"}".to_vec()),
        ("GZIP", gzip(b"{\"kind\":\"decision\"}")),
        ("x-gzip", gzip(b"{\"kind\":\"decision\"}")),
        ("zStd,", zstd(b"{\"kind\":\"decision\"}")),
    ] {
        send(api, &path, JSON, encoding, body).await.is(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_and_frames_may_follow_each_other() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run;
    let path = format!("/v1/runs/{run}/frames");
    let (head, tail) = (b"{\"kind\":\"obser", b"vation\"}");
    for (encoding, encode) in BOTH {
        let members = [encode(head), encode(b""), encode(tail), encode(b"")].concat();
        send(&server.api, &path, JSON, encoding, members)
            .await
            .is(201);
    }
    // RFC 8878, 3.1.2: a frame to be skipped.
    let skipped = [
        zstd(head),
        b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc".to_vec(),
        zstd(tail),
    ]
    .concat();
    send(&server.api, &path, JSON, "zstd", skipped)
        .await
        .is(201);
    let largest = zstd_with_window(b"{\"kind\":\"decision\"}", 23);
    send(&server.api, &path, JSON, "zstd", largest)
        .await
        .is(201);
    assert_eq!(server.api.size(&run).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_decode_is_refused_and_says_why() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run.to_string();
    let frame = format!(
        "{{\"kind\":\"observation\",\"body\":{{\"t\":\"{}\"}}}}",
        "word ".repeat(99)
    );
    for (encoding, encode) in BOTH {
        let encoded = if encoding == "zstd" {
            zstd_with_window(frame.as_bytes(), 20)
        } else {
            encode(frame.as_bytes())
        };
        let (length, name) = (encoded.len(), encoding);
        let early = format!("the {name} of the body ends before its end");
        let corrupt = format!("the {name} of the body is corrupt");
        let behind =
            format!("behind the end of the {name} of the body is something that is no {name}");
        let flipped = |at: usize| {
            let mut bytes = encoded.clone();
            bytes[at] ^= 0x10;
            bytes
        };
        let mut defects: Vec<(Vec<u8>, &str)> = vec![
            (Vec::new(), &early),
            (frame.clone().into_bytes(), &corrupt),
            (flipped(0), &corrupt),
            // In the data, and in the sum at the end.
            (flipped(length / 2), &corrupt),
            (flipped(length - 5), &corrupt),
            ([&encoded[..], &[0; 512]].concat(), &behind),
            ([&encoded[..], frame.as_bytes()].concat(), &behind),
            ([&encoded[..], &encoded[..length - 1]].concat(), &early),
        ];
        defects.extend(
            [1, 3, 9, length / 2, length - 1].map(|cut| (encoded[..cut].to_vec(), &*early)),
        );
        for (index, (bytes, detail)) in defects.into_iter().enumerate() {
            // What begins with a whole member may be a line that is good; nobody sends a line after it.
            server
                .refused(&run, encoding, bytes, 400, "encoding_broken", detail, index)
                .await;
        }
    }
    let wide = zstd_with_window(frame.as_bytes(), 24);
    let detail = "the window of the zstd is larger than 8 MiB (RFC 9659)";
    server
        .refused(&run, "zstd", wide, 415, "content_encoding", detail, 99)
        .await;
    assert_eq!(server.api.size(&run).await, 1);
}

impl Server {
    /// Refused alone, and as the rest of a stream whose first line is good.
    #[expect(clippy::too_many_arguments, reason = "a row of a table")]
    async fn refused(
        &self,
        run: &str,
        encoding: &str,
        body: Vec<u8>,
        status: u16,
        code: &str,
        detail: &str,
        row: usize,
    ) {
        let path = format!("/v1/runs/{run}/frames");
        let alone = send(&self.api, &path, JSON, encoding, body.clone()).await;
        let problem = alone.problem(status, code);
        assert_eq!(problem["detail"], detail, "{encoding} {row}");
        let many = send(&self.api, &path, NDJSON, encoding, body).await.is(200);
        let lines = many.lines();
        let problem = &lines.last().unwrap()["problem"];
        assert_eq!(
            (&problem["code"], &problem["detail"]),
            (&json!(code), &json!(detail)),
            "{encoding} {row}"
        );
        assert_eq!(lines.len(), 1, "no line of it was whole: {lines:?}");
    }
}

/// So many bytes, of which a few stand for a MiB: members of zeros or spaces.
fn bomb(encode: Encode, bytes: usize, filling: u8) -> Vec<u8> {
    encode(&vec![filling; 16 * MIB]).repeat(bytes / (16 * MIB))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bomb_is_stopped_at_the_limit_and_others_are_served_meanwhile() {
    // Room for one body that is over a MiB: what is decoded and not counted would not be noticed.
    let server = Server::start_as(|app| app.body_memory = Memory::new(REQUEST_BYTES / MIB)).await;
    let api = server.api.clone();
    let run = api.any_run().await.run.to_string();
    let path = format!("/v1/runs/{run}/frames");
    let mut lengths = vec![(2 << 30, 0), (1 << 30, b' ')];
    if let Some(case) = cases::input("18-gzip-bomb") {
        let n =
            |index: usize| usize::try_from(case["cases"][index]["n"].as_u64().unwrap()).unwrap();
        lengths = vec![(n(0), 0), (n(1), b' ')];
    }
    let mut bombs = Vec::new();
    for (encoding, encode) in BOTH {
        for &(length, filling) in &lengths {
            let body = bomb(encode, length, filling);
            assert!(body.len() < REQUEST_BYTES / 16, "{} bytes", body.len());
            for media in [JSON, NDJSON] {
                let (api, path, body) = (api.clone(), path.clone(), body.clone());
                bombs.push(tokio::spawn(async move {
                    send(&api, &path, media, encoding, body).await
                }));
            }
        }
    }
    // Small requests need no room, and are served however many bombs inflate.
    for n in 0..20 {
        let frame = json!({"kind": "observation", "key": format!("small/{n}")});
        api.frame(&run, &frame).await.is(201);
    }
    let limit = REQUEST_BYTES.to_string();
    for bomb in bombs {
        let answer = bomb.await.unwrap();
        let problem = if answer.header("content-type") == PROBLEM {
            answer.problem(413, "too_large")
        } else {
            let lines = answer.is(200).lines();
            assert_eq!(lines.len(), 1);
            lines[0]["problem"].clone()
        };
        assert_eq!(problem["code"], "too_large");
        assert!(
            problem["detail"].as_str().unwrap().contains(&limit),
            "{problem}"
        );
    }
    assert_eq!(api.size(&run).await, 21);
}

#[tokio::test(flavor = "multi_thread")]
async fn small_limits_count_what_is_decoded_and_what_came() {
    let server = Server::start_as(|app| app.upload_bytes = MIB).await;
    let api = &server.api;
    let padded = |bytes: usize| {
        let mut body = json!({"name": "t", "roles": ["agent"]})
            .to_string()
            .into_bytes();
        body.resize(bytes, b' ');
        body
    };
    for (encoding, encode) in BOTH {
        let at = |bytes| send(api, "/v1/tokens", JSON, encoding, encode(&padded(bytes)));
        at(16_384).await.is(201);
        at(16_385).await.problem(413, "too_large");
        // What decodes to nothing could come for ever.
        let nothing = encode(b"").repeat(2_000);
        let answer = send(api, "/v1/tokens", JSON, encoding, nothing).await;
        answer.problem(413, "too_large");
        // The verifier has seen enough after the first block; the rest is not even decoded.
        let body = bomb(encode, 64 * MIB, 0);
        let answer = send(
            api,
            "/v1/verify",
            "application/octet-stream",
            encoding,
            body,
        )
        .await;
        if answer.status == 200 {
            assert_eq!(answer.json()["verdict"]["exit_code"], 3);
        } else {
            answer.problem(413, "too_large");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn encoded_lines_are_answered_as_they_come() {
    let server = Server::start_as(|app| app.body_idle = Duration::from_millis(300)).await;
    let run = server.api.any_run().await.run.to_string();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder
        .write_all(b"{\"kind\":\"observation\"}\n{\"kind\"")
        .unwrap();
    encoder.flush().unwrap();
    // It never ends: the line that is whole is answered, and then the pause is too long.
    let first = encoder.get_ref().clone();
    let body = futures_util::stream::once(async move { Ok::<_, std::io::Error>(first) });
    let body = futures_util::StreamExt::chain(body, futures_util::stream::pending());
    let path = format!("/v1/runs/{run}/frames");
    let request = server
        .api
        .request(Method::POST, &path)
        .header("content-type", NDJSON);
    let request = request.header("content-encoding", "gzip");
    let answer = Answer::of(request.body(reqwest::Body::wrap_stream(body))).await;
    let lines: Vec<Value> = answer.is(200).lines();
    assert_eq!(lines[1]["problem"]["code"], "body_timeout");
    server.audit(&run, &[receipt(&lines[0])]).await;
}
