//! An `.eval` archive: a ZIP file with a member for each sample, read one member at a time.
//!
//! While the evaluation runs, the archive has the samples that are done and, under `_journal/`, how it was
//! started; the members with what came out of it follow at its end.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use onrecord_core::digest::Hash;
use serde_json::Value;
use zip::ZipArchive;

use super::head::Log;
use crate::import::document::FILE_BYTES;
use crate::import::payload::Payload;
use crate::import::record::{Reading, raw_payload};
use crate::import::request::{FrameRequest, Turn, key_part};
use crate::import::text::is_label;
use crate::import::{
    Event, Format, ImportError, Notice, Opening, Sink, Tally, Transcript, open_file, stem,
};

/// How the evaluation was started; written first.
const START: &str = "_journal/start.json";
/// How it ended; written last.
const HEADER: &str = "header.json";
/// Bytes that one member may expand to.
const MEMBER_BYTES: u64 = FILE_BYTES;

/// Reads an archive, a member after the other.
struct Archive {
    path: PathBuf,
    archive: ZipArchive<BufReader<File>>,
    opening: Option<Opening>,
    log: Log,
    /// The members that are left, the next one last.
    left: Vec<(usize, String)>,
    total: u64,
    tally: Tally,
    /// What to tell before the first member.
    warning: Option<String>,
}

/// What a member is, in the order in which they are read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Start,
    Sample,
    Kept,
    Header,
}

impl Part {
    fn of(name: &str) -> Self {
        match name {
            START => Self::Start,
            HEADER => Self::Header,
            name if name.starts_with("samples/") && name.ends_with(".json") => Self::Sample,
            _ => Self::Kept,
        }
    }
}

/// Whether these are the members of a log.
pub(super) fn is_archive(members: &[String]) -> bool {
    members.iter().any(|name| name == START || name == HEADER)
}

/// Opens an archive.
///
/// # Errors
/// The file cannot be read, is no such archive, or has a member that cannot be read.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let refused = |why: String| Format::Inspect.refused(path, why);
    let (file, _) = open_file(path)?;
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(|error| {
        refused(format!("neither JSON nor a ZIP archive with its directory at the end ({error}); an archive that is cut off can be mended by the program that wrote it"))
    })?;
    let mut left = members(&archive).map_err(&refused)?;
    let names: Vec<String> = left.iter().map(|(_, name)| name.clone()).collect();
    if !is_archive(&names) {
        return Err(refused(format!(
            "an archive with neither `{START}` nor `{HEADER}`"
        )));
    }
    match archive.has_overlapping_files() {
        Ok(false) => {}
        Ok(true) => {
            return Err(refused(
                "members of the archive overlap: one part of it would be read again and again"
                    .to_owned(),
            ));
        }
        Err(error) => return Err(refused(format!("the archive is damaged: {error}"))),
    }
    let doubled = archive.has_duplicate_names();
    let warning = doubled.then(|| "the archive has members of the same name; of each the last is read, and what stood in the others is not".to_owned());
    // Start and header first or last, the others in the order of the archive, read from the end.
    left.sort_by_key(|(index, name)| (Part::of(name), *index));
    left.reverse();
    let head = [START, HEADER]
        .into_iter()
        .find(|name| names.iter().any(|other| other == name));
    let index = left.iter().find(|(_, name)| Some(name.as_str()) == head);
    let eval = match index {
        Some((index, name)) => {
            let bytes = bytes(&mut archive, *index, name).map_err(&refused)?;
            match super::read(&bytes) {
                Reading::Record(mut record) => record.value["eval"].take(),
                Reading::Blank => return Err(refused(format!("`{name}` is empty"))),
                Reading::Torn(why) => return Err(refused(format!("`{name}`: {why}"))),
            }
        }
        None => Value::Null,
    };
    if !eval.get("task").is_some_and(Value::is_string) {
        return Err(refused(
            "the archive names no evaluation with a `task`".to_owned(),
        ));
    }
    let (log, opening) = Log::new(&eval, session, &stem(path));
    Ok(Box::new(Archive {
        path: path.to_owned(),
        archive,
        opening: Some(opening),
        log,
        total: left.len() as u64,
        left,
        tally: Tally::default(),
        warning,
    }))
}

/// The members, each of which can be read.
fn members(archive: &ZipArchive<BufReader<File>>) -> Result<Vec<(usize, String)>, String> {
    let mut members = Vec::new();
    for index in 0..archive.len() {
        let entry = archive
            .by_index_data(index)
            .map_err(|error| error.to_string())?;
        let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
        if entry.is_dir() {
            continue;
        }
        if entry.encrypted() {
            return Err(format!("`{name}` in the archive is encrypted"));
        }
        if entry.size() > MEMBER_BYTES {
            let (size, limit) = (entry.size() >> 20, MEMBER_BYTES >> 20);
            return Err(format!(
                "`{name}` in the archive expands to {size} MiB; {limit} MiB are read"
            ));
        }
        let method = entry.compression();
        let known = [
            zip::CompressionMethod::Stored,
            zip::CompressionMethod::Deflated,
            zip::CompressionMethod::Zstd,
        ];
        if !known.contains(&method) {
            return Err(format!(
                "`{name}` in the archive is compressed with {method}, which is not read; `inspect log convert` writes it anew"
            ));
        }
        members.push((index, name));
    }
    Ok(members)
}

/// The bytes of a member: as many as the archive says, and an error where there are more.
fn bytes(
    archive: &mut ZipArchive<BufReader<File>>,
    index: usize,
    name: &str,
) -> Result<Vec<u8>, String> {
    let damaged = |why: String| format!("`{name}` in the archive cannot be read: {why}");
    let mut member = archive
        .by_index(index)
        .map_err(|error| damaged(error.to_string()))?;
    let mut bytes = Vec::new();
    member
        .read_to_end(&mut bytes)
        .map_err(|error| damaged(error.to_string()))?;
    Ok(bytes)
}

impl Archive {
    fn member(
        &mut self,
        index: usize,
        name: &str,
        events: &mut Vec<Event>,
    ) -> Result<(), ImportError> {
        let bytes = bytes(&mut self.archive, index, name)
            .map_err(|why| Format::Inspect.refused(&self.path, why))?;
        let part = Part::of(name);
        if part == Part::Kept {
            self.kept(name, &bytes, events);
            return Ok(());
        }
        let record = match super::read(&bytes) {
            Reading::Record(record) => record,
            torn => {
                let why = match &torn {
                    Reading::Torn(why) => why,
                    _ => "it is empty",
                };
                self.torn(name, why, &bytes, events);
                return Ok(());
            }
        };
        let mut out = Sink::new(events, &mut self.tally);
        match part {
            Part::Sample => self.log.sample(record, &mut out),
            Part::Header => self.log.end(record, &mut out),
            Part::Start | Part::Kept => {
                let strict = record.strict();
                let mut record = record;
                self.log.begin(&mut record.value, strict, &mut out);
                out.record();
                let mut frame = FrameRequest::new("observation", "start", Turn::Run);
                frame.class("started");
                record.leave_rest(&mut frame);
                out.frame(frame);
            }
        }
        Ok(())
    }

    /// A member beside the log, whose samples or results it has once more: the summaries of the samples, as they
    /// were done and all in one, and their scores, reduced over the epochs.
    fn kept(&mut self, name: &str, bytes: &[u8], events: &mut Vec<Event>) {
        self.tally.records += 1;
        let class = match name {
            "reductions.json" => Some("reductions"),
            "summaries.json" => Some("summaries"),
            name => name
                .starts_with("_journal/summaries/")
                .then_some("summaries"),
        };
        let raw = raw_payload(bytes);
        let digest = Hash::of(&[bytes]).hex();
        let key = format!("member/{}/{}", key_part(name), &digest[..16]);
        let mut out = Sink::new(events, &mut self.tally);
        if class.is_none() {
            out.unmapped();
        }
        out.frame(kept(name, class.unwrap_or("unmapped"), key, raw));
    }

    /// A member that is no record: nothing is read out of it.
    fn torn(&mut self, name: &str, why: &str, bytes: &[u8], events: &mut Vec<Event>) {
        self.tally.torn += 1;
        events.push(notice(format!(
            "`{name}` in the archive: {why}; it is kept as raw bytes"
        )));
        let key = format!("member/{}", key_part(name));
        let frame = kept(name, "torn_member", key, raw_payload(bytes));
        Sink::new(events, &mut self.tally).frame(frame);
    }
}

/// The frame of a member that is kept as it is.
fn kept(name: &str, class: &str, key: String, raw: Payload) -> FrameRequest {
    let mut frame = FrameRequest::new("observation", key, Turn::Run);
    frame.class(class);
    if is_label(name, 200) {
        frame.put("member", name);
    }
    frame.attach(raw);
    frame
}

fn notice(what: String) -> Event {
    Event::Notice(Notice {
        line: 0,
        offset: 0,
        what,
    })
}

impl Transcript for Archive {
    fn step(&mut self, events: &mut Vec<Event>) -> Result<bool, ImportError> {
        if let Some(opening) = self.opening.take() {
            events.push(Event::Open { thread: 0, opening });
            if let Some(warning) = self.warning.take() {
                self.tally.torn += 1;
                events.push(notice(warning));
            }
            return Ok(true);
        }
        let Some((index, name)) = self.left.pop() else {
            return Ok(false);
        };
        self.member(index, &name, events)?;
        Ok(true)
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn progress(&self) -> (u64, u64) {
        (self.total - self.left.len() as u64, self.total)
    }
}
