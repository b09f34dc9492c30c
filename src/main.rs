//! The `onrecord` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    // reqwest and sqlx both speak TLS through rustls, which is told once whose cryptography to use. It
    // fails only where it was told before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    onrecord::cli::main()
}
