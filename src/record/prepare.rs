//! Preparing: what of a frame depends on no place is done before the run's lock is taken.

use super::RecordError;
use super::intake::{FrameRequest, IntakeCode, IntakeError, RESULT_KEY};
use crate::access::Caller;
use crate::store::payloads::NewPayload;
use crate::vault::{RunKeys, SealedPayload};
use onrecord_core::frame::{Actor, ActorType, Draft, Kind, Link, PayloadRef};

/// Payload bytes from which encryption moves off the threads that serve requests.
const OFFLOAD_BYTES: usize = 256 * 1024;

/// A request whose payloads are committed to and encrypted.
pub(crate) struct Prepared {
    pub(crate) request: FrameRequest,
    pub(crate) mac: [u8; 32],
    pub(super) fingerprint: Vec<u8>,
    actor: Actor,
    payloads: Vec<SealedPayload>,
    pub(super) result: Option<Box<Prepared>>,
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

/// Prepares a request, and the result that comes with it.
pub(super) async fn prepare(
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
    IntakeError {
        code: IntakeCode::Shape,
        pointer: pointer.to_owned(),
        detail: detail.to_owned(),
    }
    .into()
}
