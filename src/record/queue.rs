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
    /// 16,384 frames and 256 MiB: half a second's work, and what a server with little memory can hold.
    pub const STANDARD: Self = Self {
        frames: 16_384,
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

/// Of each frame of a submission, or of all.
pub(super) type Answer = Result<Vec<Result<Outcome, RecordError>>, RecordError>;

/// What became of one frame.
pub(super) enum Outcome {
    /// It is durable. The chain as it is after it, where the receipt is to be signed.
    Durable(Appended, Option<Box<Chain>>),
    /// Its key is that of an earlier frame, at this place: whether it is a retry, is to be found out; and whether
    /// the receipt is to be signed.
    Known(Box<Prepared>, bool, u64),
}

impl Submission {
    fn size(&self) -> Size {
        Size {
            frames: self.frames.len(),
            bytes: self.frames.iter().map(Prepared::bytes).sum(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
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
pub(super) struct Queue {
    limits: QueueLimits,
    size: Size,
    submissions: usize,
    tenants: HashMap<TenantId, OfTenant>,
    /// Whose turn it is; each tenant that has something waiting, once.
    turns: VecDeque<TenantId>,
}

#[derive(Default)]
struct OfTenant {
    size: Size,
    runs: HashMap<RunId, OfRun>,
    turns: VecDeque<RunId>,
}

#[derive(Default)]
struct OfRun {
    size: Size,
    waiting: VecDeque<(Submission, Size)>,
}

impl Queue {
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

    /// Whether more than one submission waits.
    pub(super) fn has_company(&self) -> bool {
        self.submissions > 1
    }

    /// Takes a submission, or gives it back where there is no room.
    pub(super) fn push(&mut self, submission: Submission) -> Result<(), Submission> {
        let size = submission.size();
        let tenant = self.tenants.get(&submission.tenant);
        let run = tenant.and_then(|tenant| tenant.runs.get(&submission.run));
        let fits = self.size.fits(size, self.limits, 1)
            && tenant.is_none_or(|tenant| tenant.size.fits(size, self.limits, 2))
            && run.is_none_or(|run| run.size.fits(size, self.limits, 4));
        if !fits {
            return Err(submission);
        }
        self.size.add(size);
        self.submissions += 1;
        let tenant = self.tenants.entry(submission.tenant.clone()).or_default();
        if tenant.turns.is_empty() {
            self.turns.push_back(submission.tenant.clone());
        }
        tenant.size.add(size);
        let run = tenant.runs.entry(submission.run.clone()).or_default();
        if run.waiting.is_empty() {
            tenant.turns.push_back(submission.run.clone());
        }
        run.size.add(size);
        run.waiting.push_back((submission, size));
        Ok(())
    }

    /// The next submissions, up to so many frames and bytes and at least one: in turn one of each tenant, and of
    /// each of its runs.
    pub(super) fn take(&mut self, frames: usize, bytes: usize) -> Vec<Submission> {
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

impl OfTenant {
    fn next(&mut self) -> Option<(Submission, Size)> {
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
