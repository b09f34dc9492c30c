//! What failed: the file, the server, or what was believed of both.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::super::import::post::Failure;
use super::entry::Entry;
use super::follower::Follower;
use super::told::{Told, What};
use super::watcher::{Away, Watcher};
use crate::client::ClientError;
use crate::import::ImportError;

/// The pause after the first failure; each further one is twice as long.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause while the server is away.
const AWAY_MAX: Duration = Duration::from_secs(30);
/// The longest pause after a file failed.
const FAILED_MAX: Duration = Duration::from_secs(15 * 60);
/// Contents of one file that are told apart.
const REWRITTEN_MAX: u32 = 1_000;

impl Watcher {
    /// Decides what a failure means.
    pub(super) fn failed(
        &mut self,
        path: &Path,
        entry: &mut Entry,
        failure: &Failure,
        now: SystemTime,
    ) {
        if is_away(failure) {
            self.is_away(failure, now);
            return;
        }
        if failure
            .problem()
            .is_some_and(|problem| problem.code == "run_not_found")
        {
            self.unsure = true;
            entry.follower = None;
            entry.more = false;
        }
        if failure.is_closed() && !entry.record.continues {
            return self.go_on(path, entry);
        }
        if failure.is_conflict() && entry.record.rewritten < REWRITTEN_MAX {
            return self.rewritten(path, entry, &failure.to_string());
        }
        if let Failure::File(ImportError::Io { source, .. }) = failure
            && source.kind() == io::ErrorKind::NotFound
        {
            // The next look at all files tells what became of it.
            entry.follower = entry.follower.take().filter(Follower::appends);
            entry.not_before = Some(now + PAUSE);
            return;
        }
        let mut why = failure.to_string();
        let torn = matches!(failure, Failure::File(ImportError::NotThisFormat { .. }));
        let (tell, pause) = match entry.failed.take() {
            Some((before, pause)) => (before != why, (2 * pause).min(FAILED_MAX)),
            // A document may be in the middle of being written: it is told when it stays so.
            None => (!torn, PAUSE),
        };
        if tell {
            self.failures += 1;
            let told = Told::new(What::Failed, why.clone()).of(path);
            (self.tell)(told.run(entry.record.run()));
        } else if torn && pause == PAUSE {
            why.clear();
        }
        entry.failed = Some((why, pause));
        entry.not_before = Some(now + pause);
        entry.more = false;
        if !torn {
            // Read anew then: what it holds may be what failed.
            entry.follower = None;
        }
    }

    pub(super) fn is_away(&mut self, failure: &Failure, now: SystemTime) {
        let pause = match &self.away {
            Some(away) => (2 * away.pause).min(AWAY_MAX),
            None => {
                let what = format!("{failure}; what is new waits in the files and is tried again");
                (self.tell)(Told::new(What::Away, what));
                PAUSE
            }
        };
        let until = now + pause;
        self.away = Some(Away { until, pause });
    }

    /// The server answered.
    pub(super) fn is_back(&mut self) {
        if self.away.take().is_some() {
            (self.tell)(Told::new(What::Back, ""));
        }
    }

    /// Asks whether the server has the newest run of the state file. Where it has not, it is another
    /// server's, or this one lost what it had: then everything is posted again.
    pub(super) async fn check_records(&mut self, now: SystemTime) {
        let runs = self.entries.values().filter_map(|entry| entry.record.run());
        // The ids of runs are in the order of their making.
        let Some(newest) = runs.max().map(str::to_owned) else {
            self.unsure = false;
            return;
        };
        let answer = self
            .client
            .read::<Value>(&format!("/v1/runs/{newest}"))
            .await;
        match answer {
            Ok(_) => {
                self.unsure = false;
                self.is_back();
            }
            Err(error) if error.code() == Some("run_not_found") => {
                self.unsure = false;
                let what = format!(
                    "the server does not have run {newest} of the state file: everything is posted again"
                );
                (self.tell)(Told::new(What::State, what));
                let mut forgotten = Vec::new();
                for (path, entry) in &mut self.entries {
                    if entry.record.skipped || entry.record.gone {
                        continue;
                    }
                    let stat = entry.stat;
                    *entry = Entry::new(path, stat, false);
                    forgotten.push(path.clone());
                }
                forgotten.iter().for_each(|path| self.note(path));
            }
            Err(error) => {
                let failure = Failure::Server(error);
                let forbidden = failure.problem().is_some_and(|found| found.status == 403);
                if is_away(&failure) && !forbidden {
                    self.is_away(&failure, now);
                } else {
                    // Whoever may write but not read cannot ask.
                    self.unsure = false;
                }
            }
        }
    }
}

/// Whether a failure says nothing about the file, and all the others would fail as well.
fn is_away(failure: &Failure) -> bool {
    if let Some(problem) = failure.problem() {
        return problem.status >= 500 || matches!(problem.status, 401 | 403 | 408 | 429);
    }
    matches!(
        failure,
        Failure::Unanswered { .. }
            | Failure::Server(
                ClientError::Unreachable { .. }
                    | ClientError::Broken { .. }
                    | ClientError::Foreign { .. }
            )
    )
}
