//! Redaction of a request, before anything of it is hashed, written or logged.
//!
//! Secrets in payloads are taken out, and what was taken out stands on the frame. What is no payload can have no
//! placeholder, since it is what the frame says of itself: a secret there is refused.

use super::intake::{FrameRequest, IntakeCode, IntakeError};
use crate::redact::{Mark, Place, RuleSet, Shape, TELLING_BYTES};
use crate::vault::{RunKeys, VaultError};
use onrecord_core::frame::{Kind, Redaction};

/// Redactions that a frame lists one by one. Beyond, one entry stands for all of a rule in a payload, so that a
/// payload full of secrets does not make a frame that is too large.
const LISTED: usize = 100;
/// Bytes of a pointer; a longer one is cut to where the parent is.
const POINTER_BYTES: usize = 512;

/// Takes the secrets out of the payloads of a request and of its result.
///
/// # Errors
/// With the pointer, and with nothing of the secret: `secret_in_metadata`, it is in what is no payload;
/// `secret_in_signed_frame`, it is in a payload that the agent committed to, so that it cannot be taken out any more.
pub(super) fn redact(rules: &RuleSet, request: &mut FrameRequest) -> Result<(), IntakeError> {
    check(rules, request, "")?;
    if let Some(result) = &request.result {
        check(rules, result, "/result")?;
    }
    take_out(rules, request, "")?;
    if let Some(result) = &mut request.result {
        take_out(rules, result, "/result")?;
    }
    Ok(())
}

fn take_out(rules: &RuleSet, request: &mut FrameRequest, at: &str) -> Result<(), IntakeError> {
    for (index, payload) in request.payloads.iter_mut().enumerate() {
        if let Some(redacted) = rules.redact(&payload.bytes, payload.shape) {
            if payload.own.is_some() {
                let pointer = format!("{at}/payloads/{index}");
                return Err(committed(pointer, redacted.marks.first()));
            }
            payload.bytes = redacted.bytes;
            payload.marks = redacted.marks;
        }
    }
    Ok(())
}

/// A secret in a payload that is committed to.
fn committed(mut pointer: String, mark: Option<&Mark>) -> IntakeError {
    if let Some(Place::Pointer(inner)) = mark.map(|mark| &mark.place) {
        pointer.push_str("/json");
        pointer.push_str(&near(inner));
    }
    let kind = mark.map_or("secret", |mark| &mark.kind);
    IntakeError {
        code: IntakeCode::SecretInSigned,
        pointer,
        detail: format!(
            "what looks like a secret ({kind}) stands in a payload of a signed frame, where redacting would break the signature"
        ),
    }
}

/// What a frame says of its payloads' redactions, a list for each payload in their order.
pub(super) fn listed(
    rules: Option<&RuleSet>,
    request: &mut FrameRequest,
    keys: &RunKeys,
) -> Result<Vec<Option<Vec<Redaction>>>, VaultError> {
    let Some(rules) = rules else {
        return Ok(vec![None; request.payloads.len()]);
    };
    let mut room = LISTED;
    let payloads = request.payloads.iter_mut();
    payloads
        .map(|payload| {
            let marks = std::mem::take(&mut payload.marks);
            let mut list: Vec<Redaction> = Vec::new();
            let mut summed = 0;
            for mark in marks {
                if room > 0 {
                    room -= 1;
                    summed = list.len() + 1;
                    list.push(redaction(rules, &mark, keys)?);
                } else {
                    sum(rules, &mut list, summed, &mark);
                }
            }
            Ok((!list.is_empty()).then_some(list))
        })
        .collect()
}

fn redaction(rules: &RuleSet, mark: &Mark, keys: &RunKeys) -> Result<Redaction, VaultError> {
    let telling = mark.secret.len() >= TELLING_BYTES;
    let fingerprint = telling.then(|| keys.secret_fingerprint(&mark.secret));
    let (pointer, range) = match &mark.place {
        Place::Pointer(pointer) => (Some(near(pointer)), None),
        Place::Range(start, end) => (None, Some((*start, *end))),
    };
    Ok(Redaction {
        fingerprint: fingerprint.transpose()?,
        kind: mark.kind.clone(),
        pointer,
        range,
        rule: mark.rule.clone(),
        rules: rules.version().to_owned(),
    })
}

/// Adds a mark to the entry that stands for all of its rule; those from `from` on are such.
fn sum(rules: &RuleSet, list: &mut Vec<Redaction>, from: usize, mark: &Mark) {
    let known = list[from..]
        .iter_mut()
        .find(|one| one.rule == mark.rule && one.kind == mark.kind);
    let (pointer, range) = match &mark.place {
        Place::Pointer(_) => (Some(String::new()), None),
        Place::Range(start, end) => (None, Some((*start, *end))),
    };
    match known {
        Some(known) => {
            if let (Some(whole), Some(range)) = (&mut known.range, range) {
                whole.1 = range.1;
            }
        }
        None => list.push(Redaction {
            fingerprint: None,
            kind: mark.kind.clone(),
            pointer,
            range,
            rule: mark.rule.clone(),
            rules: rules.version().to_owned(),
        }),
    }
}

/// The pointer, or that of the nearest parent whose pointer is not too long.
fn near(pointer: &str) -> String {
    let mut near = pointer;
    while near.len() > POINTER_BYTES {
        near = near.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
    near.to_owned()
}

/// Looks for secrets in all of a request that is no payload.
fn check(rules: &RuleSet, request: &FrameRequest, at: &str) -> Result<(), IntakeError> {
    let body = if request.kind == Kind::Session {
        "session"
    } else {
        "body"
    };
    if let Some(redacted) = rules.redact(&request.body, Shape::Json) {
        // The pointer is that of the redacted body: a secret in a key is not in it.
        let first = redacted.marks.first();
        let inner = first.and_then(|mark| match &mark.place {
            Place::Pointer(pointer) => Some(near(pointer)),
            Place::Range(..) => None,
        });
        let kind = first.map_or("secret", |mark| &mark.kind);
        let pointer = format!("{at}/{body}{}", inner.unwrap_or_default());
        return Err(refused(pointer, kind));
    }
    let text = |pointer: String, text: &str| match rules.find(text.as_bytes(), Shape::Text).first()
    {
        Some(found) => Err(refused(pointer, &found.kind)),
        None => Ok(()),
    };
    text(
        format!("{at}/key"),
        request.key.as_deref().unwrap_or_default(),
    )?;
    if let Some(actor) = &request.actor {
        text(format!("{at}/actor/id"), &actor.id)?;
    }
    for (index, payload) in request.payloads.iter().enumerate() {
        text(format!("{at}/payloads/{index}/name"), &payload.name)?;
        text(format!("{at}/payloads/{index}/media"), &payload.media)?;
    }
    Ok(())
}

fn refused(pointer: String, kind: &str) -> IntakeError {
    IntakeError {
        code: IntakeCode::SecretInMetadata,
        pointer,
        detail: format!(
            "what looks like a secret ({kind}) stands where it could never be erased; send it in a payload, where it is taken out"
        ),
    }
}
