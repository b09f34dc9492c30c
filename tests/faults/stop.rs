//! SIGTERM: what was begun is brought to its end.

use crate::api::audit::audit;
use crate::api::raw::Raw;
use crate::load::{Counter, retry_all, writer};
use crate::process::{DataDir, Process};
use tokio::net::TcpStream;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_told_to_stop_ends_its_requests() {
    let data_dir = DataDir::new();
    let process = Process::start(&data_dir, &[]);
    let api = process.api.clone();
    let opened = api.any_run().await;
    let run = opened.run.to_string();
    let counter = Counter::new(&[30]);
    let writers: Vec<_> = (0..4)
        .map(|n| writer(api.clone(), run.clone(), format!("w{n}"), counter.clone()))
        .collect();
    // A request whose body is half way when the signal comes.
    let body = crate::load::frame("half").to_string();
    let mut raw = Raw::connect(api.address()).await;
    let length = format!("content-length: {}", body.len());
    let headers = [
        "content-type: application/json",
        &length,
        "expect: 100-continue",
    ];
    let line = format!("POST /v1/runs/{run}/frames");
    raw.head(&line, api.token.as_deref().unwrap(), &headers)
        .await;
    assert!(
        raw.read_head().await.starts_with("HTTP/1.1 100 "),
        "its handler reads"
    );
    raw.send(&body.as_bytes()[..20]).await;
    counter.reached().await;
    process.terminate();
    // It takes no new connection from here on.
    while TcpStream::connect(api.address()).await.is_ok() {
        tokio::task::yield_now().await;
    }
    raw.send(&body.as_bytes()[20..]).await;
    let answer = raw.answer().await;
    assert_eq!(answer.status, 201);
    let half = crate::api::receipt(&serde_json::from_slice(&answer.body).unwrap());
    let (status, log) = process.wait();
    assert!(status.success(), "{log}");
    assert_eq!(data_dir.postmaster(), None);
    let mut sent = Vec::new();
    for writer in writers {
        sent.extend(writer.await.unwrap());
    }
    let mut kept = vec![opened, half];
    kept.extend(sent.iter().filter_map(|(_, receipt)| receipt.clone()));

    let process = Process::start(&data_dir, &[]);
    assert_eq!(
        process.api.size(&run).await,
        kept.len() as u64,
        "all that was stored was acknowledged"
    );
    audit(&process.api, &run, &kept).await;
    kept.extend(retry_all(&process.api, &run, &sent).await);
    audit(&process.api, &run, &kept).await;
    process.stop();
}
