//! Serving: a bound listener, and a future that says when to stop.
//!
//! The loop is ours because axum's own neither bounds connections nor gives up on headers that do not come.

use super::{App, router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long requests may go on after the signal to stop.
const GRACE: Duration = Duration::from_secs(30);
/// How long the head of a request may take, the pause before it included. Longer than the clients that
/// we know keep a connection that nobody uses, so that they close it first and no request is lost.
const HEAD: Duration = Duration::from_secs(120);
/// Connections at once; further ones wait in the kernel's queue.
const CONNECTIONS: usize = 4_096;
/// The pause after the system refused a connection for want of something of its own.
const REFUSED: Duration = Duration::from_millis(100);

/// Serves until `shutdown` is there; then takes no new connection, lets requests end, and waits until
/// all that was begun is durable or refused.
pub async fn serve(
    listener: TcpListener,
    app: App,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (recorder, streams) = (app.recorder.clone(), app.streams.clone());
    let service = TowerToHyperService::new(router(app));
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD);
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, place) = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &room) => accepted,
        };
        let connection = builder.serve_connection(TokioIo::new(stream), service.clone());
        let connection = graceful.watch(connection.into_owned());
        tokio::spawn(async move {
            // A connection that breaks is the client's affair; what it asked for has its own answer.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    // They would go on for ever; whoever follows comes back and goes on where it was.
    streams.stop();
    if tokio::time::timeout(GRACE, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!(
            "some requests did not end in time and are cut off; what they wrote is kept"
        );
    }
    // Writes run in tasks of their own, which no cut-off request cancels.
    recorder.drain().await;
    Ok(())
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed.
    let place = room.clone().acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Receipts are small and waited for: they are not to be held back for more.
                let _ = stream.set_nodelay(true);
                return (stream, place);
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(REFUSED).await;
            }
        }
    }
}
