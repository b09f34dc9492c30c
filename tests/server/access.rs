//! Who may do what: roles, the actors that a token may speak for, and the walls between tenants.

use crate::api::{Api, NDJSON};
use crate::running::Server;
use onrecord_core::receipt::Receipt;
use reqwest::Method;
use serde_json::{Value, json};

const ROLES: [&str; 5] = ["agent", "gate", "auditor", "compliance", "admin"];

fn frame_as(kind: &str, actor: &str) -> Value {
    let mut frame = json!({"kind": kind, "actor": {"type": actor, "id": "someone"}});
    if kind == "gate_result" {
        frame["body"] = json!({"result": "pass"});
    }
    frame
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_writes_as_its_own_actors_only() {
    let server = Server::start().await;
    let opened = server.api.any_run().await;
    let mut receipts = vec![opened.clone()];
    for role in ROLES {
        let api = server.api.role(role).await;
        let allowed: &[&str] = match role {
            "agent" => &["agent", "tool", "importer"],
            "gate" => &["verifier"],
            _ => &["human"],
        };
        for actor in ["agent", "tool", "importer", "verifier", "human", "system"] {
            for kind in ["observation", "gate_result"] {
                let answer = api.frame(&opened.run, &frame_as(kind, actor)).await;
                let verdict = kind == "gate_result" && actor != "verifier";
                if allowed.contains(&actor) && !verdict {
                    receipts.push(answer.is(201).receipt());
                } else {
                    answer.problem(403, "actor_not_yours");
                }
            }
        }
        // In the result of a call as well, and then the call is not there either.
        let call = json!({"kind": "tool_call", "body": {"name": "shell"},
            "result": {"actor": {"type": "system", "id": "onrecord"}}});
        api.frame(&opened.run, &call)
            .await
            .problem(403, "actor_not_yours");
    }
    // The owner may be anybody but the store.
    for actor in ["agent", "tool", "importer", "verifier", "human"] {
        let answer = server
            .api
            .frame(&opened.run, &frame_as("observation", actor))
            .await;
        receipts.push(answer.is(201).receipt());
    }
    let system = frame_as("observation", "system");
    server
        .api
        .frame(&opened.run, &system)
        .await
        .problem(403, "actor_not_yours");
    assert_eq!(server.api.size(&opened.run).await, receipts.len() as u64);
    server.audit(&opened.run, &receipts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_cannot_pass_its_own_gate() {
    let server = Server::start().await;
    let smith =
        json!({"name": "smith's", "roles": ["agent"], "actor": {"type": "agent", "id": "smith"}});
    let agent = server.api.make_token(&smith).await;
    let run = agent.open(&json!({"session": {}})).await.run;
    let pass = json!({"kind": "gate_result", "body": {"result": "pass"}});
    agent
        .frame(&run, &pass)
        .await
        .problem(403, "actor_not_yours");
    for actor in ["verifier", "agent", "tool", "importer", "human", "system"] {
        agent
            .frame(&run, &frame_as("gate_result", actor))
            .await
            .problem(403, "actor_not_yours");
    }
    assert_eq!(agent.size(&run).await, 1);
    // In a stream it is refused line by line.
    let lines = agent
        .frames(
            &run,
            format!("{pass}\n{}\n", json!({"kind": "observation"})),
        )
        .await;
    assert_eq!(lines[0]["status"], 403);
    assert_eq!(lines[0]["problem"]["code"], "actor_not_yours");
    assert_eq!(lines[1]["status"], 201);
    let gate = server.api.role("gate").await;
    let verdict = gate.frame(&run, &pass).await.is(201).receipt();
    server.audit(&run, &[verdict]).await;
}

async fn actor_of(api: &Api, receipt: &Receipt) -> Value {
    let path = format!("/v1/runs/{}/frames/{}", receipt.run, receipt.seq);
    api.get(&path).await.is(200).json()["actor"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_speaks_for_the_actor_that_it_names() {
    let server = Server::start().await;
    let opened = server.api.any_run().await;
    let run = &opened.run;
    let plain = json!({"kind": "observation"});
    let post_as =
        |kind: &str, id: &str| json!({"kind": "observation", "actor": {"type": kind, "id": id}});
    let agent = json!({"name": "n", "roles": ["agent"], "actor": {"type": "agent", "id": "smith"}});
    let agent = server.api.make_token(&agent).await;
    let own = agent.frame(run, &plain).await.is(201).receipt();
    assert_eq!(
        actor_of(&agent, &own).await,
        json!({"id": "smith", "type": "agent"})
    );
    agent.frame(run, &post_as("agent", "smith")).await.is(201);
    agent
        .frame(run, &post_as("agent", "jones"))
        .await
        .problem(403, "actor_not_yours");
    // Its tools have names of their own.
    agent.frame(run, &post_as("tool", "shell")).await.is(201);
    // Two roles, but one actor.
    let both =
        json!({"name": "n", "roles": ["agent", "gate"], "actor": {"type": "verifier", "id": "ci"}});
    let both = server.api.make_token(&both).await;
    let own = both.frame(run, &plain).await.is(201).receipt();
    assert_eq!(
        actor_of(&both, &own).await,
        json!({"id": "ci", "type": "verifier"})
    );
    for (kind, id) in [("agent", "ci"), ("tool", "ci"), ("verifier", "other")] {
        both.frame(run, &post_as(kind, id))
            .await
            .problem(403, "actor_not_yours");
    }
    // An id alone binds as well.
    let id = json!({"name": "n", "roles": ["auditor"], "actor": {"id": "anna"}});
    let id = server.api.make_token(&id).await;
    id.frame(run, &post_as("human", "berta"))
        .await
        .problem(403, "actor_not_yours");
    let own = id.frame(run, &plain).await.is(201).receipt();
    assert_eq!(
        actor_of(&id, &own).await,
        json!({"id": "anna", "type": "human"})
    );
    server.audit(run, &[opened.clone(), own]).await;

    for wrong in [
        json!({"name": "n", "roles": []}),
        json!({"name": "n", "roles": ["root"]}),
        json!({"name": "", "roles": ["agent"]}),
        json!({"name": "n"}),
        json!(["n", ["agent"]]),
        json!({"name": "n", "roles": ["agent"], "actor": {"type": "verifier"}}),
        json!({"name": "n", "roles": ["admin"], "actor": {"type": "system"}}),
        json!({"name": "n", "roles": ["agent"], "actor": {"id": ""}}),
        json!({"name": "n", "roles": ["agent"], "expires_at": "tomorrow"}),
        json!({"name": "n", "roles": ["agent"], "tenant": "t_other"}),
    ] {
        server
            .api
            .post("/v1/tokens", &wrong)
            .await
            .problem(422, "malformed_member");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_open_doors_and_nothing_else_does() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run;
    server
        .api
        .frame(&run, &json!({"kind": "turn"}))
        .await
        .is(201);
    let open = json!({"session": {}});
    let token = json!({"name": "n", "roles": ["agent"]});
    let tenant = json!({"name": "t"});
    for role in ROLES {
        let api = server.api.role(role).await;
        let expect = |answer: crate::api::Answer, roles: &[&str]| {
            if roles.contains(&role) {
                assert!(answer.status < 400, "{role}: {}", answer.text());
            } else {
                answer.problem(403, "role_missing");
            }
        };
        expect(api.post("/v1/runs", &open).await, &["agent"]);
        expect(api.post("/v1/tokens", &token).await, &["admin"]);
        expect(api.get("/v1/tokens").await, &["admin"]);
        expect(api.post("/v1/tenants", &tenant).await, &["admin"]);
        let readers = ["auditor", "compliance", "admin"];
        expect(
            api.get(&format!("/v1/runs/{run}/export?purpose=test"))
                .await,
            &readers,
        );
        expect(
            api.get(&format!("/v1/runs/{run}/export?payloads=none"))
                .await,
            &ROLES,
        );
        for path in ["", "/frames", "/frames/0", "/head", "/verification"] {
            expect(api.get(&format!("/v1/runs/{run}{path}")).await, &ROLES);
        }
        expect(api.get("/v1/runs").await, &ROLES);
        expect(api.get("/v1/trust").await, &ROLES);
        let other = server.api.any_run().await.run;
        let seal = api
            .post(&format!("/v1/runs/{other}/seal"), &json!({}))
            .await;
        expect(seal, &["agent", "admin"]);
        server
            .api
            .post(&format!("/v1/runs/{other}/seal"), &json!({}))
            .await;
        expect(api.get(&format!("/v1/runs/{other}/seal")).await, &ROLES);
        server.audit(&other, &[]).await;
    }
    // What discloses payloads of a turn is as an export.
    let seal = format!("/v1/runs/{run}/seal");
    server.api.post(&seal, &json!({})).await.is(201);
    let proof = format!("/v1/runs/{run}/turns/1/proof");
    let disclosing = format!("{proof}?purpose=test");
    let agent = server.api.role("agent").await;
    agent.get(&disclosing).await.problem(403, "role_missing");
    agent.get(&format!("{proof}?payloads=none")).await.is(200);
    server
        .api
        .role("auditor")
        .await
        .get(&disclosing)
        .await
        .is(200);
}

/// Method, path, and a body with its media type where there has to be one.
type Address = (Method, String, Option<(&'static str, String)>);

/// Everything that needs a token.
fn addresses(run: &str) -> Vec<Address> {
    let frame = json!({"kind": "observation"}).to_string();
    let json = |value: Value| Some((crate::api::JSON, value.to_string()));
    vec![
        (Method::GET, "/v1/runs".into(), None),
        (
            Method::POST,
            "/v1/runs".into(),
            json(json!({"session": {}})),
        ),
        (Method::GET, format!("/v1/runs/{run}"), None),
        (Method::GET, format!("/v1/runs/{run}/frames"), None),
        (Method::GET, format!("/v1/runs/{run}/frames/0"), None),
        (
            Method::POST,
            format!("/v1/runs/{run}/frames"),
            Some((crate::api::JSON, frame.clone())),
        ),
        (
            Method::POST,
            format!("/v1/runs/{run}/frames"),
            Some((NDJSON, frame + "\n")),
        ),
        (
            Method::POST,
            format!("/v1/runs/{run}/seal"),
            json(json!({})),
        ),
        (Method::GET, format!("/v1/runs/{run}/seal"), None),
        (Method::GET, format!("/v1/runs/{run}/head"), None),
        (
            Method::GET,
            format!("/v1/runs/{run}/export?purpose=test"),
            None,
        ),
        (Method::GET, format!("/v1/runs/{run}/verification"), None),
        (
            Method::GET,
            format!("/v1/runs/{run}/payloads/{}?purpose=test", "ab".repeat(32)),
            None,
        ),
        (
            Method::GET,
            format!("/v1/runs/{run}/turns/1/proof?purpose=test"),
            None,
        ),
        (
            Method::POST,
            "/v1/verify".into(),
            Some(("application/octet-stream", "x".into())),
        ),
        (Method::GET, "/v1/trust".into(), None),
        (Method::GET, "/v1/tokens".into(), None),
        (
            Method::POST,
            "/v1/tokens".into(),
            json(json!({"name": "n", "roles": ["agent"]})),
        ),
        (Method::DELETE, "/v1/tokens/aaaaaaaaaaaa".into(), None),
        (
            Method::POST,
            "/v1/tenants".into(),
            json(json!({"name": "n"})),
        ),
    ]
}

async fn call(api: &Api, address: &Address) -> crate::api::Answer {
    let (method, path, body) = address;
    let mut request = api.request(method.clone(), path);
    if let Some((media, body)) = body {
        request = request.header("content-type", *media).body(body.clone());
    }
    crate::api::Answer::of(request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_tenant_sees_anothers_runs() {
    let server = Server::start().await;
    let own = server.api.clone();
    let opened = own.any_run().await;
    let run = opened.run.to_string();
    own.frame(&run, &json!({"kind": "turn"})).await.is(201);
    let other = own.new_tenant().await;
    assert_eq!(other.get("/v1/runs").await.json(), json!({"runs": []}));
    for sealed in [false, true] {
        if sealed {
            own.post(&format!("/v1/runs/{run}/seal"), &json!({}))
                .await
                .is(201);
        }
        let size = own.size(&run).await;
        for address in addresses(&run) {
            if address.1.contains(&run) {
                call(&other, &address).await.problem(404, "run_not_found");
            }
        }
        assert_eq!(own.size(&run).await, size);
    }
    // The number of runs, keys and tokens of the one is nothing to the other.
    let theirs = other.open(&json!({"session": {}})).await;
    let path = format!("/v1/runs/{}/frames/0", theirs.run);
    assert_eq!(other.get(&path).await.json()["body"]["run_no"], 1);
    own.get(&path).await.problem(404, "run_not_found");
    let tokens = own.get("/v1/tokens").await.json();
    let id = tokens["tokens"][0]["id"].as_str().unwrap().to_owned();
    other
        .delete(&format!("/v1/tokens/{id}"))
        .await
        .problem(404, "token_not_found");
    assert!(!other.get("/v1/tokens").await.text().contains(&id));
    own.get("/v1/runs").await.is(200);
    // Only the first tenant makes tenants.
    other
        .post("/v1/tenants", &json!({"name": "third"}))
        .await
        .problem(403, "role_missing");
    // Keys and ledgers are the tenant's own: the one's bundle is signed by nobody that the other trusts.
    assert_ne!(
        other.get("/v1/trust").await.text(),
        own.get("/v1/trust").await.text()
    );
    let bundle = crate::api::audit::export(&own, &run).await;
    let report = other
        .send("/v1/verify", "application/octet-stream", bundle)
        .await
        .is(200)
        .json();
    assert_eq!(report["verdict"]["code"], "signer_unknown");
    assert_eq!(report["verdict"]["exit_code"], 2);
    server.audit(&run, &[opened]).await;
    crate::api::audit::audit(&other, &theirs.run, std::slice::from_ref(&theirs)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_may_read_itself() {
    let server = Server::start().await;
    let api = &server.api;
    let request =
        json!({"name": "nightly", "roles": ["agent"], "actor": {"type": "agent", "id": "c"}});
    let made = api.post("/v1/tokens", &request).await.is(201).json();
    let own = api.with(made["token"].as_str().unwrap());
    let path = format!("/v1/tokens/{}", made["id"].as_str().unwrap());
    let token = own.get(&path).await.is(200).json();
    assert_eq!(token["roles"], json!(["agent"]));
    assert_eq!(token["actor"], json!({"type": "agent", "id": "c"}));
    assert!(!token.to_string().contains(made["token"].as_str().unwrap()));
    assert_eq!(api.get(&path).await.is(200).json(), token);
    // Another's is for admins, and another tenant's is not there.
    let owner = api.get("/v1/tokens").await.is(200).json();
    let owner = format!("/v1/tokens/{}", owner["tokens"][0]["id"].as_str().unwrap());
    own.get(&owner).await.problem(403, "role_missing");
    own.get("/v1/tokens/%00").await.problem(403, "role_missing");
    let other = api.new_tenant().await;
    other.get(&path).await.problem(404, "token_not_found");
    other
        .get("/v1/tokens/%00")
        .await
        .problem(404, "token_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_open_nothing() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    let good = api.token.clone().unwrap();
    let made = api
        .post("/v1/tokens", &json!({"name": "n", "roles": ["admin"]}))
        .await
        .is(201);
    assert_eq!(made.header("cache-control"), "no-store");
    let revoked = api.with(made.json()["token"].as_str().unwrap());
    revoked.get("/v1/runs").await.is(200);
    let path = format!("/v1/tokens/{}", made.json()["id"].as_str().unwrap());
    api.delete(&path).await.is(204);
    // Revoked twice is revoked.
    api.delete(&path).await.is(204);
    let past = json!({"name": "n", "roles": ["admin"], "expires_at": "2020-01-01T00:00:00Z"});
    let expired = api.make_token(&past).await;
    let future = json!({"name": "n", "roles": ["admin"], "expires_at": "2120-01-01T00:00:00Z"});
    api.make_token(&future).await.get("/v1/runs").await.is(200);
    let last = good.chars().last().unwrap();
    let other = if last == 'a' { 'b' } else { 'a' };
    let wrong_secret = format!("{}{other}", &good[..good.len() - 1]);
    let unknown_id = format!("onr_{}{}", "a".repeat(12), &good[16..]);
    let malformed = [
        wrong_secret,
        unknown_id,
        good.to_uppercase(),
        good[..good.len() - 1].to_owned(),
        format!("{good}a"),
        good.replace("onr_", "pat_"),
        "onr_".to_owned(),
        "onr__".to_owned(),
        "x".repeat(10_000),
        format!("{} {good}", "x"),
    ];
    let mut bad = vec![revoked, expired, api.anonymous()];
    bad.extend(malformed.into_iter().map(|token| api.with(token)));
    for api in bad {
        for address in addresses(&run) {
            call(&api, &address).await.problem(401, "unauthenticated");
        }
    }
    for value in [
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        &good,
        "bearer\u{a0}x",
    ] {
        let request = api
            .anonymous()
            .request(Method::GET, "/v1/runs")
            .header("authorization", value);
        crate::api::Answer::of(request)
            .await
            .problem(401, "unauthenticated");
    }
    let lower = format!("bearer {good}");
    let request = api
        .anonymous()
        .request(Method::GET, "/v1/runs")
        .header("authorization", lower);
    crate::api::Answer::of(request).await.is(200);
    assert_eq!(api.size(&run).await, 1);
    let list = api.get("/v1/tokens").await.text();
    assert!(!list.contains(&good[17..]), "no list shows a secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_is_a_problem() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run;
    for (method, path, status, code) in [
        ("GET", "/".to_owned(), 404, "not_found"),
        ("GET", "/v1".to_owned(), 404, "not_found"),
        ("GET", "/v2/runs".to_owned(), 404, "not_found"),
        ("GET", format!("/v1/runs/{run}/nothing"), 404, "not_found"),
        ("PUT", "/v1/runs".to_owned(), 405, "method_not_allowed"),
        (
            "PATCH",
            format!("/v1/runs/{run}"),
            405,
            "method_not_allowed",
        ),
        (
            "DELETE",
            format!("/v1/runs/{run}"),
            405,
            "method_not_allowed",
        ),
        (
            "DELETE",
            format!("/v1/runs/{run}/frames/0"),
            405,
            "method_not_allowed",
        ),
        (
            "POST",
            format!("/v1/runs/{run}/export"),
            405,
            "method_not_allowed",
        ),
        ("POST", "/health/live".to_owned(), 405, "method_not_allowed"),
        (
            "GET",
            "/v1/runs?limit=many".to_owned(),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            "/v1/runs?limit=0".to_owned(),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            "/v1/runs?limit=501".to_owned(),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            "/v1/runs?order=up".to_owned(),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            "/v1/runs?status=closed".to_owned(),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            "/v1/runs?outcome=good".to_owned(),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            "/v1/runs?since=later".to_owned(),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            "/v1/runs?until=%00".to_owned(),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            "/v1/runs?prefix=01k".to_owned(),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            "/v1/runs/nonsense".to_owned(),
            400,
            "malformed_parameter",
        ),
        ("GET", "/v1/runs/%ff".to_owned(), 400, "malformed_parameter"),
        (
            "GET",
            format!("/v1/runs/{}", run.as_str().to_lowercase()),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            "/v1/runs/01K7Q4Z8V2N5R3T6Y9B1C0D4E8".to_owned(),
            404,
            "run_not_found",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/frames/1"),
            404,
            "frame_not_found",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/frames/9007199254740991"),
            404,
            "frame_not_found",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/frames/9007199254740992"),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/frames/99999999999999999999"),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/frames/-1"),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/frames/x"),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/frames?from=x"),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/frames?limit=1.5"),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/head?size=0"),
            404,
            "frame_not_found",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/head?size=2"),
            404,
            "frame_not_found",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/head?size=18446744073709551615"),
            404,
            "frame_not_found",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/export?payloads=some"),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/export?purpose="),
            400,
            "code_expected",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/export?purpose=a%0Ab"),
            400,
            "code_expected",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/export"),
            400,
            "purpose_required",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/export?purpose=p&withhold=tier:4"),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/export?purpose=p&withhold=prompt"),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/turns/1/proof"),
            400,
            "purpose_required",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/payloads/{}", "ab".repeat(32)),
            400,
            "purpose_required",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/payloads/{}?purpose=p", "ab".repeat(32)),
            404,
            "payload_not_found",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/payloads/{}?purpose=p", "AB".repeat(32)),
            400,
            "malformed_parameter",
        ),
        (
            "POST",
            format!("/v1/runs/{run}/frames?receipt=maybe"),
            400,
            "malformed_parameter",
        ),
        (
            "GET",
            format!("/v1/runs/{run}/turns/x/proof"),
            400,
            "malformed_parameter",
        ),
        ("GET", format!("/v1/runs/{run}/seal"), 409, "run_open"),
    ] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let answer = crate::api::Answer::of(api.request(method.clone(), &path)).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        answer.problem(status, code);
        if status == 405 {
            assert!(!answer.header("allow").is_empty());
        }
        assert!(!answer.header("x-request-id").is_empty());
    }
    let seal = format!("/v1/runs/{run}/seal");
    for body in [
        json!([]),
        json!({"interrupted": "yes"}),
        json!({"why": "x"}),
        json!([true]),
        json!(1),
    ] {
        api.post(&seal, &body)
            .await
            .problem(400, "malformed_parameter");
    }
    assert_eq!(api.run(&run).await["status"], "open");
    let far = format!("/v1/runs/{run}/frames?from={0}&limit={0}", u64::MAX);
    assert_eq!(api.get(&far).await.is(200).text(), "");
    server.alive().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages() {
    let server = Server::start().await;
    let api = &server.api;
    for number in 1..=5 {
        let agent = if number % 2 == 0 { "even" } else { "odd" };
        api.open(&json!({"session": {"agent": agent}})).await;
    }
    let numbers = |page: &Value| -> Vec<u64> {
        let runs = page["runs"].as_array().unwrap().iter();
        runs.map(|run| run["run_no"].as_u64().unwrap()).collect()
    };
    let page = api.get("/v1/runs?limit=2").await.is(200).json();
    assert_eq!(numbers(&page), [5, 4]);
    let next = page["next"].as_str().unwrap();
    let page = api
        .get(&format!("/v1/runs?limit=2&cursor={next}"))
        .await
        .is(200)
        .json();
    assert_eq!(numbers(&page), [3, 2]);
    let next = page["next"].as_str().unwrap();
    let page = api
        .get(&format!("/v1/runs?limit=2&cursor={next}"))
        .await
        .is(200)
        .json();
    assert_eq!((numbers(&page), page["next"].as_str()), (vec![1], None));
    // Times and ids cut a list; the pages of what is left are as dense.
    let all = api.get("/v1/runs").await.is(200).json();
    let opened = |place: usize| all["runs"][place]["opened_at"].as_str().unwrap();
    for (query, expected, next) in [
        (format!("since={}", opened(3)), vec![5, 4, 3, 2], false),
        (format!("until={}", opened(1)), vec![3, 2, 1], false),
        (
            format!("since={}&until={}", opened(3), opened(1)),
            vec![3, 2],
            false,
        ),
        (format!("since={}&limit=2", opened(3)), vec![5, 4], true),
        ("limit=2&order=asc".to_owned(), vec![1, 2], true),
        ("since=1h".to_owned(), vec![5, 4, 3, 2, 1], false),
        ("until=1h".to_owned(), vec![], false),
        ("since=4000000000w".to_owned(), vec![5, 4, 3, 2, 1], false),
        ("since=9999-01-01".to_owned(), vec![], false),
        ("prefix=0".to_owned(), vec![5, 4, 3, 2, 1], false),
        ("prefix=7".to_owned(), vec![], false),
        (
            format!("prefix={}", all["runs"][2]["run"].as_str().unwrap()),
            vec![3],
            false,
        ),
    ] {
        let page = api.get(&format!("/v1/runs?{query}")).await.is(200).json();
        assert_eq!(
            (numbers(&page), page["next"].is_string()),
            (expected, next),
            "{query}"
        );
    }
    let page = api
        .get("/v1/runs?agent=odd&outcome=unknown&status=open")
        .await
        .is(200)
        .json();
    assert_eq!(
        (numbers(&page), page["next"].as_str()),
        (vec![5, 3, 1], None)
    );
}
