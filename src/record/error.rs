//! Why a request was not carried out.

use super::intake::IntakeError;
use crate::access::AccessError;
use crate::ledger::LedgerError;
use crate::redact::RuleError;
use crate::rotation::RotationError;
use crate::store::search::SECONDS;
use crate::store::{self, Failure, StoreError};
use crate::vault::VaultError;
use onrecord_core::chain::Fault;
use onrecord_core::digest::Hash;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use std::sync::Arc;

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The request is malformed.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// The token may not do it.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// No such run in the tenant.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// No such frame in the run.
    #[error("run {run} has no frame {seq}")]
    NoFrame {
        /// The run.
        run: RunId,
        /// The place.
        seq: u64,
    },
    /// No frame of the run commits to such a payload.
    #[error("run {run} has no payload {commit}")]
    NoPayload {
        /// The run.
        run: RunId,
        /// The commitment.
        commit: Hash,
    },
    /// The payload was erased.
    #[error("payload {commit} was erased; entry {index} of the ledger is its certificate")]
    Erased {
        /// The commitment.
        commit: Hash,
        /// Index of the entry.
        index: u64,
    },
    /// The payload expired.
    #[error("payload {commit} expired under {policy}{}", expired_where(*.at, *.index))]
    Expired {
        /// The commitment.
        commit: Hash,
        /// `SCHEDULE@VERSION`.
        policy: String,
        /// When it expired, or where it is erased, when that was certified.
        at: Timestamp,
        /// Index of the ledger's entry that certifies it; `None` where it is not erased yet.
        index: Option<u64>,
    },
    /// The payload was never sent.
    #[error("payload {commit} was kept by its agent, which sent the commitment alone")]
    NotKept {
        /// The commitment.
        commit: Hash,
    },
    /// The payload is lost.
    #[error("payload {commit} was recorded, was not erased, and is not there")]
    Missing {
        /// The commitment.
        commit: Hash,
    },
    /// Nothing of it may be erased.
    #[error("{} for {matter:?} is in force; nothing under it is erased", numbered(*.hold))]
    Held {
        /// Number of the hold; `None` for one that was ordered and is not on the ledger yet.
        hold: Option<u64>,
        /// What it is for.
        matter: String,
    },
    /// Something of it has to be kept for longer.
    #[error("tier {tier} of run {run} is kept until {until} under {schedule}")]
    Floor {
        /// The run.
        run: RunId,
        /// The tier.
        tier: i16,
        /// Until when, in words.
        until: String,
        /// `SCHEDULE@VERSION`.
        schedule: String,
    },
    /// A document that is no retention policy.
    #[error("{detail}")]
    BadPolicy {
        /// Where in the document.
        pointer: String,
        /// What is wrong there.
        detail: String,
    },
    /// The tenant's retention policy has no such version.
    #[error("there is no version {0} of the retention policy")]
    NoPolicy(u64),
    /// No such erasure in the tenant.
    #[error("there is no erasure {0}")]
    NoErasure(RunId),
    /// The key was used for another erasure.
    #[error("key {0:?} was used for another erasure")]
    ErasureKey(String),
    /// An epoch could not be rotated.
    #[error(transparent)]
    Rotation(RotationError),
    /// No such hold in the tenant.
    #[error("there is no hold {0}")]
    NoHold(u64),
    /// A hold ends with the order that wants it.
    #[error("hold {hold} is wanted by order {order}, and ends with it")]
    HoldOfOrder {
        /// Its number.
        hold: u64,
        /// The order.
        order: String,
    },
    /// No such order of holds in the tenant.
    #[error("there is no order of holds {0}")]
    NoHoldOrder(RunId),
    /// Nobody asked to release it, or that was answered.
    #[error("no request to release it waits for anybody")]
    NoHoldRelease,
    /// The run has no such flag.
    #[error("run {run} has no flag {flag:?} of that incident")]
    NoFlag {
        /// The run.
        run: RunId,
        /// The flag.
        flag: String,
    },
    /// Nobody has such a pseudonym.
    #[error("{0} stands for nobody, or for somebody who is forgotten")]
    NoPerson(String),
    /// No question that was entered there, or one whose text was removed.
    #[error("there is no query at index {0} of the ledger, or what it asked is forgotten")]
    NoQuery(u64),
    /// No filter is kept under that name.
    #[error("no query is saved as {0}")]
    NoSavedQuery(String),
    /// No such ledger.
    #[error("there is no ledger {0}")]
    NoLog(String),
    /// The latest checkpoint does not reach so far.
    #[error("{what} is beyond the latest checkpoint, which has {size} entries")]
    BeyondCheckpoint {
        /// What was asked for.
        what: String,
        /// Entries under the checkpoint.
        size: u64,
    },
    /// No checkpoint of that size was ever signed.
    #[error("no checkpoint of {asked} entries was ever signed; the next one has {next}")]
    NoCheckpoint {
        /// What was asked for.
        asked: u64,
        /// The size of the first checkpoint above it.
        next: u64,
    },
    /// No such turn in the run.
    #[error("run {run} has no turn {turn}")]
    NoTurn {
        /// The run.
        run: RunId,
        /// The number.
        turn: u64,
    },
    /// Another seal key is in force than the one that was to be revoked.
    #[error("the seal key in force is {keyid}")]
    KeyNotInForce {
        /// The key in force.
        keyid: Hash,
    },
    /// The run is sealed.
    #[error("run {0} is sealed; nothing can be added")]
    Sealed(RunId),
    /// The run is not sealed.
    #[error("run {0} is not sealed yet")]
    Open(RunId),
    /// The run has its `session_end`.
    #[error("run {0} has ended; only a seal can follow")]
    Ended(RunId),
    /// The turn that was asked for is not the open one.
    #[error("turn {asked} is not open{}", .open.map_or_else(|| "; no turn is".to_owned(), |open| format!("; turn {open} is")))]
    TurnNotOpen {
        /// The turn that was asked for.
        asked: u64,
        /// The turn that is open.
        open: Option<u64>,
    },
    /// The turn cannot be opened under that number.
    #[error("the next turn is {next}, not {asked}")]
    TurnNumber {
        /// The number that was asked for.
        asked: u64,
        /// The number that it would have.
        next: u64,
    },
    /// The turn is more than a proof of its own may hold.
    #[error(
        "turn {turn} has {bytes} bytes of frames and payloads, too many for a proof of its own"
    )]
    TurnTooLarge {
        /// The turn.
        turn: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// The key was used for another request.
    #[error("key {key:?} was used for another request, which is frame {seq} of run {run}")]
    KeyConflict {
        /// The key.
        key: String,
        /// The run.
        run: RunId,
        /// Its frame.
        seq: u64,
    },
    /// The head that the writer saw is not the head any more.
    #[error("the run's head is {head} now, {size} frames")]
    HeadMoved {
        /// The head.
        head: Hash,
        /// The size.
        size: u64,
    },
    /// A link names a frame that is not there.
    #[error("{pointer}: no earlier frame of the run is {wanted}")]
    NoLink {
        /// Where in the request.
        pointer: String,
        /// What it names.
        wanted: String,
    },
    /// A key was registered before, for somebody else or until it was revoked.
    #[error("key {0} was registered before")]
    AgentKeyTaken(Hash),
    /// No such key of an agent.
    #[error("the tenant has no agent's key {0}")]
    NoAgentKey(Hash),
    /// Frames of the actor are there that nobody signed, and its key would make faults of them.
    #[error("agent {actor:?} wrote frames that are not signed")]
    WroteUnsigned {
        /// The actor.
        actor: String,
    },
    /// The actor signs its frames, and this one is not signed.
    #[error("agent {actor:?} has a key, so that each of its frames has to be signed")]
    Unsigned {
        /// The actor.
        actor: String,
    },
    /// No such key of that actor, or one that is revoked.
    #[error("key {keyid} is none of agent {actor:?}, or is revoked")]
    AgentKey {
        /// The key.
        keyid: Hash,
        /// The actor.
        actor: String,
    },
    /// The signature is not that of the key over this frame.
    #[error("the signature is not that of the key over this frame")]
    FalseSignature,
    /// The key does not count on.
    #[error("the next n of key {keyid} in this run is {expected}, not {found}")]
    WrongCount {
        /// The key.
        keyid: Hash,
        /// What it is next.
        expected: u64,
        /// What was sent.
        found: u64,
    },
    /// A commitment of the agent's own is in the run already.
    #[error("commitment {0} is that of an earlier payload of the run")]
    CommitUsed(Hash),
    /// The frame is over 64 KiB without its payloads.
    #[error("the frame has {bytes} bytes without its payloads, a frame has at most 65536")]
    FrameTooLarge {
        /// Its bytes.
        bytes: usize,
    },
    /// The frame breaks a rule of its place.
    #[error("{}", .0.detail)]
    Fault(Fault),
    /// The database's clock is behind.
    #[error("the database's clock is {behind_ms} ms behind the last entry")]
    ClockBehind {
        /// By how much.
        behind_ms: i64,
    },
    /// Entries of the tenant's ledger that were published are not there, and nobody accepted it.
    #[error(
        "the ledger lacks entries that were published: the database was put back, and nothing is recorded until that is accepted"
    )]
    Rewound,
    /// There is nothing to accept.
    #[error("the ledger has all that was published; there is nothing to accept")]
    NotRewound,
    /// No such tenant, though a token is of it.
    #[error("tenant {0} is not there")]
    NoTenant(TenantId),
    /// A search took longer than it may.
    #[error("the search was given up after {SECONDS} s")]
    TooSlow,
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A key.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// As much waits to be written as may.
    #[error("as many frames wait to be written as may")]
    Busy,
    /// Nothing is taken any more.
    #[error("the server is stopping")]
    Stopping,
    /// The database failed, and nothing was stored. Shared by all whose frames were in the batch.
    #[error("{0}")]
    NotStored(Arc<StoreError>),
    /// The database failed, and whether the write was stored is not known.
    #[error("the database did not say whether the write was stored")]
    Unknown,
    /// A document of rules that cannot be used.
    #[error("{0}")]
    BadRules(RuleError),
    /// A stored document of rules cannot be used: another version of this program wrote it.
    #[error("the tenant's rules of redaction cannot be used: {0}")]
    StoredRules(RuleError),
    /// The tenant's rules have no such version.
    #[error("there is no version {0} of the tenant's rules")]
    NoRules(u64),
    /// A task of ours ended without an answer.
    #[error("the work was cut off; whether it was done is not known")]
    CutOff,
}

fn expired_where(at: Timestamp, index: Option<u64>) -> String {
    match index {
        Some(index) => {
            format!(" and was erased at {at}; entry {index} of the ledger is its certificate")
        }
        None => format!(" at {at}; it is about to be erased, and has no certificate yet"),
    }
}

/// Commits a write. An answer that is lost leaves it open whether it was done; its writer finds out with its key.
pub(crate) async fn commit(tx: store::Tx) -> Result<(), RecordError> {
    tx.commit().await.map_err(|error| {
        let error = StoreError::from(error);
        match error.failure() {
            Failure::Unknown => {
                tracing::warn!(%error, "whether a write was committed is not known");
                RecordError::Unknown
            }
            _ => error.into(),
        }
    })
}

impl RecordError {
    /// What a search failed with.
    pub(crate) fn of_search(error: StoreError) -> Self {
        if error.is_too_slow() {
            return Self::TooSlow;
        }
        Self::Store(error)
    }
}

impl From<RotationError> for RecordError {
    fn from(error: RotationError) -> Self {
        match error {
            RotationError::Store(error) => Self::Store(error),
            RotationError::Vault(error) => Self::Vault(error),
            other => Self::Rotation(other),
        }
    }
}

impl From<LedgerError> for RecordError {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Store(error) => Self::Store(error),
            LedgerError::Vault(error) => Self::Vault(error),
            LedgerError::ClockBehind { behind_ms } => Self::ClockBehind { behind_ms },
            LedgerError::Rewound => Self::Rewound,
        }
    }
}

/// A hold by its number, where it has one.
fn numbered(hold: Option<u64>) -> String {
    match hold {
        Some(hold) => format!("hold {hold}"),
        None => "a hold that was ordered".to_owned(),
    }
}
