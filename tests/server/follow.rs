//! Runs that are followed: server-sent events.

use crate::api::{Answer, Api};
use crate::running::Server;
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// One event as it came.
#[derive(Debug, PartialEq, Eq)]
struct Event {
    id: Option<u64>,
    name: String,
    data: String,
}

/// A stream that is being read.
struct Events {
    response: reqwest::Response,
    rest: String,
    comments: usize,
}

impl Events {
    async fn open(api: &Api, run: &str, query: &str, last: Option<u64>) -> Self {
        let path = format!("/v1/runs/{run}/events{query}");
        let mut request = api.request(Method::GET, &path);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-store");
        Self {
            response,
            rest: String::new(),
            comments: 0,
        }
    }

    /// The next event; `None` at the end of the stream, however it ended.
    async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some((block, rest)) = self.rest.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.rest = rest;
                if block == ":" {
                    self.comments += 1;
                    continue;
                }
                let mut event = Event {
                    id: None,
                    name: String::new(),
                    data: String::new(),
                };
                for line in block.lines() {
                    match line.split_once(": ").unwrap() {
                        ("id", id) => event.id = Some(id.parse().unwrap()),
                        ("event", name) => event.name = name.to_owned(),
                        ("data", data) => event.data = data.to_owned(),
                        other => panic!("{other:?}"),
                    }
                }
                return Some(event);
            }
            let chunk = self.response.chunk().await.ok()??;
            self.rest.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// The next events, which are frames from a place on, in their exact bytes.
    async fn frames(&mut self, api: &Api, run: &str, places: std::ops::Range<u64>) {
        for place in places {
            let event = self.next().await.unwrap();
            assert_eq!((event.id, event.name.as_str()), (Some(place), "frame"));
            let path = format!("/v1/runs/{run}/frames/{place}");
            assert_eq!(event.data, api.get(&path).await.is(200).text());
        }
    }
}

async fn observe(api: &Api, run: &str, count: usize) {
    for _ in 0..count {
        let frame = json!({"kind": "observation", "body": {"line": "a\nb\u{2028}"}});
        api.frame(run, &frame).await.is(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_come_in_order_and_the_seal_ends_the_stream() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    observe(api, &run, 2).await;
    let mut events = Events::open(api, &run, "", None).await;
    events.frames(api, &run, 0..3).await;
    // More at once than a page has, and one by one while somebody reads.
    let lines = "{\"kind\":\"observation\"}\n".repeat(230);
    api.frames(&run, lines).await;
    events.frames(api, &run, 3..233).await;
    for place in 233..236 {
        observe(api, &run, 1).await;
        events.frames(api, &run, place..place + 1).await;
    }
    let path = format!("/v1/runs/{run}/seal");
    let seal = api.post(&path, &json!({})).await.is(201).json();
    events.frames(api, &run, 236..237).await;
    let event = events.next().await.unwrap();
    assert_eq!((event.id, event.name.as_str()), (None, "sealed"));
    assert_eq!(serde_json::from_str::<Value>(&event.data).unwrap(), seal);
    assert_eq!(events.next().await, None);
    // Of a sealed run everything comes at once.
    let mut again = Events::open(api, &run, "?from=236", None).await;
    again.frames(api, &run, 236..237).await;
    assert_eq!(again.next().await.unwrap().name, "sealed");
    assert_eq!(again.next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_taken_up_where_it_was() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    observe(api, &run, 4).await;
    // The last event that was seen says more than the address that was asked for at first.
    let mut events = Events::open(api, &run, "?from=1", Some(2)).await;
    events.frames(api, &run, 3..5).await;
    let mut events = Events::open(api, &run, "?from=5", None).await;
    observe(api, &run, 1).await;
    events.frames(api, &run, 5..6).await;

    let path = format!("/v1/runs/{run}/events");
    for (query, last) in [
        ("?from=7", None),
        ("", Some("6")),
        ("", Some("-1")),
        ("", Some("x")),
    ] {
        let mut request = api.request(Method::GET, &format!("{path}{query}"));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        Answer::of(request)
            .await
            .problem(400, "malformed_parameter");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_servers_frames_come_too() {
    let one = Server::start().await;
    let two = one.second().await;
    let run = one.api.any_run().await.run.to_string();
    let mut events = Events::open(&two.api, &run, "", None).await;
    events.frames(&one.api, &run, 0..1).await;
    observe(&one.api, &run, 3).await;
    events.frames(&one.api, &run, 1..4).await;
    let path = format!("/v1/runs/{run}/seal");
    one.api
        .post(&path, &json!({"interrupted": true}))
        .await
        .is(201);
    assert_eq!(events.next().await.unwrap().name, "sealed");
    assert_eq!(events.next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_free_again_when_its_reader_hangs_up() {
    let places = Arc::new(Semaphore::new(2));
    let given = places.clone();
    let server = Server::start_as(|app| {
        app.streams.places = given;
        // A comment that cannot be written must not be what tells that nobody reads.
        app.streams.keep_alive = Duration::from_secs(3_600);
    })
    .await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    let mut kept = Events::open(api, &run, "", None).await;
    let left = Events::open(api, &run, "", None).await;
    let path = format!("/v1/runs/{run}/events");
    let busy = api.get(&path).await;
    busy.problem(503, "busy");
    assert_eq!(busy.header("retry-after"), "2");
    drop(left);
    // Its place comes back without a frame having been written.
    let free = places.acquire().await.unwrap();
    drop(free);
    let mut next = Events::open(api, &run, "", None).await;
    observe(api, &run, 1).await;
    for events in [&mut kept, &mut next] {
        events.frames(api, &run, 0..2).await;
    }
    // A refusal keeps no place.
    drop((kept, next));
    for _ in 0..3 {
        let nobody = "/v1/runs/01K7Q4Z8V2N5R3T6Y9B1C0D4E8/events";
        let answer = api.get(nobody).await;
        if answer.status != 503 {
            answer.problem(404, "run_not_found");
        }
    }
    drop(places.acquire_many(2).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_when_the_server_stops() {
    let server = Server::start().await;
    let run = server.api.any_run().await.run.to_string();
    let mut events = Events::open(&server.api, &run, "", None).await;
    events.frames(&server.api, &run, 0..1).await;
    let end = tokio::spawn(async move { events.next().await });
    let server = server.restart().await;
    assert_eq!(end.await.unwrap(), None);
    observe(&server.api, &run, 1).await;
    let mut events = Events::open(&server.api, &run, "", Some(0)).await;
    events.frames(&server.api, &run, 1..2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_may_not_follow() {
    let server = Server::start().await;
    let api = &server.api;
    let run = api.any_run().await.run.to_string();
    let path = format!("/v1/runs/{run}/events");
    api.anonymous()
        .get(&path)
        .await
        .problem(401, "unauthenticated");
    let other = api.new_tenant().await;
    other.get(&path).await.problem(404, "run_not_found");
    // Whoever asked in vain has not made the run unknown to its own tenant.
    let token = json!({"name": "for a while", "roles": ["auditor"]});
    let made = api.post("/v1/tokens", &token).await.is(201).json();
    let reader = api.with(made["token"].as_str().unwrap());
    let mut events = Events::open(&reader, &run, "", None).await;
    events.frames(api, &run, 0..1).await;
    let id = made["id"].as_str().unwrap();
    api.delete(&format!("/v1/tokens/{id}")).await.is(204);
    observe(api, &run, 1).await;
    assert_eq!(events.next().await, None, "a revoked token sees no frame");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_never_stays_silent() {
    let server = Server::start_as(|app| app.streams.keep_alive = Duration::from_millis(1)).await;
    let run = server.api.any_run().await.run.to_string();
    let mut events = Events::open(&server.api, &run, "?from=1", None).await;
    while events.comments < 5 {
        let chunk = events.response.chunk().await.unwrap().unwrap();
        events.comments += chunk.iter().filter(|byte| **byte == b':').count();
    }
}
