//! What the servers of this process write to their log.

use std::io::{self, Write};
use std::sync::{Mutex, Once, PoisonError};
use tracing_subscriber::EnvFilter;

static TEXT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Sink;

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = TEXT.lock().unwrap_or_else(PoisonError::into_inner);
        text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps the log from now on, in more detail than any operator would set.
pub fn capture() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let filter = EnvFilter::new("info,onrecord=trace,tower_http=trace,sqlx=trace,axum=trace");
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_writer(|| Sink)
            .init();
    });
}

pub fn text() -> String {
    let text = TEXT.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&text).into_owned()
}
