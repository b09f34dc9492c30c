//! Serving: a bound listener, and a future that says when to stop.

use super::{App, router};
use crate::listen;
pub use crate::listen::{Listener, UnixSocket};
use std::io;

/// Serves until `shutdown` is there; then takes no new connection, lets requests end, and waits until
/// all that was begun is durable or refused.
pub async fn serve(
    listener: impl Into<Listener>,
    app: App,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (recorder, streams) = (app.recorder.clone(), app.streams.clone());
    // They would go on for ever; whoever follows comes back and goes on where it was.
    listen::run(listener, router(app), shutdown, || streams.stop()).await;
    // Writes run in tasks of their own, which no cut-off request cancels.
    recorder.drain().await;
    Ok(())
}
