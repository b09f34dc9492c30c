//! The API as its users see it: a small client whose answers are asserted, and the audit that every
//! story is followed by.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod audit;
pub mod bundle;
pub mod raw;

use bytes::Bytes;
use onrecord_core::receipt::Receipt;
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use std::sync::Once;

pub const JSON: &str = "application/json";
pub const NDJSON: &str = "application/x-ndjson";
pub const PROBLEM: &str = "application/problem+json";

/// One token at one server.
#[derive(Clone)]
pub struct Api {
    http: Client,
    pub base: String,
    pub token: Option<String>,
}

impl Api {
    pub fn new(base: impl Into<String>, token: impl Into<String>) -> Self {
        static PROVIDER: Once = Once::new();
        // The client is built with TLS in the tree, and insists on a provider.
        PROVIDER.call_once(|| {
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        let http = Client::builder().no_proxy().build().expect("a client");
        Self {
            http,
            base: base.into(),
            token: Some(token.into()),
        }
    }

    /// The same server, another token.
    pub fn with(&self, token: impl Into<String>) -> Self {
        Self {
            token: Some(token.into()),
            ..self.clone()
        }
    }

    /// The same token, another server.
    pub fn at(&self, base: impl Into<String>) -> Self {
        Self {
            base: base.into(),
            ..self.clone()
        }
    }

    pub fn anonymous(&self) -> Self {
        Self {
            token: None,
            ..self.clone()
        }
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> &str {
        self.base.strip_prefix("http://").expect("plain http")
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::DELETE, path)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(path, JSON, body.to_string()).await
    }

    pub async fn send(
        &self,
        path: &str,
        media: &'static str,
        body: impl Into<reqwest::Body>,
    ) -> Answer {
        Answer::of(
            self.request(Method::POST, path)
                .header("content-type", media)
                .body(body),
        )
        .await
    }

    /// As [`Api::post`], with further headers.
    pub async fn post_with(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> Answer {
        let mut request = self
            .request(Method::POST, path)
            .header("content-type", JSON)
            .body(body.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::of(request).await
    }

    pub async fn open(&self, body: &Value) -> Receipt {
        self.post("/v1/runs", body).await.is(201).receipt()
    }

    /// Opens a run of which nothing matters.
    pub async fn any_run(&self) -> Receipt {
        self.open(&json!({"session": {"agent": "any"}})).await
    }

    pub async fn frame(&self, run: impl std::fmt::Display, body: &Value) -> Answer {
        self.post(&format!("/v1/runs/{run}/frames"), body).await
    }

    /// Many frames; the lines of the answer, the last of which says how many there were.
    pub async fn frames(
        &self,
        run: impl std::fmt::Display,
        lines: impl Into<reqwest::Body>,
    ) -> Vec<Value> {
        let path = format!("/v1/runs/{run}/frames");
        self.send(&path, NDJSON, lines).await.is(200).lines()
    }

    pub async fn run(&self, run: impl std::fmt::Display) -> Value {
        self.get(&format!("/v1/runs/{run}")).await.is(200).json()
    }

    pub async fn size(&self, run: impl std::fmt::Display) -> u64 {
        self.run(run).await["size"].as_u64().expect("a size")
    }

    /// A new token of the tenant.
    pub async fn make_token(&self, body: &Value) -> Self {
        let answer = self.post("/v1/tokens", body).await.is(201).json();
        self.with(answer["token"].as_str().expect("a token"))
    }

    pub async fn role(&self, role: &str) -> Self {
        self.make_token(&json!({"name": format!("a {role}"), "roles": [role]}))
            .await
    }

    /// A second tenant and its owner.
    pub async fn new_tenant(&self) -> Self {
        let answer = self
            .post("/v1/tenants", &json!({"name": "second"}))
            .await
            .is(201)
            .json();
        self.with(answer["token"].as_str().expect("a token"))
    }
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

impl Answer {
    pub async fn of(request: RequestBuilder) -> Self {
        Self::try_of(request).await.expect("an answer")
    }

    /// Fails where the server went away.
    pub async fn try_of(request: RequestBuilder) -> reqwest::Result<Self> {
        Self::try_from_response(request.send().await?).await
    }

    /// As [`Answer::try_of`], where the head has come.
    pub async fn try_from_response(response: reqwest::Response) -> reqwest::Result<Self> {
        Ok(Self {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            bytes: response.bytes().await?,
        })
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|error| {
            panic!("{error} in {} {:?}", self.status, self.text());
        })
    }

    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        let text = self.text();
        assert!(text.ends_with('\n'), "the last line is whole: {text:?}");
        text.lines()
            .map(|line| serde_json::from_str(line).expect("a line is JSON"))
            .collect()
    }

    #[track_caller]
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        let value = value.unwrap_or_else(|| panic!("no {name} in {:?}", self.headers));
        value.to_str().expect("a header of text")
    }

    #[track_caller]
    pub fn receipt(&self) -> Receipt {
        receipt(&self.json())
    }

    /// A problem of RFC 9457 with everything that ours have.
    #[track_caller]
    pub fn problem(&self, status: u16, code: &str) -> Value {
        let text = self.text();
        assert_eq!(self.status, status, "{text}");
        assert_eq!(self.header("content-type"), PROBLEM, "{text}");
        let problem = self.json();
        assert_problem(&problem, status, code);
        if status == 401 {
            assert!(self.header("www-authenticate").starts_with("Bearer"));
        }
        problem
    }
}

/// What every problem has, on its own or in a line of an answer.
#[track_caller]
pub fn assert_problem(problem: &Value, status: u16, code: &str) {
    assert_eq!(problem["code"], code, "{problem}");
    assert_eq!(problem["status"], status, "{problem}");
    assert_eq!(
        problem["type"],
        format!("https://onrecord.dev/problems/{code}")
    );
    for member in ["title", "detail", "action"] {
        let text = problem[member].as_str().unwrap_or_default();
        assert!(!text.is_empty(), "no {member} in {problem}");
    }
}

/// The receipt in an answer or in a line of one.
#[track_caller]
pub fn receipt(value: &Value) -> Receipt {
    let members = json!({
        "run": value["run"], "seq": value["seq"], "hash": value["hash"], "at": value["at"],
    });
    serde_json::from_value(members).unwrap_or_else(|error| panic!("{error} in {value}"))
}
