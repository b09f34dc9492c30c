//! The sequencer: the one authority for order in this process. It gathers what waits, of all runs, extends their
//! chains in memory, writes one batch in one durable transaction, and answers everybody.
//!
//! A run whose head it remembers is written to in one statement, which compares and swaps the head. Where the head
//! is another (a second process wrote, the run was sealed) nothing of that run is written, and it is tried again under
//! the run's lock, where nobody can be faster. Where the answer of a commit is lost, it looks under the lock whether
//! the frames are there before it answers.

use super::RecordError;
use super::company::{self, Company};
use super::figures::Figures;
use super::follow::{Followed, Progress};
use super::group::{Group, Tried, gather, locked_chains, place_all};
use super::head_cache::Heads;
use super::queue::{Queue, QueueLimits, Submission};
use crate::store::append::{Keys, RunWrite, Session, Writer};
use crate::store::{self, Failure, Store, StoreError};
use onrecord_core::chain::Chain;
use onrecord_core::id::RunId;
use onrecord_core::timestamp::Timestamp;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Frames of a batch, but for one submission that has more: enough to share its costs, and few enough that its writers
/// have their next frames ready before the batches of others are written.
const BATCH_FRAMES: usize = 256;
/// Bytes of a batch, but for one submission that has more.
const BATCH_BYTES: usize = 2 * 1024 * 1024;
/// How long a batch may take. Statements end before; this is for a database that is frozen or a network that is gone.
const BATCH_TIME: Duration = Duration::from_secs(35);
/// How long a connection is tried for before what waits is refused.
const CONNECT_TIME: Duration = Duration::from_secs(2);
/// How long it is tried to find out what became of a batch before its writers are told that it is not known.
const RESOLVE_TIME: Duration = Duration::from_secs(15);
/// The pause between two tries to connect.
const PAUSE: Duration = Duration::from_millis(50);
/// How often a run is tried that others are in the way of. Under its lock nobody is, so that it never comes to this.
const TRIES: u32 = 20;
/// How long keys are looked for before they are written, after one was there: retries come together, and each of them
/// would fail a batch of others.
const KEYS_SOUGHT: Duration = Duration::from_secs(1);

/// Batches that are under way at once. A run is always in the same lane, so that its order cannot suffer; while one
/// lane waits for the disk another fills its batch.
const LANES: usize = 2;

/// The sequencer as the rest of the process has it. It ends when this is dropped, once nothing waits any more.
pub(super) struct Sequencer {
    lanes: Vec<Lane>,
}

struct Lane {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    queue: Mutex<Waiting>,
    /// Something waits, or it is the end.
    arrived: Notify,
    /// Something waits no more.
    room: Notify,
    heads: Heads,
}

struct Waiting {
    queue: Queue<Submission>,
    /// With how many the lane is woken.
    wanted: usize,
    closed: bool,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sequencer {
    /// Starts it over a database.
    pub(super) fn start(
        store: &Store,
        followed: &Followed,
        figures: &Arc<Figures>,
        limits: QueueLimits,
    ) -> Self {
        let limits = QueueLimits {
            frames: limits.frames / LANES,
            bytes: limits.bytes / LANES,
        };
        let lane = |_| Lane::start(store, followed.clone(), figures.clone(), limits);
        let lanes = (0..LANES).map(lane);
        Self {
            lanes: lanes.collect(),
        }
    }

    fn lane(&self, run: &RunId) -> &Lane {
        // The low bits of an id are random.
        let lane = run.to_bits() % self.lanes.len() as u128;
        &self.lanes[usize::try_from(lane).unwrap_or(0)]
    }

    /// Remembers the chain of a run as it is in the database.
    pub(super) fn remember(&self, chain: Chain) {
        let lane = self.lane(chain.run());
        lane.shared.heads.remember(chain);
    }

    /// Forgets a run that was written to elsewhere.
    pub(super) fn forget(&self, run: &RunId) {
        self.lane(run).shared.heads.forget(run);
    }

    /// Hands frames over, once there is room if they may `wait`.
    ///
    /// # Errors
    /// [`RecordError::Busy`]: there is none; [`RecordError::Stopping`]: nothing is taken any more.
    pub(super) async fn submit(
        &self,
        submission: Submission,
        wait: bool,
    ) -> Result<(), RecordError> {
        self.lane(&submission.run).submit(submission, wait).await
    }

    /// Submissions that wait to be written.
    pub(super) fn queued(&self) -> usize {
        let lanes = self.lanes.iter();
        lanes.map(|lane| lane.shared.waiting().queue.len()).sum()
    }

    /// Takes nothing more, and ends when everybody who waits has an answer.
    pub(super) async fn drain(&self) {
        self.lanes.iter().for_each(Lane::close);
        for lane in &self.lanes {
            let task = lane
                .task
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(task) = task
                && let Err(error) = task.await
            {
                tracing::error!(%error, "the sequencer broke off");
            }
        }
    }
}

impl Drop for Sequencer {
    fn drop(&mut self) {
        self.lanes.iter().for_each(Lane::close);
    }
}

impl Lane {
    fn start(
        store: &Store,
        followed: Followed,
        figures: Arc<Figures>,
        limits: QueueLimits,
    ) -> Self {
        let shared = Arc::new(Shared {
            queue: Mutex::new(Waiting {
                queue: Queue::new(limits),
                wanted: 1,
                closed: false,
            }),
            arrived: Notify::new(),
            room: Notify::new(),
            heads: Heads::new(),
        });
        let work = Work {
            shared: shared.clone(),
            writer: Writer::new(store),
            followed,
            figures,
            clock: None,
            keys_sought_until: None,
            company: Company::default(),
        };
        Self {
            shared,
            task: Mutex::new(Some(tokio::spawn(work.run()))),
        }
    }

    async fn submit(&self, mut submission: Submission, wait: bool) -> Result<(), RecordError> {
        loop {
            // Listens before it tries, so that no room is missed that is made in between.
            let mut room = pin!(self.shared.room.notified());
            room.as_mut().enable();
            {
                let mut waiting = self.shared.waiting();
                if waiting.closed {
                    return Err(RecordError::Stopping);
                }
                match waiting.queue.push(submission) {
                    Ok(()) => {
                        if waiting.queue.len() >= waiting.wanted {
                            self.shared.arrived.notify_one();
                        }
                        return Ok(());
                    }
                    Err(_) if !wait => return Err(RecordError::Busy),
                    Err(back) => submission = back,
                }
            }
            room.await;
        }
    }

    fn close(&self) {
        self.shared.waiting().closed = true;
        self.shared.arrived.notify_one();
        self.shared.room.notify_waiters();
    }
}

/// Why a batch was not written, as far as is known.
struct Failed {
    error: StoreError,
    /// Whether there was no connection to begin with.
    connect: bool,
}

impl<E: Into<StoreError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self {
            error: error.into(),
            connect: false,
        }
    }
}

struct Work {
    shared: Arc<Shared>,
    writer: Writer,
    followed: Followed,
    figures: Arc<Figures>,
    /// The database's clock at a moment of this process's: carried forward without asking again.
    clock: Option<(Timestamp, Instant)>,
    /// Until when keys are looked for before they are written.
    keys_sought_until: Option<Instant>,
    company: Company,
}

impl Work {
    async fn run(mut self) {
        let mut left: Vec<Group> = Vec::new();
        while !left.is_empty() || self.waiting(1).await {
            self.company().await;
            let mut groups = std::mem::take(&mut left);
            let taken = self.shared.waiting().queue.take(BATCH_FRAMES, BATCH_BYTES);
            self.shared.room.notify_waiters();
            let frames = taken.iter().map(|one| one.frames.len()).sum();
            self.company.taken(taken.len(), frames);
            gather(&mut groups, taken);
            for part in self.parts(groups) {
                left.extend(self.attempt(part).await);
            }
        }
    }

    /// Waits until so many submissions do, or nothing more is taken; false where none waits.
    async fn waiting(&self, wanted: usize) -> bool {
        loop {
            {
                let waiting = self.shared.waiting();
                if waiting.queue.len() >= wanted || waiting.closed {
                    return !waiting.queue.is_empty();
                }
            }
            self.shared.arrived.notified().await;
        }
    }

    /// Waits for company where that pays.
    async fn company(&mut self) {
        let (before, wanted) = {
            let mut waiting = self.shared.waiting();
            let before = waiting.queue.len();
            let Some(wanted) = self.company.wanted(before) else {
                return;
            };
            waiting.wanted = wanted;
            (before, wanted)
        };
        // Whoever came in time is company, whether all did or not.
        let _ = tokio::time::timeout(company::WAIT, self.waiting(wanted)).await;
        let mut waiting = self.shared.waiting();
        waiting.wanted = 1;
        self.company
            .came(waiting.queue.len().saturating_sub(before));
    }

    /// What can be written at once: all whose heads are remembered, all that are locked first, and each that goes
    /// alone.
    fn parts(&self, groups: Vec<Group>) -> Vec<Vec<Group>> {
        let (mut free, mut locked, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        for mut group in groups {
            group.lock |= !self.shared.heads.is_known(&group.run);
            if group.alone {
                alone.push(vec![group]);
            } else if group.lock {
                locked.push(group);
            } else {
                free.push(group);
            }
        }
        let parts = [free, locked].into_iter().chain(alone);
        parts.filter(|part| !part.is_empty()).collect()
    }

    /// Tries to write some groups, and answers those of which it is known what became of them. Returns the others.
    async fn attempt(&mut self, mut groups: Vec<Group>) -> Vec<Group> {
        let lock = groups.iter().any(|group| group.lock);
        let (mut tried, mut sent) = (Vec::new(), false);
        let began = Instant::now();
        let work = self.write(&mut groups, lock, &mut tried, &mut sent);
        match tokio::time::timeout(BATCH_TIME, work).await {
            Ok(Ok(())) => {
                let took = began.elapsed();
                self.company.written(took);
                self.figures.batches.took(took);
            }
            Ok(Err(failed)) => self.failed(&mut groups, tried, sent, failed).await,
            Err(_) => {
                let failed = Failed::from(StoreError::timed_out());
                self.failed(&mut groups, tried, sent, failed).await;
            }
        }
        groups.retain(|group| !group.submissions.is_empty());
        groups
    }

    /// Writes a batch. `sent` is set before anything that may be committed is sent; `tried` has by then what it is.
    async fn write(
        &mut self,
        groups: &mut [Group],
        lock: bool,
        tried: &mut Vec<Tried>,
        sent: &mut bool,
    ) -> Result<(), Failed> {
        let mut session = self.session().await?;
        session
            .see(&groups.iter().map(|group| &group.tenant).collect())
            .await?;
        let heads = &self.shared.heads;
        let mut chains = if lock {
            locked_chains(&mut session, heads, groups).await?
        } else {
            let known = groups.iter().filter_map(|group| heads.take(&group.run));
            known
                .map(|chain| (chain.run().clone(), (chain, false)))
                .collect()
        };
        let now = self.now(&session);
        if !lock {
            // Under the lock the run's row said it. Here the statement will say whether the newest is new enough.
            for group in &mut *groups {
                group
                    .key_version()
                    .into_iter()
                    .for_each(|newest| group.give_back(newest));
            }
        }
        let mut payloads = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            let Some((chain, sealed)) = chains.remove(&group.run) else {
                // Forgotten since it was looked for, or not there and answered.
                continue;
            };
            let (mut one, rows) =
                place_all(&mut session, group, index, (chain, sealed), now).await?;
            let said = one.frames.iter().flat_map(|frame| &frame.facts.of_run);
            one.facts = self.shared.heads.unsaid(&group.run, said);
            payloads.push(rows);
            tried.push(one);
        }
        let mut writes: Vec<RunWrite<'_>> = tried
            .iter()
            .zip(&payloads)
            .filter(|(one, _)| !one.frames.is_empty())
            .map(|(one, rows)| RunWrite {
                before: one.before,
                chain: &one.chain,
                frames: &one.frames,
                payloads: rows,
                nodes: &one.nodes,
                facts: one.facts.iter().collect(),
                key_version: groups[one.group].key_version(),
            })
            .collect();
        let (mut moved, mut known) = (BTreeSet::new(), BTreeSet::new());
        let nothing = writes.is_empty();
        if !nothing {
            // A crash before the commit, which is the statement's own unless locks were taken before, leaves nothing of
            // the batch; after it all of it, and writers who were not answered ask again with their keys.
            *sent = !lock;
            let keys = self.keys();
            let written =
                store::append::write(session.connection(), Some(now), &mut writes, keys).await?;
            self.clock = Some((written.now, Instant::now()));
            moved = written.runs.into_iter().collect();
            known = written.known.into_iter().collect();
        }
        if lock {
            *sent = !nothing;
            session.commit().await?;
        }
        self.writer.keep(session);
        drop(payloads);
        for one in std::mem::take(tried) {
            let group = &mut groups[one.group];
            let (is_moved, is_known) = (moved.contains(&group.run), known.contains(&group.run));
            self.settle(group, one, lock, (is_moved, is_known));
        }
        Ok(())
    }

    /// Answers a group whose frames are durable, or that has none; sees to it that another one is tried again.
    fn settle(&self, group: &mut Group, one: Tried, lock: bool, (moved, known): (bool, bool)) {
        group.tries += 1;
        if moved {
            self.figures.frames.add(one.frames.len() as u64);
            self.shared.heads.said(&group.run, one.facts);
            let progress = Progress {
                size: one.chain.size(),
                sealed: false,
            };
            self.followed
                .tell(&(group.tenant.clone(), group.run.clone()), progress);
            self.shared.heads.remember(one.chain);
            group.answer(one.results);
        } else if one.frames.is_empty() {
            let refused = one.results.iter().flatten().any(Result::is_err);
            if !one.sealed {
                self.shared.heads.remember(one.chain);
            }
            // What is remembered may be out of date, and nothing was written that would have told.
            if refused && !lock {
                group.lock = true;
            } else {
                group.answer(one.results);
            }
        } else if known {
            group.look_up = true;
        } else {
            // Somebody else moved the head, or the clock was wrong and is not any more.
            self.shared.heads.shared(&group.run);
            group.lock = true;
        }
        if group.tries > TRIES {
            group.refuse(|| RecordError::Busy);
        }
    }

    /// A batch that failed: what is known is answered, the rest tried again.
    async fn failed(
        &mut self,
        groups: &mut [Group],
        tried: Vec<Tried>,
        sent: bool,
        failed: Failed,
    ) {
        let Failed { error, connect } = failed;
        let mut failure = error.failure();
        if failure == Failure::Unknown && !sent {
            // The connection went before anything was sent that could be committed.
            failure = if connect {
                Failure::NotNow
            } else {
                Failure::Race
            };
        }
        let alone = groups.len() == 1;
        if failure == Failure::KeyUsed {
            // Somebody retries, which is no fault.
            self.keys_sought_until = Some(Instant::now() + KEYS_SOUGHT);
        } else {
            tracing::warn!(%error, ?failure, runs = groups.len(), "a batch was not written, or it is not known");
        }
        let error = Arc::new(error);
        if failure == Failure::Unknown {
            for one in tried {
                let group = &mut groups[one.group];
                group.deadline.get_or_insert(Instant::now() + RESOLVE_TIME);
                if !one.frames.is_empty() {
                    group.unknown.push(one);
                }
            }
        }
        for group in &mut *groups {
            self.shared.heads.forget(&group.run);
            group.tries += 1;
            group.lock = true;
            let over = group
                .deadline
                .is_some_and(|deadline| Instant::now() > deadline);
            match failure {
                // What became of it is to be found out first.
                _ if !group.unknown.is_empty() && !over => {}
                Failure::Unknown | Failure::Race | Failure::KeyUsed
                    if !over && group.tries <= TRIES =>
                {
                    group.look_up |= alone && failure == Failure::KeyUsed;
                }
                Failure::Refused if !over && !alone => group.alone = true,
                _ => group.refuse(|| RecordError::NotStored(error.clone())),
            }
        }
        let left = groups.iter().any(|group| !group.submissions.is_empty());
        if left && failure != Failure::KeyUsed {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// A session, which is tried for a while.
    async fn session(&mut self) -> Result<Session, Failed> {
        let until = Instant::now() + CONNECT_TIME;
        loop {
            match self.writer.session().await {
                Ok(session) => {
                    return Ok(session);
                }
                Err(error) if Instant::now() > until => {
                    return Err(Failed {
                        error,
                        connect: true,
                    });
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Whether keys are looked for before they are written.
    fn keys(&self) -> Keys {
        match self.keys_sought_until {
            Some(until) if Instant::now() < until => Keys::Sought,
            _ => Keys::New,
        }
    }

    /// The database's clock: as it was told last, and what has passed since.
    fn now(&mut self, session: &Session) -> Timestamp {
        let (told, at) = *self
            .clock
            .get_or_insert_with(|| (session.began_at, Instant::now()));
        let passed = i64::try_from(at.elapsed().as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(told.micros().saturating_add(passed)).unwrap_or(told)
    }
}
