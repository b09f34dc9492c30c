//! The table of faults: each step of an append, and each way in which it can go wrong. After each, what
//! was acknowledged is there, what was refused is not, what is not known is there once or not at all,
//! and a retry is answered with one receipt ever after.

use crate::api::audit::audit;
use crate::api::{Answer, Api, JSON, NDJSON, PROBLEM, receipt};
use crate::harness;
use crate::insist::is_uncertain;
use crate::load::frame;
use crate::process::{DataDir, Process};
use crate::proxy::Fault::{Answer as Error, Cut, CutAfter};
use crate::proxy::Moment::{self, Begin, Command, Commit, Connect, Head, MoveHead, Write};
use crate::proxy::{Fault, Proxy};
use futures_util::future::join_all;
use onrecord_core::receipt::Receipt;
use serde_json::{Value, json};
use std::collections::HashMap;

/// What writers whose frames are not known find out by a retry: some are stored, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Stored,
    Not,
}
use Then::{Not, Stored};

/// A step, what goes wrong, the status of whoever is hit, and what then is.
type Row = (Moment, Fault, u64, Then);

const TABLE: [Row; 30] = [
    (Connect, Cut, 503, Not),
    (Connect, CutAfter, 503, Not),
    (Connect, Error("53300"), 503, Not), // too many connections
    (Connect, Error("57P03"), 503, Not), // starting up
    (Begin, Cut, 503, Not),
    (Begin, CutAfter, 503, Not),
    (Begin, Error("53300"), 503, Not),
    (Head, Cut, 503, Not),
    (Head, CutAfter, 503, Not),
    (Head, Error("40P01"), 503, Not), // deadlock
    (Head, Error("57014"), 503, Not), // statement timeout
    (Write, Cut, 503, Not),
    (Write, CutAfter, 503, Not),
    (Write, Error("53100"), 507, Not), // disk full
    (Write, Error("57014"), 503, Not),
    (Write, Error("23505"), 500, Not), // a unique value that nobody finds: the database contradicts itself
    (Write, Error("40001"), 503, Not), // serialization
    (Write, Error("40P01"), 503, Not),
    (Write, Error("53200"), 503, Not), // out of memory
    (Write, Error("25006"), 503, Not), // it is a standby now
    (Write, Error("25P03"), 503, Not), // the transaction stood too long
    (Write, Error("55P03"), 503, Not), // a lock did not come in time
    (MoveHead, Cut, 503, Not),
    (MoveHead, CutAfter, 503, Not),
    (MoveHead, Error("53100"), 507, Not),
    (Commit, Cut, 503, Not),
    (Commit, CutAfter, 503, Stored),
    (Commit, Error("53100"), 507, Not),
    (Commit, Error("40001"), 503, Not),
    (Commit, Error("57P01"), 503, Not), // the administrator stops it
];

/// A server behind a proxy.
struct Stand {
    proxy: Proxy,
    process: Process,
    _database: harness::TestDatabase,
    _data_dir: DataDir,
}

impl Stand {
    async fn start() -> Self {
        let database = harness::database().await;
        let proxy = Proxy::before(&database.url).await;
        let data_dir = DataDir::new();
        let arguments = ["--database-url", proxy.url(), "--connections", "4"];
        Self {
            process: Process::start(&data_dir, &arguments),
            proxy,
            _database: database,
            _data_dir: data_dir,
        }
    }
}

/// A request, the key of its frame, and what it is answered when nothing goes wrong.
struct Asked {
    frame: Value,
    expected: u64,
}

impl Asked {
    fn new(frame: Value, expected: u64) -> Self {
        Self { frame, expected }
    }

    fn key(&self) -> &str {
        self.frame["key"].as_str().expect("every frame has a key")
    }
}

/// What came back for one frame.
struct Heard {
    asked: Asked,
    status: u64,
    body: Value,
}

/// What is asked for at once: requests of their own, and the lines of one stream.
struct Load {
    alone: Vec<Asked>,
    many: Vec<Asked>,
}

impl Load {
    /// One frame and nothing else.
    fn least() -> Self {
        Self {
            alone: vec![Asked::new(frame("one"), 201)],
            many: Vec::new(),
        }
    }

    /// New frames, retries, and what is refused whatever happens.
    fn full() -> Self {
        let new = |key: &str| Asked::new(frame(key), 201);
        let refused = |body: Value| Asked::new(body, 422);
        let unknown = json!({"kind": "observation", "key": "unknown", "colour": 1});
        let dangling = |key: &str| {
            let links = json!([{"rel": "answers", "key": "nowhere"}]);
            refused(json!({"kind": "observation", "key": key, "links": links}))
        };
        let old = Asked::new(frame("old"), 200);
        let conflict = Asked::new(json!({"kind": "decision", "key": "old"}), 409);
        let alone = [new("one"), new("two"), new("three"), old, conflict];
        let many = [
            new("a"),
            refused(unknown),
            new("b"),
            dangling("c"),
            new("d"),
        ];
        Self {
            alone: alone.into_iter().chain([dangling("dangling")]).collect(),
            many: many.into_iter().collect(),
        }
    }
}

/// Sends all at once, and checks that each is answered in one of the ways that there are.
async fn send_all(api: &Api, run: &str, load: Load) -> Vec<Heard> {
    let Load { alone, many } = load;
    let path = format!("/v1/runs/{run}/frames");
    let singles = alone.into_iter().map(|asked| async {
        let answer = api.send(&path, JSON, asked.frame.to_string()).await;
        if !matches!(answer.status, 200 | 201) {
            assert_eq!(answer.header("content-type"), PROBLEM);
        }
        if answer.status >= 500 {
            assert!(is_uncertain(&answer.json()), "{}", answer.text());
            assert!(!answer.header("retry-after").is_empty());
        }
        vec![Heard {
            asked,
            status: answer.status.into(),
            body: answer.json(),
        }]
    });
    let stream = async {
        if many.is_empty() {
            return Vec::new();
        }
        let body: String = many
            .iter()
            .map(|asked| format!("{}\n", asked.frame))
            .collect();
        let answer = api.send(&path, NDJSON, body).await;
        let all = many.into_iter();
        if answer.status != 200 {
            let (status, body) = (u64::from(answer.status), answer.json());
            return all
                .map(|asked| Heard {
                    asked,
                    status,
                    body: body.clone(),
                })
                .collect();
        }
        let lines = answer.lines();
        assert_eq!(lines.len(), 6, "{lines:?}");
        assert_eq!(lines[5]["done"], 5);
        let heard = all.zip(lines).map(|(asked, line)| Heard {
            asked,
            status: line["status"].as_u64().expect("a status"),
            body: line.get("problem").unwrap_or(&line).clone(),
        });
        heard.collect::<Vec<_>>()
    };
    let (singles, stream) = tokio::join!(join_all(singles), stream);
    let heard: Vec<Heard> = singles.into_iter().flatten().chain(stream).collect();
    for one in &heard {
        let (key, body) = (one.asked.key(), &one.body);
        if one.status >= 500 {
            assert!(is_uncertain(body), "{key}: {body}");
        } else {
            assert_eq!(one.status, one.asked.expected, "{key}: {body}");
        }
    }
    heard
}

/// The keys of a run's frames and their places; each key is there once.
async fn stored(api: &Api, run: &str) -> HashMap<String, u64> {
    let frames = api.get(&format!("/v1/runs/{run}/frames")).await.is(200);
    let mut keys = HashMap::new();
    for (frame, place) in frames.lines().iter().zip(0..) {
        let key = frame["key"].as_str().expect("a key").to_owned();
        assert_eq!(keys.insert(key, place), None, "{frame} is there twice");
    }
    keys
}

/// Retries a frame.
async fn again(api: &Api, run: &str, asked: &Asked, status: &[u16]) -> Receipt {
    let answer: Answer = api.frame(run, &asked.frame).await;
    assert!(
        status.contains(&answer.status),
        "{}: {}",
        asked.key(),
        answer.text()
    );
    answer.receipt()
}

/// Lets a fault happen to appends of a new run, and looks at everything afterwards. Returns how often it
/// happened, and the statuses of those who were hit with whether their frames were stored.
async fn play(
    stand: &Stand,
    moment: Moment,
    fault: Fault,
    load: Load,
) -> (usize, Vec<(u64, bool)>) {
    let api = &stand.process.api;
    let opened = api.any_run().await;
    let run = opened.run.to_string();
    let old = api.frame(&run, &frame("old")).await.is(201).receipt();
    if moment == Connect {
        // Whoever comes next has to connect.
        stand.proxy.sever();
    }
    stand.proxy.arm(moment, fault, 1);
    let heard = send_all(api, &run, load).await;
    let fired = stand.proxy.disarm();

    let there = stored(api, &run).await;
    let mut kept = vec![opened, old];
    let mut hit = Vec::new();
    for one in &heard {
        let key = one.asked.key();
        match one.status {
            200 | 201 => {
                let receipt = receipt(&one.body);
                assert_eq!(there.get(key), Some(&receipt.seq), "{key} was acknowledged");
                kept.push(receipt);
            }
            400..500 => assert!(
                key == "old" || !there.contains_key(key),
                "{key} was refused"
            ),
            status => {
                if one.asked.expected >= 400 && key != "old" {
                    assert!(!there.contains_key(key), "{key} cannot be stored");
                }
                if one.asked.expected == 201 {
                    hit.push((status, there.contains_key(key)));
                }
            }
        }
    }
    audit(api, &run, &kept).await;

    // A retry of everything, whatever it was answered, and once more.
    for one in heard.iter().filter(|one| one.asked.expected < 400) {
        let known = there.get(one.asked.key());
        let status = if known.is_some() { 200 } else { 201 };
        let first = again(api, &run, &one.asked, &[status]).await;
        assert!(known.is_none_or(|seq| *seq == first.seq));
        assert_eq!(again(api, &run, &one.asked, &[200]).await, first);
        if matches!(one.status, 200 | 201) {
            assert_eq!(receipt(&one.body), first, "one receipt ever after");
        }
        kept.push(first);
    }
    kept.sort_by_key(|receipt| receipt.seq);
    kept.dedup();
    assert_eq!(
        kept.len(),
        stored(api, &run).await.len(),
        "nothing else is there"
    );
    audit(api, &run, &kept).await;
    (fired, hit)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_step_can_fail_in_every_way() {
    let stand = Stand::start().await;
    for (moment, fault, status, then) in TABLE {
        let (fired, hit) = play(&stand, moment, fault, Load::full()).await;
        let told = format!("{moment:?} {fault:?}: {hit:?}");
        println!("{told}");
        // How a transaction begins and whether the head is read for each is the server's own affair.
        let must = !matches!(moment, Begin | Head | MoveHead);
        assert!(fired == 1 || !must, "{told}: it happened {fired} times");
        // A server that could tell may have tried again by itself: then nobody was hit.
        assert!(hit.iter().all(|(hit, _)| *hit == status), "{told}");
        let stored = hit.iter().any(|(_, stored)| *stored);
        assert!(hit.is_empty() || stored == (then == Stored), "{told}");
    }
    let log = stand.process.stop();
    assert!(!log.contains("panicked"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_an_append_can_fail_in_every_way() {
    let stand = Stand::start().await;
    for fault in [Cut, CutAfter, Error("57014")] {
        // Until there is no command of that number any more.
        for n in 0.. {
            let (fired, hit) = play(&stand, Command(n), fault, Load::least()).await;
            println!("command {n} {fault:?}: {hit:?}");
            if fired == 0 {
                assert!(n > 0, "an append asks the database for something");
                break;
            }
        }
    }
    let log = stand.process.stop();
    assert!(!log.contains("panicked"), "{log}");
}
