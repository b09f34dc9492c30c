//! Appending: what depends on no place is done here, by each request for itself; the sequencer gives the places.

use super::head;
use super::intake::FrameRequest;
use super::place::retried;
pub use super::place::{Appended, Conditions};
use super::prepare::{Prepared, prepare};
use super::queue::{Outcome, Submission};
use super::{RecordError, Recorder};
use crate::access::Caller;
use crate::store;
use crate::vault::RunKeys;
use onrecord_core::id::RunId;
use std::sync::Arc;
use tokio::sync::oneshot;

/// What a writer does where the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It is told so.
    Refuse,
    /// It waits, and so does whoever sends to it.
    Wait,
}

impl Recorder {
    /// Appends frames to a run, each with its own result: a refused one takes no place and does not hinder the
    /// others. An error of the whole means that none of them was placed, or, where it says so, that it is not known.
    ///
    /// Whoever stops waiting cancels nothing: frames that were handed over are written.
    pub async fn append(
        &self,
        caller: Caller,
        run: RunId,
        requests: Vec<FrameRequest>,
        conditions: Conditions,
        when_full: WhenFull,
    ) -> Result<Vec<Result<Appended, RecordError>>, RecordError> {
        let keys = self.run_keys(&caller.tenant, &run).await?;
        let rules = self.rules(&caller.tenant).await?;
        let mut results = Vec::with_capacity(requests.len());
        let mut frames = Vec::with_capacity(requests.len());
        for request in requests {
            results.push(
                prepare(&caller, request, &keys, rules.as_deref())
                    .map(|prepared| frames.push(prepared)),
            );
        }
        let mut outcomes = Vec::new();
        if !frames.is_empty() {
            let (answer, answered) = oneshot::channel();
            let submission = Submission {
                tenant: caller.tenant.clone(),
                run: run.clone(),
                frames,
                conditions,
                answer,
            };
            self.sequencer
                .submit(submission, when_full == WhenFull::Wait)
                .await?;
            outcomes = answered.await.unwrap_or(Err(RecordError::Unknown))?;
        }
        let mut outcomes = outcomes.into_iter();
        let mut appended = Vec::with_capacity(results.len());
        for result in results {
            let outcome = match result {
                Ok(()) => outcomes.next().unwrap_or(Err(RecordError::Unknown)),
                Err(error) => Err(error),
            };
            appended.push(match outcome {
                Ok(outcome) => Box::pin(self.receipt(&caller, &run, &keys, outcome)).await,
                Err(error) => Err(error),
            });
        }
        Ok(appended)
    }

    /// Whether there is such a run to append to.
    ///
    /// # Errors
    /// [`RecordError::NoRun`]: there is none, or it is another tenant's.
    pub async fn find(&self, caller: &Caller, run: &RunId) -> Result<(), RecordError> {
        self.run_keys(&caller.tenant, run).await.map(drop)
    }

    /// The receipt of a frame, signed where that was asked for.
    async fn receipt(
        &self,
        caller: &Caller,
        run: &RunId,
        keys: &Arc<RunKeys>,
        outcome: Outcome,
    ) -> Result<Appended, RecordError> {
        match outcome {
            Outcome::Durable(mut appended, chain) => {
                if let Some(chain) = chain {
                    let tenant_keys = self.keys(&caller.tenant).await?;
                    appended.signed = Some(head::sign(&tenant_keys, &chain)?);
                }
                Ok(appended)
            }
            Outcome::Known(frame, signed, seq) => {
                let (recorder, caller) = (self.clone(), caller.clone());
                let (run, keys) = (run.clone(), keys.clone());
                self.detached(async move {
                    let mut appended = recorder.retry(&caller, &run, &keys, &frame, seq).await?;
                    if signed {
                        let last = appended.result.as_ref().unwrap_or(&appended.receipt);
                        let size = Some(last.seq + 1);
                        appended.signed =
                            Some(recorder.head_now(&caller.tenant, &run, size).await?);
                    }
                    Ok(appended)
                })
                .await
            }
        }
    }

    /// The frame of before that a request is a retry of; a conflict where it is another request.
    async fn retry(
        &self,
        caller: &Caller,
        run: &RunId,
        keys: &RunKeys,
        frame: &Prepared,
        seq: u64,
    ) -> Result<Appended, RecordError> {
        let key = frame.request.key.as_deref().unwrap_or_default();
        let mut tx = self.store.snapshot(&caller.tenant).await?;
        let found = retried(&mut tx, run, keys, frame.sameness(key)).await?;
        tx.commit().await.map_err(store::StoreError::from)?;
        found.ok_or_else(|| RecordError::KeyConflict {
            key: key.to_owned(),
            run: run.clone(),
            seq,
        })
    }
}
