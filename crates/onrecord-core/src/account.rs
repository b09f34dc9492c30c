//! What is there of a run, and who wrote it: the frames' part of a report. A reading above the format, frame by frame.

use crate::frame::{Actor, ActorType, Frame, Kind, Rel};
use crate::timestamp::Timestamp;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use serde::Serialize;

/// Places that are listed; more are counted.
pub const LISTED: usize = 100;

/// Calls of one kind, and those of them that nothing answers: their outcome is unknown, which is no success.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// All of them.
    pub count: u64,
    /// Those without an answer.
    pub unanswered: u64,
    /// Places of the first [`LISTED`] of these.
    pub frames: Vec<u64>,
}

/// Turns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Turns {
    /// That began.
    pub opened: u64,
    /// That have their `turn_end`, so that nothing of them can be left out unseen.
    pub closed: u64,
}

/// Who wrote frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Writer {
    /// Who, with the key where it signed them.
    pub actor: Actor,
    /// How many.
    pub frames: u64,
    /// Time of the first.
    pub first_at: Timestamp,
    /// Time of the last.
    pub last_at: Timestamp,
}

/// The account of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Frames that were read.
    pub frames: u64,
    /// Stretches of places without a frame, as first and last; at most [`LISTED`].
    pub gaps: Vec<(u64, u64)>,
    /// Frames that are missing in all.
    pub missing: u64,
    /// Frames of each kind.
    pub kinds: BTreeMap<Kind, u64>,
    /// Turns.
    pub turns: Turns,
    /// Calls of tools.
    pub tool_calls: Calls,
    /// Calls of models.
    pub model_calls: Calls,
    /// Frames of agents that carry the agent's signature.
    pub signed: u64,
    /// Frames of agents that do not, sessions aside, which nobody signs.
    pub unsigned: u64,
    /// Secrets that were taken out of payloads, as frames list them.
    pub redactions: u64,
    /// Who wrote, in the order in which they began.
    pub writers: Vec<Writer>,
}

/// Reads a run frame by frame, in order.
#[derive(Clone, Debug, Default)]
pub struct Accounting {
    account: Account,
    next: u64,
    tools: BTreeSet<u64>,
    models: BTreeSet<u64>,
}

impl Accounting {
    /// Before the first frame.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next frame; places between the last one and this are gaps.
    pub fn read(&mut self, frame: &Frame<'_>) {
        self.skip_to(frame.seq);
        self.next = frame.seq.saturating_add(1);
        let account = &mut self.account;
        account.frames += 1;
        *account.kinds.entry(frame.kind).or_default() += 1;
        match frame.kind {
            Kind::Turn => account.turns.opened += 1,
            Kind::TurnEnd => account.turns.closed += 1,
            Kind::ToolCall => {
                account.tool_calls.count += 1;
                self.tools.insert(frame.seq);
            }
            Kind::ModelCall => {
                account.model_calls.count += 1;
                self.models.insert(frame.seq);
            }
            _ => {}
        }
        let answers = frame.links().iter().filter(|link| link.rel == Rel::Answers);
        for call in answers.filter_map(|link| link.seq) {
            match frame.kind {
                Kind::ToolResult => drop(self.tools.remove(&call)),
                Kind::ModelResult => drop(self.models.remove(&call)),
                _ => {}
            }
        }
        if frame.actor.kind == ActorType::Agent && frame.kind != Kind::Session {
            match frame.submitted {
                Some(_) => account.signed += 1,
                None => account.unsigned += 1,
            }
        }
        let redactions = frame
            .payloads()
            .iter()
            .filter_map(|one| one.redactions.as_ref());
        account.redactions += redactions.map(|list| list.len() as u64).sum::<u64>();
        match account
            .writers
            .iter_mut()
            .find(|one| one.actor == frame.actor)
        {
            Some(writer) => {
                writer.frames += 1;
                writer.last_at = frame.at;
            }
            None => account.writers.push(Writer {
                actor: frame.actor.clone(),
                frames: 1,
                first_at: frame.at,
                last_at: frame.at,
            }),
        }
    }

    /// All that was found of a run of so many frames.
    pub fn finish(mut self, size: u64) -> Account {
        self.skip_to(size);
        let list = |calls: &mut Calls, unanswered: &BTreeSet<u64>| {
            calls.unanswered = unanswered.len() as u64;
            calls.frames = unanswered.iter().copied().take(LISTED).collect();
        };
        list(&mut self.account.tool_calls, &self.tools);
        list(&mut self.account.model_calls, &self.models);
        self.account
    }

    fn skip_to(&mut self, place: u64) {
        if place > self.next {
            self.account.missing += place - self.next;
            if self.account.gaps.len() < LISTED {
                self.account.gaps.push((self.next, place - 1));
            }
            self.next = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Chain;
    use crate::frame::{Draft, Link};
    use alloc::borrow::ToOwned;
    use alloc::format;

    fn frame(chain: &mut Chain, kind: Kind, answers: Option<u64>) -> Vec<u8> {
        let seq = chain.size();
        let turn = match kind {
            Kind::Turn => Some(1),
            _ => chain.open_turn(),
        };
        let end = chain.turn_end();
        let body = match kind {
            Kind::Session => br#"{"ledger":"a.example/t/x","nonce":"0000000000000000000000000000000000000000000000000000000000000000","run_no":1,"suite":"onrecord-v1"}"#.to_vec(),
            Kind::TurnEnd => crate::json::to_canonical(&end).unwrap(),
            _ => b"{}".to_vec(),
        };
        let draft = Draft {
            kind,
            key: format!("k{seq}"),
            occurred_at: None,
            turn,
            actor: Actor {
                id: "smith".to_owned(),
                keyid: None,
                kind: ActorType::Agent,
            },
            body,
            payloads: Vec::new(),
            links: answers
                .map(|seq| Link {
                    hash: None,
                    rel: Rel::Answers,
                    run: None,
                    seq: Some(seq),
                })
                .into_iter()
                .collect(),
            trace: None,
            submitted: None,
        };
        chain
            .place(&draft, Timestamp::from_micros(1_000 + seq as i64).unwrap())
            .unwrap()
    }

    #[test]
    fn what_is_there_is_counted_and_what_is_not_is_named() {
        let mut chain = Chain::new(
            "t_7f3k9q2m4x8w".parse().unwrap(),
            "01K7Q4Z8V2N5R3T6Y9B1C0D4E8".parse().unwrap(),
        );
        let kinds = [
            (Kind::Session, None),
            (Kind::Turn, None),
            (Kind::ToolCall, None),
            (Kind::ToolResult, Some(2)),
            (Kind::ToolCall, None),
            (Kind::ModelCall, None),
            (Kind::ModelResult, Some(5)),
            (Kind::TurnEnd, None),
        ];
        let frames: Vec<Vec<u8>> = kinds
            .into_iter()
            .map(|(kind, answers)| frame(&mut chain, kind, answers))
            .collect();
        let read = |places: &[usize], size| {
            let mut accounting = Accounting::new();
            for place in places {
                accounting.read(&Frame::parse(&frames[*place]).unwrap());
            }
            accounting.finish(size)
        };
        let whole = read(&[0, 1, 2, 3, 4, 5, 6, 7], 8);
        assert_eq!((whole.frames, whole.missing, whole.gaps.len()), (8, 0, 0));
        assert_eq!(
            whole.turns,
            Turns {
                opened: 1,
                closed: 1
            }
        );
        assert_eq!(
            whole.tool_calls,
            Calls {
                count: 2,
                unanswered: 1,
                frames: alloc::vec![4]
            }
        );
        assert_eq!(
            whole.model_calls,
            Calls {
                count: 1,
                unanswered: 0,
                frames: Vec::new()
            }
        );
        assert_eq!((whole.signed, whole.unsigned), (0, 7));
        assert_eq!(whole.writers.len(), 1);
        assert_eq!(whole.writers[0].frames, 8);
        // Without some in the middle, and without the end.
        let less = read(&[0, 1, 4, 5], 8);
        assert_eq!((less.frames, less.missing), (4, 4));
        assert_eq!(less.gaps, [(2, 3), (6, 7)]);
        assert_eq!(
            less.turns,
            Turns {
                opened: 1,
                closed: 0
            }
        );
        assert_eq!(less.model_calls.unanswered, 1);
    }
}
