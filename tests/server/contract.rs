//! The contract: the committed OpenAPI document, and the page that shows it.

use crate::api::Answer;
use crate::running::Server;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// `ONRECORD_BLESS=1 cargo test --test server contract` writes the file anew.
#[test]
fn the_committed_document_is_the_servers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi/onrecord.json");
    let document = onrecord::http::openapi();
    #[expect(
        clippy::disallowed_methods,
        reason = "blessing is asked for by whoever runs the tests"
    )]
    let bless = std::env::var_os("ONRECORD_BLESS").is_some();
    if bless {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &document).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == document,
        "openapi/onrecord.json is not what the server serves; look at the difference and run with ONRECORD_BLESS=1"
    );
}

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            all.push((path.clone(), method.clone(), operation.clone()));
        }
    }
    assert!(all.len() >= 18, "{}", all.len());
    all
}

#[test]
fn everything_is_described() {
    let document: Value = serde_json::from_str(&onrecord::http::openapi()).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let name = format!("{method} {path}");
        assert!(
            ids.insert(operation["operationId"].as_str().unwrap().to_owned()),
            "{name}"
        );
        let summary = operation["summary"]
            .as_str()
            .or(operation["description"].as_str());
        assert!(
            !summary.unwrap_or_default().is_empty(),
            "{name} has no summary"
        );
        let responses = operation["responses"].as_object().unwrap();
        assert!(
            responses.keys().any(|status| status.starts_with('2')),
            "{name}"
        );
        for (status, response) in responses {
            let description = response["description"].as_str().unwrap_or_default();
            assert!(!description.is_empty(), "{name} {status}");
            if status.starts_with(['4', '5']) {
                let content = response["content"].as_object().unwrap();
                assert!(content.contains_key(crate::api::PROBLEM), "{name} {status}");
            }
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let description = parameter["description"].as_str().unwrap_or_default();
            assert!(!description.is_empty(), "{name} {}", parameter["name"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_documented_address_is_there_and_wants_a_token() {
    let server = Server::start().await;
    let document = server
        .api
        .anonymous()
        .get("/openapi.json")
        .await
        .is(200)
        .json();
    let committed: Value = serde_json::from_str(&onrecord::http::openapi()).unwrap();
    assert_eq!(document, committed);
    let ledger = server.api.get("/v1/ledger").await.is(200).json();
    for (path, method, operation) in operations(&document) {
        let filled = path
            .replace("{log}", ledger["log"].as_str().unwrap())
            .replace("{pseudonym}", "p_0123456789abcdef")
            .replace("{level}", "0")
            .replace("/tile/0/{index}", "/tile/0/000.p/2")
            .replace("{index}", "0")
            .replace("{run}", "01K7Q4Z8V2N5R3T6Y9B1C0D4E8")
            .replace("{seq}", "0")
            .replace("{commit}", &"ab".repeat(32))
            .replace("{turn}", "1")
            .replace("{id}", "aaaaaaaaaaaa")
            .replace("{hold}", "1")
            .replace("{name}", "any")
            .replace("{order}", "01K7Q4Z8V2N5R3T6Y9B1C0D4E8")
            .replace("{flag}", "any")
            .replace("{erasure}", "01K7Q4Z8V2N5R3T6Y9B1C0D4E8");
        assert!(!filled.contains('{'), "{path}");
        let method = method.to_uppercase().parse().unwrap();
        let answer = Answer::of(server.api.anonymous().request(method, &filled)).await;
        if operation["security"].is_array() {
            assert_eq!(answer.status, 200, "{path}");
        } else {
            answer.problem(401, "unauthenticated");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_needs_no_other_host() {
    let server = Server::start().await;
    let api = server.api.anonymous();
    let page = api.get("/docs").await.is(200);
    assert!(page.header("content-type").starts_with("text/html"));
    let html = page.text();
    let mut assets: Vec<String> = Vec::new();
    for part in html.split(['"', '\'']) {
        assert!(
            !part.starts_with("//") && !part.contains("://"),
            "the page names {part}"
        );
        let is_asset = [".js", ".css", ".png", ".svg"]
            .iter()
            .any(|end| part.ends_with(end));
        assets.extend(is_asset.then(|| part.to_owned()));
    }
    assert!(assets.len() >= 3, "{assets:?}");
    for asset in assets {
        let path = format!(
            "/docs/{}",
            asset.trim_start_matches("./").trim_start_matches("/docs/")
        );
        let answer = api.get(&path).await.is(200);
        if asset.contains("initializer") {
            let text = answer.text();
            assert!(text.contains("/openapi.json"), "{text}");
            assert!(
                !text.contains("https://") && !text.contains("http://"),
                "{text}"
            );
        }
        if asset.ends_with(".css") {
            let text = answer.text();
            assert!(
                !text.contains("@import") && !text.contains("url(http"),
                "{asset}"
            );
        }
    }
    for path in ["/health/live", "/health/ready"] {
        let health = api.get(path).await.is(200).json();
        assert_eq!(health["status"], "ok");
    }
}
