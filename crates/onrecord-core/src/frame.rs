//! The frame: one JSON object, its members and their shapes (spec: `docs/spec/frames.md`).
//!
//! Reading takes canonical bytes apart and checks the shape; writing composes the same bytes from
//! a [`Draft`]. What a frame means next to its neighbours is the chain's to check.

use crate::digest::Hash;
use crate::id::{RunId, TenantId};
use crate::json::write_string;
use crate::limits;
use crate::payload;
use crate::timestamp::Timestamp;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// Format and canonicalisation rule of every frame, inside its hash.
pub const FORMAT: &str = "frame/1";
/// The one suite of digests and signatures.
pub const SUITE: &str = "onrecord-v1";

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            /// All of them, in the order of the specification.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word in the format.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The one that a word names.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == word)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// The closed vocabulary of frame kinds.
    Kind {
        /// Opens the run; frame 0 and only that.
        Session = "session",
        /// Opens a turn.
        Turn = "turn",
        /// Closes a turn with the count and root of its frames.
        TurnEnd = "turn_end",
        /// A tool was asked to do something.
        ToolCall = "tool_call",
        /// What a tool answered.
        ToolResult = "tool_result",
        /// The verdict of a gate on a candidate.
        GateResult = "gate_result",
        /// A model was asked.
        ModelCall = "model_call",
        /// What a model answered.
        ModelResult = "model_result",
        /// Something was observed.
        Observation = "observation",
        /// An alternative was chosen, by a policy or by a person.
        Decision = "decision",
        /// Something outside the run was changed.
        SideEffect = "side_effect",
        /// The context was compacted, evicted, re-encoded or served from a cache.
        Context = "context",
        /// Chunks were retrieved.
        Retrieval = "retrieval",
        /// Memory was read or written.
        Memory = "memory",
        /// A file has a new version.
        FileVersion = "file_version",
        /// A point from which the run can be resumed.
        Snapshot = "snapshot",
        /// How the run came out.
        Outcome = "outcome",
        /// Ends the run; nothing follows.
        SessionEnd = "session_end",
    }
}

words! {
    /// Who wrote a frame.
    ActorType {
        /// The agent itself.
        Agent = "agent",
        /// A person.
        Human = "human",
        /// The store.
        System = "system",
        /// A tool that the agent called.
        Tool = "tool",
        /// A gate.
        Verifier = "verifier",
        /// A program that reads transcripts.
        Importer = "importer",
    }
}

words! {
    /// How a link is meant.
    Rel {
        /// Made from it.
        DerivedFrom = "derived_from",
        /// Observed by it.
        ObservedBy = "observed_by",
        /// Selected by it.
        SelectedBy = "selected_by",
        /// Caused by it.
        Caused = "caused",
        /// Verified by it.
        VerifiedBy = "verified_by",
        /// Stands in its place.
        Replaced = "replaced",
        /// Cancelled it.
        Cancelled = "cancelled",
        /// Answers it.
        Answers = "answers",
        /// Uses it.
        Uses = "uses",
    }
}

words! {
    /// How a run came out: `outcome.body.status`.
    Status {
        /// Done.
        Completed = "completed",
        /// Not done.
        Failed = "failed",
        /// Stopped.
        Cancelled = "cancelled",
    }
}

/// Who wrote a frame: `{type, id, keyid?}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Actor {
    /// 1 to 200 characters, none of them a control character.
    pub id: String,
    /// The key that the agent signs its frames with.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub keyid: Option<Hash>,
    /// What kind of writer.
    #[serde(rename = "type")]
    pub kind: ActorType,
}

/// A payload by its commitment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PayloadRef {
    /// The commitment; unique in the run.
    pub commit: Hash,
    /// `false` where the agent kept the payload and sent its commitment only; never `true`.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub kept: Option<bool>,
    /// Media type, 1 to 127 printable ASCII characters.
    pub media: String,
    /// `[a-z][a-z0-9_.-]{0,63}`, unique in the frame.
    pub name: String,
    /// What was redacted before the commitment was made.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub redactions: Option<Vec<Redaction>>,
    /// Length after padding, in bytes: a bucket.
    pub size: u64,
    /// Retention tier, 0 to 3.
    pub tier: u8,
}

/// One redaction in a payload: where, of what kind, under which rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redaction {
    /// HMAC by which equal secrets can be matched and none guessed.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub fingerprint: Option<Hash>,
    /// Kind of secret.
    pub kind: String,
    /// RFC 6901 pointer to the placeholder.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub pointer: Option<String>,
    /// `[start, end)` of the placeholder, in bytes.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub range: Option<(u64, u64)>,
    /// Id of the rule.
    pub rule: String,
    /// Version of the rule set.
    pub rules: String,
}

/// A typed link to an earlier frame, of this run or of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Hash of the frame in the other run.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub hash: Option<Hash>,
    /// How it is meant.
    pub rel: Rel,
    /// The other run.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub run: Option<RunId>,
    /// Place of the frame in this run; below the frame's own.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub seq: Option<u64>,
}

/// W3C trace context of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// 16 hex digits, not all zero.
    pub span_id: String,
    /// 32 hex digits, not all zero.
    pub trace_id: String,
}

/// The agent's own signature on a frame (R9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submitted {
    /// The key, hex SHA-256 of its SPKI.
    pub keyid: Hash,
    /// 1, 2, 3 … for this key in the run.
    pub n: u64,
    /// Ed25519 signature, 64 bytes in base64.
    pub sig: String,
}

/// A frame as read: shapes are checked, its place in the run is not.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame<'a> {
    /// [`FORMAT`].
    #[serde(borrow)]
    pub onrecord: Cow<'a, str>,
    /// The tenant.
    pub tenant: TenantId,
    /// The run.
    pub run: RunId,
    /// Place in the run, from 0.
    pub seq: u64,
    /// Hash of the frame before, or the genesis.
    pub prev: Hash,
    /// What it records.
    pub kind: Kind,
    /// The writer's idempotency key, unique in the run.
    #[serde(borrow)]
    pub key: Cow<'a, str>,
    /// The store's time.
    pub at: Timestamp,
    /// The writer's time, untrusted.
    #[serde(default, deserialize_with = "present")]
    pub occurred_at: Option<Timestamp>,
    /// Number of the turn it belongs to.
    #[serde(default, deserialize_with = "present")]
    pub turn: Option<u64>,
    /// Who wrote it.
    pub actor: Actor,
    /// Canonical bytes of the kind's own members, an object.
    #[serde(borrow)]
    pub body: &'a RawValue,
    /// What was said and returned, by commitment.
    #[serde(default, deserialize_with = "present")]
    pub payloads: Option<Vec<PayloadRef>>,
    /// What it is connected with.
    #[serde(default, deserialize_with = "present")]
    pub links: Option<Vec<Link>>,
    /// W3C trace context.
    #[serde(default, deserialize_with = "present")]
    pub trace: Option<Trace>,
    /// The agent's signature.
    #[serde(default, deserialize_with = "present")]
    pub submitted: Option<Submitted>,
}

/// The members that `session.body` has at least.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Session {
    /// Origin of the tenant's ledger.
    pub ledger: crate::id::Origin,
    /// 32 random bytes in hex.
    pub nonce: Hash,
    /// Number of the run in the tenant, from 1, dense.
    pub run_no: u64,
}

/// `turn_end.body`, exactly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnEnd {
    /// Frames of the turn, the `turn` included and the `turn_end` not.
    pub count: u64,
    /// RFC 9162 root of those frames.
    pub root: Hash,
}

/// Why bytes are no frame, beside their place in the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// `onrecord` or the session's suite is another one.
    #[error("{0}")]
    Suite(String),
    /// A member is absent, unknown, null or of the wrong shape.
    #[error("{0}")]
    Shape(String),
}

/// A member that is there must have a value: null is refused, absent is `None`.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
struct SuiteOnly<'a> {
    #[serde(borrow, default)]
    suite: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct FormatOnly<'a> {
    #[serde(borrow, default)]
    onrecord: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct StatusOnly {
    status: Status,
}

impl<'a> Frame<'a> {
    /// Reads canonical bytes; [`crate::json::check_canonical`] has passed on them.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BadFrame> {
        let frame: Self = match serde_json::from_slice(bytes) {
            Ok(frame) => frame,
            Err(error) => {
                // Another format is told apart from a malformed one: its members are not ours to judge.
                return match serde_json::from_slice::<FormatOnly<'_>>(bytes) {
                    Ok(only) if only.onrecord.as_deref() != Some(FORMAT) => {
                        Err(other_format(only.onrecord.as_deref()))
                    }
                    _ => Err(BadFrame::Shape(format!("{error}"))),
                };
            }
        };
        if frame.onrecord != FORMAT {
            return Err(other_format(Some(&frame.onrecord)));
        }
        if frame.kind == Kind::Session {
            let suite = serde_json::from_str::<SuiteOnly<'_>>(frame.body.get())
                .ok()
                .and_then(|only| only.suite);
            if suite.as_deref() != Some(SUITE) {
                return Err(BadFrame::Suite(format!(
                    "the session's suite is {}, expected {SUITE}",
                    suite.as_deref().unwrap_or("absent")
                )));
            }
        }
        frame.check_shape().map_err(BadFrame::Shape)?;
        Ok(frame)
    }

    /// The members of the `session` frame's body that the format knows.
    pub fn session(&self) -> Result<Session, BadFrame> {
        let session: Session = serde_json::from_str(self.body.get())
            .map_err(|error| BadFrame::Shape(format!("session body: {error}")))?;
        if session.run_no == 0 {
            return Err(BadFrame::Shape("session body: run_no starts at 1".into()));
        }
        Ok(session)
    }

    /// The status of an `outcome` frame.
    pub fn status(&self) -> Result<Status, BadFrame> {
        serde_json::from_str::<StatusOnly>(self.body.get())
            .map(|only| only.status)
            .map_err(|error| BadFrame::Shape(format!("outcome body: {error}")))
    }

    /// The payloads, none where the member is absent.
    pub fn payloads(&self) -> &[PayloadRef] {
        self.payloads.as_deref().unwrap_or(&[])
    }

    /// The links, none where the member is absent.
    pub fn links(&self) -> &[Link] {
        self.links.as_deref().unwrap_or(&[])
    }

    fn check_shape(&self) -> Result<(), String> {
        check_key(&self.key)?;
        check_body(self.body.get().as_bytes())?;
        check_actor(&self.actor)?;
        if self.turn == Some(0) {
            return Err("turn: turns are numbered from 1".into());
        }
        check_payloads(self.payloads.as_deref())?;
        check_links(self.links.as_deref())?;
        if let Some(trace) = &self.trace {
            check_trace(trace)?;
        }
        if let Some(submitted) = &self.submitted {
            check_submitted(submitted)?;
        }
        match self.kind {
            Kind::Session => self
                .session()
                .map(|_| ())
                .map_err(|error| format!("{error}")),
            Kind::Outcome => self
                .status()
                .map(|_| ())
                .map_err(|error| format!("{error}")),
            _ => Ok(()),
        }
    }
}

fn other_format(found: Option<&str>) -> BadFrame {
    BadFrame::Suite(format!(
        "the frame's format is {}, expected {FORMAT}",
        found.unwrap_or("absent")
    ))
}

/// An idempotency key: 1 to 200 printable ASCII characters.
pub fn check_key(key: &str) -> Result<(), String> {
    if key.is_empty() || key.len() > limits::KEY_CHARS || !printable(key) {
        return Err(format!(
            "key: 1 to {} printable ASCII characters",
            limits::KEY_CHARS
        ));
    }
    Ok(())
}

/// A body: the canonical bytes of an object.
pub fn check_body(body: &[u8]) -> Result<(), String> {
    if body.first() == Some(&b'{') {
        Ok(())
    } else {
        Err("body: an object".into())
    }
}

/// An actor: an id of 1 to 200 characters without control characters.
pub fn check_actor(actor: &Actor) -> Result<(), String> {
    let length = actor.id.chars().count();
    if length == 0 || length > limits::ACTOR_CHARS || actor.id.chars().any(char::is_control) {
        return Err(format!(
            "actor.id: 1 to {} characters, no control characters",
            limits::ACTOR_CHARS
        ));
    }
    Ok(())
}

/// The media type of a payload: 1 to 127 printable ASCII characters.
pub fn check_media(media: &str) -> Result<(), String> {
    if media.is_empty() || media.len() > limits::MEDIA_CHARS || !printable(media) {
        return Err(format!(
            "media: 1 to {} printable ASCII characters",
            limits::MEDIA_CHARS
        ));
    }
    Ok(())
}

/// The name of a payload: `[a-z][a-z0-9_.-]{0,63}`.
pub fn check_name(name: &str) -> Result<(), String> {
    let rest = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'-')
    };
    let fits = name.len() <= limits::NAME_CHARS
        && name.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
        && name.bytes().all(rest);
    if fits {
        Ok(())
    } else {
        Err("name: a lower-case letter and up to 63 of a-z, 0-9, `_`, `.`, `-`".into())
    }
}

/// A W3C trace context: 32 and 16 lower-case hex digits, not all zero.
pub fn check_trace(trace: &Trace) -> Result<(), String> {
    let fits = |text: &str, length: usize| {
        text.len() == length
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            && text.bytes().any(|byte| byte != b'0')
    };
    if fits(&trace.trace_id, 32) && fits(&trace.span_id, 16) {
        return Ok(());
    }
    Err("trace: trace_id of 32 and span_id of 16 lower-case hex digits, not all zero".into())
}

/// Payload references: not empty where present, each of the right shape.
pub fn check_payloads(payloads: Option<&[PayloadRef]>) -> Result<(), String> {
    let Some(payloads) = payloads else {
        return Ok(());
    };
    if payloads.is_empty() {
        return Err("payloads: absent rather than empty".into());
    }
    for one in payloads {
        check_name(&one.name)?;
        check_media(&one.media)?;
        if !payload::is_bucket(one.size) {
            return Err(format!("payloads: size {} is no bucket", one.size));
        }
        if one.tier > 3 {
            return Err("payloads: tier is 0 to 3".into());
        }
        if one.kept == Some(true) {
            return Err("payloads: kept is false or absent".into());
        }
        check_redactions(one.redactions.as_deref())?;
    }
    Ok(())
}

fn check_redactions(redactions: Option<&[Redaction]>) -> Result<(), String> {
    let Some(redactions) = redactions else {
        return Ok(());
    };
    if redactions.is_empty() {
        return Err("redactions: absent rather than empty".into());
    }
    for one in redactions {
        let place = match (&one.pointer, one.range) {
            (Some(pointer), None) => pointer.is_empty() || pointer.starts_with('/'),
            (None, Some((start, end))) => start < end,
            _ => false,
        };
        if !place {
            return Err("redactions: either a pointer or a range that is not empty".into());
        }
    }
    Ok(())
}

/// Links: not empty where present, each `{rel, seq}` or `{rel, run, hash}`.
pub fn check_links(links: Option<&[Link]>) -> Result<(), String> {
    let Some(links) = links else { return Ok(()) };
    if links.is_empty() {
        return Err("links: absent rather than empty".into());
    }
    let fits = |link: &Link| {
        matches!(
            (link.seq, &link.run, &link.hash),
            (Some(_), None, None) | (None, Some(_), Some(_))
        )
    };
    if links.iter().all(fits) {
        Ok(())
    } else {
        Err("links: each is {rel, seq} or {rel, run, hash}".into())
    }
}

fn check_submitted(submitted: &Submitted) -> Result<(), String> {
    if submitted.n == 0 {
        return Err("submitted.n: counts from 1".into());
    }
    signature(&submitted.sig)
        .map(|_| ())
        .ok_or_else(|| "submitted.sig: 64 bytes in base64".into())
}

/// The 64 bytes of a signature in canonical base64.
pub fn signature(text: &str) -> Option<[u8; 64]> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .ok()?
        .try_into()
        .ok()
}

fn printable(text: &str) -> bool {
    text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
}

/// A frame before it has its place: all but `onrecord`, `tenant`, `run`, `seq`, `prev` and `at`.
#[derive(Clone, Debug)]
pub struct Draft {
    /// What it records.
    pub kind: Kind,
    /// Idempotency key.
    pub key: String,
    /// The writer's time.
    pub occurred_at: Option<Timestamp>,
    /// Number of its turn.
    pub turn: Option<u64>,
    /// Who writes it.
    pub actor: Actor,
    /// Canonical bytes of an object.
    pub body: Vec<u8>,
    /// Payloads by commitment.
    pub payloads: Vec<PayloadRef>,
    /// Links.
    pub links: Vec<Link>,
    /// Trace context.
    pub trace: Option<Trace>,
}

impl Draft {
    /// The canonical bytes of the frame at its place. Members stand in the order of RFC 8785, which
    /// for these names is the order of their ASCII letters.
    pub fn write(
        &self,
        tenant: &TenantId,
        run: &RunId,
        seq: u64,
        prev: &Hash,
        at: Timestamp,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(512 + self.body.len() + 256 * self.payloads.len());
        out.extend_from_slice(b"{\"actor\":");
        member(&mut out, &self.actor);
        text(&mut out, "at", &format!("{at}"));
        out.extend_from_slice(b",\"body\":");
        out.extend_from_slice(&self.body);
        text(&mut out, "key", &self.key);
        text(&mut out, "kind", self.kind.as_str());
        if !self.links.is_empty() {
            out.extend_from_slice(b",\"links\":");
            member(&mut out, &self.links);
        }
        if let Some(occurred_at) = self.occurred_at {
            text(&mut out, "occurred_at", &format!("{occurred_at}"));
        }
        text(&mut out, "onrecord", FORMAT);
        if !self.payloads.is_empty() {
            out.extend_from_slice(b",\"payloads\":");
            member(&mut out, &self.payloads);
        }
        text(&mut out, "prev", &prev.hex());
        text(&mut out, "run", run.as_str());
        out.extend_from_slice(format!(",\"seq\":{seq}").as_bytes());
        text(&mut out, "tenant", tenant.as_str());
        if let Some(trace) = &self.trace {
            out.extend_from_slice(b",\"trace\":");
            member(&mut out, trace);
        }
        if let Some(turn) = self.turn {
            out.extend_from_slice(format!(",\"turn\":{turn}").as_bytes());
        }
        out.push(b'}');
        out
    }
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    write_string(out, value);
}

/// The structures' fields are declared in canonical order and hold no fractions, so what serde writes
/// differs from RFC 8785 in nothing; the chain checks every frame that it places all the same.
fn member<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    if let Ok(bytes) = serde_json::to_vec(value) {
        out.extend_from_slice(&bytes);
    }
}
