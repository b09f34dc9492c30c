//! The independent audit: what the server hands out is checked by the verifier alone.

use super::Api;
use super::bundle::Bundle;
use onrecord_core::digest::leaf_hash;
use onrecord_core::receipt::Receipt;
use onrecord_verify::{Code, Options, Report, Status, Trust, verify};
use std::fmt::Display;

/// Verifies bytes under a trust file, all payloads demanded.
pub fn check(bytes: &[u8], trust: &str, receipts: &[Receipt]) -> Report {
    let options = Options {
        trust: Some(Trust::parse(trust).expect("a trust file")),
        full: true,
        receipts: receipts.to_vec(),
        ..Options::default()
    };
    verify(bytes, &options)
}

pub async fn trust(api: &Api) -> String {
    api.get("/v1/trust").await.is(200).text()
}

pub async fn export(api: &Api, run: impl Display) -> Vec<u8> {
    let path = format!("/v1/runs/{run}/export?purpose=audit");
    let answer = api.get(&path).await.is(200);
    assert_eq!(answer.header("content-type"), "application/x-tar");
    answer.bytes.to_vec()
}

/// Exports a run and checks it under the tenant's keys with all receipts that were kept: a sealed run
/// verifies, an open one lacks its seal and nothing else. Then the frames of the bundle are compared
/// with those that the API serves, one by one and as a stream, and the server's own verdict with ours.
pub async fn audit(api: &Api, run: impl Display, receipts: &[Receipt]) -> (Report, Bundle) {
    let bytes = export(api, &run).await;
    let report = check(&bytes, &trust(api).await, receipts);
    let state = api.run(&run).await;
    let codes: Vec<Code> = report.findings.iter().map(|found| found.code).collect();
    if state["status"] == "sealed" {
        assert_eq!(codes, [], "{:#?}", report.findings);
        assert_eq!(report.verdict.code, Code::Verified);
        assert_eq!(report.verdict.exit_code, 0);
    } else {
        assert_eq!(codes, [Code::Unsealed], "{:#?}", report.findings);
        assert_eq!(report.verdict.status, Status::Incomplete);
        assert_eq!(report.verdict.exit_code, 2);
    }
    assert_eq!(report.facts.size, state["size"].as_u64());
    let head = report.facts.head.map(|head| head.hex());
    assert_eq!(head.as_deref(), state["head"].as_str());
    let root = report.facts.root.map(|root| root.hex());
    assert_eq!(root.as_deref(), state["root"].as_str());

    let bundle = Bundle::read(&bytes);
    assert_eq!(bundle.write(), bytes, "the tar is the one allowed form");
    let stream = api.get(&format!("/v1/runs/{run}/frames")).await.is(200);
    assert_eq!(stream.bytes, bundle.member("frames.ndjson"));
    assert_eq!(
        stream.header("onrecord-frames"),
        bundle.frames().len().to_string()
    );
    for receipt in receipts {
        let path = format!("/v1/runs/{run}/frames/{}", receipt.seq);
        let answer = api.get(&path).await.is(200);
        let place = usize::try_from(receipt.seq).expect("a place");
        assert_eq!(answer.bytes, bundle.frames()[place], "frame {place}");
        assert_eq!(leaf_hash(&answer.bytes), receipt.hash, "frame {place}");
        assert_eq!(answer.header("etag"), format!("\"{}\"", receipt.hash));
    }
    let path = format!("/v1/runs/{run}/verification");
    let own = api.get(&path).await.is(200).json();
    assert_eq!(own["verdict"]["code"], report.verdict.code.as_str());
    (report, bundle)
}
