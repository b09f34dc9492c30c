//! Input that somebody made to deceive or to break the verifier.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot read its vectors fails"
)]

use onrecord_core::bundle::{BLOCK, header, padding, parse_header};
use onrecord_verify::{Code, LedgerCopy, Options, Status, Trust, verify};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

const MINIMAL: &str = "minimal/run-01K7Q4Z8V2N5R3T6Y9B1C0D4E8.onrecord.tar";

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors")
}

fn vector(path: &str) -> Vec<u8> {
    std::fs::read(vectors().join(path)).unwrap()
}

fn trusting(file: &str) -> Options {
    let text = String::from_utf8(vector(file)).unwrap();
    Options {
        trust: Some(Trust::parse(&text).unwrap()),
        ..Options::default()
    }
}

/// The members of an archive.
fn members(tar: &[u8]) -> Vec<(String, Vec<u8>)> {
    let (mut at, mut list) = (0, Vec::new());
    while let Some((name, size)) = parse_header(tar[at..at + BLOCK].try_into().unwrap()) {
        at += BLOCK;
        list.push((name, tar[at..at + size as usize].to_vec()));
        at += size as usize + padding(size);
    }
    list
}

fn archive(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, bytes) in members {
        tar.extend_from_slice(&header(name, bytes.len() as u64).unwrap());
        tar.extend_from_slice(bytes);
        tar.resize(tar.len() + padding(bytes.len() as u64), 0);
    }
    tar.resize(tar.len() + 2 * BLOCK, 0);
    tar
}

/// The minimal bundle with one member made otherwise.
fn with(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut members = members(&vector(MINIMAL));
    change(&mut members.iter_mut().find(|(one, _)| one == name).unwrap().1);
    archive(&members)
}

#[test]
fn no_flipped_bit_verifies() {
    let options = trusting("trust.txt");
    let mut bytes = vector(MINIMAL);
    assert_eq!(
        verify(&bytes[..], &options).verdict.status,
        Status::Verified
    );
    for at in (0..bytes.len()).step_by(5) {
        let bit = 1 << (at % 8);
        bytes[at] ^= bit;
        let verdict = verify(&bytes[..], &options).verdict;
        assert_ne!(verdict.status, Status::Verified, "byte {at}");
        assert_ne!(verdict.exit_code, 0, "byte {at}");
        bytes[at] ^= bit;
    }
}

#[test]
fn no_truncation_verifies() {
    let options = trusting("trust.txt");
    for file in [MINIMAL, "ledger/ledger.tar"] {
        let bytes = vector(file);
        for length in (0..bytes.len())
            .step_by(BLOCK)
            .chain([1, 511, 513, bytes.len() - 1])
        {
            let verdict = verify(&bytes[..length], &options).verdict;
            assert_eq!(verdict.status, Status::Unusable, "{file} up to {length}");
        }
    }
    let proof = vector("rich/turn-1.turn-proof.json");
    for length in 0..proof.len() {
        assert_eq!(
            verify(&proof[..length], &options).verdict.code,
            Code::Input,
            "{length}"
        );
    }
}

#[test]
fn bytes_after_the_end_are_refused() {
    for more in [&b"x"[..], &[0], &[0; BLOCK]] {
        let mut bytes = vector(MINIMAL);
        bytes.extend_from_slice(more);
        assert_eq!(
            verify(&bytes[..], &trusting("trust.txt")).verdict.code,
            Code::Tar
        );
    }
}

#[test]
fn nothing_is_not_evidence() {
    for (bytes, code) in [
        (&b""[..], Code::Input),
        (b"{", Code::Input),
        (b"{}", Code::Input),
        (b"hello", Code::Tar),
        (&[0; 2 * BLOCK], Code::Tar),
        (&[0; BLOCK], Code::Tar),
    ] {
        let report = verify(bytes, &trusting("trust.txt"));
        assert_eq!((report.verdict.code, report.verdict.exit_code), (code, 3));
    }
    let empty = archive(&[("frames.ndjson".into(), Vec::new())]);
    let report = verify(&empty[..], &trusting("trust.txt"));
    assert_eq!(report.verdict.exit_code, 2);
    assert!(report.findings.iter().any(|one| one.code == Code::NoFrames));
}

#[test]
fn huge_sizes_in_headers_cost_nothing() {
    let huge = 0o77_777_777_777;
    for name in [
        "seal.dsse.json",
        "frames.ndjson",
        "checkpoint",
        "disclosures.ndjson",
        "MANIFEST.sha256",
    ] {
        let mut tar = header(name, huge).unwrap().to_vec();
        tar.extend_from_slice(&[b'x'; 2_000]);
        let report = verify(&tar[..], &trusting("trust.txt"));
        assert_eq!(report.verdict.status, Status::Unusable, "{name}");
    }
    // A checkpoint that promises 2^63 entries: the first tile that is not there ends it.
    let text = "evidence.example/t/9d2v6c1p8h4z\n9223372036854775808\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n\u{2014} a AAAAAAA=\n";
    let tar = archive(&[("checkpoint".into(), text.into())]);
    assert_eq!(
        verify(&tar[..], &Options::default()).verdict.status,
        Status::Unusable
    );
}

#[test]
fn endless_lines_are_refused_at_their_limit() {
    for (name, code) in [
        ("frames.ndjson", Code::FrameJson),
        ("ledger.ndjson", Code::Malformed),
        ("disclosures.ndjson", Code::Disclosures),
        ("MANIFEST.sha256", Code::Manifest),
        ("seal.dsse.json", Code::Statement),
        ("seal.tlog-proof", Code::Proof),
        ("export.dsse.json", Code::Statement),
    ] {
        let tar = with(name, |bytes| *bytes = vec![b'x'; 1 << 20]);
        let report = verify(&tar[..], &trusting("trust.txt"));
        assert_eq!(report.verdict.status, Status::Altered, "{name}");
        assert!(report.findings.iter().any(|one| one.code == code), "{name}");
    }
}

#[test]
fn an_alteration_is_graver_than_an_unknown_signer() {
    let tar = with("frames.ndjson", |bytes| {
        let at = bytes.windows(4).position(|part| part == b"op-1").unwrap();
        bytes[at + 3] = b'2';
    });
    for options in [
        trusting("trust-other-key.txt"),
        Options::default(),
        trusting("trust.txt"),
    ] {
        let report = verify(&tar[..], &options);
        assert_eq!(
            (report.verdict.code, report.verdict.first_bad_seq),
            (Code::FramePrev, Some(2))
        );
        assert_eq!(report.verdict.exit_code, 1);
    }
    let known = verify(&tar[..], &trusting("trust-other-key.txt"));
    assert!(
        known
            .findings
            .iter()
            .any(|one| one.code == Code::SignerUnknown)
    );
}

#[test]
fn without_trust_nothing_verifies_and_integrity_is_still_told() {
    for file in [MINIMAL, "ledger/ledger.tar", "rich/turn-1.turn-proof.json"] {
        let report = verify(&vector(file)[..], &Options::default());
        assert_eq!(
            (report.verdict.code, report.verdict.exit_code),
            (Code::NoTrust, 2),
            "{file}"
        );
        assert_eq!(report.findings.len(), 1, "{file}: {:?}", report.findings);
    }
}

#[test]
fn a_copy_of_the_ledger_that_does_not_hang_together_is_no_witness() {
    let options = |copy: &[u8]| {
        let mut options = trusting("trust.txt");
        options.ledger = Some(LedgerCopy::read(copy, options.trust.as_ref()));
        options
    };
    for (copy, code) in [
        ("tampered/ledger-entry-edited.tar", Code::LedgerRoot),
        (
            "tampered/ledger-checkpoint-edited.tar",
            Code::CheckpointSignature,
        ),
        ("tampered/ledger-tile.tar", Code::LedgerTile),
    ] {
        let report = verify(&vector(MINIMAL)[..], &options(&vector(copy)));
        assert_eq!(
            (report.verdict.code, report.verdict.exit_code),
            (code, 1),
            "{copy}"
        );
    }
    // One that accuses another run of something is still a witness for this one.
    let report = verify(
        &vector(MINIMAL)[..],
        &options(&vector("tampered/ledger-previous-seal.tar")),
    );
    assert!(
        report
            .not_checked
            .iter()
            .any(|one| one.contains("fault of its own"))
            || report.verdict.exit_code == 1
    );
}

#[test]
fn a_reader_that_fails_is_unusable_input() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let bytes = vector(MINIMAL);
    for part in [0, 1, 600, 8_000] {
        let report = verify((&bytes[..part]).chain(Broken), &trusting("trust.txt"));
        assert_eq!(
            (report.verdict.code, report.verdict.exit_code),
            (Code::Input, 3),
            "{part}"
        );
    }
}

#[test]
fn one_byte_at_a_time_is_the_same() {
    struct Slow<'a>(&'a [u8]);
    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let length = into.len().min(1).min(self.0.len());
            into[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }
    for file in [
        MINIMAL,
        "tampered/edit.tar",
        "ledger/ledger.tar",
        "rich/turn-2.turn-proof.json",
    ] {
        let bytes = vector(file);
        let options = trusting("trust.txt");
        let whole = verify(&bytes[..], &options);
        assert_eq!(verify(Slow(&bytes), &options), whole, "{file}");
    }
}

#[test]
fn a_seal_counts_only_before_the_end_of_its_key() {
    let text = String::from_utf8(vector("trust.txt")).unwrap();
    for (until, code) in [("until 3", Code::KeyRevoked), ("until 4", Code::Verified)] {
        let text = text.replace("until 21", until);
        let options = Options {
            trust: Some(Trust::parse(&text).unwrap()),
            ..Options::default()
        };
        let report = verify(&vector(MINIMAL)[..], &options);
        assert_eq!(report.verdict.code, code, "{until}: {report:?}");
    }
}
