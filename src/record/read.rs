//! Reading: what a run is, its frames as they are, and lists.

use super::joint::Reading;
use super::{RecordError, Recorder};
use crate::access::Caller;
use crate::store;
use crate::store::runs::RunRow;
use crate::store::search::condition::{Comparison, Condition, Value};
use crate::store::search::field::{RUN_AGENT, RUN_OPENED_AT, RUN_OUTCOME, RUN_SEALED_AT};
use crate::store::search::runs::Runs;
use crate::store::search::{self, Bounds, Effort, Found, Order};
use onrecord_core::digest::Hash;
use onrecord_core::frame::Kind;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::Access;
use onrecord_core::timestamp::Timestamp;
use std::collections::BTreeMap;

/// Unknown outcomes that are listed one by one.
const LISTED_UNKNOWN: u32 = 100;

/// What a run is, as its frames say.
#[derive(Clone, Debug)]
pub struct RunSummary {
    /// The run.
    pub run: RunId,
    /// Its number in the tenant.
    pub run_no: u64,
    /// The tenant.
    pub tenant: TenantId,
    /// `session.body.agent`.
    pub agent: Option<String>,
    /// Time of frame 0.
    pub opened_at: Timestamp,
    /// Time of the last frame.
    pub last_at: Timestamp,
    /// Frames.
    pub size: u64,
    /// Hash of the last frame.
    pub head: Hash,
    /// RFC 9162 root of all frames.
    pub root: Hash,
    /// The open turn.
    pub open_turn: Option<u64>,
    /// Turns opened.
    pub turns: u64,
    /// Whether `session_end` was written.
    pub ended: bool,
    /// Status of the last outcome.
    pub outcome: Option<&'static str>,
    /// Frames of each kind.
    pub kinds: BTreeMap<Kind, u64>,
    /// Payloads.
    pub payloads: u64,
    /// Payloads that were erased.
    pub erased: u64,
    /// Bytes of all frames.
    pub bytes: u64,
    /// Ledger index of the opening.
    pub open_index: u64,
    /// When and where in the ledger it was sealed.
    pub sealed: Option<(Timestamp, u64)>,
}

impl RunSummary {
    /// open (frames may follow), ended (only the seal may) or sealed.
    pub fn status(&self) -> &'static str {
        match (self.sealed, self.ended) {
            (Some(_), _) => "sealed",
            (None, true) => "ended",
            (None, false) => "open",
        }
    }
}

impl From<RunRow> for RunSummary {
    fn from(row: RunRow) -> Self {
        let chain = &row.chain;
        Self {
            run_no: row.run_no,
            tenant: row.tenant.clone(),
            agent: row.agent.clone(),
            opened_at: row.opened_at,
            last_at: chain.last_at().unwrap_or(row.opened_at),
            size: chain.size(),
            head: chain.head(),
            root: chain.root(),
            open_turn: chain.open_turn(),
            turns: chain.turns(),
            ended: chain.ended(),
            outcome: chain.outcome().map(|status| status.as_str()),
            kinds: chain.kinds().clone(),
            payloads: chain.payloads(),
            erased: row.erased,
            bytes: chain.file_bytes(),
            open_index: row.open_index,
            sealed: row.sealed.as_ref().map(|sealed| (sealed.at, sealed.index)),
            run: row.run,
        }
    }
}

/// A moment that somebody names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A time.
    At(Timestamp),
    /// So long before now, by the database's clock, which is that of the evidence.
    Ago {
        /// Seconds.
        seconds: u64,
    },
}

/// Which runs to list.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    /// Only of this agent.
    pub agent: Option<String>,
    /// Only sealed, or only open ones.
    pub sealed: Option<bool>,
    /// Only with this outcome; `unknown` for none.
    pub outcome: Option<String>,
    /// Only opened then or later.
    pub since: Option<Moment>,
    /// Only opened before.
    pub until: Option<Moment>,
    /// Only with ids that begin so.
    pub prefix: String,
    /// Only those that this is true of.
    pub(crate) filter: Option<Condition>,
    /// The newest first, or the oldest.
    pub(crate) order: Order,
    /// Only those behind this one.
    pub(crate) after: Option<RunId>,
    /// At most so many.
    pub limit: u32,
}

impl ListRequest {
    /// All that is asked of the runs but their ids.
    fn condition(&self, now: Timestamp) -> Condition {
        let is = |field, comparison, value| Condition::Is(field, comparison, value);
        let text = |text: &String| Value::Text(text.clone());
        let time = |moment: Moment| Value::Time(moment.time(now));
        let mut all: Vec<Condition> = self.filter.iter().cloned().collect();
        let agent = self.agent.iter();
        all.extend(agent.map(|agent| is(&RUN_AGENT, Comparison::Equal, text(agent))));
        all.extend(self.sealed.map(|sealed| {
            let present = Condition::Present(&RUN_SEALED_AT);
            if sealed {
                present
            } else {
                Condition::Not(Box::new(present))
            }
        }));
        let outcome = self.outcome.iter();
        all.extend(outcome.map(|outcome| is(&RUN_OUTCOME, Comparison::Equal, text(outcome))));
        let since = self.since.map(time);
        all.extend(since.map(|since| is(&RUN_OPENED_AT, Comparison::GreaterOrEqual, since)));
        let until = self.until.map(time);
        all.extend(until.map(|until| is(&RUN_OPENED_AT, Comparison::Less, until)));
        Condition::All(all)
    }
}

impl Moment {
    fn time(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago { seconds } => {
                let micros = i64::try_from(seconds)
                    .unwrap_or(i64::MAX)
                    .saturating_mul(1_000_000);
                // Before the year 0 nothing was recorded either.
                let then = Timestamp::from_micros(now.micros().saturating_sub(micros));
                then.unwrap_or(Timestamp::MIN)
            }
        }
    }
}

impl Recorder {
    /// Writes into the ledger that payloads of a run were read, together with what others write at the same time, and
    /// answers its index when it is durable. `ledger_size` is how many entries there were when they were read, if that
    /// was without the tenant's lock: the answer is `None` where something of the run was erased since.
    ///
    /// # Errors
    /// [`RecordError::Unknown`]: whether the entry is there is not known.
    pub(crate) async fn enter_access(
        &self,
        tenant: &TenantId,
        access: Access,
        ledger_size: Option<u64>,
    ) -> Result<Option<u64>, RecordError> {
        let reading = Reading {
            access,
            ledger_size,
        };
        self.join(tenant, reading).await
    }

    /// The MAC of a cursor, under a key of the tenant.
    pub(crate) async fn cursor_mac(
        &self,
        tenant: &TenantId,
        cursor: &[u8],
    ) -> Result<[u8; 16], RecordError> {
        Ok(self.keys(tenant).await?.cursor_mac(cursor)?)
    }

    /// A run and its tool calls of unknown outcome: up to 100 of them, and their number.
    pub async fn run(
        &self,
        caller: Caller,
        run: RunId,
    ) -> Result<(RunSummary, Vec<u64>, u64), RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&caller.tenant).await?;
            let row = store::runs::find(&mut tx, &run)
                .await?
                .ok_or(RecordError::NoRun(run.clone()))?;
            let (unknown, count) = store::frames::unanswered(&mut tx, &run, LISTED_UNKNOWN).await?;
            tx.commit().await.map_err(store::StoreError::from)?;
            Ok((row.into(), unknown, count))
        })
        .await
    }

    /// A run alone.
    pub async fn summary(&self, caller: Caller, run: RunId) -> Result<RunSummary, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&caller.tenant).await?;
            let row = store::runs::find(&mut tx, &run)
                .await?
                .ok_or(RecordError::NoRun(run))?;
            tx.commit().await.map_err(store::StoreError::from)?;
            Ok(row.into())
        })
        .await
    }

    /// Runs of the caller's tenant, newest first, as far as they are found with so much effort.
    pub(crate) async fn runs(
        &self,
        caller: Caller,
        request: ListRequest,
        effort: Effort,
    ) -> Result<Found<RunSummary, RunId>, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let now = recorder.store.now().await?;
            let mut tx = recorder.store.snapshot(&caller.tenant).await?;
            let condition = request.condition(now);
            let asked = Runs {
                tenant: &caller.tenant,
                condition: &condition,
                bounds: Bounds::prefix(&request.prefix),
                order: request.order,
                after: request.after.as_ref(),
            };
            let found = search::runs::list(&mut tx, &asked, request.limit, effort)
                .await
                .map_err(RecordError::of_search)?;
            tx.commit().await.map_err(store::StoreError::from)?;
            Ok(Found {
                rows: found.rows.into_iter().map(RunSummary::from).collect(),
                looked_to: found.looked_to,
            })
        })
        .await
    }

    /// The exact canonical bytes of a frame, and its hash.
    pub async fn frame(
        &self,
        caller: Caller,
        run: RunId,
        seq: u64,
    ) -> Result<(Vec<u8>, Hash), RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&caller.tenant).await?;
            let found = store::frames::bytes(&mut tx, &run, seq).await?;
            if found.is_none() && store::runs::find(&mut tx, &run).await?.is_none() {
                return Err(RecordError::NoRun(run));
            }
            tx.commit().await.map_err(store::StoreError::from)?;
            found.ok_or(RecordError::NoFrame { run, seq })
        })
        .await
    }

    /// The exact canonical bytes of up to `limit` frames from a place on.
    pub async fn frames(
        &self,
        caller: Caller,
        run: RunId,
        from: u64,
        limit: u32,
    ) -> Result<Vec<Vec<u8>>, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&caller.tenant).await?;
            let page = store::frames::page(&mut tx, &run, from, limit).await?;
            tx.commit().await.map_err(store::StoreError::from)?;
            Ok(page)
        })
        .await
    }
}
