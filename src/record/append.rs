//! Appending: frames get their places in a run, several in one transaction.
//!
//! The run's row is locked from the first look to the commit, so whoever appends sees the true head,
//! in this process or another. What was prepared before the lock (commitments, ciphertexts) depends on
//! no place.

use super::follow::Progress;
use super::intake::FrameRequest;
pub use super::place::{Appended, Conditions};
use super::place::{Batch, known_keys};
use super::prepare::prepare;
use super::{RecordError, Recorder};
use crate::access::Caller;
use crate::ledger::later;
use crate::store;
use onrecord_core::id::RunId;

impl Recorder {
    /// Appends frames to a run in one transaction, each with its own result: a refused one takes no
    /// place and does not hinder the others. An error of the whole means that none of them was placed,
    /// or that it is not known.
    pub async fn append(
        &self,
        caller: Caller,
        run: RunId,
        requests: Vec<FrameRequest>,
        conditions: Conditions,
    ) -> Result<Vec<Result<Appended, RecordError>>, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            recorder
                .append_now(&caller, &run, requests, &conditions)
                .await
        })
        .await
    }

    async fn append_now(
        &self,
        caller: &Caller,
        run: &RunId,
        requests: Vec<FrameRequest>,
        conditions: &Conditions,
    ) -> Result<Vec<Result<Appended, RecordError>>, RecordError> {
        let tenant_keys = self.keys(&caller.tenant).await?;
        let mut tx = self.store.begin(&caller.tenant).await?;
        let wrapped = store::runs::keys(&mut tx, run).await?;
        tx.commit().await.map_err(store::StoreError::from)?;
        if wrapped.is_empty() {
            return Err(RecordError::NoRun(run.clone()));
        }
        let keys = tenant_keys.open_run(run, &wrapped)?;
        let mut prepared = Vec::with_capacity(requests.len());
        for request in requests {
            prepared.push(prepare(caller, request, &keys));
        }

        let mut tx = self.store.begin(&caller.tenant).await?;
        let (row, now) = store::runs::lock(&mut tx, run)
            .await?
            .ok_or_else(|| RecordError::NoRun(run.clone()))?;
        let before = row.chain.head();
        let sealed = row.sealed.is_some();
        let at = later(now, row.chain.last_at())
            .map_err(|behind_ms| RecordError::ClockBehind { behind_ms })?;
        let known = known_keys(&mut tx, run, &prepared).await?;
        let mut batch = Batch::new(row.chain, at, known);
        let mut results = Vec::with_capacity(prepared.len());
        for one in prepared {
            let result = match one {
                Ok(one) => {
                    batch
                        .add(&mut tx, run, &keys, one, sealed, conditions)
                        .await
                }
                Err(error) => Err(error),
            };
            results.push(result);
        }
        if !batch.frames.is_empty() {
            store::frames::insert(&mut tx, &caller.tenant, run, &batch.frames).await?;
            if !batch.payloads.is_empty() {
                store::payloads::insert(&mut tx, &caller.tenant, run, &batch.payloads).await?;
            }
            store::runs::update_head(&mut tx, &before, &batch.chain).await?;
        }
        // From the chain at hand: read again it might have grown, and every frame had to be read to get back.
        let head = (conditions.signed && !batch.frames.is_empty())
            .then(|| super::head::sign(&tenant_keys, &batch.chain))
            .transpose()?;
        // A crash before this line leaves nothing of the batch, after it all of it. Where the answer of
        // the commit is lost the writers ask again with their keys and find their frames.
        tx.commit().await.map_err(store::StoreError::from)?;
        let size = batch.chain.size();
        let key = (caller.tenant.clone(), run.clone());
        self.followed.tell(&key, Progress { size, sealed });
        if conditions.signed {
            for appended in results.iter_mut().flatten() {
                let last = appended.result.as_ref().unwrap_or(&appended.receipt);
                appended.signed = Some(match &head {
                    Some(head) if last.seq + 1 == batch.chain.size() => head.clone(),
                    _ => {
                        self.head_now(&caller.tenant, run, Some(last.seq + 1))
                            .await?
                    }
                });
            }
        }
        Ok(results)
    }
}
