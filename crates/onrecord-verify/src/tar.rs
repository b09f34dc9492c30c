//! The archive as a stream: one pass, one member at a time, each hashed as it passes
//! (spec: `docs/spec/bundle.md`).

use onrecord_core::bundle::{BLOCK, padding, parse_header};
use onrecord_core::digest::Hash;
use sha2::{Digest as _, Sha256};
use std::io::{self, BufRead, ErrorKind};

/// Why there is no next byte.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TarError {
    /// Not the one allowed form.
    #[error("{0}")]
    Malformed(String),
    /// The input could not be read.
    #[error("the input could not be read: {0}")]
    Read(#[from] io::Error),
}

/// A member's header.
pub(crate) struct Entry {
    pub name: String,
    pub size: u64,
}

/// The archive, at a member's header.
pub(crate) struct Archive<R> {
    input: R,
    offset: u64,
}

impl<R: BufRead> Archive<R> {
    pub fn new(input: R) -> Self {
        Self { input, offset: 0 }
    }

    /// The next member, or `None` at the end, which is exactly two zero blocks and nothing after them.
    pub fn next(&mut self) -> Result<Option<Entry>, TarError> {
        let at = self.offset;
        let block = self.block()?;
        if block.iter().any(|byte| *byte != 0) {
            let header = parse_header(&block).ok_or_else(|| {
                TarError::Malformed(match at {
                    0 => "this does not begin as a bundle does: the header at byte 0 is not the one allowed form".to_owned(),
                    _ => format!("the header at byte {at} is not the one allowed form"),
                })
            });
            return header.map(|(name, size)| Some(Entry { name, size }));
        }
        if self.block()?.iter().any(|byte| *byte != 0) {
            return Err(TarError::Malformed(format!(
                "one zero block at byte {at}, expected two"
            )));
        }
        if fill(&mut self.input)?.is_empty() {
            Ok(None)
        } else {
            Err(TarError::Malformed(format!(
                "more bytes after the end at byte {}",
                self.offset
            )))
        }
    }

    /// The bytes of the member whose header came last.
    pub fn body(&mut self, entry: &Entry) -> Body<'_, R> {
        Body {
            archive: self,
            left: entry.size,
            padding: padding(entry.size),
            hasher: Sha256::new(),
            failed: None,
        }
    }

    fn block(&mut self) -> Result<[u8; BLOCK], TarError> {
        let mut block = [0; BLOCK];
        let at = self.offset;
        self.input.read_exact(&mut block).map_err(|error| {
            if error.kind() == ErrorKind::UnexpectedEof {
                TarError::Malformed(match at {
                    0 => format!("this is no bundle: it has less than {BLOCK} bytes"),
                    _ => "the archive ends before its two zero blocks: it was cut off".to_owned(),
                })
            } else {
                TarError::Read(error)
            }
        })?;
        self.offset += BLOCK as u64;
        Ok(block)
    }
}

fn fill<R: BufRead>(input: &mut R) -> Result<&[u8], TarError> {
    // An interrupted read is no end of the input.
    while let Err(error) = input.fill_buf() {
        if error.kind() != ErrorKind::Interrupted {
            return Err(error.into());
        }
    }
    Ok(input.fill_buf()?)
}

fn ends_at(offset: u64) -> TarError {
    TarError::Malformed(format!(
        "the archive ends at byte {offset}, within a member"
    ))
}

/// The bytes of one member; what is not read is hashed and passed over at the end.
pub(crate) struct Body<'a, R> {
    archive: &'a mut Archive<R>,
    left: u64,
    padding: usize,
    hasher: Sha256,
    failed: Option<TarError>,
}

/// How a line ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineEnd {
    /// With its newline.
    Whole,
    /// With the member.
    Torn,
    /// Not within the limit; what was read of it is not a line.
    TooLong,
    /// There was none.
    None,
}

impl<R: BufRead> Body<'_, R> {
    /// Bytes that are at hand, none at the end.
    pub fn chunk(&mut self) -> Result<&[u8], TarError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.left == 0 {
            return Ok(&[]);
        }
        let left = self.left;
        let offset = self.archive.offset;
        let chunk = fill(&mut self.archive.input)?;
        if chunk.is_empty() {
            return Err(ends_at(offset));
        }
        let length = usize::try_from(left).map_or(chunk.len(), |left| chunk.len().min(left));
        Ok(&chunk[..length])
    }

    /// Goes on by so many bytes of the last chunk.
    pub fn consume(&mut self, length: usize) {
        // The buffer still holds them: filling it again reads nothing.
        if let Ok(chunk) = self.archive.input.fill_buf() {
            self.hasher.update(&chunk[..length]);
        }
        self.archive.input.consume(length);
        self.archive.offset += length as u64;
        self.left -= length as u64;
    }

    /// Bytes that are left of the member.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The hash of what was read. Whoever reads [`Body::ahead`] hashes that, in its order.
    pub fn hasher(&mut self) -> &mut Sha256 {
        &mut self.hasher
    }

    /// SHA-256 of what was read.
    pub fn digest(&self) -> Hash {
        Hash(self.hasher.clone().finalize().into())
    }

    /// Fills a buffer from `filled` on, without hashing; whether there is more in the member.
    pub fn ahead(&mut self, buffer: &mut [u8], filled: &mut usize) -> Result<bool, TarError> {
        while self.left > 0 && *filled < buffer.len() {
            let free = &mut buffer[*filled..];
            let length = usize::try_from(self.left).map_or(free.len(), |left| free.len().min(left));
            match self.archive.input.read(&mut free[..length]) {
                Ok(0) => return Err(ends_at(self.archive.offset)),
                Ok(length) => {
                    *filled += length;
                    self.archive.offset += length as u64;
                    self.left -= length as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.left > 0)
    }

    /// What reading ahead came upon, for who reads up to it.
    pub fn fail(&mut self, error: TarError) {
        self.failed = Some(error);
    }

    /// Reads up to the next newline, which is left out of `line`.
    pub fn line(&mut self, line: &mut Vec<u8>, limit: usize) -> Result<LineEnd, TarError> {
        line.clear();
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Ok(if line.is_empty() {
                    LineEnd::None
                } else {
                    LineEnd::Torn
                });
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let length = end.unwrap_or(chunk.len());
            if line.len() + length > limit {
                return Ok(LineEnd::TooLong);
            }
            line.extend_from_slice(&chunk[..length]);
            self.consume(length + usize::from(end.is_some()));
            if end.is_some() {
                return Ok(LineEnd::Whole);
            }
        }
    }

    /// All of it, or `None` if it is more than the limit.
    pub fn all(&mut self, limit: usize) -> Result<Option<Vec<u8>>, TarError> {
        if self.left > limit as u64 {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Ok(Some(bytes));
            }
            bytes.extend_from_slice(chunk);
            let length = chunk.len();
            self.consume(length);
        }
    }

    /// Exactly so many bytes, or `None` if fewer are left.
    pub fn exactly(&mut self, length: usize) -> Result<Option<Vec<u8>>, TarError> {
        if self.left < length as u64 {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(length.min(BLOCK));
        while bytes.len() < length {
            let chunk = self.chunk()?;
            let part = chunk.len().min(length - bytes.len());
            bytes.extend_from_slice(&chunk[..part]);
            self.consume(part);
        }
        Ok(Some(bytes))
    }

    /// Passes over the rest and the zeros that fill the last block; the SHA-256 of the whole member.
    pub fn finish(mut self) -> Result<Hash, TarError> {
        loop {
            let length = self.chunk()?.len();
            if length == 0 {
                break;
            }
            self.consume(length);
        }
        let mut rest = [0; BLOCK];
        let rest = &mut rest[..self.padding];
        self.archive.input.read_exact(rest).map_err(|error| {
            if error.kind() == ErrorKind::UnexpectedEof {
                TarError::Malformed("the archive ends within a block".into())
            } else {
                TarError::Read(error)
            }
        })?;
        self.archive.offset += self.padding as u64;
        if rest.iter().any(|byte| *byte != 0) {
            return Err(TarError::Malformed(format!(
                "the block before byte {} is not filled with zeros",
                self.archive.offset
            )));
        }
        Ok(Hash(self.hasher.finalize().into()))
    }
}
