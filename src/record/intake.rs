//! Intake: bytes of a request become a typed request, or a reason that says where and what to do.

use super::RecordError;
use super::own::{self, Own};
use crate::access::is_name;
use crate::redact::{Mark, Shape};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::digest::Hash;
use onrecord_core::frame::{self, Actor, ActorType, Kind, Link, Rel, Submitted, Trace};
use onrecord_core::id::RunId;
use onrecord_core::json::{self, Limits, Member};
use onrecord_core::limits;
use onrecord_core::timestamp::Timestamp;
use serde::Deserialize;

/// Bytes of one request, its inline payloads included: two payloads of the largest size in base64.
pub const REQUEST_BYTES: usize = 64 * 1024 * 1024;
/// Keys that begin so are the store's own.
pub const RESERVED_KEY: &str = "onrecord/";
/// Suffix of the key of a result that was posted with its call.
pub const RESULT_KEY: &str = "/result";

/// Subjects of a payload, and characters of the id of one.
const SUBJECTS: usize = 16;
const SUBJECT_CHARS: usize = 200;
/// The tier of a payload whose writer named none, and that is of no class of the tenant's.
const STANDARD_TIER: u8 = 2;
/// Media type of a payload that is sent as `json`, unless it says another.
const JSON: &str = "application/json";

/// Wrappers around the deepest part of a request: the object, `payloads`, a payload; or `result` too.
const REQUEST_LIMITS: Limits = Limits {
    bytes: REQUEST_BYTES,
    depth: limits::DEPTH + 5,
    object: true,
};
/// In a frame the body stands one level deep.
const BODY_LIMITS: Limits = Limits {
    bytes: limits::FRAME_BYTES,
    depth: limits::DEPTH - 1,
    object: true,
};

/// Why a request is malformed, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {detail}")]
pub struct IntakeError {
    /// The stable code.
    pub code: IntakeCode,
    /// RFC 6901 pointer into the request.
    pub pointer: String,
    /// What is wrong, and what to do.
    pub detail: String,
}

/// What kind of malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntakeCode {
    /// Not JSON, or JSON that cannot be kept exactly; which reason, says the word.
    Json(json::Reason),
    /// A member that is not known.
    UnknownMember,
    /// A member that is needed.
    MissingMember,
    /// A member of the wrong shape.
    Shape,
    /// A payload over 16 MiB.
    PayloadTooLarge,
    /// A frame over 64 KiB without its payloads, or a request over [`REQUEST_BYTES`].
    TooLarge,
    /// A member or key that only the store writes.
    Reserved,
    /// A secret in what is no payload.
    SecretInMetadata,
    /// A secret in a payload that is committed to already.
    SecretInSigned,
    /// A payload that does not fit the commitment to it.
    Commitment,
}

/// Which turn a frame is to belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnChoice {
    /// The open one, if there is one.
    Open,
    /// None: run-level.
    RunLevel,
    /// This one.
    Number(u64),
}

/// A payload as it was sent.
#[derive(Debug)]
pub struct PayloadRequest {
    /// Name in the frame.
    pub name: String,
    /// Media type.
    pub media: String,
    /// 0 to 3.
    pub tier: u8,
    /// Whether its writer named the tier.
    pub tier_named: bool,
    /// The payload: canonical JSON, text or bytes; empty where the agent keeps it.
    pub bytes: Vec<u8>,
    /// The commitment to it, where the agent made it itself.
    pub own: Option<Own>,
    /// Which of these it is.
    pub(super) shape: Shape,
    /// What was redacted in it.
    pub(super) marks: Vec<Mark>,
    /// Ids of whom it is about, by which it can be erased; they are on no frame.
    pub subjects: Vec<String>,
}

/// A link as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkRequest {
    /// As it is to be recorded.
    Exact(Link),
    /// To the frame of this run that has a key.
    Key(Rel, String),
}

/// A frame as it was sent.
#[derive(Debug)]
pub struct FrameRequest {
    /// What it records.
    pub kind: Kind,
    /// The writer's key.
    pub key: Option<String>,
    /// Its turn.
    pub turn: TurnChoice,
    /// Who writes it.
    pub actor: Option<Actor>,
    /// The writer's time.
    pub occurred_at: Option<Timestamp>,
    /// Canonical bytes of an object.
    pub body: Vec<u8>,
    /// Payloads.
    pub payloads: Vec<PayloadRequest>,
    /// Links.
    pub links: Vec<LinkRequest>,
    /// Trace context.
    pub trace: Option<Trace>,
    /// The result of a tool call that is posted whole.
    pub result: Option<Box<FrameRequest>>,
    /// The agent's signature.
    pub submitted: Option<Submitted>,
}

/// Reads a request to append a frame.
pub fn frame(bytes: &[u8]) -> Result<FrameRequest, RecordError> {
    let members = json::members(bytes, REQUEST_LIMITS).map_err(|error| json_error("", &error))?;
    let named = members
        .iter()
        .find(|member| member.name == "kind")
        .ok_or_else(|| missing("", "kind"))?;
    let kind = kind("/kind", named.raw)?;
    if kind == Kind::Session {
        return Err(shape("/kind", "a session is opened with POST /v1/runs").into());
    }
    Ok(read_frame(&members, "", kind)?)
}

/// Reads a request to open a run: the body of its session frame stands under `session`.
pub fn opening(bytes: &[u8]) -> Result<FrameRequest, RecordError> {
    let members = json::members(bytes, REQUEST_LIMITS).map_err(|error| json_error("", &error))?;
    if !members.iter().any(|member| member.name == "session") {
        return Err(missing("", "session").into());
    }
    Ok(read_frame(&members, "", Kind::Session)?)
}

fn read_frame(members: &[Member<'_>], at: &str, kind: Kind) -> Result<FrameRequest, IntakeError> {
    let session = kind == Kind::Session;
    let mut request = FrameRequest {
        kind,
        key: None,
        turn: if session {
            TurnChoice::RunLevel
        } else {
            TurnChoice::Open
        },
        actor: None,
        occurred_at: None,
        body: b"{}".to_vec(),
        payloads: Vec::new(),
        links: Vec::new(),
        trace: None,
        result: None,
        submitted: None,
    };
    for member in members {
        let here = format!("{at}/{}", pointer_token(&member.name));
        match member.name.as_str() {
            "session" if session => request.body = body(&here, member.raw)?,
            "kind" if !session && at.is_empty() => {}
            "body" if !session => request.body = body(&here, member.raw)?,
            "turn" if !session && at.is_empty() => request.turn = turn(&here, member.raw)?,
            "result" if kind == Kind::ToolCall => {
                let result = json::members(member.raw, REQUEST_LIMITS)
                    .map_err(|error| json_error(&here, &error))?;
                request.result = Some(Box::new(read_frame(&result, &here, Kind::ToolResult)?));
            }
            "key" => request.key = Some(key(&here, member.raw)?),
            "actor" => request.actor = Some(actor(&here, member.raw)?),
            "occurred_at" => request.occurred_at = Some(time(&here, member.raw)?),
            "payloads" => request.payloads = payloads(&here, member.raw)?,
            "links" => request.links = links(&here, member.raw)?,
            "trace" => request.trace = Some(trace(&here, member.raw)?),
            "submitted" if !session && at.is_empty() => {
                request.submitted = Some(submitted(&here, member.raw)?);
            }
            _ => return Err(unknown(&here, &member.name)),
        }
    }
    check_turn(&format!("{at}/turn"), kind, request.turn)?;
    if kind == Kind::Outcome {
        outcome(&format!("{at}/body"), &request.body)?;
    }
    Ok(request)
}

/// A turn that is asked for in vain is said so, rather than left out of account.
fn check_turn(at: &str, kind: Kind, choice: TurnChoice) -> Result<(), IntakeError> {
    match (kind, choice) {
        (Kind::SessionEnd, TurnChoice::Number(_)) => Err(shape(
            at,
            "a session_end belongs to no turn; leave `turn` out",
        )),
        (Kind::Turn | Kind::TurnEnd, TurnChoice::RunLevel) => Err(shape(
            at,
            "a turn and its end are no run-level frames; leave `turn` out",
        )),
        _ => Ok(()),
    }
}

/// The one member of a body that the format asks of a writer.
fn outcome(at: &str, body: &[u8]) -> Result<(), IntakeError> {
    #[derive(Deserialize)]
    struct Shape {
        #[serde(rename = "status")]
        _status: frame::Status,
    }
    json::typed::<Shape>(body).map(|_| ()).map_err(|_| {
        let words: Vec<&str> = frame::Status::ALL
            .iter()
            .map(|status| status.as_str())
            .collect();
        shape(
            &format!("{at}/status"),
            &format!("one of {}", words.join(", ")),
        )
    })
}

/// Checks a writer's key.
pub fn check_key(at: &str, key: &str) -> Result<(), IntakeError> {
    frame::check_key(key).map_err(|detail| shape(at, &detail))?;
    if key.starts_with(RESERVED_KEY) {
        return Err(IntakeError {
            code: IntakeCode::Reserved,
            pointer: at.to_owned(),
            detail: format!(
                "keys that begin with {RESERVED_KEY:?} are the store's own; choose another"
            ),
        });
    }
    Ok(())
}

fn key(at: &str, raw: &[u8]) -> Result<String, IntakeError> {
    let key = text(at, raw)?;
    check_key(at, &key)?;
    Ok(key)
}

fn body(at: &str, raw: &[u8]) -> Result<Vec<u8>, IntakeError> {
    json::canonicalize(raw, BODY_LIMITS).map_err(|error| json_error(at, &error))
}

fn turn(at: &str, raw: &[u8]) -> Result<TurnChoice, IntakeError> {
    match serde_json::from_slice::<Option<u64>>(raw) {
        Ok(None) => Ok(TurnChoice::RunLevel),
        Ok(Some(number)) if number > 0 => Ok(TurnChoice::Number(number)),
        _ => Err(shape(
            at,
            "a turn's number from 1, null for a run-level frame, or absent for the open turn",
        )),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActorShape {
    id: String,
    keyid: Option<Hash>,
    #[serde(rename = "type")]
    kind: ActorType,
}

fn actor(at: &str, raw: &[u8]) -> Result<Actor, IntakeError> {
    let read: ActorShape = typed(
        at,
        raw,
        "{type, id, keyid?}, type one of agent, human, tool, verifier, importer",
    )?;
    let actor = Actor {
        id: read.id,
        keyid: read.keyid,
        kind: read.kind,
    };
    frame::check_actor(&actor).map_err(|detail| shape(at, &detail))?;
    Ok(actor)
}

fn time(at: &str, raw: &[u8]) -> Result<Timestamp, IntakeError> {
    let text = text(at, raw)?;
    let wrong = || {
        shape(
            at,
            "an RFC 3339 time of at most six fraction digits, such as 2026-08-09T11:00:00.000000Z",
        )
    };
    if text.len() > 40 || text.contains('[') {
        return Err(wrong());
    }
    let time: jiff::Timestamp = text.parse().map_err(|_| wrong())?;
    if time.subsec_nanosecond() % 1_000 != 0 {
        return Err(wrong());
    }
    Timestamp::from_micros(time.as_microsecond()).ok_or_else(wrong)
}

fn trace(at: &str, raw: &[u8]) -> Result<Trace, IntakeError> {
    let trace: Trace = typed(at, raw, "{trace_id, span_id}")?;
    frame::check_trace(&trace).map_err(|detail| shape(at, &detail))?;
    Ok(trace)
}

fn submitted(at: &str, raw: &[u8]) -> Result<Submitted, IntakeError> {
    let submitted: Submitted = typed(at, raw, "{keyid, n, sig}")?;
    frame::check_submitted(&submitted).map_err(|detail| shape(at, &detail))?;
    Ok(submitted)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkShape {
    rel: Rel,
    seq: Option<u64>,
    run: Option<RunId>,
    hash: Option<Hash>,
    key: Option<String>,
}

fn links(at: &str, raw: &[u8]) -> Result<Vec<LinkRequest>, IntakeError> {
    let elements =
        json::elements(raw, REQUEST_LIMITS_ANY).map_err(|error| json_error(at, &error))?;
    let read = |(index, raw): (usize, &[u8])| {
        let here = format!("{at}/{index}");
        let expected = "{rel, seq}, {rel, key} or {rel, run, hash}";
        let link: LinkShape = typed(&here, raw, expected)?;
        match (link.seq, link.key, link.run, link.hash) {
            (Some(seq), None, None, None) => Ok(LinkRequest::Exact(Link {
                hash: None,
                rel: link.rel,
                run: None,
                seq: Some(seq),
            })),
            (None, Some(key), None, None) => {
                // What is no key is nobody's, and U+0000 in it would be an error of the database's.
                frame::check_key(&key).map_err(|detail| shape(&format!("{here}/key"), &detail))?;
                Ok(LinkRequest::Key(link.rel, key))
            }
            (None, None, Some(run), Some(hash)) => Ok(LinkRequest::Exact(Link {
                hash: Some(hash),
                rel: link.rel,
                run: Some(run),
                seq: None,
            })),
            _ => Err(shape(&here, expected)),
        }
    };
    elements.into_iter().enumerate().map(read).collect()
}

const REQUEST_LIMITS_ANY: Limits = Limits {
    object: false,
    ..REQUEST_LIMITS
};

fn payloads(at: &str, raw: &[u8]) -> Result<Vec<PayloadRequest>, IntakeError> {
    let elements =
        json::elements(raw, REQUEST_LIMITS_ANY).map_err(|error| json_error(at, &error))?;
    if elements.len() > limits::PAYLOADS {
        return Err(shape(
            at,
            &format!("at most {} payloads a frame", limits::PAYLOADS),
        ));
    }
    let mut payloads: Vec<PayloadRequest> = Vec::with_capacity(elements.len());
    for (index, raw) in elements.into_iter().enumerate() {
        let here = format!("{at}/{index}");
        let payload = payload(&here, raw)?;
        if payloads.iter().any(|other| other.name == payload.name) {
            return Err(shape(
                &format!("{here}/name"),
                "another payload of this frame has the name",
            ));
        }
        let own = |payload: &PayloadRequest| payload.own.as_ref().map(|own| *own.commit());
        if own(&payload).is_some() && payloads.iter().any(|other| own(other) == own(&payload)) {
            return Err(shape(
                &format!("{here}/commit"),
                "another payload of this frame has the commitment",
            ));
        }
        payloads.push(payload);
    }
    Ok(payloads)
}

fn payload(at: &str, raw: &[u8]) -> Result<PayloadRequest, IntakeError> {
    let members = json::members(raw, REQUEST_LIMITS).map_err(|error| json_error(at, &error))?;
    let (mut name, mut media, mut tier, mut content) = (None, None, None, None);
    let mut subjects = Vec::new();
    let mut own = own::Members::default();
    for member in &members {
        let here = format!("{at}/{}", pointer_token(&member.name));
        match member.name.as_str() {
            "name" => name = Some(text(&here, member.raw)?),
            "media" => media = Some(text(&here, member.raw)?),
            "tier" => tier = Some(typed::<u8>(&here, member.raw, "0, 1, 2 or 3")?),
            "subjects" => subjects = subjects_of(&here, member.raw)?,
            "json" | "text" | "base64" if content.is_some() => {
                return Err(shape(&here, "one of json, text and base64, not two"));
            }
            "json" | "text" | "base64" => {
                let read = self::content(&here, member)?;
                content = read.map(|(bytes, media)| (bytes, media, here));
            }
            other if own.read(other, &here, member.raw)? => {}
            _ => return Err(unknown(&here, &member.name)),
        }
    }
    let own = own.finish(at, content.is_some(), media.is_some())?;
    let is_kept = own.as_ref().is_some_and(Own::is_kept);
    let content = content.or_else(|| is_kept.then(|| (Vec::new(), "", String::new())));
    let name = name.ok_or_else(|| missing(at, "name"))?;
    frame::check_name(&name).map_err(|detail| shape(&format!("{at}/name"), &detail))?;
    let (bytes, default_media, _) = content.ok_or_else(|| missing(at, "json, text or base64"))?;
    let media = media.unwrap_or_else(|| default_media.to_owned());
    frame::check_media(&media).map_err(|detail| shape(&format!("{at}/media"), &detail))?;
    let (tier, tier_named) = (tier.unwrap_or(STANDARD_TIER), tier.is_some());
    if tier > 3 {
        return Err(shape(&format!("{at}/tier"), "0, 1, 2 or 3"));
    }
    let shape = match default_media {
        JSON => Shape::Json,
        _ => Shape::Text,
    };
    Ok(PayloadRequest {
        name,
        media,
        tier,
        tier_named,
        bytes,
        own,
        shape,
        marks: Vec::new(),
        subjects,
    })
}

/// Ids of the subjects of a payload.
fn subjects_of(at: &str, raw: &[u8]) -> Result<Vec<String>, IntakeError> {
    let subjects: Vec<String> = typed(at, raw, "a list of texts")?;
    if subjects.len() > SUBJECTS || !subjects.iter().all(|one| is_name(one, SUBJECT_CHARS)) {
        return Err(shape(
            at,
            "at most 16 ids of subjects, each of 1 to 200 characters, none of them a control character",
        ));
    }
    Ok(subjects)
}

/// The bytes of a payload from the member that has them, and its media type unless it says another; `None` where the
/// member is another.
pub(super) fn content(
    here: &str,
    member: &Member<'_>,
) -> Result<Option<(Vec<u8>, &'static str)>, IntakeError> {
    let raw = member.raw;
    let (bytes, media) = match member.name.as_str() {
        "json" => (json_payload(here, raw)?, JSON),
        "text" => (text(here, raw)?.into_bytes(), "text/plain; charset=utf-8"),
        "base64" => (base64_payload(here, raw)?, "application/octet-stream"),
        _ => return Ok(None),
    };
    if bytes.len() > limits::PAYLOAD_BYTES {
        return Err(too_large(here, bytes.len()));
    }
    Ok(Some((bytes, media)))
}

/// The members of a request's body.
pub(super) fn request_members(bytes: &[u8]) -> Result<Vec<Member<'_>>, IntakeError> {
    json::members(bytes, REQUEST_LIMITS).map_err(|error| json_error("", &error))
}

/// The pointer to a member.
pub(super) fn pointer(at: &str, name: &str) -> String {
    format!("{at}/{}", pointer_token(name))
}

fn too_large(at: &str, bytes: usize) -> IntakeError {
    IntakeError {
        code: IntakeCode::PayloadTooLarge,
        pointer: at.to_owned(),
        detail: format!(
            "the payload has {bytes} bytes, a payload has at most {}; send it in parts",
            limits::PAYLOAD_BYTES
        ),
    }
}

fn json_payload(at: &str, raw: &[u8]) -> Result<Vec<u8>, IntakeError> {
    json::canonicalize(raw, Limits::PAYLOAD).map_err(|error| match error.reason {
        json::Reason::Size => too_large(at, raw.len()),
        _ => json_error(at, &error),
    })
}

fn base64_payload(at: &str, raw: &[u8]) -> Result<Vec<u8>, IntakeError> {
    STANDARD
        .decode(text(at, raw)?)
        .map_err(|_| shape(at, "base64 of the standard alphabet, padded"))
}

fn text(at: &str, raw: &[u8]) -> Result<String, IntakeError> {
    if raw.first() != Some(&b'"') {
        return Err(shape(at, "a string"));
    }
    json::string(raw).map_err(|error| json_error(at, &error))
}

fn kind(at: &str, raw: &[u8]) -> Result<Kind, IntakeError> {
    let word = text(at, raw)?;
    Kind::from_word(&word).ok_or_else(|| {
        let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
        shape(at, &format!("one of {}", known.join(", ")))
    })
}

fn typed<'a, T: Deserialize<'a>>(
    at: &str,
    raw: &'a [u8],
    expected: &str,
) -> Result<T, IntakeError> {
    json::typed(raw).map_err(|_| shape(at, &format!("expected {expected}")))
}

/// RFC 6901: `~` and `/` in a name are written `~0` and `~1`.
fn pointer_token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn json_error(at: &str, error: &json::JsonError) -> IntakeError {
    let code = if error.reason == json::Reason::Size {
        IntakeCode::TooLarge
    } else {
        IntakeCode::Json(error.reason)
    };
    let pointer = format!("{at}{}", error.pointer);
    let mut detail = error.to_string();
    if error.reason == json::Reason::Depth {
        detail.push_str(&format!(
            "; a frame or a payload has at most {} levels",
            limits::DEPTH
        ));
    }
    // A payload has a way out that a body has not.
    if pointer.split('/').any(|step| step == "payloads")
        && pointer.split('/').any(|step| step == "json")
    {
        detail
            .push_str("; or send this payload as `text` or `base64`, which are kept byte for byte");
    }
    IntakeError {
        code,
        pointer,
        detail,
    }
}

fn shape(at: &str, expected: &str) -> IntakeError {
    IntakeError {
        code: IntakeCode::Shape,
        pointer: at.to_owned(),
        detail: expected.to_owned(),
    }
}

fn missing(at: &str, name: &str) -> IntakeError {
    IntakeError {
        code: IntakeCode::MissingMember,
        pointer: at.to_owned(),
        detail: format!("{name} is needed"),
    }
}

pub(super) fn unknown(at: &str, name: &str) -> IntakeError {
    IntakeError {
        code: IntakeCode::UnknownMember,
        pointer: at.to_owned(),
        detail: format!("{name:?} is not a member of this request"),
    }
}

/// A small structure of ours as bytes, the same for the same value.
fn plain<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

impl FrameRequest {
    /// The request in a form in which two requests are the same exactly if their bytes are: fields with
    /// their lengths, payloads by digest, the result with its key after the call.
    pub(crate) fn fingerprint(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.body.len() + 512);
        let mut field = |bytes: &[u8]| {
            out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
            out.extend_from_slice(bytes);
        };
        field(self.kind.as_str().as_bytes());
        match self.turn {
            TurnChoice::Open => field(b"open"),
            TurnChoice::RunLevel => field(b"run"),
            TurnChoice::Number(number) => field(&number.to_be_bytes()),
        }
        match &self.submitted {
            None => field(&plain(&self.actor)),
            Some(submitted) => field(&plain(&(&self.actor, submitted))),
        }
        field(&plain(&self.occurred_at));
        field(&self.body);
        for link in &self.links {
            match link {
                LinkRequest::Exact(link) => field(&plain(link)),
                LinkRequest::Key(rel, key) => field(&plain(&(rel, key))),
            }
        }
        field(&plain(&self.trace));
        for payload in &self.payloads {
            field(payload.name.as_bytes());
            field(payload.media.as_bytes());
            match &payload.own {
                None => field(&[payload.tier]),
                // Longer than a tier, so that it is told from one.
                Some(own) => {
                    let size = match own {
                        Own::Sent { .. } => 0,
                        Own::Kept { size, .. } => *size,
                    };
                    let parts = [&[payload.tier][..], &own.commit().0, &size.to_be_bytes()];
                    field(&parts.concat());
                }
            }
            field(&Hash::of(&[&payload.bytes]).0);
            if !payload.subjects.is_empty() {
                field(&plain(&payload.subjects));
            }
        }
        if let Some(result) = &self.result {
            field(result.key.as_deref().unwrap_or_default().as_bytes());
            field(&result.fingerprint());
        }
        out
    }
}
