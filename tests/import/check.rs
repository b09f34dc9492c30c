//! What must hold of every file that is read, whatever its format.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord::import::payload::{Content, Payload};
use onrecord::import::request::{FrameRequest, Link};
use onrecord::import::{Event, Format, Opening, Reader, Tally, detect};
use onrecord_core::frame::{Kind, Rel};
use onrecord_core::json::{Limits, canonicalize};
use serde_json::{Value, json};

/// Everything that a reader answers about a file.
pub struct Read {
    pub openings: Vec<Opening>,
    pub frames: Vec<Vec<FrameRequest>>,
    pub children: Vec<(String, Option<String>)>,
    pub notices: Vec<(u64, u64)>,
    pub tally: Tally,
}

pub fn read(path: &Path) -> Read {
    read_all(Reader::open(path, None, None).unwrap())
}

/// Reads a JSON file of a format once for each of its values, each time with that one of a wrong type. It is refused, or read without an invented frame.
pub fn check_wrong_types(format: Format, path: &Path) {
    let whole: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut places = Vec::new();
    pointers(&whole, &mut String::new(), &mut places);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.json");
    let mut taken = 0;
    for place in &places {
        for wrong in [
            json!(null),
            json!(-7.5),
            json!("x"),
            json!([[7]]),
            json!({"type": {}}),
        ] {
            let mut value = whole.clone();
            *value.pointer_mut(place).unwrap() = wrong;
            std::fs::write(&file, value.to_string()).unwrap();
            if let Ok(reader) = Reader::open(&file, Some(format), None) {
                read_all(reader);
                taken += 1;
            }
        }
    }
    assert!(taken > places.len(), "{taken} of {}", places.len());
}

fn pointers(value: &Value, at: &mut String, places: &mut Vec<String>) {
    places.push(at.clone());
    let mut below = |name: &str, value: &Value| {
        let length = at.len();
        at.push('/');
        at.push_str(&name.replace('~', "~0").replace('/', "~1"));
        pointers(value, at, places);
        at.truncate(length);
    };
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                below(&index.to_string(), item);
            }
        }
        Value::Object(members) => members.iter().for_each(|(name, item)| below(name, item)),
        _ => {}
    }
}

pub fn read_all(mut reader: Reader) -> Read {
    let mut read = Read {
        openings: Vec::new(),
        frames: Vec::new(),
        children: Vec::new(),
        notices: Vec::new(),
        tally: Tally::default(),
    };
    let mut events = Vec::new();
    while reader.step(&mut events).unwrap() {
        for event in events.drain(..) {
            match event {
                Event::Open { thread, opening } => {
                    assert_eq!(thread, read.openings.len(), "threads are opened in order");
                    read.openings.push(opening);
                    read.frames.push(Vec::new());
                }
                Event::Frame { thread, frame } => {
                    let known: Vec<usize> = (0..read.frames.len()).collect();
                    check_links(&frame, thread, &known, &read.frames);
                    read.frames[thread].push(frame);
                }
                Event::Child { agent, call, .. } => read.children.push((agent, call)),
                Event::Notice(notice) | Event::Unfinished(notice) => {
                    read.notices.push((notice.line, notice.offset))
                }
            }
        }
    }
    let (done, total) = reader.progress();
    assert_eq!(done, total);
    read.tally = reader.tally();
    for (opening, frames) in read.openings.iter().zip(&read.frames) {
        check_opening(opening);
        check_frames(frames);
    }
    read
}

/// Links point to frames that were answered before, and only to frames whose receipts are kept.
fn check_links(frame: &FrameRequest, thread: usize, known: &[usize], frames: &[Vec<FrameRequest>]) {
    let find = |thread: usize, key: &str| frames[thread].iter().find(|other| other.key == key);
    for link in &frame.links {
        match link {
            Link::Key { rel, key } => {
                assert!(Rel::from_word(rel).is_some(), "{rel}");
                assert!(
                    find(thread, key).is_some(),
                    "{} links ahead to {key}",
                    frame.key
                );
            }
            Link::Thread { rel, thread, key } => {
                assert!(Rel::from_word(rel).is_some(), "{rel}");
                assert!(known.contains(thread));
                if let Some(key) = key {
                    assert!(
                        find(*thread, key).is_some_and(|other| other.linked_to),
                        "{key}"
                    );
                }
            }
            Link::Frame { .. } => panic!("a reader knows no hashes"),
        }
    }
}

fn check_opening(opening: &Opening) {
    check_key(&opening.key);
    let body = serde_json::to_vec(&opening.session).unwrap();
    canonicalize(&body, Limits::FRAME).unwrap();
    for taken in ["suite", "nonce", "run_no", "ledger"] {
        assert!(
            !opening.session.contains_key(taken),
            "the server adds {taken}"
        );
    }
    let order = opening.session["order"].as_str().unwrap();
    assert!(matches!(order, "transcript" | "time"), "{order}");
    check_payloads(&opening.payloads);
}

fn check_key(key: &str) {
    assert!(key.len() <= 200 && !key.starts_with("onrecord/"), "{key}");
    assert!(key.bytes().all(|byte| byte.is_ascii_graphic()), "{key}");
}

fn check_payloads(payloads: &[Payload]) {
    assert!(payloads.len() <= 64);
    let mut names = HashSet::new();
    for payload in payloads {
        let mut bytes = payload.name.bytes();
        assert!(
            bytes.next().is_some_and(|byte| byte.is_ascii_lowercase()),
            "{}",
            payload.name
        );
        assert!(payload.name.len() <= 64);
        assert!(bytes.all(|byte| byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
            || b"_.-".contains(&byte)));
        assert!(names.insert(&payload.name), "{} stands twice", payload.name);
        assert!(payload.len() <= 16 * 1024 * 1024);
        if let Content::Json(raw) = &payload.content {
            canonicalize(raw.get().as_bytes(), Limits::PAYLOAD).unwrap();
        }
    }
}

fn check_frames(frames: &[FrameRequest]) {
    let mut keys = HashSet::new();
    for frame in frames {
        check_key(&frame.key);
        assert!(keys.insert(&frame.key), "{} stands twice", frame.key);
        assert!(Kind::from_word(frame.kind).is_some(), "{}", frame.kind);
        assert!(!matches!(
            frame.kind,
            "session" | "turn_end" | "session_end"
        ));
        let mut bare = frame.clone();
        bare.payloads.clear();
        bare.links
            .retain(|link| !matches!(link, Link::Thread { .. }));
        let line = serde_json::to_vec(&bare).unwrap();
        assert!(
            line.len() < 16 * 1024,
            "{} has a body of {} bytes",
            frame.key,
            line.len()
        );
        canonicalize(&line, Limits::FRAME).unwrap();
        check_payloads(&frame.payloads);
        if let Some(at) = &frame.occurred_at {
            at.parse::<onrecord_core::timestamp::Timestamp>().unwrap();
        }
    }
}

pub fn value_of(payload: &Payload) -> Value {
    match &payload.content {
        Content::Json(raw) => serde_json::from_str(raw.get()).unwrap(),
        Content::Text(text) if payload.media.as_deref() == Some("application/json") => {
            serde_json::from_str(text).unwrap()
        }
        Content::Text(text) => json!(text),
        Content::Bytes(bytes) => json!(STANDARD.encode(bytes)),
    }
}

/// Puts the payloads back where the references are.
fn restore(value: &mut Value, payloads: &HashMap<(String, String), &Payload>) {
    if let Some(name) = value.get("$payload").and_then(Value::as_str) {
        let frame = value["$frame"].as_str().unwrap();
        let payload = payloads[&(frame.to_owned(), name.to_owned())];
        let coded = value.get("$as").and_then(Value::as_str);
        assert_eq!(
            coded.is_some(),
            matches!(payload.content, Content::Bytes(_))
        );
        *value = match (coded, value_of(payload)) {
            (Some("data_url"), Value::String(base64)) => {
                let media = payload.media.as_deref().unwrap();
                json!(format!("data:{media};base64,{base64}"))
            }
            (_, value) => value,
        };
        return;
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| restore(item, payloads)),
        Value::Object(members) => members
            .values_mut()
            .for_each(|item| restore(item, payloads)),
        _ => {}
    }
}

/// Every record of a session comes back from the frames.
pub fn check_nothing_lost(path: &Path, read: &Read) {
    let frames: Vec<_> = read.frames.iter().flatten().collect();
    let mut payloads = HashMap::new();
    for frame in &frames {
        for payload in &frame.payloads {
            payloads.insert((frame.key.clone(), payload.name.clone()), payload);
        }
    }
    let bytes = std::fs::read(path).unwrap();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let key = format!("line/{}", index + 1);
        let of = |name: &str| payloads.get(&(key.clone(), name.to_owned()));
        if let Some(raw) = of("raw") {
            let kept = match &raw.content {
                Content::Text(text) => text.as_bytes(),
                Content::Bytes(bytes) => bytes,
                Content::Json(_) => panic!("raw is never JSON"),
            };
            assert!(kept == line, "{key} of {}", path.display());
            continue;
        }
        let mut record =
            value_of(of("record").unwrap_or_else(|| panic!("{key} of {}", path.display())));
        restore(&mut record, &payloads);
        let written: Value = serde_json::from_slice(line).unwrap();
        assert_eq!(record, written, "{key} of {}", path.display());
    }
}

/// The payload `record` of a frame, with the payloads of its thread put back.
pub fn record(read: &Read, thread: usize, key: &str) -> Value {
    let mut payloads = HashMap::new();
    for frame in &read.frames[thread] {
        for payload in &frame.payloads {
            payloads.insert((frame.key.clone(), payload.name.clone()), payload);
        }
    }
    let mut record = payload(frame(read, thread, key), "record");
    restore(&mut record, &payloads);
    record
}

/// The runs of an earlier version of a file are in those of a later one, frame by frame: nothing that
/// was posted is posted differently. Answers how many frames are new.
pub fn check_grows(shorter: &Read, longer: &Read) -> usize {
    let mut known = 0;
    for (thread, opening) in shorter.openings.iter().enumerate() {
        let later = longer
            .openings
            .iter()
            .position(|other| other.key == opening.key);
        let later = later.unwrap_or_else(|| panic!("no run {}", opening.key));
        let said = |opening: &Opening| format!("{opening:?}");
        assert_eq!(said(opening), said(&longer.openings[later]));
        for earlier in &shorter.frames[thread] {
            let said = |frame: &FrameRequest| format!("{frame:?}");
            assert_eq!(said(earlier), said(frame(longer, later, &earlier.key)));
            known += 1;
        }
    }
    longer.frames.iter().map(Vec::len).sum::<usize>() - known
}

fn leaves(value: &Value, out: &mut HashSet<String>) {
    match value {
        Value::String(text) => {
            out.insert(text.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| leaves(item, out)),
        Value::Object(members) => members.values().for_each(|item| leaves(item, out)),
        _ => {}
    }
}

/// Every string of a trajectory is in some payload or body.
pub fn check_no_string_lost(path: &Path, read: &Read) {
    let mut kept = HashSet::new();
    for frame in read.frames.iter().flatten() {
        leaves(&Value::Object(frame.body.clone()), &mut kept);
        for payload in &frame.payloads {
            leaves(&value_of(payload), &mut kept);
        }
    }
    let mut written = HashSet::new();
    leaves(
        &serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap(),
        &mut written,
    );
    // An answer's role and type are said by its frame's kind.
    for implied in ["assistant", "action"] {
        written.remove(implied);
    }
    for text in written {
        assert!(kept.contains(&text), "{}: {text:?} is lost", path.display());
    }
}

pub fn kinds(frames: &[FrameRequest]) -> BTreeMap<&'static str, usize> {
    let mut kinds = BTreeMap::new();
    for frame in frames {
        *kinds.entry(frame.kind).or_default() += 1;
    }
    kinds
}

pub fn frame<'a>(read: &'a Read, thread: usize, key: &str) -> &'a FrameRequest {
    let found = read.frames[thread].iter().find(|frame| frame.key == key);
    found.unwrap_or_else(|| panic!("no frame {key}"))
}

pub fn payload(frame: &FrameRequest, name: &str) -> Value {
    let found = frame.payloads.iter().find(|payload| payload.name == name);
    value_of(found.unwrap_or_else(|| panic!("no payload {name} in {}", frame.key)))
}

pub fn link(rel: &'static str, key: &str) -> Link {
    Link::Key {
        rel,
        key: key.to_owned(),
    }
}

/// What a file's records are.
pub enum Records {
    /// Its lines.
    Lines,
    /// Parts of the one JSON value that it is.
    Document,
}

/// Reads files of one format: each is told by its content, passes all checks, and at least 95 of 100
/// records are mapped. Prints a line for each.
pub fn check_files(format: Format, of: &Records, paths: &[PathBuf]) {
    let (mut records, mut unmapped) = (0, 0);
    for path in paths {
        assert_eq!(detect(path).unwrap(), format, "{}", path.display());
        let read = read(path);
        match of {
            Records::Lines => check_nothing_lost(path, &read),
            Records::Document => check_no_string_lost(path, &read),
        }
        let all: Vec<_> = read.frames.iter().flatten().cloned().collect();
        eprintln!("{}: {:?} {:?}", path.display(), read.tally, kinds(&all));
        records += read.tally.records;
        unmapped += read.tally.unmapped;
    }
    assert!(records > 0, "no records at all");
    assert!(
        unmapped * 20 <= records,
        "{unmapped} of {records} are unmapped"
    );
}
