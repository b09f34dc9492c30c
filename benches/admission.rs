//! What a posted frame costs before it has its place: `cargo bench --bench admission`.
//!
//! Preparing a frame needs a caller, whom a token in a database makes; of it the payload is measured, which is
//! nearly all: committed to, padded and encrypted.

#![allow(missing_docs, reason = "a program of its own")]
#![allow(clippy::unwrap_used, reason = "a bench may stop where it stands")]

mod sample;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use onrecord::record::intake::frame;
use sha2::{Digest as _, Sha256};
use std::hint::black_box;

/// A request of about so many bytes, as a client sends it: members in no order, spaces between them.
fn request(text: usize, payload: usize) -> Vec<u8> {
    let payload = match payload {
        0 => String::new(),
        length => format!(
            r#", "payloads": [{{"name": "arguments", "text": "{}"}}]"#,
            "x".repeat(length)
        ),
    };
    format!(
        r#"{{"kind": "tool_call", "key": "call/00000001", "turn": 1, "body": {}, "links": [{{"rel": "caused", "seq": 0}}], "occurred_at": "2026-08-09T11:00:00.000000Z"{payload}}}"#,
        sample::body(text)
    )
    .into_bytes()
}

fn admission(criterion: &mut Criterion) {
    let keys = sample::keys();
    let (run, _) = keys.new_run(&sample::run()).unwrap();
    let requests = [
        ("frame of 1 KiB", request(660, 0)),
        ("frame with a payload of 8 KiB", request(660, 8_192)),
    ];
    let mut group = criterion.benchmark_group("admission");
    for (name, bytes) in &requests {
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(format!("SHA-256 of a {name}"), |bench| {
            bench.iter(|| Sha256::digest(black_box(bytes)));
        });
        group.bench_function(*name, |bench| {
            bench.iter(|| frame(black_box(bytes)).unwrap())
        });
    }
    for length in [256, 8_192] {
        let payload = vec![b'x'; length];
        group.throughput(Throughput::Bytes(length as u64));
        group.bench_function(
            format!("payload of {length} bytes, committed and encrypted"),
            |bench| {
                bench.iter(|| {
                    run.seal(1, "text/plain", black_box(&payload).clone())
                        .unwrap()
                });
            },
        );
    }
    group.finish();
}

criterion_group!(benches, admission);
criterion_main!(benches);
