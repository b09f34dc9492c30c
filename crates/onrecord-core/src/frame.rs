//! The frame: one JSON object, its members and their shapes (spec: `docs/spec/frames.md`).
//!
//! Reading takes canonical bytes apart and checks the shape; writing composes the same bytes from
//! a [`Draft`]. What a frame means next to its neighbours is the chain's to check.

mod canonical;
mod draft;
mod shape;
mod vocabulary;

pub use draft::Draft;
pub use shape::{
    check_actor, check_body, check_key, check_links, check_media, check_name, check_payloads,
    check_submitted, check_trace, signature,
};
pub use vocabulary::{ActorType, Kind, Rel, Status};

use crate::digest::Hash;
use crate::id::{RunId, TenantId};
use crate::json::{self, Limits, NotCanonical};
use crate::timestamp::Timestamp;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Format and canonicalisation rule of every frame, inside its hash.
pub const FORMAT: &str = "frame/1";
/// The one suite of digests and signatures.
pub const SUITE: &str = "onrecord-v1";

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
    #[serde(borrow, deserialize_with = "raw")]
    pub body: &'a str,
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

fn raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'de str, D::Error> {
    <&RawValue>::deserialize(deserializer).map(RawValue::get)
}

#[derive(Deserialize)]
struct SuiteOnly<'a> {
    #[serde(borrow, default)]
    suite: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct StatusOnly {
    status: Status,
}

impl<'a> Frame<'a> {
    /// Reads a frame; what is asked of its bytes as JSON is asked by [`crate::json::check_canonical`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BadFrame> {
        match Self::canonical(bytes) {
            Ok(read) => read,
            Err(_) => Self::by_names(bytes).and_then(Self::checked),
        }
    }

    /// As [`Frame::parse`], of canonical bytes only: the outer error is that they are not.
    pub(crate) fn canonical(bytes: &'a [u8]) -> Result<Result<Self, BadFrame>, NotCanonical> {
        if let Some(frame) = json::text(bytes, Limits::FRAME).and_then(canonical::frame) {
            let check = frame.check();
            return Ok(check.map(|()| frame));
        }
        json::check_canonical(bytes, Limits::FRAME)?;
        Ok(Self::by_names(bytes).and_then(Self::checked))
    }

    /// Reads the members in any order, and says what is wrong with them.
    fn by_names(bytes: &'a [u8]) -> Result<Self, BadFrame> {
        json::typed(bytes).map_err(|error| {
            // Another format or suite is told apart from a malformed one: its members are not ours to judge.
            let value = json::typed(bytes).unwrap_or(Value::Null);
            if value["onrecord"] != FORMAT {
                other_format(value["onrecord"].as_str())
            } else if value["kind"] == "session" && value["body"]["suite"] != SUITE {
                other_suite(value["body"]["suite"].as_str())
            } else {
                BadFrame::Shape(reason(&error))
            }
        })
    }

    fn checked(self) -> Result<Self, BadFrame> {
        self.check().map(|()| self)
    }

    /// Whether format, suite and shape are ours.
    fn check(&self) -> Result<(), BadFrame> {
        if self.onrecord != FORMAT {
            return Err(other_format(Some(&self.onrecord)));
        }
        if self.kind == Kind::Session {
            let suite = json::typed::<SuiteOnly<'_>>(self.body.as_bytes())
                .ok()
                .and_then(|only| only.suite);
            if suite.as_deref() != Some(SUITE) {
                return Err(other_suite(suite.as_deref()));
            }
        }
        self.check_shape().map_err(BadFrame::Shape)
    }

    /// The members of the `session` frame's body that the format knows.
    pub fn session(&self) -> Result<Session, BadFrame> {
        let session: Session = json::typed(self.body.as_bytes())
            .map_err(|error| BadFrame::Shape(format!("session body: {}", reason(&error))))?;
        if session.run_no == 0 {
            return Err(BadFrame::Shape("session body: run_no starts at 1".into()));
        }
        Ok(session)
    }

    /// The status of an `outcome` frame.
    pub fn status(&self) -> Result<Status, BadFrame> {
        json::typed::<StatusOnly>(self.body.as_bytes())
            .map(|only| only.status)
            .map_err(|error| BadFrame::Shape(format!("outcome body: {}", reason(&error))))
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
        check_body(self.body.as_bytes())?;
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
            shape::check_submitted(submitted)?;
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

/// What serde found wrong. Where it was, it counts in lines of a text that has one line.
fn reason(error: &serde_json::Error) -> String {
    let text = format!("{error}");
    match text.rfind(" at line ") {
        Some(end) => text[..end].into(),
        None => text,
    }
}

fn other_format(found: Option<&str>) -> BadFrame {
    BadFrame::Suite(format!(
        "the frame's format is {}, expected {FORMAT}",
        found.unwrap_or("absent")
    ))
}

fn other_suite(found: Option<&str>) -> BadFrame {
    BadFrame::Suite(format!(
        "the session's suite is {}, expected {SUITE}",
        found.unwrap_or("absent")
    ))
}
