//! The offline verifier over a bundle of 10,000 frames of 1 KiB, beside one SHA-256 over the same bytes:
//! `cargo bench --bench verify`. It uses the cores that it is given (`taskset -c 0` for one).

#![allow(missing_docs, reason = "a program of its own")]
#![allow(clippy::unwrap_used, reason = "a bench may stop where it stands")]

mod sample;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use onrecord_verify::{Code, verify};
use sha2::{Digest as _, Sha256};
use std::hint::black_box;

fn bundle(criterion: &mut Criterion) {
    let key = sample::seal_key();
    let (chain, lines) = sample::lines(10_000);
    let seal = sample::sealed(&chain, &key);
    let bytes = sample::Bundle::of(&chain, &lines, &seal, &key).bytes;
    let options = sample::options(&key);
    assert_eq!(verify(&bytes[..], &options).verdict.code, Code::Verified);
    let mut group = criterion.benchmark_group("verify");
    group
        .throughput(Throughput::Bytes(bytes.len() as u64))
        .sample_size(20);
    group.bench_function("SHA-256 of the same bytes", |bench| {
        bench.iter(|| Sha256::digest(black_box(&bytes)));
    });
    group.bench_function("bundle of 10,000 frames", |bench| {
        bench.iter(|| verify(black_box(&bytes[..]), &options));
    });
    group.finish();
}

criterion_group!(benches, bundle);
criterion_main!(benches);
