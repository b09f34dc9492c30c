//! The bundle's tar as pieces, and files for what has to wait.

use super::ExportError;
use bytes::Bytes;
use onrecord_core::bundle::{BLOCK, Member, header, manifest_line, padding};
use onrecord_core::digest::Hash;
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _, BufWriter};
use tokio::sync::mpsc;

/// Bytes that leave at once. Each wakes a task at either end, which takes its time on a busy machine.
const PIECE: usize = 256 * 1024;
/// How long a reader may take nothing before it counts as gone, with the page that waits for it.
const PATIENCE: Duration = Duration::from_secs(300);

/// A file that has no name and goes with its handle.
pub(super) struct Spool {
    file: BufWriter<File>,
    bytes: u64,
}

impl Spool {
    pub(super) fn new() -> Result<Self, ExportError> {
        Ok(Self {
            file: BufWriter::with_capacity(PIECE, File::from_std(tempfile::tempfile()?)),
            bytes: 0,
        })
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), ExportError> {
        self.bytes += bytes.len() as u64;
        Ok(self.file.write_all(bytes).await?)
    }
}

/// A tar that leaves in pieces.
pub(super) struct Tar {
    sink: mpsc::Sender<Result<Bytes, ExportError>>,
    buffer: Vec<u8>,
}

impl Tar {
    pub(super) fn new(sink: mpsc::Sender<Result<Bytes, ExportError>>) -> Self {
        Self {
            sink,
            buffer: Vec::with_capacity(2 * PIECE),
        }
    }

    /// A member that is in memory.
    pub(super) async fn whole(&mut self, name: &str, bytes: &[u8]) -> Result<(), ExportError> {
        let size = bytes.len() as u64;
        self.header(name, size).await?;
        self.raw(bytes).await?;
        self.raw(&[0; BLOCK][..padding(size)]).await
    }

    async fn header(&mut self, name: &str, size: u64) -> Result<(), ExportError> {
        let block = header(name, size).ok_or_else(|| ExportError::TooLarge(name.to_owned()))?;
        self.raw(&block).await
    }

    async fn raw(&mut self, bytes: &[u8]) -> Result<(), ExportError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE {
            self.flush().await
        } else {
            Ok(())
        }
    }

    async fn flush(&mut self) -> Result<(), ExportError> {
        let piece = std::mem::replace(&mut self.buffer, Vec::with_capacity(2 * PIECE));
        self.send(piece.into()).await
    }

    async fn send(&self, piece: Bytes) -> Result<(), ExportError> {
        let sent = self.sink.send_timeout(Ok(piece), PATIENCE).await;
        sent.map_err(|_| ExportError::Gone)
    }

    /// Ends the archive.
    pub(super) async fn finish(mut self) -> Result<(), ExportError> {
        self.raw(&[0; 2 * BLOCK]).await?;
        if self.buffer.is_empty() {
            Ok(())
        } else {
            self.flush().await
        }
    }
}

/// Whole members, one behind the other as they stand in the bundle, and their lines of the manifest.
pub(super) struct Members {
    bytes: Vec<u8>,
    lines: String,
    /// How many they are.
    pub(super) count: u64,
}

impl Members {
    /// Room for so many members that have so many bytes together.
    pub(super) fn with_capacity(count: usize, bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes + count * 2 * BLOCK),
            lines: String::new(),
            count: 0,
        }
    }

    pub(super) fn add(&mut self, member: &Member, bytes: &[u8]) -> Result<(), ExportError> {
        let (name, size) = (member.name(), bytes.len() as u64);
        let block = header(&name, size).ok_or_else(|| ExportError::TooLarge(name.clone()))?;
        self.bytes.extend_from_slice(&block);
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(&[0; BLOCK][..padding(size)]);
        self.lines
            .push_str(&manifest_line(&Hash::of(&[bytes]), &name));
        self.count += 1;
        Ok(())
    }
}

/// Writes members in their order and keeps their digests for the manifest.
pub(super) struct Writer {
    tar: Tar,
    member: Option<(String, u64, Sha256)>,
    lines: Spool,
    /// Digest of the member that ended last.
    last: Hash,
}

impl Writer {
    pub(super) fn new(sink: mpsc::Sender<Result<Bytes, ExportError>>) -> Result<Self, ExportError> {
        Ok(Self {
            tar: Tar::new(sink),
            member: None,
            lines: Spool::new()?,
            last: Hash([0; 32]),
        })
    }

    /// Begins a member of a size that is known before.
    pub(super) async fn begin(&mut self, member: &Member, size: u64) -> Result<(), ExportError> {
        let name = member.name();
        self.tar.header(&name, size).await?;
        self.member = Some((name, size, Sha256::new()));
        Ok(())
    }

    /// The next bytes of the member.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), ExportError> {
        if let Some((_, _, digest)) = &mut self.member {
            digest.update(bytes);
        }
        self.tar.raw(bytes).await
    }

    /// Ends the member.
    pub(super) async fn end(&mut self) -> Result<(), ExportError> {
        let Some((name, size, digest)) = self.member.take() else {
            return Ok(());
        };
        self.tar.raw(&[0; BLOCK][..padding(size)]).await?;
        self.last = Hash(digest.finalize().into());
        let line = manifest_line(&self.last, &name);
        self.lines.write(line.as_bytes()).await
    }

    /// The next bytes of the member, which leave as they are and are not copied.
    pub(super) async fn pass(&mut self, mut bytes: Bytes) -> Result<(), ExportError> {
        if !self.tar.buffer.is_empty() {
            self.tar.flush().await?;
        }
        while !bytes.is_empty() {
            let piece = bytes.split_to(PIECE.min(bytes.len()));
            if let Some((_, _, digest)) = &mut self.member {
                digest.update(&piece);
            }
            self.tar.send(piece).await?;
        }
        Ok(())
    }

    /// Members that are ready.
    pub(super) async fn members(&mut self, members: Members) -> Result<(), ExportError> {
        self.pass(members.bytes.into()).await?;
        self.lines.write(members.lines.as_bytes()).await
    }

    /// A member that is in memory.
    pub(super) async fn whole(&mut self, member: &Member, bytes: &[u8]) -> Result<(), ExportError> {
        let mut members = Members::with_capacity(1, bytes.len());
        members.add(member, bytes)?;
        self.members(members).await
    }

    /// A member that waited in a file.
    pub(super) async fn spooled(
        &mut self,
        member: &Member,
        mut spool: Spool,
    ) -> Result<(), ExportError> {
        self.begin(member, spool.bytes).await?;
        spool.file.flush().await?;
        let mut file = spool.file.into_inner();
        file.rewind().await?;
        let mut piece = vec![0; PIECE];
        loop {
            let read = file.read(&mut piece).await?;
            if read == 0 {
                return self.end().await;
            }
            self.write(&piece[..read]).await?;
        }
    }

    /// Writes the manifest of all members so far, and returns its digest.
    pub(super) async fn manifest(&mut self) -> Result<Hash, ExportError> {
        let lines = std::mem::replace(&mut self.lines, Spool::new()?);
        self.spooled(&Member::Manifest, lines).await?;
        Ok(self.last)
    }

    /// Ends the archive.
    pub(super) async fn finish(self) -> Result<(), ExportError> {
        self.tar.finish().await
    }
}
