//! Frames that agents sign (spec: `docs/spec/frames.md`, "Submitted frames"): what they have to say themselves, who has to
//! sign, and whether the signature is true. How they count is found out where they get their place.

use super::RecordError;
use super::intake::{FrameRequest, IntakeCode, IntakeError, LinkRequest, TurnChoice};
use super::own::Own;
use super::prepare::Prepared;
use crate::access::AgentKeys;
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Actor, ActorType, Kind, signature};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::submitted;
use onrecord_core::timestamp::Timestamp;

/// What a signature is checked against.
pub(super) struct Signers<'a> {
    pub(super) tenant: &'a TenantId,
    pub(super) run: &'a RunId,
    pub(super) keys: &'a AgentKeys,
    /// Hash of frame 0, where a first signature of a key is among the frames.
    pub(super) first: Option<Hash>,
}

/// Whether a frame is the first that a key signs in its run, so that frame 0 is signed along.
pub(super) fn is_first(request: &FrameRequest) -> bool {
    request.submitted.as_ref().is_some_and(|one| one.n == 1)
}

/// What a request has to say where it is signed, and may not where it is not. The actor is the one that it is written as.
pub(super) fn check_form(request: &FrameRequest, actor: &Actor) -> Result<(), IntakeError> {
    if request.submitted.is_none() {
        if actor.keyid.is_some() && request.kind == Kind::Session {
            return Err(shape(
                "/actor/keyid",
                "a session is not signed; leave it out",
            ));
        }
        if actor.keyid.is_some() {
            return Err(missing("", "submitted", "beside `actor.keyid`"));
        }
        let sent = |own: &Option<Own>| matches!(own, Some(Own::Sent { .. }));
        return match request.payloads.iter().position(|one| sent(&one.own)) {
            Some(index) => Err(shape(
                &format!("/payloads/{index}/commit"),
                "goes with a signed frame only, or with `kept: false`: leave commit and dek out",
            )),
            None => Ok(()),
        };
    }
    let keyid = request.submitted.as_ref().map(|one| one.keyid);
    if actor.keyid != keyid || actor.kind != ActorType::Agent {
        return Err(shape(
            "/actor",
            "{type, id, keyid}: an agent, and the key of `submitted`",
        ));
    }
    if request.key.is_none() {
        return Err(missing("", "key", "in a frame that is signed"));
    }
    if request.result.is_some() {
        return Err(shape(
            "/result",
            "in a signed frame the result is a frame of its own, with a link `answers`",
        ));
    }
    let by_key = |link: &LinkRequest| matches!(link, LinkRequest::Key(..));
    if let Some(index) = request.links.iter().position(by_key) {
        return Err(shape(
            &format!("/links/{index}/key"),
            "a signed frame names frames by `seq`, as they are signed",
        ));
    }
    if request.turn == TurnChoice::Open && request.kind != Kind::SessionEnd {
        return Err(missing(
            "",
            "turn",
            "in a frame that is signed: its number, or null",
        ));
    }
    match request.payloads.iter().position(|one| one.own.is_none()) {
        Some(index) => Err(missing(
            &format!("/payloads/{index}"),
            "commit",
            "in a frame that is signed, with `dek` or `kept: false`",
        )),
        None => Ok(()),
    }
}

impl Signers<'_> {
    /// Whether a frame may be written by its actor as it is, signed or not; and if it is, whether the signature is true.
    ///
    /// # Errors
    /// [`RecordError::Unsigned`], [`RecordError::AgentKey`] or [`RecordError::FalseSignature`].
    pub(super) fn check(&self, frame: &Prepared, actor: &Actor) -> Result<(), RecordError> {
        let Some(said) = &frame.request.submitted else {
            return self.check_unsigned(frame.request.kind, actor);
        };
        let unknown = || RecordError::AgentKey {
            keyid: said.keyid,
            actor: actor.id.clone(),
        };
        let known = self.keys.key(&said.keyid).ok_or_else(unknown)?;
        if known.actor != actor.id || known.revoked {
            return Err(unknown());
        }
        // What the store decides is left out of what is signed, so that anything can stand in its place.
        let at = Timestamp::from_micros(0).ok_or(RecordError::FalseSignature)?;
        let links: Vec<_> = frame.request.links.iter().filter_map(exact).collect();
        let mut draft = frame.draft(&links);
        if let TurnChoice::Number(number) = frame.request.turn {
            draft.turn = Some(number);
        }
        let bytes = draft.write(self.tenant, self.run, 0, &Hash([0; 32]), at);
        let first = self.first.filter(|_| said.n == 1);
        let message = submitted::message(&bytes, first.as_ref())
            .map_err(|_| RecordError::FrameTooLarge { bytes: bytes.len() })?;
        let sig = signature(&said.sig).ok_or(RecordError::FalseSignature)?;
        if known.key.verifies(&message, &sig) {
            Ok(())
        } else {
            Err(RecordError::FalseSignature)
        }
    }

    /// Whether an actor may write a frame that it does not sign.
    pub(super) fn check_unsigned(&self, kind: Kind, actor: &Actor) -> Result<(), RecordError> {
        if kind != Kind::Session && self.keys.must_sign(actor) {
            return Err(RecordError::Unsigned {
                actor: actor.id.clone(),
            });
        }
        Ok(())
    }
}

fn exact(link: &LinkRequest) -> Option<onrecord_core::frame::Link> {
    match link {
        LinkRequest::Exact(link) => Some(link.clone()),
        LinkRequest::Key(..) => None,
    }
}

fn missing(pointer: &str, name: &str, why: &str) -> IntakeError {
    IntakeError {
        code: IntakeCode::MissingMember,
        pointer: pointer.to_owned(),
        detail: format!("{name} is needed {why}"),
    }
}

fn shape(pointer: &str, expected: &str) -> IntakeError {
    IntakeError {
        code: IntakeCode::Shape,
        pointer: pointer.to_owned(),
        detail: expected.to_owned(),
    }
}
