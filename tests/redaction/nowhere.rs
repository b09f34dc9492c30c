//! Whatever a secret is posted as, it is nowhere afterwards: a real server, and a search of the bytes that it leaves.

use crate::api::{Answer, Api};
use crate::process::{DataDir, Process};
use crate::samples::samples;
use crate::shared::shared;
use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use onrecord::postgres::{ClusterState, inspect};
use onrecord::redact::{RuleSet, Shape};
use onrecord::start::DATABASE;
use onrecord_core::digest::hex;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// A secret, and the text that it is found in.
struct Secret {
    value: String,
    context: String,
    /// Whether it is found where nothing stands around it.
    alone: bool,
    /// Whether it is one of ours, which have to be found wherever they stand.
    ours: bool,
}

/// Where something was found, and which secrets it was.
type Leaks = Vec<(String, BTreeSet<usize>)>;

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_was_posted_anywhere_is_nowhere() {
    let rules = RuleSet::builtin().unwrap();
    let mut secrets = ours();
    secrets.extend(of_others(&rules));
    // What only the operator knows is a secret.
    let literal = "the-word-of-the-operator";
    secrets.push(Secret {
        value: literal.to_owned(),
        context: format!("it is {literal}, keep it"),
        alone: true,
        ours: true,
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("literals");
    std::fs::write(&file, literal).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let file = file.display().to_string();
    let leaks = session(&secrets, &["--redact-literals", &file]).await;
    for (place, found) in &leaks {
        for index in found {
            let secret = &secrets[*index];
            eprintln!("{place}: {:?} of {:?}", secret.value, secret.context);
        }
    }
    assert!(leaks.iter().all(|(_, found)| found.is_empty()));
}

/// The search finds what is there: without redaction every secret of ours is in the export and the dump, and some are
/// in the files and the log.
#[tokio::test(flavor = "multi_thread")]
async fn without_redaction_the_search_finds_them() {
    let secrets = ours();
    let leaks = session(&secrets, &["--redaction", "off"]).await;
    for (place, found) in leaks {
        let all = place == "the export" || place == "pg_dump";
        let enough = if all {
            found.len() == secrets.len()
        } else {
            true
        };
        assert!(enough, "{place}: {} of {}", found.len(), secrets.len());
        assert!(place != "the log" || !found.is_empty());
    }
}

/// One secret of each family, and some that only their context tells.
fn ours() -> Vec<Secret> {
    let tokens = samples(77).into_iter().map(|(_, value)| Secret {
        context: format!("it is {value}, keep it"),
        value,
        alone: true,
        ours: true,
    });
    let told = [
        ("PGPASSWORD=", "q7Vd2LrX9tB0kEw5", " psql"),
        ("export DB_PASSWORD=\"", "s3cr3t-pass,w0rd", "\""),
        ("curl -u admin:", "s4cr3t-pass-w1rd", " https://h.example"),
        ("postgres://app:", "s5cr3t-pass-w2rd", "@db:5432/x"),
        ("Authorization: Bearer ", "0a1b2c3d4e5f60718293", ""),
        ("Set-Cookie: sid=", "0a9b8c7d6e5f4031", "; HttpOnly"),
        ("x-api-key: ", "9f8e7d6c5b4a3f2e1d", ""),
        ("{\"password\": \"", "pa55-w0rd-of-json", "\"}"),
    ];
    let told = told.into_iter().map(|(before, value, after)| Secret {
        value: value.to_owned(),
        context: format!("{before}{value}{after}"),
        alone: false,
        ours: true,
    });
    tokens.chain(told).collect()
}

/// What the rules find in the samples of other scanners, where these are there. What they do not find is measured
/// elsewhere: a value that stays anywhere is none of these.
fn of_others(rules: &RuleSet) -> Vec<Secret> {
    let Some(folder) = shared("vectors/secret-scanning") else {
        return Vec::new();
    };
    let mut secrets: Vec<Secret> = Vec::new();
    let mut kept = Vec::new();
    for path in super::files(&folder) {
        let Ok(context) = std::fs::read_to_string(&path) else {
            continue;
        };
        let name = path.file_name().unwrap_or_default();
        let found = rules.find(context.as_bytes(), Shape::Text);
        if name == "output.json" || found.is_empty() || context.len() > 100_000 {
            continue;
        }
        for one in found {
            let value = &context[one.start..one.end];
            // Shorter ones stand in other files by chance.
            if value.len() >= 16 && value.len() < 8_000 {
                secrets.push(Secret {
                    alone: !rules.find(value.as_bytes(), Shape::Text).is_empty(),
                    value: value.to_owned(),
                    context: context.clone(),
                    ours: false,
                });
            }
        }
        let redacted = rules.redact(context.as_bytes(), Shape::Text);
        kept.extend(redacted.map(|redacted| redacted.bytes));
    }
    let stays: BTreeSet<usize> = kept
        .iter()
        .flat_map(|text| Search::new(&secrets).find(text))
        .collect();
    let mut index = 0;
    secrets.retain(|_| {
        index += 1;
        !stays.contains(&(index - 1))
    });
    secrets
}

/// All spellings of all secrets.
struct Search {
    spellings: AhoCorasick,
    of: Vec<usize>,
}

impl Search {
    fn new(secrets: &[Secret]) -> Self {
        let (mut spelled, mut of) = (Vec::new(), Vec::new());
        for (index, secret) in secrets.iter().enumerate() {
            for one in spellings(&secret.value) {
                // A dump has bytes in hex.
                spelled.push(hex(&one).into_bytes());
                spelled.push(one);
                of.extend([index, index]);
            }
        }
        Self {
            spellings: AhoCorasick::new(spelled).unwrap(),
            of,
        }
    }

    fn find(&self, text: &[u8]) -> BTreeSet<usize> {
        let hits = self.spellings.find_overlapping_iter(text);
        hits.map(|hit| self.of[hit.pattern().as_usize()]).collect()
    }
}

/// As it is, escaped, in hex, and in base64 of either alphabet, wherever in a quad it begins.
fn spellings(secret: &str) -> Vec<Vec<u8>> {
    let once = json!(secret).to_string().trim_matches('"').to_owned();
    let twice = json!(once).to_string().trim_matches('"').to_owned();
    let mut all = vec![
        secret.as_bytes().to_vec(),
        hex(secret.as_bytes()).into_bytes(),
        hex(secret.as_bytes()).to_uppercase().into_bytes(),
        once.into_bytes(),
        twice.into_bytes(),
        encoded(secret).into_bytes(),
    ];
    for lead in 0..3_usize {
        let bytes = [&[0; 2][..lead], secret.as_bytes()].concat();
        let (from, to) = ((lead * 8).div_ceil(6), bytes.len() * 8 / 6);
        for text in [
            STANDARD_NO_PAD.encode(&bytes),
            URL_SAFE_NO_PAD.encode(&bytes),
        ] {
            all.push(text.as_bytes()[from..to].to_vec());
        }
    }
    all
}

/// As it stands in an address.
fn encoded(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    let bytes = text.bytes().map(|byte| {
        if plain(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    bytes.collect()
}

/// Posts all secrets in every way to a server of its own; returns where any is found then.
async fn session(secrets: &[Secret], arguments: &[&str]) -> Leaks {
    let data_dir = DataDir::new();
    let process = Process::start_logging(&data_dir, "127.0.0.1:0", arguments, "trace");
    let api = process.api.clone();
    let redacts = !arguments.contains(&"off");
    let rules = RuleSet::builtin().unwrap();
    let run = api.any_run().await.run.to_string();
    for (index, secret) in secrets.iter().enumerate() {
        payloads(&api, &rules, &run, index, secret).await;
        metadata(&api, &run, index, secret, redacts).await;
        requests(&api, &run, secret).await;
    }
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    let export = format!("/v1/runs/{run}/export?purpose=search");
    let export = api.get(&export).await.is(200);
    let frames = api.get(&format!("/v1/runs/{run}/frames")).await.is(200);
    let dump = dump(data_dir.path());
    let running = files(data_dir.path());
    let log = process.stop();
    let search = Search::new(secrets);
    let mut places = vec![
        ("the export".to_owned(), search.find(&export.bytes)),
        ("the frames".to_owned(), search.find(&frames.bytes)),
        ("pg_dump".to_owned(), search.find(&dump)),
        ("the log".to_owned(), search.find(log.as_bytes())),
    ];
    for (name, bytes) in running.into_iter().chain(files(data_dir.path())) {
        places.push((name, search.find(&bytes)));
    }
    places
}

/// What a folder has in its files; those of the database are many, and change meanwhile.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |path: std::path::PathBuf| {
        let bytes = std::fs::read(&path).ok()?;
        Some((path.display().to_string(), bytes))
    };
    super::files(folder).into_iter().filter_map(read).collect()
}

fn dump(data_dir: &Path) -> Vec<u8> {
    let found = inspect(data_dir, None, DATABASE).unwrap();
    let ClusterState::Running { url } = found.state else {
        panic!("the cluster runs");
    };
    let beside = found.installation.unwrap().bin_dir().join("pg_dump");
    // Where the server's programs are linked into another folder, the clients' are on the path.
    let program = if beside.exists() {
        beside
    } else {
        "pg_dump".into()
    };
    let output = Command::new(program).arg(url).output().expect("pg_dump");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    output.stdout
}

/// In payloads of every shape. What the rules do not find of what is not ours is not posted.
async fn payloads(api: &Api, rules: &RuleSet, run: &str, index: usize, secret: &Secret) {
    let Secret { value, context, .. } = secret;
    let wrapped = STANDARD.encode(format!("{{\"text\": \"a\"}}\n{context}\n"));
    let repeated = format!(
        "{context}\nagain {value} {} {} {}",
        hex(value.as_bytes()),
        STANDARD.encode(format!("x{value}")),
        encoded(value)
    );
    let bytes = [b"\xff\xfe\x00", context.as_bytes(), b"\x00\xff"].concat();
    let inner = json!({"result": context, "n": 1}).to_string();
    let mut forms = vec![
        json!({"json": {"note": context, "deep": [{"x": context}], "kept": 1}}),
        json!({"json": {"inner": inner}}),
        json!({"json": context}),
        json!({"text": context}),
        json!({"text": repeated}),
        json!({"text": format!("\u{1b}[32m{context}\u{1b}[0m")}),
        json!({"text": context, "media": "application/x-env"}),
        json!({"base64": STANDARD.encode(&bytes)}),
    ];
    let is_found = |text: &str| !rules.find(text.as_bytes(), Shape::Text).is_empty();
    if secret.alone {
        forms.push(json!({"json": {value.clone(): 1, "a": [{value.clone(): value}]}}));
    }
    // An anchor of three letters is not told from chance in base64.
    if is_found(&wrapped) && !is_left(rules, &wrapped, value) {
        forms.push(json!({"text": wrapped}));
        forms.push(json!({"json": {"data": wrapped}}));
    }
    for (form, payload) in forms.into_iter().enumerate() {
        let mut payload = payload;
        payload["name"] = json!("content");
        let plain = payload["text"].as_str().or(payload["json"].as_str());
        if !secret.ours && plain.is_some_and(|text| is_left(rules, text, value)) {
            continue;
        }
        if !secret.ours && plain.is_none() && is_left(rules, &payload.to_string(), value) {
            continue;
        }
        let frame = json!({"kind": "tool_call", "key": format!("p/{index}/{form}"), "body": {"name": "shell"},
            "payloads": [payload.clone()], "result": {"payloads": [payload]}});
        api.frame(run, &frame).await.is(201);
    }
}

/// Whether the rules leave a secret in a text.
fn is_left(rules: &RuleSet, text: &str, value: &str) -> bool {
    let redacted = rules.redact(text.as_bytes(), Shape::Text);
    let bytes = redacted.map_or_else(|| text.as_bytes().to_vec(), |redacted| redacted.bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    spellings(value)
        .iter()
        .any(|one| text.contains(&*String::from_utf8_lossy(one)))
}

/// In all of a frame that is no payload, and in what else is kept.
async fn metadata(api: &Api, run: &str, index: usize, secret: &Secret, redacts: bool) {
    let text = if secret.alone {
        &secret.value
    } else {
        &secret.context
    };
    let frame = |member: &str, value: Value| {
        let mut frame = json!({"kind": "observation", "key": format!("m/{index}/{member}")});
        frame[member] = value;
        frame
    };
    let payload = |member: &str| {
        let mut payload = json!({"name": "a", "text": "b"});
        payload[member] = json!(text);
        payload
    };
    // Whether it has to be refused for being a secret; else what it is refused for does not matter.
    let short = text.chars().count() <= 190 && !text.contains(char::is_control);
    let mut requests = vec![
        (frame("body", json!({"note": [text]})), secret.ours),
        (
            frame("key", json!(format!("k{index}/{text}"))),
            secret.ours && short && text.is_ascii(),
        ),
        (
            frame("actor", json!({"type": "tool", "id": text})),
            secret.ours && short,
        ),
        (frame("payloads", json!([payload("name")])), false),
        (frame("payloads", json!([payload("media")])), false),
        (frame("payloads", json!([payload("base64")])), false),
        (
            frame("links", json!([{"rel": "answers", "key": text}])),
            false,
        ),
        (frame("occurred_at", json!(text)), false),
        (
            frame("trace", json!({"trace_id": text, "span_id": text})),
            false,
        ),
        (frame("turn", json!(text)), false),
        (frame(text, json!(text)), false),
        (json!({"kind": text}), false),
    ];
    if secret.alone {
        requests.push((frame("body", json!({text: {text: 1}})), secret.ours));
    }
    for (request, must) in requests {
        let answer = api.frame(run, &request).await;
        check(&answer, secret, must && redacts);
    }
    let opening = json!({"session": {"agent": "any", "note": text}});
    check(
        &api.post("/v1/runs", &opening).await,
        secret,
        secret.ours && redacts,
    );
    let refused = secret.ours && short && redacts;
    for (path, body) in [
        ("/v1/tokens", json!({"name": text, "roles": ["agent"]})),
        (
            "/v1/tokens",
            json!({"name": "a", "roles": ["agent"], "actor": {"type": "agent", "id": text}}),
        ),
        ("/v1/tenants", json!({"name": text})),
    ] {
        check(&api.post(path, &body).await, secret, refused);
    }
    let export = format!(
        "/v1/runs/{run}/export?payloads=none&purpose={}",
        encoded(text)
    );
    // What is no code at all is refused for that.
    let of_code = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_code = text.len() <= 64
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(of_code);
    check(&api.get(&export).await, secret, refused && is_code);
}

/// In the heads of requests, and in bodies that are none of ours.
async fn requests(api: &Api, run: &str, secret: &Secret) {
    let text = if secret.alone {
        &secret.value
    } else {
        &secret.context
    };
    let address = encoded(text);
    for path in [
        format!("/v1/runs/{address}"),
        format!("/v1/runs/{run}/frames/{address}"),
        format!("/v1/tokens/{address}"),
        format!("/{address}?token={address}"),
        format!("/v1/runs?agent={address}&status={address}"),
        format!("/v1/runs?prefix={address}&since={address}"),
    ] {
        if path.len() < 8_000 {
            check(&api.get(&path).await, secret, false);
        }
    }
    check(
        &api.send("/v1/verify", "application/x-tar", text.clone())
            .await,
        secret,
        false,
    );
    let seal = api
        .post(&format!("/v1/runs/{run}/seal"), &json!({text: text}))
        .await;
    check(&seal, secret, false);
    if !text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() || byte == b' ')
        || text.len() > 4_000
    {
        return;
    }
    for name in [
        "x-request-id",
        "authorization",
        "cookie",
        "user-agent",
        "if-match",
        "idempotency-key",
        "content-encoding",
        "content-type",
        "traceparent",
    ] {
        let path = format!("/v1/runs/{run}/frames");
        let mut request = match name {
            "authorization" => api.anonymous().request(Method::POST, &path),
            _ => api.request(Method::POST, &path),
        };
        if name != "content-type" {
            request = request.header("content-type", "application/json");
        }
        let request = request.header(name, text).body("{\"kind\": \"nothing\"}");
        check(&Answer::of(request).await, secret, false);
    }
}

#[track_caller]
fn check(answer: &Answer, secret: &Secret, must: bool) {
    let told = answer.text();
    if must {
        answer.problem(422, "secret_in_metadata");
        assert!(!told.contains(&secret.value), "{told}");
    }
}
