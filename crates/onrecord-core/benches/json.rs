//! Strict JSON against `serde_json_canonicalizer`, on the frames of about a KiB in the golden bundle.
//!
//! Rounds are interleaved and the median of each is compared, so that a busy machine slows all alike.
#![expect(clippy::unwrap_used, reason = "a bench may stop where it stands")]

use onrecord_core::json::{Limits, canonicalize, check_canonical};
use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

const ROUNDS: usize = 101;
const PASSES: usize = 50;

/// What is measured, on which frames.
type Run<'a> = (&'a str, &'a [Vec<u8>], &'a dyn Fn(&[u8]) -> usize);

fn main() {
    let canonical = frames();
    let shuffled: Vec<Vec<u8>> = canonical.iter().map(|frame| as_sent(frame)).collect();
    let bytes: usize = canonical.iter().map(Vec::len).sum();
    println!(
        "{} frames of {} bytes on average",
        canonical.len(),
        bytes / canonical.len()
    );

    let write = |frame: &[u8]| canonicalize(frame, Limits::FRAME).unwrap().len();
    let check = |frame: &[u8]| usize::from(check_canonical(frame, Limits::FRAME).is_ok());
    let runs: [Run; 5] = [
        ("crate, canonical input", &canonical, &reference),
        ("canonicalize, canonical input", &canonical, &write),
        ("check_canonical", &canonical, &check),
        ("crate, as sent", &shuffled, &reference),
        ("canonicalize, as sent", &shuffled, &write),
    ];
    let mut times = runs.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((_, input, run), times) in runs.iter().zip(&mut times) {
            let start = Instant::now();
            for frame in (0..PASSES).flat_map(|_| input.iter()) {
                black_box(run(black_box(frame)));
            }
            let nanoseconds = start.elapsed().as_nanos() as f64;
            times.push(nanoseconds / (PASSES * input.len()) as f64);
        }
    }
    let mut against = 0.0;
    for ((name, ..), times) in runs.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let median = times[ROUNDS / 2];
        if name.starts_with("crate") {
            against = median;
        }
        println!(
            "{name:30} {median:8.0} ns a frame {:9.0} a second {:6.1} x",
            1e9 / median,
            against / median
        );
    }
}

/// What the crate does with bytes: `serde_json` reads a tree, the crate writes it.
fn reference(frame: &[u8]) -> usize {
    let value: serde_json::Value = serde_json::from_slice(frame).unwrap();
    serde_json_canonicalizer::to_vec(&value).unwrap().len()
}

fn frames() -> Vec<Vec<u8>> {
    let bundle = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/vectors/rich/run-01K7Q52D6WZX9M4H7P0S3V8G1A.onrecord.tar");
    let bundle = fs::read(bundle).unwrap();
    let is_frame = |line: &&[u8]| {
        (800..1400).contains(&line.len())
            && line.starts_with(br#"{"actor""#)
            && line.ends_with(b"}")
    };
    let lines = bundle.split(|byte| *byte == b'\n').filter(is_frame);
    let frames: Vec<_> = lines.map(<[u8]>::to_vec).collect();
    assert!(frames.len() >= 3, "the golden bundle has larger frames");
    frames
}

/// The frame as many clients send it: a space after each colon and comma, keys in no order.
fn as_sent(frame: &[u8]) -> Vec<u8> {
    fn write(value: &serde_json::Value, out: &mut String) {
        match value {
            serde_json::Value::Object(object) => {
                let mut members: Vec<_> = object.iter().collect();
                members.sort_by_key(|(key, _)| (key.len(), key.chars().rev().collect::<String>()));
                out.push('{');
                for (index, (key, value)) in members.into_iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { ", " });
                    out.push_str(&serde_json::to_string(key).unwrap());
                    out.push_str(": ");
                    write(value, out);
                }
                out.push('}');
            }
            serde_json::Value::Array(array) => {
                out.push('[');
                for (index, value) in array.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { ", " });
                    write(value, out);
                }
                out.push(']');
            }
            other => out.push_str(&other.to_string()),
        }
    }
    let mut out = String::new();
    write(&serde_json::from_slice(frame).unwrap(), &mut out);
    assert_eq!(canonicalize(out.as_bytes(), Limits::FRAME).unwrap(), frame);
    out.into_bytes()
}
