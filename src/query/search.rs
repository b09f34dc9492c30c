//! Queries over what a tenant recorded: pages of rows, and where the next one begins.

use super::cursor::{self, BadCursor, Key};
use super::filter::{self, BadFilter};
use super::resource::Resource;
use crate::access::Caller;
use crate::record::read::{ListRequest, RunSummary};
use crate::record::{RecordError, Recorder};
use crate::store::StoreError;
use crate::store::search::condition::Condition;
use crate::store::search::frames::{FrameKey, FrameRow, Frames};
use crate::store::search::payloads::{PayloadKey, PayloadRow, Payloads};
use crate::store::search::{self, Effort, Found, Order};
use onrecord_core::digest::Hash;
use std::collections::BTreeMap;

/// A query: what is asked of the rows, and their order.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    resource: Resource,
    request: ListRequest,
    /// All that it was asked with, as text: a cursor goes on with the same query only.
    asked: Vec<String>,
}

/// Rows that follow each other, and where the next ones begin.
pub(crate) struct Page {
    /// The rows.
    pub(crate) rows: Rows,
    /// The last of them, if there are more; or how far they were looked for, where that took long.
    pub(crate) next: Option<Key>,
}

/// The rows of a page.
pub(crate) enum Rows {
    Runs(Vec<RunSummary>),
    Frames(Vec<FrameRow>),
    PayloadRecords(Vec<PayloadRow>),
}

impl Search {
    /// A query of a resource under a filter; without one of everything.
    ///
    /// # Errors
    /// The filter is none.
    pub(crate) fn new(
        resource: Resource,
        filter: Option<&str>,
        order: Order,
    ) -> Result<Self, BadFilter> {
        let condition = filter.map(|text| filter::parse(text, resource.fields()));
        Ok(Self {
            resource,
            request: ListRequest {
                filter: condition.transpose()?,
                order,
                ..ListRequest::default()
            },
            asked: vec![
                resource.as_str().to_owned(),
                order.as_str().to_owned(),
                filter.unwrap_or_default().to_owned(),
            ],
        })
    }

    /// The same, of runs, with what lists of runs take beside the filter, and that as text.
    pub(crate) fn narrowed(
        mut self,
        list: ListRequest,
        asked: &BTreeMap<&'static str, String>,
    ) -> Self {
        self.request = ListRequest {
            filter: self.request.filter,
            order: self.request.order,
            ..list
        };
        for (name, text) in asked {
            self.asked.push((*name).to_owned());
            self.asked.push(text.clone());
        }
        self
    }

    /// What it is about.
    pub(crate) fn resource(&self) -> Resource {
        self.resource
    }

    /// A page of at most `limit` rows, behind the page before. There may be fewer, or none, and a next page all the same.
    ///
    /// # Errors
    /// [`RecordError::TooSlow`], and the database.
    pub(crate) async fn page(
        &self,
        recorder: &Recorder,
        caller: &Caller,
        after: Option<Key>,
        (limit, effort): (u32, Effort),
    ) -> Result<Page, RecordError> {
        let one_more = limit.saturating_add(1);
        Ok(match self.resource {
            Resource::Runs => {
                let request = ListRequest {
                    after: after.and_then(Key::run),
                    limit: one_more,
                    ..self.request.clone()
                };
                let rows = recorder.runs(caller.clone(), request, effort).await?;
                let key = |run: &RunSummary| run.run.clone();
                cut(rows, limit, (key, Key::Run), Rows::Runs)
            }
            Resource::Frames => {
                let rows = self.frames(recorder, caller, after, (one_more, effort));
                let key = |frame: &FrameRow| frame.key.clone();
                cut(rows.await?, limit, (key, Key::Frame), Rows::Frames)
            }
            Resource::PayloadRecords => {
                let rows = self.payloads(recorder, caller, after, (one_more, effort));
                let key = |payload: &PayloadRow| payload.key.clone();
                cut(
                    rows.await?,
                    limit,
                    (key, Key::Payload),
                    Rows::PayloadRecords,
                )
            }
        })
    }

    async fn frames(
        &self,
        recorder: &Recorder,
        caller: &Caller,
        after: Option<Key>,
        (limit, effort): (u32, Effort),
    ) -> Result<Found<FrameRow, FrameKey>, RecordError> {
        let (store, tenant) = (recorder.store().clone(), caller.tenant.clone());
        let (condition, order) = (self.condition(), self.request.order);
        let after = after.and_then(Key::frame);
        let work = async move {
            let mut tx = store.snapshot(&tenant).await?;
            let asked = Frames {
                tenant: &tenant,
                condition: &condition,
                order,
                after: after.as_ref(),
            };
            let found = search::frames::list(&mut tx, &asked, limit, effort).await;
            let found = found.map_err(RecordError::of_search)?;
            tx.commit().await.map_err(StoreError::from)?;
            Ok(found)
        };
        recorder.detached(work).await
    }

    async fn payloads(
        &self,
        recorder: &Recorder,
        caller: &Caller,
        after: Option<Key>,
        (limit, effort): (u32, Effort),
    ) -> Result<Found<PayloadRow, PayloadKey>, RecordError> {
        let (store, tenant) = (recorder.store().clone(), caller.tenant.clone());
        let (condition, order) = (self.condition(), self.request.order);
        let after = after.and_then(Key::payload);
        let work = async move {
            let mut tx = store.snapshot(&tenant).await?;
            let asked = Payloads {
                tenant: &tenant,
                condition: &condition,
                order,
                after: after.as_ref(),
            };
            let found = search::payloads::list(&mut tx, &asked, limit, effort).await;
            let found = found.map_err(RecordError::of_search)?;
            tx.commit().await.map_err(StoreError::from)?;
            Ok(found)
        };
        recorder.detached(work).await
    }

    fn condition(&self) -> Condition {
        let filter = self.request.filter.clone();
        filter.unwrap_or_else(Condition::always)
    }

    /// The cursor with which the caller gets the page behind a page; `None` behind the last.
    ///
    /// # Errors
    /// The tenant's keys are not to be had.
    pub(crate) async fn next(
        &self,
        recorder: &Recorder,
        caller: &Caller,
        page: &Page,
    ) -> Result<Option<String>, RecordError> {
        let Some(key) = &page.next else {
            return Ok(None);
        };
        let digest = self.digest(caller);
        let cursor = cursor::write(recorder, &caller.tenant, &digest, key);
        cursor.await.map(Some)
    }

    /// The row that a cursor names.
    ///
    /// # Errors
    /// The tenant's keys are not to be had.
    pub(crate) async fn after(
        &self,
        recorder: &Recorder,
        caller: &Caller,
        cursor: &str,
    ) -> Result<Result<Key, BadCursor>, RecordError> {
        let digest = self.digest(caller);
        cursor::read(recorder, &caller.tenant, &digest, cursor).await
    }

    fn digest(&self, caller: &Caller) -> [u8; 16] {
        let mut text = caller.credential();
        for part in &self.asked {
            // Parts are told apart by their lengths.
            text.push_str(&format!("\n{} {part}", part.len()));
        }
        let Hash(digest) = Hash::of(&[text.as_bytes()]);
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        half
    }
}

impl Page {
    /// Behind what the next page begins, for whoever goes on at once.
    pub(crate) fn last(&self) -> Option<Key> {
        self.next.clone()
    }
}

/// The first `limit` rows as a page, with where the next one begins if there are more, or may be.
fn cut<T, K>(
    found: Found<T, K>,
    limit: u32,
    (key, next): (impl Fn(&T) -> K, impl Fn(K) -> Key),
    of: impl Fn(Vec<T>) -> Rows,
) -> Page {
    let (mut rows, most) = (found.rows, usize::try_from(limit).unwrap_or(usize::MAX));
    let more = rows.len() > most;
    rows.truncate(most);
    let last = if more {
        rows.last().map(key)
    } else {
        found.looked_to
    };
    Page {
        next: last.map(next),
        rows: of(rows),
    }
}
