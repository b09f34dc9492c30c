//! Bundles of more than a page of frames and of payloads, of frames and payloads of every length.

use crate::api::audit::{check, export, trust};
use crate::api::bundle::Bundle;
use crate::api::{Api, receipt};
use crate::running::Server;
use onrecord_core::digest::leaf_hash;
use serde_json::json;
use sqlx::Executor as _;
use std::fmt::Write as _;

/// Long frames, then short ones, then some with payloads: pages of each, and pages of both.
fn lines() -> String {
    let mut lines = String::new();
    for n in 0..80 {
        let frame = json!({"kind": "observation", "body": {"text": "x".repeat(60_000 + n)}});
        let _ = writeln!(lines, "{frame}");
    }
    for n in 0..8_000 {
        let _ = writeln!(lines, "{{\"kind\":\"observation\",\"body\":{{\"n\":{n}}}}}");
    }
    for n in 0..200 {
        let payload = json!({"name": "p", "text": format!("{n}/").repeat(5 * n)});
        // A member of the body that has the name of another is none.
        let body = json!({"payloads": [{"commit": n}]});
        let frame = json!({"kind": "observation", "body": body, "payloads": [payload]});
        let _ = writeln!(lines, "{frame}");
    }
    for letter in ["a", "b"] {
        let payload = json!({"name": "p", "text": letter.repeat(5 << 20)});
        let _ = writeln!(
            lines,
            "{}",
            json!({"kind": "observation", "payloads": [payload]})
        );
    }
    lines
}

async fn recorded(api: &Api) -> String {
    let run = api.any_run().await.run.to_string();
    let answers = api.frames(&run, lines()).await;
    assert_eq!(answers.last().unwrap()["failed"], 0);
    run
}

#[tokio::test(flavor = "multi_thread")]
async fn every_frame_and_payload_is_on_one_page() {
    let server = Server::start().await;
    let run = recorded(&server.api).await;
    let seal = format!("/v1/runs/{run}/seal");
    server.api.post(&seal, &json!({})).await.is(201);
    let bytes = export(&server.api, &run).await;
    let report = check(&bytes, &trust(&server.api).await, &[]);
    assert_eq!(report.verdict.exit_code, 0, "{:#?}", report.findings);
    let bundle = Bundle::read(&bytes);
    assert_eq!(bundle.write(), bytes, "the tar is the one allowed form");
    // The session, the lines and the end that the seal wrote.
    assert_eq!(report.facts.size, Some(1 + 80 + 8_000 + 202 + 1));
    let payloads = bundle
        .0
        .iter()
        .filter(|(name, _)| name.starts_with("payloads/"));
    assert_eq!(payloads.count(), 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_are_gone_do_not_hide_those_behind_them() {
    let server = Server::start().await;
    let run = recorded(&server.api).await;
    let last = receipt(
        &server
            .api
            .frame(&run, &json!({"kind": "decision"}))
            .await
            .json(),
    );
    let rows = format!(
        "alter table frames disable trigger user;
         delete from frames where run = run_uuid('{run}') and seq between 90 and 8079;
         alter table frames enable trigger user;"
    );
    let mut owner = server.sql().await;
    owner.execute(sqlx::AssertSqlSafe(rows)).await.unwrap();
    let bytes = export(&server.api, &run).await;
    let report = check(&bytes, &trust(&server.api).await, &[]);
    assert_eq!(report.verdict.exit_code, 1, "{:#?}", report.findings);
    assert_eq!(report.verdict.first_bad_seq, Some(90));
    // All that is left is there, as the length of the member said before.
    let frames = Bundle::read(&bytes).frames();
    assert_eq!(frames.len() as u64, last.seq + 1 - 7_990);
    assert_eq!(leaf_hash(frames.last().unwrap()), last.hash);
}
