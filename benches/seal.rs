//! Sealing a run, and verifying the seal: `cargo bench --bench seal`.

#![allow(missing_docs, reason = "a program of its own")]
#![allow(clippy::unwrap_used, reason = "a bench may stop where it stands")]

mod sample;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use onrecord_core::statement::{PAYLOAD_TYPE, Signed, pae};
use onrecord_verify::{Code, verify};
use sha2::{Digest as _, Sha256};
use std::hint::black_box;

fn seal(criterion: &mut Criterion) {
    let key = sample::seal_key();
    let (chain, lines) = sample::lines(1);
    let envelope = sample::sealed(&chain, &key);
    let bundle = sample::Bundle::of(&chain, &lines, &envelope, &key).bytes;
    let options = sample::options(&key);
    assert_eq!(verify(&bundle[..], &options).verdict.code, Code::Verified);
    let mut group = criterion.benchmark_group("seal");
    group.throughput(Throughput::Elements(1));
    group.bench_function("SHA-256 of a seal", |bench| {
        let message = pae(PAYLOAD_TYPE, &envelope);
        bench.iter(|| Sha256::digest(black_box(&message)));
    });
    // The vault verifies what it signed before it hands it out.
    group.bench_function("sign a run-seal", |bench| {
        bench.iter(|| sample::sealed(black_box(&chain), &key));
    });
    group.bench_function("read a run-seal, without its signature", |bench| {
        bench.iter(|| Signed::parse(black_box(&envelope)).unwrap());
    });
    // Two signatures, those of the seal and of the export, are nearly all of it.
    group.bench_function("verify a sealed bundle of five frames", |bench| {
        bench.iter(|| verify(black_box(&bundle[..]), &options));
    });
    group.finish();
}

criterion_group!(benches, seal);
criterion_main!(benches);
