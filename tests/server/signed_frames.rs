//! Frames that agents sign: who has to, what is taken, how they are counted, and that the verifier agrees.

use crate::api::audit::{check, export, trust};
use crate::api::bundle::Bundle;
use crate::api::{Api, assert_problem};
use crate::running::Server;
use crate::signing_agent::{Agent, Run, kept, sent, text};
use onrecord_core::receipt::Receipt;
use onrecord_verify::Code;
use serde_json::{Value, json};

async fn seal(api: &Api, run: &Run) {
    let path = format!("/v1/runs/{}/seal", run.id());
    api.post(&path, &json!({})).await.is(201);
}

/// A server whose agent `smith` has a key.
async fn smith() -> (Server, Agent, Run) {
    let server = Server::start().await;
    let agent = Agent::new("smith", 1);
    agent.register(&server.api).await;
    let run = Run::open(&server.api).await;
    (server, agent, run)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_its_agent_signs() {
    let (server, smith, run) = smith().await;
    let api = &server.api;
    let mut receipts = vec![run.opened.clone()];
    let frames = [
        json!({"kind": "turn", "turn": 1, "occurred_at": "2026-08-09T11:00:00.000000Z"}),
        json!({"kind": "tool_call", "turn": 1, "body": {"name": "sh", "z": 1, "a": [1.5]}, "links": [{"rel": "caused", "seq": 1}],
            "payloads": [sent(json!({"name": "arguments", "media": "application/json", "json": {"b": 1, "a": "ü"}}), [1; 32]),
                text("note", "words", [2; 32])]}),
        json!({"kind": "observation", "turn": 1, "payloads": [kept("secret", "what nobody sees", [3; 32]), text("empty", "", [4; 32])],
            "trace": {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}}),
        json!({"kind": "turn", "turn": 2}),
        json!({"kind": "outcome", "body": {"status": "completed"}}),
    ];
    for (n, frame) in (1..).zip(&frames) {
        let frame = smith.frame(&run, n, frame);
        let answer = api.frame(run.id(), &frame).await.is(201);
        receipts.push(answer.receipt());
        // A retry is the same frame.
        let again = api.frame(run.id(), &frame).await.is(200);
        assert_eq!(again.receipt(), answer.receipt());
        server.audit(run.id(), &receipts).await;
        // Somebody else writes in between: a tool, a gate.
        let other = json!({"kind": "observation", "actor": {"type": "tool", "id": "smith"}});
        receipts.push(api.frame(run.id(), &other).await.is(201).receipt());
    }
    server.audit(run.id(), &receipts).await;
    // The store closes the turn as itself, and ends the run so for an agent that signs.
    let token = json!({"name": "s", "roles": ["agent"], "actor": {"type": "agent", "id": "smith"}});
    let own = api.make_token(&token).await;
    seal(&own, &run).await;
    let (report, bundle) = server.audit(run.id(), &receipts).await;
    assert_eq!(report.payloads.not_kept, 1);
    let frames = bundle.frames();
    let last: Value = serde_json::from_slice(frames.last().unwrap()).unwrap();
    assert_eq!(last["kind"], "session_end");
    assert_eq!(last["actor"], json!({"id": "onrecord", "type": "system"}));
    let disclosed = |text: &str| bundle.0.iter().any(|(_, bytes)| bytes == text.as_bytes());
    assert!(disclosed("words") && disclosed(r#"{"a":"ü","b":1}"#));
    assert!(!disclosed("what nobody sees"));
    let text = trust(api).await;
    assert!(
        text.contains("\nagent-key ") && text.contains(" smith\n"),
        "{text}"
    );
    // Without the pinned key the signatures are named, with another key of its name they are false.
    let bytes = export(api, run.id()).await;
    let without: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("agent-key"))
        .collect();
    let report = check(&bytes, &(without.join("\n") + "\n"), &[]);
    assert_eq!(report.verdict.code, Code::Verified);
    assert!(
        report
            .not_checked
            .iter()
            .any(|line| line.contains("agents"))
    );
    let stranger = Agent::new("smith", 9);
    let spki = stranger.pem.lines().nth(1).unwrap();
    let other = format!("{}\nagent-key {spki} smith\n", without.join("\n"));
    assert_eq!(check(&bytes, &other, &[]).verdict.code, Code::Submitted);
    // The turn alone.
    let path = format!("/v1/runs/{}/turns/1/proof?purpose=test", run.id());
    let proof = api.get(&path).await.is(200).bytes;
    assert_eq!(check(&proof, &text, &[]).verdict.exit_code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_may_end_turns_and_the_run_itself() {
    let (server, smith, run) = smith().await;
    let api = &server.api;
    let turn = smith
        .post(api, &run, 1, &json!({"kind": "turn", "turn": 1}))
        .await
        .is(201)
        .receipt();
    let more = smith
        .post(api, &run, 2, &json!({"kind": "observation", "turn": 1}))
        .await
        .is(201)
        .receipt();
    let root = onrecord_core::merkle::root_of([turn.hash, more.hash].into_iter());
    // Counted wrongly it is refused, and takes no place.
    for (count, root) in [(3, root.hex()), (2, turn.hash.hex())] {
        let end = json!({"kind": "turn_end", "turn": 1, "key": "e", "body": {"count": count, "root": root}});
        smith
            .post(api, &run, 3, &end)
            .await
            .problem(422, "turn_root");
    }
    let end = json!({"kind": "turn_end", "turn": 1, "key": "e", "body": {"count": 2, "root": root.hex()}});
    smith.post(api, &run, 3, &end).await.is(201);
    smith
        .post(api, &run, 4, &json!({"kind": "session_end"}))
        .await
        .is(201);
    seal(api, &run).await;
    let (_, bundle) = server.audit(run.id(), &[turn, more]).await;
    let last: Value = serde_json::from_slice(bundle.frames().last().unwrap()).unwrap();
    assert_eq!(last["submitted"]["n"], 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_is_over_exactly_this_frame() {
    let (server, smith, run) = smith().await;
    let api = &server.api;
    let other = Run::open(api).await;
    let plain = json!({"kind": "observation", "turn": null, "key": "k", "body": {"a": 1}, "occurred_at": "2026-08-09T11:00:00.000000Z",
        "payloads": [text("p", "x", [1; 32])]});
    let good = smith.frame(&run, 1, &plain);
    for (what, change) in [
        ("kind", json!({"kind": "decision"})),
        ("key", json!({"key": "other"})),
        ("body", json!({"body": {"a": 2}})),
        (
            "time",
            json!({"occurred_at": "2026-08-09T11:00:00.000001Z"}),
        ),
        ("time left out", json!({"occurred_at": null})),
        (
            "trace",
            json!({"trace": {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}}),
        ),
        ("links", json!({"links": [{"rel": "uses", "seq": 0}]})),
        ("payload", json!({"payloads": [text("p", "x", [2; 32])]})),
        (
            "tier",
            json!({"payloads": [sent(json!({"name": "p", "media": "text/plain; charset=utf-8", "text": "x", "tier": 1}), [1; 32])]}),
        ),
        ("no payload", json!({"payloads": null})),
        (
            "signature",
            json!({"submitted": {"keyid": smith.keyid, "n": 1, "sig": smith.sign(b"something")}}),
        ),
        (
            "the n",
            json!({"submitted": {"keyid": smith.keyid, "n": 2, "sig": good["submitted"]["sig"]}}),
        ),
    ] {
        let mut changed = good.clone();
        for (name, value) in change.as_object().unwrap() {
            match value {
                Value::Null => drop(changed.as_object_mut().unwrap().remove(name)),
                value => changed[name] = value.clone(),
            }
        }
        let refused = api.frame(run.id(), &changed).await;
        assert_eq!(
            refused.json()["code"],
            "signature_false",
            "{what}: {}",
            refused.text()
        );
        refused.problem(422, "signature_false");
    }
    // Nor in another run, where n = 1 signs another opening, nor of a turn.
    api.frame(other.id(), &good)
        .await
        .problem(422, "signature_false");
    api.frame(run.id(), &json!({"kind": "turn"})).await.is(201);
    let mut in_turn = good.clone();
    in_turn["turn"] = 1.into();
    api.frame(run.id(), &in_turn)
        .await
        .problem(422, "signature_false");
    api.frame(run.id(), &good).await.is(201);
    assert_eq!(api.size(other.id()).await, 1);
    server.audit(run.id(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_store_would_decide_has_to_be_said() {
    let (server, smith, run) = smith().await;
    let good = smith.frame(&run, 1, &json!({"kind": "tool_call", "turn": null, "key": "k", "payloads": [text("p", "x", [1; 32])]}));
    let with = |name: &str, value: Value| {
        let mut changed = good.clone();
        changed[name] = value;
        changed
    };
    let without = |name: &str| {
        let mut changed = good.clone();
        changed.as_object_mut().unwrap().remove(name);
        changed
    };
    let payload = |change: Value| {
        let mut payload = text("p", "x", [1; 32]);
        for (name, value) in change.as_object().unwrap() {
            match value {
                Value::Null => drop(payload.as_object_mut().unwrap().remove(name)),
                value => payload[name] = value.clone(),
            }
        }
        with("payloads", json!([payload]))
    };
    let signed = |change: Value| {
        let mut submitted = good["submitted"].clone();
        for (name, value) in change.as_object().unwrap() {
            submitted[name] = value.clone();
        }
        with("submitted", submitted)
    };
    for (request, code, pointer) in [
        (without("key"), "missing_member", ""),
        (without("turn"), "missing_member", ""),
        (without("submitted"), "missing_member", ""),
        (without("actor"), "malformed_member", "/actor"),
        (
            with("actor", json!({"type": "agent", "id": "smith"})),
            "malformed_member",
            "/actor",
        ),
        (
            with(
                "actor",
                json!({"type": "agent", "id": "smith", "keyid": "0".repeat(64)}),
            ),
            "malformed_member",
            "/actor",
        ),
        (
            with(
                "actor",
                json!({"type": "tool", "id": "smith", "keyid": smith.keyid}),
            ),
            "malformed_member",
            "/actor",
        ),
        (
            with(
                "actor",
                json!({"type": "agent", "id": "smith", "keyid": "x"}),
            ),
            "malformed_member",
            "/actor",
        ),
        (with("result", json!({})), "malformed_member", "/result"),
        (
            with("links", json!([{"rel": "uses", "key": "k"}])),
            "malformed_member",
            "/links/0/key",
        ),
        (
            payload(json!({"commit": null})),
            "missing_member",
            "/payloads/0",
        ),
        (
            payload(json!({"dek": null})),
            "missing_member",
            "/payloads/0",
        ),
        (
            payload(json!({"commit": null, "dek": null})),
            "missing_member",
            "/payloads/0",
        ),
        (
            payload(json!({"commit": "0".repeat(64)})),
            "commitment_false",
            "/payloads/0/commit",
        ),
        (
            payload(json!({"commit": "0"})),
            "malformed_member",
            "/payloads/0/commit",
        ),
        (
            payload(json!({"dek": "AAAA"})),
            "malformed_member",
            "/payloads/0/dek",
        ),
        (
            payload(json!({"dek": "A".repeat(43)})),
            "malformed_member",
            "/payloads/0/dek",
        ),
        (
            payload(json!({"text": "y"})),
            "commitment_false",
            "/payloads/0/commit",
        ),
        (
            payload(json!({"kept": true})),
            "malformed_member",
            "/payloads/0/kept",
        ),
        (
            payload(json!({"kept": false})),
            "malformed_member",
            "/payloads/0/kept",
        ),
        (
            payload(json!({"size": 256})),
            "malformed_member",
            "/payloads/0/size",
        ),
        (signed(json!({"n": 0})), "malformed_member", "/submitted"),
        (signed(json!({"n": "1"})), "malformed_member", "/submitted"),
        (
            signed(json!({"sig": "AAAA"})),
            "malformed_member",
            "/submitted",
        ),
        (signed(json!({"more": 1})), "malformed_member", "/submitted"),
        (
            signed(json!({"keyid": "0".repeat(64)})),
            "malformed_member",
            "/actor",
        ),
    ] {
        let problem = server
            .api
            .frame(run.id(), &request)
            .await
            .problem(422, code);
        assert_eq!(problem["pointer"], pointer, "{request} {problem}");
    }
    // In a session, in a result, and beside a frame that is not signed.
    let session = json!({"session": {}, "submitted": good["submitted"]});
    server
        .api
        .post("/v1/runs", &session)
        .await
        .problem(422, "unknown_member");
    let session = json!({"session": {}, "actor": good["actor"]});
    server
        .api
        .post("/v1/runs", &session)
        .await
        .problem(422, "malformed_member");
    let call = json!({"kind": "tool_call", "actor": {"type": "tool", "id": "t"}, "result": {"submitted": good["submitted"]}});
    server
        .api
        .frame(run.id(), &call)
        .await
        .problem(422, "unknown_member");
    let plain = json!({"kind": "observation", "actor": {"type": "agent", "id": "jones"}, "payloads": [text("p", "x", [1; 32])]});
    let problem = server
        .api
        .frame(run.id(), &plain)
        .await
        .problem(422, "malformed_member");
    assert_eq!(problem["pointer"], "/payloads/0/commit");
    assert_eq!(server.api.size(run.id()).await, 1);
    server.api.frame(run.id(), &good).await.is(201);
    server.audit(run.id(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_a_key_signs_all_its_frames() {
    let (server, _, run) = smith().await;
    let api = &server.api;
    let jones = Agent::new("jones", 2);
    jones.register(api).await;
    let plain = |actor: Value| json!({"kind": "observation", "actor": actor});
    let as_smith = plain(json!({"type": "agent", "id": "smith"}));
    api.frame(run.id(), &as_smith)
        .await
        .problem(403, "frame_unsigned");
    let token = json!({"name": "s", "roles": ["agent"], "actor": {"type": "agent", "id": "smith"}});
    let own = api.make_token(&token).await;
    own.frame(run.id(), &json!({"kind": "turn"}))
        .await
        .problem(403, "frame_unsigned");
    let call = json!({"kind": "tool_call", "actor": {"type": "tool", "id": "t"}, "result": {"actor": {"type": "agent", "id": "smith"}}});
    api.frame(run.id(), &call)
        .await
        .problem(403, "frame_unsigned");
    let lines = own.frames(run.id(), format!("{as_smith}\n")).await;
    assert_problem(&lines[0]["problem"], 403, "frame_unsigned");
    // With the key of another, one that nobody knows, and in the name of another.
    let stranger = Agent::new("smith", 7);
    for agent in [
        &stranger,
        &Agent {
            actor: "smith".into(),
            ..Agent::new("", 2)
        },
    ] {
        let refused = agent
            .post(api, &run, 1, &json!({"kind": "observation"}))
            .await;
        refused.problem(403, "agent_key_unknown");
    }
    let in_its_name = jones.frame(&run, 1, &json!({"kind": "observation"}));
    own.frame(run.id(), &in_its_name)
        .await
        .problem(403, "actor_not_yours");
    // Who has no key writes as before, under the same name as another kind of actor too; and a session is not signed.
    for actor in [
        json!({"type": "agent", "id": "brown"}),
        json!({"type": "tool", "id": "smith"}),
        json!({"type": "importer", "id": "smith"}),
    ] {
        api.frame(run.id(), &plain(actor)).await.is(201);
    }
    own.any_run().await;
    // Another tenant has its own agents.
    let tenant = api.new_tenant().await;
    let theirs = tenant.any_run().await.run;
    tenant.frame(&theirs, &as_smith).await.is(201);
    server.audit(run.id(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_counts_its_frames_in_a_run() {
    let (server, smith, run) = smith().await;
    let api = &server.api;
    let frame = json!({"kind": "observation"});
    let post = async |n: u64, key: &str| {
        let mut frame = frame.clone();
        frame["key"] = key.into();
        smith.post(api, &run, n, &frame).await
    };
    assert_eq!(post(2, "a").await.problem(409, "wrong_count")["n"], 1);
    post(1, "a").await.is(201);
    for n in [1, 3, 9, 1 << 52] {
        assert_eq!(post(n, "b").await.problem(409, "wrong_count")["n"], 2);
    }
    let first = post(2, "b").await.is(201).receipt();
    // A retry is found by its key, and another count under it is another request.
    assert_eq!(post(2, "b").await.is(200).receipt(), first);
    post(3, "b").await.problem(409, "key_conflict");
    // Many at once, with one that does not count on among them: it takes no place, and may come again.
    let line = |n: u64| smith.frame(&run, n, &frame).to_string() + "\n";
    let lines = api
        .frames(run.id(), [line(3), line(5), line(4), line(5)].concat())
        .await;
    let statuses: Vec<&Value> = lines.iter().map(|line| &line["status"]).collect();
    assert_eq!(statuses[..4], [201, 409, 201, 201], "{lines:?}");
    assert_eq!(lines[1]["problem"]["n"], 4);
    let mut receipts: Vec<Receipt> = vec![first];
    receipts.push(post(6, "six").await.is(201).receipt());
    // Other keys and other runs count by themselves, and a restart forgets nothing.
    let second = Agent::new("smith", 3);
    second.register(api).await;
    let other = json!({"kind": "observation", "key": "second"});
    second
        .post(api, &run, 2, &other)
        .await
        .problem(409, "wrong_count");
    second.post(api, &run, 1, &other).await.is(201);
    let another = Run::open(api).await;
    smith.post(api, &another, 1, &frame).await.is(201);
    let server = server.restart().await;
    let api = &server.api;
    let next = json!({"kind": "observation", "key": "after"});
    assert_eq!(
        smith
            .post(api, &run, 6, &next)
            .await
            .problem(409, "wrong_count")["n"],
        7
    );
    receipts.push(smith.post(api, &run, 7, &next).await.is(201).receipt());
    seal(api, &run).await;
    server.audit(run.id(), &receipts).await;
}

/// Two processes have the chain of one run in memory, and frames come to both in any order.
#[tokio::test(flavor = "multi_thread")]
async fn counts_are_dense_over_several_processes() {
    let (server, smith, run) = smith().await;
    let other = server.second().await;
    let mut work = tokio::task::JoinSet::new();
    for n in 1..=24_u64 {
        let api = if n % 2 == 0 { &server.api } else { &other.api };
        let (api, run) = (api.clone(), run.clone());
        let frame = smith.frame(
            &run,
            n,
            &json!({"kind": "observation", "payloads": [text("p", "x", [n as u8; 32])]}),
        );
        work.spawn(async move {
            loop {
                let answer = api.frame(run.id(), &frame).await;
                match answer.status {
                    201 => return answer.receipt(),
                    _ => {
                        let expected = answer.problem(409, "wrong_count")["n"].as_u64().unwrap();
                        assert!(expected < n, "{n} was refused where {expected} is next");
                    }
                }
                tokio::task::yield_now().await;
            }
        });
    }
    let receipts = work.join_all().await;
    assert_eq!(receipts.len(), 24);
    seal(&other.api, &run).await;
    server.audit(run.id(), &receipts).await;
    other.audit(run.id(), &receipts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_in_signed_payloads_are_refused() {
    let (server, smith, run) = smith().await;
    let token = format!("glpat-{}", "x9Kd2mQ7vB4nR8tY1wZ5");
    let json_payload = sent(
        json!({"name": "p", "media": "application/json", "json": {"env": {"token": token}}}),
        [1; 32],
    );
    for (payload, pointer) in [
        (
            text("p", &format!("the token is {token}"), [1; 32]),
            "/payloads/1",
        ),
        (json_payload, "/payloads/1/json/env/token"),
    ] {
        let frame =
            json!({"kind": "observation", "payloads": [text("q", "nothing", [2; 32]), payload]});
        let refused = smith.post(&server.api, &run, 1, &frame).await;
        let text = refused.text();
        let problem = refused.problem(422, "secret_in_signed_frame");
        assert_eq!(problem["pointer"], pointer, "{problem}");
        assert!(!text.contains(&token));
    }
    // In what is no payload as ever.
    let frame = json!({"kind": "observation", "body": {"t": token}});
    smith
        .post(&server.api, &run, 1, &frame)
        .await
        .problem(422, "secret_in_metadata");
    // What is kept cannot be looked at.
    let frame = json!({"kind": "observation", "payloads": [kept("p", &token, [1; 32])]});
    smith.post(&server.api, &run, 1, &frame).await.is(201);
    server.audit(run.id(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_signs_nothing_more() {
    let (server, smith, run) = smith().await;
    let api = &server.api;
    let frame = |key: &str| json!({"kind": "observation", "key": key});
    let first = smith
        .post(api, &run, 1, &frame("a"))
        .await
        .is(201)
        .receipt();
    let path = format!("/v1/agent-keys/{}", smith.keyid);
    api.delete(&format!("{path}?reason=a%0Ab"))
        .await
        .problem(400, "malformed_parameter");
    api.delete("/v1/agent-keys/x")
        .await
        .problem(400, "malformed_parameter");
    api.delete(&format!("/v1/agent-keys/{}", "0".repeat(64)))
        .await
        .problem(404, "agent_key_not_found");
    // A seal key is nobody's agent's.
    let keys = api.get("/v1/keys").await.is(200).json();
    let seal_key = keys["seal"][0]["keyid"].as_str().unwrap();
    api.delete(&format!("/v1/agent-keys/{seal_key}"))
        .await
        .problem(404, "agent_key_not_found");
    let other = api.new_tenant().await;
    other
        .delete(&path)
        .await
        .problem(404, "agent_key_not_found");
    api.role("agent")
        .await
        .delete(&path)
        .await
        .problem(403, "role_missing");
    api.delete(&format!("{path}?reason=lost")).await.is(204);
    api.delete(&path).await.is(204);
    smith
        .post(api, &run, 2, &frame("b"))
        .await
        .problem(403, "agent_key_unknown");
    let unsigned = json!({"kind": "observation", "actor": {"type": "agent", "id": "smith"}});
    api.frame(run.id(), &unsigned)
        .await
        .problem(403, "frame_unsigned");
    // It is not taken again; another one is, and counts from 1.
    let again = smith.registration(api).await;
    api.post("/v1/agent-keys", &again)
        .await
        .problem(409, "agent_key_taken");
    let next = Agent::new("smith", 5);
    next.register(api).await;
    let second = next.post(api, &run, 1, &frame("b")).await.is(201).receipt();
    seal(api, &run).await;
    let (_, bundle) = server.audit(run.id(), &[first, second]).await;
    let ledger = String::from_utf8(bundle.member("ledger.ndjson").to_vec()).unwrap();
    assert_eq!(
        ledger.lines().count(),
        7,
        "opening, two keys at first, two added, one revoked, this export"
    );
    let keys = api.get("/v1/keys").await.is(200).json();
    assert_eq!(keys["agents"][0]["in_force"], false);
    assert_eq!(keys["agents"][1]["in_force"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn which_keys_are_registered() {
    let server = Server::start().await;
    let api = &server.api;
    let smith = Agent::new("smith", 1);
    let good = smith.registration(api).await;
    let with = |name: &str, value: Value| {
        let mut changed = good.clone();
        changed[name] = value;
        changed
    };
    let der = |der: &[u8]| {
        use base64::Engine as _;
        let line = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN PUBLIC KEY-----\n{line}\n-----END PUBLIC KEY-----\n")
    };
    let point = |point: [u8; 32]| {
        let prefix = [
            0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
        ];
        der(&[&prefix[..], &point].concat())
    };
    let (mut one, mut two) = ([0; 32], [0; 32]);
    (one[0], two[0]) = (1, 2);
    for request in [
        // Points of small order, for which anybody makes signatures; no point; another algorithm; not PEM.
        with("spki", point([0; 32]).into()),
        with("spki", point(one).into()),
        with("spki", point(two).into()),
        with("spki", der(b"0123456789").into()),
        with("spki", "".into()),
        with("spki", smith.pem.lines().nth(1).unwrap().into()),
        with("spki", format!("{}{}", smith.pem, smith.pem).into()),
        with("spki", smith.pem.replace("PUBLIC", "PRIVATE").into()),
        with("proof", "AAAA".into()),
        with("actor", "".into()),
        with("actor", " smith".into()),
        with("actor", "a\nb".into()),
        with("actor", "x".repeat(201).into()),
        with("more", 1.into()),
        json!({}),
    ] {
        let refused = api.post("/v1/agent-keys", &request).await;
        refused.problem(400, "malformed_parameter");
    }
    // A proof is of this actor, this tenant and this key.
    let other = api.new_tenant().await;
    let theirs = smith.registration(&other).await;
    for request in [
        with("actor", "jones".into()),
        with("proof", theirs["proof"].clone()),
        with("spki", Agent::new("smith", 2).pem.into()),
        with("proof", smith.sign(b"").into()),
    ] {
        let refused = api.post("/v1/agent-keys", &request).await;
        refused.problem(422, "signature_false");
    }
    for role in ["agent", "gate", "auditor", "compliance"] {
        let refused = api.role(role).await.post("/v1/agent-keys", &good).await;
        refused.problem(403, "role_missing");
    }
    api.post("/v1/agent-keys", &good).await.is(201);
    api.post("/v1/agent-keys", &good).await.is(200);
    let as_jones = Agent {
        actor: "jones".into(),
        ..Agent::new("", 1)
    };
    let taken = as_jones.registration(api).await;
    api.post("/v1/agent-keys", &taken)
        .await
        .problem(409, "agent_key_taken");
    other.post("/v1/agent-keys", &theirs).await.is(201);
    let run = Run::open(api).await;
    seal(api, &run).await;
    server.audit(run.id(), &[]).await;
}

/// The trust file makes a fault of each unsigned frame of an agent that has a key, those of before too.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_for_an_actor_that_wrote_nothing_yet() {
    let server = Server::start().await;
    let api = &server.api;
    let run = Run::open(api).await;
    let plain = |id: &str| json!({"kind": "observation", "actor": {"type": "agent", "id": id}});
    api.frame(run.id(), &plain("smith")).await.is(201);
    // Of another actor, whose name begins so, and one of another kind.
    api.frame(run.id(), &plain("jones 2")).await.is(201);
    let tool = json!({"kind": "observation", "actor": {"type": "tool", "id": "jones"}});
    api.frame(run.id(), &tool).await.is(201);
    Agent::new("jones", 1).register(api).await;
    let smith = Agent::new("smith", 2);
    let mut request = smith.registration(api).await;
    api.post("/v1/agent-keys", &request)
        .await
        .problem(409, "actor_wrote_unsigned");
    server.audit(run.id(), &[]).await;
    request["unsigned_before"] = true.into();
    api.post("/v1/agent-keys", &request).await.is(201);
    seal(api, &run).await;
    let path = format!("/v1/runs/{}/verification", run.id());
    let report = api.get(&path).await.is(200).json();
    assert_eq!(report["verdict"]["code"], "submitted");
    assert_eq!(report["verdict"]["first_bad_seq"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commitment_stands_once_in_a_run() {
    let (server, smith, run) = smith().await;
    let api = &server.api;
    let once = json!({"kind": "observation", "key": "a", "payloads": [text("p", "x", [1; 32])]});
    smith.post(api, &run, 1, &once).await.is(201);
    let plain = |payloads: Value| json!({"kind": "observation", "actor": {"type": "tool", "id": "t"}, "payloads": payloads});
    for payload in [text("p", "x", [1; 32]), kept("p", "x", [1; 32])] {
        let frame = json!({"kind": "observation", "key": "b", "payloads": [payload]});
        smith
            .post(api, &run, 2, &frame)
            .await
            .problem(409, "commitment_used");
    }
    api.frame(run.id(), &plain(json!([kept("p", "x", [1; 32])])))
        .await
        .problem(409, "commitment_used");
    // In one frame, in a call and its result, and in many frames at once.
    let twice = json!([kept("p", "y", [2; 32]), kept("q", "y", [2; 32])]);
    api.frame(run.id(), &plain(twice.clone()))
        .await
        .problem(422, "malformed_member");
    api.post("/v1/runs", &json!({"session": {}, "payloads": twice}))
        .await
        .problem(422, "malformed_member");
    let mut call = plain(json!([kept("p", "y", [2; 32])]));
    call["kind"] = "tool_call".into();
    call["result"] = json!({"payloads": [kept("p", "y", [2; 32])]});
    api.frame(run.id(), &call)
        .await
        .problem(409, "commitment_used");
    let line = format!("{}\n", plain(json!([kept("p", "z", [3; 32])])));
    let lines = api.frames(run.id(), line.repeat(3)).await;
    let statuses: Vec<&Value> = lines.iter().map(|line| &line["status"]).collect();
    assert_eq!(statuses[..3], [201, 409, 409], "{lines:?}");
    // A payload of the store's is in the run as well, and the same commitment may stand in another run.
    let ours = json!({"kind": "observation", "actor": {"type": "tool", "id": "t"}, "payloads": [{"name": "p", "text": "w"}]});
    let receipt = api.frame(run.id(), &ours).await.is(201).receipt();
    let path = format!("/v1/runs/{}/frames/{}", run.id(), receipt.seq);
    let commit = api.get(&path).await.json()["payloads"][0]["commit"].clone();
    let mut again = kept("p", "w", [4; 32]);
    again["commit"] = commit;
    api.frame(run.id(), &plain(json!([again])))
        .await
        .problem(409, "commitment_used");
    let other = Run::open(api).await;
    api.frame(other.id(), &plain(json!([kept("p", "x", [1; 32])])))
        .await
        .is(201);
    for run in [&run, &other] {
        seal(api, run).await;
        let bytes = export(api, run.id()).await;
        assert_eq!(check(&bytes, &trust(api).await, &[]).verdict.exit_code, 0);
        assert!(Bundle::read(&bytes).has("disclosures.ndjson"));
        server.audit(run.id(), &[]).await;
    }
}
