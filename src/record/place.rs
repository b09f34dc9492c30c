//! Placing: the one place that extends a chain. Whoever calls holds the run's lock.

use super::RecordError;
use super::intake::{LinkRequest, TurnChoice};
use super::prepare::{Prepared, Sameness};
use crate::store::frames::NewFrame;
use crate::store::payloads::NewPayload;
use crate::store::{self, Tx};
use crate::vault::RunKeys;
use onrecord_core::chain::{Chain, FrameCode};
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::frame::{Actor, ActorType, Draft, Frame, Kind, Link, Rel};
use onrecord_core::id::RunId;
use onrecord_core::json;
use onrecord_core::limits;
use onrecord_core::receipt::Receipt;
use onrecord_core::timestamp::Timestamp;
use std::collections::HashMap;

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
    mac: Option<[u8; 32]>,
) -> Result<NewFrame, RecordError> {
    let seq = chain.size();
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
        kind: draft.kind.as_str(),
        turn: draft.turn,
        key: draft.key.clone(),
        at,
        hash: leaf_hash(&bytes),
        answers,
        request_mac: mac,
        bytes,
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

/// The keys of all payloads of some frames, as `(tier, commit, wrapped DEK)` in their order; `None`
/// where one of the payloads is not there any more.
async fn all_payload_keys(
    tx: &mut Tx,
    run: &RunId,
    seqs: &[u64],
) -> Result<Option<Vec<(i16, Hash, Vec<u8>)>>, RecordError> {
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
        keys.extend(
            of_frame
                .into_iter()
                .map(|payload| (payload.tier, payload.commit, payload.wrapped_dek)),
        );
    }
    Ok(Some(keys))
}

/// All keys that the batch names, for its own frames or for links, with the frames that have them.
pub(super) async fn known_keys(
    tx: &mut Tx,
    run: &RunId,
    prepared: &[Result<Prepared, RecordError>],
) -> Result<HashMap<String, u64>, RecordError> {
    let mut keys = Vec::new();
    for one in prepared.iter().flatten() {
        for part in [Some(one), one.result.as_deref()].into_iter().flatten() {
            keys.extend(part.request.key.as_deref());
            keys.extend(part.request.links.iter().filter_map(|link| match link {
                LinkRequest::Key(_, key) => Some(key.as_str()),
                LinkRequest::Exact(_) => None,
            }));
        }
    }
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let found = store::frames::with_keys(tx, run, &keys).await?;
    Ok(found
        .into_iter()
        .map(|(key, frame)| (key, frame.receipt.seq))
        .collect())
}

/// Frames that got their places in this transaction.
pub(super) struct Batch {
    pub(super) chain: Chain,
    at: Timestamp,
    known: HashMap<String, u64>,
    /// Requests of this batch that have their places, by key: the same one may come twice.
    done: HashMap<String, (Vec<u8>, Appended)>,
    pub(super) frames: Vec<NewFrame>,
    pub(super) payloads: Vec<NewPayload>,
}

impl Batch {
    /// A batch on a chain as it is under the lock.
    pub(super) fn new(chain: Chain, at: Timestamp, known: HashMap<String, u64>) -> Self {
        Self {
            chain,
            at,
            known,
            done: HashMap::new(),
            frames: Vec::new(),
            payloads: Vec::new(),
        }
    }

    pub(super) async fn add(
        &mut self,
        tx: &mut Tx,
        run: &RunId,
        keys: &RunKeys,
        one: Prepared,
        sealed: bool,
        conditions: &Conditions,
    ) -> Result<Appended, RecordError> {
        if let Some(key) = &one.request.key
            && let Some(seq) = self.known.get(key)
        {
            return self.again(tx, run, keys, one.sameness(key), *seq).await;
        }
        if let Some(key) = one
            .result
            .as_ref()
            .and_then(|part| part.request.key.as_ref())
            && let Some(seq) = self.known.get(key)
        {
            return Err(RecordError::KeyConflict {
                key: key.clone(),
                run: run.clone(),
                seq: *seq,
            });
        }
        if sealed {
            return Err(RecordError::Sealed(run.clone()));
        }
        if self.chain.ended() {
            return Err(RecordError::Ended(run.clone()));
        }
        if let Some(head) = conditions.head
            && head != self.chain.head()
        {
            return Err(RecordError::HeadMoved {
                head: self.chain.head(),
                size: self.chain.size(),
            });
        }
        // Placed on a copy: a frame that is refused half way, after a turn_end that it needed, leaves nothing.
        let mut chain = self.chain.clone();
        let mut placed = Vec::with_capacity(2);
        let receipt = self.place_one(&mut chain, &mut placed, &one, None)?;
        let result = one
            .result
            .as_deref()
            .map(|result| self.place_one(&mut chain, &mut placed, result, Some(receipt.seq)))
            .transpose()?;
        self.known
            .extend(placed.iter().map(|frame| (frame.key.clone(), frame.seq)));
        self.frames.append(&mut placed);
        self.chain = chain;
        let mut one = one;
        if let (Some(mut part), Some(receipt)) = (one.result.take(), &result) {
            // The result alone is the same frame again, as it will be once the batch is stored.
            if let (Some(key), fingerprint) = part.take_identity() {
                let alone = Appended {
                    receipt: receipt.clone(),
                    created: true,
                    result: None,
                    signed: None,
                };
                self.done.insert(key, (fingerprint, alone));
            }
            self.payloads.extend(part.rows(receipt.seq));
        }
        let (key, fingerprint) = one.take_identity();
        self.payloads.extend(one.rows(receipt.seq));
        let appended = Appended {
            receipt,
            created: true,
            result,
            signed: None,
        };
        if let Some(key) = key {
            self.done.insert(key, (fingerprint, appended.clone()));
        }
        Ok(appended)
    }

    /// A request whose key has its frame, in this batch or before.
    async fn again(
        &self,
        tx: &mut Tx,
        run: &RunId,
        keys: &RunKeys,
        sameness: Sameness<'_>,
        seq: u64,
    ) -> Result<Appended, RecordError> {
        let found = match self.done.get(sameness.key) {
            Some((fingerprint, appended)) => {
                (*fingerprint == sameness.fingerprint).then(|| Appended {
                    created: false,
                    ..appended.clone()
                })
            }
            // A frame that came with another one of this batch, its result or its turn's end, is not in
            // the table yet.
            None => retried(tx, run, keys, sameness).await?,
        };
        found.ok_or_else(|| RecordError::KeyConflict {
            key: sameness.key.to_owned(),
            run: run.clone(),
            seq,
        })
    }

    fn place_one(
        &self,
        chain: &mut Chain,
        placed: &mut Vec<NewFrame>,
        one: &Prepared,
        answers: Option<u64>,
    ) -> Result<Receipt, RecordError> {
        let kind = one.request.kind;
        let turn = self.turn_of(chain, placed, kind, one.request.turn)?;
        let mut links = self.links(chain, placed, &one.request.links)?;
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
        if kind == Kind::TurnEnd {
            draft.body = turn_end(chain).map(|end| end.body).unwrap_or_default();
        }
        let frame = place(chain, &draft, self.at, Some(one.mac))?;
        let receipt = receipt(chain, &frame);
        placed.push(frame);
        Ok(receipt)
    }

    /// The turn of a frame; closes the open one where a turn or the end of the run follows.
    fn turn_of(
        &self,
        chain: &mut Chain,
        placed: &mut Vec<NewFrame>,
        kind: Kind,
        choice: TurnChoice,
    ) -> Result<Option<u64>, RecordError> {
        match kind {
            Kind::Turn => {
                placed.extend(close_turn(chain, self.at)?);
                let next = chain.turns() + 1;
                match choice {
                    TurnChoice::Number(asked) if asked != next => {
                        Err(RecordError::TurnNumber { asked, next })
                    }
                    _ => Ok(Some(next)),
                }
            }
            Kind::SessionEnd => {
                placed.extend(close_turn(chain, self.at)?);
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

    fn links(
        &self,
        chain: &Chain,
        placed: &[NewFrame],
        requested: &[LinkRequest],
    ) -> Result<Vec<Link>, RecordError> {
        let missing = |index: usize, wanted: String| RecordError::NoLink {
            pointer: format!("/links/{index}"),
            wanted,
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
                let seq = here
                    .or_else(|| self.known.get(key).copied())
                    .ok_or_else(|| missing(index, format!("the one with key {key:?}")))?;
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
}
