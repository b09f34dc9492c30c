//! Writing a bundle of 10,000 frames of 1 KiB, beside one SHA-256 over the same bytes: `cargo bench --bench export`.
//!
//! The exporter itself reads from a database. What is measured is what it does with what it has read:
//! headers, the bytes of each member copied and hashed, the manifest and the signed export statement.

#![allow(missing_docs, reason = "a program of its own")]
#![allow(clippy::unwrap_used, reason = "a bench may stop where it stands")]

mod sample;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sha2::{Digest as _, Sha256};
use std::hint::black_box;

fn bundle(criterion: &mut Criterion) {
    let key = sample::seal_key();
    let (chain, lines) = sample::lines(10_000);
    let seal = sample::sealed(&chain, &key);
    let write = || sample::Bundle::of(&chain, black_box(&lines), &seal, &key).bytes;
    let bytes = write();
    let mut group = criterion.benchmark_group("export");
    group
        .throughput(Throughput::Bytes(bytes.len() as u64))
        .sample_size(20);
    group.bench_function("SHA-256 of the same bytes", |bench| {
        bench.iter(|| Sha256::digest(black_box(&bytes)));
    });
    group.bench_function("bundle of 10,000 frames", |bench| bench.iter(write));
    group.finish();
}

criterion_group!(benches, bundle);
criterion_main!(benches);
