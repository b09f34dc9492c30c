//! Who had to do with a run, and when: the ledger's part of a report. A reading above the format, entry by entry.

use crate::digest::Hash;
use crate::frame::Actor;
use crate::statement::{FlagAction, HoldAction, KeyAction, KeyRole, Predicate, Signed};
use crate::timestamp::Timestamp;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::Serialize;

/// What somebody did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deed {
    /// The run was opened.
    Opened,
    /// It was sealed.
    Sealed,
    /// Payloads of it were read.
    Read,
    /// It was exported, with payloads.
    Exported,
    /// It, or the whole tenant, was held.
    Held,
    /// A hold ended.
    Released,
    /// Somebody put a flag on it.
    Flagged,
    /// A flag was taken off it.
    FlagCleared,
    /// Payloads of it were erased.
    Erased,
    /// A key of the tenant began to count.
    KeyAdded,
    /// A key of the tenant ended.
    KeyRevoked,
}

impl Deed {
    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Sealed => "sealed",
            Self::Read => "read",
            Self::Exported => "exported",
            Self::Held => "held",
            Self::Released => "released",
            Self::Flagged => "flagged",
            Self::FlagCleared => "flag cleared",
            Self::Erased => "erased",
            Self::KeyAdded => "key added",
            Self::KeyRevoked => "key revoked",
        }
    }
}

/// One entry of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// Who; the store, where the statement names nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Actor>,
    /// In words: what of, why.
    pub detail: String,
    /// Index of the entry.
    pub index: u64,
    /// Id of the key that signs the entry.
    pub keyid: Hash,
    /// What was done.
    pub what: Deed,
}

/// Statements of how far the run was while it was open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Heads {
    /// How many.
    pub count: u64,
    /// Time and size of the last one, and its index.
    pub last_at: Timestamp,
    /// Frames that it states.
    pub last_size: u64,
    /// Its index.
    pub last_index: u64,
}

/// The custody of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Custody {
    /// In the order of the ledger.
    pub events: Vec<Event>,
    /// Statements of how far it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads: Option<Heads>,
    /// Indexes of entries that could not be read, or say something that this version does not know.
    pub unread: Vec<u64>,
}

impl Custody {
    /// The next entry of the ledger that is about the run, about the whole tenant, or about keys.
    pub fn read(&mut self, index: u64, envelope: &[u8]) {
        let read = Signed::parse(envelope).and_then(|signed| Ok((signed.predicate()?, signed)));
        let Ok((Some(predicate), signed)) = read else {
            self.unread.push(index);
            return;
        };
        let (what, by, detail) = match &predicate {
            Predicate::RunHead(head) => {
                let count = self.heads.as_ref().map_or(0, |heads| heads.count) + 1;
                self.heads = Some(Heads {
                    count,
                    last_at: head.at,
                    last_size: head.state.size,
                    last_index: index,
                });
                return;
            }
            Predicate::RunOpen(open) => {
                let detail = format!("as run {} of the tenant", open.run_no);
                (Deed::Opened, None, detail)
            }
            Predicate::RunSeal(seal) => {
                let detail = format!("{} frames, root {}", seal.state.size, seal.state.root);
                (Deed::Sealed, None, detail)
            }
            Predicate::Access(access) => {
                let (what, of) = match &access.commits {
                    Some(commits) => (Deed::Read, payloads(commits.len() as u64)),
                    None => (Deed::Exported, "the whole run".to_owned()),
                };
                let detail = format!("{of}, for: {}", access.purpose);
                (what, Some(&access.by), detail)
            }
            Predicate::Hold(hold) => {
                let what = match hold.action {
                    HoldAction::Set => Deed::Held,
                    HoldAction::Released => Deed::Released,
                };
                let over = if hold.run.is_some() {
                    "the run"
                } else {
                    "the whole tenant"
                };
                let with = hold.with.as_ref();
                let with = with.map(|with| format!(", with {} {}", with.kind.as_str(), with.id));
                let detail = format!(
                    "{over}, matter {}{}{}",
                    hold.matter,
                    reason(hold.reason.as_deref()),
                    with.unwrap_or_default()
                );
                (what, Some(&hold.by), detail)
            }
            Predicate::Flag(flag) => {
                let what = match flag.action {
                    FlagAction::Set => Deed::Flagged,
                    FlagAction::Cleared => Deed::FlagCleared,
                };
                let incident = flag.incident.as_deref();
                let incident = incident.map(|incident| format!(", incident {incident}"));
                let detail = format!(
                    "{}{}{}",
                    flag.flag,
                    incident.unwrap_or_default(),
                    reason(flag.reason.as_deref())
                );
                (what, Some(&flag.by), detail)
            }
            Predicate::Erasure(erasure) => {
                let tiers = erasure.whole_tiers();
                let tiers = tiers.iter().map(|tier| format!("tier {tier}, "));
                let of = format!("{}{}", tiers.collect::<String>(), payloads(erasure.count));
                let detail = format!(
                    "{of}, under policy {}, for: {}",
                    erasure.policy, erasure.reason
                );
                (Deed::Erased, Some(&erasure.by), detail)
            }
            Predicate::Key(key) => {
                let what = match key.action {
                    KeyAction::Added => Deed::KeyAdded,
                    KeyAction::Revoked => Deed::KeyRevoked,
                };
                let role = match key.role {
                    KeyRole::Seal => "seal",
                    KeyRole::Agent => "agent",
                    KeyRole::Ledger => "ledger",
                    KeyRole::Witness => "witness",
                };
                let reason = reason(key.reason.as_deref());
                (what, None, format!("{role} key {}{reason}", key.keyid))
            }
            _ => {
                self.unread.push(index);
                return;
            }
        };
        self.events.push(Event {
            at: predicate.at(),
            by: by.cloned(),
            detail,
            index,
            keyid: signed.keyid,
            what,
        });
    }
}

fn reason(reason: Option<&str>) -> String {
    let said = reason.map(|reason| format!(", for: {reason}"));
    said.unwrap_or_default()
}

fn payloads(count: u64) -> String {
    match count {
        1 => "1 payload".to_owned(),
        count => format!("{count} payloads"),
    }
}
