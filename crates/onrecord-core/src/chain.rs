//! The chain of a run: what may follow what, and what the seal says of it (spec: `docs/spec/chain.md`).
//!
//! [`Chain::extend`] is the one rule: the store places every frame with it, the verifier reads every
//! frame with it.

mod saved;

use crate::digest::{Hash, leaf_hash};
use crate::frame::{BadFrame, Draft, Frame, Kind, Status, TurnEnd};
use crate::id::{Origin, RunId, TenantId};
use crate::json::{self, Limits, NotCanonical};
use crate::merkle::Frontier;
use crate::timestamp::Timestamp;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// `SHA-256("onrecord/genesis/1\n" tenant "\n" run "\n")`: the `prev` of frame 0.
pub fn genesis(tenant: &TenantId, run: &RunId) -> Hash {
    Hash::of(&[format!("onrecord/genesis/1\n{tenant}\n{run}\n").as_bytes()])
}

/// Which rule a frame breaks; the word is the verdict's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameCode {
    /// Not strict JSON.
    FrameJson,
    /// Not the canonical spelling.
    FrameCanonical,
    /// Another format or suite.
    Suite,
    /// A member is absent, unknown or of the wrong shape.
    FrameShape,
    /// Another tenant or run.
    FrameScope,
    /// Not the next place.
    FrameSeq,
    /// Does not name the frame before.
    FramePrev,
    /// The store's time went back.
    FrameTime,
    /// Not allowed at this place of the run.
    FrameStructure,
    /// A `turn_end` does not describe its turn.
    TurnRoot,
}

impl FrameCode {
    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FrameJson => "frame_json",
            Self::FrameCanonical => "frame_canonical",
            Self::Suite => "suite",
            Self::FrameShape => "frame_shape",
            Self::FrameScope => "frame_scope",
            Self::FrameSeq => "frame_seq",
            Self::FramePrev => "frame_prev",
            Self::FrameTime => "frame_time",
            Self::FrameStructure => "frame_structure",
            Self::TurnRoot => "turn_root",
        }
    }
}

/// A frame that may not stand where it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", .code.as_str())]
pub struct Fault {
    /// The rule.
    pub code: FrameCode,
    /// The frame that shows it: for `frame_prev` the one before the link that does not fit.
    pub seq: u64,
    /// What was found and what was expected.
    pub detail: String,
}

/// The keys and commitments of a run, which are unique in it. Where a database keeps them unique the
/// chain is extended without.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    keys: BTreeSet<[u8; 16]>,
    commits: BTreeSet<[u8; 16]>,
}

impl Seen {
    /// Half a digest tells two texts apart: 2^64 tries for a collision, and one would only refuse a run.
    fn digest(bytes: &[u8]) -> [u8; 16] {
        let hash = Hash::of(&[bytes]);
        let mut half = [0; 16];
        half.copy_from_slice(&hash.0[..16]);
        half
    }

    fn add(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        if !self.keys.insert(Self::digest(frame.key.as_bytes())) {
            return Err(format!("the key {:?} is an earlier frame's", frame.key));
        }
        for payload in frame.payloads() {
            if !self.commits.insert(Self::digest(&payload.commit.0)) {
                return Err(format!(
                    "the commitment {} is an earlier payload's",
                    payload.commit
                ));
            }
        }
        Ok(())
    }
}

/// The turn that is open.
#[derive(Clone)]
struct OpenTurn {
    number: u64,
    frames: Frontier,
}

/// A run up to some frame: everything that the next frame, the seal and a head need, of a size that
/// does not grow with the run.
#[derive(Clone)]
pub struct Chain {
    tenant: TenantId,
    run: RunId,
    next: u64,
    head: Hash,
    last_at: Option<Timestamp>,
    opened: Option<Opened>,
    turns: u64,
    open_turn: Option<OpenTurn>,
    ended: bool,
    /// The frames of this turn only: places rise but may leave gaps.
    only_turn: Option<u64>,
    tree: Frontier,
    file: Sha256,
    bytes: u64,
    kinds: BTreeMap<Kind, u64>,
    payloads: u64,
    outcome: Option<Status>,
}

/// What frame 0 says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Its time.
    pub at: Timestamp,
    /// Origin of the ledger.
    pub ledger: Origin,
    /// Number of the run in the tenant.
    pub run_no: u64,
}

impl Chain {
    /// A run before its first frame.
    pub fn new(tenant: TenantId, run: RunId) -> Self {
        let head = genesis(&tenant, &run);
        Self {
            tenant,
            run,
            next: 0,
            head,
            last_at: None,
            opened: None,
            turns: 0,
            open_turn: None,
            ended: false,
            only_turn: None,
            tree: Frontier::new(),
            file: Sha256::new(),
            bytes: 0,
            kinds: BTreeMap::new(),
            payloads: 0,
            outcome: None,
        }
    }

    /// The frames of one turn alone, from its `turn` frame: what came before is taken as it says, and
    /// run-level frames that stand between are left out. A frame of another turn is out of scope.
    pub fn of_turn(first: &Frame<'_>) -> Self {
        let mut chain = Self::new(first.tenant.clone(), first.run.clone());
        chain.next = first.seq;
        chain.head = first.prev;
        chain.turns = first.turn.unwrap_or(1).saturating_sub(1);
        // A first frame without a turn has 0, which is no turn's number, so that nothing is in scope.
        chain.only_turn = Some(first.turn.unwrap_or(0));
        chain
    }

    /// The tenant.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Frames so far; the place of the next one.
    pub fn size(&self) -> u64 {
        self.next
    }

    /// Hash of the last frame, or the genesis.
    pub fn head(&self) -> Hash {
        self.head
    }

    /// Time of the last frame.
    pub fn last_at(&self) -> Option<Timestamp> {
        self.last_at
    }

    /// What frame 0 said.
    pub fn opened(&self) -> Option<&Opened> {
        self.opened.as_ref()
    }

    /// The turn that is open.
    pub fn open_turn(&self) -> Option<u64> {
        self.open_turn.as_ref().map(|turn| turn.number)
    }

    /// Turns opened so far.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Whether `session_end` was written.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// RFC 9162 root of all frames.
    pub fn root(&self) -> Hash {
        self.tree.root()
    }

    /// Plain SHA-256 of `frames.ndjson`: every line with its newline.
    pub fn file_digest(&self) -> Hash {
        Hash(self.file.clone().finalize().into())
    }

    /// Bytes of `frames.ndjson`.
    pub fn file_bytes(&self) -> u64 {
        self.bytes
    }

    /// Frames of each kind.
    pub fn kinds(&self) -> &BTreeMap<Kind, u64> {
        &self.kinds
    }

    /// Payloads of all frames.
    pub fn payloads(&self) -> u64 {
        self.payloads
    }

    /// Status of the last `outcome` frame.
    pub fn outcome(&self) -> Option<Status> {
        self.outcome
    }

    /// The body that a `turn_end` of the open turn has.
    pub fn turn_end(&self) -> Option<TurnEnd> {
        self.open_turn.as_ref().map(|turn| TurnEnd {
            count: turn.frames.size(),
            root: turn.frames.root(),
        })
    }

    /// Gives a draft its place at a time and extends the chain with it.
    ///
    /// Errors: the frame may not stand here; the chain is as it was.
    pub fn place(&mut self, draft: &Draft, at: Timestamp) -> Result<Vec<u8>, Fault> {
        let bytes = draft.write(&self.tenant, &self.run, self.next, &self.head, at);
        self.extend(&bytes, None)?;
        Ok(bytes)
    }

    /// Reads the next line, without its newline, and extends the chain with it.
    ///
    /// Errors: the first rule that it breaks, in the order of [`FrameCode`]; the chain is as it was.
    pub fn extend<'a>(
        &mut self,
        bytes: &'a [u8],
        seen: Option<&mut Seen>,
    ) -> Result<Frame<'a>, Fault> {
        let frame = Self::read(bytes, self.next)?;
        self.check_place(&frame)?;
        let turn_root = self
            .check_structure(&frame)
            .map_err(|(code, detail)| Fault {
                code,
                seq: frame.seq,
                detail,
            })?;
        if let Some(seen) = seen {
            seen.add(&frame).map_err(|detail| Fault {
                code: FrameCode::FrameStructure,
                seq: frame.seq,
                detail,
            })?;
        }
        turn_root.map_err(|detail| Fault {
            code: FrameCode::TurnRoot,
            seq: frame.seq,
            detail,
        })?;
        self.add(&frame, bytes);
        Ok(frame)
    }

    /// Reads a frame that stands at `seq`, without its newline: what the rules of a frame alone say.
    ///
    /// Errors: `frame_json`, `frame_canonical`, `suite` or `frame_shape`.
    pub fn read(bytes: &[u8], seq: u64) -> Result<Frame<'_>, Fault> {
        let fault = |code, detail| Fault { code, seq, detail };
        json::check_canonical(bytes, Limits::FRAME).map_err(|error| match error {
            NotCanonical::Json(error) => fault(FrameCode::FrameJson, format!("{error}")),
            NotCanonical::Differs { offset } => fault(
                FrameCode::FrameCanonical,
                format!("not the canonical spelling at byte {offset}"),
            ),
        })?;
        Frame::of_canonical(bytes).map_err(|error| match error {
            BadFrame::Suite(detail) => fault(FrameCode::Suite, detail),
            BadFrame::Shape(detail) => fault(FrameCode::FrameShape, detail),
        })
    }

    fn check_place(&self, frame: &Frame<'_>) -> Result<(), Fault> {
        let fault = |code, seq, detail| Err(Fault { code, seq, detail });
        let sparse = self.only_turn.is_some();
        let place = if sparse { frame.seq } else { self.next };
        if frame.tenant != self.tenant || frame.run != self.run {
            return fault(
                FrameCode::FrameScope,
                place,
                format!(
                    "belongs to {}/{}, not to {}/{}",
                    frame.tenant, frame.run, self.tenant, self.run
                ),
            );
        }
        if sparse && frame.turn != self.only_turn {
            return fault(
                FrameCode::FrameScope,
                place,
                "belongs to another turn, or to none".into(),
            );
        }
        if frame.seq < self.next || frame.seq > self.next && !sparse {
            return fault(
                FrameCode::FrameSeq,
                place,
                format!("seq is {}, expected {}", frame.seq, self.next),
            );
        }
        if frame.seq == self.next && frame.prev != self.head {
            return fault(
                FrameCode::FramePrev,
                self.next.saturating_sub(1),
                format!(
                    "frame {} names {} before it, but that is {}",
                    frame.seq, frame.prev, self.head
                ),
            );
        }
        match self.last_at {
            Some(last) if frame.at < last => fault(
                FrameCode::FrameTime,
                frame.seq,
                format!("at {} is before {last}", frame.at),
            ),
            _ => Ok(()),
        }
    }

    /// The structure of the run; within it, whether a `turn_end` describes its turn.
    fn check_structure(
        &self,
        frame: &Frame<'_>,
    ) -> Result<Result<(), String>, (FrameCode, String)> {
        let wrong = |detail: String| Err((FrameCode::FrameStructure, detail));
        if self.ended {
            return wrong("stands after session_end".into());
        }
        if (frame.kind == Kind::Session) != (frame.seq == 0) {
            return wrong("session is frame 0 and only that".into());
        }
        check_within(frame).map_err(|detail| (FrameCode::FrameStructure, detail))?;
        let open = self.open_turn.as_ref();
        match (frame.kind, frame.turn) {
            (Kind::Session | Kind::SessionEnd, Some(_)) => {
                wrong(format!("{} belongs to no turn", frame.kind))
            }
            (Kind::SessionEnd, None) if open.is_some() => {
                wrong("session_end stands in an open turn".into())
            }
            (Kind::Turn | Kind::TurnEnd, None) => wrong(format!("{} names no turn", frame.kind)),
            (Kind::Turn, Some(_)) if open.is_some() => {
                wrong("a turn opens while another is open".into())
            }
            (Kind::Turn, Some(number)) if number != self.turns + 1 => {
                wrong(format!("turn {number} opens, expected {}", self.turns + 1))
            }
            (Kind::Turn, Some(_)) | (_, None) => Ok(Ok(())),
            (kind, Some(number)) => match open {
                Some(turn) if turn.number == number && kind == Kind::TurnEnd => {
                    Ok(self.check_turn_end(frame))
                }
                Some(turn) if turn.number == number => Ok(Ok(())),
                Some(turn) => wrong(format!("names turn {number}, open is turn {}", turn.number)),
                None => wrong(format!("names turn {number}, no turn is open")),
            },
        }
    }

    fn check_turn_end(&self, frame: &Frame<'_>) -> Result<(), String> {
        let found: TurnEnd = json::typed(frame.body.as_bytes())
            .map_err(|error| format!("the body is not exactly {{count, root}}: {error}"))?;
        match self.turn_end() {
            Some(expected) if expected == found => Ok(()),
            Some(expected) => Err(format!(
                "says {} frames with root {}, the turn has {} with root {}",
                found.count, found.root, expected.count, expected.root
            )),
            None => Err("no turn is open".into()),
        }
    }

    fn add(&mut self, frame: &Frame<'_>, bytes: &[u8]) {
        let hash = leaf_hash(bytes);
        match frame.kind {
            Kind::Session => {
                // The shape was checked; a session that cannot be read again leaves `opened` empty.
                self.opened = frame.session().ok().map(|session| Opened {
                    at: frame.at,
                    ledger: session.ledger,
                    run_no: session.run_no,
                });
            }
            Kind::Turn => {
                self.turns = frame.turn.unwrap_or(self.turns + 1);
                self.open_turn = Some(OpenTurn {
                    number: self.turns,
                    frames: Frontier::new(),
                });
            }
            Kind::TurnEnd => self.open_turn = None,
            Kind::Outcome => self.outcome = frame.status().ok(),
            Kind::SessionEnd => self.ended = true,
            _ => {}
        }
        if frame.turn.is_some()
            && let Some(turn) = &mut self.open_turn
        {
            turn.frames.push(hash);
        }
        self.next = frame.seq + 1;
        self.head = hash;
        self.last_at = Some(frame.at);
        self.tree.push(hash);
        self.file.update(bytes);
        self.file.update(b"\n");
        self.bytes += bytes.len() as u64 + 1;
        *self.kinds.entry(frame.kind).or_insert(0) += 1;
        self.payloads += frame.payloads().len() as u64;
    }
}

/// What stands in one frame and needs no neighbour: links point backwards, payload names differ,
/// signed is who says so.
fn check_within(frame: &Frame<'_>) -> Result<(), String> {
    if let Some(link) = frame
        .links()
        .iter()
        .find(|link| link.seq.is_some_and(|seq| seq >= frame.seq))
    {
        return Err(format!(
            "a link points to frame {}, which is not before it",
            link.seq.unwrap_or_default()
        ));
    }
    let payloads = frame.payloads();
    for (index, payload) in payloads.iter().enumerate() {
        if payloads[..index]
            .iter()
            .any(|other| other.name == payload.name)
        {
            return Err(format!("two payloads are named {:?}", payload.name));
        }
    }
    match (&frame.submitted, frame.actor.keyid) {
        (None, None) => Ok(()),
        (Some(_), _) if frame.kind == Kind::Session => Err("a session is not submitted".into()),
        (Some(submitted), Some(keyid)) if submitted.keyid == keyid => Ok(()),
        _ => Err("submitted is there exactly when actor.keyid is, with the same key".into()),
    }
}
