//! What the record is good for: sealed, exported, checked by the verifier alone, and altered.

use super::agent::Work;
use super::screen::{Ink, Screen};
use crate::client::Client;
use anyhow::{Context as _, ensure};
use onrecord_verify::{LineState, Options, Report, Trust, verify};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// The files that the demo leaves.
pub(super) struct Files {
    /// The run's bundle.
    pub bundle: PathBuf,
    /// Its copy with one byte changed.
    pub altered: PathBuf,
    /// Whom to trust.
    pub trust: PathBuf,
}

/// Seals the run with the agent's token; the frames that it has now.
pub(super) async fn seal(screen: &Screen, agent: &Client, work: &Work) -> anyhow::Result<u64> {
    let path = format!("/v1/runs/{}/seal", work.run);
    let (_, seal): (_, Value) = agent.post(&path, &json!({})).await?;
    let size = seal["size"].as_u64().context("the seal has no size")?;
    ensure!(
        size == work.size + 2 && seal["completeness"] == "full" && seal["outcome"] == "completed",
        "the seal is not that of this run: {seal}"
    );
    screen.frames(
        &[size - 2, size - 1],
        "turn_end, session_end",
        Ink::Plain,
        "the server ends the last turn and the run",
    )?;
    screen.heading("Evidence", "sealed once, then checked without the server")?;
    screen.fact(
        "sealed",
        &format!("{size} frames, entry {} of the ledger", seal["index"]),
    )?;
    Ok(size)
}

/// Exports the run and its trust file with the auditor's token.
pub(super) async fn export(
    screen: &Screen,
    auditor: &Client,
    work: &Work,
    folder: &Path,
) -> anyhow::Result<Files> {
    let files = Files {
        bundle: folder.join(format!("run-{}.onrecord.tar", work.run)),
        altered: folder.join("altered.onrecord.tar"),
        trust: folder.join("trust.txt"),
    };
    let path = format!("/v1/runs/{}/export?purpose=demo", work.run);
    let bytes = auditor.download(&path, &files.bundle).await?;
    fs::write(&files.trust, auditor.read_bytes("/v1/trust").await?)?;
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    screen.fact(
        "exported",
        &format!("{}, {} KiB", name(&files.bundle), bytes.div_ceil(1_024)),
    )?;
    screen.fact(
        "trusted",
        &format!("{}: the keys to check under", name(&files.trust)),
    )?;
    Ok(files)
}

/// Checks the bundle as an auditor would: the file, the trust file, and nothing else.
pub(super) fn check(screen: &Screen, files: &Files, size: u64) -> anyhow::Result<()> {
    let report = verdict(&files.bundle, &files.trust)?;
    let payloads = &report.payloads;
    screen.line("")?;
    show(screen, &report, "the bundle, by the verifier alone")?;
    let complete = report.verdict.exit_code == 0
        && report.facts.size == Some(size)
        && payloads.disclosed == payloads.count
        && report.not_checked.is_empty();
    ensure!(
        complete,
        "the bundle should have verified, with nothing left unchecked: {}",
        reason(&report)
    );
    ensure!(
        report.meaning.warnings.is_empty(),
        "the run should mean what it says: {:?}",
        report.meaning.warnings
    );
    for (name, line) in [
        ("integrity", &report.integrity),
        ("signer", &report.signer_trust),
        ("completeness", &report.completeness),
        ("ledger", &report.ledger),
    ] {
        ensure!(line.state == LineState::Ok, "{name}: {}", line.text);
        screen.detail(name, &fold(&line.text))?;
    }
    screen.detail(
        "payloads",
        &format!("all {} opened against their commitments", payloads.count),
    )
}

/// Makes the failing test look as if it had passed, in a copy, and checks that.
pub(super) async fn alter(
    screen: &Screen,
    auditor: &Client,
    work: &Work,
    files: &Files,
) -> anyhow::Result<()> {
    let path = format!("/v1/runs/{}/frames/{}", work.run, work.failed_gate);
    let frame = auditor.read_bytes(&path).await?;
    let mut bundle = fs::read(&files.bundle)?;
    let start = find(&bundle, &frame).context("the bundle does not have the frame's bytes")?;
    const EXIT: &[u8] = br#""exit":1"#;
    let exit = find(&frame, EXIT).context("the frame has no exit code 1")?;
    bundle[start + exit + EXIT.len() - 1] = b'0';
    fs::write(&files.altered, &bundle)?;
    screen.line("")?;
    let report = verdict(&files.altered, &files.trust)?;
    show(
        screen,
        &report,
        &format!("a copy with one byte changed in frame {}", work.failed_gate),
    )?;
    ensure!(
        report.verdict.exit_code == 1 && report.verdict.first_bad_seq == Some(work.failed_gate),
        "the verdict should have named frame {}: {}",
        work.failed_gate,
        reason(&report)
    );
    screen.detail("changed", r#""exit":1 to "exit":0, the gate's failed test"#)?;
    screen.detail(
        "found",
        &format!(
            "{} at frame {}: {}",
            report.verdict.code,
            work.failed_gate,
            fold(&report.verdict.detail)
        ),
    )
}

/// What the verifier says of a file under a trust file.
fn verdict(bundle: &Path, trust: &Path) -> anyhow::Result<Report> {
    let trust = Trust::parse(&fs::read_to_string(trust)?)?;
    let options = Options {
        trust: Some(trust),
        full: true,
        ..Options::default()
    };
    Ok(verify(fs::File::open(bundle)?, &options))
}

fn show(screen: &Screen, report: &Report, of: &str) -> anyhow::Result<()> {
    let verdict = &report.verdict;
    let word = verdict.status.as_str().to_uppercase();
    let ink = if verdict.exit_code == 0 {
        Ink::Green
    } else {
        Ink::Red
    };
    let word = screen.paint(ink, &format!("{word:<12}"));
    screen.line(&format!("  {word}  {of} (exit code {})", verdict.exit_code))
}

/// A verdict in one line.
fn reason(report: &Report) -> String {
    let verdict = &report.verdict;
    format!(
        "{} ({}), {}",
        verdict.status.as_str(),
        verdict.code,
        verdict.detail
    )
}

/// Where `part` begins in `whole`.
fn find(whole: &[u8], part: &[u8]) -> Option<usize> {
    whole.windows(part.len()).position(|window| window == part)
}

/// Key ids are long: their beginnings tell them apart here.
fn fold(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let digest = word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        match word.get(..8) {
            Some(start) if digest => format!("{start}…"),
            _ => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}
