//! Logs of Inspect that are archives: those that grow, and those that cannot be read.

use std::io::Write as _;
use std::path::Path;

use onrecord::import::{Format, Reader, detect};
use serde_json::{Value, json};
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

use crate::check::{Read, check_grows, frame, kinds, payload, read};
use crate::inspect::log;

/// An archive of these members.
fn archive(path: &Path, members: &[(&str, Vec<u8>)], method: CompressionMethod) {
    let mut archive = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    for (name, bytes) in members {
        let options = SimpleFileOptions::default().compression_method(method);
        archive.start_file(*name, options).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap();
}

/// The members of an archive with what the log has.
fn members() -> Vec<(&'static str, Vec<u8>)> {
    let mut log: Value = serde_json::from_slice(&std::fs::read(log()).unwrap()).unwrap();
    let start = json!({"version": 2, "eval": log["eval"], "plan": log["plan"]});
    let samples = log
        .as_object_mut()
        .unwrap()
        .shift_remove("samples")
        .unwrap();
    let reductions = log
        .as_object_mut()
        .unwrap()
        .shift_remove("reductions")
        .unwrap();
    let bytes = |value: &Value| value.to_string().into_bytes();
    vec![
        ("_journal/start.json", bytes(&start)),
        ("samples/nest_epoch_1.json", bytes(&samples[0])),
        ("samples/2_epoch_1.json", bytes(&samples[1])),
        ("_journal/summaries/1.json", b"[]".to_vec()),
        ("samples/3_epoch_2.json", bytes(&samples[2])),
        ("summaries.json", b"[]".to_vec()),
        ("reductions.json", bytes(&reductions)),
        ("header.json", bytes(&log)),
    ]
}

/// The frames of all samples' runs.
fn samples_frames(read: &Read) -> String {
    format!("{:?} {:?}", &read.openings[1..], &read.frames[1..])
}

#[test]
fn an_archive_gives_the_samples_of_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.eval");
    let whole = read(&log());
    for method in [
        CompressionMethod::Stored,
        CompressionMethod::Deflated,
        CompressionMethod::Zstd,
    ] {
        archive(&path, &members(), method);
        assert_eq!(detect(&path).unwrap(), Format::Inspect);
        let read = read(&path);
        assert!(samples_frames(&read) == samples_frames(&whole), "{method}");
        assert_eq!(read.openings[0].key, "import/inspect/E1");
        let count = |key: &str| {
            read.frames[0]
                .iter()
                .filter(|frame| frame.key.starts_with(key))
                .count()
        };
        assert_eq!(
            (
                count("eval/"),
                count("plan/"),
                count("log/"),
                count("outcome/")
            ),
            (1, 1, 1, 1)
        );
        assert_eq!(count("member/"), 3);
        assert_eq!((read.tally.unmapped, read.tally.torn), (2, 0));
    }
}

#[test]
fn an_archive_that_grows_adds_frames_and_changes_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.eval");
    let all = members();
    let mut before: Option<Read> = None;
    for end in 1..=all.len() {
        archive(&path, &all[..end], CompressionMethod::Deflated);
        let now = read(&path);
        let ended = kinds(&now.frames[0]).contains_key("outcome");
        assert_eq!(ended, end == all.len(), "only the header says how it ended");
        if let Some(before) = before {
            assert!(check_grows(&before, &now) > 0);
        }
        before = Some(now);
    }
}

#[test]
fn members_that_are_no_records_are_kept_raw() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.eval");
    let mut all = members();
    all[2].1 = b"{\"id\": 2, \"epoch\"".to_vec();
    all.push(("notes.txt", b"hello".to_vec()));
    archive(&path, &all, CompressionMethod::Deflated);
    let read = read(&path);
    assert_eq!(
        (read.tally.torn, read.notices.len(), read.openings.len()),
        (1, 1, 3)
    );
    let torn = frame(&read, 0, "member/samples%2F2_epoch_1.json");
    assert_eq!(
        (&torn.body["observation"], payload(torn, "raw")),
        (&json!("torn_member"), json!("{\"id\": 2, \"epoch\""))
    );
    let notes = read.frames[0]
        .iter()
        .find(|frame| frame.body.get("member") == Some(&json!("notes.txt")));
    assert_eq!(notes.unwrap().body["observation"], "unmapped");
}

/// The bytes of an archive with something changed in each header of the central directory.
fn patched(path: &Path, change: impl Fn(&mut [u8])) {
    let mut bytes = std::fs::read(path).unwrap();
    let heads: Vec<usize> = bytes
        .windows(4)
        .enumerate()
        .filter(|(_, four)| four == b"PK\x01\x02")
        .map(|(at, _)| at)
        .collect();
    for at in heads {
        change(&mut bytes[at..]);
    }
    std::fs::write(path, bytes).unwrap();
}

fn refusal(path: &Path) -> String {
    let opened = Reader::open(path, Some(Format::Inspect), None);
    let mut reader = match opened {
        Ok(reader) => reader,
        Err(error) => return error.to_string(),
    };
    loop {
        match reader.step(&mut Vec::new()) {
            Ok(true) => {}
            Ok(false) => panic!("it was read"),
            Err(error) => return error.to_string(),
        }
    }
}

#[test]
fn what_cannot_be_read_of_an_archive_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.eval");
    let fresh = || archive(&path, &members(), CompressionMethod::Deflated);
    let named = "samples/nest_epoch_1.json";
    let is_it = |head: &[u8]| head[46..].starts_with(named.as_bytes());

    fresh();
    patched(&path, |head| head[8] |= u8::from(is_it(head)));
    let why = refusal(&path);
    assert!(why.contains(named) && why.contains("encrypted"), "{why}");

    fresh();
    patched(&path, |head| {
        if is_it(head) {
            head[10] = 14
        }
    });
    let why = refusal(&path);
    assert!(
        why.contains(named) && why.contains("inspect log convert"),
        "{why}"
    );

    // It says that it expands to 300 MiB.
    fresh();
    let large = (300_u32 << 20).to_le_bytes();
    patched(&path, |head| {
        if is_it(head) {
            head[24..28].copy_from_slice(&large)
        }
    });
    let why = refusal(&path);
    assert!(why.contains(named) && why.contains("300 MiB"), "{why}");

    // All members at one place.
    fresh();
    patched(&path, |head| head[42..46].copy_from_slice(&[0; 4]));
    let why = refusal(&path);
    assert!(why.contains("overlap") || why.contains("damaged"), "{why}");

    fresh();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 40]).unwrap();
    let why = refusal(&path);
    assert!(why.contains("cut off"), "{why}");

    archive(
        &path,
        &[("a.json", b"{}".to_vec())],
        CompressionMethod::Stored,
    );
    assert!(detect(&path).is_err());
    assert!(refusal(&path).contains("header.json"));
    archive(
        &path,
        &[("header.json", b"{\"eval\": 7}".to_vec())],
        CompressionMethod::Stored,
    );
    assert!(refusal(&path).contains("no evaluation"));
}

#[test]
fn a_member_that_expands_to_more_than_it_says_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.eval");
    let named = "samples/2_epoch_1.json";
    for method in [CompressionMethod::Deflated, CompressionMethod::Zstd] {
        archive(&path, &members(), method);
        patched(&path, |head| {
            if head[46..].starts_with(named.as_bytes()) {
                head[24..28].copy_from_slice(&[9, 0, 0, 0]);
            }
        });
        let why = refusal(&path);
        assert!(why.contains(named) && why.contains("larger"), "{why}");
    }
}

#[test]
fn members_of_one_name_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.eval");
    let mut all = members();
    all[4].0 = "samples/nest_epoch_2.json";
    archive(&path, &all, CompressionMethod::Deflated);
    let from = b"samples/nest_epoch_2.json";
    let mut bytes = std::fs::read(&path).unwrap();
    let places: Vec<usize> = bytes
        .windows(from.len())
        .enumerate()
        .filter(|(_, text)| text == from)
        .map(|(at, _)| at)
        .collect();
    for at in places {
        bytes[at..at + from.len()].copy_from_slice(b"samples/nest_epoch_1.json");
    }
    std::fs::write(&path, bytes).unwrap();
    let read = read(&path);
    assert_eq!(
        (read.notices.len(), read.tally.torn, read.openings.len()),
        (1, 1, 3)
    );
}
