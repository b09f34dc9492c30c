//! What is remembered of runs: their chains as this process last wrote them, and what it knows that their frames said. A bounded number, the last used; what is
//! forgotten is read again, and what is out of date is found out by the compare-and-swap.

use lru::LruCache;
use onrecord_core::chain::Chain;
use onrecord_core::facts::Fact;
use onrecord_core::id::RunId;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Runs that are remembered, of about two kilobytes each.
const RUNS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(8_191);
/// How long a run counts as another process's too after that one was seen to write to it.
const SHARED: Duration = Duration::from_secs(1);
/// Facts that are remembered of a run. Those of a run that says more are written again, which changes nothing.
const FACTS: usize = 64;

#[derive(Default)]
struct Head {
    chain: Option<Chain>,
    shared_until: Option<Instant>,
    /// What is written of the run for certain: it is never taken back, whoever else writes to the run.
    said: Vec<Fact>,
}

/// The chains of runs.
pub(super) struct Heads(Mutex<LruCache<RunId, Head>>);

impl Heads {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(RUNS)))
    }

    fn runs(&self) -> MutexGuard<'_, LruCache<RunId, Head>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a run can be written to as it is remembered, with some hope: nobody else writes to it.
    pub(super) fn is_known(&self, run: &RunId) -> bool {
        self.runs().get(run).is_some_and(|head| {
            let shared = head
                .shared_until
                .is_some_and(|until| Instant::now() < until);
            head.chain.is_some() && !shared
        })
    }

    /// Takes the chain of a run out, to be put back extended.
    pub(super) fn take(&self, run: &RunId) -> Option<Chain> {
        self.runs().get_mut(run)?.chain.take()
    }

    /// Remembers a chain as it is in the database.
    pub(super) fn remember(&self, chain: Chain) {
        let run = chain.run().clone();
        let mut runs = self.runs();
        runs.get_or_insert_mut(run, Head::default).chain = Some(chain);
    }

    /// Leaves out what frames of a run said before.
    pub(super) fn unsaid<'a>(
        &self,
        run: &RunId,
        facts: impl Iterator<Item = &'a Fact>,
    ) -> Vec<Fact> {
        let runs = self.runs();
        let said = runs.peek(run).map_or(&[][..], |head| &head.said);
        let mut new: Vec<Fact> = Vec::new();
        for fact in facts {
            if !said.contains(fact) && !new.contains(fact) {
                new.push(fact.clone());
            }
        }
        new
    }

    /// Facts of a run are written that were [unsaid](Self::unsaid).
    pub(super) fn said(&self, run: &RunId, facts: Vec<Fact>) {
        if facts.is_empty() {
            return;
        }
        let mut runs = self.runs();
        let said = &mut runs.get_or_insert_mut(run.clone(), Head::default).said;
        let room = FACTS.saturating_sub(said.len());
        said.extend(facts.into_iter().take(room));
    }

    /// Somebody else writes to the run.
    pub(super) fn shared(&self, run: &RunId) {
        let mut runs = self.runs();
        let head = runs.get_or_insert_mut(run.clone(), Head::default);
        head.shared_until = Some(Instant::now() + SHARED);
    }

    /// Forgets the chain of a run.
    pub(super) fn forget(&self, run: &RunId) {
        if let Some(head) = self.runs().get_mut(run) {
            head.chain = None;
        }
    }
}
