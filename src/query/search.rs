//! Queries over what a tenant recorded: pages of rows, and where the next one begins.

use super::cursor::{self, BadCursor, Key};
use super::filter::{self, BadFilter, Fields};
use super::table::{Cell, Column, ColumnType, Row};
use crate::access::Caller;
use crate::record::read::{ListRequest, RunSummary};
use crate::record::{RecordError, Recorder};
use crate::store::search::condition::Condition;
use crate::store::search::field::{FRAME_FIELDS, RUN_FIELDS};
use crate::store::search::frames::{FrameRow, Frames};
use crate::store::search::{self, Order};
use crate::store::StoreError;
use onrecord_core::digest::Hash;

/// What a query is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Runs, by their ids, which begin with the time of their opening.
    Runs,
    /// Frames of all runs, by their times.
    Frames,
}

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
    /// The last of them, if there are more.
    next: Option<Key>,
}

/// The rows of a page.
pub(crate) enum Rows {
    Runs(Vec<RunSummary>),
    Frames(Vec<FrameRow>),
}

static OF_RUNS: Fields = &[("", RUN_FIELDS)];
static OF_FRAMES: Fields = &[("", FRAME_FIELDS), ("run.", RUN_FIELDS)];

impl Resource {
    /// The name in answers, in addresses and on the ledger.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Frames => "frames",
        }
    }

    /// The columns of its rows.
    pub(crate) fn columns(self) -> &'static [Column] {
        match self {
            Self::Runs => RUN_COLUMNS,
            Self::Frames => FRAME_COLUMNS,
        }
    }

    pub(super) fn fields(self) -> Fields {
        match self {
            Self::Runs => OF_RUNS,
            Self::Frames => OF_FRAMES,
        }
    }
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
        let order_word = match order {
            Order::Descending => "desc",
            Order::Ascending => "asc",
        };
        Ok(Self {
            resource,
            request: ListRequest {
                filter: condition.transpose()?,
                order,
                ..ListRequest::default()
            },
            asked: vec![
                resource.name().to_owned(),
                order_word.to_owned(),
                filter.unwrap_or_default().to_owned(),
            ],
        })
    }

    /// The same, of runs, with what lists of runs take beside the filter, and that as text.
    pub(crate) fn narrowed(mut self, list: ListRequest, asked: Vec<String>) -> Self {
        self.request = ListRequest {
            filter: self.request.filter,
            order: self.request.order,
            ..list
        };
        self.asked.extend(asked);
        self
    }

    /// What it is about.
    pub(crate) fn resource(&self) -> Resource {
        self.resource
    }

    /// A page of at most `limit` rows, behind the last row of the page before.
    ///
    /// # Errors
    /// [`RecordError::TooSlow`], and the database.
    pub(crate) async fn page(
        &self,
        recorder: &Recorder,
        caller: &Caller,
        after: Option<Key>,
        limit: u32,
    ) -> Result<Page, RecordError> {
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let one_more = limit.saturating_add(1);
        match self.resource {
            Resource::Runs => {
                let after = match after {
                    Some(Key::Run(run)) => Some(run),
                    _ => None,
                };
                let request = ListRequest {
                    after,
                    limit: one_more,
                    ..self.request.clone()
                };
                let mut runs = recorder.runs(caller.clone(), request).await?;
                let more = runs.len() > most;
                runs.truncate(most);
                let last = runs.last().filter(|_| more);
                Ok(Page {
                    next: last.map(|run| Key::Run(run.run.clone())),
                    rows: Rows::Runs(runs),
                })
            }
            Resource::Frames => {
                let mut frames = self.frames(recorder, caller, after, one_more).await?;
                let more = frames.len() > most;
                frames.truncate(most);
                let last = frames.last().filter(|_| more);
                Ok(Page {
                    next: last.map(|frame| Key::Frame(frame.key.clone())),
                    rows: Rows::Frames(frames),
                })
            }
        }
    }

    async fn frames(
        &self,
        recorder: &Recorder,
        caller: &Caller,
        after: Option<Key>,
        limit: u32,
    ) -> Result<Vec<FrameRow>, RecordError> {
        let (store, tenant) = (recorder.store().clone(), caller.tenant.clone());
        let (filter, order) = (self.request.filter.clone(), self.request.order);
        recorder
            .detached(async move {
                let mut tx = store.snapshot(&tenant).await?;
                let after = match &after {
                    Some(Key::Frame(key)) => Some(key),
                    _ => None,
                };
                let asked = Frames {
                    tenant: &tenant,
                    condition: &filter.unwrap_or_else(Condition::always),
                    order,
                    after,
                };
                let found = search::frames::list(&mut tx, &asked, limit)
                    .await
                    .map_err(RecordError::of_search)?;
                tx.commit().await.map_err(StoreError::from)?;
                Ok(found)
            })
            .await
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
    /// Where the next page begins, for whoever goes on at once.
    pub(crate) fn last(&self) -> Option<Key> {
        self.next.clone()
    }
}

impl Rows {
    /// The rows as cells of the resource's columns.
    pub(crate) fn cells(&self) -> Vec<Row> {
        match self {
            Self::Runs(runs) => runs.iter().map(of_run).collect(),
            Self::Frames(frames) => frames.iter().map(of_frame).collect(),
        }
    }
}

const RUN_COLUMNS: &[Column] = &[
    column("run", ColumnType::Text),
    column("run_no", ColumnType::Number),
    column("agent", ColumnType::Text),
    column("status", ColumnType::Text),
    column("outcome", ColumnType::Text),
    column("opened_at", ColumnType::Time),
    column("last_at", ColumnType::Time),
    column("sealed_at", ColumnType::Time),
    column("size", ColumnType::Number),
    column("turns", ColumnType::Number),
    column("payloads", ColumnType::Number),
    column("erased", ColumnType::Number),
    column("bytes", ColumnType::Number),
    column("head", ColumnType::Text),
    column("root", ColumnType::Text),
    column("open_index", ColumnType::Number),
    column("seal_index", ColumnType::Number),
];

fn of_run(run: &RunSummary) -> Row {
    vec![
        Cell::Text(run.run.to_string()),
        Cell::Number(run.run_no),
        text(run.agent.as_deref()),
        Cell::Text(run.status().to_owned()),
        Cell::Text(run.outcome.unwrap_or("unknown").to_owned()),
        Cell::Time(run.opened_at),
        Cell::Time(run.last_at),
        run.sealed.map_or(Cell::Null, |(at, _)| Cell::Time(at)),
        Cell::Number(run.size),
        Cell::Number(run.turns),
        Cell::Number(run.payloads),
        Cell::Number(run.erased),
        Cell::Number(run.bytes),
        Cell::Text(run.head.hex()),
        Cell::Text(run.root.hex()),
        Cell::Number(run.open_index),
        number(run.sealed.map(|(_, index)| index)),
    ]
}

const FRAME_COLUMNS: &[Column] = &[
    column("run", ColumnType::Text),
    column("seq", ColumnType::Number),
    column("at", ColumnType::Time),
    column("kind", ColumnType::Text),
    column("name", ColumnType::Text),
    column("verdict", ColumnType::Text),
    column("turn", ColumnType::Number),
    column("answers", ColumnType::Number),
    column("key", ColumnType::Text),
    column("run_no", ColumnType::Number),
    column("agent", ColumnType::Text),
];

fn of_frame(frame: &FrameRow) -> Row {
    vec![
        Cell::Text(frame.key.run.to_string()),
        Cell::Number(frame.key.seq),
        Cell::Time(frame.key.at),
        Cell::Text(frame.kind.as_str().to_owned()),
        text(frame.name.as_deref()),
        text(frame.verdict.map(|verdict| verdict.as_str())),
        number(frame.turn),
        number(frame.answers),
        Cell::Text(frame.writer_key.clone()),
        Cell::Number(frame.run_no),
        text(frame.agent.as_deref()),
    ]
}

pub(super) const fn column(name: &'static str, kind: ColumnType) -> Column {
    Column { name, kind }
}

fn text(text: Option<&str>) -> Cell {
    text.map_or(Cell::Null, |text| Cell::Text(text.to_owned()))
}

fn number(number: Option<u64>) -> Cell {
    number.map_or(Cell::Null, Cell::Number)
}
