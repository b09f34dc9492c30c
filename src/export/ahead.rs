//! Pages of the database, read and made ready while the ones before them are written.

use super::ExportError;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

/// Bytes of a page; what goes beyond is its last frame or payload.
pub(super) const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of pages that are made ready, wait or are written: memory is bounded by them, not by the run.
const AHEAD_BYTES: usize = 4 * PAGE_BYTES;

/// A page that is being made ready, and the part of the bytes that it holds.
type Page<T> = (JoinHandle<Result<T, ExportError>>, OwnedSemaphorePermit);

/// Where a reader puts its pages.
pub(super) struct Shelf<T> {
    room: Arc<Semaphore>,
    pages: mpsc::UnboundedSender<Page<T>>,
}

impl<T: Send + 'static> Shelf<T> {
    /// Makes a page of so many bytes ready in a task of its own, once there is room for it; false where
    /// nobody wants it any more.
    pub(super) async fn put(
        &self,
        bytes: usize,
        page: impl Future<Output = Result<T, ExportError>> + Send + 'static,
    ) -> bool {
        let bytes = u32::try_from(bytes.clamp(1, AHEAD_BYTES)).unwrap_or(u32::MAX);
        tokio::select! {
            permit = self.room.clone().acquire_many_owned(bytes) => permit.is_ok_and(|permit| {
                self.pages.send((tokio::spawn(page), permit)).is_ok()
            }),
            () = self.pages.closed() => false,
        }
    }
}

/// What takes the processor for a while, on a thread of its own.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ExportError> + Send + 'static,
) -> Result<T, ExportError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| ExportError::CutOff)?
}

/// The pages, in the order in which they were read.
pub(super) struct Ahead<T> {
    pages: mpsc::UnboundedReceiver<Page<T>>,
    reader: JoinHandle<Result<(), ExportError>>,
}

impl<T: Send + 'static> Ahead<T> {
    /// Begins to read.
    pub(super) fn begin<F>(read: impl FnOnce(Shelf<T>) -> F) -> Self
    where
        F: Future<Output = Result<(), ExportError>> + Send + 'static,
    {
        let (sink, pages) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(AHEAD_BYTES));
        let reader = tokio::spawn(read(Shelf { room, pages: sink }));
        Self { pages, reader }
    }

    /// The next page; its part of the bytes is held until what comes with it is dropped.
    pub(super) async fn next(&mut self) -> Result<Option<(T, OwnedSemaphorePermit)>, ExportError> {
        let Some((page, permit)) = self.pages.recv().await else {
            let read = (&mut self.reader).await;
            return read.map_err(|_| ExportError::CutOff)?.map(|()| None);
        };
        let page = page.await.map_err(|_| ExportError::CutOff)??;
        Ok(Some((page, permit)))
    }
}
