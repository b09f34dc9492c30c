//! What was published last of each ledger, outside of the database: a file a log, with the checkpoint.
//!
//! A database that is put back takes with it all that it knew of what came after. The file does not go back with it, unless
//! it is put back too.

use super::AnchorError;
use crate::durable;
use crate::record::rewind::read_checkpoint;
use onrecord_core::digest::Hash;
use onrecord_core::id::Origin;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

/// What a file says.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) size: u64,
    pub(super) root: Hash,
}

/// The folder.
pub(super) struct Published {
    folder: PathBuf,
}

impl Published {
    pub(super) fn open(folder: PathBuf) -> Result<Self, AnchorError> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        made.and_then(|()| durable::sync_parent(&folder))
            .map_err(|source| AnchorError::Published {
                path: folder.clone(),
                source,
            })?;
        Ok(Self { folder })
    }

    /// What was published of a ledger; `None` where nothing was, as far as this folder knows.
    pub(super) fn read(&self, origin: &Origin) -> Result<Option<Record>, AnchorError> {
        let path = self.path(origin);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(AnchorError::Published { path, source }),
        };
        let read = read(&text, origin);
        read.map(Some).ok_or_else(|| AnchorError::Unreadable {
            path,
            origin: origin.clone(),
        })
    }

    /// Keeps a checkpoint, which is committed.
    pub(super) fn write(&self, origin: &Origin, note: &str) -> Result<Record, AnchorError> {
        let path = self.path(origin);
        let record = read(note, origin).ok_or_else(|| AnchorError::Unreadable {
            path: path.clone(),
            origin: origin.clone(),
        })?;
        match durable::replace(&path, note.as_bytes()) {
            Ok(()) => Ok(record),
            Err(source) => Err(AnchorError::Published { path, source }),
        }
    }

    fn path(&self, origin: &Origin) -> PathBuf {
        self.folder.join(format!("{}.checkpoint", origin.log()))
    }
}

fn read(note: &str, origin: &Origin) -> Option<Record> {
    let checkpoint = read_checkpoint(note)?;
    (checkpoint.origin == origin.as_str()).then_some(Record {
        size: checkpoint.size,
        root: checkpoint.root,
    })
}
