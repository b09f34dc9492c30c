//! Evidence on disk: copies that nobody else writes to, cut into parts that the API takes.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use crate::gate::{Format, charset};
use crate::import::cut;
use crate::import::payload::{PART_BYTES, Payload};

/// A folder for evidence, which only its owner can read, and which vanishes unless it is kept.
pub(super) fn folder() -> anyhow::Result<tempfile::TempDir> {
    let folder = tempfile::Builder::new().prefix("onrecord-gate-").tempdir();
    folder.context("there is no folder for the evidence")
}

/// Copies a file, or standard input, so that what is read and what is recorded are the same bytes.
pub(super) fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let name = || from.display().to_string();
    let mut into = File::create(to).with_context(|| to.display().to_string())?;
    if from.as_os_str() == "-" {
        io::copy(&mut io::stdin().lock(), &mut into).with_context(name)?;
        return Ok(());
    }
    let mut file = File::open(from).with_context(name)?;
    io::copy(&mut file, &mut into).with_context(name)?;
    Ok(())
}

/// Copies what a command wrote. A pipe, which may never end, or a device is no report.
pub(super) fn copy_report(from: &Path, to: &Path) -> anyhow::Result<()> {
    let name = || from.display().to_string();
    // Opening a pipe that nobody writes to would wait for ever otherwise.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(from)
        .with_context(name)?;
    let found = file.metadata().with_context(name)?;
    ensure!(found.is_file(), "{} is no file", from.display());
    let mut into = File::create(to).with_context(|| to.display().to_string())?;
    io::copy(&mut file.take(found.len()), &mut into).with_context(name)?;
    Ok(())
}

/// What a file is known by, to tell whether somebody wrote it anew.
#[derive(PartialEq, Eq)]
pub(super) struct Stamp(Option<(u64, u64, Option<std::time::SystemTime>)>);

impl Stamp {
    pub(super) fn of(path: &Path) -> Self {
        let found = fs::metadata(path).ok();
        Self(found.map(|found| (found.ino(), found.len(), found.modified().ok())))
    }
}

/// A file of evidence, and how much of it was recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Member {
    /// What it is, which names its payloads.
    pub name: String,
    /// Where it is; in a folder that is kept, its name there.
    pub path: PathBuf,
    /// The media type of the whole.
    pub media: String,
    /// Bytes that were recorded in parts.
    #[serde(skip)]
    pub done: u64,
    /// The keys of the frames with its parts.
    #[serde(skip)]
    pub keys: Vec<String>,
}

impl Member {
    /// The first of its kind has the name itself, the second `NAME_2`.
    pub(super) fn new(name: &str, index: usize, path: PathBuf, format: Option<Format>) -> Self {
        Self {
            name: match index {
                0 => name.to_owned(),
                _ => format!("{name}_{}", index + 1),
            },
            path,
            media: format.unwrap_or(Format::Plain).media().to_owned(),
            done: 0,
            keys: Vec::new(),
        }
    }

    /// Bytes of the file.
    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(fs::metadata(&self.path)?.len())
    }

    /// Nothing of it counts as recorded any more.
    pub(super) fn forget(&mut self) {
        self.done = 0;
        self.keys.clear();
    }
}

/// The part of a file from an offset on, at most [`PART_BYTES`]. Where more follows, it ends around secrets and between
/// characters: what is looked at for that is [`cut::LOOK_BYTES`] more.
pub(super) fn part(path: &Path, from: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::with_capacity(64 * 1024);
    let most = PART_BYTES + cut::LOOK_BYTES;
    file.take(most as u64).read_to_end(&mut bytes)?;
    let end = cut::place(&bytes, PART_BYTES);
    bytes.truncate(end);
    Ok(bytes)
}

/// A payload of these bytes, exactly. Text travels as text; `media` is what the file as a whole is.
pub(super) fn payload(name: String, bytes: Vec<u8>, media: &str) -> Payload {
    match String::from_utf8(bytes) {
        Ok(text) => Payload::text_as(name, text, Some(media)),
        Err(error) => {
            let bytes = error.into_bytes();
            let media = match (media.starts_with("text/"), charset(&bytes)) {
                (false, _) => media.to_owned(),
                (true, Some(charset)) => format!("text/plain; charset={charset}"),
                (true, None) if bytes.contains(&0) => "application/octet-stream".to_owned(),
                (true, None) => "text/plain".to_owned(),
            };
            Payload::bytes(name, bytes, Some(&media))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_together_are_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        // One byte before, so that a character lies across the end of the part.
        let whole = format!("x{}", "ä".repeat(PART_BYTES / 2 + 5));
        fs::write(&path, &whole).unwrap();
        let first = part(&path, 0).unwrap();
        assert_eq!(first.len(), PART_BYTES - 1);
        let second = part(&path, first.len() as u64).unwrap();
        assert!([first, second].concat() == whole.as_bytes());
    }

    #[test]
    fn bytes_that_are_no_text_keep_their_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for byte in [0xff, 0x80, 0xe2, 0xf0] {
            fs::write(&path, vec![byte; 2 * PART_BYTES]).unwrap();
            let (mut from, mut count) = (0, 0);
            while from < 2 * PART_BYTES as u64 {
                from += part(&path, from).unwrap().len() as u64;
                count += 1;
            }
            assert_eq!(from, 2 * PART_BYTES as u64, "{byte:x}");
            assert!(count <= 3);
        }
    }

    #[test]
    fn media_types_fit_the_bytes() {
        let media = |bytes: &[u8], media: &str| {
            let payload = payload("p".to_owned(), bytes.to_vec(), media);
            payload.media.unwrap_or_default()
        };
        let text = "text/plain; charset=utf-8";
        assert_eq!(media("grün".as_bytes(), text), text);
        assert_eq!(media(b"gr\xfcn", text), "text/plain");
        assert_eq!(
            media(b"\xff\xfea\0b\0", text),
            "text/plain; charset=utf-16le"
        );
        assert_eq!(media(b"\xff\x00\x01\xfe", text), "application/octet-stream");
        assert_eq!(media(b"<a>\xfc</a>", "application/xml"), "application/xml");
    }
}
