//! A plain PostgreSQL with the same bytes: by `pgbench`, which comes with PostgreSQL, or else by a loop of
//! our own.

use super::report::Sample;
use super::workload::Plan;
use crate::cli::temporary;
use crate::store::yardstick::{Insert, Inserted, Yardstick};
use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;

/// The longest text that a program takes as an argument (`MAX_ARG_STRLEN` of Linux), less the variable's name.
const ARGUMENT_BYTES: usize = 128 * 1024 - 16;

/// The database for it, and what loads it.
pub(super) struct Plain {
    yardstick: Arc<Yardstick>,
    /// The database's address, as libpq reads it.
    url: String,
    pgbench: Option<PathBuf>,
}

impl Plain {
    /// Makes a database in the PostgreSQL of an address; `programs` is the folder where `pgbench` may be.
    ///
    /// # Errors
    /// The role there may not.
    pub async fn create(admin: &str, programs: Option<&Path>) -> anyhow::Result<Self> {
        let name = format!("onrecord_bench_{}", std::process::id());
        let mut url = reqwest::Url::parse(admin).context(
            "the database's address is malformed; expected postgres://USER@HOST/DATABASE",
        )?;
        url.set_path(&name);
        let yardstick = Yardstick::create(admin, name).await.context(
            "--baseline makes a database of its own, as a role that may do that and may ask for checkpoints",
        )?;
        let pgbench = programs
            .map(|folder| folder.join("pgbench"))
            .filter(|path| path.is_file());
        Ok(Self {
            yardstick: Arc::new(yardstick),
            url: url.into(),
            pgbench,
        })
    }

    /// What loads it, for the report.
    pub fn by(&self, insert: Insert, bytes: usize) -> &'static str {
        match (&self.pgbench, insert.script()) {
            (Some(_), Some(_)) if bytes <= ARGUMENT_BYTES => "pgbench",
            _ => "own loop",
        }
    }

    /// Empties the tables before a measurement.
    pub async fn empty(&self, plan: Plan) -> anyhow::Result<()> {
        Ok(self.yardstick.empty(plan.runs).await?)
    }

    /// Inserts rows of these bytes for so long.
    pub async fn measure(
        &self,
        plan: Plan,
        insert: Insert,
        bytes: String,
        time: Duration,
    ) -> anyhow::Result<Sample> {
        let inserted = match (&self.pgbench, insert.script()) {
            (Some(pgbench), Some(script)) if bytes.len() <= ARGUMENT_BYTES => {
                self.pgbench(pgbench, &script, plan.connections, &bytes, time)
                    .await?
            }
            _ => self.own_loop(insert, plan.connections, bytes, time).await?,
        };
        Ok(Sample::of_rows(inserted))
    }

    /// Drops the database, also under what still writes to it.
    pub async fn remove(self) -> anyhow::Result<()> {
        let removed = self.yardstick.remove().await;
        removed.context("the database of --baseline could not be dropped")
    }

    async fn own_loop(
        &self,
        insert: Insert,
        connections: u32,
        bytes: String,
        time: Duration,
    ) -> anyhow::Result<Inserted> {
        let (done, result) = tokio::sync::oneshot::channel();
        let yardstick = Arc::clone(&self.yardstick);
        std::thread::Builder::new()
            .name("plain".to_owned())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                let inserted = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
                    let work = yardstick.insert(insert, connections, &bytes, time);
                    Ok(runtime.block_on(work)?)
                });
                drop(yardstick);
                let _ = done.send(inserted);
            })?;
        result.await.context("the loop's thread ended")?
    }

    async fn pgbench(
        &self,
        program: &Path,
        script: &str,
        connections: u32,
        bytes: &str,
        time: Duration,
    ) -> anyhow::Result<Inserted> {
        let folder = temporary::folder("onrecord-pgbench-")?;
        let file = folder.path().join("script.sql");
        std::fs::write(&file, script)?;
        let prefix = folder.path().join("log");
        let output = Command::new(program)
            // No vacuum; statements prepared once; as many threads as there may be use for.
            .args([
                "-n",
                "-M",
                "prepared",
                "-j",
                if connections > 1 { "2" } else { "1" },
            ])
            .args(["-c", &connections.to_string()])
            .args(["-T", &format!("{:.0}", time.as_secs_f64().ceil())])
            .args(["-D", "seq=0", "-D", &format!("bytes={bytes}"), "-l"])
            .arg(format!("--log-prefix={}", prefix.display()))
            .arg("-f")
            .arg(&file)
            // Here and not among the arguments, which everybody sees: it may have a password.
            .env("PGDATABASE", &self.url)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| format!("{} cannot be run", program.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "pgbench failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let rate: f64 = number_after(&said, "tps = ").context("pgbench says no rate")?;
        let rows: u64 =
            number_after(&said, "actually processed: ").context("pgbench counts nothing")?;
        let mut micros = Vec::new();
        for entry in std::fs::read_dir(folder.path())? {
            let path = entry?.path();
            if path != file {
                micros.extend(latencies(&std::fs::read_to_string(path)?));
            }
        }
        let elapsed = if rate > 0.0 {
            Duration::from_secs_f64(f64::from(u32::try_from(rows).unwrap_or(u32::MAX)) / rate)
        } else {
            time
        };
        Ok(Inserted {
            rows,
            micros,
            elapsed,
        })
    }
}

/// The number that follows some words.
fn number_after<T: std::str::FromStr>(text: &str, words: &str) -> Option<T> {
    let rest = &text[text.find(words)? + words.len()..];
    rest.split(|one: char| !one.is_ascii_digit() && one != '.')
        .next()?
        .parse()
        .ok()
}

/// The times in a log of `pgbench`, in microseconds: the third of each line's numbers.
fn latencies(log: &str) -> impl Iterator<Item = u32> {
    log.lines()
        .filter_map(|line| line.split(' ').nth(2)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_says_is_read() {
        let said = "number of transactions actually processed: 56123/56123\n\
                    latency average = 2.2 ms\ntps = 28061.123456 (without initial connection time)\n";
        assert_eq!(number_after(said, "tps = "), Some(28_061.123_456));
        assert_eq!(number_after(said, "actually processed: "), Some(56_123_u64));
        assert_eq!(number_after::<u64>(said, "failed: "), None);
        let log = "0 1 2412 0 1175850568 995598\n12 3 98 0 1175850569 608\n";
        assert_eq!(latencies(log).collect::<Vec<_>>(), [2412, 98]);
    }
}
