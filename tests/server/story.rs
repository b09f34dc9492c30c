//! A run from its opening to its proofs, audited after each step.

use crate::api::audit::{check, trust};
use crate::api::{Answer, receipt};
use crate::running::Server;
use onrecord_core::frame::Kind;
use onrecord_core::receipt::Receipt;
use onrecord_verify::{Code, What};
use serde_json::{Value, json};

struct Story {
    server: Server,
    run: String,
    receipts: Vec<Receipt>,
}

impl Story {
    async fn open(body: &Value) -> Self {
        let server = Server::start().await;
        let answer = server.api.post("/v1/runs", body).await.is(201);
        let opened = answer.receipt();
        assert_eq!(opened.seq, 0);
        let run = opened.run.to_string();
        assert_eq!(
            answer.header("location"),
            format!("/v1/runs/{run}/frames/0")
        );
        assert_eq!(answer.header("etag"), format!("\"{}\"", opened.hash));
        let mut story = Self {
            server,
            run,
            receipts: vec![opened],
        };
        story.audit().await;
        story
    }

    async fn audit(&mut self) -> crate::api::bundle::Bundle {
        self.server.audit(&self.run, &self.receipts).await.1
    }

    /// Posts a frame, keeps its receipts, and audits.
    async fn post(&mut self, body: Value) -> Answer {
        let answer = self.server.api.frame(&self.run, &body).await.is(201);
        self.receipts.push(answer.receipt());
        if let Some(result) = answer.json().get("result") {
            self.receipts.push(receipt(result));
        }
        let last = self.receipts.last().unwrap();
        assert_eq!(answer.header("etag"), format!("\"{}\"", last.hash));
        self.audit().await;
        answer
    }

    async fn frame(&self, seq: u64) -> Value {
        let path = format!("/v1/runs/{}/frames/{seq}", self.run);
        self.server.api.get(&path).await.is(200).json()
    }

    fn last_seq(&self) -> u64 {
        self.receipts.last().unwrap().seq
    }
}

fn prompt(text: &str) -> Value {
    json!([{"name": "prompt", "text": text}])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_from_its_opening_to_its_proofs() {
    let mut story = Story::open(&json!({
        "session": {"agent": "smith", "mandate": "m-1"},
        "key": "opening",
        "payloads": [{"name": "task", "text": "Make the build pass."}],
    }))
    .await;
    let opening = story.frame(0).await;
    assert_eq!(opening["kind"], "session");
    assert_eq!(opening["body"]["run_no"], 1);
    assert_eq!(opening["body"]["suite"], "onrecord-v1");
    assert_eq!(opening["key"], "opening");

    story
        .post(json!({"kind": "turn", "key": "t1", "payloads": prompt("Go.")}))
        .await;
    assert_eq!(story.frame(1).await["turn"], 1);
    story
        .post(json!({"kind": "context", "body": {"window": 200_000}}))
        .await;

    // A tool call that is posted whole becomes two frames.
    let whole = json!({
        "kind": "tool_call", "key": "c1", "body": {"name": "shell"},
        "payloads": [{"name": "arguments", "json": {"command": "make"}}],
        "result": {"body": {"exit": 2}, "payloads": [{"name": "output", "base64": "//4AQQ=="}]},
    });
    let answer = story.post(whole.clone()).await.json();
    let call = answer["seq"].as_u64().unwrap();
    assert_eq!(answer["result"]["seq"], call + 1);
    let result = story.frame(call + 1).await;
    assert_eq!(result["kind"], "tool_result");
    assert_eq!(result["key"], "c1/result");
    assert_eq!(result["actor"], json!({"id": "shell", "type": "tool"}));
    assert_eq!(result["links"], json!([{"rel": "answers", "seq": call}]));

    // One that has no result yet has an unknown outcome, which is no success.
    story
        .post(json!({"kind": "tool_call", "key": "c2", "body": {"name": "deploy"}}))
        .await;
    let intent = story.last_seq();
    let unknown = story.server.api.run(&story.run).await["unknown_outcomes"].clone();
    assert_eq!(unknown, json!({"count": 1, "frames": [intent]}));
    story
        .post(
            json!({"kind": "tool_result", "key": "r2", "body": {"exit": 0},
            "actor": {"type": "tool", "id": "deploy"}, "links": [{"rel": "answers", "key": "c2"}]}),
        )
        .await;
    let links = story.frame(story.last_seq()).await["links"].clone();
    assert_eq!(links, json!([{"rel": "answers", "seq": intent}]));
    assert!(
        story
            .server
            .api
            .run(&story.run)
            .await
            .get("unknown_outcomes")
            .is_none()
    );

    // A run-level frame stands in no turn.
    story
        .post(json!({"kind": "decision", "turn": null, "body": {"condition": "c-7"}}))
        .await;
    assert!(story.frame(story.last_seq()).await.get("turn").is_none());

    // The next turn closes the one before.
    story.post(json!({"kind": "turn", "key": "t2"})).await;
    let end = story.frame(story.last_seq() - 1).await;
    assert_eq!(end["kind"], "turn_end");
    assert_eq!(end["turn"], 1);
    assert_eq!(end["body"]["count"], 6);
    assert_eq!(end["actor"]["type"], "system");

    gate_and_seal(story, &whole).await;
}

/// The second half: a verdict, the outcome, the seal, and what is proven by it.
async fn gate_and_seal(mut story: Story, whole: &Value) {
    let owner = story.server.api.clone();
    story.server.api = owner.role("gate").await;
    let verdict = json!({"kind": "gate_result", "key": "g1", "body": {"gate": "tests", "result": "pass"},
        "links": [{"rel": "verified_by", "key": "r2"}]});
    let answer = story.server.api.frame(&story.run, &verdict).await.is(201);
    story.server.api = owner.clone();
    story.receipts.push(answer.receipt());
    story.audit().await;
    let actor = story.frame(story.last_seq()).await["actor"].clone();
    assert_eq!(actor, json!({"id": "a gate", "type": "verifier"}));

    story
        .post(json!({"kind": "outcome", "key": "o1", "body": {"status": "completed"}}))
        .await;
    assert_eq!(owner.run(&story.run).await["outcome"], "completed");

    let run = story.run.clone();
    let path = format!("/v1/runs/{run}/seal");
    owner.get(&path).await.problem(409, "run_open");
    owner
        .get(&format!("/v1/runs/{run}/turns/1/proof?purpose=test"))
        .await
        .problem(409, "run_open");
    let sealed = owner.post(&path, &json!({})).await.is(201).json();
    assert_eq!(sealed["completeness"], "full");
    assert_eq!(sealed["outcome"], "completed");
    let bundle = story.audit().await;
    assert_eq!(owner.post(&path, &json!({})).await.is(200).json(), sealed);
    assert_eq!(owner.get(&path).await.is(200).json(), sealed);
    assert_eq!(
        bundle.member("seal.dsse.json"),
        sealed["seal"].as_str().unwrap().as_bytes()
    );
    let last: Value = serde_json::from_slice(bundle.frames().last().unwrap()).unwrap();
    assert_eq!(last["kind"], "session_end");

    // What was said stands in payloads alone, and comes back byte for byte.
    let frames = String::from_utf8(bundle.member("frames.ndjson").to_vec()).unwrap();
    assert!(!frames.contains("Make the build pass") && !frames.contains("//4AQQ"));
    let payload = |line: usize, name: &str| {
        let frame: Value = serde_json::from_slice(&bundle.frames()[line]).unwrap();
        let payloads = frame["payloads"].as_array().unwrap().clone();
        let found = payloads.iter().find(|one| one["name"] == name).unwrap();
        bundle.payload(found["commit"].as_str().unwrap()).to_vec()
    };
    assert_eq!(payload(0, "task"), b"Make the build pass.");
    assert_eq!(payload(3, "arguments"), br#"{"command":"make"}"#);
    assert_eq!(payload(4, "output"), b"\xff\xfe\x00A");

    after_the_seal(&story, whole, &bundle.write()).await;
}

async fn after_the_seal(story: &Story, whole: &Value, bundle: &[u8]) {
    let (owner, run) = (&story.server.api, &story.run);
    let trust = trust(owner).await;
    for turn in 1..=2 {
        let path = format!("/v1/runs/{run}/turns/{turn}/proof?purpose=test");
        let proof = owner.get(&path).await.is(200).bytes;
        let report = check(&proof, &trust, &[]);
        assert_eq!(
            report.verdict.code,
            Code::Verified,
            "{:#?}",
            report.findings
        );
        assert_eq!(
            (report.facts.what, report.facts.turn),
            (What::Turn, Some(turn))
        );
    }
    owner
        .get(&format!("/v1/runs/{run}/turns/3/proof?purpose=test"))
        .await
        .problem(404, "turn_not_found");

    let report = owner
        .send("/v1/verify", "application/octet-stream", bundle.to_vec())
        .await
        .is(200)
        .json();
    assert_eq!(report["verdict"]["code"], "verified");

    // Nothing is added to a sealed run; a retry still finds its frame.
    let late = json!({"kind": "observation", "key": "late"});
    owner.frame(run, &late).await.problem(409, "run_sealed");
    let again = owner.frame(run, whole).await.is(200);
    assert_eq!(again.receipt(), story.receipts[3]);
    assert_eq!(receipt(&again.json()["result"]), story.receipts[4]);
    let listed = owner
        .get("/v1/runs?status=sealed&outcome=completed&agent=smith")
        .await
        .is(200)
        .json();
    assert_eq!(listed["runs"][0]["run"], **run);
    assert_eq!(listed["runs"][0]["kinds"][Kind::TurnEnd.as_str()], 2);
    story.server.audit(run, &story.receipts).await;
}
