//! What is taken out of a bundle is a lack, and never makes an alteration of what is left.

#![allow(clippy::unwrap_used, reason = "a test that cannot read a vector fails")]

use onrecord_core::bundle::{header, padding};
use onrecord_verify::{Code, Options, Status, Trust, verify};
use std::fs;
use std::path::PathBuf;

fn vector(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/vectors")
        .join(name)
}

/// The members of an archive, by size and name of their headers.
fn members(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut rest = archive;
    let mut found = Vec::new();
    while rest[0] != 0 {
        let text = |from: usize, to: usize| {
            let field = rest[from..to].split(|byte| *byte == 0).next().unwrap();
            String::from_utf8(field.to_vec()).unwrap()
        };
        let (name, size) = (text(0, 100), text(124, 136));
        let size = usize::from_str_radix(&size, 8).unwrap();
        found.push((name, rest[512..512 + size].to_vec()));
        rest = &rest[512 + size + padding(size as u64)..];
    }
    found
}

fn archive<'a>(members: impl Iterator<Item = &'a (String, Vec<u8>)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, body) in members {
        let size = body.len() as u64;
        bytes.extend_from_slice(&header(name, size).unwrap());
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len() + padding(size), 0);
    }
    bytes.resize(bytes.len() + 1_024, 0);
    bytes
}

#[test]
fn whatever_is_taken_out_is_missing() {
    let trust = Trust::parse(&fs::read_to_string(vector("trust.txt")).unwrap()).unwrap();
    for run in [
        "minimal/run-01K7Q4Z8V2N5R3T6Y9B1C0D4E8.onrecord.tar",
        "rich/run-01K7Q52D6WZX9M4H7P0S3V8G1A.onrecord.tar",
    ] {
        let all = members(&fs::read(vector(run)).unwrap());
        for (name, _) in &all {
            let bundle = archive(all.iter().filter(|(other, _)| other != name));
            let expected = match name.as_str() {
                "seal.dsse.json" => Code::Unsealed,
                "seal.tlog-proof" => Code::LedgerMissing,
                name if name.starts_with("payloads/") => Code::PayloadMissing,
                _ => Code::MemberMissing,
            };
            for trust in [Some(trust.clone()), None] {
                let untrusting = trust.is_none();
                let options = Options {
                    trust,
                    ..Options::default()
                };
                let verdict = verify(&bundle[..], &options).verdict;
                assert_eq!(verdict.status, Status::Incomplete, "{name}: {verdict:?}");
                let first = match expected {
                    Code::MemberMissing => expected,
                    _ if untrusting => Code::NoTrust,
                    _ => expected,
                };
                assert_eq!(verdict.code, first, "{name}");
            }
        }
    }
}
