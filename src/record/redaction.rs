//! Redaction of a request, before anything of it is hashed, written or logged.
//!
//! Secrets in payloads are taken out, and what was taken out stands on the frame. What is no payload can have no
//! placeholder, since it is what the frame says of itself: a secret there is refused.

use super::intake::{FrameRequest, IntakeCode, IntakeError};
use super::rules::Rules;
use super::{RecordError, Recorder};
use crate::redact::{Mark, Place, RuleSet, Shape, TELLING_BYTES};
use crate::vault::{RunKeys, VaultError};
use onrecord_core::frame::{Kind, Redaction};

/// Redactions that a frame lists one by one. Beyond, one entry stands for all of a rule in a payload, so that a
/// payload full of secrets does not make a frame that is too large.
const LISTED: usize = 100;

impl Recorder {
    /// A text for a log or an answer, without what the server's own rules find in it.
    pub fn without_secrets(&self, text: &str) -> String {
        let rules = self.redaction.as_ref().map(Rules::base);
        let redacted = rules.and_then(|rules| rules.redact(text.as_bytes(), Shape::Text));
        redacted.map_or_else(
            || text.to_owned(),
            |redacted| String::from_utf8_lossy(&redacted.bytes).into_owned(),
        )
    }

    /// Whether the server's own rules find anything in a text.
    pub fn has_secret(&self, text: &[u8]) -> bool {
        let rules = self.redaction.as_ref().map(Rules::base);
        rules.is_some_and(|rules| !rules.find(text, Shape::Text).is_empty())
    }

    /// Refuses a text that is to be kept and is no payload, such as a name or a purpose.
    ///
    /// # Errors
    /// `secret_in_metadata`, with the pointer to the member.
    pub(crate) fn refuse_secret(&self, pointer: &str, text: &str) -> Result<(), RecordError> {
        let rules = self.redaction.as_ref().map(Rules::base);
        let found = rules.map(|rules| rules.find(text.as_bytes(), Shape::Text));
        match found.as_ref().and_then(|found| found.first()) {
            Some(found) => Err(refused(pointer.to_owned(), &found.kind).into()),
            None => Ok(()),
        }
    }
}

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
        pointer.push_str(inner);
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
        Place::Pointer(pointer) => (Some(pointer.clone()), None),
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

/// Looks for secrets in all of a request that is no payload.
fn check(rules: &RuleSet, request: &FrameRequest, at: &str) -> Result<(), IntakeError> {
    let payloads = request.payloads.iter();
    let metadata = Metadata {
        at,
        member: if request.kind == Kind::Session {
            "session"
        } else {
            "body"
        },
        body: &request.body,
        key: request.key.as_deref(),
        actor: request.actor.as_ref().map(|actor| actor.id.as_str()),
        payloads: payloads
            .map(|one| (one.name.as_str(), one.media.as_str()))
            .collect(),
    };
    match metadata.found(rules).into_iter().next() {
        Some(first) => Err(refused(first.pointer, &first.kind)),
        None => Ok(()),
    }
}

/// All of a frame that is no payload, and may hold what its writer likes.
pub(super) struct Metadata<'a> {
    /// Pointer to the frame.
    pub(super) at: &'a str,
    /// What the body is called.
    pub(super) member: &'a str,
    pub(super) body: &'a [u8],
    pub(super) key: Option<&'a str>,
    /// The actor's id.
    pub(super) actor: Option<&'a str>,
    /// Names and media types.
    pub(super) payloads: Vec<(&'a str, &'a str)>,
}

/// A secret where no payload is.
pub(super) struct InMetadata {
    pub(super) pointer: String,
    pub(super) kind: String,
    pub(super) rule: String,
}

impl Metadata<'_> {
    /// What the rules find.
    pub(super) fn found(&self, rules: &RuleSet) -> Vec<InMetadata> {
        let (at, member) = (self.at, self.member);
        let mut all = Vec::new();
        // The pointers are those of the redacted body: a secret in a key is not in them.
        let redacted = rules.redact(self.body, Shape::Json);
        for mark in redacted.into_iter().flat_map(|redacted| redacted.marks) {
            let inner = match &mark.place {
                Place::Pointer(pointer) => pointer.as_str(),
                Place::Range(..) => "",
            };
            all.push(InMetadata {
                pointer: format!("{at}/{member}{inner}"),
                kind: mark.kind,
                rule: mark.rule,
            });
        }
        let mut text = |text: &str, pointer: &dyn Fn() -> String| {
            let found = rules.find(text.as_bytes(), Shape::Text).into_iter();
            all.extend(found.map(|one| InMetadata {
                pointer: pointer(),
                kind: one.kind,
                rule: one.rule,
            }));
        };
        text(self.key.unwrap_or_default(), &|| format!("{at}/key"));
        text(self.actor.unwrap_or_default(), &|| format!("{at}/actor/id"));
        for (index, (name, media)) in self.payloads.iter().enumerate() {
            text(name, &|| format!("{at}/payloads/{index}/name"));
            text(media, &|| format!("{at}/payloads/{index}/media"));
        }
        all
    }
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
