//! What all queries have in common: what they are asked with, a page as JSON, and all that there is as a file.
//!
//! A file is read a page at a time, each in a short transaction, and only when the page before has left: a slow reader holds
//! no connection and no snapshot, and rows that come or go meanwhile move no other.

use super::App;
use super::problem::Problem;
use super::request::purpose;
use super::saved_queries;
use crate::access::{self, AccessError, Caller, READERS};
use crate::query::format::{self, Format, Writer};
use crate::query::{Effort, Key, Order, Page, Resource, Search};
use crate::record::query::Question;
use crate::record::read::ListRequest;
use crate::record::{RecordError, Recorder, offload};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use utoipa::IntoParams;

/// Rows that are read at once for a file.
const ROWS: u32 = 1_000;
/// How long a page may wait before its reader counts as gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a query is asked with. A parameter that is not there is refused: what was meant by it would be left out without a word.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// Only what this is true of: docs/queries.md. By default everything.
    pub(super) filter: Option<String>,
    /// The filter that is kept under a name, in the place of one.
    pub(super) saved: Option<String>,
    /// `desc` (the default), the newest first, or `asc`.
    pub(super) order: Option<String>,
    /// `next` of the page before, with all else as it was.
    pub(super) cursor: Option<String>,
    /// 1 to 500, by default 50.
    pub(super) limit: Option<u32>,
    /// `json` (the default), a page; or all that there is, as `ndjson`, `csv` or `parquet`.
    pub(super) format: Option<String>,
    /// Why, as a code, if the header `Purpose` does not say so. Needed, but not with a cursor.
    pub(super) purpose: Option<String>,
}

/// What a query is about, and what came beside [`Asked`].
pub(super) struct Request<'a> {
    pub(super) resource: Resource,
    /// What lists of runs take beside a filter, and that as text.
    pub(super) list: Option<(ListRequest, BTreeMap<&'static str, String>)>,
    pub(super) headers: &'a HeaderMap,
}

impl Asked {
    fn limit(&self) -> Result<u32, Problem> {
        let limit = self.limit.unwrap_or(50);
        if !(1..=500).contains(&limit) {
            return Err(Problem::parameter("limit", "1 to 500"));
        }
        Ok(limit)
    }

    fn order(&self) -> Result<Order, Problem> {
        match self.order.as_deref() {
            None | Some("desc") => Ok(Order::Descending),
            Some("asc") => Ok(Order::Ascending),
            Some(_) => Err(Problem::parameter("order", "desc or asc")),
        }
    }
}

/// `None` for JSON.
pub(super) fn format(name: Option<&str>) -> Result<Option<Format>, Problem> {
    match name {
        None | Some("json") => Ok(None),
        Some(name) => name
            .parse()
            .map(Some)
            .map_err(|()| Problem::parameter("format", "json, ndjson, csv or parquet")),
    }
}

/// The filter of a query, as it was written or as it is kept under a name.
pub(super) async fn filter(
    app: &App,
    caller: &Caller,
    resource: Resource,
    (filter, saved): (Option<String>, Option<String>),
) -> Result<Option<String>, Problem> {
    let Some(name) = saved else {
        return Ok(filter);
    };
    if filter.is_some() {
        return Err(Problem::parameter("saved", "no `filter` beside it"));
    }
    saved_queries::check(&name)?;
    caller.needs(&READERS)?;
    let row = app.recorder.saved_query(caller.clone(), name).await?;
    if row.resource != resource.as_str() {
        let expected = format!(
            "the name of a filter of {}; this is one of {}",
            resource.as_str(),
            row.resource
        );
        return Err(Problem::parameter("saved", &expected));
    }
    Ok(Some(row.filter))
}

/// Answers a query: a page, which `page` writes, or a file.
pub(super) async fn answer(
    app: &App,
    caller: Caller,
    request: Request<'_>,
    asked: Asked,
    page: impl FnOnce(Page, Option<String>) -> Result<Vec<u8>, Problem>,
) -> Result<Response, Problem> {
    let (limit, order) = (asked.limit()?, asked.order()?);
    let format = format(asked.format.as_deref())?;
    if format.is_some() && (asked.cursor.is_some() || asked.limit.is_some()) {
        return Err(Problem::parameter(
            "format",
            "json where there is a cursor or a limit: a file has all that there is",
        ));
    }
    let (resource, recorder) = (request.resource, &app.recorder);
    let named = (asked.filter, asked.saved.clone());
    let filter = filter(app, &caller, resource, named).await?;
    let mut search = Search::new(resource, filter.as_deref(), order)?;
    let mut more = BTreeMap::new();
    if let Some((list, beside)) = request.list {
        search = search.narrowed(list, &beside);
        more = beside;
    }
    let purpose = purpose(request.headers, asked.purpose)?;
    let after = match &asked.cursor {
        // Whoever has it got the page before, for which the query was entered.
        Some(cursor) => {
            let after = search.after(recorder, &caller, cursor).await?;
            Some(after.map_err(Problem::cursor)?)
        }
        None => None,
    };
    let is_list = resource == Resource::Runs && filter.is_none() && format.is_none();
    if after.is_none() && !is_list {
        let purpose = purpose.ok_or_else(Problem::purpose_of_query)?;
        let question = Question {
            resource: resource.as_str(),
            filter,
            saved: asked.saved,
            format: Some(format.map_or("json", Format::extension)),
            order: asked.order.is_some().then_some(order.as_str()),
            limit: asked.limit.map(u64::from),
            more,
            ..Question::default()
        };
        recorder.enter_query(&caller, &purpose, &question).await?;
    }
    if let Some(format) = format {
        return file(app, caller, search, format).await;
    }
    let found = search
        .page(recorder, &caller, after, (limit, app.effort))
        .await?;
    let found = recorder.as_read(&caller, found).await?;
    let next = search.next(recorder, &caller, &found).await?;
    Ok((PAGE, page(found, next)?).into_response())
}

/// What a page says of itself: it may name people.
pub(super) const PAGE: [(header::HeaderName, &str); 2] = [
    (header::CONTENT_TYPE, "application/json"),
    (header::CACHE_CONTROL, "no-store"),
];

/// A page of rows as they are, and nothing more.
pub(super) fn rows(
    resource: Resource,
    page: &Page,
    next: Option<&str>,
) -> Result<Vec<u8>, Problem> {
    let page = format::json::page(
        resource.member(),
        resource.columns(),
        &page.rows.cells(),
        next,
    );
    page.map_err(|_| Problem::internal())
}

/// All rows as a file. What is wrong with the first page is a problem, later the file breaks off.
async fn file(
    app: &App,
    caller: Caller,
    search: Search,
    format: Format,
) -> Result<Response, Problem> {
    let place = app.streams.places.clone().try_acquire_owned();
    let place = place.map_err(|_| Problem::too_many_streams())?;
    let first = search
        .page(&app.recorder, &caller, None, (ROWS, app.effort))
        .await?;
    let first = app.recorder.as_read(&caller, first).await?;
    let columns = search.resource().columns();
    let writer = Writer::new(format, columns).map_err(|_| Problem::internal())?;
    let name = format!(
        "attachment; filename=\"{}.{}\"",
        search.resource().as_str(),
        format.extension()
    );
    let (sink, pieces) = mpsc::channel(1);
    let file = File {
        recorder: app.recorder.clone(),
        caller,
        search,
        effort: app.effort,
        sink,
        _place: place,
    };
    tokio::spawn(file.write(writer, first));
    let pieces = futures_util::stream::unfold(pieces, |mut pieces| async move {
        pieces.recv().await.map(|piece| (piece, pieces))
    });
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static(format.media()),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (
            header::CONTENT_DISPOSITION,
            HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static("attachment")),
        ),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// A file while it is written.
struct File {
    recorder: Recorder,
    caller: Caller,
    search: Search,
    effort: Effort,
    sink: mpsc::Sender<io::Result<Bytes>>,
    _place: OwnedSemaphorePermit,
}

/// Why a file broke off.
enum Broken {
    /// The reader went away.
    Gone,
    /// A page was not to be had.
    Page(RecordError),
    /// The rows could not be written.
    Format(format::FormatError),
}

impl File {
    async fn write(self, mut writer: Writer, first: Page) {
        let whole = self.pages(&mut writer, first).await;
        let last = match whole {
            Ok(()) => writer.end().map_err(Broken::Format),
            Err(broken) => {
                let _ = self.send(writer.broken()).await;
                Err(broken)
            }
        };
        let broken = match last {
            Ok(bytes) => match self.send(bytes).await {
                Ok(()) => return,
                Err(broken) => broken,
            },
            Err(broken) => broken,
        };
        match broken {
            Broken::Gone => return,
            Broken::Page(error) => tracing::warn!(%error, "a file of a query broke off"),
            Broken::Format(error) => tracing::error!(%error, "a file of a query broke off"),
        }
        let _ = self.sink.send(Err(io::Error::other("broken off"))).await;
    }

    async fn pages(&self, writer: &mut Writer, first: Page) -> Result<(), Broken> {
        let mut page = first;
        loop {
            let rows = page.rows.cells();
            let bytes = offload(usize::MAX, || writer.write(&rows)).map_err(Broken::Format)?;
            self.send(bytes).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            page = self.next(last).await.map_err(Broken::Page)?;
        }
    }

    /// The next page, if the token still opens anything.
    async fn next(&self, last: Key) -> Result<Page, RecordError> {
        if self.recorder.is_stopping() {
            return Err(RecordError::Stopping);
        }
        if !access::still_opens(self.recorder.store(), &self.caller).await? {
            return Err(AccessError::Unauthenticated.into());
        }
        let (caller, size) = (&self.caller, (ROWS, self.effort));
        let page = self.search.page(&self.recorder, caller, Some(last), size);
        self.recorder.as_read(caller, page.await?).await
    }

    async fn send(&self, bytes: Vec<u8>) -> Result<(), Broken> {
        if bytes.is_empty() {
            return Ok(());
        }
        let sent = self.sink.send_timeout(Ok(bytes.into()), PATIENCE).await;
        sent.map_err(|_| Broken::Gone)
    }
}
