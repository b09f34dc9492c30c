//! A chain as bytes, for the row of the run's head, which is written anew with every append.
//!
//! Numbers are LEB128, times 8 bytes little-endian, texts and lists have their length in front. In order:
//! the version, tenant, run, places, flags, frame 0, time, turns, the open turn, the tree, the head, the
//! file's length and hash so far, frames of each kind, payloads; in version 2, which is that of runs with frames
//! that agents signed, how many keys did, and of each its id and how far it counted. What follows from the rest is left out:
//! how many nodes a tree has, the head of an odd tree, which is its last node, and how many bytes the hash
//! still holds back.

use super::Chain;
use super::links::{Links, OpenTurn, Opened};
use crate::digest::{Hash, unhex};
use crate::frame::{Kind, Status};
use crate::id::{RunId, TenantId};
use crate::json;
use crate::merkle::Frontier;
use crate::submitted::Counts;
use crate::timestamp::Timestamp;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;
use serde::Deserialize;
use sha2::Sha256;
use sha2::digest::common::hazmat::{SerializableState as _, SerializedState};

/// Of the layout. It cannot be `{`, with which the JSON of the first databases begins.
const VERSION: u8 = 1;
const WITH_COUNTS: u8 = 2;

const ENDED: u8 = 1;
const OPENED: u8 = 1 << 1;
const TIMED: u8 = 1 << 2;
const IN_TURN: u8 = 1 << 3;
/// The outcome above the flags: 0 is none, and then the place in [`Status::ALL`] from 1.
const OUTCOME_SHIFT: u32 = 4;

/// Bytes of a block of SHA-256, and of its chaining value.
const BLOCK: usize = 64;
const STATE: usize = 32;

impl Chain {
    /// The state as bytes; some 400 in a run of a thousand frames.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        out.push(if self.counts.is_empty() {
            VERSION
        } else {
            WITH_COUNTS
        });
        put_text(&mut out, self.tenant.as_str());
        put_text(&mut out, self.run.as_str());
        put_number(&mut out, self.next);
        out.push(self.flags());
        if let Some(opened) = &self.opened {
            put_time(&mut out, opened.at);
            put_text(&mut out, opened.ledger.as_str());
            put_number(&mut out, opened.run_no);
        }
        if let Some(at) = self.last_at {
            put_time(&mut out, at);
        }
        put_number(&mut out, self.turns);
        if let Some(turn) = &self.open_turn {
            put_number(&mut out, turn.number);
            put_tree(&mut out, &turn.frames);
        }
        put_tree(&mut out, &self.tree);
        if self.tree.size().is_multiple_of(2) {
            out.extend_from_slice(&self.head.0);
        }
        put_number(&mut out, self.bytes);
        let file = self.file.serialize();
        out.extend_from_slice(&file[..STATE]);
        out.extend_from_slice(&file[STATE + 9..][..held_back(self.bytes)]);
        for kind in Kind::ALL {
            put_number(&mut out, self.kinds.get(kind).copied().unwrap_or_default());
        }
        put_number(&mut out, self.payloads);
        if !self.counts.is_empty() {
            let counts = self.counts.iter();
            put_number(&mut out, counts.len() as u64);
            for (keyid, n) in counts {
                out.extend_from_slice(&keyid.0);
                put_number(&mut out, n);
            }
        }
        out
    }

    /// The state that [`Chain::to_bytes`] wrote, now or when it was JSON; `None` where it is not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&version, rest) = bytes.split_first()?;
        match version {
            b'{' => from_json(bytes),
            VERSION | WITH_COUNTS => {
                let mut source = Source { rest };
                let mut chain = source.chain()?;
                if version == WITH_COUNTS {
                    chain.counts = source.counts()?;
                }
                source.rest.is_empty().then_some(chain)
            }
            _ => None,
        }
    }

    fn flags(&self) -> u8 {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let place = |status| Status::ALL.iter().position(|one| *one == status);
        let outcome = self.outcome.and_then(place).map_or(0, |place| place + 1);
        flag(self.ended, ENDED)
            | flag(self.opened.is_some(), OPENED)
            | flag(self.last_at.is_some(), TIMED)
            | flag(self.open_turn.is_some(), IN_TURN)
            | (outcome as u8) << OUTCOME_SHIFT
    }
}

/// Bytes of a file that SHA-256 has not yet taken into its chaining value.
fn held_back(bytes: u64) -> usize {
    (bytes % BLOCK as u64) as usize
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn put_time(out: &mut Vec<u8>, at: Timestamp) {
    out.extend_from_slice(&at.micros().to_le_bytes());
}

fn put_tree(out: &mut Vec<u8>, tree: &Frontier) {
    put_number(out, tree.size());
    for node in tree.nodes() {
        out.extend_from_slice(&node.0);
    }
}

/// What is left to be read.
struct Source<'a> {
    rest: &'a [u8],
}

impl<'a> Source<'a> {
    fn chain(&mut self) -> Option<Chain> {
        let (tenant, run) = (self.text()?, self.text()?);
        let next = self.number()?;
        let [flags] = self.array()?;
        let opened = match flags & OPENED {
            0 => None,
            _ => Some(Opened {
                at: self.time()?,
                ledger: self.text()?,
                run_no: self.number()?,
            }),
        };
        let last_at = match flags & TIMED {
            0 => None,
            _ => Some(self.time()?),
        };
        let turns = self.number()?;
        let open_turn = match flags & IN_TURN {
            0 => None,
            _ => Some(OpenTurn {
                number: self.number()?,
                frames: self.tree()?,
            }),
        };
        let tree = self.tree()?;
        let head = match tree.nodes().last() {
            Some(last) if !tree.size().is_multiple_of(2) => *last,
            _ => Hash(self.array()?),
        };
        let bytes = self.number()?;
        let file = self.file(bytes)?;
        let outcome = match flags >> OUTCOME_SHIFT {
            0 => None,
            place => Some(*Status::ALL.get(usize::from(place) - 1)?),
        };
        let links = Links {
            tenant,
            run,
            next,
            head,
            last_at,
            opened,
            turns,
            open_turn,
            ended: flags & ENDED != 0,
            only_turn: None,
            tree,
            bytes,
            kinds: self.kinds()?,
            payloads: self.number()?,
            outcome,
        };
        Some(Chain {
            links,
            file,
            counts: Counts::default(),
        })
    }

    fn counts(&mut self) -> Option<Counts> {
        let mut counts = Counts::default();
        for _ in 0..self.number()? {
            let keyid = Hash(self.array()?);
            counts.set(keyid, self.number()?);
        }
        // Without any it would be the other version.
        (!counts.is_empty()).then_some(counts)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            number |= bits << shift;
            if (number >> shift) != bits {
                return None;
            }
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn text<T: FromStr>(&mut self) -> Option<T> {
        let length = usize::try_from(self.number()?).ok()?;
        core::str::from_utf8(self.take(length)?).ok()?.parse().ok()
    }

    fn time(&mut self) -> Option<Timestamp> {
        Timestamp::from_micros(i64::from_le_bytes(self.array()?))
    }

    fn tree(&mut self) -> Option<Frontier> {
        let size = self.number()?;
        let nodes = (0..size.count_ones()).map(|_| self.array().map(Hash));
        let nodes = nodes.collect::<Option<Vec<Hash>>>()?;
        Frontier::from_nodes(size, nodes)
    }

    /// The hash of a file of so many bytes: chaining value, count of blocks, and a length before the rest.
    fn file(&mut self, bytes: u64) -> Option<Sha256> {
        let mut state = SerializedState::<Sha256>::default();
        let held_back = held_back(bytes);
        state[..STATE].copy_from_slice(self.take(STATE)?);
        state[STATE..STATE + 8].copy_from_slice(&(bytes / BLOCK as u64).to_le_bytes());
        state[STATE + 8] = held_back as u8;
        state[STATE + 9..][..held_back].copy_from_slice(self.take(held_back)?);
        Sha256::deserialize(&state).ok()
    }

    fn kinds(&mut self) -> Option<BTreeMap<Kind, u64>> {
        let mut kinds = BTreeMap::new();
        for kind in Kind::ALL {
            match self.number()? {
                0 => {}
                count => drop(kinds.insert(*kind, count)),
            }
        }
        Some(kinds)
    }
}

type SavedTree = (u64, Vec<Hash>);

/// What the first databases have.
#[derive(Deserialize)]
struct Saved {
    tenant: TenantId,
    run: RunId,
    next: u64,
    head: Hash,
    last_at: Option<Timestamp>,
    opened: Option<Opened>,
    turns: u64,
    open_turn: Option<(u64, SavedTree)>,
    ended: bool,
    tree: SavedTree,
    file: String,
    bytes: u64,
    kinds: BTreeMap<Kind, u64>,
    payloads: u64,
    outcome: Option<Status>,
}

fn from_json(bytes: &[u8]) -> Option<Chain> {
    let saved: Saved = json::typed(bytes).ok()?;
    let mut state = SerializedState::<Sha256>::default();
    if !unhex(&saved.file, &mut state) {
        return None;
    }
    let tree = |(size, nodes)| Frontier::from_nodes(size, nodes);
    let open_turn = match saved.open_turn {
        Some((number, frames)) => Some(OpenTurn {
            number,
            frames: tree(frames)?,
        }),
        None => None,
    };
    let links = Links {
        tenant: saved.tenant,
        run: saved.run,
        next: saved.next,
        head: saved.head,
        last_at: saved.last_at,
        opened: saved.opened,
        turns: saved.turns,
        open_turn,
        ended: saved.ended,
        only_turn: None,
        tree: tree(saved.tree)?,
        bytes: saved.bytes,
        kinds: saved.kinds,
        payloads: saved.payloads,
        outcome: saved.outcome,
    };
    let file = Sha256::deserialize(&state).ok()?;
    Some(Chain {
        links,
        file,
        counts: Counts::default(),
    })
}
