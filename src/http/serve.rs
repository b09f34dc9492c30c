//! Serving: a bound listener, and a future that says when to stop.

use super::{App, router};
use std::io;
use std::time::Duration;
use tokio::net::TcpListener;

/// How long requests may go on after the signal to stop.
const GRACE: Duration = Duration::from_secs(30);

/// Serves until `shutdown` is there; then takes no new connection, lets requests end, and waits until
/// all that was begun is durable or refused.
pub async fn serve(listener: TcpListener, app: App, shutdown: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    let recorder = app.recorder.clone();
    let (stopping, stopped) = tokio::sync::oneshot::channel();
    let signal = async move {
        shutdown.await;
        let _ = stopping.send(());
    };
    let server = axum::serve(listener, router(app)).with_graceful_shutdown(signal);
    let late = async move {
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        result = async { server.await } => result?,
        () = late => tracing::warn!("some requests did not end in time and are cut off; what they wrote is kept"),
    }
    // Writes run in tasks of their own, which no cut-off request cancels.
    recorder.drain().await;
    Ok(())
}
