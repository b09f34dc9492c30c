//! From a file to its runs: the file's own, those of the subagents in it, and those of the files of
//! subagents beside it.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Instant;

use super::post::{Failure, RunPost};
use super::threads::{How, Threads};
use super::{Choice, Done, ImportArgs, Report, Screen, Sidechain, Status};
use crate::client::Client;
use crate::import::child::{spawned_by, subagent_run};
use crate::import::request::Link;
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
    threads: Threads,
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
                threads: Threads::new(How::default()),
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
                open.threads.open(self.client, thread, opening).await?;
                if thread == 0 {
                    self.come_from(open, parent).await?;
                }
            }
            Event::Frame { thread, frame } => {
                open.threads.frame(self.client, thread, frame).await?;
            }
            Event::Child { agent, file, call } => self.child(open, &agent, &file, call).await?,
            Event::Notice(notice) | Event::Unfinished(notice) => {
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
        let Some(own) = open.threads.runs(0).first() else {
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
        open.threads
            .link(self.client, spawned_by(label, link))
            .await
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
            let from = open.threads.frame_of(self.client, 0, call.as_deref());
            let Some((run, hash)) = from.await? else {
                return Ok(());
            };
            let call = call.clone();
            let parent = Parent { run, hash, call };
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
        let frame = subagent_run(agent, call.as_deref(), link);
        open.threads.link(self.client, frame).await
    }

    async fn finish(
        &self,
        mut open: Open<'_>,
        reader: &Reader,
        parent: Option<Parent>,
        started: Instant,
    ) -> Result<Report, Failure> {
        open.threads.end(self.client).await?;
        open.threads.flush(self.client).await?;
        let mut seals = Vec::new();
        if self.args.seal {
            seals = open.threads.seal(self.client).await?;
        }
        let runs: Vec<&RunPost> = (0..open.threads.count())
            .flat_map(|thread| open.threads.runs(thread))
            .collect();
        let others = runs.iter().enumerate().skip(1);
        let sidechains = others.map(|(thread, post)| Sidechain {
            run: post.run.clone(),
            frames: post.frames,
            seal: seals.get(thread).cloned(),
        });
        let tally = reader.tally();
        let sum = |of: fn(&RunPost) -> u64| runs.iter().map(|post| of(post)).sum();
        let torn = tally.torn > 0 || tally.left_out_bytes > 0;
        Ok(Report {
            file: open.path.to_owned(),
            format: reader.format().as_str(),
            run: runs
                .first()
                .map(|post| post.run.clone())
                .unwrap_or_default(),
            frames: sum(|post| post.frames),
            payloads: sum(|post| post.payloads),
            payload_bytes: sum(|post| post.payload_bytes),
            moved: sum(|post| post.moved),
            records: tally.records,
            unmapped: tally.unmapped,
            torn: tally.torn,
            left_out_bytes: tally.left_out_bytes,
            already: sum(|post| post.already),
            status: if torn { Status::Torn } else { Status::Complete },
            sidechains: sidechains.collect(),
            parent: parent.map(|parent| parent.run),
            seconds: (started.elapsed().as_secs_f64() * 1_000.0).round() / 1_000.0,
            seal: seals.first().cloned(),
        })
    }
}

/// One name for a file, however it was named.
fn place(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
