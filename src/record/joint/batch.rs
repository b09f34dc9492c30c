//! One transaction of what waits: composed in memory under the tenant's lock, then written in a few statements, however
//! much it is.

use super::{Asking, Joins, Reading, Waiting};
use crate::access::AgentKeys;
use crate::ledger::people::Pseudonyms;
use crate::ledger::{self, Unwritten, later};
use crate::record::open::{Opening, state_of};
use crate::record::place::receipt;
use crate::record::seal::{Closed, Seal, Sealing};
use crate::record::settings::{Settings, settings};
use crate::record::{RecordError, Recorder, commit};
use crate::store::append::RunWrite;
use crate::store::frames::NewFrame;
use crate::store::queries::QueryRow;
use crate::store::runs::{NewRun, RunRow, SealedRow};
use crate::store::tenants::LockedTenant;
use crate::store::{self, StoreError, Tx};
use onrecord_core::chain::Chain;
use onrecord_core::digest::Hash;
use onrecord_core::facts::{Fact, FactField};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::{
    Access, FRAMES_SUBJECT, Predicate, Previous, QUERY_SUBJECT, Query, RunOpen, RunSeal,
};
use onrecord_core::timestamp::Timestamp;
use std::collections::{HashMap, HashSet};

/// What each is answered, in the order of its kind.
pub(super) struct Answers {
    pub(super) openings: Vec<Answer<Opening>>,
    pub(super) sealings: Vec<Answer<Sealing>>,
    pub(super) readings: Vec<Answer<Reading>>,
    pub(super) askings: Vec<Answer<Asking>>,
}

type Answer<T> = Result<Option<<T as Joins>::Done>, RecordError>;
/// What becomes of one of them, if it becomes anything.
type Outcome<T> = Result<Option<T>, RecordError>;

/// Jobs that are signed without a pause for others on this thread.
const SIGNED_AT_ONCE: usize = 16;

/// A run that is opened.
struct Opened {
    chain: Chain,
    frames: [NewFrame; 1],
    run_no: u64,
    at: Timestamp,
    index: u64,
}

/// What was given its place, each in the order of its kind.
struct Composed {
    openings: Vec<Outcome<Opened>>,
    sealings: Vec<Outcome<Sealed>>,
    readings: Vec<Outcome<u64>>,
    askings: Vec<Outcome<QueryRow>>,
}

/// A run that is sealed.
struct Sealed {
    closed: Closed,
    /// What it lacks of what a record of use should have.
    missing: Vec<Fact>,
    statement: RunSeal,
    index: u64,
}

/// Does all of it in one transaction.
///
/// # Errors
/// What is nobody's own, or not known to be: nothing is written then, unless it is [`RecordError::Unknown`].
pub(super) async fn write(
    recorder: &Recorder,
    tenant: &TenantId,
    waiting: &Waiting,
) -> Result<Answers, RecordError> {
    let keys = recorder.keys(tenant).await?;
    let mut tx = recorder.store.begin(tenant).await?;
    // First the tenant, then the runs, as everybody who needs both does: no two can wait for each other.
    let mut locked = store::tenants::lock(&mut tx, tenant).await?;
    let found = Found::read(&mut tx, tenant, waiting).await?;
    let mut batch = Batch {
        now: found.now.unwrap_or(locked.now),
        unwritten: Unwritten::begin(&locked, &recorder.vault).await?,
        tenant: &mut locked,
    };
    let Composed {
        openings,
        sealings,
        readings,
        askings,
    } = batch.compose(waiting, found).await;
    let Batch { unwritten, .. } = batch;
    write_runs(&mut tx, (waiting, &openings), &sealings).await?;
    write_queries(&mut tx, tenant, &askings).await?;
    let entries = unwritten.write(&mut tx, &locked).await?;
    let mut seals = Vec::new();
    if let Some(first) = entries.first().map(|entry| entry.index) {
        let note = ledger::checkpoint(&mut tx, &locked, &keys).await?;
        let envelope = |index: u64| {
            let place = usize::try_from(index - first).unwrap_or(usize::MAX);
            let bytes = entries.get(place).map(|entry| &entry.bytes[..]);
            String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
        };
        let size = locked.ledger.size();
        seals = write_seals(&mut tx, &locked, (size, &note), sealings, envelope).await?;
        store::tenants::update_runs(&mut tx, &locked).await?;
    } else {
        seals.extend(sealings.into_iter().map(|one| one.map(|_| None)));
    }
    // A crash before this line leaves nothing of it; after it everything, and whoever asks again finds it.
    commit(tx).await?;
    let figures = &recorder.figures;
    figures.openings.add(done(&openings));
    figures.seals.add(done(&seals));
    figures.readings.add(done(&readings));
    Ok(Answers {
        openings: openings.into_iter().map(opened).collect(),
        sealings: seals,
        readings,
        askings: askings.into_iter().map(asked).collect(),
    })
}

/// How many came of some jobs.
fn done<T>(outcomes: &[Result<Option<T>, RecordError>]) -> u64 {
    let done = outcomes.iter().filter(|one| matches!(one, Ok(Some(_))));
    done.count() as u64
}

fn asked(outcome: Outcome<QueryRow>) -> Answer<Asking> {
    Ok(outcome?.map(|row| row.ledger_index))
}

fn opened(outcome: Outcome<Opened>) -> Answer<Opening> {
    let answer = outcome?.map(|opened| {
        let Opened { chain, frames, .. } = opened;
        let [frame] = frames;
        (receipt(&chain, &frame), chain)
    });
    Ok(answer)
}

/// What the database has of what they are about.
struct Found {
    /// Runs that are to be sealed, locked.
    runs: HashMap<RunId, Result<RunRow, StoreError>>,
    /// What their frames said of them.
    said: HashMap<RunId, Vec<(FactField, String)>>,
    /// The database's clock behind these locks.
    now: Option<Timestamp>,
    /// Who signs, where somebody ends a run as an agent.
    agents: AgentKeys,
    /// What the tenant chose, where runs are to be sealed for being idle.
    settings: Settings,
    /// Keys that opened a run before.
    opened: HashSet<String>,
    /// Version of the retention policy that holds, where runs are to be opened.
    policy: Option<u64>,
    /// How the readers are stated.
    readers: Pseudonyms,
    /// Erasures since the first of the payloads was read: the index, and the run.
    erased: Vec<(u64, RunId)>,
}

impl Found {
    async fn read(tx: &mut Tx, tenant: &TenantId, waiting: &Waiting) -> Result<Self, RecordError> {
        let mut found = Self {
            runs: HashMap::new(),
            said: HashMap::new(),
            now: None,
            agents: AgentKeys::default(),
            settings: Settings::default(),
            opened: HashSet::new(),
            policy: None,
            readers: Pseudonyms::default(),
            erased: Vec::new(),
        };
        let sealings = waiting.sealings.iter().map(|job| &job.work);
        let runs: Vec<&RunId> = sealings.clone().map(|sealing| &sealing.run).collect();
        if !runs.is_empty() {
            let (rows, now) = store::runs::lock_many(tx, &runs).await?;
            (found.runs, found.now) = (rows, Some(now));
            for (run, field, value) in store::facts::asked(tx, &runs).await? {
                found.said.entry(run).or_default().push((field, value));
            }
        }
        if sealings.clone().any(|one| one.idle.is_some()) {
            found.settings = settings(tx, tenant).await?;
        }
        if sealings.clone().any(|one| one.caller.agent().is_some()) {
            found.agents = AgentKeys::of(store::signing_keys::all(tx, tenant).await?)?;
        }
        if !waiting.openings.is_empty() {
            found.policy = store::retention::last_version(tx, tenant).await?;
        }
        let keys = waiting.openings.iter();
        let keys: Vec<&str> = keys.filter_map(|job| job.work.key.as_deref()).collect();
        if !keys.is_empty() {
            let opened = store::runs::opened_with(tx, tenant, &keys).await?;
            found.opened = opened.into_keys().collect();
        }
        let readers = waiting.readings.iter().map(|job| &job.work.access.by);
        let readers = readers.chain(waiting.askings.iter().map(|job| &job.work.by));
        found.readers = Pseudonyms::of(tx, tenant, readers).await?;
        let sizes = waiting.readings.iter();
        if let Some(first) = sizes.filter_map(|job| job.work.ledger_size).min() {
            found.erased = store::ledger::erasures_from(tx, tenant, first).await?;
        }
        Ok(found)
    }
}

struct Batch<'a> {
    tenant: &'a mut LockedTenant,
    unwritten: Unwritten,
    /// The database's clock, behind all locks.
    now: Timestamp,
}

impl Batch<'_> {
    /// Gives everything its place in the ledger, or says why it has none; nothing is written yet.
    async fn compose(&mut self, waiting: &Waiting, mut found: Found) -> Composed {
        let mut count = 0;
        let mut pause = async || {
            count += 1;
            if count % SIGNED_AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
        };
        let (mut openings, mut sealings, mut readings) = (Vec::new(), Vec::new(), Vec::new());
        for job in &waiting.openings {
            pause().await;
            openings.push(self.open(&job.work, found.policy, &mut found.opened));
        }
        let mut sealed = HashSet::new();
        for job in &waiting.sealings {
            pause().await;
            let run = &job.work.run;
            let row = found.runs.get(run).filter(|_| !sealed.contains(run));
            let outcome = match row {
                // Somebody else who waited with it has sealed it.
                None if sealed.contains(run) => Ok(None),
                None => Err(RecordError::NoRun(run.clone())),
                Some(Err(_)) => Err(store::contradiction("runs", "chain", run).into()),
                Some(Ok(row)) => self.seal(&job.work, row, &found),
            };
            if let Ok(Some(_)) = outcome {
                sealed.insert(run);
            }
            sealings.push(outcome);
        }
        for job in &waiting.readings {
            pause().await;
            readings.push(self.read(&job.work, &found));
        }
        let mut askings = Vec::new();
        for job in &waiting.askings {
            pause().await;
            askings.push(self.ask(&job.work, &found));
        }
        Composed {
            openings,
            sealings,
            readings,
            askings,
        }
    }

    /// The time of the next entry.
    fn next_time(&self) -> Result<Timestamp, RecordError> {
        let behind = |behind_ms| RecordError::ClockBehind { behind_ms };
        later(self.now, self.tenant.ledger_at).map_err(behind)
    }

    fn open(
        &mut self,
        opening: &Opening,
        policy: Option<u64>,
        known: &mut HashSet<String>,
    ) -> Outcome<Opened> {
        if opening.key.as_ref().is_some_and(|key| known.contains(key)) {
            return Ok(None);
        }
        let (at, run_no) = (self.next_time()?, self.tenant.next_run_no);
        let (chain, frame) = opening.place(run_no, &self.tenant.origin, (policy, at))?;
        let open = Predicate::RunOpen(RunOpen {
            at,
            run_no,
            state: state_of(&chain),
        });
        let subject = (FRAMES_SUBJECT, chain.file_digest());
        let entry = self.unwritten.push(self.tenant, &open, Some(subject))?;
        let index = entry.index;
        self.tenant.next_run_no += 1;
        known.extend(opening.key.clone());
        Ok(Some(Opened {
            chain,
            frames: [frame],
            run_no,
            at,
            index,
        }))
    }

    fn seal(&mut self, sealing: &Sealing, row: &RunRow, found: &Found) -> Outcome<Sealed> {
        if row.sealed.is_some() || !sealing.applies(row, self.now, &found.settings) {
            return Ok(None);
        }
        let closed = sealing.close(row, self.now, &found.agents)?;
        let statement = closed.statement(row, self.tenant)?;
        let subject = (FRAMES_SUBJECT, closed.chain.file_digest());
        let predicate = Predicate::RunSeal(statement.clone());
        let entry = self
            .unwritten
            .push(self.tenant, &predicate, Some(subject))?;
        let (index, hash) = (entry.index, entry.leaf);
        self.tenant.previous_seal = Some(Previous {
            hash,
            run: sealing.run.clone(),
        });
        let said = found.said.get(&sealing.run).into_iter().flatten();
        let said = said.map(|(field, value)| (*field, value.as_str()));
        Ok(Some(Sealed {
            missing: closed.missing(said),
            closed,
            statement,
            index,
        }))
    }

    fn read(&mut self, reading: &Reading, found: &Found) -> Outcome<u64> {
        let since = reading.ledger_size.unwrap_or(u64::MAX);
        let is_erased = |(index, run): &(u64, RunId)| *index >= since && *run == reading.access.run;
        if found.erased.iter().any(is_erased) {
            return Ok(None);
        }
        let access = Predicate::Access(Access {
            at: self.next_time()?,
            by: found.readers.actor(&reading.access.by)?,
            ..reading.access.clone()
        });
        Ok(Some(self.unwritten.push(self.tenant, &access, None)?.index))
    }

    fn ask(&mut self, asking: &Asking, found: &Found) -> Outcome<QueryRow> {
        let query = Query {
            at: self.next_time()?,
            by: found.readers.actor(&asking.by)?,
            purpose: asking.purpose.clone(),
            resource: asking.resource.to_owned(),
        };
        let (at, by) = (query.at, query.by.clone());
        let subject = (QUERY_SUBJECT, Hash::of(&[&asking.text]));
        let predicate = Predicate::Query(query);
        let entry = self
            .unwritten
            .push(self.tenant, &predicate, Some(subject))?;
        Ok(Some(QueryRow {
            ledger_index: entry.index,
            at,
            resource: asking.resource.to_owned(),
            purpose: asking.purpose.clone(),
            by,
            text: asking.text.clone(),
        }))
    }
}

/// Writes the rows of new runs, and the frames of all.
async fn write_runs(
    tx: &mut Tx,
    (waiting, openings): (&Waiting, &[Outcome<Opened>]),
    sealings: &[Outcome<Sealed>],
) -> Result<(), RecordError> {
    let jobs = waiting.openings.iter().map(|job| &job.work);
    let opened: Vec<(&Opening, &Opened)> = jobs
        .zip(openings)
        .filter_map(|(opening, opened)| Some((opening, opened.as_ref().ok()?.as_ref()?)))
        .collect();
    if !opened.is_empty() {
        let new = opened.iter().map(|(opening, opened)| NewRun {
            chain: &opening.empty,
            opened_at: opened.at,
            run_no: opened.run_no,
            open_key: opening.key.as_deref(),
            agent: opening.agent.as_deref(),
            open_index: opened.index,
        });
        store::runs::insert(tx, &Vec::from_iter(new)).await?;
    }
    let payloads: Vec<Vec<_>> = opened
        .iter()
        .map(|(opening, _)| opening.prepared.rows(0).collect())
        .collect();
    let sealed = sealings
        .iter()
        .filter_map(|sealed| sealed.as_ref().ok()?.as_ref());
    let new = opened.iter().zip(&payloads);
    let new = new.map(|((opening, opened), payloads)| RunWrite {
        before: (0, opening.empty.head()),
        chain: &opened.chain,
        frames: &opened.frames,
        payloads,
        nodes: &[],
        facts: of_run(&opened.frames).collect(),
        key_version: None,
    });
    // One that had its end already gets no frame, but what it lacks is said of it.
    let ended = sealed.map(
        |Sealed {
             closed, missing, ..
         }| RunWrite {
            before: closed.before,
            chain: &closed.chain,
            frames: &closed.frames,
            payloads: &[],
            nodes: &closed.nodes,
            facts: of_run(&closed.frames).chain(missing).collect(),
            key_version: None,
        },
    );
    let ended = ended.filter(|write| !(write.frames.is_empty() && write.facts.is_empty()));
    let mut writes: Vec<RunWrite<'_>> = new.chain(ended).collect();
    Ok(store::append::write_locked(tx, &mut writes).await?)
}

/// Keeps what was asked beside its entries.
async fn write_queries(
    tx: &mut Tx,
    tenant: &TenantId,
    askings: &[Outcome<QueryRow>],
) -> Result<(), RecordError> {
    let rows = askings.iter().filter_map(|row| row.as_ref().ok()?.clone());
    let rows = Vec::from_iter(rows);
    if !rows.is_empty() {
        store::queries::insert(tx, tenant, &rows).await?;
    }
    Ok(())
}

/// What frames say of their run.
fn of_run(frames: &[NewFrame]) -> impl Iterator<Item = &Fact> {
    frames.iter().flat_map(|frame| &frame.facts.of_run)
}

/// Makes the proofs of seals under the checkpoint that has them, and keeps them with their runs.
async fn write_seals(
    tx: &mut Tx,
    tenant: &LockedTenant,
    note: (u64, &str),
    sealings: Vec<Outcome<Sealed>>,
    envelope: impl Fn(u64) -> String,
) -> Result<Vec<Answer<Sealing>>, RecordError> {
    let sealed = sealings
        .iter()
        .filter_map(|sealed| sealed.as_ref().ok()?.as_ref());
    let indexes: Vec<u64> = sealed.clone().map(|sealed| sealed.index).collect();
    let mut rows = Vec::with_capacity(indexes.len());
    if !indexes.is_empty() {
        let proofs = ledger::proofs(tx, &tenant.tenant, &indexes, note).await?;
        rows.extend(sealed.zip(proofs).map(|(sealed, proof)| {
            let row = SealedRow {
                at: sealed.statement.sealed_at,
                index: sealed.index,
                proof,
            };
            (sealed.statement.state.run.clone(), row)
        }));
        store::runs::update_seals(tx, &rows).await?;
    }
    let mut proofs = rows.into_iter().map(|(_, row)| row.proof);
    let answers = sealings.into_iter().map(|sealed| {
        Ok(sealed?.map(|sealed| Seal {
            index: sealed.index,
            envelope: envelope(sealed.index),
            proof: proofs.next().unwrap_or_default(),
            statement: sealed.statement,
            cosigned_by: Vec::new(),
            stamped_at: None,
            created: true,
        }))
    });
    Ok(answers.collect())
}
