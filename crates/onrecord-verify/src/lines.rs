//! The lines of `frames.ndjson`: read a block ahead, each frame by itself on as many threads as there are
//! cores, and handed out in their order.
//!
//! What is found does not depend on the threads: they read frames by themselves, which needs nothing of
//! the frames before, and whatever they find is looked at in the order of the lines. In memory are two
//! blocks, and what was read of one.

use crate::tar::{Body, LineEnd, TarError};
use onrecord_core::chain::{Fault, ReadFrame};
use onrecord_core::limits::FRAME_BYTES;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::BufRead;
use std::mem;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

/// Bytes that are read at a time.
const BLOCK_BYTES: usize = 4 * 1_024 * 1_024;
/// Bytes that a thread takes at a time, up to the end of a line.
const PIECE_BYTES: usize = 64 * 1_024;
/// More threads than this have nothing to do: the links between frames are checked by one.
const THREADS: usize = 16;

/// A line without its newline, and the frame that it is.
pub(crate) type Line<'a> = (&'a [u8], Result<ReadFrame<'a>, Fault>);

/// Hands out all lines until `each` answers false; faults say seq 0, as no place is known here.
///
/// A line without its end, or one that is longer than a frame, is answered and not handed out. After
/// [`LineEnd::Whole`], which `each` asked for, and [`LineEnd::TooLong`] there is more in the member.
pub(crate) fn read<R: BufRead>(
    body: &mut Body<'_, R>,
    mut each: impl FnMut(Line<'_>) -> bool,
) -> Result<LineEnd, TarError> {
    let mut hasher = mem::take(body.hasher());
    let mut block = Block::new(body);
    let mut next = Block::new(body);
    let mut more = block.fill(body);
    let end = loop {
        let (lines, rest) = block.bytes().split_at(block.whole());
        next.begin(rest);
        if lines.is_empty() {
            // One that is too long is so whatever comes after, or does not.
            break match rest.len() {
                0 => LineEnd::None,
                1..=FRAME_BYTES => LineEnd::Torn,
                _ => LineEnd::TooLong,
            };
        }
        let ahead = || {
            if let Ok(true) = more {
                more = next.fill(body);
            }
        };
        let goes_on = in_order(lines, &mut hasher, ahead, &mut each);
        mem::swap(&mut block, &mut next);
        if !goes_on {
            break LineEnd::Whole;
        }
    };
    hasher.update(block.bytes());
    *body.hasher() = hasher;
    match (end, more) {
        (LineEnd::None | LineEnd::Torn, Err(error)) => Err(error),
        // It is found again by who reads on.
        (_, Err(error)) => {
            body.fail(error);
            Ok(end)
        }
        (_, Ok(_)) => Ok(end),
    }
}

/// Bytes of a member, from the beginning of a line.
struct Block {
    buffer: Vec<u8>,
    filled: usize,
}

impl Block {
    /// Not larger than what is left of the member.
    fn new<R: BufRead>(body: &Body<'_, R>) -> Self {
        let length = usize::try_from(body.left()).map_or(BLOCK_BYTES, |left| left.min(BLOCK_BYTES));
        Self {
            buffer: vec![0; length],
            filled: 0,
        }
    }

    fn begin(&mut self, rest: &[u8]) {
        self.buffer[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
    }

    /// Whether the member goes on.
    fn fill<R: BufRead>(&mut self, body: &mut Body<'_, R>) -> Result<bool, TarError> {
        body.ahead(&mut self.buffer, &mut self.filled)
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// Bytes up to the last end of a line.
    fn whole(&self) -> usize {
        let last = self.bytes().iter().rposition(|byte| *byte == b'\n');
        last.map_or(0, |last| last + 1)
    }
}

/// Hands out the lines of a block, hashes it, and reads ahead meanwhile; false as soon as `each` says so.
fn in_order(
    block: &[u8],
    hasher: &mut Sha256,
    ahead: impl FnOnce(),
    each: &mut impl FnMut(Line<'_>) -> bool,
) -> bool {
    let pieces = pieces(block);
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = cores.min(THREADS).min(pieces.len());
    if threads < 2 {
        hasher.update(block);
        ahead();
        return lines(block).all(each);
    }
    let (mut hashes, hash) = (false, &mut *hasher);
    let taken = AtomicUsize::new(0);
    let goes_on = thread::scope(|scope| {
        let builder = thread::Builder::new;
        let hash = builder().spawn_scoped(scope, move || hash.update(block));
        hashes = hash.is_ok();
        let (sender, receiver) = channel();
        for _ in 0..threads {
            let (taken, pieces, sender) = (&taken, &pieces, sender.clone());
            let read = move || {
                loop {
                    let at = taken.fetch_add(1, Ordering::Relaxed);
                    let Some(piece) = pieces.get(at) else { break };
                    let lines: Vec<Line<'_>> = lines(piece).collect();
                    if sender.send((at, lines)).is_err() {
                        break;
                    }
                }
            };
            // With fewer threads it only takes longer.
            if builder().spawn_scoped(scope, read).is_err() {
                break;
            }
        }
        drop(sender);
        ahead();
        let mut early = BTreeMap::new();
        (0..pieces.len()).all(|at| {
            while !early.contains_key(&at) {
                match receiver.recv() {
                    Ok((at, lines)) => early.insert(at, lines),
                    // No thread could be started.
                    Err(_) => early.insert(at, lines(pieces[at]).collect()),
                };
            }
            early.remove(&at).into_iter().flatten().all(&mut *each)
        })
    });
    if !hashes {
        hasher.update(block);
    }
    goes_on
}

/// A block in pieces that end where lines end.
fn pieces(mut block: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::with_capacity(block.len() / PIECE_BYTES + 1);
    while !block.is_empty() {
        let (_, mut rest) = block.split_at(block.len().min(PIECE_BYTES));
        line(&mut rest);
        let (piece, after) = block.split_at(block.len() - rest.len());
        pieces.push(piece);
        block = after;
    }
    pieces
}

/// All lines of a piece, read as frames.
fn lines(mut piece: &[u8]) -> impl Iterator<Item = Line<'_>> {
    std::iter::from_fn(move || {
        let bytes = line(&mut piece)?;
        Some((bytes, ReadFrame::read(bytes, 0)))
    })
}

/// Steps over the next line.
fn line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let from = *rest;
    // Of bytes in memory it cannot fail, and it is the fastest search that the standard library has.
    let length = rest.skip_until(b'\n').ok()?;
    let bytes = &from[..length];
    Some(bytes.strip_suffix(b"\n").unwrap_or(bytes)).filter(|_| length > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_all_lines_and_whole() {
        for length in [1, 100, 1_000, 65_535, 65_536, 70_000] {
            let block: Vec<u8> = (0..400_000)
                .map(|at| {
                    if at % length == length - 1 {
                        b'\n'
                    } else {
                        b'x'
                    }
                })
                .collect();
            let end = block
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            let block = &block[..end];
            let pieces = pieces(block);
            assert_eq!(pieces.concat(), block);
            assert!(pieces.iter().all(|piece| piece.ends_with(b"\n")));
            assert!(
                pieces
                    .iter()
                    .all(|piece| piece.len() <= PIECE_BYTES + length)
            );
            let count: usize = pieces.iter().map(|piece| lines(piece).count()).sum();
            assert_eq!(count, block.len() / length);
        }
    }
}
