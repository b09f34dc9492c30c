//! PostgreSQL's log, a file that cannot fill the disk.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use super::PostgresError;

/// The size at which the log is moved aside, in bytes. One older file is kept.
const MOVED_ASIDE_AT: u64 = 2 * 1024 * 1024;

/// How much of the log's end is read for an error message, in bytes and in lines.
const TAIL_BYTES: u64 = 16 * 1024;
const TAIL_LINES: usize = 8;

/// The file that PostgreSQL's processes write to.
#[derive(Debug, Clone)]
pub(super) struct Log(PathBuf);

impl Log {
    pub fn new(data_dir: &Path) -> Log {
        Log(data_dir.join("postgres.log"))
    }

    /// Opens the file for PostgreSQL to write to. Its processes inherit the handle, so they need
    /// no permission in the folder, and they go on writing when this server is killed.
    pub fn open(&self) -> Result<File, PostgresError> {
        self.open_to_append()
            .map_err(PostgresError::io("open", &self.0))
    }

    fn open_to_append(&self) -> std::io::Result<File> {
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.0)
    }

    /// The size, in bytes: a mark for [`Log::tail`].
    pub fn len(&self) -> u64 {
        fs::metadata(&self.0).map_or(0, |found| found.len())
    }

    /// Keeps the log small: a long one is copied aside and emptied.
    ///
    /// Its writers hold the file open, so it is emptied in place; they append, and carry on at its
    /// new end. Lines written between the copy and the emptying are lost, which a log can bear.
    pub fn trim(&self) {
        if self.len() < MOVED_ASIDE_AT {
            return;
        }
        if fs::copy(&self.0, self.0.with_extension("log.1")).is_ok()
            && let Ok(file) = OpenOptions::new().write(true).open(&self.0)
        {
            let _ = file.set_len(0);
        }
    }

    /// The last lines that were written after the mark.
    pub fn tail(&self, mark: u64) -> String {
        let mut bytes = Vec::new();
        if let Ok(mut file) = File::open(&self.0) {
            let from = mark.max(self.len().saturating_sub(TAIL_BYTES));
            let _ = file
                .seek(SeekFrom::Start(from))
                .and_then(|_| file.read_to_end(&mut bytes));
        }
        last_lines(&bytes)
    }
}

/// The last lines of some output, for an error message.
pub(super) fn last_lines(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect();
    match lines.get(lines.len().saturating_sub(TAIL_LINES)..) {
        Some(last) if !last.is_empty() => last.join("\n"),
        _ => "it said nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_long_log_is_moved_aside_under_its_writer() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::new(dir.path());
        let mut writer = log.open().unwrap();
        writer
            .write_all(&vec![b'x'; MOVED_ASIDE_AT as usize])
            .unwrap();
        log.trim();
        writer.write_all(b"after\n").unwrap();
        assert_eq!(log.tail(0), "after");
        assert_eq!(log.len(), 6);
        assert_eq!(
            fs::metadata(dir.path().join("postgres.log.1"))
                .unwrap()
                .len(),
            MOVED_ASIDE_AT
        );
    }

    #[test]
    fn the_tail_begins_at_the_mark() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::new(dir.path());
        let mut writer = log.open().unwrap();
        writer.write_all(b"an earlier start\n").unwrap();
        let mark = log.len();
        assert_eq!(log.tail(mark), "it said nothing");
        for line in 1..=20 {
            writeln!(writer, "line {line}").unwrap();
        }
        let tail = log.tail(mark);
        assert_eq!(tail.lines().next(), Some("line 13"));
        assert_eq!(tail.lines().last(), Some("line 20"));
    }
}
