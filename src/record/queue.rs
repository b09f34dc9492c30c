//! What waits for the sequencer: bounded in frames and bytes, and fair between tenants and between their runs.
//!
//! Nothing that was taken is dropped. What finds no room is refused before it is taken, or waits outside.

use super::RecordError;
use super::place::{Appended, Conditions};
use super::prepare::Prepared;
use onrecord_core::chain::Chain;
use onrecord_core::id::{RunId, TenantId};
use std::collections::{HashMap, VecDeque};
use tokio::sync::oneshot;

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Frames. One tenant has at most half of them and one run a quarter.
    pub frames: usize,
    /// Bytes of frames and ciphertexts, shared likewise. A request that is larger than its share has its turn when
    /// nothing else of its run waits.
    pub bytes: usize,
}

impl QueueLimits {
    /// 65,536 frames and 256 MiB: some seconds of work, and what a server with little memory can hold.
    pub const STANDARD: Self = Self {
        frames: 65_536,
        bytes: 256 * 1024 * 1024,
    };
}

/// Frames of one request, for one run, in their order.
pub(super) struct Submission {
    pub(super) tenant: TenantId,
    pub(super) run: RunId,
    pub(super) frames: Vec<Prepared>,
    pub(super) conditions: Conditions,
    pub(super) answer: oneshot::Sender<Answer>,
}

impl Submission {
    /// The version of the run's keys that its payloads were wrapped with; `None` where it has none.
    pub(super) fn key_version(&self) -> Option<i16> {
        self.frames.iter().filter_map(Prepared::key_version).max()
    }
}

/// What a submission is answered.
pub(super) enum Answer {
    /// What became of each of its frames.
    Each(Vec<Result<Outcome, RecordError>>),
    /// None of them was written, or it is not known.
    Refused(RecordError),
    /// None of them was written: the run's keys were renewed since their payloads were encrypted. They come back, to be
    /// wrapped with the new ones.
    Stale(Vec<Prepared>),
}

/// What became of one frame.
pub(super) enum Outcome {
    /// It is durable. The chain as it is after it, where the receipt is to be signed.
    Durable(Appended, Option<Box<Chain>>),
    /// Its key is that of an earlier frame, at this place: whether it is a retry, is to be found out; and whether
    /// the receipt is to be signed.
    Known(Box<Prepared>, bool, u64),
}

/// What waits, of one run of one tenant.
pub(super) trait Waits {
    /// Whose it is.
    fn place(&self) -> (&TenantId, &RunId);
    /// What it counts for.
    fn size(&self) -> Size;
}

impl Waits for Submission {
    fn place(&self) -> (&TenantId, &RunId) {
        (&self.tenant, &self.run)
    }

    fn size(&self) -> Size {
        Size {
            frames: self.frames.len(),
            bytes: self.frames.iter().map(Prepared::bytes).sum(),
        }
    }
}

/// Frames, and bytes of frames and ciphertexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Size {
    frames: usize,
    bytes: usize,
}

impl Size {
    fn add(&mut self, other: Self) {
        self.frames += other.frames;
        self.bytes += other.bytes;
    }

    fn take(&mut self, other: Self) {
        self.frames -= other.frames;
        self.bytes -= other.bytes;
    }

    /// Whether so much more fits into a part of what may wait; into an empty one anything does.
    fn fits(self, more: Self, limits: QueueLimits, part: usize) -> bool {
        self.frames == 0
            || (self.frames + more.frames <= limits.frames / part
                && self.bytes + more.bytes <= limits.bytes / part)
    }
}

/// The submissions that wait.
pub(super) struct Queue<T> {
    limits: QueueLimits,
    size: Size,
    submissions: usize,
    tenants: HashMap<TenantId, OfTenant<T>>,
    /// Whose turn it is; each tenant that has something waiting, once.
    turns: VecDeque<TenantId>,
}

struct OfTenant<T> {
    size: Size,
    runs: HashMap<RunId, OfRun<T>>,
    turns: VecDeque<RunId>,
}

struct OfRun<T> {
    size: Size,
    waiting: VecDeque<(T, Size)>,
}

impl<T> Default for OfTenant<T> {
    fn default() -> Self {
        Self {
            size: Size::default(),
            runs: HashMap::new(),
            turns: VecDeque::new(),
        }
    }
}

impl<T> Default for OfRun<T> {
    fn default() -> Self {
        Self {
            size: Size::default(),
            waiting: VecDeque::new(),
        }
    }
}

impl<T: Waits> Queue<T> {
    pub(super) fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            size: Size::default(),
            submissions: 0,
            tenants: HashMap::new(),
            turns: VecDeque::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// How many submissions wait.
    pub(super) fn len(&self) -> usize {
        self.submissions
    }

    /// Takes a submission, or gives it back where there is no room.
    pub(super) fn push(&mut self, submission: T) -> Result<(), T> {
        let size = submission.size();
        let (of_tenant, of_run) = submission.place();
        let tenant = self.tenants.get(of_tenant);
        let run = tenant.and_then(|tenant| tenant.runs.get(of_run));
        let fits = self.size.fits(size, self.limits, 1)
            && tenant.is_none_or(|tenant| tenant.size.fits(size, self.limits, 2))
            && run.is_none_or(|run| run.size.fits(size, self.limits, 4));
        if !fits {
            return Err(submission);
        }
        self.size.add(size);
        self.submissions += 1;
        let tenant = self.tenants.entry(of_tenant.clone()).or_default();
        if tenant.turns.is_empty() {
            self.turns.push_back(of_tenant.clone());
        }
        tenant.size.add(size);
        let run = tenant.runs.entry(of_run.clone()).or_default();
        if run.waiting.is_empty() {
            tenant.turns.push_back(of_run.clone());
        }
        run.size.add(size);
        run.waiting.push_back((submission, size));
        Ok(())
    }

    /// The next submissions, up to so many frames and bytes and at least one: in turn one of each tenant, and of
    /// each of its runs.
    pub(super) fn take(&mut self, frames: usize, bytes: usize) -> Vec<T> {
        let (mut taken, mut size) = (Vec::new(), Size::default());
        while size.frames < frames && size.bytes < bytes {
            let Some(tenant) = self.turns.pop_front() else {
                break;
            };
            let Some(of_tenant) = self.tenants.get_mut(&tenant) else {
                continue;
            };
            if let Some((submission, of_one)) = of_tenant.next() {
                self.size.take(of_one);
                self.submissions -= 1;
                size.add(of_one);
                taken.push(submission);
            }
            if of_tenant.turns.is_empty() {
                self.tenants.remove(&tenant);
            } else {
                self.turns.push_back(tenant);
            }
        }
        taken
    }
}

impl<T> OfTenant<T> {
    fn next(&mut self) -> Option<(T, Size)> {
        let run = self.turns.pop_front()?;
        let of_run = self.runs.get_mut(&run)?;
        let (submission, size) = of_run.waiting.pop_front()?;
        of_run.size.take(size);
        self.size.take(size);
        if of_run.waiting.is_empty() {
            self.runs.remove(&run);
        } else {
            self.turns.push_back(run);
        }
        Some((submission, size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Item {
        tenant: TenantId,
        run: RunId,
        size: Size,
        number: usize,
    }

    impl Waits for Item {
        fn place(&self) -> (&TenantId, &RunId) {
            (&self.tenant, &self.run)
        }

        fn size(&self) -> Size {
            self.size
        }
    }

    fn item(number: usize, (tenant, run): (u8, u8), frames: usize, bytes: usize) -> Item {
        Item {
            tenant: format!("t_{tenant:016}").parse().unwrap(),
            run: RunId::from_bits(u128::from(tenant) << 8 | u128::from(run)),
            size: Size { frames, bytes },
            number,
        }
    }

    const LIMITS: QueueLimits = QueueLimits {
        frames: 40,
        bytes: 4_000,
    };

    /// What the items count for that are of the same tenant, and of the same run, and all of them.
    fn sizes(waiting: &[Item], like: &Item) -> [Size; 3] {
        let mut sizes = [Size::default(); 3];
        for one in waiting {
            sizes[0].add(one.size);
            if one.tenant == like.tenant {
                sizes[1].add(one.size);
            }
            if one.run == like.run {
                sizes[2].add(one.size);
            }
        }
        sizes
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_overtaken_and_everybody_has_a_turn(
            steps in prop::collection::vec(((0_u8..3, 0_u8..3), 1_usize..9, 1_usize..900, 0_usize..12), 1..200)
        ) {
            let mut queue = Queue::new(LIMITS);
            // The model: all that waits, in the order in which it came.
            let mut waiting: Vec<Item> = Vec::new();
            for (number, (place, frames, bytes, take)) in steps.into_iter().enumerate() {
                let item = item(number, place, frames, bytes);
                let held = sizes(&waiting, &item);
                let room = [1, 2, 4].into_iter().zip(held).all(|(part, held)| {
                    held.frames == 0
                        || held.frames + frames <= LIMITS.frames / part
                            && held.bytes + bytes <= LIMITS.bytes / part
                });
                prop_assert_eq!(queue.push(item.clone()).is_ok(), room);
                if room {
                    waiting.push(item);
                }
                if take == 0 {
                    continue;
                }
                let before = waiting.clone();
                let taken = queue.take(take, usize::MAX);
                let frames: usize = taken.iter().map(|one| one.size.frames).sum();
                let last = taken.last().map_or(0, |one| one.size.frames);
                prop_assert!(frames - last < take, "no more than asked for, but for the last");
                for (place, one) in taken.iter().enumerate() {
                    let first = waiting.iter().position(|other| other.run == one.run).unwrap();
                    prop_assert_eq!(&waiting.remove(first), one, "in the order of its run");
                    // Of another tenant that waits, one was taken since the last of this one.
                    let earlier = taken[..place].iter().rposition(|other| other.tenant == one.tenant);
                    if let Some(earlier) = earlier {
                        for other in before.iter().filter(|other| other.tenant != one.tenant) {
                            let had_turn = taken[earlier..place].iter().any(|between| between.tenant == other.tenant);
                            let waits = waiting.contains(other) && !taken[..place].contains(other);
                            prop_assert!(had_turn || !waits, "everybody has a turn");
                        }
                    }
                }
                prop_assert_eq!(queue.is_empty(), waiting.is_empty());
            }
            let rest = queue.take(usize::MAX, usize::MAX);
            prop_assert_eq!(rest.len(), waiting.len());
        }
    }
}
