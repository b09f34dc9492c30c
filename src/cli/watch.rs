//! `onrecord watch`: follows a folder of transcripts while agents write them.
//!
//! What was not acknowledged by the server waits in the files: reading stops when posting does, so that
//! memory does not grow. Nothing is taken twice, since every frame has a key that comes from its place.

mod children;
mod entry;
mod failed;
mod follower;
pub mod state;
pub mod told;
pub mod watcher;
mod work;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use onrecord_core::digest::Hash;

use crate::client::{Client, ClientError};
use crate::import::Format;
use state::State;
use told::{Told, What};
use watcher::{SCAN, Settings, Ticked, Watcher};

/// Between two looks at the files that are being written to.
const TICK: Duration = Duration::from_millis(250);
/// How long a request may still take when the watcher is told to stop.
const GRACE: Duration = Duration::from_secs(10);
/// The idle time after which a run is sealed, unless told otherwise.
pub const SEAL_AFTER: Duration = Duration::from_secs(30 * 60);

/// Arguments of `onrecord watch`.
#[derive(Clone, Debug, clap::Args)]
pub struct WatchArgs {
    /// Folder of the files; those in folders below it are followed too
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Follow files of this format only [default: every format but plain chats]
    #[arg(long, value_parser = formats(), value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Seal a run when its file was not written to for so long: 90s, 30m, 12h, or `never`
    #[arg(long, value_parser = parse_idle, value_name = "TIME", default_value = "30m")]
    pub seal_after: Idle,
    /// Leave alone what is there at the first start, until it is written to
    #[arg(long)]
    pub from_now: bool,
    /// File that remembers what is on record [default: one for DIR and the server in the user's folder
    /// for state]
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Go through the files once, then end
    #[arg(long)]
    pub once: bool,
    /// Print a JSON line for each event
    #[arg(long)]
    pub json: bool,
    /// Also tell what was appended, and which files are not followed
    #[arg(short, long)]
    pub verbose: bool,
}

/// An idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle(pub Option<Duration>);

/// Reads a format; its help and completions name all of them.
fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::as_str))
        .try_map(|text| Format::named(&text).ok_or("no such format"))
}

fn parse_idle(text: &str) -> Result<Idle, String> {
    if text == "never" {
        return Ok(Idle(None));
    }
    let units = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];
    let seconds = units.into_iter().find_map(|(unit, seconds)| {
        let count: u32 = text.strip_suffix(unit)?.parse().ok()?;
        Some(u64::from(count) * seconds)
    });
    match seconds {
        Some(seconds) => Ok(Idle(Some(Duration::from_secs(seconds)))),
        None => Err(
            "give a whole number and a unit, such as 90s, 30m, 12h or 2d, or `never`".to_owned(),
        ),
    }
}

/// Runs the command until it is told to stop; with `--once` until nothing is left to do.
///
/// Answers 0 when it was told to stop or, with `--once`, everything is on record; 1 when with `--once` a
/// file could not be followed or the server did not answer.
///
/// # Errors
/// The state file cannot be used, or the standard output is closed.
pub async fn run(args: WatchArgs, client: Client) -> anyhow::Result<ExitCode> {
    let stop = super::serve::stop_signal()?;
    let (stopping, mut stopped) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        stop.await;
        let _ = stopping.send(true);
    });
    // The state file has to name the files whatever folder it is started in.
    let folder = std::path::absolute(&args.folder)?;
    // A folder that is not there yet may still come; a file never becomes one.
    anyhow::ensure!(
        !folder.is_file(),
        "{} is a file, and a folder is followed: give the folder that it is in, or import the file with \
         `onrecord import`",
        folder.display()
    );
    let path = match &args.state {
        Some(path) => path.clone(),
        None => default_state(&folder, client.base())
            .context("no --state, and the environment names no home folder")?,
    };
    let state = State::open(&path, client.base())?;
    // A token that opens nothing now will not later: to wait for that would look like work. Everything
    // else may be over soon.
    let asked = client.read::<serde_json::Value>("/v1/runs?limit=1").await;
    if let Err(error @ ClientError::Problem(_)) = asked
        && error.code() == Some("unauthenticated")
    {
        return Err(error.into());
    }
    let settings = Settings {
        folder,
        format: args.format,
        seal_after: args.seal_after.0,
        from_now: args.from_now,
    };
    // Draws on a terminal only.
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
        .with_style(ProgressStyle::with_template("{msg}")?);
    let (json, verbose, shown) = (args.json, args.verbose, bar.clone());
    let tell = move |told: Told| shown.suspend(|| print(&told, json, verbose));
    let mut watcher = Watcher::new(client, settings, state, Box::new(tell));
    let (mut most, mut idle) = (0, 0);
    loop {
        let late = async {
            // The other end is there until it has told.
            let _ = stopped.wait_for(|stopped| *stopped).await;
            tokio::time::sleep(GRACE).await;
        };
        // A batch is finished first. A server that does not answer is not waited for: what it did not
        // acknowledge is sent again after a restart.
        let ticked = tokio::select! {
            biased;
            ticked = watcher.tick(now()) => ticked?,
            () = late => Ticked::default(),
        };
        show(&bar, ticked, &mut most);
        idle = if ticked.busy == 0 { idle + 1 } else { 0 };
        let stop = *stopped.borrow();
        // A document is read when it was the same at two looks; a seal waits for others at most.
        let over = ticked.away || idle > if ticked.waiting > 0 { 12 } else { 1 };
        if stop || (args.once && over) {
            end(&mut watcher, &bar, json, verbose);
            let failed = args.once && !stop && (ticked.away || watcher.failures > 0);
            return Ok(ExitCode::from(u8::from(failed)));
        }
        if ticked.busy == 0 || ticked.away {
            let pause = if ticked.live || args.once { TICK } else { SCAN };
            let _ = tokio::time::timeout(pause, stopped.wait_for(|stopped| *stopped)).await;
        }
    }
}

fn now() -> SystemTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "compared with the times of files on this machine, and never recorded"
    )]
    SystemTime::now()
}

/// Shows how many files are left, while more than a few are.
fn show(bar: &ProgressBar, ticked: Ticked, most: &mut usize) {
    *most = if ticked.busy == 0 {
        0
    } else {
        (*most).max(ticked.busy)
    };
    if *most > 1 {
        let done = *most - ticked.busy;
        bar.set_message(format!("{done} of {most} files", most = *most));
        bar.tick();
    } else {
        bar.set_message("");
    }
}

fn end(watcher: &mut Watcher, bar: &ProgressBar, json: bool, verbose: bool) {
    let (followed, ignored) = watcher.counts();
    let files = if followed == 1 { "file" } else { "files" };
    let what = format!("{followed} {files} followed, {ignored} not");
    bar.finish_and_clear();
    print(&Told::new(What::Stopped, what), json, verbose);
}

/// Prints an event: JSON lines and good news to standard output, the rest to standard error. Whoever
/// closed them has seen enough, and the files are followed all the same.
fn print(told: &Told, json: bool, verbose: bool) {
    if json {
        if let Ok(line) = serde_json::to_string(told) {
            let _ = writeln!(std::io::stdout().lock(), "{line}");
        }
        return;
    }
    if told.is_detail() && !verbose {
        return;
    }
    let line = told.line();
    let _ = if told.is_complaint() {
        writeln!(std::io::stderr().lock(), "{line}")
    } else {
        writeln!(std::io::stdout().lock(), "{line}")
    };
}

/// A file for this folder and server in the user's folder for state.
fn default_state(folder: &Path, server: &str) -> Option<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the default folder is the environment's, as the XDG base directories say"
    )]
    let variable = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state =
        variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")))?;
    let place = folder.canonicalize();
    let place = place.unwrap_or_else(|_| folder.to_owned());
    let name = Hash::of(&[
        place.as_os_str().as_encoded_bytes(),
        b"\0",
        server.as_bytes(),
    ])
    .hex();
    Some(state.join(format!("onrecord/watch-{}.ndjson", &name[..16])))
}
