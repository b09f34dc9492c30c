//! Appending: what depends on no place is done here, by each request for itself; the sequencer gives the places.

use super::head;
use super::intake::FrameRequest;
use super::place::retried;
pub use super::place::{Appended, Conditions};
use super::prepare::{Prepared, prepare};
use super::queue::{Answer, Outcome, Submission};
use super::signed::{Signers, is_first};
use super::{RecordError, Recorder};
use crate::access::{AgentKeys, Caller, SignedRequest};
use crate::store;
use onrecord_core::digest::Hash;
use onrecord_core::id::{RunId, TenantId};
use std::sync::Arc;
use std::time::Instant;
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
        self.may_record(&caller.tenant)?;
        let mut keys = self.run_keys(&caller.tenant, &run).await?;
        let agents = self.agent_keys(&caller.tenant, &requests).await?;
        let signers = Signers {
            tenant: &caller.tenant,
            run: &run,
            keys: &agents,
            first: self.signed_first(&caller.tenant, &run, &requests).await?,
        };
        let rules = self.rules(&caller.tenant).await?;
        let classes = self.classes(&caller.tenant).await?;
        let mut results = Vec::with_capacity(requests.len());
        let mut frames = Vec::with_capacity(requests.len());
        for request in requests {
            results.push(
                prepare(
                    &caller,
                    request,
                    &keys,
                    (rules.as_deref(), &classes),
                    &signers,
                )
                .map(|prepared| frames.push(prepared)),
            );
        }
        let mut outcomes = Vec::new();
        while !frames.is_empty() {
            let (answer, answered) = oneshot::channel();
            let submission = Submission {
                tenant: caller.tenant.clone(),
                run: run.clone(),
                frames: std::mem::take(&mut frames),
                conditions: conditions.clone(),
                answer,
            };
            let began = Instant::now();
            self.sequencer
                .submit(submission, when_full == WhenFull::Wait)
                .await?;
            let answer = answered.await;
            self.figures.appends.took(began.elapsed());
            match answer.unwrap_or(Answer::Refused(RecordError::Unknown)) {
                Answer::Each(each) => outcomes = each,
                Answer::Refused(error) => return Err(error),
                // Something of the run was erased meanwhile. Each time it takes an erasure, so that it comes to an end.
                Answer::Stale(back) => {
                    self.forget_run_keys(&caller.tenant, &run);
                    keys = self.run_keys(&caller.tenant, &run).await?;
                    frames = back;
                    frames
                        .iter_mut()
                        .try_for_each(|frame| frame.rewrap(&keys))?;
                }
            }
        }
        let mut outcomes = outcomes.into_iter();
        let mut appended = Vec::with_capacity(results.len());
        for result in results {
            let outcome = match result {
                Ok(()) => outcomes.next().unwrap_or(Err(RecordError::Unknown)),
                Err(error) => Err(error),
            };
            appended.push(match outcome {
                Ok(outcome) => Box::pin(self.receipt(&caller, &run, outcome)).await,
                Err(error) => Err(error),
            });
        }
        Ok(appended)
    }

    /// The agent that signed a request instead of sending a token.
    ///
    /// # Errors
    /// [`RecordError::Access`]: the signature is not taken.
    pub async fn signed_caller(&self, request: SignedRequest) -> Result<Caller, RecordError> {
        let recorder = self.clone();
        self.detached(async move { Ok(recorder.agents.caller(&request).await?) })
            .await
    }

    /// Whether there is such a run to append to.
    ///
    /// # Errors
    /// [`RecordError::NoRun`]: there is none, or it is another tenant's.
    pub async fn find(&self, caller: &Caller, run: &RunId) -> Result<(), RecordError> {
        self.run_keys(&caller.tenant, run).await.map(drop)
    }

    /// The keys of the tenant's agents. Where one is not known that signs here, the database is asked: it may be new.
    async fn agent_keys(
        &self,
        tenant: &TenantId,
        requests: &[FrameRequest],
    ) -> Result<Arc<AgentKeys>, RecordError> {
        let is_known = |keys: &AgentKeys| {
            let mut signed = requests.iter().filter_map(|one| one.submitted.as_ref());
            signed.all(|one| keys.key(&one.keyid).is_some())
        };
        if let Some(keys) = self.agents.remembered(tenant).filter(|keys| is_known(keys)) {
            return Ok(keys);
        }
        let (recorder, tenant) = (self.clone(), tenant.clone());
        let look = async move { Ok(recorder.agents.look_up(&tenant).await?) };
        Box::pin(self.detached(look)).await
    }

    /// The hash of frame 0, where a frame signs it along.
    async fn signed_first(
        &self,
        tenant: &TenantId,
        run: &RunId,
        requests: &[FrameRequest],
    ) -> Result<Option<Hash>, RecordError> {
        if !requests.iter().any(is_first) {
            return Ok(None);
        }
        let (recorder, tenant, run) = (self.clone(), tenant.clone(), run.clone());
        let look = async move {
            let mut tx = recorder.store.snapshot(&tenant).await?;
            let first = store::frames::bytes(&mut tx, &run, 0).await?;
            tx.commit().await.map_err(store::StoreError::from)?;
            match first {
                Some((_, hash)) => Ok(Some(hash)),
                None => Err(RecordError::NoRun(run)),
            }
        };
        Box::pin(self.detached(look)).await
    }

    /// The receipt of a frame, signed where that was asked for.
    async fn receipt(
        &self,
        caller: &Caller,
        run: &RunId,
        outcome: Outcome,
    ) -> Result<Appended, RecordError> {
        match outcome {
            Outcome::Durable(mut appended, chain) => {
                if let Some(chain) = chain {
                    let (recorder, tenant) = (self.clone(), caller.tenant.clone());
                    let key = self.detached(async move { recorder.seal_key_now(&tenant).await });
                    appended.signed = Some(match key.await {
                        Ok(key) => head::sign(&key, &chain)?,
                        // Nothing may be said of the frame that is not so: it is stored. A retry gets its receipt.
                        Err(RecordError::Store(_)) => return Err(RecordError::Unknown),
                        Err(error) => return Err(error),
                    });
                }
                Ok(appended)
            }
            Outcome::Known(frame, signed, seq) => {
                let (recorder, caller) = (self.clone(), caller.clone());
                let run = run.clone();
                self.detached(async move {
                    let mut appended = recorder.retry(&caller, &run, &frame, seq).await?;
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
        frame: &Prepared,
        seq: u64,
    ) -> Result<Appended, RecordError> {
        let key = frame.request.key.as_deref().unwrap_or_default();
        // As they are now: an erasure may have renewed them since they were opened.
        let keys = &self.read_run_keys(&caller.tenant, run).await?;
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
