//! The lines of `frames.ndjson`: read a block ahead, hashed by one thread, each frame read by itself on as
//! many as there are cores, and handed out in their order.
//!
//! What is found does not depend on the threads: they read frames by themselves, which needs nothing of
//! the frames before, and whatever they find is looked at in the order of the lines. In memory are two
//! blocks, and what was read of one.

use crate::tar::{Body, LineEnd, TarError};
use onrecord_core::chain::{Chain, Fault, Line};
use onrecord_core::digest::{Hash, leaf_hash_in};
use onrecord_core::frame::Frame;
use onrecord_core::limits::FRAME_BYTES;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::BufRead;
use std::mem;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Bytes that are read at a time: so many that starting threads for them is nothing beside.
const BLOCK_BYTES: usize = 4 * 1_024 * 1_024;
/// Bytes that one thread reads at a time: two blocks stay in its cache.
const BLOCK_BYTES_ALONE: usize = 128 * 1_024;
/// Bytes that a thread takes at a time, up to the end of a line.
const PIECE_BYTES: usize = 64 * 1_024;
/// More threads than this have nothing to do: one hashes the file, and one checks the links between frames.
const THREADS: usize = 16;

/// A line as a frame, read by itself.
type Read<'a> = Result<Frame<'a>, Fault>;

/// Hands out all lines, and what is read of each, until `each` answers false; faults say seq 0, as no place is known here.
///
/// A line without its end, or one that is longer than a frame, is answered and not handed out. After
/// [`LineEnd::Whole`], which `each` asked for, and [`LineEnd::TooLong`] there is more in the member.
pub(crate) fn read<R: BufRead>(
    body: &mut Body<'_, R>,
    mut each: impl FnMut(Line<'_>, &Read<'_>) -> bool,
) -> Result<LineEnd, TarError> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = cores.min(THREADS);
    let mut file = File {
        hasher: mem::take(body.hasher()),
        bytes: 0,
    };
    let length = if threads < 2 {
        BLOCK_BYTES_ALONE
    } else {
        BLOCK_BYTES
    };
    let mut block = Block::new(body, length);
    let mut next = Block::new(body, length);
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
        let mut ahead = || {
            if let Ok(true) = more {
                more = next.fill(body);
            }
        };
        let pieces = pieces(lines);
        let shared = if threads.min(pieces.len()) < 2 {
            None
        } else {
            shared(&pieces, threads, &mut file, &mut ahead, &mut each)
        };
        let goes_on = shared.unwrap_or_else(|| alone(lines, &mut file, &mut ahead, &mut each));
        mem::swap(&mut block, &mut next);
        if !goes_on {
            break LineEnd::Whole;
        }
    };
    file.hasher.update(block.bytes());
    *body.hasher() = file.hasher;
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

/// The hash of what was read of the member.
struct File {
    hasher: Sha256,
    bytes: u64,
}

impl File {
    /// Takes a line and its newline; the leaf hash of the line.
    fn hash(&mut self, line: &[u8]) -> Hash {
        let leaf = leaf_hash_in(line, &mut self.hasher, self.bytes);
        self.bytes += line.len() as u64 + 1;
        leaf
    }
}

/// Bytes of a member, from the beginning of a line.
struct Block {
    buffer: Vec<u8>,
    filled: usize,
}

impl Block {
    /// Not larger than what is left of the member.
    fn new<R: BufRead>(body: &Body<'_, R>, length: usize) -> Self {
        let length = usize::try_from(body.left()).map_or(length, |left| left.min(length));
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

/// Hashes the lines of a block and hands them out, and reads ahead; false as soon as `each` says so.
fn alone(
    block: &[u8],
    file: &mut File,
    ahead: &mut impl FnMut(),
    each: &mut impl FnMut(Line<'_>, &Read<'_>) -> bool,
) -> bool {
    ahead();
    let mut goes_on = true;
    for bytes in lines(block) {
        let hash = file.hash(bytes);
        goes_on = goes_on && each(Line { bytes, hash }, &Chain::read(bytes, 0));
    }
    goes_on
}

/// As [`alone`], with a thread that hashes, and with others that read pieces of the block as this one does
/// while nothing is to be handed out; `None` if there is no thread to be had.
fn shared(
    pieces: &[&[u8]],
    threads: usize,
    file: &mut File,
    ahead: &mut impl FnMut(),
    each: &mut impl FnMut(Line<'_>, &Read<'_>) -> bool,
) -> Option<bool> {
    let taken = AtomicUsize::new(0);
    let next = || {
        let at = taken.fetch_add(1, Ordering::Relaxed);
        Some((at, frames(pieces.get(at)?)))
    };
    thread::scope(|scope| {
        let builder = thread::Builder::new;
        let (sender, hashed) = channel();
        let hash = move || {
            for piece in pieces {
                let hashes: Vec<Hash> = lines(piece).map(|line| file.hash(line)).collect();
                // The file is hashed to its end, also when nobody asks for lines any more.
                drop(sender.send(hashes));
            }
        };
        builder().spawn_scoped(scope, hash).ok()?;
        let (sender, receiver) = channel();
        for _ in 1..threads {
            let (next, sender) = (&next, sender.clone());
            let read = move || {
                while let Some(read) = next() {
                    if sender.send(read).is_err() {
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
        let mut read = InOrder {
            receiver,
            early: BTreeMap::new(),
        };
        Some(pieces.iter().enumerate().all(|(at, piece)| {
            let frames = read.piece(at, next).unwrap_or_default();
            // They are missing only if their threads panicked.
            let hashes = hashed.recv().unwrap_or_default();
            let mut whole = lines(piece).zip(hashes).zip(&frames);
            whole.all(|((bytes, hash), frame)| each(Line { bytes, hash }, frame))
        }))
    })
}

/// The frames of pieces, which come as they are read.
struct InOrder<'a> {
    receiver: Receiver<(usize, Frames<'a>)>,
    early: BTreeMap<usize, Frames<'a>>,
}

impl<'a> InOrder<'a> {
    /// Those of a piece; while they are not here, others are read, or waited for once all are taken.
    /// `None` if the thread that took them panicked, which the end of its scope passes on.
    fn piece(
        &mut self,
        at: usize,
        next: impl Fn() -> Option<(usize, Frames<'a>)>,
    ) -> Option<Frames<'a>> {
        loop {
            self.early.extend(self.receiver.try_iter());
            if let Some(frames) = self.early.remove(&at) {
                return Some(frames);
            }
            let read = next().or_else(|| self.receiver.recv().ok());
            self.early.extend([read?]);
        }
    }
}

type Frames<'a> = Vec<Read<'a>>;

/// All lines of a piece, read as frames.
fn frames(piece: &[u8]) -> Frames<'_> {
    lines(piece).map(|line| Chain::read(line, 0)).collect()
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

/// All lines of a piece, without their newlines.
fn lines(mut piece: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || line(&mut piece))
}

/// Steps over the next line.
fn line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (line, after) = match newline(rest) {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None if rest.is_empty() => return None,
        None => (*rest, &[][..]),
    };
    *rest = after;
    Some(line)
}

/// Where the first newline is. So many bytes are looked at in a few instructions each time, as which of them
/// it is does not matter yet.
fn newline(bytes: &[u8]) -> Option<usize> {
    let (chunks, _) = bytes.as_chunks::<64>();
    let has = |chunk: &[u8; 64]| {
        let found = chunk
            .iter()
            .fold(0, |any, byte| any | u8::from(*byte == b'\n'));
        found != 0
    };
    let before = chunks.iter().position(has).unwrap_or(chunks.len()) * 64;
    let within = bytes[before..].iter().position(|byte| *byte == b'\n');
    within.map(|at| before + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_hand_out_what_one_hands_out() {
        let line = |at: usize| format!("{{\"a\":{at},\"b\":\"{}\"}}\n", "x".repeat(at % 97));
        let block: Vec<u8> = (0..9_000).flat_map(|at| line(at).into_bytes()).collect();
        let pieces = pieces(&block);
        for until in [1, 5_000, 9_000] {
            let read = |threads| {
                let (mut lines, mut ahead) = (Vec::new(), 0);
                let mut file = File {
                    hasher: Sha256::new(),
                    bytes: 0,
                };
                let mut each = |line: Line<'_>, frame: &Read<'_>| {
                    lines.push((line.bytes.to_vec(), line.hash, format!("{frame:?}")));
                    lines.len() < until
                };
                let goes_on = match threads {
                    1 => alone(&block, &mut file, &mut || ahead += 1, &mut each),
                    _ => {
                        shared(&pieces, threads, &mut file, &mut || ahead += 1, &mut each).unwrap()
                    }
                };
                assert_eq!(ahead, 1);
                assert_eq!(file.bytes, block.len() as u64);
                assert_eq!(file.hasher.finalize(), Sha256::digest(&block));
                (goes_on, lines)
            };
            let (goes_on, lines) = read(1);
            assert!(!goes_on && lines.len() == until);
            for threads in [2, 5] {
                assert!(read(threads) == (goes_on, lines.clone()), "{threads}");
            }
        }
    }

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
