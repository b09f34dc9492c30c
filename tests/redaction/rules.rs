//! Rules that a tenant adds over the API, literal secrets of an operator, and what rules would do.

use super::{SECRET, Server};
use onrecord::http::router;
use onrecord::start::{Config, start};
use onrecord_core::digest::{Hash, hex};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection, Row as _};
use std::os::unix::fs::PermissionsExt as _;

const DOCUMENT: &str = r#"
[[token]]
id = "badge"
kind = "badge"
anchors = ["BADGE-"]
pattern = 'BADGE-[0-9]{6}'

[[name]]
id = "door-code"
kind = "door_code"
trust = "high"
words = ["door code"]

[allow]
values = ["s3cr3t-pass9"]
patterns = ['only-a-test-[0-9]+']

[json]
always = ["/patient/name", "/rows/*/id"]
never = ["/public"]
"#;

impl Server {
    async fn put_rules(&self, media: &str, document: &str) -> (u16, Value) {
        let path = "/v1/redaction/rules";
        let (status, bytes) = self.request("PUT", path, media, document.to_owned()).await;
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    async fn dry_run(&self, request: Value) -> Value {
        let (status, answer) = self.send("POST", "/v1/redaction/dry-run", request).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Records a JSON payload; answers its redactions and what is kept of it.
    async fn kept(&self, run: &str, key: &str, payload: Value) -> (Value, Value) {
        let marker = payload["0"].clone();
        let frame = json!({"kind": "observation", "key": key, "payloads": [{"name": "data", "json": payload}]});
        let (status, receipt) = self.append(run, frame).await;
        assert_eq!(status, 201, "{receipt}");
        let seq = receipt["seq"].as_u64().unwrap();
        let (_, bundle) = self
            .bytes(
                "GET",
                &format!("/v1/runs/{run}/export?purpose=test"),
                &Value::Null,
            )
            .await;
        let bundle = String::from_utf8_lossy(&bundle).into_owned();
        let from = bundle.find(&format!("{{\"0\":{},", marker)).unwrap();
        let mut values = serde_json::Deserializer::from_str(&bundle[from..]).into_iter();
        (
            self.redactions(run, seq, 0).await,
            values.next().unwrap().unwrap(),
        )
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_rules_hold_at_once_and_stand_in_the_ledger() {
    let server = Server::start(true).await;
    let none = server.send("GET", "/v1/redaction/rules", Value::Null).await;
    assert_eq!(none, (200, json!({"version": 0, "set": "builtin/1"})));
    let run = server.run().await;
    let payload = |n: u64| {
        json!({"0": n, "badge": "BADGE-123456", "doorCode": "0pen-sesame-77", "password": SECRET,
            "api_key": "only-a-test-77", "secret": "an0ther-s3cret", "patient": {"name": "Ada", "age": 36},
            "rows": [{"id": 5, "n": 1}, {"id": "x"}], "public": {"password": "kept-anyway1"}})
    };
    let (before, kept) = server.kept(&run, "before", payload(1)).await;
    assert_eq!(kept["patient"]["name"], "Ada");
    assert_eq!(before[0]["rules"], "builtin/1");

    let (status, answer) = server.put_rules("application/toml", DOCUMENT).await;
    assert_eq!(
        (status, &answer["version"], &answer["set"]),
        (201, &json!(1), &json!("builtin/1+t/1")),
        "{answer}"
    );
    assert_eq!(
        (&answer["document"], &answer["by"]["type"]),
        (&json!(DOCUMENT), &json!("human"))
    );
    let (redactions, kept) = server.kept(&run, "after", payload(2)).await;
    assert_eq!(
        kept,
        json!({"0": 2, "badge": "[redacted:badge]", "doorCode": "[redacted:door_code]", "password": SECRET,
            "api_key": "only-a-test-77", "secret": "[redacted:secret]", "patient": {"name": "[redacted:private]", "age": 36},
            "rows": [{"id": "[redacted:private]", "n": 1}, {"id": "[redacted:private]"}], "public": {"password": "kept-anyway1"}})
    );
    let redactions = redactions.as_array().unwrap();
    assert!(redactions.iter().all(|one| one["rules"] == "builtin/1+t/1"));
    assert!(
        redactions
            .iter()
            .any(|one| one["rule"] == "json-always" && one["pointer"] == "/rows/0/id")
    );
    let refused = json!({"kind": "observation", "key": "r", "body": {"note": "BADGE-654321"}});
    let (status, problem) = server.append(&run, refused).await;
    assert_eq!(
        (status, &problem["pointer"]),
        (422, &json!("/body/note")),
        "{problem}"
    );

    // The same again changes nothing; another is another version, and the first one is kept.
    assert_eq!(server.put_rules("application/toml", DOCUMENT).await.0, 200);
    let (status, second) = server
        .put_rules("application/json", "{\"never\": {\"values\": [\"x\"]}}")
        .await;
    assert_eq!(
        (status, &second["set"]),
        (201, &json!("builtin/1+t/2")),
        "{second}"
    );
    let first = server
        .send("GET", "/v1/redaction/rules?version=1", Value::Null)
        .await
        .1;
    assert_eq!(
        (&first["document"], &first["media"]),
        (&json!(DOCUMENT), &json!("application/toml"))
    );
    assert_eq!(
        server
            .send("GET", "/v1/redaction/rules?version=3", Value::Null)
            .await
            .0,
        404
    );
    let (_, kept) = server.kept(&run, "third", payload(3)).await;
    assert_eq!(kept["badge"], "BADGE-123456");
    in_the_ledger(&server).await;
}

/// The entries of the changes, and that nobody changes a document.
async fn in_the_ledger(server: &Server) {
    let mut connection = PgConnection::connect(&server.database.url).await.unwrap();
    let rows = sqlx::query(
        "select r.document, l.name, convert_from(l.bytes, 'UTF8') as envelope from redaction_rules r
         join ledger_entries l on l.tenant = r.tenant and l.idx = r.ledger_index order by r.version",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(rows.len(), 2);
    for (row, version) in rows.iter().zip(1..) {
        let envelope: Value = serde_json::from_str(row.get("envelope")).unwrap();
        let payload = base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            envelope["payload"].as_str().unwrap(),
        );
        let statement: Value = serde_json::from_slice(&payload.unwrap()).unwrap();
        let digest = hex(&Hash::of(&[row.get::<&[u8], _>("document")]).0);
        assert_eq!(row.get::<&str, _>("name"), "policy");
        assert_eq!(
            statement["subject"],
            json!([{"name": "redaction-rules", "digest": {"sha256": digest}}])
        );
        assert_eq!(
            (
                &statement["predicate"]["policy"],
                &statement["predicate"]["version"]
            ),
            (&json!("redaction"), &json!(version))
        );
    }
    for change in [
        "update redaction_rules set document = ''",
        "delete from redaction_rules",
        "truncate redaction_rules",
    ] {
        let error = sqlx::query(change)
            .execute(&mut connection)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("append-only"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_process_follows_and_another_tenant_does_not() {
    let server = Server::start(true).await;
    let other = Server {
        router: router(start(&server.config).await.unwrap().app),
        owner: server.owner.clone(),
        config: server.config.clone(),
        database: crate::harness::database().await,
        data: tempfile::tempdir().unwrap(),
    };
    let run = other.run().await;
    let frame = |key: u64| json!({"kind": "observation", "key": format!("k/{key}"), "body": {"note": "BADGE-654321"}});
    assert_eq!(other.append(&run, frame(0)).await.0, 201);
    assert_eq!(server.put_rules("application/toml", DOCUMENT).await.0, 201);
    // Each frame is one that the old rules took, until the new ones are looked at.
    let mut key = 1;
    while other.append(&run, frame(key)).await.0 == 201 {
        key += 1;
    }
    let tenant = server
        .send("POST", "/v1/tenants", json!({"name": "second"}))
        .await
        .1;
    let second = Server {
        owner: tenant["token"].as_str().unwrap().to_owned(),
        ..other
    };
    let run = second.run().await;
    assert_eq!(second.append(&run, frame(0)).await.0, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_cannot_be_used_say_where_and_change_nothing() {
    let server = Server::start(true).await;
    let token = |anchors: &str, pattern: &str| {
        format!(
            "[[token]]\nid = \"t\"\nkind = \"t\"\nanchors = [{anchors}]\npattern = '{pattern}'\n"
        )
    };
    let many: String = (0..65)
        .map(|n| token("\"abc\"", "abc").replace("\"t\"", &format!("\"t{n}\"")))
        .collect();
    for (document, expected) in [
        ("[[token]]\nid = ", "line 2"),
        ("unknown = 1", "unknown field"),
        ("version = \"x\"", "leave `version` out"),
        (
            "[[literal]]\nid = \"a\"\nvalue = \"12345678\"",
            "--redact-literals",
        ),
        (&token("\"ab\"", "abc"), "rule t: at most 32 anchors, of 3"),
        (&token("\"abc\"", "("), "rule t: "),
        (&token("\"abc\"", "(?:[a-z]{500}){100}"), "rule t: "),
        (
            &token("\"abc\"", "abc").replace("\"t\"", "\"github\""),
            "rule github: there is a rule of that id",
        ),
        (&token("\"abc\"", &"a".repeat(1_001)), "1 to 1000 bytes"),
        (&many, "at most 64 rules"),
        (
            "[[name]]\nid = \"n\"\nkind = \"n\"\ntrust = \"high\"\nwords = [\"a\"]",
            "rule n: 1 to 32 words",
        ),
        ("[allow]\npatterns = ['ok', '(']", "allow.patterns, entry 2"),
        ("[json]\nalways = [\"name\"]", "json.always, entry 1"),
    ] {
        let (status, problem) = server.put_rules("application/toml", document).await;
        assert_eq!(
            (status, &problem["code"]),
            (422, &json!("malformed_rules")),
            "{document} {problem}"
        );
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(expected), "{document}: {detail}");
    }
    assert_eq!(
        server
            .put_rules("application/toml", &" ".repeat(70_000))
            .await
            .0,
        413
    );
    assert_eq!(server.put_rules("text/plain", "").await.0, 415);
    let auditor = json!({"name": "a", "roles": ["auditor", "agent", "gate"]});
    let auditor = server.send("POST", "/v1/tokens", auditor).await.1;
    let standing = server
        .send("GET", "/v1/redaction/rules", Value::Null)
        .await
        .1;
    assert_eq!(standing["version"], 0);
    let auditor = Server {
        owner: auditor["token"].as_str().unwrap().to_owned(),
        ..server
    };
    assert_eq!(auditor.put_rules("application/toml", DOCUMENT).await.0, 403);
    let (status, _) = auditor
        .send("POST", "/v1/redaction/dry-run", json!({}))
        .await;
    assert_eq!(status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_shows_what_rules_would_do_and_no_secret() {
    let server = Server::start(true).await;
    let run = server.run().await;
    for n in 0..12 {
        let body = json!({"note": format!("see BADGE-{:06}", n), "BADGE-000001": n});
        let frame =
            json!({"kind": "observation", "key": format!("BADGE-9000{n:02}"), "body": body});
        assert_eq!(server.append(&run, frame).await.0, 201);
    }
    let request = json!({"rules": DOCUMENT, "runs": {"last": 5},
        "sample": {"json": {"a": [format!("BADGE-123456 and {SECRET}")], "token": "x"}}});
    let answer = server.dry_run(request).await;
    assert_eq!(answer["set"], "builtin/1+t/0");
    assert_eq!(
        answer["sample"],
        json!({"found": [{"kind": "badge", "rule": "badge", "pointer": "/a/0"}],
            "json": {"a": [format!("[redacted:badge] and {SECRET}")], "token": "x"}})
    );
    let found = &answer["runs"]["found"][0];
    assert_eq!(
        (&found["rule"], &found["count"]),
        (&json!("badge"), &json!(36))
    );
    assert_eq!(found["places"].as_array().unwrap().len(), 10);
    assert_eq!(
        found["places"][0],
        json!({"run": run, "seq": 1, "pointer": "/body/[redacted:badge]"})
    );
    assert_eq!(answer["runs"]["complete"], true);
    assert!(!answer.to_string().contains("BADGE-"), "{answer}");

    let text = json!({"sample": {"text": format!("PGPASSWORD={SECRET} psql")}});
    let answer = server.dry_run(text).await;
    assert_eq!(
        answer,
        json!({"set": "builtin/1", "sample": {"text": "PGPASSWORD=[redacted:password] psql",
            "found": [{"kind": "password", "rule": "password-name", "range": [11, 30]}]}})
    );
    for wrong in [
        json!({"sample": {}}),
        json!({"sample": {"json": 1, "text": "x"}}),
        json!({"runs": {"last": 0}}),
        json!({"more": 1}),
    ] {
        let (status, problem) = server.send("POST", "/v1/redaction/dry-run", wrong).await;
        assert_eq!(
            (status, &problem["code"]),
            (400, &json!("malformed_parameter"))
        );
    }
    // The same document as JSON.
    let rules = json!({"token": [{"id": "badge", "kind": "badge", "anchors": ["BADGE-"], "pattern": "BADGE-[0-9]{6}"}]});
    let request = json!({"rules": rules, "sample": {"text": "BADGE-123456"}});
    assert_eq!(
        server.dry_run(request).await["sample"]["text"],
        "[redacted:badge]"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn literal_secrets_of_the_operator_are_found_whatever_a_tenant_says() {
    let server = Server::start(true).await;
    let path = server.data.path().join("literals");
    let literal = "correct horse \"battery\"";
    std::fs::write(&path, format!("{literal}\n\nanother-one-of-ours\n")).unwrap();
    let config = Config {
        literals: Some(path.clone()),
        ..server.config.clone()
    };
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = start(&config).await.err().unwrap().to_string();
    assert!(error.contains("for its owner alone"), "{error}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = Server {
        router: router(start(&config).await.unwrap().app),
        ..server
    };
    let own = format!(
        "[allow]\nvalues = [{}]\n[json]\nnever = [\"/note\"]\n",
        json!(literal)
    );
    assert_eq!(server.put_rules("application/toml", &own).await.0, 201);
    let run = server.run().await;
    let encoded = hex(literal.as_bytes());
    let payload = json!({"0": 1, "note": format!("say {literal}"), "hex": encoded, "key another-one-of-ours": 1});
    let (redactions, kept) = server.kept(&run, "k", payload).await;
    assert_eq!(
        kept,
        json!({"0": 1, "note": "say [redacted:literal]", "hex": "[redacted:literal]", "key [redacted:literal]": 1})
    );
    assert_eq!(redactions[0]["rules"], "builtin/1+l+t/1");

    std::fs::write(&path, "fine-and-long\nshort\n").unwrap();
    let error = start(&config).await.err().unwrap().to_string();
    assert!(
        error.contains("literal-2") && error.contains("at least 8"),
        "{error}"
    );
    assert!(
        !error.contains("short\n") && !error.contains("fine-and-long"),
        "{error}"
    );
}
