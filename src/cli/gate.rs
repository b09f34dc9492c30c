//! `onrecord gate`: a gate's report, or a command and what it printed, recorded as a `gate_result`
//! (documentation: `docs/gates.md`).

mod candidate;
mod command;
mod earlier;
mod evidence;
mod job;
mod post;

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use onrecord_core::id::RunId;
use serde_json::{Value, json};

use crate::client::Client;
use crate::gate::{Ended, Format, GateError, Level, Options, Outcome, Reading, judge, read};
use crate::import::request::LABEL_CHARS;
use crate::import::text::is_label;
use evidence::Member;
use job::Job;
use post::{Failure, Recorded, Recorder};

/// The exit code that says that nothing was recorded, where others are the command's.
const NOT_RECORDED: u8 = 125;
/// The exit code of `--fail`.
const NOT_PASSED: u8 = 2;

/// Arguments of `onrecord gate`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    override_usage = "onrecord gate --run RUN --candidate DIGEST [OPTIONS] FILE...\n       \
                      onrecord gate --run RUN --candidate DIGEST [OPTIONS] -- COMMAND...\n       \
                      onrecord gate --resume FOLDER",
    after_help = "Exit codes of `gate FILE`: 0 recorded, whatever the verdict; 1 not recorded; 2 with \
                  --fail, recorded and not a pass.\nOf `gate -- COMMAND`: the command's own (128 and \
                  the signal's number if one ended it); 125 not recorded; 2 with --fail, if the command \
                  says 0 and the verdict is not a pass."
)]
pub struct GateArgs {
    /// The run
    #[arg(long, value_name = "RUN", required_unless_present = "resume")]
    pub run: Option<RunId>,
    /// What was judged: a git commit (40 or 64 hex digits), `sha256:` and 64 hex digits, or HEAD, which
    /// is refused while the tree has changes that are not committed
    #[arg(long, value_name = "DIGEST", required_unless_present_any = ["candidate_file", "resume"])]
    pub candidate: Option<String>,
    /// What was judged is this file: its SHA-256 is the candidate
    #[arg(long, value_name = "FILE", conflicts_with = "candidate")]
    pub candidate_file: Option<PathBuf>,
    /// Name of the gate, the same each time it is run [default: the file's or the program's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Format of the reports, where it is not to be found out from their content
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// The lowest level of a SARIF finding that is a failure
    #[arg(long, value_name = "LEVEL", default_value = "error")]
    pub sarif_level: Level,
    /// Exit code of the run that wrote the files
    #[arg(long, value_name = "N", conflicts_with_all = ["command", "resume"])]
    pub exit: Option<i32>,
    /// A report that the command writes, read when it has ended; may be given more than once
    #[arg(long, value_name = "FILE", requires = "command")]
    pub report: Vec<PathBuf>,
    /// Who judged [default: the tool that the report names, else onrecord-gate]
    #[arg(long, value_name = "NAME")]
    pub verifier: Option<String>,
    /// Its version
    #[arg(long, value_name = "VERSION", requires = "verifier")]
    pub verifier_version: Option<String>,
    /// How many times this gate was run on this candidate, this one included [default: counted]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub attempt: Option<u64>,
    /// Idempotency key of the frame [default: of the gate's name, the candidate and the attempt]
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Turn that it belongs to: a number, or `none` [default: the open turn]
    #[arg(long, value_name = "TURN", value_parser = parse_turn)]
    pub turn: Option<Turn>,
    /// Actor id of the verifier [default: the token's]
    #[arg(long, value_name = "ID")]
    pub actor: Option<String>,
    /// Exit with 2 if the verdict is not a pass
    #[arg(long)]
    pub fail: bool,
    /// Print the receipt and the verdict as a JSON line
    #[arg(long)]
    pub json: bool,
    /// Record what an earlier call could not, and kept in this folder
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["run", "candidate", "candidate_file", "files", "command", "key", "attempt"])]
    pub resume: Option<PathBuf>,
    /// Reports or logs; `-` is standard input
    #[arg(value_name = "FILE", conflicts_with = "command")]
    pub files: Vec<PathBuf>,
    /// The command to run
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// The turn of a frame: a number, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Turn(Option<u64>);

fn parse_turn(text: &str) -> Result<Turn, String> {
    if text == "none" {
        return Ok(Turn(None));
    }
    let number = text.parse().map_err(|_| "a number, or `none`".to_owned())?;
    Ok(Turn(Some(number)))
}

/// Runs the command.
///
/// # Errors
/// Nothing was recorded. Where a command was run, that is an exit code instead.
pub async fn run(args: GateArgs, client: Client) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.resume {
        return resume(&args, folder, &client).await;
    }
    if args.command.is_empty() {
        ensure!(
            !args.files.is_empty(),
            "give a report to record, or a command to run after `--`"
        );
        return files(&args, &client).await;
    }
    Ok(command(&args, &client).await.unwrap_or_else(|error| {
        eprintln!("error: {}", super::told(&error));
        ExitCode::from(NOT_RECORDED)
    }))
}

/// Records files.
async fn files(args: &GateArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let folder = evidence::folder()?;
    each_once(&args.files)?;
    let mut members = Vec::new();
    let mut whole: Option<Reading> = None;
    for (index, path) in args.files.iter().enumerate() {
        ensure!(
            path.as_os_str() == "-" || path.exists(),
            "{}: there is no such file; a command to run is given after `--`",
            path.display()
        );
        ensure!(
            !path.is_dir(),
            "{} is a folder: name the reports in it",
            path.display()
        );
        let copy = folder.path().join(format!("evidence-{}", index + 1));
        evidence::copy(path, &copy)?;
        let reading = match opened(&copy, options(args)) {
            Ok(reading) => reading,
            Err(GateError::Unknown { is_log: true, .. }) if args.exit.is_some() => Reading::plain(),
            Err(error @ GateError::Unknown { is_log, .. }) => bail!(
                "{}: {error}; name it with --format, {}",
                path.display(),
                // What should have been a report is not taken for a log that says nothing.
                match is_log {
                    true => "or give the exit code with --exit, which then is the verdict",
                    false => "which is `plain` where the exit code alone is to be the verdict",
                }
            ),
            Err(error) => return Err(error).context(path.display().to_string()),
        };
        ensure!(
            !reading.is_plain() || args.exit.is_some(),
            "{}: a plain log says nothing by itself: give the exit code with --exit",
            path.display()
        );
        members.push(Member::new(
            "evidence",
            index,
            copy,
            reading.formats.first().copied(),
        ));
        whole = Some(merged(whole, reading));
    }
    let reading = whole.context("there is no file")?;
    let ended = args.exit.map(|exit| Ended {
        exit: Some(exit),
        signal: None,
    });
    let first = args.files.first().and_then(|path| path.file_stem());
    let name = name(args, first.map(Path::new))?;
    let mut job = Job::new(args, name)?;
    job.members = members;
    let verdict = job.judged(
        args,
        &reading,
        judge(&reading, ended.as_ref()),
        ended.as_ref(),
    );
    let recorded = post::record(client, &mut job).await?;
    tell(args, &job, &recorded, true)?;
    Ok(after(args, verdict))
}

/// Runs a command and records it.
async fn command(args: &GateArgs, client: &Client) -> anyhow::Result<ExitCode> {
    each_once(&args.report)?;
    let program = args.command.first().map(Path::new);
    let name = name(args, program.and_then(Path::file_name).map(Path::new))?;
    let mut job = Job::new(args, name)?;
    // Whoever cannot record it should know before it has run for an hour.
    let mut recorder = Recorder::begin(client, &job).await?;
    let folder = evidence::folder()?;
    let before: Vec<_> = args
        .report
        .iter()
        .map(|path| evidence::Stamp::of(path))
        .collect();
    let [stdout, stderr] = ["stdout", "stderr"].map(|name| folder.path().join(name));
    for (name, path) in [("stdout", &stdout), ("stderr", &stderr)] {
        File::create(path).with_context(|| path.display().to_string())?;
        job.members.push(Member::new(name, 0, path.clone(), None));
    }
    let mut interrupts = command::Interrupts::new()?;
    let grown = command::Grown::default();
    let ran = {
        let running = command::run(&args.command, (&stdout, &stderr), &mut interrupts, &grown);
        let posting = recorder.while_running(&mut job.members, &grown);
        tokio::join!(running, posting).0
    }?;
    job.of_command(&args.command, &ran);
    let mut reading = readings(args, &mut job, folder.path(), &before, (&stdout, &stderr));
    if let Err(changed) = candidate::unchanged(args, job.candidate()) {
        reading.doubt("candidate_changed", format!("{changed:#}"));
    }
    let verdict = job.judged(
        args,
        &reading,
        judge(&reading, Some(&ran.ended)),
        Some(&ran.ended),
    );
    job.begun(&recorder);
    let recorded = tokio::select! {
        recorded = recorder.finish(&mut job) => recorded,
        signal = interrupts.next() => Err(Failure::Interrupted(signal.0)),
    };
    match recorded {
        Ok(recorded) => tell(args, &job, &recorded, false)?,
        Err(error) => return Err(kept(&job, folder, error)),
    }
    Ok(match ran.code() {
        0 => after(args, verdict),
        code => ExitCode::from(code),
    })
}

/// What the command's reports say, or, without any, what it printed.
fn readings(
    args: &GateArgs,
    job: &mut Job,
    folder: &Path,
    before: &[evidence::Stamp],
    (stdout, stderr): (&Path, &Path),
) -> Reading {
    let mut whole: Option<Reading> = None;
    for (index, (path, before)) in args.report.iter().zip(before).enumerate() {
        let copy = folder.join(format!("report-{}", index + 1));
        let reading = if evidence::Stamp::of(path) == *before {
            Reading::unreadable(
                "no_report",
                format!("the command did not write {}", path.display()),
            )
        } else if let Err(error) = evidence::copy_report(path, &copy) {
            Reading::unreadable("no_report", format!("{error:#}"))
        } else {
            let reading = opened(&copy, options(args)).unwrap_or_else(|error| {
                Reading::unreadable("unknown_format", format!("{}: {error}", path.display()))
            });
            job.members.push(Member::new(
                "report",
                index,
                copy,
                reading.formats.first().copied(),
            ));
            reading
        };
        whole = Some(merged(whole, reading));
    }
    if let Some(whole) = whole {
        return whole;
    }
    let mut missed = None;
    for path in [stdout, stderr] {
        match opened(path, options(args)) {
            Ok(reading) if reading.has("no_summary") => missed = Some(reading),
            Ok(reading) => whole = Some(merged(whole, reading)),
            Err(GateError::Unknown { .. }) => {}
            Err(error) => {
                let unreadable = Reading::unreadable("unreadable", error.to_string());
                whole = Some(merged(whole, unreadable));
            }
        }
    }
    whole.or(missed).unwrap_or_else(Reading::plain)
}

/// Records what an earlier call kept.
async fn resume(args: &GateArgs, folder: &Path, client: &Client) -> anyhow::Result<ExitCode> {
    let mut job = Job::read(folder)?;
    let recorded = post::record(client, &mut job).await?;
    tell(args, &job, &recorded, true)?;
    std::fs::remove_dir_all(folder)
        .with_context(|| format!("it is recorded, but {} cannot be removed", folder.display()))?;
    let passed = job.body.get("verdict").and_then(Value::as_str) == Some("pass");
    Ok(ExitCode::from(if args.fail && !passed {
        NOT_PASSED
    } else {
        0
    }))
}

/// The error that says where the evidence is, which is kept.
fn kept(job: &Job, folder: tempfile::TempDir, error: Failure) -> anyhow::Error {
    let folder = folder.keep();
    match job.write(&folder) {
        Ok(()) => anyhow::anyhow!(
            "not recorded: {error}; the evidence is kept, record it with: onrecord gate --resume {}",
            folder.display()
        ),
        Err(unwritten) => anyhow::anyhow!(
            "not recorded: {error}; the output is in {}, but how it ended cannot be kept: {unwritten}",
            folder.display()
        ),
    }
}

/// What is counted twice is more than there is.
fn each_once(paths: &[PathBuf]) -> anyhow::Result<()> {
    let mut seen = HashSet::new();
    for path in paths {
        let own = path.canonicalize().unwrap_or_else(|_| path.clone());
        ensure!(seen.insert(own), "{} is given twice", path.display());
    }
    Ok(())
}

fn options(args: &GateArgs) -> Options {
    Options {
        format: args.format,
        sarif_level: args.sarif_level,
    }
}

fn opened(path: &Path, options: Options) -> Result<Reading, GateError> {
    read(File::open(path)?, options)
}

fn merged(whole: Option<Reading>, reading: Reading) -> Reading {
    match whole {
        Some(mut whole) => {
            whole.merge(reading);
            whole
        }
        None => reading,
    }
}

/// The gate's name: the one given, or that of a file or program.
fn name(args: &GateArgs, fallback: Option<&Path>) -> anyhow::Result<String> {
    let name = match (&args.name, fallback) {
        (Some(name), _) => name.clone(),
        (None, Some(path)) if path.as_os_str() != "-" => path.to_string_lossy().into_owned(),
        (None, _) => bail!("give the gate a name with --name"),
    };
    ensure!(
        is_label(&name, LABEL_CHARS),
        "the gate's name has 1 to {LABEL_CHARS} characters, none of them a control character"
    );
    Ok(name)
}

/// The exit code when it was recorded, and the command, if one was run, ended with 0.
fn after(args: &GateArgs, verdict: Outcome) -> ExitCode {
    let bad = args.fail && verdict != Outcome::Pass;
    ExitCode::from(if bad { NOT_PASSED } else { 0 })
}

/// Prints the receipt and the verdict, to standard output unless that is the command's.
fn tell(args: &GateArgs, job: &Job, recorded: &Recorded, to_stdout: bool) -> anyhow::Result<()> {
    let text = if args.json {
        let mut line = json!({
            "run": recorded.receipt.run, "seq": recorded.receipt.seq,
            "hash": recorded.receipt.hash, "at": recorded.receipt.at,
            "key": recorded.key, "already": recorded.already,
        });
        if let Some(line) = line.as_object_mut() {
            line.extend(job.body.clone());
            line.insert("attempt".into(), recorded.attempt.into());
            line.insert("notices".into(), job.notices.clone().into());
        }
        format!("{line}\n")
    } else {
        job.line(recorded)
    };
    let notices = job.notices.iter().filter(|_| !args.json);
    let notices: String = notices
        .map(|notice| {
            let text = notice["text"].as_str().unwrap_or("");
            format!("{}\n", onrecord_verify::escape(text))
        })
        .collect();
    let (to_err, to_out) = match to_stdout {
        true => (notices, text),
        false => (notices + &text, String::new()),
    };
    // Whoever closed it has seen enough, and the command's exit code is not lost by that.
    let _ = std::io::stderr().lock().write_all(to_err.as_bytes());
    super::print(&to_out)
}
