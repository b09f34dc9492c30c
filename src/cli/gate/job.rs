//! What is to be recorded: the verdict's body, and the files beside it. It can be kept on disk and
//! recorded later.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::command::Ran;
use super::evidence::Member;
use super::post::Recorder;
use super::{GateArgs, Turn, candidate};
use crate::gate::{Ended, Outcome, READER, Reading, Verdict};
use crate::import::moved::{self, Parts};
use crate::import::request::LABEL_CHARS;
use crate::import::text::is_label;

/// The name of the file in a folder that is kept.
const FILE: &str = "gate.json";
/// Characters of a key that is given; what names the parts is added to it.
const KEY_CHARS: usize = 150;

/// What is to be recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    /// The run.
    pub run: String,
    /// The body of the `gate_result`, without `attempt`.
    pub body: Map<String, Value>,
    /// The key, where one was given.
    pub key: Option<String>,
    /// The attempt, where it was given, or where parts are recorded under it.
    pub attempt: Option<u64>,
    /// Whether key or attempt were named, so that no other may be taken.
    pub fixed: bool,
    /// What the keys of the parts begin with, where parts are recorded.
    pub base: Option<String>,
    /// The turn, where one was named.
    pub turn: Option<Turn>,
    /// The actor's id, where one was named.
    pub actor: Option<String>,
    /// The evidence.
    pub members: Vec<Member>,
    /// Small payloads beside the evidence: name and value.
    pub notes: Vec<(String, Value)>,
    /// What was noticed: `{code, text}`.
    pub notices: Vec<Value>,
}

impl Job {
    /// Before anything is known of the verdict.
    pub(super) fn new(args: &GateArgs, name: String) -> anyhow::Result<Self> {
        let candidate = match (&args.candidate, &args.candidate_file) {
            (Some(text), _) => candidate::named(text)?,
            (None, Some(path)) => candidate::of_file(path)?,
            (None, None) => anyhow::bail!("give the candidate with --candidate"),
        };
        if let Some(key) = &args.key {
            ensure!(
                (1..=KEY_CHARS).contains(&key.len())
                    && key.bytes().all(|byte| matches!(byte, b' '..=b'~')),
                "the key has 1 to {KEY_CHARS} printable ASCII characters"
            );
        }
        for text in [&args.verifier, &args.verifier_version, &args.actor]
            .into_iter()
            .flatten()
        {
            ensure!(
                is_label(text, LABEL_CHARS),
                "verifier, its version and the actor have 1 to {LABEL_CHARS} characters"
            );
        }
        let mut body = Map::new();
        body.insert("name".into(), name.into());
        body.insert("candidate".into(), candidate.into());
        let mut job = Self {
            run: args
                .run
                .as_ref()
                .context("give the run with --run")?
                .to_string(),
            body,
            key: args.key.clone(),
            attempt: args.attempt,
            fixed: args.key.is_some() || args.attempt.is_some(),
            base: None,
            turn: args.turn,
            actor: args.actor.clone(),
            members: Vec::new(),
            notes: Vec::new(),
            notices: Vec::new(),
        };
        job.move_out();
        Ok(job)
    }

    /// Moves what has a secret in it out of the body and the key, where it would be refused, into a payload.
    pub(super) fn move_out(&mut self) {
        let (mut no_key, mut no_payloads) = (String::new(), Vec::new());
        let mut parts = Parts {
            member: "body",
            body: &mut self.body,
            key: self.key.as_mut().unwrap_or(&mut no_key),
            payloads: &mut no_payloads,
            links: &mut [],
        };
        let taken = parts.take_out();
        let mut notes = self.notes.iter_mut();
        match notes.find(|(name, _)| name == moved::NAME) {
            Some((_, Value::Object(known))) => known.extend(taken),
            _ if taken.is_empty() => {}
            _ => self.notes.push((moved::NAME.to_owned(), taken.into())),
        }
    }

    /// The gate's name.
    pub(super) fn name(&self) -> &str {
        self.body.get("name").and_then(Value::as_str).unwrap_or("")
    }

    /// The candidate.
    pub(super) fn candidate(&self) -> &str {
        self.body
            .get("candidate")
            .and_then(Value::as_str)
            .unwrap_or("")
    }

    fn put(&mut self, member: &str, value: impl Into<Value>) {
        self.body.insert(member.to_owned(), value.into());
    }

    /// What is known of a command beside its verdict.
    pub(super) fn of_command(&mut self, argv: &[OsString], ran: &Ran) {
        let words: Vec<_> = argv.iter().map(|word| word.to_string_lossy()).collect();
        self.notes
            .push(("command".into(), json!({ "argv": words })));
        if let Some(order) = ran.order() {
            self.notes.push(("order".into(), order));
        }
        self.put("duration_ms", ran.duration_ms);
        self.notices.extend(ran.notices());
    }

    /// Puts the verdict in, and answers it.
    pub(super) fn judged(
        &mut self,
        args: &GateArgs,
        reading: &Reading,
        verdict: Verdict,
        ended: Option<&Ended>,
    ) -> Outcome {
        self.put("verdict", verdict.outcome.as_str());
        let tool = reading
            .tool
            .as_ref()
            .filter(|tool| is_label(&tool.name, LABEL_CHARS));
        let (own, version) = READER.split_once('/').unwrap_or((READER, ""));
        let (verifier, version) = match (&args.verifier, tool) {
            (Some(name), _) => (name.as_str(), args.verifier_version.as_deref()),
            (None, Some(tool)) => (tool.name.as_str(), tool.version.as_deref()),
            (None, None) => (own, Some(version)),
        };
        self.put("verifier", verifier);
        if let Some(version) = version.filter(|version| is_label(version, LABEL_CHARS)) {
            self.put("verifier_version", version);
        }
        self.put("reader", READER);
        if let Some(exit) = ended.and_then(|ended| ended.exit) {
            self.put("exit", exit);
        }
        if let Some(signal) = ended.and_then(|ended| ended.signal.clone()) {
            self.put("signal", signal);
        }
        if let Some(format) = reading.format() {
            self.put("format", format);
        }
        if !reading.is_plain() {
            let counts = reading.counts;
            self.put(
                "counts",
                json!({
                    "passed": safe(counts.passed), "failed": safe(counts.failed),
                    "errors": safe(counts.errors), "skipped": safe(counts.skipped),
                    "total": safe(counts.total()),
                }),
            );
        }
        if let Some(ms) = reading.duration_ms
            && !self.body.contains_key("duration_ms")
        {
            self.put("duration_ms", safe(ms));
        }
        if verdict.disagrees {
            self.put("disagrees", true);
        }
        let notices = verdict.notices.iter();
        self.notices
            .extend(notices.map(|notice| json!({"code": notice.code, "text": notice.text})));
        self.note(reading);
        self.move_out();
        verdict.outcome
    }

    /// Codes go into the body; names, messages and sentences into a payload.
    fn note(&mut self, reading: &Reading) {
        let mut codes: Vec<Value> = Vec::new();
        for notice in &self.notices {
            if !codes.contains(&notice["code"]) {
                codes.push(notice["code"].clone());
            }
        }
        if !codes.is_empty() {
            self.put("notices", codes);
        }
        if !reading.failures.is_empty() || !self.notices.is_empty() {
            let bad = reading.counts.bad();
            let listed = reading.failures.len() as u64;
            let more = reading.more_failures.max(bad.saturating_sub(listed));
            let failures = json!({
                "failures": reading.failures, "more": safe(more), "notices": self.notices,
            });
            self.notes.push(("failures".into(), failures));
        }
    }

    /// Remembers under which keys the parts are.
    pub(super) fn begun(&mut self, recorder: &Recorder<'_>) {
        self.attempt = Some(recorder.attempt());
        self.base = Some(recorder.base().to_owned());
    }

    /// Writes it into the folder that has its evidence.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let mut job = self.clone();
        for member in &mut job.members {
            if let Some(name) = member.path.file_name() {
                member.path = PathBuf::from(name);
            }
        }
        let text = serde_json::to_vec_pretty(&job)?;
        Ok(fs::write(folder.join(FILE), text)?)
    }

    /// Reads it from such a folder.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join(FILE);
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        let mut job: Self = serde_json::from_slice(&text)
            .with_context(|| format!("{} is not what `onrecord gate` kept", path.display()))?;
        for member in &mut job.members {
            // A name in the folder, and no way out of it.
            let name = member.path.file_name().context("a file without a name")?;
            member.path = folder.join(name);
        }
        Ok(job)
    }

    /// One line for people.
    pub(super) fn line(&self, recorded: &super::post::Recorded) -> String {
        let body = &self.body;
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or("");
        let mut line = format!(
            "{} {}, attempt {}",
            onrecord_verify::escape(text("name")),
            text("verdict"),
            recorded.attempt
        );
        if let Some(counts) = body.get("counts") {
            line.push_str(&format!(
                ": {} passed, {} failed, {} errors, {} skipped",
                counts["passed"], counts["failed"], counts["errors"], counts["skipped"]
            ));
        }
        if let Some(exit) = body.get("exit") {
            line.push_str(&format!("; exit {exit}"));
        }
        if body.contains_key("disagrees") {
            line.push_str("; the report and the exit code disagree");
        }
        let moved = self.notes.iter().find(|(name, _)| name == moved::NAME);
        if let Some(Value::Object(moved)) = moved.map(|(_, value)| value) {
            let count = moved.len();
            line.push_str(&format!("; {count} with a secret moved into a payload"));
        }
        let already = if recorded.already {
            "already recorded"
        } else {
            "recorded"
        };
        line.push_str(&format!(
            "; {already} as frame {} of {}\n",
            recorded.receipt.seq, recorded.receipt.run
        ));
        line
    }
}

/// A count as every reader of JSON keeps it.
fn safe(count: u64) -> u64 {
    count.min((1 << 53) - 1)
}
