//! The tree of a ledger and of a run, beside the hash of one node: `cargo bench --bench tree`.

#![allow(missing_docs, reason = "a program of its own")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use onrecord_core::digest::{Hash, leaf_hash, node_hash};
use onrecord_core::merkle::{Frontier, inclusion_path, verify_inclusion};
use std::collections::HashMap;
use std::convert::Infallible;
use std::hint::black_box;

const SIZE: u64 = 1_000_000;

fn tree(criterion: &mut Criterion) {
    let leaves: Vec<Hash> = (0..SIZE)
        .map(|leaf| leaf_hash(&leaf.to_be_bytes()))
        .collect();
    let (mut frontier, mut nodes) = (Frontier::new(), HashMap::new());
    for leaf in &leaves {
        frontier.push_with(*leaf, |level, index, hash| {
            nodes.insert((level, index), hash);
        });
    }
    let root = frontier.root();
    let node = |level, index| Ok::<_, Infallible>(nodes[&(level, index)]);
    let path = |index| {
        let Ok(path) = inclusion_path(index, SIZE, node);
        path
    };
    let mut group = criterion.benchmark_group("tree");
    group.throughput(Throughput::Elements(1));
    group.bench_function("SHA-256 of a node", |bench| {
        bench.iter(|| node_hash(black_box(&leaves[0]), black_box(&leaves[1])));
    });
    group.bench_function("push", |bench| {
        let mut growing = Frontier::new();
        bench.iter(|| growing.push(black_box(leaves[7])));
    });
    group.bench_function("root of a million", |bench| {
        bench.iter(|| black_box(&frontier).root());
    });
    group.bench_function("inclusion path in a million", |bench| {
        let mut index = 0;
        bench.iter(|| {
            index = (index + 7_919) % SIZE;
            path(black_box(index))
        });
    });
    group.bench_function("verify inclusion in a million", |bench| {
        let (leaf, path) = (leaves[123_456], path(123_456));
        bench.iter(|| verify_inclusion(black_box(&leaf), 123_456, SIZE, &path, &root).is_ok());
    });
    group.finish();
}

criterion_group!(benches, tree);
criterion_main!(benches);
