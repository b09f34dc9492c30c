//! `kill -9` at bad moments: what was acknowledged is there.

use crate::api::audit::audit;
use crate::load::{Counter, retry_all, streamer, writer};
use crate::process::{DataDir, Process};
use onrecord_core::receipt::Receipt;
use rustix::process::{Signal, kill_process};
use serde_json::json;
use std::collections::HashSet;

/// Acknowledgements after which the server is killed: right at the beginning, and in the midst.
const MOMENTS: [usize; 4] = [1, 37, 120, 9];

#[tokio::test(flavor = "multi_thread")]
async fn every_acknowledged_frame_survives() {
    let data_dir = DataDir::new();
    let mut process = Process::start(&data_dir, &[]);
    let opened = process.api.any_run().await;
    let run = opened.run.to_string();
    let token = process.api.token.clone().unwrap();
    let mut kept: Vec<Receipt> = vec![opened];
    for (round, moment) in MOMENTS.into_iter().enumerate() {
        let counter = Counter::new(&[moment]);
        let mut writers = Vec::new();
        for number in 0..5 {
            let name = format!("r{round}-w{number}");
            let api = process.api.clone();
            writers.push(if number == 0 {
                streamer(api, run.clone(), name, counter.clone())
            } else {
                writer(api, run.clone(), name, counter.clone())
            });
        }
        counter.reached().await;
        if round == 2 {
            // Everything at once, as when the machine goes.
            let postmaster = data_dir.postmaster().unwrap();
            kill_process(postmaster, Signal::KILL).unwrap();
        }
        let log = process.kill();
        assert_eq!(log.contains(&token), round == 0, "the token is shown once");
        let mut sent = Vec::new();
        for writer in writers {
            sent.extend(writer.await.unwrap());
        }
        let acknowledged: Vec<Receipt> = sent
            .iter()
            .filter_map(|(_, receipt)| receipt.clone())
            .collect();
        assert!(acknowledged.len() >= moment);

        process = Process::start(&data_dir, &[]);
        kept.extend(acknowledged);
        audit(&process.api, &run, &kept).await;
        // Retries find what is there, and what nobody was told of is there once or not at all.
        let all = retry_all(&process.api, &run, &sent).await;
        let places: HashSet<u64> = all.iter().map(|receipt| receipt.seq).collect();
        assert_eq!(places.len(), sent.len());
        kept.extend(all);
        kept.sort_by_key(|receipt| receipt.seq);
        kept.dedup();
        assert_eq!(
            process.api.size(&run).await,
            kept.len() as u64,
            "nothing else is there"
        );
        audit(&process.api, &run, &kept).await;
    }
    let seal = format!("/v1/runs/{run}/seal");
    process.api.post(&seal, &json!({})).await.is(201);
    audit(&process.api, &run, &kept).await;
    process.stop();
    assert_eq!(data_dir.postmaster(), None, "it takes its PostgreSQL along");
}

#[tokio::test(flavor = "multi_thread")]
async fn openings_and_seals_survive_whole_or_not_at_all() {
    let data_dir = DataDir::new();
    let mut process = Process::start(&data_dir, &[]);
    for round in 0..3 {
        // Many opens and seals are under way when the server is killed.
        let tasks = (0..6).map(|number| {
            let api = process.api.clone();
            tokio::spawn(async move {
                let mut done = Vec::new();
                for n in 0.. {
                    let body = json!({"session": {}, "key": format!("{round}-{number}-{n}")});
                    let request = api
                        .request(reqwest::Method::POST, "/v1/runs")
                        .header("content-type", "application/json")
                        .body(body.to_string());
                    let Ok(answer) = crate::api::Answer::try_of(request).await else {
                        break;
                    };
                    let opened = answer.is(201).receipt();
                    let path = format!("/v1/runs/{}/seal", opened.run);
                    let seal = api.request(reqwest::Method::POST, &path);
                    let seal = crate::api::Answer::try_of(seal).await;
                    let sealed = seal.is_ok();
                    done.push((body, opened, seal.ok()));
                    if !sealed {
                        break;
                    }
                }
                done
            })
        });
        let tasks: Vec<_> = tasks.collect();
        // The moment: some runs are in the list.
        let enough = 5 + round * 10;
        while process.api.get("/v1/runs?limit=500").await.json()["runs"]
            .as_array()
            .unwrap()
            .len()
            < enough
        {}
        process.kill();
        process = Process::start(&data_dir, &[]);
        for task in tasks {
            for (body, opened, seal) in task.await.unwrap() {
                assert_eq!(
                    process.api.post("/v1/runs", &body).await.is(200).receipt(),
                    opened
                );
                let path = format!("/v1/runs/{}/seal", opened.run);
                let again = process.api.post(&path, &json!({})).await;
                if let Some(seal) = seal {
                    assert_eq!(again.is(200).bytes, seal.is(201).bytes);
                } else {
                    assert!(again.status == 200 || again.status == 201);
                }
            }
        }
    }
    let listed = process.api.get("/v1/runs?limit=500").await.json();
    let runs = listed["runs"].as_array().unwrap();
    let mut numbers: Vec<u64> = runs
        .iter()
        .map(|run| run["run_no"].as_u64().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=runs.len() as u64).collect::<Vec<_>>());
    for run in runs.iter().step_by(runs.len() / 5) {
        audit(&process.api, run["run"].as_str().unwrap(), &[]).await;
    }
    process.stop();
}
