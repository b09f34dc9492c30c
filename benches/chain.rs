//! Placing a frame, beside the two hashes that it cannot do without: `cargo bench --bench chain`.

#![allow(missing_docs, reason = "a program of its own")]
#![allow(clippy::unwrap_used, reason = "a bench may stop where it stands")]

mod sample;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use onrecord_core::chain::Chain;
use onrecord_core::frame::Frame;
use onrecord_core::json::{Limits, canonicalize, check_canonical, members};
use sha2::{Digest as _, Sha256};
use std::hint::black_box;

fn chain(criterion: &mut Criterion) {
    let (opened, _) = sample::opened();
    let draft = sample::draft(1, true);
    let line = opened.clone().place(&draft, sample::at()).unwrap();
    assert_eq!(line.len(), sample::FRAME);
    let mut group = criterion.benchmark_group("chain");
    group.throughput(Throughput::Bytes(line.len() as u64));
    group.bench_function("two SHA-256 of the same bytes", |bench| {
        bench.iter(|| {
            (
                Sha256::digest(black_box(&line)),
                Sha256::digest(black_box(&line)),
            )
        });
    });
    group.bench_function("place", |bench| {
        let mut chain = opened.clone();
        bench.iter(|| chain.place(black_box(&draft), sample::at()).unwrap());
    });
    group.bench_function("extend", |bench| {
        let (_, lines) = sample::lines(4_000);
        let (mut chain, mut next) = (opened.clone(), 2);
        bench.iter(|| {
            if next == lines.len() - 2 {
                (chain, next) = (opened.clone(), 2);
            }
            chain.extend(black_box(&lines[next]), None).unwrap();
            next += 1;
        });
    });
    group.bench_function("read: canonical, parsed", |bench| {
        bench.iter(|| Frame::parse(black_box(&line)).unwrap());
    });
    group.bench_function("check_canonical", |bench| {
        bench.iter(|| check_canonical(black_box(&line), Limits::FRAME).unwrap());
    });
    group.bench_function("canonicalize", |bench| {
        bench.iter(|| canonicalize(black_box(&line), Limits::FRAME).unwrap());
    });
    group.bench_function("members", |bench| {
        bench.iter(|| members(black_box(&line), Limits::FRAME).unwrap());
    });
    group.finish();
}

/// The row of a run's head, at a thousand frames.
fn saved(criterion: &mut Criterion) {
    let (mut chain, _) = sample::opened();
    while chain.size() < 1_000 {
        let draft = sample::draft(chain.size(), true);
        chain.place(&draft, sample::at()).unwrap();
    }
    let bytes = chain.to_bytes();
    let mut group = criterion.benchmark_group("saved");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("to_bytes", |bench| {
        bench.iter(|| black_box(&chain).to_bytes())
    });
    group.bench_function("from_bytes", |bench| {
        bench.iter(|| Chain::from_bytes(black_box(&bytes)).unwrap());
    });
    group.bench_function("clone", |bench| bench.iter(|| black_box(&chain).clone()));
    group.finish();
}

criterion_group!(benches, chain, saved);
criterion_main!(benches);
