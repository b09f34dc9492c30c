//! The sequencer: the one authority for order in this process. It gathers what waits, of all runs, extends their
//! chains in memory, writes one batch in one durable transaction, and answers everybody.
//!
//! A run whose head it remembers is written to in one statement, which compares and swaps the head. Where the head
//! is another (a second process wrote, the run was sealed) nothing of that run is written, and it is tried again under
//! the run's lock, where nobody can be faster. Where the answer of a commit is lost, it looks under the lock whether
//! the frames are there before it answers.

use super::RecordError;
use super::company::{self, Company};
use super::follow::{Followed, Progress};
use super::group::{Group, Tried, gather, locked_chains, place_all};
use super::head_cache::Heads;
use super::queue::{Queue, QueueLimits, Submission};
use crate::store::append::{Keys, RunWrite, Session, Writer};
use crate::store::{self, Failure, Store, StoreError};
use onrecord_core::chain::Chain;
use onrecord_core::id::{RunId, TenantId};
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

/// Batches that are under way at once: while one waits for the disk another is filled.
const LANES: usize = 2;
/// The same where batches are large: they leave as much to wait for in PostgreSQL as to do here.
const LANES_OF_LARGE: usize = 4;

/// The sequencer as the rest of the process has it. It ends when this is dropped, once nothing waits any more.
pub(super) struct Sequencer {
    shared: Arc<Shared>,
    lanes: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    /// Which lane gathers the next batch.
    gathering: tokio::sync::Mutex<()>,
    /// What that lane waits for may be there.
    arrived: Notify,
    /// A large batch waits, or it is the end.
    crowd: Notify,
    /// Something waits no more.
    room: Notify,
    heads: Heads,
}

struct Waiting {
    queue: Queue<Submission>,
    /// With how many submissions the next batch is to begin.
    wanted: usize,
    /// Batches that are under way.
    writing: usize,
    company: Company,
    closed: bool,
}

impl Waiting {
    /// Whether the next batch is one of large frames, and full.
    fn is_large(&self) -> bool {
        let free = self.queue.free();
        let as_large = free.frames.saturating_mul(BATCH_BYTES / BATCH_FRAMES);
        free.bytes >= BATCH_BYTES.max(as_large)
    }

    /// Whether the next batch is to be taken.
    fn is_ready(&self) -> bool {
        let lanes = if self.is_large() {
            LANES_OF_LARGE
        } else {
            LANES
        };
        self.writing < lanes && self.queue.len() >= self.wanted
    }

    /// The next batch, if there is something for it.
    fn take(&mut self) -> Option<Vec<Submission>> {
        let taken = self.queue.take(BATCH_FRAMES, BATCH_BYTES);
        if taken.is_empty() {
            return None;
        }
        self.writing += 1;
        Some(taken)
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever is to take the next batch, if there is one.
    fn wake(&self, waiting: &Waiting) {
        if waiting.is_ready() || waiting.closed {
            self.arrived.notify_one();
            if waiting.writing >= LANES {
                self.crowd.notify_one();
            }
        }
    }

    /// The next batch, with its company where that pays; `None` where nothing more will come.
    async fn gather(&self) -> Option<Vec<Submission>> {
        let _turn = self.gathering.lock().await;
        self.ready().await;
        let company = {
            let mut waiting = self.waiting();
            let before = waiting.queue.len();
            let wanted = waiting.company.wanted(before);
            waiting.wanted = wanted.unwrap_or(1);
            wanted.map(|_| before)
        };
        if let Some(before) = company {
            // Whoever came in time is company, whether all did or not.
            let _ = tokio::time::timeout(company::WAIT, self.ready()).await;
            let mut waiting = self.waiting();
            waiting.wanted = 1;
            let came = waiting.queue.len().saturating_sub(before);
            waiting.company.came(came);
        }
        self.waiting().take()
    }

    /// Waits until the next batch is to be taken, or nothing more comes.
    async fn ready(&self) {
        loop {
            {
                let waiting = self.waiting();
                if waiting.is_ready() || waiting.closed {
                    return;
                }
            }
            self.arrived.notified().await;
        }
    }

    /// The next large batch, while others are under way; `None` where nothing more will come.
    async fn gather_large(&self) -> Option<Vec<Submission>> {
        loop {
            // Listens before it looks, so that the end is not missed.
            let mut crowd = pin!(self.crowd.notified());
            crowd.as_mut().enable();
            {
                let mut waiting = self.waiting();
                let large = waiting.writing >= LANES && waiting.is_large() && waiting.is_ready();
                if large || waiting.closed {
                    return waiting.take();
                }
            }
            crowd.await;
        }
    }

    /// A lane has nothing of its batch left.
    fn written(&self, submissions: usize, frames: usize, took: Option<Duration>) {
        let mut waiting = self.waiting();
        waiting.writing -= 1;
        waiting.company.written(submissions, frames, took);
        self.wake(&waiting);
    }

    /// Runs have their turns again.
    fn end<'a>(&self, runs: impl Iterator<Item = &'a (TenantId, RunId)>) {
        let mut waiting = self.waiting();
        runs.for_each(|(tenant, run)| waiting.queue.end(tenant, run));
        self.wake(&waiting);
    }
}

impl Sequencer {
    /// Starts it over a database.
    pub(super) fn start(store: &Store, followed: &Followed, limits: QueueLimits) -> Self {
        let shared = Arc::new(Shared {
            waiting: Mutex::new(Waiting {
                queue: Queue::new(limits),
                wanted: 1,
                writing: 0,
                company: Company::default(),
                closed: false,
            }),
            gathering: tokio::sync::Mutex::new(()),
            arrived: Notify::new(),
            crowd: Notify::new(),
            room: Notify::new(),
            heads: Heads::new(),
        });
        let lanes = (0..LANES_OF_LARGE).map(|lane| {
            let work = Work {
                shared: shared.clone(),
                writer: Writer::new(store),
                followed: followed.clone(),
                clock: None,
                keys_sought_until: None,
                took: None,
            };
            tokio::spawn(work.run(lane >= LANES))
        });
        Self {
            lanes: Mutex::new(lanes.collect()),
            shared,
        }
    }

    /// Remembers the chain of a run as it is in the database.
    pub(super) fn remember(&self, chain: Chain) {
        self.shared.heads.remember(chain);
    }

    /// Forgets a run that was written to elsewhere.
    pub(super) fn forget(&self, run: &RunId) {
        self.shared.heads.forget(run);
    }

    /// Hands frames over, once there is room if they may `wait`.
    ///
    /// # Errors
    /// [`RecordError::Busy`]: there is none; [`RecordError::Stopping`]: nothing is taken any more.
    pub(super) async fn submit(
        &self,
        mut submission: Submission,
        wait: bool,
    ) -> Result<(), RecordError> {
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
                        self.shared.wake(&waiting);
                        return Ok(());
                    }
                    Err(_) if !wait => return Err(RecordError::Busy),
                    Err(back) => submission = back,
                }
            }
            room.await;
        }
    }

    /// Takes nothing more, and ends when everybody who waits has an answer.
    pub(super) async fn drain(&self) {
        self.close();
        let lanes = std::mem::take(&mut *self.lanes.lock().unwrap_or_else(PoisonError::into_inner));
        for lane in lanes {
            if let Err(error) = lane.await {
                tracing::error!(%error, "the sequencer broke off");
            }
        }
    }

    fn close(&self) {
        self.shared.waiting().closed = true;
        self.shared.arrived.notify_one();
        self.shared.crowd.notify_waiters();
        self.shared.room.notify_waiters();
    }
}

impl Drop for Sequencer {
    fn drop(&mut self) {
        self.close();
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
    /// The database's clock at a moment of this process's: carried forward without asking again.
    clock: Option<(Timestamp, Instant)>,
    /// Until when keys are looked for before they are written.
    keys_sought_until: Option<Instant>,
    /// How long the last batch took, where it was written.
    took: Option<Duration>,
}

impl Work {
    /// `large`: whether it takes large batches only, while others are under way.
    async fn run(mut self, large: bool) {
        loop {
            let taken = if large {
                self.shared.gather_large().await
            } else {
                self.shared.gather().await
            };
            let Some(taken) = taken else {
                return;
            };
            self.shared.room.notify_waiters();
            let submissions = taken.len();
            let frames = taken.iter().map(|one| one.frames.len()).sum();
            let mut left = gather(taken);
            while !left.is_empty() {
                for part in self.parts(std::mem::take(&mut left)) {
                    let place = |group: &Group| (group.tenant.clone(), group.run.clone());
                    let runs: Vec<_> = part.iter().map(place).collect();
                    let again = self.attempt(part).await;
                    let is_left = |run: &RunId| again.iter().any(|group| group.run == *run);
                    self.shared
                        .end(runs.iter().filter(|(_, run)| !is_left(run)));
                    left.extend(again);
                }
            }
            self.shared.written(submissions, frames, self.took.take());
        }
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
            Ok(Ok(())) => self.took = Some(began.elapsed()),
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
            let (one, rows) = place_all(&mut session, group, index, (chain, sealed), now).await?;
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
                store::append::write(session.connection(), now, &mut writes, keys).await?;
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
