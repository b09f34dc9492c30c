//! Placing: the one place that extends a chain. Whoever calls holds the run's lock, or writes what it placed with a
//! compare-and-swap of the head.

use super::RecordError;
use super::intake::{LinkRequest, TurnChoice};
use super::prepare::{Prepared, Sameness};
use crate::store::frames::{Mac, NewFrame};
use crate::store::payloads::NewPayload;
use crate::store::{self, Tx};
use crate::vault::RunKeys;
use onrecord_core::chain::{Chain, FrameCode};
use onrecord_core::digest::Hash;
use onrecord_core::facts::Facts;
use onrecord_core::frame::{Actor, ActorType, Draft, Frame, Kind, Link, Rel};
use onrecord_core::id::RunId;
use onrecord_core::json;
use onrecord_core::limits;
use onrecord_core::receipt::Receipt;
use onrecord_core::timestamp::Timestamp;
use std::collections::{HashMap, HashSet};

/// A frame that has its place.
#[derive(Clone, Debug)]
pub struct Appended {
    /// Its receipt.
    pub receipt: Receipt,
    /// False where a retry found it.
    pub created: bool,
    /// Receipt of the result of a tool call that was posted whole.
    pub result: Option<Receipt>,
    /// A signed `run-head` at the frame's size, where it was asked for.
    pub signed: Option<String>,
}

impl Appended {
    pub(super) fn new(receipt: Receipt, result: Option<Receipt>) -> Self {
        Self {
            receipt,
            created: true,
            result,
            signed: None,
        }
    }
}

/// What a request to append says beside its frames.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// The head that the writer saw (`If-Match`).
    pub head: Option<Hash>,
    /// Whether the receipt is to be signed.
    pub signed: bool,
}

/// The store's id as an actor, and the beginning of its keys.
pub(crate) const STORE_ID: &str = "onrecord";

/// Extends a chain with a draft at a time.
pub(crate) fn place(
    chain: &mut Chain,
    draft: &Draft,
    at: Timestamp,
    mac: Option<Mac>,
) -> Result<NewFrame, RecordError> {
    let seq = chain.size();
    if let Some(submitted) = &draft.submitted {
        let counted = chain.counts().check(submitted, false);
        counted.map_err(|wrong| RecordError::WrongCount {
            keyid: submitted.keyid,
            expected: wrong.last.saturating_add(1),
            found: wrong.found,
        })?;
    }
    let bytes = chain.place(draft, at).map_err(|fault| {
        // What is written here is canonical, so that JSON is at fault only where there is too much of it.
        let bytes = draft
            .write(chain.tenant(), chain.run(), seq, &chain.head(), at)
            .len();
        match fault.code {
            FrameCode::FrameJson if bytes > limits::FRAME_BYTES => {
                RecordError::FrameTooLarge { bytes }
            }
            _ => RecordError::Fault(fault),
        }
    })?;
    let answers = draft
        .links
        .iter()
        .find(|link| link.rel == Rel::Answers)
        .and_then(|link| link.seq);
    Ok(NewFrame {
        seq,
        kind: draft.kind,
        turn: draft.turn,
        key: draft.key.clone(),
        at,
        hash: chain.head(),
        answers,
        request_mac: mac,
        bytes,
        facts: Facts::of(draft.kind, draft.actor.kind, &draft.body, &draft.payloads),
    })
}

/// The receipt of a frame that was placed.
pub(crate) fn receipt(chain: &Chain, frame: &NewFrame) -> Receipt {
    Receipt {
        at: frame.at,
        hash: frame.hash,
        run: chain.run().clone(),
        seq: frame.seq,
    }
}

/// The store's own frame that closes the open turn.
fn turn_end(chain: &Chain) -> Option<Draft> {
    let (number, end) = (chain.open_turn()?, chain.turn_end()?);
    Some(Draft {
        kind: Kind::TurnEnd,
        key: format!("{STORE_ID}/turn_end/{number}"),
        occurred_at: None,
        turn: Some(number),
        actor: Actor {
            id: STORE_ID.to_owned(),
            keyid: None,
            kind: ActorType::System,
        },
        body: json::to_canonical(&end).unwrap_or_default(),
        payloads: Vec::new(),
        links: Vec::new(),
        trace: None,
        submitted: None,
    })
}

/// Closes the open turn, if there is one.
pub(crate) fn close_turn(
    chain: &mut Chain,
    at: Timestamp,
) -> Result<Option<NewFrame>, RecordError> {
    turn_end(chain)
        .map(|draft| place(chain, &draft, at, None))
        .transpose()
}

/// The frame that a key was used for, if the request is the same. Where a payload of it was erased the
/// sameness can no longer be told, and the key decides.
pub(crate) async fn retried(
    tx: &mut Tx,
    run: &RunId,
    keys: &RunKeys,
    sameness: Sameness<'_>,
) -> Result<Option<Appended>, RecordError> {
    let wanted: Vec<&str> = [Some(sameness.key), sameness.result_key]
        .into_iter()
        .flatten()
        .collect();
    let mut found = store::frames::with_keys(tx, run, &wanted).await?;
    let Some(frame) = found.remove(sameness.key) else {
        return Ok(None);
    };
    let conflict = || RecordError::KeyConflict {
        key: sameness.key.to_owned(),
        run: run.clone(),
        seq: frame.receipt.seq,
    };
    let mac = frame.request_mac.as_deref().ok_or_else(conflict)?;
    let result = match sameness.result_key {
        Some(key) => Some(found.remove(key).ok_or_else(conflict)?.receipt),
        None => None,
    };
    let seqs: Vec<u64> = [Some(&frame.receipt), result.as_ref()]
        .into_iter()
        .flatten()
        .map(|receipt| receipt.seq)
        .collect();
    if let Some(stored) = all_payload_keys(tx, run, &seqs).await?
        && !keys.same_request(&stored, sameness.fingerprint, mac)?
    {
        return Err(conflict());
    }
    Ok(Some(Appended {
        receipt: frame.receipt,
        created: false,
        result,
        signed: None,
    }))
}

/// The keys of all payloads of some frames, as `(tier, key version, commit, wrapped DEK)` in their order;
/// `None` where one of the payloads is not there any more.
async fn all_payload_keys(
    tx: &mut Tx,
    run: &RunId,
    seqs: &[u64],
) -> Result<Option<Vec<(i16, i16, Hash, Vec<u8>)>>, RecordError> {
    let mut stored = store::payloads::keys_of_frames(tx, run, seqs).await?;
    let mut keys = Vec::new();
    for seq in seqs {
        let committed = store::frames::bytes(tx, run, *seq)
            .await?
            .and_then(|(bytes, _)| Some(Frame::parse(&bytes).ok()?.payloads().len()));
        let of_frame = stored.remove(seq).unwrap_or_default();
        if committed != Some(of_frame.len()) {
            return Ok(None);
        }
        // Those that the agent kept have no key.
        let with_keys = of_frame.into_iter().filter(|one| !one.kept);
        keys.extend(with_keys.map(|payload| {
            (
                payload.tier,
                payload.key_version,
                payload.commit,
                payload.wrapped_dek,
            )
        }));
    }
    Ok(Some(keys))
}

/// What became of one request.
pub(super) enum Placed {
    /// It has its place in this batch, or the same request has. The chain as it is after the frame, where the
    /// receipt is to be signed.
    Here(Appended, Option<Box<Chain>>),
    /// Its key is that of a frame that was there before the batch: whether it is a retry, is to be found out.
    Known(u64),
}

/// Why a request has no place yet.
pub(super) enum Refusal {
    /// It cannot be told before the keys that the batch names were looked up: what looks wrong may be a retry, or
    /// a link to a frame of before.
    LookUp,
    /// It is refused.
    Refused(RecordError),
}

impl<E: Into<RecordError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

/// Frames that get their places after one another, in memory.
pub(super) struct Batch<'a> {
    chain: Chain,
    sealed: bool,
    at: Timestamp,
    keys: Keys,
    /// Commitments of agents that are in the run, among those that the batch names.
    commits: HashSet<Hash>,
    /// Requests of this batch that have their places, by key: the same one may come twice.
    done: HashMap<&'a str, (&'a [u8], Appended)>,
    frames: Vec<NewFrame>,
    payloads: Vec<NewPayload<'a>>,
}

/// Which frames have which keys, as far as it is known.
struct Keys {
    /// Those of before that have a key that the batch names; `None` before that was looked up.
    committed: Option<HashMap<String, u64>>,
    /// Those of this batch.
    here: HashMap<String, u64>,
}

impl Keys {
    fn seq(&self, key: &str) -> Option<u64> {
        let committed = self.committed.as_ref().and_then(|keys| keys.get(key));
        self.here.get(key).or(committed).copied()
    }
}

/// The keys that requests name, for their own frames and in links.
pub(super) fn named_keys(requests: &[Prepared]) -> impl Iterator<Item = &str> {
    let parts = requests
        .iter()
        .flat_map(|one| [Some(one), one.result.as_deref()])
        .flatten();
    parts.flat_map(|part| {
        let links = part.request.links.iter().filter_map(|link| match link {
            LinkRequest::Key(_, key) => Some(key.as_str()),
            LinkRequest::Exact(_) => None,
        });
        part.request.key.as_deref().into_iter().chain(links)
    })
}

impl<'a> Batch<'a> {
    /// A batch on a chain, at a time that is not before its last frame's.
    pub(super) fn new(
        chain: Chain,
        sealed: bool,
        at: Timestamp,
        committed: Option<HashMap<String, u64>>,
        commits: HashSet<Hash>,
    ) -> Self {
        Self {
            chain,
            sealed,
            at,
            keys: Keys {
                committed,
                here: HashMap::new(),
            },
            commits,
            done: HashMap::new(),
            frames: Vec::new(),
            payloads: Vec::new(),
        }
    }

    /// Places a request, and the result that comes with it; one that is refused leaves nothing.
    pub(super) fn add(
        &mut self,
        one: &'a Prepared,
        conditions: &Conditions,
    ) -> Result<Placed, Refusal> {
        let key = one.request.key.as_deref();
        let result = one.result.as_deref();
        if let Some(key) = key
            && let Some(placed) = self.again(one, key)?
        {
            return Ok(placed);
        }
        if let Some(key) = result.and_then(|part| part.request.key.as_deref())
            && let Some(seq) = self.keys.seq(key)
        {
            return Err(Refusal::Refused(self.conflict(key, seq)));
        }
        self.place_all(one, conditions).map_err(|refusal| {
            // A retry is answered whatever has become of its run since: before the refusal comes the look.
            match (&self.keys.committed, key) {
                (None, Some(_)) => Refusal::LookUp,
                _ => refusal,
            }
        })
    }

    /// The chain as it has become, and what was added to it.
    pub(super) fn finish(self) -> (Chain, Vec<NewFrame>, Vec<NewPayload<'a>>) {
        (self.chain, self.frames, self.payloads)
    }

    fn place_all(&mut self, one: &'a Prepared, conditions: &Conditions) -> Result<Placed, Refusal> {
        let run = self.chain.run();
        if self.sealed {
            return Err(RecordError::Sealed(run.clone()).into());
        }
        if self.chain.ended() {
            return Err(RecordError::Ended(run.clone()).into());
        }
        if let Some(head) = conditions.head
            && head != self.chain.head()
        {
            return Err(Refusal::Refused(RecordError::HeadMoved {
                head: self.chain.head(),
                size: self.chain.size(),
            }));
        }
        // Nothing else makes them unique: an agent may send one again.
        let own: Vec<Hash> = one.own_commits().copied().collect();
        for (index, commit) in own.iter().enumerate() {
            if self.commits.contains(commit) || own[..index].contains(commit) {
                return Err(Refusal::Refused(RecordError::CommitUsed(*commit)));
            }
        }
        let result = one.result.as_deref();
        let mut placed = Vec::with_capacity(2);
        let (receipt, of_result) = if result.is_none() && !self.closes_turn(one.request.kind) {
            // One frame: the chain is as it was where it is refused.
            let placing = (&self.keys, self.at);
            let receipt = place_one(&mut self.chain, &mut placed, placing, one, None)?;
            (receipt, None)
        } else {
            // Placed on a copy: what is refused half way, after a turn_end that it needed, leaves nothing.
            let mut chain = self.chain.clone();
            let placing = (&self.keys, self.at);
            let receipt = place_one(&mut chain, &mut placed, placing, one, None)?;
            let answers = Some(receipt.seq);
            let of_result = result
                .map(|result| place_one(&mut chain, &mut placed, placing, result, answers))
                .transpose()?;
            self.chain = chain;
            (receipt, of_result)
        };
        self.commits.extend(own);
        for frame in &placed {
            self.keys.here.insert(frame.key.clone(), frame.seq);
        }
        self.frames.append(&mut placed);
        if let (Some(part), Some(receipt)) = (result, &of_result) {
            // The result alone is the same frame again, as it will be once the batch is stored.
            self.remember(part, Appended::new(receipt.clone(), None));
            self.payloads.extend(part.rows(receipt.seq));
        }
        self.payloads.extend(one.rows(receipt.seq));
        let appended = Appended::new(receipt, of_result);
        self.remember(one, appended.clone());
        let signed = conditions.signed.then(|| Box::new(self.chain.clone()));
        Ok(Placed::Here(appended, signed))
    }

    fn remember(&mut self, one: &'a Prepared, appended: Appended) {
        if let Some(key) = one.request.key.as_deref() {
            self.done.insert(key, (one.fingerprint(), appended));
        }
    }

    /// Whether the frame of a kind closes the open turn, and so may be two frames.
    fn closes_turn(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Turn | Kind::SessionEnd) && self.chain.open_turn().is_some()
    }

    /// A request whose key has its frame, in this batch or before.
    fn again(&self, one: &Prepared, key: &str) -> Result<Option<Placed>, Refusal> {
        let Some(seq) = self.keys.seq(key) else {
            return Ok(None);
        };
        match self.done.get(key) {
            Some((fingerprint, appended)) if *fingerprint == one.fingerprint() => {
                let again = Appended {
                    created: false,
                    ..appended.clone()
                };
                Ok(Some(Placed::Here(again, None)))
            }
            Some(_) => Err(Refusal::Refused(self.conflict(key, seq))),
            None if self.keys.here.contains_key(key) => {
                Err(Refusal::Refused(self.conflict(key, seq)))
            }
            None => Ok(Some(Placed::Known(seq))),
        }
    }

    fn conflict(&self, key: &str, seq: u64) -> RecordError {
        RecordError::KeyConflict {
            key: key.to_owned(),
            run: self.chain.run().clone(),
            seq,
        }
    }
}

/// Places one frame, and the `turn_end` that it needs.
fn place_one(
    chain: &mut Chain,
    placed: &mut Vec<NewFrame>,
    (keys, at): (&Keys, Timestamp),
    one: &Prepared,
    answers: Option<u64>,
) -> Result<Receipt, Refusal> {
    let kind = one.request.kind;
    let turn = turn_of(chain, placed, at, kind, one.request.turn)?;
    let mut links = resolve_links(chain, placed, keys, &one.request.links)?;
    links.extend(answers.map(|seq| Link {
        hash: None,
        rel: Rel::Answers,
        run: None,
        seq: Some(seq),
    }));
    let key = one
        .request
        .key
        .clone()
        .unwrap_or_else(|| format!("{STORE_ID}/frame/{}", chain.size()));
    let mut draft = Draft {
        key,
        turn,
        ..one.draft(&links)
    };
    // Whoever signs a turn_end counted its frames; whether that is so, the chain finds.
    if kind == Kind::TurnEnd && draft.submitted.is_none() {
        draft.body = turn_end(chain).map(|end| end.body).unwrap_or_default();
    }
    let frame = place(chain, &draft, at, Some(one.mac))?;
    let receipt = receipt(chain, &frame);
    placed.push(frame);
    Ok(receipt)
}

/// The turn of a frame; closes the open one where a turn or the end of the run follows.
fn turn_of(
    chain: &mut Chain,
    placed: &mut Vec<NewFrame>,
    at: Timestamp,
    kind: Kind,
    choice: TurnChoice,
) -> Result<Option<u64>, RecordError> {
    match kind {
        Kind::Turn => {
            placed.extend(close_turn(chain, at)?);
            let next = chain.turns() + 1;
            match choice {
                TurnChoice::Number(asked) if asked != next => {
                    Err(RecordError::TurnNumber { asked, next })
                }
                _ => Ok(Some(next)),
            }
        }
        Kind::SessionEnd => {
            placed.extend(close_turn(chain, at)?);
            Ok(None)
        }
        _ => match (choice, chain.open_turn()) {
            (TurnChoice::Number(asked), open) if open != Some(asked) => {
                Err(RecordError::TurnNotOpen { asked, open })
            }
            (_, None) if kind == Kind::TurnEnd => Err(RecordError::TurnNotOpen {
                asked: chain.turns(),
                open: None,
            }),
            (TurnChoice::RunLevel, _) => Ok(None),
            (_, open) => Ok(open),
        },
    }
}

fn resolve_links(
    chain: &Chain,
    placed: &[NewFrame],
    keys: &Keys,
    requested: &[LinkRequest],
) -> Result<Vec<Link>, Refusal> {
    let missing = |index: usize, wanted: String| {
        Refusal::Refused(RecordError::NoLink {
            pointer: format!("/links/{index}"),
            wanted,
        })
    };
    let resolve = |(index, link): (usize, &LinkRequest)| match link {
        LinkRequest::Exact(link) => match link.seq {
            Some(seq) if seq >= chain.size() => Err(missing(index, format!("frame {seq}"))),
            _ => Ok(link.clone()),
        },
        LinkRequest::Key(rel, key) => {
            let here = placed
                .iter()
                .find(|frame| frame.key == *key)
                .map(|frame| frame.seq);
            let seq = here.or_else(|| keys.seq(key)).ok_or_else(|| {
                if keys.committed.is_none() {
                    return Refusal::LookUp;
                }
                missing(index, format!("the one with key {key:?}"))
            })?;
            Ok(Link {
                hash: None,
                rel: *rel,
                run: None,
                seq: Some(seq),
            })
        }
    };
    requested.iter().enumerate().map(resolve).collect()
}
