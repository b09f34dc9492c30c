//! Frames are read on many threads, and the first fault of a large file is still the first: the reports of
//! files of more than a block against what one chain says of their lines, one after the other.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

use onrecord_core::bundle::{header, padding};
use onrecord_core::chain::{Chain, Seen};
use onrecord_core::frame::{Actor, ActorType, Draft, Kind};
use onrecord_core::limits::FRAME_BYTES;
use onrecord_verify::{Code, Finding, Options, Report, verify};
use std::io::{self, Read};

/// More than one block of the reader, and than its second.
const FRAMES: usize = 9_000;

fn lines() -> Vec<Vec<u8>> {
    let (tenant, run) = ("t_7f3k9q2m4x8w", "01K7Q4Z8V2N5R3T6Y9B1C0D4E8");
    let mut chain = Chain::new(tenant.parse().unwrap(), run.parse().unwrap());
    let mut place = |kind, body: String| {
        let draft = Draft {
            kind,
            key: chain.size().to_string(),
            occurred_at: None,
            turn: None,
            actor: Actor {
                id: "coder-1".into(),
                keyid: None,
                kind: ActorType::Agent,
            },
            body: body.into_bytes(),
            payloads: Vec::new(),
            links: Vec::new(),
            trace: None,
            submitted: None,
        };
        let at = "2026-08-09T11:00:00.000000Z".parse().unwrap();
        let mut line = chain.place(&draft, at).unwrap();
        line.push(b'\n');
        line
    };
    let nonce = "0".repeat(64);
    let session = format!(
        r#"{{"ledger":"evidence.example/t/9d2v6c1p8h4z","nonce":"{nonce}","run_no":1,"suite":"onrecord-v1"}}"#
    );
    let mut lines = vec![place(Kind::Session, session)];
    for at in 1..FRAMES {
        let text = "x".repeat(at % 1_300);
        lines.push(place(Kind::Context, format!(r#"{{"text":"{text}"}}"#)));
    }
    lines
}

/// What a chain says of the lines: code, place and cause of the first fault.
fn first_fault(file: &[u8]) -> Option<(String, Option<u64>, String)> {
    let mut chain: Option<Chain> = None;
    let mut seen = Seen::default();
    for (seq, line) in file.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let bytes = line.strip_suffix(b"\n").unwrap_or(line);
        if bytes.len() > FRAME_BYTES {
            let cause = format!("a frame has at most {FRAME_BYTES} bytes");
            return Some(("frame_json".into(), Some(seq as u64), cause));
        }
        if bytes.len() == line.len() {
            let cause = "the last line of frames.ndjson does not end in a newline";
            return Some(("frames_torn".into(), None, cause.into()));
        }
        let extended = match &mut chain {
            Some(chain) => chain.extend(bytes, Some(&mut seen)).map(drop),
            none => Chain::read(bytes, 0).and_then(|first| {
                let chain = none.insert(Chain::new(first.tenant.clone(), first.run.clone()));
                chain.extend(bytes, Some(&mut seen)).map(drop)
            }),
        };
        if let Err(fault) = extended {
            return Some((fault.code.as_str().into(), Some(fault.seq), fault.detail));
        }
    }
    None
}

fn archive(file: &[u8]) -> Vec<u8> {
    let size = file.len() as u64;
    let mut bytes = header("frames.ndjson", size).unwrap().to_vec();
    bytes.extend_from_slice(file);
    bytes.resize(bytes.len() + padding(size) + 1_024, 0);
    bytes
}

fn of_frames(report: &Report) -> Option<&Finding> {
    let about = |one: &&Finding| one.code.as_str().starts_with("frame");
    let mut found = report.findings.iter().filter(about);
    let first = found.next();
    assert!(found.next().is_none(), "{report:?}");
    first
}

fn agree(what: &str, lines: &[Vec<u8>]) {
    let file = lines.concat();
    let report = verify(&archive(&file)[..], &Options::default());
    let found =
        of_frames(&report).map(|one| (one.code.as_str().to_owned(), one.seq, one.cause.clone()));
    assert_eq!(found, first_fault(&file), "{what}");
}

/// Gives some bytes at a time, and an error where there is one: on the way, or at the end.
struct Slow<'a> {
    rest: &'a [u8],
    error: Option<io::ErrorKind>,
}

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let due = |kind: &mut io::ErrorKind| match kind {
            io::ErrorKind::Interrupted => self.rest.len() < 3_000_000,
            _ => self.rest.is_empty(),
        };
        match self.error.take_if(due) {
            Some(kind) => Err(kind.into()),
            None => {
                let length = buffer.len().min(self.rest.len()).min(100_003);
                let (now, rest) = self.rest.split_at(length);
                buffer[..length].copy_from_slice(now);
                self.rest = rest;
                Ok(length)
            }
        }
    }
}

#[test]
fn the_first_fault_is_named_wherever_it_stands() {
    let lines = lines();
    assert!(lines.iter().map(Vec::len).sum::<usize>() > 8 * 1_024 * 1_024);
    agree("as it was", &lines);
    type Edit = fn(&mut Vec<Vec<u8>>, usize);
    let edits: [(&str, Edit); 6] = [
        ("another byte", |lines, at| {
            let place = lines[at]
                .windows(3)
                .position(|three| three == b"\":\"")
                .unwrap();
            lines[at][place + 3] ^= 1;
        }),
        ("no JSON", |lines, at| lines[at][0] = b'['),
        ("left out", |lines, at| drop(lines.remove(at))),
        ("twice", |lines, at| lines.insert(at, lines[at].clone())),
        ("too long", |lines, at| {
            lines[at]
                .splice(1..1, vec![b' '; FRAME_BYTES])
                .for_each(drop)
        }),
        ("two faults", |lines, at| {
            lines.truncate(FRAMES - 1);
            lines[at][0] = b'[';
            lines[FRAMES - 2].pop();
        }),
    ];
    for (index, (what, edit)) in edits.into_iter().enumerate() {
        for at in [0, 1 + index, 4_321 + 97 * index, FRAMES - 2] {
            let mut lines = lines.clone();
            edit(&mut lines, at);
            agree(&format!("{what} at {at}"), &lines);
        }
    }
    let mut torn = lines;
    torn[FRAMES - 1].pop();
    agree("torn", &torn);
}

/// The reader is a block ahead of what it looks at: what it meets there is said when it comes to it.
#[test]
fn what_is_met_ahead_does_not_come_first() {
    let mut lines = lines();
    let whole = archive(&lines.concat());
    let cut = whole.len() - 1_000_000;
    let read = |bytes: &[u8], error| {
        let report = verify(Slow { rest: bytes, error }, &Options::default());
        (
            of_frames(&report).map(|one| one.seq),
            report.verdict.code,
            report.verdict.detail,
        )
    };
    let interrupted = read(&whole, Some(io::ErrorKind::Interrupted));
    assert_eq!(interrupted, read(&whole, None));
    assert_eq!((interrupted.0, interrupted.1), (None, Code::MemberMissing));
    let ends = format!("the archive ends at byte {cut}, within a member");
    assert_eq!(read(&whole[..cut], None), (None, Code::Tar, ends.clone()));
    let (found, code, failed) = read(&whole[..cut], Some(io::ErrorKind::TimedOut));
    assert_eq!((found, code), (None, Code::Input), "{failed}");
    // A fault before that is found as well, and neither hides the other.
    lines[5_000][0] = b'[';
    let broken = archive(&lines.concat());
    assert_eq!(read(&broken, None).0, Some(Some(5_000)));
    assert_eq!(
        read(&broken[..cut], None),
        (Some(Some(5_000)), Code::Tar, ends)
    );
    let both = read(&broken[..cut], Some(io::ErrorKind::TimedOut));
    assert_eq!(both, (Some(Some(5_000)), Code::Input, failed));
}
