//! What all queries have in common: what they are asked with, a page as JSON, and all that there is as a file.
//!
//! A file is read a page at a time, each in a short transaction, and only when the page before has left: a slow reader holds
//! no connection and no snapshot, and rows that come or go meanwhile move no other.

use super::App;
use super::problem::Problem;
use super::request::purpose;
use crate::access::{self, AccessError, Caller};
use crate::query::format::{self, Format, Writer};
use crate::query::{Key, Order, Page, Resource, Search};
use crate::record::{RecordError, Recorder, offload};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use serde::Deserialize;
use std::io;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use utoipa::IntoParams;

/// Rows that are read at once for a file.
const ROWS: u32 = 1_000;
/// How long a page may wait before its reader counts as gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a query is asked with.
#[derive(Debug, Default, Deserialize, IntoParams)]
pub(crate) struct Asked {
    /// Only what this is true of: docs/queries.md. By default everything.
    pub(super) filter: Option<String>,
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

impl Asked {
    /// The query of a resource.
    ///
    /// # Errors
    /// The filter or the order is malformed.
    pub(super) fn search(&self, resource: Resource) -> Result<Search, Problem> {
        let order = match self.order.as_deref() {
            None | Some("desc") => Order::Descending,
            Some("asc") => Order::Ascending,
            Some(_) => return Err(Problem::parameter("order", "desc or asc")),
        };
        Ok(Search::new(resource, self.filter.as_deref(), order)?)
    }

    fn limit(&self) -> Result<u32, Problem> {
        let limit = self.limit.unwrap_or(50);
        if !(1..=500).contains(&limit) {
            return Err(Problem::parameter("limit", "1 to 500"));
        }
        Ok(limit)
    }

    fn format(&self) -> Result<Option<Format>, Problem> {
        match self.format.as_deref() {
            None | Some("json") => Ok(None),
            Some(name) => name
                .parse()
                .map(Some)
                .map_err(|()| Problem::parameter("format", "json, ndjson, csv or parquet")),
        }
    }
}

/// Answers a query: a page, which `page` writes, or a file.
pub(super) async fn answer(
    app: &App,
    caller: Caller,
    search: Search,
    asked: Asked,
    headers: &HeaderMap,
    page: impl FnOnce(Page, Option<String>) -> Result<Vec<u8>, Problem>,
) -> Result<Response, Problem> {
    let (limit, format) = (asked.limit()?, asked.format()?);
    if format.is_some() && (asked.cursor.is_some() || asked.limit.is_some()) {
        return Err(Problem::parameter(
            "format",
            "json where there is a cursor or a limit: a file has all that there is",
        ));
    }
    let recorder = &app.recorder;
    let purpose = purpose(headers, asked.purpose)?;
    let after = match &asked.cursor {
        // Whoever has it got the page before, for which the query was entered.
        Some(cursor) => {
            let after = search.after(recorder, &caller, cursor).await?;
            Some(after.map_err(Problem::cursor)?)
        }
        None => {
            let is_list = search.resource() == Resource::Runs
                && asked.filter.is_none()
                && format.is_none();
            if !is_list {
                purpose.ok_or_else(Problem::purpose_required)?;
            }
            None
        }
    };
    let Some(format) = format else {
        let found = search.page(recorder, &caller, after, limit).await?;
        let next = search.next(recorder, &caller, &found).await?;
        let body = page(found, next)?;
        return Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response());
    };
    file(app, caller, search, format).await
}

/// A page of rows as they are, and nothing more.
pub(super) fn rows(
    resource: Resource,
    page: &Page,
    next: Option<&str>,
) -> Result<Vec<u8>, Problem> {
    let page = format::json::page(resource.name(), resource.columns(), &page.rows.cells(), next);
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
    let first = search.page(&app.recorder, &caller, None, ROWS).await?;
    let columns = search.resource().columns();
    let writer = Writer::new(format, columns).map_err(|_| Problem::internal())?;
    let name = format!(
        "attachment; filename=\"{}.{}\"",
        search.resource().name(),
        format.extension()
    );
    let (sink, pieces) = mpsc::channel(1);
    let file = File {
        recorder: app.recorder.clone(),
        caller,
        search,
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
        self.search
            .page(&self.recorder, &self.caller, Some(last), ROWS)
            .await
    }

    async fn send(&self, bytes: Vec<u8>) -> Result<(), Broken> {
        if bytes.is_empty() {
            return Ok(());
        }
        let sent = self.sink.send_timeout(Ok(bytes.into()), PATIENCE).await;
        sent.map_err(|_| Broken::Gone)
    }
}
