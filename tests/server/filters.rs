//! Filters of runs against a naive reading of the same filters, and walks through pages while runs are opened.

use crate::api::Api;
use crate::running::Server;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

/// Runs of every status and outcome; one in four has no agent.
async fn many(api: &Api) {
    let outcomes = ["completed", "failed", "cancelled"];
    for n in 0..40_usize {
        let agents = [None, Some("coder"), Some("coder \"2\""), Some("über\\")];
        let session = match agents[n % 4] {
            Some(agent) => json!({"agent": agent}),
            None => json!({}),
        };
        let run = api.open(&json!({"session": session})).await.run;
        for _ in 0..n % 3 {
            let frame = json!({"kind": "observation", "body": {"n": n}});
            api.frame(&run, &frame).await.is(201);
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

/// A filter, as text and as what it means of a run as the API shows it.
#[derive(Clone, Debug)]
enum Model {
    Is(&'static str, &'static str, Value),
    Set(&'static str),
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

    fn is_true(&self, run: &Value) -> bool {
        match self {
            Self::Set(field) => !run[*field].is_null(),
            Self::Not(inner) => !inner.is_true(run),
            Self::All(one, other) => one.is_true(run) && other.is_true(run),
            Self::Any(one, other) => one.is_true(run) || other.is_true(run),
            Self::Is(field, sign, value) => {
                let found = &run[*field];
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
                    "!=" => order.is_none_or(std::cmp::Ordering::is_ne),
                    "=" | "in" => order.is_some_and(std::cmp::Ordering::is_eq),
                    "<" => order.is_some_and(std::cmp::Ordering::is_lt),
                    "<=" => order.is_some_and(std::cmp::Ordering::is_le),
                    ">" => order.is_some_and(std::cmp::Ordering::is_gt),
                    ">=" => order.is_some_and(std::cmp::Ordering::is_ge),
                    _ => begins().is_some(),
                }
            }
        }
    }
}

fn models(times: Vec<Value>) -> impl Strategy<Value = Model> {
    let equal = prop_oneof![Just("="), Just("!="), Just("in")];
    let ordered = prop_oneof![
        Just("="),
        Just("!="),
        Just("in"),
        Just("<"),
        Just("<="),
        Just(">"),
        Just(">=")
    ];
    let agents = prop::sample::select(vec![
        json!("coder"),
        json!("coder \"2\""),
        json!("über\\"),
        json!("x"),
    ]);
    let statuses = prop::sample::select(vec![json!("open"), json!("ended"), json!("sealed")]);
    let outcomes = prop::sample::select(vec![
        json!("completed"),
        json!("failed"),
        json!("cancelled"),
        json!("unknown"),
    ]);
    let number = prop::sample::select(vec!["run_no", "size", "erased"]);
    let time = prop::sample::select(vec!["opened_at", "last_at", "sealed_at"]);
    let leaf = prop_oneof![
        (equal.clone(), agents).prop_map(|(sign, value)| Model::Is("agent", sign, value)),
        Just(Model::Is("agent", "begins", json!("coder"))),
        (equal.clone(), statuses).prop_map(|(sign, value)| Model::Is("status", sign, value)),
        (equal, outcomes).prop_map(|(sign, value)| Model::Is("outcome", sign, value)),
        (number, ordered.clone(), 0..45_u64).prop_map(|(field, sign, n)| Model::Is(
            field,
            sign,
            json!(n)
        )),
        (time, ordered, prop::sample::select(times))
            .prop_map(|(field, sign, at)| Model::Is(field, sign, at)),
        prop::sample::select(vec!["agent", "sealed_at", "outcome"]).prop_map(Model::Set),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|one| Model::Not(Box::new(one))),
            (inner.clone(), inner.clone())
                .prop_map(|(one, other)| Model::All(Box::new(one), Box::new(other))),
            (inner.clone(), inner)
                .prop_map(|(one, other)| Model::Any(Box::new(one), Box::new(other))),
        ]
    })
}

/// All runs of a filter, a page after the other; `between` happens after each page.
async fn walk(api: &Api, filter: &str, limit: usize, mut between: impl AsyncFnMut()) -> Vec<Value> {
    let (mut runs, mut before) = (Vec::new(), String::new());
    loop {
        let query = [("filter", filter), ("limit", &limit.to_string())];
        let address =
            reqwest::Url::parse_with_params(&format!("{}/v1/runs", api.base), query).unwrap();
        let page = api
            .get(&format!("/v1/runs?{}{before}", address.query().unwrap()))
            .await
            .is(200)
            .json();
        runs.extend(page["runs"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next"].as_u64() else {
            return runs;
        };
        before = format!("&before={next}");
        between().await;
    }
}

fn numbers(runs: &[Value]) -> Vec<u64> {
    runs.iter()
        .map(|run| run["run_no"].as_u64().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_means_what_it_says() {
    let server = Server::start().await;
    let api = &server.api;
    many(api).await;
    let all = walk(api, "run_no >= 0", 500, async || {}).await;
    assert_eq!(all.len(), 40);
    let times = all
        .iter()
        .flat_map(|run| [run["opened_at"].clone(), run["last_at"].clone()]);
    let models = models(times.collect());
    let mut runner = TestRunner::deterministic();
    let (mut some, mut none) = (0, 0);
    for round in 0..150 {
        let model = models.new_tree(&mut runner).unwrap().current();
        let expected: Vec<Value> = all
            .iter()
            .filter(|run| model.is_true(run))
            .cloned()
            .collect();
        let found = walk(api, &model.text(), [1, 3, 5, 50][round % 4], async || {}).await;
        assert_eq!(numbers(&found), numbers(&expected), "{}", model.text());
        if expected.is_empty() {
            none += 1;
        } else {
            some += 1;
        }
    }
    assert!(
        some > 30 && none > 5,
        "{some} filters found something and {none} nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_are_opened_meanwhile_move_no_page() {
    let server = Server::start().await;
    let api = &server.api;
    many(api).await;
    let filter = r#"not agent = "coder""#;
    let there = numbers(&walk(api, filter, 50, async || {}).await);
    for limit in [1, 3, 5, 29] {
        let found = walk(api, filter, limit, async || {
            api.any_run().await;
        });
        let mut found = numbers(&found.await);
        found.retain(|number| *number <= 40);
        assert_eq!(found, there, "pages of {limit}");
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
