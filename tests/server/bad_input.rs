//! Bad input: a clear refusal that says where and what to do, nothing stored, and the server serves on.

use crate::api::{Answer, JSON, PROBLEM};
use crate::cases;
use crate::running::Server;
use onrecord_core::receipt::Receipt;
use serde_json::{Value, json};

/// A run that bad input is tried on.
struct Target {
    server: Server,
    run: String,
    receipts: Vec<Receipt>,
}

impl Target {
    async fn new() -> Self {
        let server = Server::start().await;
        let opened = server.api.any_run().await;
        Self {
            server,
            run: opened.run.to_string(),
            receipts: vec![opened],
        }
    }

    async fn post(&self, body: impl Into<Vec<u8>>) -> Answer {
        let path = format!("/v1/runs/{}/frames", self.run);
        self.server.api.send(&path, JSON, body.into()).await
    }

    /// The body is refused with this code, and for an empty code with any; nothing is stored.
    async fn refused(&self, body: impl Into<Vec<u8>>, code: &str) -> Value {
        let body = body.into();
        let shown = String::from_utf8_lossy(&body[..body.len().min(120)]).into_owned();
        let answer = self.post(body).await;
        assert!(
            (400..500).contains(&answer.status),
            "{} for {shown}",
            answer.status
        );
        assert_eq!(answer.header("content-type"), PROBLEM, "{shown}");
        let problem = answer.json();
        if !code.is_empty() {
            assert_eq!(problem["code"], code, "{shown}: {problem}");
        }
        crate::api::assert_problem(&problem, answer.status, problem["code"].as_str().unwrap());
        assert_eq!(
            self.server.api.size(&self.run).await,
            self.receipts.len() as u64,
            "{shown}"
        );
        problem
    }

    async fn stored(&mut self, body: impl Into<Vec<u8>>) -> Value {
        let receipt = self.post(body).await.is(201).receipt();
        let path = format!("/v1/runs/{}/frames/{}", self.run, receipt.seq);
        self.receipts.push(receipt);
        self.server.api.get(&path).await.is(200).json()
    }

    /// Everything that was accepted is there, and the server lives.
    async fn end(self) -> crate::api::bundle::Bundle {
        self.server.alive().await;
        self.server.audit(&self.run, &self.receipts).await.1
    }
}

fn with_body(body: &str) -> String {
    format!(r#"{{"kind":"observation","body":{body}}}"#)
}

fn with_payload(json: &str) -> String {
    format!(r#"{{"kind":"observation","payloads":[{{"name":"p","json":{json}}}]}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn case_01_integers_that_doubles_round() {
    let mut target = Target::new().await;
    let ours = [
        r#"{"args":{"id":7311900463127700003}}"#,
        r#"{"args":{"id":9007199254740993}}"#,
        r#"{"args":{"id":-9007199254740992}}"#,
        r#"{"args":{"wei":27182818284590452353}}"#,
        r#"{"args":{"a":18446744073709551616}}"#,
        r#"{"args":{"a":18446744073709551617}}"#,
        r#"{"args":{"a":2000000000000000300}}"#,
        r#"{"args":{"a":1e20}}"#,
        r#"{"args":{"a":"9007199254740993"}}"#,
        r#"{"args":{"a":9007199254740991}}"#,
    ];
    for body in cases::with_ours(&ours, "01-big-integers", "bodies") {
        let value: Value = serde_json::from_str(&body).unwrap();
        let (name, number) = value["args"].as_object().unwrap().iter().next().unwrap();
        if number.is_string() || *number == 9_007_199_254_740_991_i64 {
            assert_eq!(target.stored(with_body(&body)).await["body"], value);
            continue;
        }
        let problem = target.refused(with_body(&body), "json_integer_range").await;
        assert_eq!(problem["pointer"], format!("/body/args/{name}"));
        // A payload has a way out, and the refusal tells it.
        let problem = target
            .refused(with_payload(&body), "json_integer_range")
            .await;
        assert_eq!(problem["pointer"], format!("/payloads/0/json/args/{name}"));
        assert!(
            problem["detail"].as_str().unwrap().contains("text"),
            "{problem}"
        );
        let text = json!({"kind": "observation", "payloads": [{"name": "p", "text": body}]});
        target.stored(text.to_string()).await;
    }
    target
        .refused(with_body(r#"{"a":1e999}"#), "json_number_overflow")
        .await;
    let bundle = target.end().await;
    let payload = ours[0].as_bytes();
    assert!(
        bundle.0.iter().any(|(_, bytes)| bytes == payload),
        "the digits are kept"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn case_03_halves_of_characters() {
    let mut target = Target::new().await;
    let ours = [
        r#"{"output":"ok \ud83d"}"#,
        r#"{"output":"\udc00 tail"}"#,
        r#"{"\ud800":1}"#,
        r#"{"output":"\ude00\ud83d"}"#,
        r#"{"output":"\ud83d\ude00 fine"}"#,
    ];
    for body in cases::with_ours(&ours, "03-lone-surrogates", "bodies") {
        if body.contains("fine") {
            let frame = target.stored(with_body(&body)).await;
            assert_eq!(frame["body"]["output"], "\u{1f600} fine");
            continue;
        }
        let problem = target
            .refused(with_body(&body), "json_lone_surrogate")
            .await;
        assert!(
            problem["pointer"].as_str().unwrap().starts_with("/body"),
            "{problem}"
        );
        target
            .refused(with_payload(&body), "json_lone_surrogate")
            .await;
    }
    for raw in [
        &b"{\"output\":\"\xed\xa0\xbd\"}"[..],
        b"{\"output\":\"\xff\"}",
    ] {
        let mut body = br#"{"kind":"observation","body":"#.to_vec();
        body.extend_from_slice(raw);
        body.push(b'}');
        let problem = target.refused(body, "json_utf8").await;
        assert_eq!(problem["status"], 400);
    }
    target
        .refused(with_body("{\"a\":\"\u{fffe}\"}"), "json_noncharacter")
        .await;
    target
        .refused(format!("\u{feff}{}", with_body("{}")), "json_bom")
        .await;
    target.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_04_the_character_that_postgres_has_not() {
    let mut target = Target::new().await;
    let ours = [
        r#"{"output":"a\u0000b"}"#,
        r#"{"k\u0000ey":1}"#,
        r#"{"output":"the six letters \\u0000 as text"}"#,
        r#"{"session_id":"s\u00001"}"#,
    ];
    for body in cases::with_ours(&ours, "04-nul-in-text", "bodies") {
        let value: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(target.stored(with_body(&body)).await["body"], value);
        target.stored(with_payload(&body)).await;
    }
    let text = json!({"kind": "observation", "payloads": [{"name": "p", "text": "nul \0 nul"}]});
    target.stored(text.to_string()).await;
    // Where it would be an identifier it is refused, or kept and not searched for.
    target
        .refused(
            r#"{"kind":"observation","key":"a\u0000b"}"#,
            "malformed_member",
        )
        .await;
    let actor = r#"{"kind":"observation","actor":{"type":"agent","id":"a\u0000b"}}"#;
    let answer = target.post(actor).await;
    assert!(answer.status < 500, "{}", answer.text());
    target
        .receipts
        .extend((answer.status == 201).then(|| answer.receipt()));
    let api = &target.server.api;
    let open = r#"{"session":{"agent":"a\u0000b"}}"#;
    let other = api.send("/v1/runs", JSON, open).await.is(201).receipt();
    target
        .server
        .audit(&other.run, std::slice::from_ref(&other))
        .await;
    for path in [
        "/v1/runs?agent=a%00b",
        "/v1/runs/%00",
        "/v1/runs?status=%00",
    ] {
        api.get(path).await.problem(400, "malformed_parameter");
    }
    api.delete("/v1/tokens/%00")
        .await
        .problem(404, "token_not_found");
    let token = json!({"name": "a\0b", "roles": ["agent"]});
    api.post("/v1/tokens", &token)
        .await
        .problem(422, "malformed_member");
    let bundle = target.end().await;
    assert!(bundle.0.iter().any(|(_, bytes)| bytes == b"nul \0 nul"));
}

#[tokio::test(flavor = "multi_thread")]
async fn case_07_nesting() {
    let mut target = Target::new().await;
    let arrays = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    // The frame is level 1 and its body 2, of 32.
    target
        .stored(with_body(&format!("{{\"v\":{}}}", arrays(30))))
        .await;
    target.stored(with_body(&objects(31))).await;
    target
        .refused(
            with_body(&format!("{{\"v\":{}}}", arrays(31))),
            "json_depth",
        )
        .await;
    let problem = target.refused(with_body(&objects(32)), "json_depth").await;
    assert!(
        problem["detail"].as_str().unwrap().contains("32"),
        "the limit is named: {problem}"
    );
    for depth in [100, 129, 1_000, 30_000] {
        target.refused(with_body(&objects(depth)), "").await;
        target.refused(with_body(&arrays(depth)), "").await;
        target
            .refused(with_payload(&objects(depth)), "json_depth")
            .await;
        target.refused(arrays(depth), "").await;
    }
    for open in ["[", "{\"a\":", "{\"kind\":"] {
        target.refused(open.repeat(200_000), "").await;
        target
            .refused(with_payload(&open.repeat(200_000)), "")
            .await;
    }
    // JSON in JSON in JSON is text.
    let mut text = "x".to_owned();
    for _ in 0..14 {
        text = serde_json::to_string(&text).unwrap();
    }
    let nested = json!({"kind": "observation", "payloads": [{"name": "p", "text": text}]});
    target.stored(nested.to_string()).await;
    target.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_09_names_that_look_the_same() {
    let mut target = Target::new().await;
    let ours = [
        r#"{"caf\u00e9":1,"cafe\u0301":2}"#,
        r#"{"t":"\ud83d\udc69\u200d\ud83d\udcbb \ud83c\uddeb\ud83c\uddee \ufeff \u202e"}"#,
        r#"{"\ufb33":1,"\ud83d\ude00":2}"#,
    ];
    for body in cases::with_ours(&ours, "09-nfc-nfd-distinct", "bodies") {
        let value: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(target.stored(with_body(&body)).await["body"], value);
    }
    // Members are ordered by UTF-16: U+FB33 after the surrogates of U+1F600.
    let path = format!("/v1/runs/{}/frames/3", target.run);
    let bytes = target.server.api.get(&path).await.text();
    assert!(
        bytes.find('\u{1f600}').unwrap() < bytes.find('\u{fb33}').unwrap(),
        "{bytes}"
    );
    target
        .refused(
            r#"{"kind":"observation","key":"caf\u00e9"}"#,
            "malformed_member",
        )
        .await;
    let api = &target.server.api;
    let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}");
    let one = api.open(&json!({"session": {"agent": composed}})).await.run;
    let two = api
        .open(&json!({"session": {"agent": decomposed}}))
        .await
        .run;
    for (agent, run) in [("caf%C3%A9", one), ("cafe%CC%81", two)] {
        let listed = api
            .get(&format!("/v1/runs?agent={agent}"))
            .await
            .is(200)
            .json();
        let runs = listed["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 1);
        assert_eq!(runs[0]["run"], run.to_string());
    }
    target.end().await;
}

/// Random-looking text that no index compresses.
fn noise(length: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(alphabet[(state >> 58) as usize])
    };
    (0..length).map(next).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn case_22_identifiers_that_no_index_holds() {
    let mut target = Target::new().await;
    let api = target.server.api.clone();
    for length in [201, 255, 256, 1_024, 2_700, 9_000, 60_000] {
        let text = noise(length);
        let frame = |member: &str, value: Value| {
            let mut frame = json!({"kind": "observation"});
            frame[member] = value;
            frame.to_string()
        };
        let key = target
            .refused(frame("key", json!(text)), "malformed_member")
            .await;
        assert_eq!(key["pointer"], "/key");
        let actor = json!({"type": "agent", "id": text});
        let actor = target
            .refused(frame("actor", actor), "malformed_member")
            .await;
        assert_eq!(actor["pointer"], "/actor");
        let payload = json!([{"name": text.to_lowercase(), "text": ""}]);
        let payload = target
            .refused(frame("payloads", payload), "malformed_member")
            .await;
        assert_eq!(payload["pointer"], "/payloads/0/name");
        let media = json!([{"name": "p", "text": "", "media": text}]);
        let media = target
            .refused(frame("payloads", media), "malformed_member")
            .await;
        assert_eq!(media["pointer"], "/payloads/0/media");
        let link = json!([{"rel": "uses", "key": text}]);
        target.refused(frame("links", link), "").await;
        let agent = json!({"session": {"agent": text}});
        let agent = api
            .post("/v1/runs", &agent)
            .await
            .problem(422, "malformed_member");
        assert_eq!(agent["pointer"], "/session/agent");
        let token = json!({"name": text, "roles": ["agent"]});
        let answer = api.post("/v1/tokens", &token).await;
        match length {
            60_000 => answer.problem(413, "too_large"),
            _ => answer.problem(422, "malformed_member"),
        };
        api.get(&format!("/v1/runs/{text}"))
            .await
            .problem(400, "malformed_parameter");
        api.get(&format!("/v1/runs?agent={text}")).await.is(200);
        api.delete(&format!("/v1/tokens/{text}"))
            .await
            .problem(404, "token_not_found");
        api.with(text)
            .get("/v1/runs")
            .await
            .problem(401, "unauthenticated");
    }
    // The longest that there may be, and characters of four bytes.
    let key = noise(200);
    let longest = json!({"kind": "observation", "key": key, "actor": {"type": "agent", "id": "\u{1f600}".repeat(200)}});
    target.stored(longest.to_string()).await;
    let again = target.post(longest.to_string()).await.is(200);
    assert_eq!(again.receipt(), *target.receipts.last().unwrap());
    let agent = "\u{1f600}".repeat(200);
    api.open(&json!({"session": {"agent": agent}, "key": key}))
        .await;
    let query = "%F0%9F%98%80".repeat(200);
    let listed = api
        .get(&format!("/v1/runs?agent={query}"))
        .await
        .is(200)
        .json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
    // A call's key may be as long, but then the result's does not fit and says so.
    let call = json!({"kind": "tool_call", "key": noise(200), "result": {}});
    target.refused(call.to_string(), "malformed_member").await;
    // What is in no index has the limit of the frame.
    target
        .stored(with_body(&json!({"name": noise(10_000)}).to_string()))
        .await;
    target
        .refused(
            with_body(&json!({"tag": noise(100_000)}).to_string()),
            "too_large",
        )
        .await;
    let body = json!({"tag": noise(65_300)}).to_string();
    target.refused(with_body(&body), "frame_too_large").await;
    target.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_35_bytes_that_are_no_text() {
    let mut target = Target::new().await;
    let mut outputs: Vec<Vec<u8>> = vec![
        vec![0xf0],
        vec![0xff, 0xfe, 0, 0x41],
        vec![0xc4, 0xe3, 0xba, 0xc3],
        Vec::new(),
        (0..=255).collect(),
    ];
    if let Some(input) = cases::input("35-binary-tool-output") {
        for hex in input["outputs_hex"].as_array().unwrap() {
            let hex = hex.as_str().unwrap();
            let mut bytes = vec![0; hex.len() / 2];
            assert!(onrecord_core::digest::unhex(hex, &mut bytes));
            outputs.push(bytes);
        }
    }
    use base64::Engine as _;
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    for bytes in &outputs {
        let frame = json!({"kind": "observation",
            "payloads": [{"name": "output", "media": "application/octet-stream", "base64": encode(bytes)}]});
        target.stored(frame.to_string()).await;
        // As text they are refused, not replaced.
        if std::str::from_utf8(bytes).is_err() {
            let mut body = br#"{"kind":"observation","payloads":[{"name":"p","text":""#.to_vec();
            body.extend(bytes.iter().filter(|byte| **byte >= 0x80));
            body.extend_from_slice(br#""}]}"#);
            target.refused(body, "json_utf8").await;
        }
    }
    for wrong in ["/w", "/w==\n", "_w==", "/x==", "/w=", "%%%%"] {
        let frame = json!({"kind": "observation", "payloads": [{"name": "p", "base64": wrong}]});
        let problem = target.refused(frame.to_string(), "malformed_member").await;
        assert_eq!(problem["pointer"], "/payloads/0/base64", "{wrong:?}");
    }
    let bundle = target.end().await;
    for bytes in &outputs {
        assert!(
            bundle.0.iter().any(|(_, member)| member == bytes),
            "{bytes:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_are_none_or_not_the_writers() {
    let target = Target::new().await;
    for (body, code, pointer) in [
        ("", "json_syntax", ""),
        ("null", "json_not_object", ""),
        ("{}", "missing_member", ""),
        (r#"{"kind":"observation"} x"#, "json_syntax", ""),
        (
            r#"{"kind":"observation","kind":"observation"}"#,
            "json_duplicate_key",
            "/kind",
        ),
        (
            r#"{"kind":"observation","body":{"a":1,"\u0061":2}}"#,
            "json_duplicate_key",
            "/body/a",
        ),
        (r#"{"kind":"thought"}"#, "malformed_member", "/kind"),
        (r#"{"kind":"session"}"#, "malformed_member", "/kind"),
        (r#"{"kind":7}"#, "malformed_member", "/kind"),
        (
            r#"{"kind":"observation","seq":1}"#,
            "unknown_member",
            "/seq",
        ),
        (
            r#"{"kind":"observation","prev":"00"}"#,
            "unknown_member",
            "/prev",
        ),
        (
            r#"{"kind":"observation","at":"2026-08-09T11:00:00.000000Z"}"#,
            "unknown_member",
            "/at",
        ),
        (
            r#"{"kind":"observation","a/b~c":1}"#,
            "unknown_member",
            "/a~1b~0c",
        ),
        (
            r#"{"kind":"observation","result":{}}"#,
            "unknown_member",
            "/result",
        ),
        (
            r#"{"kind":"tool_call","result":{"kind":"tool_result"}}"#,
            "unknown_member",
            "/result/kind",
        ),
        (
            r#"{"kind":"observation","body":[]}"#,
            "json_not_object",
            "/body",
        ),
        (
            r#"{"kind":"observation","turn":0}"#,
            "malformed_member",
            "/turn",
        ),
        (
            r#"{"kind":"observation","turn":-1}"#,
            "malformed_member",
            "/turn",
        ),
        (
            r#"{"kind":"observation","turn":"1"}"#,
            "malformed_member",
            "/turn",
        ),
        (
            r#"{"kind":"turn","turn":null}"#,
            "malformed_member",
            "/turn",
        ),
        (
            r#"{"kind":"turn_end","turn":null}"#,
            "malformed_member",
            "/turn",
        ),
        (
            r#"{"kind":"session_end","turn":1}"#,
            "malformed_member",
            "/turn",
        ),
        (
            r#"{"kind":"observation","occurred_at":"yesterday"}"#,
            "malformed_member",
            "/occurred_at",
        ),
        (
            r#"{"kind":"observation","occurred_at":"2026-08-09T11:00:00.0000001Z"}"#,
            "malformed_member",
            "/occurred_at",
        ),
        (
            r#"{"kind":"observation","actor":{"type":"robot","id":"x"}}"#,
            "malformed_member",
            "/actor",
        ),
        (
            r#"{"kind":"observation","actor":{"type":"agent","id":""}}"#,
            "malformed_member",
            "/actor",
        ),
        (
            r#"{"kind":"observation","actor":{"type":"agent","id":"x","keyid":"00"}}"#,
            "malformed_member",
            "/actor",
        ),
        (
            r#"{"kind":"observation","actor":["x","agent"]}"#,
            "malformed_member",
            "/actor",
        ),
        (
            r#"{"kind":"observation","links":[["uses",0]]}"#,
            "malformed_member",
            "/links/0",
        ),
        (
            r#"{"kind":"observation","trace":["b7ad6b7169203331","0af7651916cd43dd8448eb211c80319c"]}"#,
            "malformed_member",
            "/trace",
        ),
        (
            r#"{"kind":"observation","payloads":[{"name":"p"}]}"#,
            "missing_member",
            "/payloads/0",
        ),
        (
            r#"{"kind":"observation","payloads":[{"text":""}]}"#,
            "missing_member",
            "/payloads/0",
        ),
        (
            r#"{"kind":"observation","payloads":[{"name":"p","text":"","json":1}]}"#,
            "malformed_member",
            "/payloads/0/json",
        ),
        (
            r#"{"kind":"observation","payloads":[{"name":"P","text":""}]}"#,
            "malformed_member",
            "/payloads/0/name",
        ),
        (
            r#"{"kind":"observation","payloads":[{"name":"p","text":"","tier":4}]}"#,
            "malformed_member",
            "/payloads/0/tier",
        ),
        (
            r#"{"kind":"observation","payloads":[{"name":"p","text":"","commit":"00"}]}"#,
            "malformed_member",
            "/payloads/0/commit",
        ),
        (
            r#"{"kind":"observation","payloads":[{"name":"p","text":"1"},{"name":"p","text":"2"}]}"#,
            "malformed_member",
            "/payloads/1/name",
        ),
        (
            r#"{"kind":"observation","links":[{"rel":"uses","seq":1}]}"#,
            "link_not_found",
            "/links/0",
        ),
        (
            r#"{"kind":"observation","links":[{"rel":"uses","key":"nobody"}]}"#,
            "link_not_found",
            "/links/0",
        ),
        (
            r#"{"kind":"observation","links":[{"rel":"likes","seq":0}]}"#,
            "malformed_member",
            "/links/0",
        ),
        (
            r#"{"kind":"observation","links":[{"rel":"uses"}]}"#,
            "malformed_member",
            "/links/0",
        ),
        (
            r#"{"kind":"observation","trace":{"trace_id":"00000000000000000000000000000000","span_id":"b7ad6b7169203331"}}"#,
            "malformed_member",
            "/trace",
        ),
    ] {
        let problem = target.refused(body, code).await;
        assert_eq!(problem["pointer"], pointer, "{body}: {problem}");
    }
    for (body, code) in [
        (
            r#"{"kind":"outcome","body":{"status":"splendid"}}"#,
            "malformed_member",
        ),
        (r#"{"kind":"outcome"}"#, "malformed_member"),
        (r#"{"kind":"turn_end"}"#, "turn_not_open"),
        (r#"{"kind":"observation","turn":1}"#, "turn_not_open"),
        (r#"{"kind":"turn","turn":2}"#, "turn_number"),
    ] {
        target.refused(body, code).await;
    }
    let api = &target.server.api;
    for (body, pointer) in [
        (json!({}), ""),
        (json!({"session": {"run_no": 1}}), "/session/run_no"),
        (json!({"session": {"nonce": "0"}}), "/session/nonce"),
        (
            json!({"session": {"suite": "onrecord-v1"}}),
            "/session/suite",
        ),
        (json!({"session": {"ledger": "x/t/y"}}), "/session/ledger"),
        (json!({"session": {}, "kind": "session"}), "/kind"),
        (json!({"session": {}, "turn": 1}), "/turn"),
        (json!({"session": {}, "key": "onrecord/session"}), "/key"),
        (
            json!({"session": {}, "links": [{"rel": "uses", "seq": 0}]}),
            "/links/0",
        ),
    ] {
        let answer = api.post("/v1/runs", &body).await.is(422);
        assert_eq!(answer.json()["pointer"], pointer, "{body}");
    }
    let listed = api.get("/v1/runs").await.json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
    target.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_links_to_the_run_before_it() {
    let server = Server::start().await;
    let api = &server.api;
    let before = api.any_run().await;
    let link = json!({"rel": "derived_from", "run": before.run, "hash": before.hash});
    let opened = api.open(&json!({"session": {}, "links": [link]})).await;
    let path = format!("/v1/runs/{}/frames/0", opened.run);
    let frame = api.get(&path).await.json();
    assert_eq!(
        frame["links"],
        json!([{"hash": before.hash, "rel": "derived_from", "run": before.run}])
    );
    server
        .audit(&opened.run, std::slice::from_ref(&opened))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_for_a_closed_turn_is_told_where_to_go() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run;
    api.frame(&run, &json!({"kind": "turn"})).await.is(201);
    let call = api
        .frame(&run, &json!({"kind": "tool_call", "key": "slow"}))
        .await
        .is(201);
    api.frame(&run, &json!({"kind": "turn"})).await.is(201);
    let late =
        json!({"kind": "tool_result", "turn": 1, "links": [{"rel": "answers", "key": "slow"}]});
    let problem = api.frame(&run, &late).await.problem(409, "turn_not_open");
    assert!(problem["action"].as_str().unwrap().contains("answers"));
    let here = json!({"kind": "tool_result", "links": [{"rel": "answers", "key": "slow"}]});
    let answer = api.frame(&run, &here).await.is(201).receipt();
    api.frame(&run, &json!({"kind": "turn_end"})).await.is(201);
    api.frame(&run, &json!({"kind": "turn_end"}))
        .await
        .problem(409, "turn_not_open");
    api.frame(&run, &json!({"kind": "session_end"}))
        .await
        .is(201);
    api.frame(&run, &json!({"kind": "observation"}))
        .await
        .problem(409, "run_ended");
    server.audit(&run, &[call.receipt(), answer]).await;
}
