//! The runs that the threads of one file become: each thread has one, and more where it goes on after
//! its run was sealed.

use std::collections::HashSet;

use onrecord_core::digest::Hash;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::post::{Failure, Keep, RunPost};
use crate::client::Client;
use crate::import::Opening;
use crate::import::held::Held;
use crate::import::request::{FrameRequest, Link};

/// Bytes of a key that the API takes.
const KEY_BYTES: usize = 200;

/// How the runs of a file are found and written.
#[derive(Clone, Debug, Default)]
pub struct How {
    /// How many times other content had the same key, so that this one's runs have keys of their own.
    pub rewritten: u32,
    /// Where a run is sealed, another one is opened for what is new. Otherwise that is a failure.
    pub continues: bool,
    /// What is on record of each thread, and not sent again.
    pub recorded: Vec<Recorded>,
    /// The file's own run and the hash of its first frame, where what was recorded of it is still there.
    pub known: Option<(String, String)>,
    /// The session that the file had, where another one's would be other content.
    pub session_id: Option<String>,
    /// The file is a document: frames that were given are known by their content, not by their count.
    pub by_content: bool,
}

/// What is on record of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Its run, the first one where it goes on in others.
    pub run: String,
    /// The frames that the reader gave and the server acknowledged, without the `session` frame.
    pub frames: u64,
}

/// One thread: its runs in the order in which they took its frames.
struct Thread {
    opening: Opening,
    runs: Vec<RunPost>,
    /// Frames that the reader gave.
    given: u64,
    /// The first so many of them are on record.
    skip: u64,
    /// Pieces of a stream that wait for what follows; they count as given when they go.
    held: Held,
}

/// All threads of a file.
pub struct Threads {
    how: How,
    threads: Vec<Thread>,
    /// Digests of the frames that were given.
    known: HashSet<[u8; 16]>,
}

impl Threads {
    /// No thread yet.
    pub fn new(how: How) -> Self {
        Self {
            how,
            threads: Vec::new(),
            known: HashSet::new(),
        }
    }

    /// Opens the run of the next thread, or finds it. A thread that is there already stays as it is: its
    /// document is read again.
    pub async fn open(
        &mut self,
        client: &Client,
        thread: usize,
        mut opening: Opening,
    ) -> Result<(), Failure> {
        let first = self.session_id().or_else(|| self.how.session_id.clone());
        if thread == 0 && first.is_some() && first.as_deref() != session_id(&opening) {
            return Err(Failure::OtherSession);
        }
        if thread < self.threads.len() {
            return Ok(());
        }
        // A log has a thread for each of its samples, one after the other: what waits in the last one is
        // sent, so that the batches of all of them are never in memory at once.
        if let Some(last) = self
            .threads
            .last_mut()
            .and_then(|last| last.runs.last_mut())
        {
            last.flush(client).await?;
        }
        let rewritten = self.how.rewritten;
        if rewritten > 0 {
            opening.key = longer_key(&opening.key, &format!("/rewritten/{rewritten}"));
            opening
                .session
                .insert("rewritten".to_owned(), rewritten.into());
        }
        let known = self.how.known.clone().filter(|_| thread == 0);
        let post = match (
            RunPost::open(client, &opening, &[], self.keep()).await,
            known,
        ) {
            // What the session is said to be changed, by a file beside it; its content did not.
            (Err(failure), Some((run, hash))) if failure.is_conflict() => {
                RunPost::of(run, hash, self.keep())
            }
            (post, _) => post?,
        };
        let recorded = self.how.recorded.get(thread);
        // Another run is another server's, or another session's: nothing of it can be left out.
        let skip = recorded
            .filter(|recorded| recorded.run == post.run && !self.how.continues)
            .map_or(0, |recorded| recorded.frames);
        self.threads.push(Thread {
            opening,
            runs: vec![post],
            given: 0,
            skip,
            held: Held::default(),
        });
        Ok(())
    }

    fn keep(&self) -> Keep {
        if self.how.continues {
            Keep::All
        } else {
            Keep::LinkedTo
        }
    }

    /// Posts a frame that the reader gave, unless it is on record.
    pub async fn frame(
        &mut self,
        client: &Client,
        thread: usize,
        mut frame: FrameRequest,
    ) -> Result<(), Failure> {
        self.resolve(client, &mut frame).await?;
        if self.how.by_content && !self.known.insert(digest(thread, &frame)?) {
            return Ok(());
        }
        let Some(own) = self.threads.get_mut(thread) else {
            return Ok(());
        };
        let ready = own.held.take(frame);
        self.give(client, thread, ready).await
    }

    /// Posts what waits for more of its stream: nothing follows.
    pub async fn end(&mut self, client: &Client) -> Result<(), Failure> {
        for thread in 0..self.threads.len() {
            let ready = self.threads[thread].held.release();
            self.give(client, thread, ready).await?;
        }
        Ok(())
    }

    /// Posts frames in their order, unless they are on record. All of them wait before the first is sent, so that a
    /// failure loses none.
    async fn give(
        &mut self,
        client: &Client,
        thread: usize,
        frames: Vec<FrameRequest>,
    ) -> Result<(), Failure> {
        let Some(own) = self.threads.get_mut(thread) else {
            return Ok(());
        };
        let mut full = false;
        for frame in frames {
            own.given += 1;
            // The receipt of a frame that others link to is asked for again.
            if own.given <= own.skip && !frame.linked_to {
                continue;
            }
            full |= own.runs.first_mut().is_some_and(|run| run.push(frame));
        }
        if full {
            self.flush_thread(client, thread).await?;
        }
        Ok(())
    }

    /// Posts a frame to the file's own run that the reader did not give: a link to a child.
    pub async fn link(&mut self, client: &Client, frame: FrameRequest) -> Result<(), Failure> {
        let own = self.threads.first_mut();
        let run = own.and_then(|own| own.runs.first_mut());
        if run.is_some_and(|run| run.push(frame)) {
            self.flush_thread(client, 0).await?;
        }
        Ok(())
    }

    /// Turns links to other threads into hashes. A frame of which that failed can be resolved again.
    pub async fn resolve(
        &mut self,
        client: &Client,
        frame: &mut FrameRequest,
    ) -> Result<(), Failure> {
        for link in &mut frame.links {
            let Link::Thread { rel, thread, key } = &*link else {
                continue;
            };
            let (rel, thread, key) = (*rel, *thread, key.clone());
            let Some((run, hash)) = self.frame_of(client, thread, key.as_deref()).await? else {
                continue;
            };
            *link = Link::Frame { rel, run, hash };
        }
        Ok(())
    }

    /// Run and hash of a frame of a thread whose receipt is kept, or of the `session` frame where it is
    /// not, or where no key is given. `None` where there is no such thread.
    pub async fn frame_of(
        &mut self,
        client: &Client,
        thread: usize,
        key: Option<&str>,
    ) -> Result<Option<(String, String)>, Failure> {
        let kept = |threads: &[Thread]| -> Option<(String, String)> {
            let mut runs = threads.get(thread)?.runs.iter();
            runs.find_map(|run| Some((run.run.clone(), run.hash_of(key?)?.clone())))
        };
        if key.is_some() && kept(&self.threads).is_none() {
            self.flush_thread(client, thread).await?;
        }
        let first = self.threads.get(thread).and_then(|own| own.runs.first());
        Ok(kept(&self.threads).or_else(|| first.map(|run| (run.run.clone(), run.opening.clone()))))
    }

    /// Sends what waits. What is not acknowledged goes on waiting.
    pub async fn flush(&mut self, client: &Client) -> Result<(), Failure> {
        for thread in 0..self.threads.len() {
            self.flush_thread(client, thread).await?;
        }
        Ok(())
    }

    /// Each run takes what it has, and the next one what a sealed run did not take.
    async fn flush_thread(&mut self, client: &Client, thread: usize) -> Result<(), Failure> {
        let continues = self.how.continues;
        let keep = self.keep();
        let Some(own) = self.threads.get_mut(thread) else {
            return Ok(());
        };
        let mut level = 0;
        while let Some(run) = own.runs.get_mut(level) {
            if let Err(failure) = run.flush(client).await {
                if !continues || !failure.is_closed() {
                    return Err(failure);
                }
                own.go_on(client, level, keep).await?;
            }
            level += 1;
        }
        Ok(())
    }

    /// Seals the last run of each thread, the file's own last: the others' are part of it. Answers the
    /// seals in the order of the threads.
    pub async fn seal(&self, client: &Client) -> Result<Vec<Value>, Failure> {
        let mut seals = Vec::new();
        for thread in self.threads.iter().rev() {
            for run in thread.runs.iter().rev().take(1) {
                seals.push(run.seal(client).await?);
            }
        }
        seals.reverse();
        Ok(seals)
    }

    /// The runs of a thread; none where there is no such thread.
    pub fn runs(&self, thread: usize) -> &[RunPost] {
        self.threads.get(thread).map_or(&[], |own| &own.runs)
    }

    /// The session's id, as the file's own `session` frame has it.
    pub fn session_id(&self) -> Option<String> {
        session_id(&self.threads.first()?.opening).map(str::to_owned)
    }

    /// How many threads there are.
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// What is on record of each thread now. Only right after [`flush`](Self::flush).
    pub fn recorded(&self) -> Vec<Recorded> {
        let of = |thread: &Thread| Recorded {
            run: thread
                .runs
                .first()
                .map(|run| run.run.clone())
                .unwrap_or_default(),
            frames: thread.given.max(thread.skip),
        };
        self.threads.iter().map(of).collect()
    }
}

impl Thread {
    /// Hands what the sealed run at `level` did not take to the next one, which is opened where it is not
    /// there yet: linked to where the sealed run ended.
    async fn go_on(&mut self, client: &Client, level: usize, keep: Keep) -> Result<(), Failure> {
        if self.runs.len() == level + 1 {
            let Some(sealed) = self.runs.last() else {
                return Ok(());
            };
            let state: RunState = client.read(&format!("/v1/runs/{}", sealed.run)).await?;
            let mut opening = self.opening.clone();
            opening.key = longer_key(&opening.key, &format!("/continued/{}", level + 1));
            let mut session: Map<String, Value> = opening.session;
            session.insert("continues".to_owned(), sealed.run.clone().into());
            opening.session = session;
            let link = Link::Frame {
                rel: "derived_from",
                run: sealed.run.clone(),
                hash: state.head,
            };
            let next = RunPost::open(client, &opening, &[link], keep).await?;
            self.runs.push(next);
        }
        let (before, after) = self.runs.split_at_mut(level + 1);
        let (Some(sealed), Some(next)) = (before.last_mut(), after.first_mut()) else {
            return Ok(());
        };
        for mut frame in sealed.take_waiting() {
            for link in &mut frame.links {
                let Link::Key { rel, key } = &*link else {
                    continue;
                };
                let there = before
                    .iter()
                    .find_map(|run| Some((run.run.clone(), run.hash_of(key)?.clone())));
                if let Some((run, hash)) = there {
                    *link = Link::Frame { rel, run, hash };
                }
            }
            next.push(frame);
        }
        Ok(())
    }
}

/// What the server says about a run.
#[derive(Deserialize)]
struct RunState {
    head: String,
}

fn session_id(opening: &Opening) -> Option<&str> {
    opening.session.get("session_id")?.as_str()
}

/// A key with an ending, within the length that keys may have.
fn longer_key(key: &str, ending: &str) -> String {
    if key.len() + ending.len() <= KEY_BYTES {
        return format!("{key}{ending}");
    }
    let digest = Hash::of(&[key.as_bytes()]).hex();
    let room = KEY_BYTES - ending.len() - 17;
    // Keys are ASCII.
    let kept = key.get(..room).unwrap_or_default();
    format!("{kept}~{}{ending}", &digest[..16])
}

fn digest(thread: usize, frame: &FrameRequest) -> Result<[u8; 16], Failure> {
    let bytes = serde_json::to_vec(frame).map_err(|error| Failure::Unwritable {
        key: frame.key.clone(),
        why: error.to_string(),
    })?;
    let Hash(whole) = Hash::of(&[&thread.to_be_bytes(), &bytes]);
    let mut half = [0; 16];
    half.copy_from_slice(&whole[..16]);
    Ok(half)
}
