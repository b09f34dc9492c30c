//! Signed statements: a DSSE envelope around an in-toto Statement (spec: `docs/spec/statements.md`).
//!
//! Reading goes in two steps, as the checks do: [`Signed::parse`] takes the envelope and what says who
//! signed apart, [`Signed::predicate`] the rest once the signature is known to be good.

mod predicate;
mod query;

pub use predicate::{
    Access, Completeness, Disposal, Erasure, Evidence, Export, ExportCounts, Flag, FlagAction,
    Hold, HoldAction, Key, KeyAction, KeyRole, LedgerPosition, Outcome, PayloadCounts, Policy,
    Predicate, Previous, Published, Release, Rewind, RunHead, RunOpen, RunSeal, State,
};
pub use query::Query;

use crate::digest::{Hash, leaf_hash};
use crate::frame::{SUITE, signature};
use crate::id::{Origin, TenantId};
use crate::json::{self, Limits};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Media type of the signed payload.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
const PREDICATE_HOST: &str = "https://onrecord.dev/attestation/";
const PREDICATE_VERSION: &str = "/v1";
/// Subject of statements about frames.
pub const FRAMES_SUBJECT: &str = "frames.ndjson";
/// Subject of an export.
pub const MANIFEST_SUBJECT: &str = "MANIFEST.sha256";

/// Subject of a disposal.
pub const DISPOSAL_SUBJECT: &str = "erasure-entries.txt";
/// Subject of a query: its text, which says all that was asked.
pub const QUERY_SUBJECT: &str = "query.json";

/// Why bytes are no statement of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadStatement {
    /// Envelope, statement or predicate is malformed.
    #[error("{0}")]
    Malformed(String),
    /// Another suite, or none.
    #[error("the statement's suite is {0}, expected onrecord-v1")]
    Suite(String),
}

fn malformed(detail: impl Into<String>) -> BadStatement {
    BadStatement::Malformed(detail.into())
}

/// `DSSEv1 SP len(type) SP type SP len(payload) SP payload`: the bytes that are signed (DSSE, protocol.md).
pub fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "DSSEv1 {} {payload_type} {} ",
        payload_type.len(),
        payload.len()
    )
    .into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// Composes the envelope of a signed payload: canonical bytes.
pub fn envelope(payload: &[u8], keyid: &Hash, sig: &[u8; 64]) -> Vec<u8> {
    let (payload, sig) = (STANDARD.encode(payload), STANDARD.encode(sig));
    format!("{{\"payload\":\"{payload}\",\"payloadType\":\"{PAYLOAD_TYPE}\",\"signatures\":[{{\"keyid\":\"{keyid}\",\"sig\":\"{sig}\"}}]}}").into_bytes()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvelopeShape {
    payload: String,
    #[serde(rename = "payloadType")]
    payload_type: String,
    signatures: Vec<SignatureShape>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignatureShape {
    keyid: Hash,
    sig: String,
}

#[derive(Deserialize)]
struct StatementShape {
    #[serde(rename = "_type")]
    kind: String,
    predicate: Value,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    subject: Vec<SubjectShape>,
}

#[derive(Deserialize)]
struct SubjectShape {
    digest: DigestShape,
    name: String,
}

#[derive(Deserialize)]
struct DigestShape {
    sha256: Hash,
}

#[derive(Deserialize)]
struct HeadShape {
    signer: Signer,
    tenant: TenantId,
}

/// `signer` of a predicate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signer {
    /// Hex SHA-256 of the SPKI.
    pub keyid: Hash,
}

/// A statement whose envelope was read; nothing of it is believed yet.
#[derive(Clone, Debug)]
pub struct Signed {
    /// Leaf hash of the envelope's bytes.
    pub leaf: Hash,
    /// The NAME in its predicate type.
    pub name: String,
    /// The tenant that it names.
    pub tenant: TenantId,
    /// The key that it says signed it.
    pub keyid: Hash,
    /// The signature.
    pub sig: [u8; 64],
    /// Name of its one subject.
    pub subject: String,
    /// SHA-256 of its one subject.
    pub digest: Hash,
    payload: Vec<u8>,
    predicate: Value,
}

impl Signed {
    /// Takes an envelope file apart: canonical, exactly one signature, `keyid` the signed
    /// `signer.keyid`, one subject with a SHA-256, and a predicate type of ours.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadStatement> {
        json::check_canonical(bytes, Limits::ENVELOPE)
            .map_err(|error| malformed(format!("envelope: {error}")))?;
        let envelope: EnvelopeShape =
            json::typed(bytes).map_err(|error| malformed(format!("envelope: {error}")))?;
        if envelope.payload_type != PAYLOAD_TYPE {
            return Err(malformed(format!(
                "payloadType is {:?}, expected {PAYLOAD_TYPE:?}",
                envelope.payload_type
            )));
        }
        let [one] = &envelope.signatures[..] else {
            return Err(malformed(format!(
                "{} signatures, expected one",
                envelope.signatures.len()
            )));
        };
        let sig = signature(&one.sig).ok_or_else(|| malformed("sig is not 64 bytes in base64"))?;
        let payload = STANDARD
            .decode(&envelope.payload)
            .map_err(|_| malformed("payload is not canonical base64"))?;
        json::check_canonical(&payload, Limits::ENVELOPE)
            .map_err(|error| malformed(format!("payload: {error}")))?;
        let statement: StatementShape =
            json::typed(&payload).map_err(|error| malformed(format!("payload: {error}")))?;
        if statement.kind != STATEMENT_TYPE {
            return Err(malformed(format!("_type is {:?}", statement.kind)));
        }
        let name = statement
            .predicate_type
            .strip_prefix(PREDICATE_HOST)
            .and_then(|rest| rest.strip_suffix(PREDICATE_VERSION));
        let name = name
            .ok_or_else(|| malformed(format!("predicateType is {:?}", statement.predicate_type)))?
            .to_string();
        let [subject] = &statement.subject[..] else {
            return Err(malformed(format!(
                "{} subjects, expected one",
                statement.subject.len()
            )));
        };
        let head: HeadShape = json::typed_value(statement.predicate.clone())
            .map_err(|error| malformed(format!("predicate: {error}")))?;
        if head.signer.keyid != one.keyid {
            return Err(malformed(
                "the envelope's keyid is not the signed signer.keyid",
            ));
        }
        Ok(Self {
            leaf: leaf_hash(bytes),
            name,
            tenant: head.tenant,
            keyid: one.keyid,
            sig,
            subject: subject.name.clone(),
            digest: subject.digest.sha256,
            payload,
            predicate: statement.predicate,
        })
    }

    /// The bytes that the signature is over.
    pub fn pae(&self) -> Vec<u8> {
        pae(PAYLOAD_TYPE, &self.payload)
    }

    /// The ledger that the predicate names as its own, before anything else of it is read.
    pub fn ledger(&self) -> Option<Origin> {
        self.predicate
            .get("ledger")?
            .get("origin")?
            .as_str()?
            .parse()
            .ok()
    }

    /// The predicate's own members, after the suite. `None` for a name that is not known, whose
    /// members are not ours to judge.
    pub fn predicate(&self) -> Result<Option<Predicate>, BadStatement> {
        match self.predicate.get("suite").map(Value::as_str) {
            Some(Some(SUITE)) => {}
            Some(other) => return Err(BadStatement::Suite(format!("{other:?}"))),
            None => return Err(BadStatement::Suite("absent".into())),
        }
        let Some(predicate) = Predicate::read(&self.name, &self.predicate)? else {
            return Ok(None);
        };
        predicate.check(self)?;
        Ok(Some(predicate))
    }
}
