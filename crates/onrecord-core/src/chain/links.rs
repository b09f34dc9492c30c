//! What may follow what: the rule itself, over frames that were read one by one.

use super::{Fault, FrameCode, Seen, genesis};
use crate::digest::{Hash, leaf_hash};
use crate::frame::{Frame, Kind, Status, TurnEnd};
use crate::id::{Origin, RunId, TenantId};
use crate::json;
use crate::merkle::Frontier;
use crate::timestamp::Timestamp;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// The bytes that a frame was read from by [`Chain::read`](super::Chain::read), which can be done on any
/// thread, as the frames before it need not be known.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// The line without its newline.
    pub bytes: &'a [u8],
    /// Its [`leaf_hash`]: that of the frame.
    pub hash: Hash,
}

impl<'a> Line<'a> {
    /// Hashes a line.
    pub fn of(bytes: &'a [u8]) -> Self {
        let hash = leaf_hash(bytes);
        Self { bytes, hash }
    }
}

/// The turn that is open.
#[derive(Clone)]
pub(super) struct OpenTurn {
    pub(super) number: u64,
    pub(super) frames: Frontier,
}

/// A run up to some frame, of a size that does not grow with the run: all of a [`Chain`](super::Chain)
/// but the digest of its file, for who has that from elsewhere.
#[derive(Clone)]
pub struct Links {
    pub(super) tenant: TenantId,
    pub(super) run: RunId,
    pub(super) next: u64,
    pub(super) head: Hash,
    pub(super) last_at: Option<Timestamp>,
    pub(super) opened: Option<Opened>,
    pub(super) turns: u64,
    pub(super) open_turn: Option<OpenTurn>,
    pub(super) ended: bool,
    /// The frames of this turn only: places rise but may leave gaps.
    pub(super) only_turn: Option<u64>,
    pub(super) tree: Frontier,
    pub(super) bytes: u64,
    pub(super) kinds: BTreeMap<Kind, u64>,
    pub(super) payloads: u64,
    pub(super) outcome: Option<Status>,
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

impl Links {
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
            bytes: 0,
            kinds: BTreeMap::new(),
            payloads: 0,
            outcome: None,
        }
    }

    /// The frames of one turn alone, from its `turn` frame: what came before is taken as it says, and
    /// run-level frames that stand between are left out. A frame of another turn is out of scope.
    pub fn of_turn(first: &Frame<'_>) -> Self {
        let mut links = Self::new(first.tenant.clone(), first.run.clone());
        links.next = first.seq;
        links.head = first.prev;
        links.turns = first.turn.unwrap_or(1).saturating_sub(1);
        // A first frame without a turn has 0, which is no turn's number, so that nothing is in scope.
        links.only_turn = Some(first.turn.unwrap_or(0));
        links
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

    /// The tree of all frames.
    pub fn tree(&self) -> &Frontier {
        &self.tree
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

    /// Extends the run with its next frame, which is that of the line.
    ///
    /// Errors: the first rule that it breaks, in the order of [`FrameCode`]; the run is as it was.
    pub fn extend(
        &mut self,
        frame: &Frame<'_>,
        line: Line<'_>,
        seen: Option<&mut Seen>,
    ) -> Result<(), Fault> {
        self.check_place(frame)?;
        let fault = |code, detail| Fault {
            code,
            seq: frame.seq,
            detail,
        };
        let turn_root = self
            .check_structure(frame)
            .map_err(|(code, detail)| fault(code, detail))?;
        if let Some(seen) = seen {
            seen.add(frame)
                .map_err(|detail| fault(FrameCode::FrameStructure, detail))?;
        }
        turn_root.map_err(|detail| fault(FrameCode::TurnRoot, detail))?;
        self.add(frame, line);
        Ok(())
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

    fn add(&mut self, frame: &Frame<'_>, line: Line<'_>) {
        let hash = line.hash;
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
        self.bytes += line.bytes.len() as u64 + 1;
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
