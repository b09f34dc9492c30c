//! A small server with the rules of the API that an import relies on, in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use onrecord::client::{Client, ServerArgs};
use onrecord_core::digest::leaf_hash;
use serde_json::{Value, json};
use tokio::sync::Notify;

/// A run of the fake.
#[derive(Clone, Default)]
pub struct Run {
    pub id: String,
    /// Frames in order: key, what was sent, hash.
    pub frames: Vec<(String, String, String)>,
    pub sealed: bool,
}

#[derive(Default)]
pub struct Fake {
    pub runs: Mutex<Vec<Run>>,
    /// How many answers to batches are still to be cut off after their first line.
    pub cuts: AtomicU64,
    /// How many requests are still to be answered with 503.
    pub refusals: AtomicU64,
    pub requests: AtomicU64,
    /// After so many requests the next one gets no answer, as if the asker were killed; 0 for never.
    pub stall_after: AtomicU64,
    /// Whether that one is carried out all the same.
    pub stall_done: AtomicBool,
    /// Told when a request gets no answer.
    pub stalled: Notify,
    /// Whether everything is answered with 503.
    pub away: AtomicBool,
    /// What is done at the next request.
    pub meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Fake {
    /// Counts a request; whether it is the one that gets no answer.
    fn counts(&self) -> bool {
        if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
            meanwhile();
        }
        let count = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let last = self.stall_after.load(Ordering::SeqCst);
        last > 0 && count > last
    }

    async fn stall(&self) -> Response {
        self.stalled.notify_one();
        std::future::pending().await
    }
}

fn unavailable() -> Response {
    let after = [(header::RETRY_AFTER, "0")];
    (StatusCode::SERVICE_UNAVAILABLE, after).into_response()
}

type Shared = State<Arc<Fake>>;

/// Starts the fake on a port of its own.
pub async fn start() -> (Arc<Fake>, Client) {
    let fake = Arc::new(Fake::default());
    let router = Router::new()
        .route("/v1/runs", post(open))
        .route("/v1/runs/{run}", get(show))
        .route("/v1/runs/{run}/frames", post(append))
        .route("/v1/runs/{run}/seal", post(seal))
        .route("/stopped", post(stopped))
        .route("/bytes", get(|| async { "some bytes" }))
        .route(
            "/foreign",
            get(|| async { (StatusCode::BAD_GATEWAY, "<html>proxy</html>") }),
        )
        .route(
            "/problem",
            get(|| async { problem(StatusCode::UNAUTHORIZED, "no_token", "Send a token.") }),
        )
        .with_state(fake.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (fake, client(&url))
}

/// A client that does not pause.
pub fn client(url: &str) -> Client {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let server = ServerArgs {
        url: url.to_owned(),
        token: Some("secret".to_owned()),
    };
    Client::new(&server)
        .unwrap()
        .with_pause(std::time::Duration::ZERO)
}

fn problem(status: StatusCode, code: &str, detail: &str) -> Response {
    let body = json!({"type": format!("/problems/{code}"), "title": "Refused", "status": status.as_u16(), "code": code, "detail": detail});
    let media = [(header::CONTENT_TYPE, "application/problem+json")];
    (status, media, body.to_string()).into_response()
}

/// Takes one from a counter, if there is one left.
fn take(counter: &AtomicU64) -> bool {
    counter
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(1)
        })
        .is_ok()
}

fn add(run: &mut Run, key: &str, sent: &str) -> Result<(u16, Value), (u16, &'static str)> {
    let seq = run.frames.len();
    let known = run.frames.iter().position(|(other, ..)| other == key);
    let (status, seq) = match known {
        Some(seq) if run.frames[seq].1 == sent => (200, seq),
        Some(_) => return Err((409, "key_reused")),
        None if run.sealed => return Err((409, "run_sealed")),
        None => (201, seq),
    };
    if status == 201 {
        let hash = leaf_hash(format!("{}/{seq}/{sent}", run.id).as_bytes()).hex();
        run.frames.push((key.to_owned(), sent.to_owned(), hash));
    }
    Ok((
        status,
        json!({"status": status, "run": run.id, "seq": seq, "hash": run.frames[seq].2, "at": "2026-01-01T00:00:00.000000Z"}),
    ))
}

async fn open(State(fake): Shared, body: Bytes) -> Response {
    let stalls = fake.counts();
    if take(&fake.refusals) || fake.away.load(Ordering::SeqCst) {
        return unavailable();
    }
    if stalls && !fake.stall_done.load(Ordering::SeqCst) {
        return fake.stall().await;
    }
    let answer = open_now(&fake, &body);
    if stalls {
        return fake.stall().await;
    }
    answer
}

fn open_now(fake: &Fake, body: &Bytes) -> Response {
    let request: Value = serde_json::from_slice(body).unwrap();
    let key = request["key"].as_str().unwrap();
    let mut runs = fake.runs.lock().unwrap();
    let known = runs.iter().position(|run| run.frames[0].0 == key);
    let index = known.unwrap_or_else(|| {
        let id = format!("run-{}", runs.len());
        runs.push(Run {
            id,
            ..Run::default()
        });
        runs.len() - 1
    });
    match add(&mut runs[index], key, &String::from_utf8_lossy(body)) {
        Ok((status, receipt)) => {
            (StatusCode::from_u16(status).unwrap(), receipt.to_string()).into_response()
        }
        Err((_, code)) => problem(
            StatusCode::CONFLICT,
            code,
            "This key was used for another session.",
        ),
    }
}

async fn append(State(fake): Shared, Path(id): Path<String>, body: Bytes) -> Response {
    let stalls = fake.counts();
    if fake.away.load(Ordering::SeqCst) {
        return unavailable();
    }
    if stalls && !fake.stall_done.load(Ordering::SeqCst) {
        return fake.stall().await;
    }
    let answer = append_now(&fake, &id, &body);
    if stalls {
        return fake.stall().await;
    }
    answer
}

/// Each line has a fate of its own, as with the real server.
fn append_now(fake: &Fake, id: &str, body: &Bytes) -> Response {
    let mut runs = fake.runs.lock().unwrap();
    let hashes: HashMap<String, String> = runs
        .iter()
        .flat_map(|run| {
            run.frames
                .iter()
                .map(|frame| (frame.2.clone(), run.id.clone()))
        })
        .collect();
    let Some(run) = runs.iter_mut().find(|run| run.id == id) else {
        return no_run();
    };
    let (mut lines, mut done, mut failed) = (Vec::new(), 0, 0);
    for sent in String::from_utf8(body.to_vec()).unwrap().lines() {
        let frame: Value = serde_json::from_str(sent).unwrap();
        let key = frame["key"].as_str().unwrap();
        let new = !run.sealed && run.frames.iter().all(|frame| frame.0 != key);
        for link in frame["links"].as_array().into_iter().flatten() {
            let known = match link.get("key") {
                Some(key) => run.frames.iter().any(|frame| *key == *frame.0),
                None => hashes
                    .get(link["hash"].as_str().unwrap())
                    .is_some_and(|run| link["run"] == **run),
            };
            assert!(known || !new, "{link} points to no frame");
        }
        lines.push(match add(run, key, sent) {
            Ok((_, receipt)) => {
                done += 1;
                receipt
            }
            Err((status, code)) => {
                failed += 1;
                json!({"status": status, "problem": {"type": "", "title": "Refused", "status": status, "code": code, "detail": "Not this."}})
            }
        });
    }
    lines.push(json!({"done": done, "failed": failed}));
    if take(&fake.cuts) {
        lines.truncate(1);
    }
    let chunks = lines
        .into_iter()
        .map(|line| Ok::<_, std::io::Error>(Bytes::from(format!("{line}\n"))));
    Body::from_stream(futures_util::stream::iter(chunks)).into_response()
}

/// A batch that the server ends before its last line, as it does when the body breaks a limit.
async fn stopped() -> String {
    let line = json!({"status": 201, "seq": 1, "hash": "00"});
    let problem = json!({"type": "", "title": "Too slow", "status": 408, "code": "body_timeout", "detail": "The body stood still."});
    format!(
        "{line}\n{}\n",
        json!({"done": 1, "failed": 0, "problem": problem})
    )
}

async fn seal(State(fake): Shared, Path(id): Path<String>) -> Response {
    if fake.away.load(Ordering::SeqCst) {
        return unavailable();
    }
    let mut runs = fake.runs.lock().unwrap();
    let run = runs.iter_mut().find(|run| run.id == id).unwrap();
    if run.sealed {
        return problem(StatusCode::CONFLICT, "run_sealed", "The run is sealed.");
    }
    run.sealed = true;
    json!({"run": id, "size": run.frames.len()})
        .to_string()
        .into_response()
}

async fn show(State(fake): Shared, Path(id): Path<String>) -> Response {
    if fake.away.load(Ordering::SeqCst) {
        return unavailable();
    }
    let runs = fake.runs.lock().unwrap();
    let Some(run) = runs.iter().find(|run| run.id == id) else {
        return no_run();
    };
    let head = &run.frames.last().unwrap().2;
    json!({"run": id, "size": run.frames.len(), "sealed": run.sealed, "head": head})
        .to_string()
        .into_response()
}

fn no_run() -> Response {
    problem(
        StatusCode::NOT_FOUND,
        "run_not_found",
        "There is no such run.",
    )
}
