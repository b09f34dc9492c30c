//! Openings, seals, readings and questions that come at the same time go into the tenant's ledger together: one transaction, one
//! lock, one checkpoint.
//!
//! Whatever comes while a transaction is under way waits for its end and is in the next one; who comes alone waits for
//! nobody. What one of them is refused for is its own affair, and nobody is answered before the commit.

mod batch;

use super::open::Opening;
use super::seal::{Seal, Sealing};
use super::{RecordError, Recorder};
use crate::store::StoreError;
use onrecord_core::chain::Chain;
use onrecord_core::frame::Actor;
use onrecord_core::id::TenantId;
use onrecord_core::receipt::Receipt;
use onrecord_core::statement::Access;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Of each kind what goes into one transaction: some ten milliseconds of signatures, for which the lock is held.
const AT_ONCE: usize = 128;
/// Bytes of payloads of openings, beyond which no further one goes into the same transaction.
const BYTES_AT_ONCE: usize = 8 * 1024 * 1024;

/// Payloads that were read and are not given out yet.
pub(super) struct Reading {
    /// What the ledger is to say; its time is the ledger's.
    pub(super) access: Access,
    /// Entries of the ledger when they were read, where they were not read under the tenant's lock: if an erasure in the
    /// run stands behind these, what was read may have been erased before.
    pub(super) ledger_size: Option<u64>,
}

/// A question over many runs that is not answered yet.
pub(super) struct Asking {
    pub(super) by: Actor,
    pub(super) purpose: String,
    pub(super) resource: &'static str,
    /// All of it: what the entry's subject is the digest of.
    pub(super) text: Vec<u8>,
}

/// What can go into the ledger together with others of its tenant.
pub(super) trait Joins: Sized {
    /// What it is answered once it is durable.
    type Done;
    /// Where it waits.
    fn queue(waiting: &mut Waiting) -> &mut Vec<Job<Self>>;
}

/// Somebody who waits for an answer: `None` where there was nothing to be done, for a reason that its kind has.
pub(super) struct Job<T: Joins> {
    work: T,
    answer: oneshot::Sender<Result<Option<T::Done>, RecordError>>,
}

/// What waits of one tenant, in the order in which it came.
#[derive(Default)]
pub(super) struct Waiting {
    openings: Vec<Job<Opening>>,
    sealings: Vec<Job<Sealing>>,
    readings: Vec<Job<Reading>>,
    askings: Vec<Job<Asking>>,
}

/// Nothing is done where its key has opened a run already.
impl Joins for Opening {
    type Done = (Receipt, Chain);

    fn queue(waiting: &mut Waiting) -> &mut Vec<Job<Self>> {
        &mut waiting.openings
    }
}

/// Nothing is done where the run is sealed already, or somebody has written to one that was idle.
impl Joins for Sealing {
    type Done = Seal;

    fn queue(waiting: &mut Waiting) -> &mut Vec<Job<Self>> {
        &mut waiting.sealings
    }
}

/// Nothing is done where something of the run was erased since.
impl Joins for Reading {
    /// Index of the entry.
    type Done = u64;

    fn queue(waiting: &mut Waiting) -> &mut Vec<Job<Self>> {
        &mut waiting.readings
    }
}

impl Joins for Asking {
    /// Index of the entry.
    type Done = u64;

    fn queue(waiting: &mut Waiting) -> &mut Vec<Job<Self>> {
        &mut waiting.askings
    }
}

/// What waits of each tenant that somebody writes for.
#[derive(Default)]
pub(super) struct Joint(Mutex<HashMap<TenantId, Waiting>>);

impl Joint {
    fn tenants(&self) -> MutexGuard<'_, HashMap<TenantId, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What goes into the next transaction; where nothing waits, the tenant is given up.
    fn next(&self, tenant: &TenantId) -> Option<Waiting> {
        let mut tenants = self.tenants();
        let next = tenants.get_mut(tenant)?.take();
        if next.is_none() {
            tenants.remove(tenant);
        }
        next
    }
}

impl Waiting {
    fn take(&mut self) -> Option<Self> {
        fn first<T>(jobs: &mut Vec<T>, count: usize) -> Vec<T> {
            jobs.drain(..count.min(jobs.len())).collect()
        }
        let (mut bytes, mut count) = (0, 0);
        for job in self.openings.iter().take(AT_ONCE) {
            bytes += job.work.prepared.bytes();
            if count > 0 && bytes > BYTES_AT_ONCE {
                break;
            }
            count += 1;
        }
        let taken = Self {
            openings: first(&mut self.openings, count),
            sealings: first(&mut self.sealings, AT_ONCE),
            readings: first(&mut self.readings, AT_ONCE),
            askings: first(&mut self.askings, AT_ONCE),
        };
        (taken.len() > 0).then_some(taken)
    }

    fn len(&self) -> usize {
        self.openings.len() + self.sealings.len() + self.readings.len() + self.askings.len()
    }

    /// Each by itself.
    fn alone(self) -> Vec<Self> {
        let mut all = Vec::with_capacity(self.len());
        all.extend(self.openings.into_iter().map(|job| Self {
            openings: vec![job],
            ..Self::default()
        }));
        all.extend(self.sealings.into_iter().map(|job| Self {
            sealings: vec![job],
            ..Self::default()
        }));
        all.extend(self.readings.into_iter().map(|job| Self {
            readings: vec![job],
            ..Self::default()
        }));
        all.extend(self.askings.into_iter().map(|job| Self {
            askings: vec![job],
            ..Self::default()
        }));
        all
    }

    /// Tells everybody why nothing was done. Whoever does not wait any more needs no answer, here and below.
    fn refuse(self, error: impl Fn() -> RecordError) {
        fn each<T: Joins>(jobs: Vec<Job<T>>, error: &impl Fn() -> RecordError) {
            for job in jobs {
                let _ = job.answer.send(Err(error()));
            }
        }
        each(self.openings, &error);
        each(self.sealings, &error);
        each(self.readings, &error);
        each(self.askings, &error);
    }

    /// Tells the only one why.
    fn refuse_with(self, error: RecordError) {
        let error = std::cell::Cell::new(Some(error));
        self.refuse(|| error.take().unwrap_or(RecordError::CutOff));
    }

    fn answer(self, answers: batch::Answers) {
        fn each<T: Joins>(jobs: Vec<Job<T>>, answers: Vec<Result<Option<T::Done>, RecordError>>) {
            for (job, answer) in jobs.into_iter().zip(answers) {
                let _ = job.answer.send(answer);
            }
        }
        each(self.openings, answers.openings);
        each(self.sealings, answers.sealings);
        each(self.readings, answers.readings);
        each(self.askings, answers.askings);
    }
}

impl Recorder {
    /// Does work of a tenant together with what others want at the same time, and answers when it is durable.
    pub(super) async fn join<T: Joins + Send>(
        &self,
        tenant: &TenantId,
        work: T,
    ) -> Result<Option<T::Done>, RecordError> {
        let (answer, done) = oneshot::channel();
        let is_first = {
            let mut tenants = self.joint.tenants();
            let is_first = !tenants.contains_key(tenant);
            let waiting = tenants.entry(tenant.clone()).or_default();
            T::queue(waiting).push(Job { work, answer });
            is_first
        };
        if is_first {
            let (recorder, tenant) = (self.clone(), tenant.clone());
            self.tasks.spawn(async move {
                while let Some(waiting) = recorder.joint.next(&tenant) {
                    let (recorder, tenant) = (recorder.clone(), tenant.clone());
                    // In a task of its own: a defect that ends it must not leave those who come later without anybody
                    // who writes for them.
                    let written = tokio::spawn(async move {
                        recorder.write_joint(&tenant, waiting).await;
                    });
                    if let Err(error) = written.await {
                        tracing::error!(%error, "entries of the ledger were cut off");
                    }
                }
            });
        }
        done.await.unwrap_or(Err(RecordError::CutOff))
    }

    /// Writes what waited. A failure that only one of them may be guilty of is looked for by trying each alone.
    async fn write_joint(&self, tenant: &TenantId, waiting: Waiting) {
        let failed = match batch::write(self, tenant, &waiting).await {
            Ok(answers) => return waiting.answer(answers),
            Err(error) => error,
        };
        match failed {
            RecordError::Unknown => waiting.refuse(|| RecordError::Unknown),
            RecordError::Store(error) if is_for_all(&error) => {
                let error = Arc::new(error);
                waiting.refuse(|| RecordError::NotStored(error.clone()));
            }
            _ if waiting.len() > 1 => {
                for one in waiting.alone() {
                    match batch::write(self, tenant, &one).await {
                        Ok(answers) => one.answer(answers),
                        Err(error) => one.refuse_with(error),
                    }
                }
            }
            error => waiting.refuse_with(error),
        }
    }
}

/// Whether a failure is nobody's own.
fn is_for_all(error: &StoreError) -> bool {
    error.is_transient() || error.is_storage_full()
}
