//! A database that was put back: the ledger lacks what was published of it, and nothing is entered until somebody accepts
//! that, on the ledger itself.

use super::{RecordError, Recorder, commit};
use crate::access::Caller;
use crate::ledger;
use crate::store;
use crate::store::rewinds::{PUBLISHED, Rewind};
use onrecord_core::digest::Hash;
use onrecord_core::id::TenantId;
use onrecord_core::note::Checkpoint;
use onrecord_core::statement::{self, Predicate, Published};
use onrecord_core::timestamp::Timestamp;
use std::collections::BTreeSet;
use std::sync::PoisonError;

/// A checkpoint of a ledger that somebody outside of the database knows.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// This server published it.
    Published {
        /// Its size.
        size: u64,
        /// Its root.
        root: Hash,
    },
    /// A witness knows the ledger at a size.
    Witness {
        /// The witness's verifier key.
        witness: String,
        /// The size.
        size: u64,
        /// Whether it said that the ledger does not go on from what it saw.
        contradicts: bool,
    },
}

impl Told {
    fn size(&self) -> u64 {
        match self {
            Self::Published { size, .. } | Self::Witness { size, .. } => *size,
        }
    }

    /// Whether somebody accepted that this is not there. What a witness saw up to a size that was given up is not there,
    /// whoever told of it first.
    fn is_accepted(&self, rewind: &Rewind) -> bool {
        rewind.accepted
            && match self {
                Self::Published { size, root } => {
                    rewind.told_by == PUBLISHED
                        && rewind.told_size == *size
                        && rewind.told_root == Some(*root)
                }
                Self::Witness { size, .. } => *size <= rewind.told_size,
            }
    }
}

/// What was accepted.
#[derive(Clone, Debug)]
pub(crate) struct AcceptedRewind {
    /// The statement.
    pub(crate) statement: statement::Rewind,
    /// Its index in the ledger.
    pub(crate) index: u64,
}

impl Recorder {
    /// Whether anything may be recorded for a tenant, as this process saw it last. What goes into the ledger is decided
    /// under the tenant's lock besides.
    pub(super) fn may_record(&self, tenant: &TenantId) -> Result<(), RecordError> {
        let rewound = self.rewound.read().unwrap_or_else(PoisonError::into_inner);
        if rewound.contains(tenant) {
            Err(RecordError::Rewound)
        } else {
            Ok(())
        }
    }

    /// Looks again which tenants may not record, since other processes find and accept as well.
    pub(crate) async fn refresh_rewound(&self) -> Result<(), RecordError> {
        let found: BTreeSet<TenantId> = self.store.rewound().await?.into_iter().collect();
        *self.rewound.write().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }

    /// Whether a ledger has a checkpoint that somebody knows, or somebody accepted that it has not. If neither, nothing
    /// is recorded for the tenant from now on, in any process.
    pub(crate) async fn has_published(
        &self,
        tenant: &TenantId,
        told: Told,
    ) -> Result<bool, RecordError> {
        let (recorder, tenant) = (self.clone(), tenant.clone());
        self.detached(async move {
            let mut tx = recorder.store.begin(&tenant).await?;
            // Under the lock: another process may be ahead of what this one has seen.
            let locked = store::tenants::lock(&mut tx, &tenant).await?;
            let size = locked.ledger.size();
            let has = told.size() <= size
                && match &told {
                    Told::Published { size, root } => {
                        ledger::log::root(&mut tx, &tenant, *size).await? == *root
                    }
                    Told::Witness { contradicts, .. } => !contradicts,
                };
            let known = store::rewinds::all(&mut tx, &tenant).await?;
            if has || known.iter().any(|rewind| told.is_accepted(rewind)) {
                tx.rollback().await.map_err(store::StoreError::from)?;
                return Ok(has);
            }
            let rewind = rewind(&told, size, locked.ledger.root());
            let is_known = known
                .iter()
                .any(|one| !one.accepted && one.told_by == rewind.told_by);
            if !is_known {
                store::rewinds::insert(&mut tx, &tenant, &rewind).await?;
                tracing::error!(
                    %tenant, told_by = rewind.told_by, published = rewind.told_size, size,
                    "the ledger lacks entries that were published: the database was put back. Nothing is recorded for this \
                     tenant until somebody accepts it: onrecord ledger accept-rewind"
                );
            }
            // A crash before this line leaves nothing, and the next look finds it again.
            commit(tx).await?;
            let mut rewound = recorder.rewound.write().unwrap_or_else(PoisonError::into_inner);
            rewound.insert(tenant);
            Ok(false)
        })
        .await
    }

    /// What a tenant's ledger lacks, whether or not somebody accepted it; the oldest first.
    pub(crate) async fn rewinds(&self, tenant: TenantId) -> Result<Vec<Rewind>, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&tenant).await?;
            let all = store::rewinds::all(&mut tx, &tenant).await?;
            tx.commit().await.map_err(store::StoreError::from)?;
            Ok(all)
        })
        .await
    }

    /// Accepts that the ledger goes on from where it is, with an entry that says what was published before.
    ///
    /// # Errors
    /// [`RecordError::NotRewound`].
    pub(crate) async fn accept_rewind(
        &self,
        caller: Caller,
        reason: String,
    ) -> Result<AcceptedRewind, RecordError> {
        self.refuse_secret("/reason", &reason)?;
        let recorder = self.clone();
        self.detached(async move {
            let keys = recorder.keys(&caller.tenant).await?;
            let mut tx = recorder.store.begin(&caller.tenant).await?;
            let mut tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
            let mut open = store::rewinds::all(&mut tx, &caller.tenant).await?;
            open.retain(|one| !one.accepted);
            if open.is_empty() {
                return Err(RecordError::NotRewound);
            }
            tenant.rewound = false;
            let published = open.into_iter().map(|one| Published {
                root: one.told_root,
                size: one.told_size,
                told_by: one.told_by,
            });
            let statement = statement::Rewind {
                at: ledger::next_time(&tenant)?,
                by: caller.reader(),
                published: published.collect(),
                reason,
                root: tenant.ledger.root(),
                size: tenant.ledger.size(),
            };
            let entry = ledger::enter(
                &mut tx,
                &mut tenant,
                (&recorder.vault, &keys),
                &Predicate::Rewind(statement.clone()),
                None,
            )
            .await?;
            store::rewinds::accept(&mut tx, &caller.tenant, entry.index).await?;
            // A crash before this line leaves the ledger closed, after it open and with the entry that says why.
            commit(tx).await?;
            tracing::warn!(tenant = %caller.tenant, index = entry.index, "a rewind of the ledger was accepted");
            recorder.refresh_rewound().await?;
            Ok(AcceptedRewind {
                statement,
                index: entry.index,
            })
        })
        .await
    }
}

fn rewind(told: &Told, size: u64, root: Hash) -> Rewind {
    let (told_by, told_root) = match told {
        Told::Published { root, .. } => (PUBLISHED.to_owned(), Some(*root)),
        Told::Witness { witness, .. } => (witness.clone(), None),
    };
    Rewind {
        told_by,
        told_size: told.size(),
        told_root,
        size,
        root,
        found_at: Timestamp::MIN,
        accepted: false,
    }
}

/// The checkpoint in a note, as this server wrote it.
pub(crate) fn read_checkpoint(note: &str) -> Option<Checkpoint> {
    let note = onrecord_core::note::Note::parse(note).ok()?;
    Checkpoint::parse(&note.text).ok()
}
