//! The `onrecord` command.

use std::process::ExitCode;

/// Requests are prepared on one thread and written by another: the system's allocator has them wait for each other's
/// locks, at a third of the cost of an append.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // reqwest and sqlx both speak TLS through rustls, which is told once whose cryptography to use. It
    // fails only where it was told before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    onrecord::cli::main()
}
