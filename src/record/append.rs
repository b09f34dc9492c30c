//! Appending: frames get their places in a run, several in one transaction.
//!
//! The run's row is locked from the first look to the commit, so whoever appends sees the true head,
//! in this process or another. What was prepared before the lock (commitments, ciphertexts) depends on
//! no place.

use super::intake::{FrameRequest, LinkRequest, RESULT_KEY, TurnChoice};
use super::open::state_of;
use super::{RecordError, Recorder};
use crate::access::Caller;
use crate::ledger::later;
use crate::store::frames::NewFrame;
use crate::store::payloads::NewPayload;
use crate::store::{self, Tx};
use crate::vault::{RunKeys, SealedPayload};
use onrecord_core::chain::{Chain, FrameCode};
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::frame::{Actor, ActorType, Draft, Frame, Kind, Link, PayloadRef, Rel};
use onrecord_core::id::RunId;
use onrecord_core::json;
use onrecord_core::limits;
use onrecord_core::receipt::Receipt;
use onrecord_core::statement::{FRAMES_SUBJECT, Predicate, RunHead};
use onrecord_core::timestamp::Timestamp;
use std::collections::HashMap;

/// The store's id as an actor, and the beginning of its keys.
pub(crate) const STORE_ID: &str = "onrecord";
/// Payload bytes from which encryption moves off the threads that serve requests.
const OFFLOAD_BYTES: usize = 256 * 1024;

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

/// A request whose payloads are committed to and encrypted.
pub(crate) struct Prepared {
    pub(crate) request: FrameRequest,
    pub(crate) mac: [u8; 32],
    fingerprint: Vec<u8>,
    actor: Actor,
    payloads: Vec<SealedPayload>,
    result: Option<Box<Prepared>>,
}

impl Prepared {
    /// Commits to the payloads of a request and encrypts them; the request keeps none of them.
    pub(crate) async fn new(
        mut request: FrameRequest,
        actor: Actor,
        keys: &RunKeys,
    ) -> Result<Self, RecordError> {
        let fingerprint = request.fingerprint();
        let plaintexts: Vec<Vec<u8>> = request
            .payloads
            .iter_mut()
            .map(|payload| std::mem::take(&mut payload.bytes))
            .collect();
        let bytes: usize = plaintexts.iter().map(Vec::len).sum();
        let seal = || {
            let sealed = request
                .payloads
                .iter()
                .zip(plaintexts)
                .map(|(payload, plaintext)| {
                    keys.seal(i16::from(payload.tier), &payload.media, plaintext)
                });
            sealed.collect::<Result<Vec<_>, _>>()
        };
        let payloads = if bytes > OFFLOAD_BYTES
            && tokio::runtime::Handle::current().runtime_flavor()
                == tokio::runtime::RuntimeFlavor::MultiThread
        {
            tokio::task::block_in_place(seal)
        } else {
            seal()
        }?;
        let mac = keys.request_mac(&payloads, &fingerprint)?;
        Ok(Self {
            request,
            mac,
            fingerprint,
            actor,
            payloads,
            result: None,
        })
    }

    /// The frame without its place.
    pub(crate) fn draft(&self, links: &[Link]) -> Draft {
        let sizes = self.request.payloads.iter().zip(&self.payloads);
        Draft {
            kind: self.request.kind,
            key: self.request.key.clone().unwrap_or_default(),
            occurred_at: self.request.occurred_at,
            turn: None,
            actor: self.actor.clone(),
            body: self.request.body.clone(),
            payloads: sizes
                .map(|(payload, sealed)| PayloadRef {
                    commit: sealed.commit,
                    kept: None,
                    media: payload.media.clone(),
                    name: payload.name.clone(),
                    redactions: None,
                    size: sealed.size,
                    tier: payload.tier,
                })
                .collect(),
            links: links.to_vec(),
            trace: self.request.trace.clone(),
        }
    }

    /// The payloads of the frame at its place.
    pub(crate) fn rows(self, seq: u64) -> Vec<NewPayload> {
        let pairs = self.request.payloads.into_iter().zip(self.payloads);
        (0..)
            .zip(pairs)
            .map(|(place, (payload, sealed))| NewPayload {
                commit: sealed.commit,
                seq,
                place,
                media: payload.media,
                tier: i16::from(payload.tier),
                size: sealed.size,
                wrapped_dek: sealed.wrapped_dek,
                ciphertext: sealed.ciphertext,
            })
            .collect()
    }
}

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

impl Recorder {
    /// Appends frames to a run in one transaction, each with its own result: a refused one takes no
    /// place and does not hinder the others. An error of the whole means that none of them was placed,
    /// or that it is not known.
    pub async fn append(
        &self,
        caller: Caller,
        run: RunId,
        requests: Vec<FrameRequest>,
        conditions: Conditions,
    ) -> Result<Vec<Result<Appended, RecordError>>, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            recorder
                .append_now(&caller, &run, requests, &conditions)
                .await
        })
        .await
    }

    async fn append_now(
        &self,
        caller: &Caller,
        run: &RunId,
        requests: Vec<FrameRequest>,
        conditions: &Conditions,
    ) -> Result<Vec<Result<Appended, RecordError>>, RecordError> {
        let tenant_keys = self.keys(&caller.tenant).await?;
        let mut tx = self.store.begin(&caller.tenant).await?;
        let wrapped = store::runs::keys(&mut tx, run).await?;
        tx.commit().await.map_err(store::StoreError::from)?;
        if wrapped.is_empty() {
            return Err(RecordError::NoRun(run.clone()));
        }
        let keys = tenant_keys.open_run(run, &wrapped)?;
        let mut prepared = Vec::with_capacity(requests.len());
        for request in requests {
            prepared.push(prepare(caller, request, &keys).await);
        }

        let mut tx = self.store.begin(&caller.tenant).await?;
        let (row, now) = store::runs::lock(&mut tx, run)
            .await?
            .ok_or_else(|| RecordError::NoRun(run.clone()))?;
        let before = row.chain.head();
        let sealed = row.sealed.is_some();
        let at = later(now, row.chain.last_at())
            .map_err(|behind_ms| RecordError::ClockBehind { behind_ms })?;
        let known = known_keys(&mut tx, run, &prepared).await?;
        let mut batch = Batch {
            chain: row.chain,
            at,
            known,
            done: HashMap::new(),
            frames: Vec::new(),
            payloads: Vec::new(),
        };
        let mut results = Vec::with_capacity(prepared.len());
        for one in prepared {
            let result = match one {
                Ok(one) => {
                    batch
                        .add(&mut tx, run, &keys, one, sealed, conditions)
                        .await
                }
                Err(error) => Err(error),
            };
            results.push(result);
        }
        if !batch.frames.is_empty() {
            store::frames::insert(&mut tx, &caller.tenant, run, &batch.frames).await?;
            if !batch.payloads.is_empty() {
                store::payloads::insert(&mut tx, &caller.tenant, run, &batch.payloads).await?;
            }
            store::runs::update_head(&mut tx, &before, &batch.chain).await?;
        }
        // A crash before this line leaves nothing of the batch, after it all of it. Where the answer of
        // the commit is lost the writers ask again with their keys and find their frames.
        tx.commit().await.map_err(store::StoreError::from)?;
        if conditions.signed {
            for appended in results.iter_mut().flatten() {
                let last = appended.result.as_ref().unwrap_or(&appended.receipt);
                appended.signed = Some(
                    self.head_now(&caller.tenant, run, Some(last.seq + 1))
                        .await?,
                );
            }
        }
        Ok(results)
    }

    /// A signed `run-head` of a run at a size, or at its present one.
    pub async fn head(
        &self,
        caller: Caller,
        run: RunId,
        size: Option<u64>,
    ) -> Result<String, RecordError> {
        let recorder = self.clone();
        self.detached(async move { recorder.head_now(&caller.tenant, &run, size).await })
            .await
    }

    async fn head_now(
        &self,
        tenant: &onrecord_core::id::TenantId,
        run: &RunId,
        size: Option<u64>,
    ) -> Result<String, RecordError> {
        let keys = self.keys(tenant).await?;
        let mut tx = self.store.snapshot(tenant).await?;
        let row = store::runs::find(&mut tx, run)
            .await?
            .ok_or_else(|| RecordError::NoRun(run.clone()))?;
        let size = size.unwrap_or(row.chain.size());
        if size == 0 || size > row.chain.size() {
            return Err(RecordError::NoFrame {
                run: run.clone(),
                seq: size.saturating_sub(1),
            });
        }
        let chain = if size == row.chain.size() {
            row.chain
        } else {
            chain_at(&mut tx, row.chain, size).await?
        };
        tx.commit().await.map_err(store::StoreError::from)?;
        let at = chain
            .last_at()
            .ok_or_else(|| store::contradiction("runs", "last_at", run))?;
        let head = Predicate::RunHead(RunHead {
            at,
            state: state_of(&chain),
        });
        let envelope =
            keys.seal()
                .sign(tenant, &head, Some((FRAMES_SUBJECT, chain.file_digest())))?;
        Ok(String::from_utf8_lossy(&envelope).into_owned())
    }
}

/// The chain as it was at a smaller size, from the frames.
async fn chain_at(tx: &mut Tx, now: Chain, size: u64) -> Result<Chain, RecordError> {
    let mut chain = Chain::new(now.tenant().clone(), now.run().clone());
    while chain.size() < size {
        let limit = u32::try_from((size - chain.size()).min(1_000)).unwrap_or(1_000);
        let page = store::frames::page(tx, now.run(), chain.size(), limit).await?;
        if page.is_empty() {
            return Err(store::contradiction(
                "frames",
                "seq",
                format!("{}/{}", now.run(), chain.size()),
            )
            .into());
        }
        for bytes in page {
            chain.extend(&bytes, None).map_err(RecordError::Fault)?;
        }
    }
    Ok(chain)
}

async fn prepare(
    caller: &Caller,
    mut request: FrameRequest,
    keys: &RunKeys,
) -> Result<Prepared, RecordError> {
    let actor = caller.speak(request.actor.clone(), request.kind)?;
    if matches!(request.kind, Kind::TurnEnd) && request.body != b"{}" {
        return Err(shape_error(
            "/body",
            "the store counts a turn itself; leave the body of a turn_end out",
        ));
    }
    // Sameness is that of the whole request, so the call is fingerprinted with its result.
    let fingerprint = request.fingerprint();
    let result = request.result.take();
    let mut prepared = Prepared::new(request, actor, keys).await?;
    prepared.mac = keys.request_mac(&prepared.payloads, &fingerprint)?;
    prepared.fingerprint = fingerprint;
    if let Some(mut result) = result {
        let actor = result
            .actor
            .clone()
            .or_else(|| tool_actor(caller, &prepared));
        let actor = caller.speak(actor, result.kind)?;
        if let (None, Some(key)) = (&result.key, &prepared.request.key) {
            let key = format!("{key}{RESULT_KEY}");
            super::intake::check_key("/key", &key)?;
            result.key = Some(key);
        }
        prepared.result = Some(Box::new(Prepared::new(*result, actor, keys).await?));
    }
    Ok(prepared)
}

/// The tool that a call names, if the caller may write as a tool.
fn tool_actor(caller: &Caller, call: &Prepared) -> Option<Actor> {
    #[derive(serde::Deserialize)]
    struct Named {
        name: String,
    }
    let named: Named = serde_json::from_slice(&call.request.body).ok()?;
    let actor = Actor {
        id: named.name,
        keyid: None,
        kind: ActorType::Tool,
    };
    let fits = onrecord_core::frame::check_actor(&actor).is_ok()
        && caller.speak(Some(actor.clone()), Kind::ToolResult).is_ok();
    fits.then_some(actor)
}

fn shape_error(pointer: &str, detail: &str) -> RecordError {
    use super::intake::{IntakeCode, IntakeError};
    IntakeError {
        code: IntakeCode::Shape,
        pointer: pointer.to_owned(),
        detail: detail.to_owned(),
    }
    .into()
}

/// All keys that the batch names, for its own frames or for links, with the frames that have them.
async fn known_keys(
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
struct Batch {
    chain: Chain,
    at: Timestamp,
    known: HashMap<String, u64>,
    /// Requests of this batch that have their places, by key: the same one may come twice.
    done: HashMap<String, (Vec<u8>, Appended)>,
    frames: Vec<NewFrame>,
    payloads: Vec<NewPayload>,
}

impl Batch {
    async fn add(
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
