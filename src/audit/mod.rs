//! The audit: the whole database against itself and its ledgers. It reads, and changes nothing.
//!
//! The rules of frames are core's, those of ledgers and seals the verifier's; what is asked here besides is whether every row
//! and column follows from the bytes under a hash or a signature. Each ledger is read as it is at one moment, and so is each
//! run, so that what is written meanwhile is no contradiction.

mod chain;
mod facts;
mod found;
mod ledger;
mod marks;
mod nodes;
mod payloads;
mod queries;
mod run;
mod state;

pub use found::Finding;
pub use state::{State, StateError};

use crate::store::StoreError;
use crate::store::audit::{Reader, RunMark, Stray};
use found::{At, Found};
use ledger::Ledger;
use onrecord_core::id::RunId;
use onrecord_verify::{Status, Trust};
use run::Meter;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// What is to be audited, and how.
#[derive(Clone, Debug)]
pub struct Audit {
    /// Address of the database.
    pub url: String,
    /// Trust files, each for the ledgers that it pins; of others the ledger's own keys show that it hangs together.
    pub trusts: Vec<Trust>,
    /// Runs that are read at the same time, each on a connection of its own.
    pub jobs: usize,
}

/// What an audit tells while it goes on.
#[derive(Debug)]
pub enum Told {
    /// Something is not as it should be.
    Finding(Finding),
    /// How far it is.
    Progress(Progress),
}

/// How far an audit is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Runs that were read.
    pub runs: u64,
    /// Runs that were not, since they are as they were when they were read before.
    pub skipped: u64,
    /// Runs in all.
    pub all_runs: u64,
    /// Frames that were read.
    pub frames: u64,
    /// Frames of all runs that are to be read, as far as it is known.
    pub all_frames: u64,
    /// Bytes of the frames that were read.
    pub bytes: u64,
}

/// What an audit came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The gravest status of all findings.
    pub status: Status,
    /// Findings, those included that were not told one by one.
    pub findings: u64,
    /// Ledgers that were read.
    pub ledgers: u64,
    /// What was read of runs.
    pub progress: Progress,
}

/// Why an audit could not be made, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The state file.
    #[error(transparent)]
    State(#[from] StateError),
    /// A part of the work ended by itself.
    #[error("a part of the audit broke off; run it again")]
    BrokeOff,
}

/// How often it is told how far it is.
const TICK: Duration = Duration::from_millis(500);

/// Runs that wait to be read, with the ledgers that they are held against.
type Queue = Mutex<VecDeque<(Arc<str>, Arc<Ledger>, RunMark)>>;

/// A run that was read.
struct Done {
    run: RunId,
    mark: String,
    found: Found,
}

impl Audit {
    /// Reads everything, and tells what it finds. Runs that `state` has as clean and that have not changed since are not
    /// read again.
    ///
    /// # Errors
    /// See [`AuditError`]; what was found until then is told, and `state` has what was read.
    pub async fn run(
        &self,
        state: &mut State,
        mut tell: impl FnMut(Told),
    ) -> Result<Summary, AuditError> {
        let mut reader = Reader::connect(&self.url).await?;
        let tenants = reader.tenants().await?;
        let mut work = Work {
            tell: &mut tell,
            state,
            summary: Summary {
                status: Status::Verified,
                findings: 0,
                ledgers: 0,
                progress: Progress::default(),
            },
            meter: Arc::default(),
        };
        for tenant in &tenants {
            let mut found = Found::new(tenant, None);
            reader.begin(tenant).await?;
            let read = ledger::check(&mut reader, tenant, &self.trusts, &mut found).await?;
            reader.end().await?;
            work.summary.ledgers += 1;
            work.take(found);
            let (ledger, runs) = read;
            work.runs(self, tenant, ledger, runs).await?;
        }
        reader.begin(&tenants.join(" ")).await?;
        for (table, stray) in [
            ("frames", Stray::Frames),
            ("payloads", Stray::Payloads),
            ("run_facts", Stray::Facts),
        ] {
            for run in reader.strays(stray).await? {
                let mut found = Found::new("", Some(run.to_string()));
                found.surplus(At::of(table, "run"), "there is no such run");
                work.take(found);
            }
        }
        reader.end().await?;
        reader.close().await?;
        work.state.finish()?;
        Ok(work.summary)
    }
}

struct Work<'a, F> {
    tell: &'a mut F,
    state: &'a mut State,
    summary: Summary,
    meter: Arc<Meter>,
}

impl<F: FnMut(Told)> Work<'_, F> {
    fn take(&mut self, found: Found) {
        self.summary.findings += found.findings.len() as u64 + found.more;
        for one in found.findings {
            // Altered is graver than incomplete, as in verdicts.
            if self.summary.status != Status::Altered {
                self.summary.status = one.status;
            }
            (self.tell)(Told::Finding(one));
        }
    }

    fn tick(&mut self) {
        let progress = &mut self.summary.progress;
        progress.frames = self.meter.frames.load(Ordering::Relaxed);
        progress.bytes = self.meter.bytes.load(Ordering::Relaxed);
        (self.tell)(Told::Progress(*progress));
    }

    /// Reads the runs of a tenant.
    async fn runs(
        &mut self,
        audit: &Audit,
        tenant: &str,
        ledger: Ledger,
        runs: Vec<RunMark>,
    ) -> Result<(), AuditError> {
        let (tenant, ledger) = (Arc::<str>::from(tenant), Arc::new(ledger));
        let progress = &mut self.summary.progress;
        progress.all_runs += runs.len() as u64;
        let mut queue = VecDeque::with_capacity(runs.len());
        for run in runs {
            if self.state.is_clean(&run.run, &run.mark) {
                progress.skipped += 1;
                continue;
            }
            progress.all_frames += u64::try_from(run.size).unwrap_or(0);
            queue.push_back((tenant.clone(), ledger.clone(), run));
        }
        let jobs = audit.jobs.min(queue.len());
        let queue: Arc<Queue> = Arc::new(Mutex::new(queue));
        let (sender, mut done) = mpsc::channel(64);
        let workers: Vec<_> = (0..jobs)
            .map(|_| {
                let work = worker(
                    audit.url.clone(),
                    queue.clone(),
                    self.meter.clone(),
                    sender.clone(),
                );
                tokio::spawn(work)
            })
            .collect();
        drop(sender);
        let mut ticks = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                one = done.recv() => match one {
                    Some(one) => self.done(one)?,
                    None => break,
                },
                _ = ticks.tick() => self.tick(),
            }
        }
        for worker in workers {
            worker.await.map_err(|_| AuditError::BrokeOff)??;
        }
        self.tick();
        Ok(())
    }

    fn done(&mut self, one: Done) -> Result<(), StateError> {
        self.summary.progress.runs += 1;
        // One that is not clean is read again the next time.
        if one.found.findings.is_empty() {
            self.state.add(one.run, one.mark)?;
        } else {
            self.state.remove(&one.run);
        }
        self.take(one.found);
        Ok(())
    }
}

/// Reads runs until none waits.
async fn worker(
    url: String,
    queue: Arc<Queue>,
    meter: Arc<Meter>,
    done: mpsc::Sender<Done>,
) -> Result<(), StoreError> {
    let mut reader = Reader::connect(&url).await?;
    loop {
        let next = queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        let Some((tenant, ledger, run)) = next else {
            return reader.close().await;
        };
        reader.begin(&tenant).await?;
        let found = run::check(&mut reader, &tenant, &run.run, &ledger, &meter).await?;
        reader.end().await?;
        let one = Done {
            run: run.run,
            mark: run.mark,
            found,
        };
        if done.send(one).await.is_err() {
            return Ok(());
        }
    }
}
