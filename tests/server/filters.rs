//! Filters of runs and frames against a naive reading of the same filters over what the API shows of them, and walks
//! through pages while others are recorded.

use crate::api::Api;
use crate::running::Server;
use onrecord::http::Effort;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use sqlx::Row as _;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Runs of every status and outcome, with frames of many kinds; one in four has no agent.
pub async fn many(api: &Api, count: usize) {
    let outcomes = ["completed", "failed", "cancelled"];
    for n in 0..count {
        let agents = [None, Some("coder"), Some("coder \"2\""), Some("über\\")];
        let mut session = json!({});
        if let Some(agent) = agents[n % 4] {
            session["agent"] = json!(agent);
        }
        if n % 3 == 0 {
            session["labels"] = json!([format!("team:{}", n % 5), "prod"]);
        }
        if n % 6 == 1 {
            session["release"] = json!("r".repeat(199 + n % 3));
        }
        let run = api.open(&json!({"session": session})).await.run;
        let mut lines = String::new();
        let mut add = |frame: Value| lines.push_str(&format!("{frame}\n"));
        for m in 0..n % 3 {
            add(json!({"kind": "turn", "body": {"model": format!("model-{}", (n + m) % 4)}}));
            add(
                json!({"kind": "tool_call", "body": {"name": format!("tool {}", n % 7)},
                "payloads": [{"name": "arguments", "text": "x", "tier": n % 4}],
                "result": {"body": {"exit": 0}}}),
            );
        }
        if n % 4 == 2 {
            let text = "password: AKIAIOSFODNN7EXAMPLE";
            add(
                json!({"kind": "observation", "body": {"n": n}, "payloads": [{"name": "seen", "text": text}]}),
            );
        }
        if n % 5 == 1 {
            add(
                json!({"kind": "file_version", "body": {"path": format!("src/{n}.rs"), "status": "modified"}}),
            );
        }
        if !lines.is_empty() {
            for line in api.frames(&run, lines).await {
                assert!(line["status"] == 201 || line["failed"] == 0, "{line}");
            }
        }
        if n % 3 != 1 {
            let verdict = ["pass", "fail", "error", "skipped"][n % 4];
            let name = ["unit", "lint"][n % 2];
            let gate = json!({"kind": "gate_result", "actor": {"type": "verifier", "id": "ci"},
                "body": {"name": name, "verdict": verdict}});
            api.frame(&run, &gate).await.is(201);
        }
        if let Some(status) = outcomes.get(n % 5) {
            let frame = json!({"kind": "outcome", "body": {"status": status}});
            api.frame(&run, &frame).await.is(201);
        }
        match n % 7 {
            0 | 1 => {
                let seal = format!("/v1/runs/{run}/seal");
                api.post(&seal, &json!({})).await.is(201);
            }
            2 => {
                let end = json!({"kind": "session_end"});
                api.frame(&run, &end).await.is(201);
            }
            _ => {}
        }
    }
}

/// Flags and holds on some of the runs, a policy, and what it comes to.
async fn retained(api: &Api) {
    let window = |name: &str, days: u32| {
        let tiers = json!({"2": {"trigger": "opened", "ceiling_days": days}});
        json!({"name": name, "tiers": tiers})
    };
    let policy = json!({"schedules": [window("short", 30), window("long", 300)],
        "rules": [{"when": "label = \"prod\"", "schedule": "long"}, {"when": "agent = \"coder\"", "schedule": "short"}]});
    let request = api.request(reqwest::Method::PUT, "/v1/retention/policy");
    let request = request.header("content-type", "application/json");
    crate::api::Answer::of(request.body(policy.to_string()))
        .await
        .is(201);
    for run in walk(api, "runs", "", 500, async || {}).await {
        let (n, run) = (
            run["run_no"].as_u64().unwrap(),
            run["run"].as_str().unwrap(),
        );
        let path = format!("/v1/runs/{run}/flags");
        if n % 9 == 4 {
            for incident in ["inc-1", "inc-2"] {
                let flag = json!({"flag": "drift", "incident": incident});
                api.post(&path, &flag).await.is(201);
            }
        }
        if n % 6 == 1 {
            api.post(&path, &json!({"flag": format!("look-{}", n % 4)}))
                .await
                .is(201);
        }
        if n % 7 == 3 {
            let hold = json!({"matter": format!("case-{}", n % 2), "run": run});
            api.post("/v1/holds", &hold).await.is(201);
        }
    }
    api.post("/v1/retention/sweep", &json!({})).await.is(200);
}

/// What a naive reader knows of a row: the values of each field that has any.
type Row = BTreeMap<String, Vec<Value>>;

/// Fields of runs, and what the values of each are.
const OF_RUNS: [(&str, Type); 29] = [
    ("run", Type::Word),
    ("run_no", Type::Ordered),
    ("agent", Type::Text),
    ("release", Type::Text),
    ("profile", Type::Text),
    ("label", Type::Text),
    ("model", Type::Text),
    ("tool", Type::Text),
    ("gate", Type::Text),
    ("gate.verdict", Type::Word),
    ("gate.failed", Type::Text),
    ("kind", Type::Word),
    ("file", Type::Text),
    ("actor", Type::Word),
    ("tier", Type::Word),
    ("redaction", Type::Text),
    ("status", Type::Word),
    ("outcome", Type::Word),
    ("size", Type::Ordered),
    ("erased", Type::Ordered),
    ("opened_at", Type::Ordered),
    ("last_at", Type::Ordered),
    ("sealed_at", Type::Ordered),
    ("flag", Type::Text),
    ("incident", Type::Text),
    ("hold", Type::Text),
    ("held", Type::Word),
    ("schedule", Type::Text),
    ("expires_at", Type::Ordered),
];

const OF_FRAMES: [(&str, Type); 13] = [
    ("run", Type::Word),
    ("seq", Type::Ordered),
    ("at", Type::Ordered),
    ("turn", Type::Ordered),
    ("answers", Type::Ordered),
    ("key", Type::Text),
    ("kind", Type::Word),
    ("model", Type::Text),
    ("tool", Type::Text),
    ("gate", Type::Text),
    ("gate.verdict", Type::Word),
    ("gate.failed", Type::Text),
    ("file", Type::Text),
];

const OF_PAYLOADS: [(&str, Type); 7] = [
    ("run", Type::Word),
    ("seq", Type::Ordered),
    ("place", Type::Ordered),
    ("media", Type::Text),
    ("tier", Type::Ordered),
    ("size", Type::Ordered),
    ("state", Type::Word),
];

#[derive(Clone, Copy, PartialEq)]
enum Type {
    Text,
    Word,
    Ordered,
}

fn text_of(value: &Value) -> Option<Value> {
    value.is_string().then(|| value.clone())
}

/// What a frame says, read from its JSON.
fn of_frame(frame: &Value) -> Row {
    let mut row = Row::new();
    let mut say = |field: &str, value: Option<Value>| {
        row.entry(field.to_owned()).or_default().extend(value);
    };
    let body = &frame["body"];
    for field in ["run", "seq", "at", "kind"] {
        say(field, Some(frame[field].clone()));
    }
    say("key", text_of(&frame["key"]));
    say(
        "turn",
        frame["turn"].is_u64().then(|| frame["turn"].clone()),
    );
    let links = frame["links"].as_array().into_iter().flatten();
    let mut answers = links.filter(|link| link["rel"] == "answers" && link["seq"].is_u64());
    say("answers", answers.next().map(|link| link["seq"].clone()));
    match frame["kind"].as_str().unwrap() {
        "turn" | "model_call" | "model_result" => say("model", text_of(&body["model"])),
        "tool_call" => say("tool", text_of(&body["name"])),
        "file_version" => say("file", text_of(&body["path"])),
        "gate_result" => {
            say("gate", text_of(&body["name"]));
            say("gate.verdict", text_of(&body["verdict"]));
            if body["verdict"] == "fail" || body["verdict"] == "error" {
                say("gate.failed", text_of(&body["name"]));
            }
        }
        _ => {}
    }
    row
}

/// What a frame says of its payloads.
fn of_payloads(frame: &Value, erased: &[String]) -> Vec<Row> {
    let payloads = frame["payloads"].as_array().into_iter().flatten();
    let of_one = |(place, payload): (usize, &Value)| {
        let commit = payload["commit"].as_str().unwrap();
        let is_erased = erased.iter().any(|erased| erased == commit);
        let state = if is_erased { "erased" } else { "stored" };
        let fields = [
            ("run", frame["run"].clone()),
            ("seq", frame["seq"].clone()),
            ("place", json!(place)),
            ("media", payload["media"].clone()),
            ("tier", payload["tier"].clone()),
            ("size", payload["size"].clone()),
            ("state", json!(state)),
        ];
        let fields = fields.map(|(field, value)| (field.to_owned(), vec![value]));
        Row::from(fields)
    };
    payloads.enumerate().map(of_one).collect()
}

/// What the sweeper knows of runs.
const KEPT: &str = r#"select run_id(run) as run, schedule,
    to_char(nullif(due, 'infinity') at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as due from run_retention"#;

/// All that there is, as the API shows it run by run.
struct Everything {
    runs: Vec<Row>,
    frames: Vec<Row>,
    payloads: Vec<Row>,
}

async fn everything(server: &Server) -> Everything {
    let api = &server.api;
    let holds = api.get("/v1/holds").await.is(200).json()["holds"].clone();
    let kept = sqlx::query(KEPT);
    let kept = kept.fetch_all(&mut server.sql().await).await.unwrap();
    let erased: Vec<String> =
        sqlx::query_scalar("select encode(commit, 'hex') from erased_payloads")
            .fetch_all(&mut server.sql().await)
            .await
            .unwrap();
    let (mut runs, mut frames, mut payloads) = (Vec::new(), Vec::new(), Vec::new());
    for run in walk(api, "runs", "", 500, async || {}).await {
        let mut row = Row::new();
        for field in [
            "run",
            "run_no",
            "status",
            "outcome",
            "size",
            "erased",
            "opened_at",
            "last_at",
            "sealed_at",
        ] {
            let value = &run[field];
            let values = (!value.is_null()).then(|| value.clone());
            row.insert(field.to_owned(), values.into_iter().collect());
        }
        let id = run["run"].as_str().unwrap();
        let lines = api
            .get(&format!("/v1/runs/{id}/frames?limit=1000"))
            .await
            .is(200)
            .lines();
        let said: Vec<Row> = lines.iter().map(of_frame).collect();
        let mut say = |field: &str, value: &Value| {
            let values = row.entry(field.to_owned()).or_default();
            if !values.contains(value) {
                values.push(value.clone());
            }
        };
        for frame in &said {
            for field in [
                "model",
                "tool",
                "gate",
                "gate.verdict",
                "gate.failed",
                "kind",
                "file",
            ] {
                frame
                    .get(field)
                    .into_iter()
                    .flatten()
                    .for_each(|value| say(field, value));
            }
        }
        for frame in &lines {
            say("actor", &frame["actor"]["type"]);
            for payload in frame["payloads"].as_array().into_iter().flatten() {
                say("tier", &json!(payload["tier"].to_string()));
                for redaction in payload["redactions"].as_array().into_iter().flatten() {
                    say("redaction", &redaction["kind"]);
                }
            }
        }
        let session = &lines[0]["body"];
        for field in ["agent", "release", "profile"] {
            text_of(&session[field])
                .iter()
                .for_each(|value| say(field, value));
        }
        let flags = api.run(id).await["flags"].clone();
        for flag in flags.as_array().into_iter().flatten() {
            say("flag", &flag["flag"]);
            text_of(&flag["incident"])
                .iter()
                .for_each(|value| say("incident", value));
        }
        let mut held = "no";
        for hold in holds.as_array().unwrap() {
            if hold["run"] == id || hold.get("run").is_none() {
                say("hold", &hold["matter"]);
                held = "yes";
            }
        }
        say("held", &json!(held));
        for one in kept.iter().filter(|one| one.get::<String, _>("run") == id) {
            let schedule: Option<String> = one.get("schedule");
            schedule
                .iter()
                .for_each(|schedule| say("schedule", &json!(schedule)));
            let due: Option<String> = one.get("due");
            due.iter().for_each(|due| say("expires_at", &json!(due)));
        }
        let labels = session["labels"].as_array().into_iter().flatten();
        labels.for_each(|label| say("label", label));
        let with_run = |mut one: Row| {
            for (field, values) in &row {
                one.insert(format!("run.{field}"), values.clone());
            }
            one
        };
        payloads.extend(
            lines
                .iter()
                .flat_map(|frame| of_payloads(frame, &erased))
                .map(with_run),
        );
        frames.extend(said.into_iter().map(with_run));
        runs.push(row);
    }
    Everything {
        runs,
        frames,
        payloads,
    }
}

/// A filter, as text and as what it means of a row.
#[derive(Clone, Debug)]
enum Model {
    Is(String, &'static str, Value),
    Set(String),
    Not(Box<Model>),
    All(Box<Model>, Box<Model>),
    Any(Box<Model>, Box<Model>),
}

impl Model {
    fn text(&self) -> String {
        match self {
            Self::Is(field, "in", value) => format!("{field} in ({value}, {value})"),
            Self::Is(field, sign, value) => format!("{field} {sign} {value}"),
            Self::Set(field) => format!("{field} is set"),
            Self::Not(inner) => format!("not ({})", inner.text()),
            Self::All(one, other) => format!("({}) and ({})", one.text(), other.text()),
            Self::Any(one, other) => format!("({}) or ({})", one.text(), other.text()),
        }
    }

    fn is_true(&self, row: &Row) -> bool {
        match self {
            Self::Set(field) => row.get(field).is_some_and(|values| !values.is_empty()),
            Self::Not(inner) => !inner.is_true(row),
            Self::All(one, other) => one.is_true(row) && other.is_true(row),
            Self::Any(one, other) => one.is_true(row) || other.is_true(row),
            Self::Is(field, "!=", value) => {
                !Self::Is(field.clone(), "=", value.clone()).is_true(row)
            }
            Self::Is(field, sign, value) => {
                let mut found = row.get(field).into_iter().flatten();
                found.any(|found| {
                    let order = match (found.as_u64(), value.as_u64()) {
                        (Some(found), Some(value)) => Some(found.cmp(&value)),
                        // Times are written so that their texts sort as they do.
                        _ => found
                            .as_str()
                            .zip(value.as_str())
                            .map(|(one, other)| one.cmp(other)),
                    };
                    let begins = || found.as_str()?.strip_prefix(value.as_str()?);
                    match *sign {
                        "=" | "in" => order.is_some_and(Ordering::is_eq),
                        "<" => order.is_some_and(Ordering::is_lt),
                        "<=" => order.is_some_and(Ordering::is_le),
                        ">" => order.is_some_and(Ordering::is_gt),
                        ">=" => order.is_some_and(Ordering::is_ge),
                        _ => begins().is_some(),
                    }
                })
            }
        }
    }
}

/// Filters about some fields, whose values are mostly those that rows have.
fn models(fields: Vec<(String, Type)>, rows: &[Row]) -> impl Strategy<Value = Model> + use<> {
    let mut leaves = Vec::new();
    for (field, kind) in fields {
        let values = rows.iter().filter_map(|row| row.get(&field)).flatten();
        let mut values: Vec<Value> = values
            .map(|value| (value.to_string(), value.clone()))
            .collect::<BTreeMap<_, _>>()
            .into_values()
            .collect();
        match kind {
            Type::Text => {
                let short = values.iter().filter_map(|value| value.as_str()?.get(..3));
                let short: Vec<_> = short.map(|text| json!(text)).collect();
                values.extend(short);
                values.push(json!("nobody"));
            }
            Type::Ordered if !values.is_empty() && values.iter().all(Value::is_u64) => {
                values.push(json!(3));
            }
            _ => {}
        }
        leaves.push(Just(Model::Set(field.clone())).boxed());
        if values.is_empty() {
            continue;
        }
        let signs: &[&str] = match kind {
            Type::Text => &["=", "!=", "in", "begins"],
            Type::Word => &["=", "!=", "in"],
            Type::Ordered => &["=", "!=", "in", "<", "<=", ">", ">="],
        };
        let tests = (prop::sample::select(signs), prop::sample::select(values));
        let tests = tests.prop_map(move |(sign, value)| Model::Is(field.clone(), sign, value));
        leaves.push(tests.clone().boxed());
        leaves.push(tests.boxed());
    }
    prop::strategy::Union::new(leaves).prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|one| Model::Not(Box::new(one))),
            (inner.clone(), inner.clone())
                .prop_map(|(one, other)| Model::All(Box::new(one), Box::new(other))),
            (inner.clone(), inner)
                .prop_map(|(one, other)| Model::Any(Box::new(one), Box::new(other))),
        ]
    })
}

/// All rows of a query, a page after the other; `between` happens after each page.
pub async fn walk(
    api: &Api,
    resource: &str,
    query: &str,
    limit: usize,
    mut between: impl AsyncFnMut(),
) -> Vec<Value> {
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    loop {
        let address = format!("/v1/{resource}?limit={limit}&{query}{cursor}");
        let page = api.get(&address).await.is(200).json();
        let member = resource.replace('-', "_");
        rows.extend(page[member].as_array().unwrap().iter().cloned());
        let Some(next) = page["next"].as_str() else {
            return rows;
        };
        cursor = format!("&cursor={next}");
        between().await;
    }
}

/// A filter and a purpose as a query string.
pub fn filtered(filter: &str) -> String {
    let pairs = [("filter", filter), ("purpose", "test")];
    let address = reqwest::Url::parse_with_params("http://x/", pairs).unwrap();
    address.query().unwrap().to_owned()
}

/// What tells a row from all others.
fn names(rows: &[Value]) -> Vec<(String, u64)> {
    rows.iter()
        .map(|row| {
            let number = |name: &str| row[name].as_u64().unwrap_or(0);
            let place = number("seq") * 100 + number("place");
            (row["run"].as_str().unwrap().to_owned(), place)
        })
        .collect()
}

fn names_of(rows: &[Row]) -> BTreeSet<(String, u64)> {
    let first = |row: &Row, field: &str| row.get(field).and_then(|values| values.first()).cloned();
    rows.iter()
        .map(|row| {
            let number = |name: &str| {
                first(row, name)
                    .and_then(|number| number.as_u64())
                    .unwrap_or(0)
            };
            let place = number("seq") * 100 + number("place");
            (
                first(row, "run").unwrap().as_str().unwrap().to_owned(),
                place,
            )
        })
        .collect()
}

/// Random filters, in both orders and pages of several sizes, find what a naive reader finds.
async fn agree(
    api: &Api,
    resource: &str,
    fields: Vec<(String, Type)>,
    rows: &[Row],
    rounds: usize,
) {
    let all = names(&walk(api, resource, &filtered("run is set"), 500, async || {}).await);
    assert_eq!(all.iter().cloned().collect::<BTreeSet<_>>(), names_of(rows));
    assert_eq!(all.len(), rows.len(), "each once");
    let models = models(fields, rows);
    let mut runner = TestRunner::deterministic();
    let (mut some, mut none) = (0, 0);
    for round in 0..rounds {
        let model = models.new_tree(&mut runner).unwrap().current();
        let true_of = rows.iter().filter(|row| model.is_true(row)).cloned();
        let expected = names_of(&true_of.collect::<Vec<_>>());
        let mut expected: Vec<_> = all
            .iter()
            .filter(|name| expected.contains(name))
            .cloned()
            .collect();
        let mut query = filtered(&model.text());
        if round % 3 == 0 {
            query.push_str("&order=asc");
            expected.reverse();
        }
        let limit = [all.len() / 9 + 1, 50, 500, all.len() / 5 + 1][round % 4];
        let found = walk(api, resource, &query, limit, async || {}).await;
        assert_eq!(names(&found), expected, "{} of {resource}", model.text());
        if expected.is_empty() {
            none += 1;
        } else {
            some += 1;
        }
    }
    assert!(
        some > rounds / 5 && none > rounds / 30,
        "{some} filters found something and {none} nothing"
    );
}

fn named(fields: &[(&str, Type)], prefix: &str) -> Vec<(String, Type)> {
    let named = fields
        .iter()
        .map(|(name, kind)| (format!("{prefix}{name}"), *kind));
    named.collect()
}

/// Another server, whose pages end after a look at a few rows, or, with patience, whose pieces grow from so few.
pub async fn hurried(server: &Server, first: u32, patience: Duration) -> Server {
    let effort = Effort { first, patience };
    server.second_as(|app| app.effort = effort).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_means_what_it_says_of_runs() {
    let server = Server::start().await;
    many(&server.api, 40).await;
    retained(&server.api).await;
    let runs = everything(&server).await.runs;
    assert_eq!(runs.len(), 40);
    let fields = named(&OF_RUNS, "");
    agree(&server.api, "runs", fields.clone(), &runs, 200).await;
    for patience in [Duration::ZERO, Duration::from_secs(60)] {
        let hurried = hurried(&server, 5, patience).await;
        agree(&hurried.api, "runs", fields.clone(), &runs, 40).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_means_what_it_says_of_frames() {
    let server = Server::start().await;
    many(&server.api, 30).await;
    retained(&server.api).await;
    let frames = everything(&server).await.frames;
    let mut fields = named(&OF_FRAMES, "");
    agree(&server.api, "frames", fields.clone(), &frames, 80).await;
    fields.extend(named(&OF_RUNS, "run."));
    agree(&server.api, "frames", fields.clone(), &frames, 80).await;
    for patience in [Duration::ZERO, Duration::from_secs(60)] {
        let hurried = hurried(&server, 20, patience).await;
        agree(&hurried.api, "frames", fields.clone(), &frames, 30).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_means_what_it_says_of_records_of_payloads() {
    let server = Server::start().await;
    many(&server.api, 30).await;
    let some = walk(
        &server.api,
        "payload-records",
        "purpose=test",
        5,
        async || {},
    )
    .await;
    for payload in some.iter().step_by(4) {
        let wanted = json!({"run": payload["run"], "commits": [payload["commit"]], "reason": "r"});
        server.api.post("/v1/erasures", &wanted).await.is(201);
    }
    let payloads = everything(&server).await.payloads;
    let mut fields = named(&OF_PAYLOADS, "");
    agree(
        &server.api,
        "payload-records",
        fields.clone(),
        &payloads,
        80,
    )
    .await;
    fields.extend(named(&OF_RUNS, "run."));
    agree(
        &server.api,
        "payload-records",
        fields.clone(),
        &payloads,
        80,
    )
    .await;
    for patience in [Duration::ZERO, Duration::from_secs(60)] {
        let hurried = hurried(&server, 4, patience).await;
        let fields = fields.clone();
        agree(&hurried.api, "payload-records", fields, &payloads, 30).await;
    }
}

/// What a naive reader counts: a row with several values of a field for each of them.
fn counted(rows: &[Row], by: &[&str]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    if by.is_empty() {
        counts.insert("[]".to_owned(), 0);
    }
    for row in rows {
        let mut keys: Vec<Vec<Value>> = vec![Vec::new()];
        for field in by {
            let values = match *field {
                "day" | "month" => {
                    let at = row.get("at").or_else(|| row.get("opened_at"));
                    let at = at.or_else(|| row.get("run.opened_at")).unwrap()[0]
                        .as_str()
                        .unwrap();
                    let rest = if *field == "day" {
                        &at[..10]
                    } else {
                        &format!("{}-01", &at[..7])
                    };
                    vec![json!(format!("{rest}T00:00:00.000000Z"))]
                }
                field => row.get(field).cloned().unwrap_or_default(),
            };
            let values = if values.is_empty() {
                vec![Value::Null]
            } else {
                values
            };
            let text = |value: Value| {
                value
                    .as_u64()
                    .map_or(value, |number| json!(number.to_string()))
            };
            let values: Vec<Value> = values.into_iter().map(text).collect();
            keys = keys
                .iter()
                .flat_map(|begun| {
                    values
                        .iter()
                        .map(|value| [&begun[..], std::slice::from_ref(value)].concat())
                })
                .collect();
        }
        for key in keys {
            *counts.entry(json!(key).to_string()).or_insert(0) += 1;
        }
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_are_those_of_a_naive_reader() {
    let server = Server::start().await;
    let api = &server.api;
    many(api, 30).await;
    retained(api).await;
    let all = everything(&server).await;
    for (resource, rows, by) in [
        ("runs", &all.runs, &["status", "outcome", "agent"][..]),
        ("runs", &all.runs, &["model", "day"]),
        ("runs", &all.runs, &["label", "flag"]),
        ("runs", &all.runs, &["schedule"]),
        ("runs", &all.runs, &[]),
        ("frames", &all.frames, &["day", "gate.verdict"]),
        ("frames", &all.frames, &["kind", "tool", "run.agent"]),
        (
            "frames",
            &all.frames,
            &["gate.failed", "run.status", "month"],
        ),
        (
            "payload-records",
            &all.payloads,
            &["tier", "media", "state"],
        ),
        ("payload-records", &all.payloads, &["run.outcome", "month"]),
    ] {
        for (filter, is_true) in [
            ("run is set", true),
            ("not run is set", false),
            ("gate = \"unit\"", true),
        ] {
            if resource == "payload-records" && filter.starts_with("gate") {
                continue;
            }
            let query = format!("{}&by={}", filtered(filter), by.join(","));
            let address = format!("/v1/{resource}/counts?{query}");
            let found = api.get(&address).await.is(200).json();
            assert_eq!(found["cut_off"], false);
            let found = found["counts"].as_array().unwrap().iter().map(|group| {
                let key: Vec<Value> = by.iter().map(|name| group[*name].clone()).collect();
                (json!(key).to_string(), group["count"].as_u64().unwrap())
            });
            let unit = json!("unit");
            let so = |row: &&Row| match filter.starts_with("gate") {
                true => row.get("gate").is_some_and(|gates| gates.contains(&unit)),
                false => is_true,
            };
            let rows: Vec<Row> = rows.iter().filter(so).cloned().collect();
            let found: BTreeMap<_, _> = found.collect();
            assert_eq!(found, counted(&rows, by), "{resource} by {by:?}, {filter}");
        }
    }
    let refused = api.get("/v1/frames/counts?purpose=test&by=day,seq").await;
    refused.problem(400, "malformed_parameter");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_are_opened_meanwhile_move_no_page() {
    let server = Server::start().await;
    let api = &server.api;
    many(api, 40).await;
    for query in [String::new(), filtered(r#"not agent = "coder""#)] {
        let there = names(&walk(api, "runs", &query, 50, async || {}).await);
        for (limit, order) in [(1, "asc"), (3, "desc"), (5, "asc"), (29, "desc")] {
            let query = format!("{query}&order={order}");
            // The oldest first, a walk would meet all those that it opens itself.
            let mut opened = 0;
            let found = walk(api, "runs", &query, limit, async || {
                opened += 1;
                if opened < 20 {
                    api.any_run().await;
                }
            });
            let mut found = names(&found.await);
            found.retain(|name| there.contains(name));
            if order == "asc" {
                found.reverse();
            }
            assert_eq!(found, there, "pages of {limit}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_filter_is_refused_with_its_place() {
    let server = Server::start().await;
    for (filter, place) in [
        ("", 1),
        ("status%20%3D%20closed", 10),
        ("agent%20%3D%20%22x", 9),
    ] {
        let answer = server.api.get(&format!("/v1/runs?filter={filter}")).await;
        let problem = answer.problem(400, "malformed_filter");
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.starts_with(&format!("at character {place}: ")),
            "{detail}"
        );
    }
}
