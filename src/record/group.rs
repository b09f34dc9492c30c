//! The frames of one run on their way through batches: their places, and their answers.

use super::RecordError;
use super::head_cache::Heads;
use super::place::{Batch, Placed, Refusal, named_keys};
use super::prepare::Prepared;
use super::queue::{Answer, Outcome, Submission};
use crate::ledger::later;
use crate::store::append::Session;
use crate::store::frames::NewFrame;
use crate::store::payloads::NewPayload;
use crate::store::run_nodes::Node;
use crate::store::{self, StoreError};
use onrecord_core::chain::Chain;
use onrecord_core::digest::Hash;
use onrecord_core::facts::Fact;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// The submissions of one run, in their order, on their way through batches.
pub(super) struct Group {
    pub(super) tenant: TenantId,
    pub(super) run: RunId,
    pub(super) submissions: Vec<Submission>,
    /// Whether the keys are to be looked up before frames are placed.
    pub(super) look_up: bool,
    /// Whether the run is to be locked before its head is taken for true.
    pub(super) lock: bool,
    /// Whether it goes alone: something in its batch is not as the database takes it.
    pub(super) alone: bool,
    pub(super) tries: u32,
    /// Batches that are written or not; it is not known yet.
    pub(super) unknown: Vec<Tried>,
    /// Until when that is to be found out.
    pub(super) deadline: Option<Instant>,
}

/// Frames that have got places in memory.
pub(super) struct Tried {
    /// Which of the groups it is of.
    pub(super) group: usize,
    pub(super) before: (u64, Hash),
    pub(super) sealed: bool,
    pub(super) chain: Chain,
    pub(super) frames: Vec<NewFrame>,
    /// What they complete of the run's tree.
    pub(super) nodes: Vec<Node>,
    /// What they say of the run and none did before, as far as is known.
    pub(super) facts: Vec<Fact>,
    /// Of each submission its results.
    pub(super) results: Vec<Vec<Result<Placed, RecordError>>>,
}

/// Sorts submissions to those of their runs.
pub(super) fn gather(groups: &mut Vec<Group>, taken: Vec<Submission>) {
    let mut places: HashMap<RunId, usize> = groups
        .iter()
        .enumerate()
        .map(|(place, group)| (group.run.clone(), place))
        .collect();
    for submission in taken {
        let place = *places.entry(submission.run.clone()).or_insert_with(|| {
            groups.push(Group::new(&submission));
            groups.len() - 1
        });
        groups[place].submissions.push(submission);
    }
}

impl Group {
    fn new(first: &Submission) -> Self {
        Self {
            tenant: first.tenant.clone(),
            run: first.run.clone(),
            submissions: Vec::new(),
            look_up: false,
            lock: false,
            alone: false,
            tries: 0,
            unknown: Vec::new(),
            deadline: None,
        }
    }

    /// Answers as many submissions as there are results.
    pub(super) fn answer(&mut self, results: Vec<Vec<Result<Placed, RecordError>>>) {
        let submissions = self.submissions.drain(..results.len());
        for (submission, results) in submissions.zip(results) {
            let signed = submission.conditions.signed;
            let outcome = |(frame, placed)| {
                Ok(match placed? {
                    Placed::Here(appended, chain) => Outcome::Durable(appended, chain),
                    Placed::Known(seq) => Outcome::Known(Box::new(frame), signed, seq),
                })
            };
            let outcomes = submission.frames.into_iter().zip(results).map(outcome);
            // Whoever hung up asks again with the key.
            let _ = submission.answer.send(Answer::Each(outcomes.collect()));
        }
    }

    /// The version of the run's keys that the payloads were wrapped with, the newest if there are several; `None`
    /// where there are none.
    pub(super) fn key_version(&self) -> Option<i16> {
        self.submissions
            .iter()
            .filter_map(Submission::key_version)
            .max()
    }

    /// Gives submissions back whose payloads were wrapped with older keys than the run's newest.
    pub(super) fn give_back(&mut self, newest: i16) {
        let stale = |one: &Submission| one.key_version().is_some_and(|version| version < newest);
        if !self.submissions.iter().any(stale) {
            return;
        }
        if !self.unknown.is_empty() {
            // A batch of before may still be written, and results are told by their order: whoever asks again with
            // the key finds out.
            self.refuse(|| RecordError::Unknown);
            return;
        }
        let (back, here) = self.submissions.drain(..).partition(stale);
        self.submissions = here;
        let back: Vec<Submission> = back;
        for submission in back {
            let _ = submission.answer.send(Answer::Stale(submission.frames));
        }
    }

    /// Answers all submissions with an error, which says that nothing was stored: where that is not certain, it is
    /// what they are told.
    pub(super) fn refuse(&mut self, error: impl Fn() -> RecordError) {
        for submission in self.submissions.drain(..) {
            let error = if self.unknown.is_empty() {
                error()
            } else {
                RecordError::Unknown
            };
            let _ = submission.answer.send(Answer::Refused(error));
        }
    }
}

/// The chains of runs under their locks, and whether they are sealed. Groups whose run is not there, or whose frames
/// were written before without anybody knowing, are answered.
pub(super) async fn locked_chains(
    session: &mut Session,
    heads: &Heads,
    groups: &mut [Group],
) -> Result<HashMap<RunId, (Chain, bool)>, StoreError> {
    let runs: Vec<&RunId> = groups.iter().map(|group| &group.run).collect();
    let mut rows: HashMap<_, _> = session.lock(&runs).await?.into_iter().collect();
    let mut chains = HashMap::new();
    for group in groups {
        let row = match rows.remove(&group.run) {
            Some(Ok(row)) if row.tenant == group.tenant => row,
            Some(Err(error)) => {
                let error = Arc::new(error);
                group.refuse(|| RecordError::NotStored(error.clone()));
                continue;
            }
            _ => {
                let run = group.run.clone();
                group.refuse(|| RecordError::NoRun(run.clone()));
                continue;
            }
        };
        // Under the lock it is certain: what is not there now, never comes, since its head is not the run's any more
        // once something else was written.
        let mut written = None;
        for (place, tried) in group.unknown.iter().enumerate() {
            let Some(last) = tried.frames.last() else {
                continue;
            };
            let found = store::frames::bytes(session.connection(), &group.run, last.seq).await?;
            if found.is_some_and(|(_, hash)| hash == last.hash) {
                written = Some(place);
            }
        }
        if let Some(place) = written {
            let tried = group.unknown.swap_remove(place);
            group.unknown.clear();
            group.deadline = None;
            group.answer(tried.results);
        }
        let remembered = heads.take(&group.run);
        if remembered.is_some_and(|chain| chain.head() != row.chain.head()) {
            heads.shared(&group.run);
        }
        group.give_back(row.key_version);
        chains.insert(group.run.clone(), (row.chain, row.sealed.is_some()));
    }
    Ok(chains)
}

/// Gives the frames of a group their places, after a look at the keys if that is needed.
pub(super) async fn place_all<'a>(
    session: &mut Session,
    group: &'a Group,
    index: usize,
    (chain, sealed): (Chain, bool),
    now: Timestamp,
) -> Result<(Tried, Vec<NewPayload<'a>>), StoreError> {
    let before = (chain.size(), chain.head());
    let at = match later(now, chain.last_at()) {
        Ok(at) => at,
        Err(behind_ms) => {
            let behind = |_: &Prepared| Err(RecordError::ClockBehind { behind_ms });
            let results = group
                .submissions
                .iter()
                .map(|one| one.frames.iter().map(behind).collect());
            let tried = Tried {
                group: index,
                before,
                sealed,
                chain,
                frames: Vec::new(),
                nodes: Vec::new(),
                facts: Vec::new(),
                results: results.collect(),
            };
            return Ok((tried, Vec::new()));
        }
    };
    let mut keys = None;
    if group.look_up {
        keys = Some(committed_keys(session, group).await?);
    }
    // Whoever writes to the run in between moves its head, so that what is found here holds for what is written on it.
    let commits = used_commits(session, group).await?;
    loop {
        let looked_up = keys.is_some();
        let mut batch = Batch::new(chain.clone(), sealed, at, keys.take(), commits.clone());
        if let Some(results) = place_each(&mut batch, group, looked_up) {
            let tree = chain.tree();
            let (chain, frames, payloads) = batch.finish();
            let nodes = store::run_nodes::completed(tree, &frames);
            let tried = Tried {
                group: index,
                before,
                sealed,
                chain,
                frames,
                nodes,
                facts: Vec::new(),
                results,
            };
            return Ok((tried, payloads));
        }
        keys = Some(committed_keys(session, group).await?);
    }
}

/// The results of all frames of a group; `None` where keys are to be looked up first.
fn place_each<'a>(
    batch: &mut Batch<'a>,
    group: &'a Group,
    looked_up: bool,
) -> Option<Vec<Vec<Result<Placed, RecordError>>>> {
    let mut results = Vec::with_capacity(group.submissions.len());
    for submission in &group.submissions {
        let mut of_one = Vec::with_capacity(submission.frames.len());
        for frame in &submission.frames {
            of_one.push(match batch.add(frame, &submission.conditions) {
                Ok(placed) => Ok(placed),
                Err(Refusal::Refused(error)) => Err(error),
                Err(Refusal::LookUp) if looked_up => Err(RecordError::CutOff),
                Err(Refusal::LookUp) => return None,
            });
        }
        results.push(of_one);
    }
    Some(results)
}

/// Which of the commitments that agents made are in the run.
async fn used_commits(session: &mut Session, group: &Group) -> Result<HashSet<Hash>, StoreError> {
    let frames = group.submissions.iter().flat_map(|one| &one.frames);
    let commits: Vec<Hash> = frames.flat_map(Prepared::own_commits).copied().collect();
    if commits.is_empty() {
        return Ok(HashSet::new());
    }
    store::payloads::known(session.connection(), &group.run, &commits).await
}

/// The places of the frames that have a key which a group names.
async fn committed_keys(
    session: &mut Session,
    group: &Group,
) -> Result<HashMap<String, u64>, StoreError> {
    let submissions = group.submissions.iter();
    let keys: Vec<&str> = submissions
        .flat_map(|one| named_keys(&one.frames))
        .collect();
    let found = store::frames::with_keys(session.connection(), &group.run, &keys).await?;
    let places = found
        .into_iter()
        .map(|(key, frame)| (key, frame.receipt.seq));
    Ok(places.collect())
}
