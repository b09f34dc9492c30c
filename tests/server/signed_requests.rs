//! Requests that an agent signs with its key, and bring no token.

use crate::api::{Answer, Api};
use crate::running::Server;
use crate::signing_agent::{Agent, Run};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

fn digest(content: &[u8]) -> String {
    format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(content)))
}

/// A request before it is sent: a test changes what it likes.
#[derive(Clone)]
struct Request {
    method: Method,
    path: String,
    body: Vec<u8>,
    headers: Vec<(String, String)>,
}

impl Request {
    fn new(method: Method, path: &str, body: &Value) -> Self {
        let body = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let headers = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("content-digest".to_owned(), digest(&body)),
        ];
        Self {
            method,
            path: path.to_owned(),
            body,
            headers,
        }
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn and(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(other, _)| other == name);
        &found.expect("the header").1
    }

    /// The signature base of RFC 9421, 2.5, over these components with these parameters.
    fn base(&self, components: &[&str], params: &str) -> (String, String) {
        let (path, query) = self.path.split_once('?').unwrap_or((&self.path, ""));
        let mut base = String::new();
        for name in components {
            let value = match *name {
                "@method" => self.method.to_string(),
                "@path" => path.to_owned(),
                "@query" => format!("?{query}"),
                name => self.header(name).to_owned(),
            };
            base.push_str(&format!("\"{name}\": {value}\n"));
        }
        let names: Vec<String> = components
            .iter()
            .map(|name| format!("\"{name}\""))
            .collect();
        let params = format!("({}){params}", names.join(" "));
        base.push_str(&format!("\"@signature-params\": {params}"));
        (base, params)
    }

    fn signed_over(self, agent: &Agent, components: &[&str], params: &str) -> Self {
        let (base, params) = self.base(components, params);
        let sig = agent.sign(base.as_bytes());
        self.set("signature-input", &format!("sig1={params}"))
            .set("signature", &format!("sig1=:{sig}:"))
    }

    fn signed(self, signer: &Signer<'_>) -> Self {
        let mut components = vec!["@method", "@path", "content-digest"];
        components.extend(self.path.contains('?').then_some("@query"));
        self.signed_over(signer.agent, &components, &signer.params())
    }

    async fn send(&self, api: &Api) -> Answer {
        let mut request = api.anonymous().request(self.method.clone(), &self.path);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        Answer::of(request.body(self.body.clone())).await
    }
}

struct Signer<'a> {
    agent: &'a Agent,
    tenant: String,
    created: i64,
    nonce: String,
}

impl Signer<'_> {
    fn params(&self) -> String {
        let nonce = match self.nonce.as_str() {
            "" => String::new(),
            nonce => format!(";nonce=\"{nonce}\""),
        };
        let (created, tenant, keyid) = (self.created, &self.tenant, &self.agent.keyid);
        format!(";created={created};keyid=\"{tenant}/{keyid}\"{nonce}")
    }
}

/// The database's clock, in seconds.
async fn now(server: &Server) -> i64 {
    sqlx::query_scalar("select extract(epoch from clock_timestamp())::bigint")
        .fetch_one(&mut server.sql().await)
        .await
        .unwrap()
}

async fn smith() -> (Server, Agent, Run) {
    let server = Server::start().await;
    let agent = Agent::new("smith", 1);
    agent.register(&server.api).await;
    let run = Run::open(&server.api).await;
    (server, agent, run)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_needs_no_token() {
    let (server, smith, known) = smith().await;
    let api = &server.api;
    let mut signer = Signer {
        agent: &smith,
        tenant: known.tenant.clone(),
        created: now(&server).await,
        nonce: String::new(),
    };
    let open = Request::new(
        Method::POST,
        "/v1/runs",
        &json!({"session": {}, "key": "o"}),
    );
    let opened = open.signed(&signer).send(api).await.is(201).receipt();
    let run = Run {
        opened: opened.clone(),
        ..known
    };
    let frames = format!("/v1/runs/{}/frames", run.id());
    let mut receipts = vec![opened];
    for n in 1..=3 {
        let frame = smith.frame(&run, n, &json!({"kind": "observation", "body": {"n": n}}));
        let request = Request::new(Method::POST, &frames, &frame);
        receipts.push(request.signed(&signer).send(api).await.is(201).receipt());
    }
    // It may write as a tool of its own, unsigned, and not as somebody else.
    let tool = json!({"kind": "observation", "actor": {"type": "tool", "id": "sh"}});
    let request = Request::new(Method::POST, &frames, &tool);
    receipts.push(request.signed(&signer).send(api).await.is(201).receipt());
    let other = json!({"kind": "observation", "actor": {"type": "agent", "id": "jones"}});
    let request = Request::new(Method::POST, &frames, &other);
    request
        .signed(&signer)
        .send(api)
        .await
        .problem(403, "actor_not_yours");
    // It reads as an agent does, and exports no payload.
    let path = format!("/v1/runs/{}", run.id());
    let read = Request::new(Method::GET, &path, &Value::Null);
    read.clone().signed(&signer).send(api).await.is(200);
    let export = |payloads: &str| {
        Request::new(
            Method::GET,
            &format!("{path}/export?payloads={payloads}"),
            &Value::Null,
        )
    };
    export("none").signed(&signer).send(api).await.is(200);
    export("all")
        .signed(&signer)
        .send(api)
        .await
        .problem(403, "role_missing");
    let tokens = Request::new(Method::GET, "/v1/tokens", &Value::Null);
    tokens
        .signed(&signer)
        .send(api)
        .await
        .problem(403, "role_missing");
    // A run that is sealed is followed to its end.
    let seal = Request::new(Method::POST, &format!("{path}/seal"), &Value::Null);
    seal.signed(&signer).send(api).await.is(201);
    let events = Request::new(Method::GET, &format!("{path}/events"), &Value::Null);
    let events = events.signed(&signer).send(api).await.is(200).text();
    assert!(events.contains("event: sealed"), "{events}");
    server.audit(run.id(), &receipts).await;
    // The same twice is a replay; a nonce makes two of one.
    let again = read.clone().signed(&signer).send(api).await;
    again.problem(401, "http_signature");
    signer.nonce = "2".to_owned();
    read.clone().signed(&signer).send(api).await.is(200);
    // Once revoked it opens nothing.
    let path = format!("/v1/agent-keys/{}", smith.keyid);
    api.delete(&path).await.is(204);
    signer.nonce = "3".to_owned();
    read.signed(&signer)
        .send(api)
        .await
        .problem(401, "http_signature");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_signed_in_one_strict_form() {
    let (server, smith, run) = smith().await;
    let api = &server.api;
    let created = now(&server).await;
    let signer = Signer {
        agent: &smith,
        tenant: run.tenant.clone(),
        created,
        nonce: String::new(),
    };
    let path = format!("/v1/runs/{}", run.id());
    let read = Request::new(Method::GET, &path, &Value::Null);
    let all = ["@method", "@path", "content-digest"];
    let params = signer.params();
    let good = read.clone().signed(&signer);
    let input = good.header("signature-input").to_owned();
    let sig = good.header("signature").to_owned();
    let over =
        |components: &[&str], params: &str| read.clone().signed_over(&smith, components, params);
    let keyid = format!(";keyid=\"{}/{}\"", run.tenant, smith.keyid);
    let at = |created: i64| format!(";created={created}{keyid}");
    let mut refused = vec![
        // Components.
        over(&all[1..], &params),
        over(&["@method", "content-digest"], &params),
        over(&["@method", "@path"], &params),
        over(&["@method", "@method", "@path", "content-digest"], &params),
        over(&["@method", "@path", "content-digest", "@path"], &params),
        // Parameters.
        over(&all, ""),
        over(&all, &keyid),
        over(&all, &format!(";created={created}")),
        over(&all, &format!("{params};created={created}")),
        over(&all, &format!("{params};alg=\"rsa-pss-sha512\"")),
        over(&all, &format!("{params};expires={created}")),
        over(&all, &params.replace(";created", "; created")),
        over(&all, &params.replace(&created.to_string(), "\"1\"")),
        over(
            &all,
            &params.replace(&created.to_string(), &format!("0{created}")),
        ),
        over(&all, &params.replace(&smith.keyid, "00")),
        over(&all, &params.replace(&format!("{}/", run.tenant), "")),
        over(&all, &params.replace(&run.tenant, "t_0000000000000000")),
        over(&all, &params.replace(&smith.keyid, &"0".repeat(64))),
        // The window.
        over(&all, &at(created - 70)),
        over(&all, &at(created + 60)),
        over(&all, &at(0)),
        // Another's key under this id.
        read.clone()
            .signed_over(&Agent::new("smith", 2), &all, &params),
        // Headers.
        good.clone().set("signature", &sig.replace("sig1", "sig2")),
        good.clone().set("signature", "sig1=:AAAA:"),
        good.clone().set("signature", &sig[5..]),
        good.clone()
            .set("signature-input", &format!("{input}, sig2=()")),
        good.clone()
            .set("signature-input", &input.replace("sig1", "Sig1")),
        good.clone()
            .set("signature-input", &input.replace("\" \"", "\"  \"")),
        good.clone().set("signature-input", ""),
        good.clone().and("signature-input", &input),
        good.clone().and("signature", &sig),
        good.clone().set(
            "authorization",
            &format!("Bearer {}", api.token.as_deref().unwrap()),
        ),
        good.clone().set("content-digest", "sha-256=:AAAA:"),
        good.clone().set("content-digest", &digest(b"x")),
        good.clone().and("content-digest", &digest(b"")),
    ];
    for name in ["signature", "signature-input", "content-digest"] {
        let mut without = good.clone();
        without.headers.retain(|(other, _)| other != name);
        refused.push(without);
    }
    // What is signed is this method, this path and this query, and what a GET has is nothing.
    let changed = |path: String| Request {
        path,
        ..good.clone()
    };
    refused.push(changed(format!("{path}/frames")));
    refused.push(changed(format!("{path}?x=1")));
    let key = format!("/v1/agent-keys/{}", smith.keyid);
    let mut other = Request::new(Method::GET, &key, &Value::Null).signed(&signer);
    other.method = Method::DELETE;
    refused.push(other);
    let list = Request::new(Method::GET, "/v1/runs?limit=1", &Value::Null);
    refused.push(list.clone().signed_over(&smith, &all, &params));
    let mut other = list.clone().signed(&signer);
    other.path = "/v1/runs?limit=2".to_owned();
    refused.push(other);
    let with_body = Request::new(Method::GET, &path, &json!({}));
    refused.push(with_body.signed(&signer));
    // A header that says what is to be done is signed.
    let keyed = read.clone().set("idempotency-key", "k");
    refused.push(keyed.signed(&signer));
    for request in refused {
        let answer = request.send(api).await;
        assert_eq!(answer.status, 401, "{:?}", request.headers);
        answer.problem(401, "http_signature");
    }
    list.signed(&signer).send(api).await.is(200);
    good.send(api).await.is(200);
    let with_alg = over(&all, &format!("{params};alg=\"ed25519\""));
    with_alg.send(api).await.is(200);
    let keyed = read.set("idempotency-key", "k");
    let components = ["@method", "content-digest", "idempotency-key", "@path"];
    keyed
        .signed_over(&smith, &components, &params)
        .send(api)
        .await
        .is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_the_one_of_its_digest() {
    let (server, smith, run) = smith().await;
    let api = &server.api;
    let signer = Signer {
        agent: &smith,
        tenant: run.tenant.clone(),
        created: now(&server).await,
        nonce: String::new(),
    };
    let path = format!("/v1/runs/{}/frames", run.id());
    let frame = |n| json!({"kind": "observation", "key": format!("k{n}"), "actor": {"type": "tool", "id": "t"}});
    let mut swapped = Request::new(Method::POST, &path, &frame(1)).signed(&signer);
    swapped.body = frame(2).to_string().into_bytes();
    swapped.send(api).await.problem(400, "content_digest");
    // Many frames are recorded as they come, so that they are not signed as a whole.
    let lines =
        Request::new(Method::POST, &path, &frame(3)).set("content-type", "application/x-ndjson");
    lines
        .signed(&signer)
        .send(api)
        .await
        .problem(415, "media_type");
    // With a token a digest is checked as well, that of the bytes that came.
    let token = format!("Bearer {}", api.token.as_deref().unwrap());
    let with_token = |n| Request::new(Method::POST, &path, &frame(n)).set("authorization", &token);
    with_token(4).send(api).await.is(201);
    let mut swapped = with_token(5);
    swapped.body = frame(6).to_string().into_bytes();
    swapped.send(api).await.problem(400, "content_digest");
    for wrong in ["", "sha-256", "sha-512=:AAAA:", "sha-256=:AAAA:"] {
        let request = with_token(7).set("content-digest", wrong);
        request.send(api).await.problem(400, "malformed_parameter");
    }
    use std::io::Write as _;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(frame(8).to_string().as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    for (of, status) in [(&packed[..], 201), (frame(8).to_string().as_bytes(), 400)] {
        let mut request = with_token(8)
            .set("content-encoding", "gzip")
            .set("content-digest", &digest(of));
        request.body = packed.clone();
        request.send(api).await.is(status);
    }
    assert_eq!(api.size(run.id()).await, 3);
    server.audit(run.id(), &[]).await;
}
