//! Frames that agents signed themselves (check 8; spec: `docs/spec/verification.md`, "Submitted frames").

use crate::check::Check;
use crate::code::{Code, Stage};
use crate::trust::{AgentKey, Trust};
use onrecord_core::digest::Hash;
use onrecord_core::frame::{ActorType, Frame, Kind, Submitted, signature};
use onrecord_core::submitted::{Counts, message};

/// The counts of all agents' keys in a run.
#[derive(Default)]
pub(crate) struct Agents {
    counts: Counts,
    /// Of a turn only: counts rise and may leave gaps.
    sparse: bool,
    unpinned: u64,
    unanchored: u64,
}

impl Agents {
    /// Of a whole run.
    pub fn of_run() -> Self {
        Self::default()
    }

    /// Of one turn, without what came before it.
    pub fn of_turn() -> Self {
        Self {
            sparse: true,
            ..Self::default()
        }
    }

    /// The next frame: unsigned, `n`, key, signature, in that order.
    pub fn read(
        &mut self,
        check: &mut Check<'_>,
        frame: &Frame<'_>,
        bytes: &[u8],
        first: Option<&Hash>,
    ) {
        if let Err(cause) = self.check(check.trust, frame, bytes, first) {
            check.push_at(Stage::Submitted, Code::Submitted, frame.seq, cause);
        }
    }

    fn check(
        &mut self,
        trust: Option<&Trust>,
        frame: &Frame<'_>,
        bytes: &[u8],
        first: Option<&Hash>,
    ) -> Result<(), String> {
        if frame.kind == Kind::Session {
            return Ok(());
        }
        let actor = frame.actor.id.as_str();
        let pinned = frame.actor.kind == ActorType::Agent
            && trust.is_some_and(|trust| trust.is_pinned_agent(actor));
        let Some(submitted) = &frame.submitted else {
            return if pinned {
                Err(format!("unsigned, though a key of {actor:?} is pinned"))
            } else {
                Ok(())
            };
        };
        self.count(submitted)?;
        match trust.and_then(|trust| trust.agent_key(&submitted.keyid)) {
            Some(key) if frame.actor.kind == ActorType::Agent && key.actor == actor => {
                self.verify(key, submitted, bytes, first)
            }
            Some(key) => Err(format!(
                "signed by the key of {:?}, the actor is {actor:?}",
                key.actor
            )),
            None if pinned => Err(format!(
                "signed by key {}, which is not pinned for {actor:?}",
                submitted.keyid
            )),
            None => {
                self.unpinned += 1;
                Ok(())
            }
        }
    }

    /// `n` is 1, 2, 3 … for each key.
    fn count(&mut self, submitted: &Submitted) -> Result<(), String> {
        let counted = self.counts.check(submitted, self.sparse);
        // A hole is told once.
        self.counts.take(submitted);
        counted.map_err(|error| error.to_string())
    }

    fn verify(
        &mut self,
        key: &AgentKey,
        submitted: &Submitted,
        bytes: &[u8],
        first: Option<&Hash>,
    ) -> Result<(), String> {
        if submitted.n == 1 && first.is_none() {
            self.unanchored += 1;
            return Ok(());
        }
        let message = message(bytes, first.filter(|_| submitted.n == 1))
            .map_err(|error| error.to_string())?;
        let sig = signature(&submitted.sig).ok_or("the signature is not 64 bytes")?;
        if key.key.verifies(&message, &sig) {
            Ok(())
        } else {
            Err(format!(
                "the signature is not that of the key of {:?}",
                key.actor
            ))
        }
    }

    /// Says what could not be checked.
    pub fn finish(self, check: &mut Check<'_>) {
        if self.unpinned > 0 {
            check.skip(format!(
                "{} signatures of agents whose keys are not pinned",
                self.unpinned
            ));
        }
        if self.unanchored > 0 {
            check.skip("an agent's first signature (n = 1), since it needs frame 0, which is not part of the turn");
        }
    }
}
