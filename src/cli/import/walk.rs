//! From a file to its runs: the file's own, those of the subagents in it, and those of the files of
//! subagents beside it.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Instant;

use super::post::{Failure, RunPost};
use super::{Choice, Done, ImportArgs, Report, Screen, Sidechain, Status};
use crate::client::Client;
use crate::import::child::{spawned_by, subagent_run};
use crate::import::request::{FrameRequest, Link};
use crate::import::{Event, Reader};

/// Where a subagent's run comes from.
struct Parent {
    run: String,
    /// The frame that started it: the call's, or the `session` frame.
    hash: String,
    /// The call's key, where it is known.
    call: Option<String>,
}

/// Imports files and what belongs to them, each once.
pub(super) struct Walk<'a> {
    client: &'a Client,
    args: &'a ImportArgs,
    screen: &'a Screen,
    seen: HashSet<PathBuf>,
    /// The runs of subagents' files: id of the run and hash of its first frame.
    children: HashMap<PathBuf, (String, String)>,
    reports: Vec<Done>,
}

/// The state of one file.
struct Open<'f> {
    path: &'f Path,
    posts: Vec<RunPost>,
    notices: usize,
}

impl<'a> Walk<'a> {
    pub fn new(client: &'a Client, args: &'a ImportArgs, screen: &'a Screen) -> Self {
        Self {
            client,
            args,
            screen,
            seen: HashSet::new(),
            children: HashMap::new(),
            reports: Vec::new(),
        }
    }

    /// Whether the file was imported with another.
    pub fn knows(&self, path: &Path) -> bool {
        self.seen.contains(&place(path))
    }

    /// The reports since the last call, in the order in which the files were done.
    pub fn take_reports(&mut self) -> Vec<Done> {
        std::mem::take(&mut self.reports)
    }

    /// Imports a file and the subagents beside it.
    pub async fn import(&mut self, path: &Path) -> Result<(), Failure> {
        self.file(path, None).await
    }

    fn file<'s>(
        &'s mut self,
        path: &'s Path,
        parent: Option<Parent>,
    ) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + 's>> {
        Box::pin(async move {
            let started = Instant::now();
            self.seen.insert(place(path));
            let format = match self.args.format {
                Choice::Auto => None,
                Choice::Named(format) => Some(format),
            };
            let session = self.args.session.as_deref().filter(|_| parent.is_none());
            let mut reader = Reader::open(path, format, session)?;
            let mut open = Open {
                path,
                posts: Vec::new(),
                notices: 0,
            };
            let mut events = Vec::new();
            while reader.step(&mut events)? {
                for event in events.drain(..) {
                    self.event(&mut open, event, parent.as_ref()).await?;
                }
                self.screen.progress(path, reader.progress());
            }
            let report = self.finish(open, &reader, parent, started).await?;
            self.reports.push(Ok(report));
            Ok(())
        })
    }

    async fn event(
        &mut self,
        open: &mut Open<'_>,
        event: Event,
        parent: Option<&Parent>,
    ) -> Result<(), Failure> {
        match event {
            Event::Open { thread, opening } => {
                // A log has a thread for each of its samples, one after the other: what waits in the
                // last one is sent, so that the batches of all of them are never in memory at once.
                if let Some(last) = open.posts.last_mut() {
                    last.flush(self.client).await?;
                }
                let post = RunPost::open(self.client, &opening).await?;
                debug_assert_eq!(thread, open.posts.len());
                open.posts.push(post);
                if thread == 0 {
                    self.come_from(open, parent).await?;
                }
            }
            Event::Frame { thread, frame } => self.frame(open, thread, frame).await?,
            Event::Child { agent, file, call } => self.child(open, &agent, &file, call).await?,
            Event::Notice(notice) => {
                open.notices += 1;
                self.screen.notice(open.path, &notice, open.notices);
            }
        }
        Ok(())
    }

    /// Says in a subagent's run where it comes from, and remembers the run for its parent.
    async fn come_from(
        &mut self,
        open: &mut Open<'_>,
        parent: Option<&Parent>,
    ) -> Result<(), Failure> {
        let Some(own) = open.posts.first() else {
            return Ok(());
        };
        self.children
            .insert(place(open.path), (own.run.clone(), own.opening.clone()));
        let Some(parent) = parent else { return Ok(()) };
        let link = Link::Frame {
            rel: "derived_from",
            run: parent.run.clone(),
            hash: parent.hash.clone(),
        };
        let label = parent.call.as_deref().unwrap_or("session");
        self.frame(open, 0, spawned_by(label, link)).await
    }

    /// Posts a frame, its links to other threads turned into hashes.
    async fn frame(
        &mut self,
        open: &mut Open<'_>,
        thread: usize,
        mut frame: FrameRequest,
    ) -> Result<(), Failure> {
        for link in &mut frame.links {
            let Link::Thread { rel, thread, key } = &*link else {
                continue;
            };
            let Some(other) = open.posts.get_mut(*thread) else {
                continue;
            };
            let hash = match key {
                Some(key) => other.hash_of(self.client, key).await?,
                None => None,
            };
            *link = Link::Frame {
                rel,
                run: other.run.clone(),
                hash: hash.unwrap_or_else(|| other.opening.clone()),
            };
        }
        match open.posts.get_mut(thread) {
            Some(post) => post.push(self.client, frame).await,
            None => Ok(()),
        }
    }

    /// Imports a child's file, and points to its run. A file that fails is reported; its session goes
    /// on without it.
    async fn child(
        &mut self,
        open: &mut Open<'_>,
        agent: &str,
        path: &Path,
        call: Option<String>,
    ) -> Result<(), Failure> {
        if !self.knows(path) {
            let Some(own) = open.posts.first_mut() else {
                return Ok(());
            };
            let hash = match &call {
                Some(call) => own.hash_of(self.client, call).await?,
                None => None,
            };
            let parent = Parent {
                run: own.run.clone(),
                hash: hash.unwrap_or_else(|| own.opening.clone()),
                call: call.clone(),
            };
            if let Err(failure) = self.file(path, Some(parent)).await {
                self.reports
                    .push(Err((path.to_owned(), failure.to_string())));
            }
        }
        let Some((run, hash)) = self.children.get(&place(path)).cloned() else {
            return Ok(());
        };
        let link = Link::Frame {
            rel: "caused",
            run,
            hash,
        };
        self.frame(open, 0, subagent_run(agent, call.as_deref(), link))
            .await
    }

    async fn finish(
        &self,
        mut open: Open<'_>,
        reader: &Reader,
        parent: Option<Parent>,
        started: Instant,
    ) -> Result<Report, Failure> {
        let mut sidechains = Vec::new();
        let mut seal = None;
        // The file's own run is sealed last: its subagents' are part of it.
        for (thread, post) in open.posts.iter_mut().enumerate().rev() {
            post.flush(self.client).await?;
            let sealed = match self.args.seal {
                true => Some(post.seal(self.client).await?),
                false => None,
            };
            if thread == 0 {
                seal = sealed;
            } else {
                sidechains.push(Sidechain {
                    run: post.run.clone(),
                    frames: post.frames,
                    seal: sealed,
                });
            }
        }
        sidechains.reverse();
        let tally = reader.tally();
        let sum = |of: fn(&RunPost) -> u64| open.posts.iter().map(of).sum();
        let torn = tally.torn > 0 || tally.left_out_bytes > 0;
        Ok(Report {
            file: open.path.to_owned(),
            format: reader.format().as_str(),
            run: open
                .posts
                .first()
                .map(|post| post.run.clone())
                .unwrap_or_default(),
            frames: sum(|post| post.frames),
            payloads: sum(|post| post.payloads),
            payload_bytes: sum(|post| post.payload_bytes),
            records: tally.records,
            unmapped: tally.unmapped,
            torn: tally.torn,
            left_out_bytes: tally.left_out_bytes,
            already: sum(|post| post.already),
            status: if torn { Status::Torn } else { Status::Complete },
            sidechains,
            parent: parent.map(|parent| parent.run),
            seconds: (started.elapsed().as_secs_f64() * 1_000.0).round() / 1_000.0,
            seal,
        })
    }
}

/// One name for a file, however it was named.
fn place(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
