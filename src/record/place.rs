//! Placing: the one place that extends a chain. Whoever calls holds the run's lock.

use super::RecordError;
use super::append::{Appended, Conditions};
use super::intake::{LinkRequest, RESULT_KEY, TurnChoice};
use super::prepare::Prepared;
use crate::store::frames::NewFrame;
use crate::store::payloads::NewPayload;
use crate::store::{self, Tx};
use crate::vault::RunKeys;
use onrecord_core::chain::{Chain, FrameCode};
use onrecord_core::digest::leaf_hash;
use onrecord_core::frame::{Actor, ActorType, Draft, Frame, Kind, Link, Rel};
use onrecord_core::id::RunId;
use onrecord_core::json;
use onrecord_core::limits;
use onrecord_core::receipt::Receipt;
use onrecord_core::timestamp::Timestamp;
use std::collections::HashMap;

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
    let bytes = chain.place(draft, at).map_err(|fault| match fault.code {
        FrameCode::FrameJson
            if draft.body.len() + 512 * draft.payloads.len() > limits::FRAME_BYTES / 4 =>
        {
            RecordError::FrameTooLarge {
                bytes: draft.body.len(),
            }
        }
        _ => RecordError::Fault(fault),
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

/// The frame that a key was used for, if the request is the same. Where a payload of the frame was
/// erased the sameness can no longer be told, and the key decides.
pub(crate) async fn retried(
    tx: &mut Tx,
    run: &RunId,
    key: &str,
    keys: &RunKeys,
    fingerprint: &[u8],
) -> Result<Option<Appended>, RecordError> {
    let result_key = format!("{key}{RESULT_KEY}");
    let mut found = store::frames::with_keys(tx, run, &[key, &result_key]).await?;
    let Some(frame) = found.remove(key) else {
        return Ok(None);
    };
    let seq = frame.receipt.seq;
    let conflict = || RecordError::KeyConflict {
        key: key.to_owned(),
        run: run.clone(),
        seq,
    };
    let mac = frame.request_mac.ok_or_else(conflict)?;
    let stored = store::payloads::keys_of_frames(tx, run, &[seq])
        .await?
        .remove(&seq)
        .unwrap_or_default();
    let committed = store::frames::bytes(tx, run, seq)
        .await?
        .and_then(|(bytes, _)| {
            Frame::parse(&bytes)
                .ok()
                .map(|frame| frame.payloads().len())
        });
    if committed == Some(stored.len()) {
        let stored: Vec<_> = stored
            .into_iter()
            .map(|payload| (payload.tier, payload.commit, payload.wrapped_dek))
            .collect();
        if !keys.same_request(&stored, fingerprint, &mac)? {
            return Err(conflict());
        }
    }
    let result = found.remove(&result_key).map(|frame| frame.receipt);
    Ok(Some(Appended {
        receipt: frame.receipt,
        created: false,
        result,
        signed: None,
    }))
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
            return match self.done.get(key) {
                Some((fingerprint, appended)) if *fingerprint == one.fingerprint => Ok(Appended {
                    created: false,
                    ..appended.clone()
                }),
                Some(_) => Err(RecordError::KeyConflict {
                    key: key.clone(),
                    run: run.clone(),
                    seq: *seq,
                }),
                None => retried(tx, run, key, keys, &one.fingerprint)
                    .await?
                    .ok_or_else(|| store::contradiction("frames", "key", key).into()),
            };
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
        if let (Some(part), Some(receipt)) = (one.result.take(), &result) {
            self.payloads.extend(part.rows(receipt.seq));
        }
        let (key, fingerprint) = (one.request.key.take(), std::mem::take(&mut one.fingerprint));
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
                (TurnChoice::RunLevel, _) if kind != Kind::TurnEnd => Ok(None),
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
