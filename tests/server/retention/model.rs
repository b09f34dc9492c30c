//! Runs, policies, holds, erasures and a clock at random, against a model in memory that is as simple as it can be: what is to
//! be read, what is left, and what the ledger certifies are the same.

use super::clock::{Clock, stepped};
use super::{audited, put, read, seal, sweep};
use crate::api::Api;
use crate::running::Server;
use onrecord_core::digest::Hash;
use onrecord_core::statement::{Predicate, Signed};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

const CASES: usize = 4;
const STEPS: usize = 40;

#[derive(Clone, Debug)]
enum Step {
    Open { agent: usize },
    Append { run: usize, tier: u8 },
    FailGate { run: usize },
    Flag { run: usize },
    Seal { run: usize },
    Policy(Vec<Schedule>),
    Hold { run: Option<usize> },
    Release { hold: usize },
    Erase { run: usize, tier: u8 },
    Pass { days: u32 },
    Sweep,
}

#[derive(Clone, Debug)]
struct Schedule {
    never: bool,
    /// Trigger, floor and ceiling of tiers 1 to 3.
    terms: [Option<(u8, u32, Option<u32>)>; 3],
    sample: Option<(u8, u32)>,
}

fn schedules() -> impl Strategy<Value = Vec<Schedule>> {
    let term = (
        0_u8..3,
        prop::sample::select(vec![0_u32, 0, 0, 0, 4]),
        prop::option::weighted(0.9, 0_u32..9),
    );
    let term =
        term.prop_map(|(trigger, floor, more)| (trigger, floor, more.map(|more| floor + more)));
    let terms = prop::array::uniform3(prop::option::weighted(0.8, term));
    let sample = prop::option::weighted(0.4, (0_u8..=100, 0_u32..6));
    let schedule =
        (prop::bool::weighted(0.02), terms, sample).prop_map(|(never, mut terms, sample)| {
            if never {
                for term in terms.iter_mut().flatten() {
                    term.2 = None;
                }
            }
            let floor = terms.iter().flatten().map(|term| term.1).max().unwrap_or(0);
            let sample = sample.filter(|_| !never);
            let sample = sample.map(|(percent, more)| (percent, floor + more));
            Schedule {
                never,
                terms,
                sample,
            }
        });
    prop::collection::vec(schedule, 4)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let run = 0..1_000_usize;
    let step = prop_oneof![
        3 => (0..2_usize).prop_map(|agent| Step::Open { agent }),
        6 => (run.clone(), 0..4_u8).prop_map(|(run, tier)| Step::Append { run, tier }),
        1 => run.clone().prop_map(|run| Step::FailGate { run }),
        1 => run.clone().prop_map(|run| Step::Flag { run }),
        3 => run.clone().prop_map(|run| Step::Seal { run }),
        1 => schedules().prop_map(Step::Policy),
        1 => prop::option::weighted(0.9, run.clone()).prop_map(|run| Step::Hold { run }),
        2 => (0..1_000_usize).prop_map(|hold| Step::Release { hold }),
        1 => (run, 0..4_u8).prop_map(|(run, tier)| Step::Erase { run, tier }),
        3 => (1_u32..8).prop_map(|days| Step::Pass { days }),
        3 => Just(Step::Sweep),
    ];
    // Something to begin with.
    let begun = (schedules(), prop::collection::vec(0..4_u8, 8)).prop_map(|(policy, tiers)| {
        let runs = (0..4).map(|run| Step::Open { agent: run % 2 });
        let appends = tiers.into_iter().enumerate();
        let appends = appends.map(|(run, tier)| Step::Append { run, tier });
        let policy = [Step::Policy(policy)];
        policy
            .into_iter()
            .chain(runs)
            .chain(appends)
            .collect::<Vec<_>>()
    });
    let more = prop::collection::vec(step, STEPS);
    (begun, more).prop_map(|(mut steps, more)| {
        steps.extend(more);
        steps
    })
}

impl Step {
    /// With the numbers of runs and holds that are there.
    fn within(mut self, model: &Model) -> Self {
        let runs = model.runs.len().max(1);
        match &mut self {
            Self::Append { run, .. }
            | Self::FailGate { run }
            | Self::Flag { run }
            | Self::Seal { run }
            | Self::Hold { run: Some(run) }
            | Self::Erase { run, .. } => *run %= runs,
            Self::Release { hold } => *hold %= model.holds.len().max(1),
            _ => {}
        }
        self
    }
}

#[derive(Debug)]
struct Payload {
    commit: String,
    tier: u8,
    alive: bool,
}

#[derive(Debug)]
struct Run {
    id: String,
    agent: usize,
    /// Place of the opening among the changes of policy.
    version: usize,
    opened: u32,
    last: u32,
    accessed: Option<u32>,
    sealed: Option<u32>,
    failed: bool,
    flagged: bool,
    payloads: Vec<Payload>,
}

#[derive(Default)]
struct Model {
    day: u32,
    runs: Vec<Run>,
    policies: Vec<Vec<Schedule>>,
    /// Number, the run, and whether it is in force.
    holds: Vec<(u64, Option<usize>, bool)>,
    /// Run, tier, policy, reason and count of each entry.
    entries: Vec<(String, u8, String, String, u64)>,
}

/// The document: flagged runs have the third schedule, those whose gate failed the fourth, agent 1 the second, all others the
/// first.
fn document(schedules: &[Schedule]) -> Value {
    let triggers = ["opened", "sealed", "last_access"];
    let written = schedules.iter().enumerate().map(|(place, schedule)| {
        let mut tiers = json!({});
        for (place, term) in schedule.terms.iter().enumerate() {
            if let Some((trigger, floor, ceiling)) = term {
                let mut written =
                    json!({"trigger": triggers[usize::from(*trigger)], "floor_days": floor});
                if let Some(ceiling) = ceiling {
                    written["ceiling_days"] = (*ceiling).into();
                }
                tiers[(place + 1).to_string()] = written;
            }
        }
        let mut written = json!({"name": format!("s{place}"), "tiers": tiers});
        if schedule.never {
            written["erase"] = "never".into();
        }
        if let Some((percent, days)) = schedule.sample {
            written["sample"] = json!({"keep_percent": percent, "otherwise_days": days});
        }
        written
    });
    json!({"schedules": written.collect::<Vec<_>>(),
        "rules": [{"when": "flag = \"incident\"", "schedule": "s2"}, {"when": "gate.failed is set", "schedule": "s3"},
            {"when": "agent = \"agent-1\"", "schedule": "s1"}],
        "default": "s0"})
}

impl Model {
    fn chosen(&self, run: &Run) -> usize {
        match run {
            run if run.flagged => 2,
            run if run.failed => 3,
            run => run.agent,
        }
    }

    fn after(run: &Run, trigger: u8, days: u32) -> Option<u32> {
        let from = match trigger {
            0 => Some(run.opened),
            1 => run.sealed,
            _ => Some(run.accessed.map_or(run.last, |at| at.max(run.last))),
        };
        from.map(|from| from + days)
    }

    /// Under which schedule and version a tier is bound still.
    fn floor(&self, run: &Run, tier: u8) -> bool {
        let tiers = if tier == 0 { vec![1, 2, 3] } else { vec![tier] };
        let held = self.policies.iter().enumerate().filter(|(version, _)| {
            // The one that held when the run was opened is the last of those before it.
            version + 1 >= run.version
        });
        held.into_iter().any(|(_, policy)| {
            let schedule = &policy[self.chosen(run)];
            schedule.never
                || tiers.iter().any(|tier| {
                    let term = schedule.terms[usize::from(tier - 1)];
                    term.is_some_and(|(trigger, floor, _)| {
                        floor > 0
                            && Self::after(run, trigger, floor).is_none_or(|end| end > self.day)
                    })
                })
        })
    }

    /// Whether the ceiling of a tier is past, whatever keeps it.
    fn expired(&self, run: &Run, tier: u8) -> bool {
        let Some(policy) = self.policies.last() else {
            return false;
        };
        let schedule = &policy[self.chosen(run)];
        let Some((trigger, _, ceiling)) = (tier > 0)
            .then(|| schedule.terms[usize::from(tier - 1)])
            .flatten()
        else {
            return false;
        };
        let sampled = schedule.sample.filter(|(percent, _)| {
            let hash = Hash::of(&[format!("onrecord/sample/1\n{}", run.id).as_bytes()]);
            let number = u64::from_be_bytes(hash.0[..8].try_into().unwrap());
            run.sealed.is_some()
                && !run.failed
                && !run.flagged
                && number % 100 >= u64::from(*percent)
        });
        let days = [ceiling, sampled.map(|(_, days)| days)]
            .into_iter()
            .flatten()
            .min();
        days.and_then(|days| Self::after(run, trigger, days))
            .is_some_and(|due| due <= self.day)
    }

    fn held(&self, run: usize) -> bool {
        self.holds
            .iter()
            .any(|(_, of, in_force)| *in_force && of.is_none_or(|of| of == run))
    }

    /// Whether a tier is to be erased by the next sweep, and not to be read until then.
    fn goes(&self, run: usize, tier: u8) -> bool {
        let facts = &self.runs[run];
        self.expired(facts, tier) && !self.floor(facts, tier) && !self.held(run)
    }

    fn erase(&mut self, run: usize, tier: u8, policy: &str, reason: &str) {
        let run = &mut self.runs[run];
        let mut count = 0;
        for payload in run
            .payloads
            .iter_mut()
            .filter(|one| one.tier == tier && one.alive)
        {
            payload.alive = false;
            count += 1;
        }
        if count > 0 {
            let (policy, reason) = (policy.to_owned(), reason.to_owned());
            self.entries
                .push((run.id.clone(), tier, policy, reason, count));
        }
    }

    fn sweep(&mut self) {
        for run in 0..self.runs.len() {
            for tier in 1..=3 {
                if self.goes(run, tier) {
                    let schedule = self.chosen(&self.runs[run]);
                    let policy = format!("s{schedule}@{}", self.policies.len());
                    self.erase(run, tier, &policy, "expired");
                }
            }
        }
    }
}

/// Does a step on both sides.
async fn take(step: &Step, model: &mut Model, server: &Server, clock: &Clock) {
    let api = &server.api;
    let open =
        |model: &Model, run: usize| model.runs.get(run).is_some_and(|run| run.sealed.is_none());
    match step {
        Step::Open { agent } => {
            let session = json!({"session": {"agent": format!("agent-{agent}")}});
            let id = api.open(&session).await.run.to_string();
            model.runs.push(Run {
                id,
                agent: *agent,
                version: model.policies.len(),
                opened: model.day,
                last: model.day,
                accessed: None,
                sealed: None,
                failed: false,
                flagged: false,
                payloads: Vec::new(),
            });
        }
        Step::Append { run, tier } if open(model, *run) => {
            let run = &mut model.runs[*run];
            let payload = json!({"name": "p", "text": "said", "tier": tier});
            let frame = json!({"kind": "observation", "payloads": [payload]});
            let seq = api.frame(&run.id, &frame).await.is(201).json()["seq"].clone();
            let frame = api.get(&format!("/v1/runs/{}/frames/{seq}", run.id)).await;
            let commit = frame.is(200).json()["payloads"][0]["commit"].clone();
            run.last = model.day;
            run.payloads.push(Payload {
                commit: commit.as_str().unwrap().to_owned(),
                tier: *tier,
                alive: true,
            });
        }
        Step::FailGate { run } if open(model, *run) => {
            let run = &mut model.runs[*run];
            let frame =
                json!({"kind": "gate_result", "body": {"name": "tests", "verdict": "fail"}});
            api.frame(&run.id, &frame).await.is(201);
            (run.failed, run.last) = (true, model.day);
        }
        Step::Flag { run } if *run < model.runs.len() => {
            let run = &mut model.runs[*run];
            let path = format!("/v1/runs/{}/flags", run.id);
            let status = if run.flagged { 200 } else { 201 };
            api.post(&path, &json!({"flag": "incident"}))
                .await
                .is(status);
            run.flagged = true;
        }
        Step::Seal { run } if open(model, *run) => {
            let run = &mut model.runs[*run];
            seal(api, &run.id).await;
            (run.sealed, run.last) = (Some(model.day), model.day);
        }
        Step::Policy(schedules) => {
            put(api, &document(schedules)).await.is(201);
            model.policies.push(schedules.clone());
        }
        Step::Hold { run } if run.is_none_or(|run| run < model.runs.len()) => {
            let matter = format!("m{}", model.holds.len());
            let wanted = match run {
                Some(run) => json!({"matter": matter, "run": model.runs[*run].id}),
                None => json!({"matter": matter, "tenant": true}),
            };
            let hold = api.post("/v1/holds", &wanted).await.is(201).json()["hold"].clone();
            model.holds.push((hold.as_u64().unwrap(), *run, true));
        }
        Step::Release { hold } if *hold < model.holds.len() => {
            let hold = &mut model.holds[*hold];
            let path = format!("/v1/holds/{}/release", hold.0);
            api.post(&path, &json!({})).await;
            hold.2 = false;
        }
        Step::Erase { run, tier } if *run < model.runs.len() => {
            let wanted =
                json!({"run": model.runs[*run].id, "tier": tier, "reason": "asked", "policy": "p"});
            let answer = api.post("/v1/erasures", &wanted).await;
            if model.held(*run) {
                answer.problem(409, "held");
            } else if model.floor(&model.runs[*run], *tier) {
                answer.problem(409, "retention_floor");
            } else {
                answer.is(201);
                model.erase(*run, *tier, "p", "asked");
            }
        }
        Step::Pass { days } => {
            clock.step_days(*days).await;
            model.day += days;
        }
        Step::Sweep => {
            // Open runs are looked at again after a while, and not at once.
            clock.step_days(1).await;
            model.day += 1;
            sweep(api).await;
            model.sweep();
            compare(model, server).await;
        }
        _ => {}
    }
}

/// What is to be read is read, and nothing else; each run's export verifies.
async fn look(model: &mut Model, api: &Api) {
    for place in 0..model.runs.len() {
        for payload in 0..model.runs[place].payloads.len() {
            let (run, goes) = (
                &model.runs[place],
                model.goes(place, model.runs[place].payloads[payload].tier),
            );
            let payload = &run.payloads[payload];
            let answer = read(api, &run.id, &payload.commit).await;
            if payload.alive && !goes {
                answer.is(200);
                model.runs[place].accessed = Some(model.day);
            } else {
                let problem = answer.json();
                let code = problem["code"].as_str().unwrap();
                assert!(
                    ["payload_expired", "payload_erased"].contains(&code),
                    "{problem}"
                );
            }
        }
        let run = &mut model.runs[place];
        let report = audited(api, &run.id).await;
        let erased = run.payloads.iter().filter(|one| !one.alive).count();
        assert_eq!(report.payloads.erased, erased as u64, "{run:?}");
        run.accessed = Some(model.day);
    }
}

/// What is left and what is certified.
async fn compare(model: &Model, server: &Server) {
    let mut sql = server.sql().await;
    let left: Vec<String> =
        sqlx::query_scalar("select encode(commit, 'hex') from payloads order by 1")
            .fetch_all(&mut sql)
            .await
            .unwrap();
    let payloads = || model.runs.iter().flat_map(|run| &run.payloads);
    let of = |alive| {
        let those = payloads().filter(|one| one.alive == alive);
        let mut commits: Vec<String> = those.map(|one| one.commit.clone()).collect();
        commits.sort();
        commits
    };
    assert_eq!(left, of(true), "what is left");
    let gone: Vec<(String, i64, i16)> = sqlx::query_as(
        "select encode(commit, 'hex'), ledger_index, tier from erased_payloads order by 1",
    )
    .fetch_all(&mut sql)
    .await
    .unwrap();
    let commits: Vec<String> = gone.iter().map(|(commit, ..)| commit.clone()).collect();
    assert_eq!(commits, of(false), "what is gone");
    let entries: Vec<(i64, Vec<u8>)> =
        sqlx::query_as("select idx, bytes from ledger_entries where name = 'erasure'")
            .fetch_all(&mut sql)
            .await
            .unwrap();
    let mut said = Vec::new();
    for (index, bytes) in entries {
        let signed = Signed::parse(&bytes).unwrap();
        let Ok(Some(Predicate::Erasure(erasure))) = signed.predicate() else {
            panic!("entry {index} is no erasure");
        };
        let certified = gone.iter().filter(|(_, by, _)| *by == index).count();
        assert_eq!(
            certified as u64, erasure.count,
            "each payload in one certificate"
        );
        for tier in erasure.whole_tiers() {
            let of_tier = |one: &&(String, i64, i16)| one.1 == index && one.2 == i16::from(tier);
            said.push((
                erasure.state.run.to_string(),
                tier,
                erasure.policy.clone(),
                erasure.reason.clone(),
                gone.iter().filter(of_tier).count() as u64,
            ));
        }
    }
    said.sort();
    let mut expected = model.entries.clone();
    expected.sort();
    assert_eq!(said, expected, "what the ledger certifies");
    let open: i64 = sqlx::query_scalar("select count(*) from erasures where removed_at is null")
        .fetch_one(&mut sql)
        .await
        .unwrap();
    assert_eq!(open, 0, "nothing is left to be done");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_is_left_and_certified_as_in_a_naive_model() {
    let (mut runner, mut entries) = (TestRunner::deterministic(), 0);
    for case in 0..CASES {
        let steps = steps().new_tree(&mut runner).unwrap().current();
        let (server, clock) = stepped().await;
        let mut model = Model::default();
        for (number, step) in steps.iter().enumerate() {
            let step = &step.clone().within(&model);
            println!("case {case}, step {number}: {step:?}");
            take(step, &mut model, &server, &clock).await;
            if matches!(step, Step::Pass { .. } | Step::Sweep) {
                look(&mut model, &server.api).await;
            }
        }
        // In the end nothing is in the way but floors.
        let seals = (0..model.runs.len()).map(|run| Step::Seal { run });
        let releases = (0..model.holds.len()).map(|hold| Step::Release { hold });
        for step in seals.chain(releases).collect::<Vec<_>>() {
            take(&step, &mut model, &server, &clock).await;
        }
        clock.step_days(40).await;
        model.day += 40;
        sweep(&server.api).await;
        model.sweep();
        compare(&model, &server).await;
        look(&mut model, &server.api).await;
        entries += model.entries.len();
        server.stop().await;
    }
    assert!(entries > 10, "{entries} entries certify something");
}
