//! The command: run with its output passed on as it comes and kept, until it ends.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::Notify;

use crate::gate::Ended;

/// Bytes that are passed on at once.
const CHUNK: usize = 64 * 1024;
/// Changes between the two streams of which the order is kept.
const CHANGES: usize = 20_000;
/// How long nothing may come from what the command left running, once it has ended itself.
const SILENCE: Duration = Duration::from_secs(5);
/// How long it is waited for where something does come.
const LINGER: Duration = Duration::from_secs(60);

/// How far a command is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// It runs.
    Running,
    /// It has ended, and what it started may still print.
    Ended,
    /// Nothing more is waited for.
    Over,
}

/// How the command went.
pub(super) struct Ran {
    /// How it ended.
    pub ended: Ended,
    /// How long it took.
    pub duration_ms: u64,
    status: ExitStatus,
    order: Order,
    /// Something that it started still holds its output, which was not waited for.
    left_open: bool,
}

impl Ran {
    /// The exit code, as shells have it: 128 and the signal's number where one ended it.
    pub(super) fn code(&self) -> u8 {
        let code = self.status.code();
        let code = code.or(self.status.signal().map(|signal| 128 + signal));
        u8::try_from(code.unwrap_or(1)).unwrap_or(1)
    }

    /// In which order the two streams came, where both had something: their pieces, `[stream, bytes]`.
    pub(super) fn order(&self) -> Option<Value> {
        let pieces = &self.order.pieces;
        let pieces: Vec<_> = pieces
            .iter()
            .map(|(name, bytes)| json!([name, bytes]))
            .collect();
        (pieces.len() > 1).then(|| json!({"pieces": pieces, "more": self.order.more}))
    }

    /// What has to be known about its end.
    pub(super) fn notices(&self) -> Vec<Value> {
        let text = "something that the command started still ran, and was not waited for";
        let notice = json!({"code": "output_left_open", "text": text});
        self.left_open.then_some(notice).into_iter().collect()
    }
}

/// Tells that there is more output, or that there will be none.
#[derive(Default)]
pub(super) struct Grown {
    notify: Notify,
    ended: AtomicBool,
}

impl Grown {
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    pub(super) async fn more(&self) {
        self.notify.notified().await;
    }

    fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.notify.notify_one();
    }
}

/// The signals that ask to stop, which are the command's while it runs.
pub(super) struct Interrupts {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hang_up: unix::Signal,
}

impl Interrupts {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: unix::signal(SignalKind::interrupt())?,
            terminate: unix::signal(SignalKind::terminate())?,
            hang_up: unix::signal(SignalKind::hangup())?,
        })
    }

    /// The next one that comes.
    pub(super) async fn next(&mut self) -> (&'static str, Signal) {
        tokio::select! {
            _ = self.interrupt.recv() => ("SIGINT", Signal::INT),
            _ = self.terminate.recv() => ("SIGTERM", Signal::TERM),
            _ = self.hang_up.recv() => ("SIGHUP", Signal::HUP),
        }
    }
}

/// The order in which pieces came.
#[derive(Default)]
struct Order {
    pieces: Vec<(&'static str, u64)>,
    /// Whether there were more than are kept.
    more: bool,
}

impl Order {
    fn add(&mut self, name: &'static str, bytes: u64) {
        let full = self.pieces.len() >= CHANGES;
        match self.pieces.last_mut() {
            Some((last, sum)) if *last == name => *sum += bytes,
            _ if full => self.more = true,
            _ => self.pieces.push((name, bytes)),
        }
    }
}

/// Runs a command to its end. Its output goes to this process's own, and into the two files.
///
/// # Errors
/// It cannot be started, or its output cannot be kept.
pub(super) async fn run(
    argv: &[OsString],
    (stdout, stderr): (&Path, &Path),
    interrupts: &mut Interrupts,
    grown: &Grown,
) -> anyhow::Result<Ran> {
    let done = start(argv, (stdout, stderr), interrupts, grown).await;
    grown.end();
    done
}

async fn start(
    argv: &[OsString],
    (stdout, stderr): (&Path, &Path),
    interrupts: &mut Interrupts,
    grown: &Grown,
) -> anyhow::Result<Ran> {
    let program = argv.first().context("there is no command")?;
    let (to_out, to_err) = (own(io::stdout())?, own(io::stderr())?);
    let began = Instant::now();
    let mut child = Command::new(program)
        .args(&argv[1..])
        // What is judged must not be able to write its own verdict.
        .env_remove("ONRECORD_TOKEN")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{} cannot be run", program.display()))?;
    let pipes = child.stdout.take().zip(child.stderr.take());
    let (out, err) = pipes.context("the command has no output")?;
    let order = Mutex::new(Order::default());
    let (tell, told) = tokio::sync::watch::channel(Stage::Running);
    let pass = |name, file, stage| Pass {
        name,
        file,
        order: &order,
        grown,
        stage,
    };
    let of_out = pass("stdout", stdout, told.clone());
    let of_err = pass("stderr", stderr, told);
    let (waited, out, err) = tokio::join!(
        async {
            let waited = wait(&mut child, interrupts).await;
            let took = began.elapsed();
            tell.send_replace(Stage::Ended);
            tokio::select! {
                // Both streams are at their end.
                () = tell.closed() => {}
                () = tokio::time::sleep(LINGER) => {}
                _ = interrupts.next() => {}
            }
            tell.send_replace(Stage::Over);
            (waited, took)
        },
        of_out.pass(out, to_out),
        of_err.pass(err, to_err),
    );
    let ((status, signal), took) = (
        waited.0.context("the command cannot be waited for")?,
        waited.1,
    );
    let keep = "the command's output cannot be kept";
    let left_open = out.context(keep)? | err.context(keep)?;
    let order = order
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(Ran {
        ended: Ended {
            exit: status.code(),
            signal: signal
                .map(str::to_owned)
                .or(status.signal().map(signal_name)),
        },
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(0),
        status,
        order,
        left_open,
    })
}

/// One of this process's own streams, without a buffer.
fn own(stream: impl AsFd) -> io::Result<tokio::fs::File> {
    let handle = stream.as_fd().try_clone_to_owned()?;
    Ok(tokio::fs::File::from_std(handle.into()))
}

/// Waits for its end, and passes on signals that ask for it.
async fn wait(
    child: &mut Child,
    interrupts: &mut Interrupts,
) -> io::Result<(ExitStatus, Option<&'static str>)> {
    let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let mut interrupted = None;
    loop {
        tokio::select! {
            status = child.wait() => return Ok((status?, interrupted)),
            (name, signal) = interrupts.next() => {
                interrupted = Some(name);
                // A terminal gives Ctrl-C to the command as well.
                if let Some(pid) = pid.filter(|_| signal != Signal::INT || !has_terminal()) {
                    // It may have ended this moment.
                    let _ = kill_process(pid, signal);
                }
            }
        }
    }
}

/// Whether this process is in the foreground of a terminal, and the command with it.
fn has_terminal() -> bool {
    fn is_ours(stream: impl AsFd + io::IsTerminal) -> bool {
        stream.is_terminal() && rustix::termios::tcgetpgrp(stream) == Ok(getpgrp())
    }
    is_ours(io::stdin()) || is_ours(io::stdout()) || is_ours(io::stderr())
}

/// A stream that is passed on and kept.
struct Pass<'a> {
    name: &'static str,
    file: &'a Path,
    order: &'a Mutex<Order>,
    grown: &'a Grown,
    stage: tokio::sync::watch::Receiver<Stage>,
}

impl Pass<'_> {
    /// Passes on until the end; answers whether something still holds the stream. Whoever closed our
    /// own stream has seen enough; what cannot be kept is told when all was passed on.
    async fn pass(
        mut self,
        mut from: impl AsyncRead + Unpin,
        to: impl AsyncWrite + Unpin,
    ) -> io::Result<bool> {
        let mut file = tokio::fs::OpenOptions::new()
            .append(true)
            .open(self.file)
            .await?;
        let (mut to, mut kept) = (Some(to), Ok(()));
        let mut buffer = vec![0; CHUNK];
        loop {
            let count = tokio::select! {
                count = from.read(&mut buffer) => count?,
                () = over(&mut self.stage) => return kept.map(|()| true),
            };
            if count == 0 {
                return kept.map(|()| false);
            }
            let bytes = &buffer[..count];
            if let Some(stream) = &mut to
                && write(stream, bytes).await.is_err()
            {
                to = None;
            }
            if kept.is_ok() {
                kept = write(&mut file, bytes).await;
            }
            if let Ok(mut order) = self.order.lock() {
                order.add(self.name, count as u64);
            }
            self.grown.notify.notify_one();
        }
    }
}

async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

/// Waits until the command has ended, and then for a while, or until nobody wants to wait.
async fn over(stage: &mut tokio::sync::watch::Receiver<Stage>) {
    // Whoever tells it is there until it was told.
    let _ = stage.wait_for(|stage| *stage >= Stage::Ended).await;
    let given_up = stage.wait_for(|stage| *stage == Stage::Over);
    let _ = tokio::time::timeout(SILENCE, given_up).await;
}

/// The names that signals have everywhere.
fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_pieces_is_bounded() {
        let mut order = Order::default();
        for name in ["stdout", "stdout", "stderr", "stdout"] {
            order.add(name, 2);
        }
        assert_eq!(order.pieces, [("stdout", 4), ("stderr", 2), ("stdout", 2)]);
        for _ in 0..CHANGES {
            order.add("stderr", 1);
            order.add("stdout", 1);
        }
        assert!(order.more && order.pieces.len() == CHANGES);
    }
}
