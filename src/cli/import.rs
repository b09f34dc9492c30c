//! `onrecord import`: transcripts of agents, posted over the API like any agent's own frames.

pub(super) mod post;
pub(super) mod threads;
mod walk;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::Value;

use post::Failure;

use super::scan::scan;
use crate::client::Client;
use crate::import::child::is_child_file;
use crate::import::{Format, ImportError, Notice, detect};

/// Lines of complaint about one file before the rest is only counted.
const NOTICES: usize = 20;

/// Arguments of `onrecord import`.
#[derive(Clone, Debug, clap::Args)]
pub struct ImportArgs {
    /// Format of the files, or `auto` to tell it by their content
    #[arg(value_parser = choices(), value_name = "FORMAT")]
    pub format: Choice,
    /// Files to import, and folders of them; the files of subagents come along
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Seal each run when its file is imported
    #[arg(long)]
    pub seal: bool,
    /// Print a JSON line for each file
    #[arg(long)]
    pub json: bool,
    /// Exit with 2 if any line could not be read, or was left out because it is cut off
    #[arg(long)]
    pub strict: bool,
    /// Session id of the one file, instead of the one that it or its name gives
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
}

/// The FORMAT argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Each file says by its content.
    Auto,
    /// All files are of this format.
    Named(Format),
}

/// Reads FORMAT; its help and completions name all of them.
fn choices() -> impl TypedValueParser<Value = Choice> {
    let names = Format::ALL.map(Format::as_str);
    PossibleValuesParser::new(std::iter::once("auto").chain(names)).try_map(|text| {
        if text == "auto" {
            return Ok(Choice::Auto);
        }
        Format::named(&text)
            .map(Choice::Named)
            .ok_or("no such format")
    })
}

/// How a file went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// All of it is in the run.
    Complete,
    /// All of it is in the run, some lines only as raw bytes, or the cut last line was left out.
    Torn,
}

/// What is printed about a file.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The file, as it was named.
    pub file: PathBuf,
    /// The format.
    pub format: &'static str,
    /// Its run.
    pub run: String,
    /// Frames that were posted, the `session` frame among them; the server adds ends of turns.
    pub frames: u64,
    /// Payloads of these frames.
    pub payloads: u64,
    /// Their bytes.
    pub payload_bytes: u64,
    /// Values with secrets that were moved out of bodies into payloads, where the server redacts them.
    pub moved: u64,
    /// Records of the file.
    pub records: u64,
    /// Records without a frame kind of their own.
    pub unmapped: u64,
    /// Lines that are no record.
    pub torn: u64,
    /// Bytes of a cut last line.
    pub left_out_bytes: u64,
    /// Frames that were there from an earlier import.
    pub already: u64,
    /// How it went.
    pub status: Status,
    /// The runs of subagents that stand in the same file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sidechains: Vec<Sidechain>,
    /// The run of the session that this subagent belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Seconds that it took.
    pub seconds: f64,
    /// The server's answer to sealing.
    pub seal: Option<Value>,
}

/// The run of a subagent that stands in its session's file.
#[derive(Clone, Debug, Serialize)]
pub struct Sidechain {
    /// Its run.
    pub run: String,
    /// Frames that were posted.
    pub frames: u64,
    /// The server's answer to sealing.
    pub seal: Option<Value>,
}

/// What is printed about a file that was not imported.
#[derive(Serialize)]
struct Failed<'a> {
    file: &'a Path,
    error: &'a str,
}

/// How the import of a file ended: its report, or the file and why there is none.
pub type Done = Result<Report, (PathBuf, String)>;

/// Runs the command: imports the files and prints a line about each.
///
/// Answers 0 when every file was imported, 1 when one was not, and with `--strict` 2 when all were,
/// but not every line could be read.
///
/// # Errors
/// The arguments do not fit together, or the standard output is closed.
pub async fn run(args: ImportArgs, client: Client) -> anyhow::Result<ExitCode> {
    let one_file = args.files.len() == 1 && !args.files[0].is_dir();
    if args.session.is_some() && !one_file {
        anyhow::bail!("--session names the session of one file: import the files one by one");
    }
    let screen = Screen::new(args.json);
    let (mut failed, mut torn) = (false, false);
    let mut closed = Ok(());
    import(&args, &client, &screen, |done| {
        failed |= done.is_err();
        torn |= done
            .as_ref()
            .is_ok_and(|report| report.status == Status::Torn);
        closed = std::mem::replace(&mut closed, Ok(())).and(screen.done(&done));
    })
    .await;
    closed?;
    Ok(match (failed, torn && args.strict) {
        (true, _) => ExitCode::from(1),
        (false, true) => ExitCode::from(2),
        (false, false) => ExitCode::SUCCESS,
    })
}

/// Imports the files one after the other; one that fails does not stop the others. Tells of each file
/// when it is done, those of subagents before their session's.
pub async fn import(
    args: &ImportArgs,
    client: &Client,
    screen: &Screen,
    mut tell: impl FnMut(Done),
) {
    let mut files = Vec::new();
    for path in &args.files {
        if path.is_dir() {
            let mut found = scan(path);
            found.files.sort_by(|(one, _), (other, _)| one.cmp(other));
            files.extend(found.files.into_iter().map(|(file, _)| (file, true)));
            for (place, error) in found.faults {
                tell(Err((place, error.to_string())));
            }
        } else {
            files.push((path.clone(), false));
        }
    }
    // A child's run points to its parent's, which has to be there first.
    files.sort_by_cached_key(|(file, _)| is_child_file(file));
    let mut walk = walk::Walk::new(client, args, screen);
    let mut foreign = 0;
    for (file, searched) in &files {
        if walk.knows(file) {
            continue;
        }
        if *searched && args.format == Choice::Auto && is_foreign(file) {
            foreign += 1;
            continue;
        }
        let outcome = walk.import(file).await;
        walk.take_reports().into_iter().for_each(&mut tell);
        match outcome {
            Ok(()) => {}
            Err(Failure::File(ImportError::NotThisFormat { .. })) if *searched => foreign += 1,
            Err(error) => {
                let error = error.to_string();
                // The file is named before it, whatever the error is.
                let name = format!("{}: ", file.display());
                let why = error.strip_prefix(&name).unwrap_or(&error).to_owned();
                tell(Err((file.clone(), why)));
            }
        }
    }
    screen.foreign(foreign);
    if files.is_empty() && args.files.iter().all(|path| path.is_dir()) {
        screen.empty();
    }
}

/// Whether a file that nobody named is of no format, or of one that any text might be.
fn is_foreign(file: &Path) -> bool {
    matches!(
        detect(file),
        Ok(Format::Chat) | Err(ImportError::UnknownFormat { .. })
    )
}

/// What people see: progress while they look, complaints, and a line for each file.
pub struct Screen {
    bar: ProgressBar,
    json: bool,
}

impl Screen {
    /// `json` prints a JSON line for each file, and otherwise a line for people.
    pub fn new(json: bool) -> Self {
        // Draws on a terminal only.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self { bar, json }
    }

    /// Shows how far the reading of a file is.
    pub(crate) fn progress(&self, file: &Path, (done, total): (u64, u64)) {
        self.bar.set_message(
            file.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        );
        self.bar.set_length(total);
        self.bar.set_position(done);
    }

    fn done(&self, done: &Done) -> std::io::Result<()> {
        self.bar.set_length(0);
        self.bar.set_position(0);
        match done {
            Ok(report) => self.bar.suspend(|| self.report(report)),
            Err((file, error)) => self.failure(file, error),
        }
    }

    /// Tells about a line that could not be read; `count` is the how-many-th of its file it is.
    pub(crate) fn notice(&self, file: &Path, notice: &Notice, count: usize) {
        let file = file.display();
        self.bar.suspend(|| match count {
            1..=NOTICES if notice.line == 0 => eprintln!("{file}: {}", notice.what),
            1..=NOTICES => eprintln!(
                "{file}:{}: byte {}: {}",
                notice.line, notice.offset, notice.what
            ),
            count if count == NOTICES + 1 => {
                eprintln!("{file}: more such lines; they are counted only")
            }
            _ => {}
        });
    }

    /// Tells how many files of the folders were left alone.
    fn foreign(&self, files: usize) {
        if files > 0 {
            let what =
                "in the folders left alone: no transcripts of a known format, or not begun yet";
            let noun = if files == 1 { "file" } else { "files" };
            self.bar.suspend(|| eprintln!("{files} {noun} {what}"));
        }
    }

    /// Tells that there was nothing to import.
    fn empty(&self) {
        self.bar.suspend(|| {
            eprintln!("nothing to import: no files in the folders (links are not followed)")
        });
    }

    fn report(&self, report: &Report) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.json {
            return writeln!(out, "{}", serde_json::to_string(report)?);
        }
        write!(
            out,
            "{}: run {}, {} frames",
            report.file.display(),
            report.run,
            report.frames,
        )?;
        for (count, what) in [
            (report.already, "there already"),
            (report.unmapped, "records kept without a frame kind"),
            (report.moved, "values with secrets moved into payloads"),
            (report.torn, "torn lines kept as raw bytes"),
            (report.sidechains.len() as u64, "subagents' runs"),
        ] {
            if count > 0 {
                write!(out, ", {count} {what}")?;
            }
        }
        if report.left_out_bytes > 0 {
            write!(out, ", what is still being written left out")?;
        }
        writeln!(
            out,
            "{}",
            if report.seal.is_some() {
                ", sealed"
            } else {
                ""
            }
        )
    }

    fn failure(&self, file: &Path, error: &str) -> std::io::Result<()> {
        self.bar
            .suspend(|| eprintln!("{}: not imported: {error}", file.display()));
        if self.json {
            let line = serde_json::to_string(&Failed { file, error })?;
            writeln!(std::io::stdout().lock(), "{line}")?;
        }
        Ok(())
    }
}
