//! The data folder: who may enter it, whether there is room, and how fast its disk is.

use super::Findings;
use crate::start::{Config, TOKEN_FILE};
use indicatif::HumanBytes;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Free bytes below which the disk is too full, and below which it soon is.
const LITTLE: u64 = 1024 * 1024 * 1024;
const SOME: u64 = 5 * LITTLE;
/// Writes by which the disk is measured, and from when on they are slow.
const WRITES: u32 = 8;
const SLOW: Duration = Duration::from_millis(50);

/// Checks the folder; false where there is none that could be looked into.
pub(super) fn check(findings: &mut Findings, config: &Config, is_named: bool) -> bool {
    let folder = &config.data_dir;
    let shown = folder.display();
    let found = match fs::metadata(folder).and_then(|found| fs::read_dir(folder).map(|_| found)) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let why = format!("{shown} is not there");
            if is_named {
                findings.warning("data folder", why, "the first `onrecord serve` makes it");
            } else {
                findings.skipped(
                    "data folder",
                    why + ": no server of this user is set up here",
                );
            }
            // The database may be elsewhere, and with it everything but the keys.
            return config.database_url.is_some();
        }
        Err(error) => {
            findings.failed(
                "data folder",
                format!("{shown} cannot be looked into: {error}"),
                "run doctor as the user that runs the server, or name the right folder with --data-dir",
            );
            return false;
        }
    };
    if mode(&found) & 0o007 != 0 {
        findings.warning(
            "data folder",
            format!("{shown} is open to other users (mode {:04o})", mode(&found)),
            "close it: chmod 0700, or 0710 where root's PostgreSQL runs as another user",
        );
    } else {
        findings.ok("data folder", format!("{shown}, mode {:04o}", mode(&found)));
    }
    private(findings, "token file", &folder.join(TOKEN_FILE));
    room(findings, folder);
    disk(findings, folder);
    true
}

/// Checks that only its owner may read a secret's file; says nothing of one that is not there.
pub(super) fn private(findings: &mut Findings, check: &'static str, path: &Path) {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(found) if mode(&found) & 0o077 != 0 => findings.failed(
            check,
            format!("{shown} may be read by others (mode {:04o})", mode(&found)),
            "chmod 0600, and think of the secret in it as known",
        ),
        Ok(found) if owner(path.parent()).is_some_and(|owner| owner != found.uid()) => findings
            .failed(
                check,
                format!(
                    "{shown} belongs to user id {}, and its folder to another",
                    found.uid()
                ),
                "chown it to the user that runs the server",
            ),
        Ok(_) => findings.ok(check, format!("{shown}, for its owner alone")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => findings.failed(
            check,
            format!("{shown}: {error}"),
            "run doctor as the owner of the keys",
        ),
    }
}

fn owner(folder: Option<&Path>) -> Option<u32> {
    fs::metadata(folder?).ok().map(|found| found.uid())
}

pub(super) fn mode(found: &fs::Metadata) -> u32 {
    found.mode() & 0o7777
}

fn room(findings: &mut Findings, folder: &Path) {
    let free = match rustix::fs::statvfs(folder) {
        Ok(found) => found.f_bavail.saturating_mul(found.f_frsize),
        Err(error) => {
            findings.failed("disk space", error.to_string(), "");
            return;
        }
    };
    let text = format!("{} free", HumanBytes(free));
    let action = "make room: PostgreSQL stops when its disk is full, and nothing is recorded until it has room";
    if free < LITTLE {
        findings.failed("disk space", text, action);
    } else if free < SOME {
        findings.warning("disk space", text, action);
    } else {
        findings.ok("disk space", text);
    }
}

fn disk(findings: &mut Findings, folder: &Path) {
    match write_time(folder) {
        Ok(time) if time > SLOW => findings.warning(
            "disk",
            format!("a durable write takes {} ms", time.as_millis()),
            "every append waits for one; put the data on a faster disk",
        ),
        Ok(time) => findings.ok(
            "disk",
            format!("a durable write takes {:.1} ms", time.as_secs_f64() * 1e3),
        ),
        Err(error) => findings.failed(
            "disk",
            format!("{} cannot be written: {error}", folder.display()),
            "run doctor as the user that runs the server; else look at the disk and its mount options",
        ),
    }
}

/// How long a page takes to be written and forced out, about. The file has no name.
fn write_time(folder: &Path) -> io::Result<Duration> {
    let mut file = tempfile::tempfile_in(folder)?;
    let begin = Instant::now();
    for _ in 0..WRITES {
        file.write_all(&[0; 8_192])?;
        file.sync_data()?;
    }
    Ok(begin.elapsed() / WRITES)
}
