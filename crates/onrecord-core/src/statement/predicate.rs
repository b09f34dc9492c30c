//! What statements say: the predicates, a structure each.

use super::{
    BadStatement, DISPOSAL_SUBJECT, FRAMES_SUBJECT, MANIFEST_SUBJECT, PREDICATE_HOST,
    PREDICATE_VERSION, QUERY_SUBJECT, Query, STATEMENT_TYPE, Signed, malformed,
};
use crate::chain::genesis;
use crate::digest::Hash;
use crate::frame::{Actor, Kind, SUITE, check_actor, present};
use crate::id::{Origin, RunId, TenantId};
use crate::json;
use crate::timestamp::Timestamp;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The first `size` frames of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Hash of the last of them.
    pub head: Hash,
    /// RFC 9162 root of them.
    pub root: Hash,
    /// The run.
    pub run: RunId,
    /// How many.
    pub size: u64,
}

/// `run-open`: a run was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOpen {
    /// When the store wrote the entry.
    pub at: Timestamp,
    /// Number of the run in the tenant.
    pub run_no: u64,
    /// Size 1.
    #[serde(flatten)]
    pub state: State,
}

/// `run-head`: how far a run is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHead {
    /// When.
    pub at: Timestamp,
    /// How far.
    #[serde(flatten)]
    pub state: State,
}

/// Whether a run was recorded to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Completeness {
    /// To its `session_end`.
    Full,
    /// To its `session_end`, and some frames were left out on purpose.
    Sampled,
    /// Not to its `session_end`.
    Interrupted,
}

/// `outcome` of a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Status of the last outcome frame.
    Completed,
    /// Status of the last outcome frame.
    Failed,
    /// Status of the last outcome frame.
    Cancelled,
    /// No outcome frame.
    Unknown,
}

impl From<Option<crate::frame::Status>> for Outcome {
    fn from(status: Option<crate::frame::Status>) -> Self {
        match status {
            Some(crate::frame::Status::Completed) => Self::Completed,
            Some(crate::frame::Status::Failed) => Self::Failed,
            Some(crate::frame::Status::Cancelled) => Self::Cancelled,
            None => Self::Unknown,
        }
    }
}

/// Payload states at sealing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadCounts {
    /// All payloads of the run.
    pub count: u64,
    /// Erased by then.
    pub erased: u64,
    /// Missing by then.
    pub missing: u64,
}

/// Where the run stands in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerPosition {
    /// Index of the opening.
    pub open_index: u64,
    /// The ledger.
    pub origin: Origin,
}

/// The seal before this one in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Previous {
    /// Its leaf hash.
    pub hash: Hash,
    /// Its run.
    pub run: RunId,
}

/// `run-seal`: the whole run, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSeal {
    /// Whether it was recorded to its end.
    pub completeness: Completeness,
    /// Frames of each kind.
    pub kinds: BTreeMap<Kind, u64>,
    /// Position of the opening.
    pub ledger: LedgerPosition,
    /// `at` of frame 0.
    pub opened_at: Timestamp,
    /// Status of the last outcome.
    pub outcome: Outcome,
    /// Payload states.
    pub payloads: PayloadCounts,
    /// The seal before it.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub previous: Option<Previous>,
    /// Number of the run in the tenant.
    pub run_no: u64,
    /// When.
    pub sealed_at: Timestamp,
    /// All frames.
    #[serde(flatten)]
    pub state: State,
}

/// Whether a key is trusted from here on or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyAction {
    /// From here on.
    Added,
    /// No longer.
    Revoked,
}

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyRole {
    /// Signs statements.
    Seal,
    /// Signs an agent's frames.
    Agent,
    /// Signs checkpoints.
    Ledger,
    /// Cosigns checkpoints.
    Witness,
}

/// `key`: a key was added or revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Which of the two.
    pub action: KeyAction,
    /// When.
    pub at: Timestamp,
    /// Hex SHA-256 of `spki`.
    pub keyid: Hash,
    /// Why.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub reason: Option<String>,
    /// What it is for.
    pub role: KeyRole,
    /// SPKI DER in base64.
    pub spki: String,
}

/// Whether a hold begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HoldAction {
    /// Begins.
    Set,
    /// Ends.
    Released,
}

/// `hold`: nothing of the run, or of the tenant, may be erased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Which of the two.
    pub action: HoldAction,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: Actor,
    /// The matter that it is for.
    pub matter: String,
    /// Why.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub reason: Option<String>,
    /// The run; absent for the whole tenant.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub run: Option<RunId>,
    /// The second person of a release that takes two.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub with: Option<Actor>,
}

/// Whether a flag is put on a run or taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlagAction {
    /// Put on.
    Set,
    /// Taken off.
    Cleared,
}

/// `flag`: somebody marked a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flag {
    /// Which of the two.
    pub action: FlagAction,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: Actor,
    /// The flag.
    pub flag: String,
    /// The incident that it is about.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub incident: Option<String>,
    /// Why.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub reason: Option<String>,
    /// The run.
    pub run: RunId,
}

/// `erasure`: the keys of payloads were destroyed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasure {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: Actor,
    /// Which payloads, unless a tier.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub commits: Option<Vec<Hash>>,
    /// How many.
    pub count: u64,
    /// How.
    pub method: String,
    /// Under which policy.
    pub policy: String,
    /// Why.
    pub reason: String,
    /// Frames below this size are covered.
    #[serde(flatten)]
    pub state: State,
    /// All payloads of this tier, unless of several or single ones.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub tier: Option<u8>,
    /// All payloads of these tiers, which are at least two, ascending.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub tiers: Option<Vec<u8>>,
}

impl Erasure {
    /// The tiers of which all payloads are erased, ascending; none where single ones are.
    pub fn whole_tiers(&self) -> Vec<u8> {
        let tiers = self.tiers.iter().flatten().copied();
        self.tier.into_iter().chain(tiers).collect()
    }

    /// Whether it names either tiers or single payloads, in the one way there is for each.
    fn fits(&self) -> bool {
        let said = [
            self.tier.is_some(),
            self.tiers.is_some(),
            self.commits.is_some(),
        ];
        let several = self.tiers.as_deref();
        said.into_iter().filter(|said| *said).count() == 1
            && self.whole_tiers().iter().all(|tier| *tier <= 3)
            && several.is_none_or(|tiers| tiers.len() > 1 && tiers.is_sorted_by(|a, b| a < b))
    }
}

/// `disposal`: how far an erasure is, over the list of the ledger's entries that certify it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disposal {
    /// When this was signed.
    pub at: Timestamp,
    /// From when on no backup opens any of it, where the operator says how long keys are backed up for.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub backups_dead_at: Option<Timestamp>,
    /// Who asked for it.
    pub by: Actor,
    /// Payloads that were erased.
    pub count: u64,
    /// Entries of the ledger that certify it: lines of the subject.
    pub entries: u64,
    /// Its id.
    pub erasure: RunId,
    /// When the last epoch was destroyed that had wrapped a key of it.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub final_at: Option<Timestamp>,
    /// When no key was left in the store that opens any of it.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub keys_destroyed_at: Option<Timestamp>,
    /// Under which policy.
    pub policy: String,
    /// Why.
    pub reason: String,
    /// When the last ciphertext was removed.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub removed_at: Option<Timestamp>,
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// `payloads`, `subject`, `tier` or `tenant`; `expiry` for what expired under a schedule.
    pub scope: String,
}

/// `access`: payloads were read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: Actor,
    /// Which payloads, unless the whole run.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub commits: Option<Vec<Hash>>,
    /// Why.
    pub purpose: String,
    /// In which role.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub role: Option<String>,
    /// The run.
    pub run: RunId,
    /// `run`, unless single payloads.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub scope: Option<String>,
}

/// Payloads of an export by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportCounts {
    /// In the bundle.
    pub disclosed: u64,
    /// Erased, with a certificate.
    pub erased: u64,
    /// Lost.
    pub missing: u64,
    /// Never sent.
    pub not_kept: u64,
    /// Left out.
    pub withheld: u64,
}

/// `export`: a bundle was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: Actor,
    /// What it holds.
    pub payloads: ExportCounts,
    /// Why.
    pub purpose: String,
    /// The run.
    pub run: RunId,
}

/// `policy`: a policy changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: Actor,
    /// Its name.
    pub policy: String,
    /// Its version.
    pub version: u64,
}

/// A checkpoint that was published, and that the ledger does not have any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Its root, where it is known.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub root: Option<Hash>,
    /// Its size.
    pub size: u64,
    /// Who knows it: `published`, or a witness's verifier key.
    pub told_by: String,
}

/// `rewind`: the ledger goes on from before what was published of it, since its database was put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewind {
    /// When it was accepted.
    pub at: Timestamp,
    /// Who accepted it.
    pub by: Actor,
    /// What was published and is not there.
    pub published: Vec<Published>,
    /// Why.
    pub reason: String,
    /// Root of the ledger that goes on.
    pub root: Hash,
    /// Its size, which is the index of this statement.
    pub size: u64,
}

/// Evidence of a release: a frame in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The frame.
    pub hash: Hash,
    /// The run.
    pub run: RunId,
}

/// `release`: a release was promoted or rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: Actor,
    /// `promoted` or `rejected`.
    pub decision: String,
    /// What it rests on.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub evidence: Option<Vec<Evidence>>,
    /// Its name.
    pub release: String,
}

macro_rules! predicates {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What a statement says.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Predicate { $($(#[$doc])* $variant($variant),)* }

        impl Predicate {
            pub(super) fn read(name: &str, value: &Value) -> Result<Option<Self>, BadStatement> {
                match name {
                    $($name => crate::json::typed_value(value.clone()).map(|one| Some(Self::$variant(one)))
                        .map_err(|error| malformed(format!("{name}: {error}"))),)*
                    _ => Ok(None),
                }
            }

            /// The NAME in its predicate type.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)* }
            }

            fn value(&self) -> Result<Value, serde_json::Error> {
                match self { $(Self::$variant(one) => serde_json::to_value(one),)* }
            }
        }
    };
}

predicates! {
    /// A run was opened.
    RunOpen = "run-open",
    /// How far a run is.
    RunHead = "run-head",
    /// A run was sealed.
    RunSeal = "run-seal",
    /// A key was added or revoked.
    Key = "key",
    /// A hold was set or released.
    Hold = "hold",
    /// A flag was put on a run or taken off.
    Flag = "flag",
    /// Payloads were erased.
    Erasure = "erasure",
    /// How far an erasure is.
    Disposal = "disposal",
    /// Payloads were read.
    Access = "access",
    /// A bundle was made.
    Export = "export",
    /// A question was asked over many runs.
    Query = "query",
    /// A policy changed.
    Policy = "policy",
    /// The ledger goes on from before what was published.
    Rewind = "rewind",
    /// A release was promoted or rejected.
    Release = "release",
}

impl Predicate {
    /// The time of the statement, which never goes back in a ledger.
    pub fn at(&self) -> Timestamp {
        match self {
            Self::RunOpen(one) => one.at,
            Self::RunHead(one) => one.at,
            Self::RunSeal(one) => one.sealed_at,
            Self::Key(one) => one.at,
            Self::Hold(one) => one.at,
            Self::Flag(one) => one.at,
            Self::Erasure(one) => one.at,
            Self::Disposal(one) => one.at,
            Self::Access(one) => one.at,
            Self::Export(one) => one.at,
            Self::Query(one) => one.at,
            Self::Policy(one) => one.at,
            Self::Rewind(one) => one.at,
            Self::Release(one) => one.at,
        }
    }

    /// The run that the statement is about, if it is about one.
    pub fn run(&self) -> Option<&RunId> {
        match self {
            Self::RunOpen(one) => Some(&one.state.run),
            Self::RunHead(one) => Some(&one.state.run),
            Self::RunSeal(one) => Some(&one.state.run),
            Self::Hold(one) => one.run.as_ref(),
            Self::Flag(one) => Some(&one.run),
            Self::Erasure(one) => Some(&one.state.run),
            Self::Access(one) => Some(&one.run),
            Self::Export(one) => Some(&one.run),
            Self::Key(_)
            | Self::Disposal(_)
            | Self::Policy(_)
            | Self::Query(_)
            | Self::Rewind(_)
            | Self::Release(_) => None,
        }
    }

    /// Who did what it says, where that is somebody else than the store.
    fn by(&self) -> Option<&Actor> {
        match self {
            Self::Hold(one) => Some(&one.by),
            Self::Flag(one) => Some(&one.by),
            Self::Erasure(one) => Some(&one.by),
            Self::Disposal(one) => Some(&one.by),
            Self::Access(one) => Some(&one.by),
            Self::Export(one) => Some(&one.by),
            Self::Query(one) => Some(&one.by),
            Self::Policy(one) => Some(&one.by),
            Self::Rewind(one) => Some(&one.by),
            Self::Release(one) => Some(&one.by),
            Self::RunOpen(_) | Self::RunHead(_) | Self::RunSeal(_) | Self::Key(_) => None,
        }
    }

    /// The canonical payload to sign: the statement with its one subject. `digest` is that of the
    /// subject; where the format fixes it ([`Predicate::fixed_subject`]) it has to be that.
    pub fn payload(
        &self,
        tenant: &TenantId,
        keyid: &Hash,
        subject: &str,
        digest: &Hash,
    ) -> Result<Vec<u8>, BadStatement> {
        let unwritable = |error: &dyn core::fmt::Display| malformed(format!("statement: {error}"));
        let mut predicate = self.value().map_err(|error| unwritable(&error))?;
        if let Some(members) = predicate.as_object_mut() {
            members.insert("suite".into(), SUITE.into());
            members.insert("tenant".into(), tenant.as_str().into());
            members.insert("signer".into(), serde_json::json!({ "keyid": keyid.hex() }));
        }
        let statement = serde_json::json!({
            "_type": STATEMENT_TYPE,
            "predicate": predicate,
            "predicateType": format!("{PREDICATE_HOST}{}{PREDICATE_VERSION}", self.name()),
            "subject": [{ "digest": { "sha256": digest.hex() }, "name": subject }],
        });
        json::to_canonical(&statement).map_err(|error| unwritable(&error))
    }

    /// The subject where the format fixes it: RUN, TENANT and keys.
    pub fn fixed_subject(&self, tenant: &TenantId) -> Option<(String, Hash)> {
        let of_run = |run: &RunId| (run.to_string(), genesis(tenant, run));
        let of_tenant = || (tenant.to_string(), Hash::of(&[tenant.as_str().as_bytes()]));
        match self {
            Self::Key(key) => Some((key.keyid.hex(), key.keyid)),
            Self::Hold(hold) => Some(match &hold.run {
                Some(run) => of_run(run),
                None => of_tenant(),
            }),
            Self::Flag(flag) => Some(of_run(&flag.run)),
            Self::Rewind(_) => Some(of_tenant()),
            Self::Erasure(erasure) => Some(of_run(&erasure.state.run)),
            Self::Access(access) => Some(of_run(&access.run)),
            _ => None,
        }
    }

    /// Rules between the members, and of the subject.
    pub(super) fn check(&self, signed: &Signed) -> Result<(), BadStatement> {
        let name = match self {
            Self::RunOpen(_) | Self::RunHead(_) | Self::RunSeal(_) => Some(FRAMES_SUBJECT),
            Self::Export(_) => Some(MANIFEST_SUBJECT),
            Self::Disposal(_) => Some(DISPOSAL_SUBJECT),
            Self::Query(_) => Some(QUERY_SUBJECT),
            _ => None,
        };
        if name.is_some_and(|name| name != signed.subject) {
            return Err(malformed(format!("the subject is {:?}", signed.subject)));
        }
        if let Some((name, digest)) = self.fixed_subject(&signed.tenant)
            && (name != signed.subject || digest != signed.digest)
        {
            return Err(malformed(format!(
                "the subject is {:?} with {}, expected {name:?} with {digest}",
                signed.subject, signed.digest
            )));
        }
        let fits = match self {
            Self::RunOpen(open) => open.state.size == 1 && open.run_no > 0,
            Self::RunHead(head) => head.state.size > 0,
            Self::RunSeal(seal) => seal.run_no > 0,
            Self::Key(key) => STANDARD
                .decode(&key.spki)
                .is_ok_and(|der| Hash::of(&[&der]) == key.keyid),
            Self::Erasure(erasure) => erasure.fits(),
            Self::Access(access) => {
                access.scope.is_some() != access.commits.is_some()
                    && access.scope.as_deref().is_none_or(|scope| scope == "run")
                    && access
                        .commits
                        .as_deref()
                        .is_none_or(|commits| !commits.is_empty())
            }
            Self::Release(release) => matches!(release.decision.as_str(), "promoted" | "rejected"),
            Self::Rewind(rewind) => !rewind.published.is_empty(),
            Self::Disposal(disposal) => matches!(
                disposal.scope.as_str(),
                "payloads" | "subject" | "tier" | "tenant" | "expiry"
            ),
            Self::Hold(hold) => hold
                .with
                .as_ref()
                .is_none_or(|with| check_actor(with).is_ok()),
            Self::Flag(_) | Self::Export(_) | Self::Policy(_) | Self::Query(_) => true,
        };
        if fits && self.by().is_none_or(|by| check_actor(by).is_ok()) {
            Ok(())
        } else {
            Err(malformed(format!(
                "{}: its members do not go together",
                self.name()
            )))
        }
    }
}
