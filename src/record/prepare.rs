//! Preparing: what of a frame depends on no place is each request's own work, before the frame is handed over.

use super::classes::Classes;
use super::intake::{FrameRequest, IntakeCode, IntakeError, PayloadRequest, RESULT_KEY};
use super::own::Own;
use super::signed::{self, Signers};
use super::{RecordError, redaction};
use crate::access::Caller;
use crate::redact::RuleSet;
use crate::store::frames::Mac;
use crate::store::payloads::NewPayload;
use crate::vault::{RunKeys, SealedPayload};
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Actor, ActorType, Draft, Kind, Link, PayloadRef, Redaction};

/// Payload bytes from which encryption moves off the threads that serve requests.
const OFFLOAD_BYTES: usize = 256 * 1024;

/// How much longer it takes to look for secrets than to encrypt, where somebody wrote what is hard to look through.
const REDACTION_WEIGHT: usize = 8;

/// A request whose payloads are committed to and encrypted.
pub(crate) struct Prepared {
    pub(crate) request: FrameRequest,
    pub(crate) mac: Mac,
    fingerprint: Vec<u8>,
    actor: Actor,
    payloads: Vec<SealedPayload>,
    /// Of each payload the fingerprints of its subjects.
    subjects: Vec<Option<Vec<u8>>>,
    redactions: Vec<Option<Vec<Redaction>>>,
    /// Version of the run's keys that the payloads were wrapped with.
    keys: i16,
    pub(super) result: Option<Box<Prepared>>,
}

impl Prepared {
    /// Commits to the payloads of a request and encrypts them; the request keeps none of them. `result` comes
    /// with it.
    pub(crate) fn new(
        mut request: FrameRequest,
        actor: Actor,
        fingerprint: Vec<u8>,
        result: Option<Box<Self>>,
        keys: &RunKeys,
        (rules, classes): (Option<&RuleSet>, &Classes),
    ) -> Result<Self, RecordError> {
        // Behind its fingerprint, which is that of what was sent: the classes may be others when it is sent again.
        classes.give(&mut request);
        let redactions = redaction::listed(rules, &mut request, keys)?;
        let named = request
            .payloads
            .iter()
            .map(|payload| keys.subjects(&payload.subjects));
        let subjects = named.collect::<Result<_, _>>()?;
        let plaintexts: Vec<Vec<u8>> = request
            .payloads
            .iter_mut()
            .map(|payload| std::mem::take(&mut payload.bytes))
            .collect();
        let bytes: usize = plaintexts.iter().map(Vec::len).sum();
        let sealed = || {
            let payloads = request.payloads.iter_mut().zip(plaintexts).enumerate();
            let sealed =
                payloads.map(|(index, (payload, plaintext))| seal(keys, payload, plaintext, index));
            sealed.collect::<Result<Vec<_>, RecordError>>()
        };
        let payloads = offload(bytes, sealed)?;
        // The key of the fingerprint needs every payload that it tells of, those of the result too, so that
        // erasing one of them takes the fingerprint with it.
        let of_result = result.iter().flat_map(|result| &result.payloads);
        let mac = keys.request_mac(payloads.iter().chain(of_result), &fingerprint)?;
        Ok(Self {
            request,
            mac,
            fingerprint,
            actor,
            payloads,
            subjects,
            redactions,
            keys: keys.version(),
            result,
        })
    }

    /// The version of the run's keys that the payloads were wrapped with; `None` where there are none.
    pub(super) fn key_version(&self) -> Option<i16> {
        let of_result = self.result.as_deref().and_then(Self::key_version);
        (!self.payloads.is_empty())
            .then_some(self.keys)
            .max(of_result)
    }

    /// Wraps the payloads again, with the newest keys of the run.
    pub(super) fn rewrap(&mut self, keys: &RunKeys) -> Result<(), RecordError> {
        for (payload, sealed) in self.request.payloads.iter().zip(&mut self.payloads) {
            keys.rewrap_new(i16::from(payload.tier), sealed)?;
        }
        self.keys = keys.version();
        match &mut self.result {
            Some(result) => result.rewrap(keys),
            None => Ok(()),
        }
    }

    /// What a retry of the request is told by.
    pub(super) fn sameness<'a>(&'a self, key: &'a str) -> Sameness<'a> {
        Sameness {
            key,
            result_key: self
                .result
                .as_deref()
                .and_then(|result| result.request.key.as_deref()),
            fingerprint: &self.fingerprint,
        }
    }

    /// What a retry in the same batch is told by.
    pub(super) fn fingerprint(&self) -> &[u8] {
        &self.fingerprint
    }

    /// Bytes that wait with it.
    pub(super) fn bytes(&self) -> usize {
        let payloads = self.payloads.iter().map(|one| one.ciphertext.len());
        let result = self.result.as_deref().map_or(0, Self::bytes);
        self.request.body.len() + self.fingerprint.len() + payloads.sum::<usize>() + result
    }

    /// The frame without its place.
    pub(crate) fn draft(&self, links: &[Link]) -> Draft {
        let sealed = self.payloads.iter().zip(&self.redactions);
        let payloads = self.request.payloads.iter().zip(sealed);
        Draft {
            kind: self.request.kind,
            key: self.request.key.clone().unwrap_or_default(),
            occurred_at: self.request.occurred_at,
            turn: None,
            actor: self.actor.clone(),
            body: self.request.body.clone(),
            payloads: payloads
                .map(|(payload, (sealed, redactions))| PayloadRef {
                    commit: sealed.commit,
                    kept: payload
                        .own
                        .as_ref()
                        .is_some_and(Own::is_kept)
                        .then_some(false),
                    media: payload.media.clone(),
                    name: payload.name.clone(),
                    redactions: redactions.clone(),
                    size: sealed.size,
                    tier: payload.tier,
                })
                .collect(),
            links: links.to_vec(),
            trace: self.request.trace.clone(),
            submitted: self.request.submitted.clone(),
        }
    }

    /// The commitments that the agent made, which might be in the run already.
    pub(super) fn own_commits(&self) -> impl Iterator<Item = &Hash> {
        let of_result = self
            .result
            .iter()
            .flat_map(|result| &result.request.payloads);
        let payloads = self.request.payloads.iter().chain(of_result);
        payloads.filter_map(|payload| payload.own.as_ref().map(Own::commit))
    }

    /// The payloads of the frame at its place.
    pub(crate) fn rows(&self, seq: u64) -> impl Iterator<Item = NewPayload<'_>> {
        let sealed = self.payloads.iter().zip(&self.subjects);
        let pairs = self.request.payloads.iter().zip(sealed);
        (0..)
            .zip(pairs)
            .map(move |(place, (payload, (sealed, subjects)))| NewPayload {
                commit: sealed.commit,
                seq,
                place,
                media: &payload.media,
                tier: i16::from(payload.tier),
                size: sealed.size,
                wrapped_dek: &sealed.wrapped_dek,
                key_version: sealed.key_version,
                ciphertext: &sealed.ciphertext,
                subjects: subjects.as_deref(),
            })
    }
}

/// Encrypts a payload, unless the agent keeps it.
fn seal(
    keys: &RunKeys,
    payload: &mut PayloadRequest,
    plaintext: Vec<u8>,
    index: usize,
) -> Result<SealedPayload, RecordError> {
    let tier = i16::from(payload.tier);
    match &mut payload.own {
        None => Ok(keys.seal(tier, &payload.media, plaintext)?),
        Some(Own::Kept { commit, size }) => Ok(SealedPayload::kept(*commit, *size)),
        Some(Own::Sent { commit, dek }) => {
            let dek = std::mem::take(&mut dek.0);
            let sealed = keys.seal_under(dek, tier, &payload.media, plaintext)?;
            if sealed.commit != *commit {
                return Err(IntakeError {
                    code: IntakeCode::Commitment,
                    pointer: format!("/payloads/{index}/commit"),
                    detail: format!(
                        "the payload and its key come to {}, not to {commit}",
                        sealed.commit
                    ),
                }
                .into());
            }
            Ok(sealed)
        }
    }
}

/// The fingerprint of a request, which reads all its payloads.
pub(super) fn fingerprint(request: &FrameRequest) -> Vec<u8> {
    offload(bytes(request), || request.fingerprint())
}

/// Takes the secrets out of a request, where the server has rules.
pub(super) fn redact(
    rules: Option<&RuleSet>,
    request: &mut FrameRequest,
) -> Result<(), RecordError> {
    match rules {
        Some(rules) => {
            let of_result = request.result.iter().map(|result| result.body.len());
            let bodies = request.body.len() + of_result.sum::<usize>();
            let weight = (bytes(request) + bodies).saturating_mul(REDACTION_WEIGHT);
            Ok(offload(weight, || redaction::redact(rules, request))?)
        }
        None => Ok(()),
    }
}

/// Bytes of all payloads of a request.
fn bytes(request: &FrameRequest) -> usize {
    let of_result = request.result.iter().flat_map(|result| &result.payloads);
    let payloads = request.payloads.iter().chain(of_result);
    payloads.map(|payload| payload.bytes.len()).sum()
}

/// Does work over so many bytes, away from the requests that share this thread where it takes long.
pub(crate) fn offload<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    // A runtime of one thread has no other that could take the requests over.
    if bytes > OFFLOAD_BYTES && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

/// What tells a retry from another request with the same key.
#[derive(Clone, Copy)]
pub(crate) struct Sameness<'a> {
    /// The request's key.
    pub(crate) key: &'a str,
    /// Key of the result that comes with a call.
    pub(crate) result_key: Option<&'a str>,
    /// [`FrameRequest::fingerprint`], with the actors in whose names it is written.
    pub(crate) fingerprint: &'a [u8],
}

/// Prepares a request, and the result that comes with it.
pub(super) fn prepare(
    caller: &Caller,
    mut request: FrameRequest,
    keys: &RunKeys,
    (rules, classes): (Option<&RuleSet>, &Classes),
    signers: &Signers<'_>,
) -> Result<Prepared, RecordError> {
    let actor = caller.speak(request.actor.take(), request.kind)?;
    request.actor = Some(actor.clone());
    signed::check_form(&request, &actor)?;
    let is_signed = request.submitted.is_some();
    if matches!(request.kind, Kind::TurnEnd) && request.body != b"{}" && !is_signed {
        return Err(shape_error(
            "/body",
            "the store counts a turn itself; leave the body of a turn_end out",
        ));
    }
    if let Some(mut result) = request.result.take() {
        complete(caller, &request, &mut result)?;
        request.result = Some(result);
    }
    // Sameness is that of the whole request, so the call is fingerprinted with its result, and in the
    // names of whoever writes: the same words of somebody else are another frame. It is that of what was
    // sent, secrets and all: another secret is another request, and rules may be others by then.
    let fingerprint = fingerprint(&request);
    let alone = request.result.as_deref().map(self::fingerprint);
    redact(rules, &mut request)?;
    let result = request.result.take().zip(alone).map(|(result, alone)| {
        let actor = caller.speak(result.actor.clone(), result.kind)?;
        signed::check_form(&result, &actor).map_err(of_result)?;
        signers.check_unsigned(result.kind, &actor)?;
        Prepared::new(*result, actor, alone, None, keys, (rules, classes)).map(Box::new)
    });
    let result = result.transpose()?;
    let prepared = Prepared::new(
        request,
        actor.clone(),
        fingerprint,
        result,
        keys,
        (rules, classes),
    )?;
    signers.check(&prepared, &actor)?;
    Ok(prepared)
}

/// What is wrong with a result, where it stands.
fn of_result(error: IntakeError) -> IntakeError {
    IntakeError {
        pointer: format!("/result{}", error.pointer),
        ..error
    }
}

/// Gives a result its actor and its key, where the writer left them to the store.
fn complete(
    caller: &Caller,
    call: &FrameRequest,
    result: &mut FrameRequest,
) -> Result<(), RecordError> {
    let asked = result.actor.take().or_else(|| tool_actor(caller, call));
    result.actor = Some(caller.speak(asked, result.kind)?);
    match (&result.key, &call.key) {
        (None, Some(key)) => {
            let key = format!("{key}{RESULT_KEY}");
            super::intake::check_key("/key", &key)?;
            result.key = Some(key);
            Ok(())
        }
        (Some(key), Some(of_call)) if key == of_call => Err(shape_error(
            "/result/key",
            "a result has a key of its own; leave it out, or choose another than the call's",
        )),
        _ => Ok(()),
    }
}

/// The tool that a call names, if the caller may write as a tool.
fn tool_actor(caller: &Caller, call: &FrameRequest) -> Option<Actor> {
    #[derive(serde::Deserialize)]
    struct Named {
        name: String,
    }
    let named: Named = serde_json::from_slice(&call.body).ok()?;
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
    IntakeError {
        code: IntakeCode::Shape,
        pointer: pointer.to_owned(),
        detail: detail.to_owned(),
    }
    .into()
}
