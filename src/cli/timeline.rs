//! Frames as lines: what `show` and `tail` print.
//!
//! The time of a line is the run's own clock, `occurred_at` where the writer gave it. When the store took
//! the frame is told where that is another time, as it is in imported runs; what a transcript gives no time
//! for has none.

mod times;

use super::terminal::{BAD, BOLD, DIM, DOUBTFUL, GOOD, Line, NAME, Screen, shortened};
use anstyle::Style;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use times::Times;

/// Members of bodies that say what a frame is about, the first of which is shown without its name.
const LEADS: [&str; 8] = [
    "name",
    "model",
    "action",
    "observation",
    "path",
    "selected",
    "operation",
    "agent",
];
/// Members that are the store's, or that a line shows in another way.
const HIDDEN: [&str; 7] = [
    "root",
    "nonce",
    "suite",
    "ledger",
    "retention",
    "label",
    "run_no",
];
/// How much of a digest is shown on a terminal, in characters.
const DIGEST_CHARS: usize = 13;
/// How long a list may be that is shown, in characters.
const LIST_CHARS: usize = 40;
/// Where the details of a frame begin with `--full`.
const DETAILS: usize = 10;

/// The lines of a run's frames, given in their order.
pub(super) struct Timeline {
    screen: Screen,
    full: bool,
    /// Who speaks unless a line says otherwise.
    speaker: String,
    /// Whether the frames are those of a transcript: then the store's clock is not the run's.
    imported: bool,
    /// Calls of which it is known that nothing answers them.
    unknown: HashSet<u64>,
    /// Calls that nothing has answered so far.
    calls: HashMap<u64, Call>,
    last: Option<u64>,
    turn: Option<u64>,
    day: String,
    recorded: String,
}

struct Call {
    name: String,
    times: Times,
}

impl Timeline {
    /// Lines for a run whose frame 0 is `session`.
    pub(super) fn new(screen: Screen, full: bool, session: &Value) -> Self {
        Self {
            screen,
            full,
            speaker: actor(session),
            imported: session["body"]["imported"].is_object(),
            unknown: HashSet::new(),
            calls: HashMap::new(),
            last: None,
            turn: None,
            day: String::new(),
            recorded: String::new(),
        }
    }

    /// Marks calls of which it is known that nothing answers them.
    pub(super) fn unknown(mut self, frames: impl IntoIterator<Item = u64>) -> Self {
        self.unknown.extend(frames);
        self
    }

    /// The lines of the next frame.
    pub(super) fn lines(&mut self, frame: &Value) -> String {
        let mut out = String::new();
        let times = Times::of(frame);
        let (kind, turn) = (word(frame, "kind"), frame["turn"].as_u64());
        if let Some(number) = turn.filter(|_| turn != self.turn) {
            let label = frame["body"]["label"].as_str().unwrap_or("");
            let mut line = Line::default();
            line.add(BOLD, &format!("turn {number}  {label}"));
            if self.last.is_some() {
                out.push('\n');
            }
            out.push_str(&line.render(self.screen));
            self.turn = turn;
        }
        let time = times.shown(self.imported).map(|time| time.to_string());
        let (day, clock) = match time.as_deref().and_then(|text| text.split_once('T')) {
            Some((day, clock)) => (day.to_owned(), clock),
            None => (self.day.clone(), "            "),
        };
        if day != self.day {
            let mut line = Line::default();
            line.add(DIM, &format!("{:>6}  {day}", ""));
            out.push_str(&line.render(self.screen));
            self.day = day;
        }
        // Milliseconds where there is room for them.
        let (digits, column) = if self.screen.is_narrow() {
            (8, 34)
        } else {
            (12, 38)
        };
        let seq = frame["seq"].as_u64().unwrap_or(0);
        let clock = clock.get(..digits).unwrap_or(clock);
        let mut line = Line::default();
        line.add(DIM, &format!("{seq:>6}  {clock}  "));
        if turn.is_some() && !matches!(kind, "turn" | "turn_end") {
            line.text("  ");
        }
        self.facts(&mut line, frame, column, &times);
        out.push_str(&line.render(self.screen));
        if self.full {
            self.details(&mut out, frame);
        }
        self.last = Some(seq);
        out
    }

    /// What a line says after its time: kind, facts, payloads, links, and who speaks.
    fn facts(&mut self, line: &mut Line, frame: &Value, column: usize, times: &Times) {
        let (kind, body) = (word(frame, "kind"), &frame["body"]);
        let seq = frame["seq"].as_u64().unwrap_or(0);
        let answered = answered(frame);
        let call = answered.and_then(|to| self.calls.remove(&to));
        let style = match kind {
            "gate_result" | "outcome" => BOLD,
            "turn_end" | "session_end" => DIM,
            _ => Style::new(),
        };
        if answered.is_some() && matches!(kind, "tool_result" | "model_result") {
            line.add(DIM, "└ ");
        }
        line.add(style, kind).column(column);
        let lead = LEADS.into_iter().find(|name| body[*name].is_string());
        let mut facts = Facts(line);
        if self.unknown.contains(&seq) {
            facts.add(DOUBTFUL, "OUTCOME UNKNOWN");
        }
        let told = facts.verdict(kind, body);
        if let Some(call) = &call {
            if let Some(spent) = call.times.until(times) {
                facts.add(DIM, &spent);
            }
            // Right below its call it is clear whose result it is.
            if answered != self.last {
                let to = answered.unwrap_or(0);
                facts.add(DIM, &format!("of {to} {}", call.name));
            }
        }
        let about = lead.map(|lead| word(body, lead));
        let repeated = call
            .as_ref()
            .is_some_and(|call| Some(call.name.as_str()) == about);
        if let Some(about) = about.filter(|_| !repeated) {
            facts.add(NAME, about);
        }
        let speaker = actor(frame);
        let is_own = matches!(word(&frame["actor"], "type"), "tool" | "system");
        if speaker != self.speaker && !is_own {
            facts.add(NAME, &format!("by {speaker}"));
        }
        // The end of a line is cut to the terminal, so what people look for comes first.
        facts.evidence(frame, call.is_some());
        let is_terminal = self.screen.width.is_some();
        // That all of it is a transcript's was said above the run.
        let source = self.imported && body["source"] == "transcript";
        facts.members(body, is_terminal, |name| {
            Some(name) == lead || told.contains(&name) || (source && name == "source")
        });
        let recorded = times.recorded();
        if let Some(at) = recorded.filter(|at| *at != self.recorded) {
            facts.add(DIM, &format!("recorded {at}"));
            self.recorded = at;
        }
        if matches!(kind, "tool_call" | "model_call") {
            let name = about.unwrap_or(kind).to_owned();
            let times = times.clone();
            self.calls.insert(seq, Call { name, times });
        }
    }

    /// All of a frame that its line does not say, or says in short.
    fn details(&self, out: &mut String, frame: &Value) {
        let mut say = |text: &str| {
            let mut line = Line::default();
            line.add(DIM, &format!("{:DETAILS$}{text}", ""));
            // Whole, whatever the width.
            out.push_str(&line.render(Screen {
                width: None,
                ..self.screen
            }));
        };
        let mut head = format!(
            "by {}, key {}, recorded {}",
            actor(frame),
            word(frame, "key"),
            word(frame, "at")
        );
        if let Some(at) = frame["occurred_at"].as_str() {
            let _ = write!(head, ", occurred {at}");
        }
        say(&head);
        if frame["body"]
            .as_object()
            .is_some_and(|body| !body.is_empty())
        {
            let body = serde_json::to_string_pretty(&frame["body"]).unwrap_or_default();
            body.lines().for_each(&mut say);
        }
        for payload in list(frame, "payloads") {
            say(&format!(
                "payload {}: {}, {} bytes, tier {}, {}",
                word(payload, "name"),
                word(payload, "media"),
                payload["size"],
                payload["tier"],
                word(payload, "commit")
            ));
        }
        for link in list(frame, "links") {
            let run = link["run"].as_str().map(|run| format!(" of run {run}"));
            let to = link["seq"].as_u64().map(|seq| format!(" frame {seq}"));
            let hash = link["hash"].as_str().map(|hash| format!(" {hash}"));
            let parts: String = [to, hash, run].into_iter().flatten().collect();
            say(&format!("link {}:{parts}", word(link, "rel")));
        }
    }
}

/// What a line says, a space between two facts.
struct Facts<'a>(&'a mut Line);

impl Facts<'_> {
    fn add(&mut self, style: Style, text: &str) {
        self.0.add(style, text).text(" ");
    }

    /// Payloads, by name, and links, without that to a call that was told.
    fn evidence(&mut self, frame: &Value, is_answer: bool) {
        let payloads: Vec<&str> = list(frame, "payloads")
            .map(|one| word(one, "name"))
            .collect();
        if !payloads.is_empty() {
            self.add(DIM, &format!("[{}]", payloads.join(" ")));
        }
        for link in list(frame, "links") {
            if !is_answer || word(link, "rel") != "answers" {
                self.add(DIM, &arrow(link));
            }
        }
    }

    /// Members of the body that were not told, ids last.
    fn members(&mut self, body: &Value, shorten: bool, told: impl Fn(&str) -> bool) {
        let mut members = Vec::new();
        flatten(&mut members, "", body);
        members.sort_by_key(|(name, _)| name.ends_with("id"));
        for (name, value) in members {
            let hidden = HIDDEN.contains(&name.split('.').next().unwrap_or(""));
            // Of a digest its beginning tells it from others, and there is more to see.
            let is_digest = value.len() >= 32 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
            let value = if shorten && is_digest {
                shortened(&value, DIGEST_CHARS)
            } else {
                value
            };
            if !hidden && !told(&name) {
                self.add(Style::new(), &format!("{name}={value}"));
            }
        }
    }

    /// What stands out: how a call went, what a gate said, how a run ended. Names the members it told.
    fn verdict(&mut self, kind: &str, body: &Value) -> &'static [&'static str] {
        match kind {
            "gate_result" => {
                let verdict = word(body, "verdict");
                let style = match verdict {
                    "pass" => GOOD,
                    "fail" | "error" => BAD,
                    _ => DOUBTFUL,
                };
                self.add(style, &verdict.to_uppercase());
                &["verdict"]
            }
            "outcome" => {
                let status = word(body, "status");
                let style = match status {
                    "completed" => GOOD,
                    "failed" => BAD,
                    _ => DOUBTFUL,
                };
                self.add(style, &status.to_uppercase());
                &["status"]
            }
            "tool_result" => {
                let exit = body["exit"].as_i64();
                let style = match (word(body, "status"), exit) {
                    ("ok" | "success", _) | ("", Some(0)) => GOOD,
                    ("", None) => DIM,
                    ("not stated", _) => DOUBTFUL,
                    _ => BAD,
                };
                if let Some(status) = body["status"].as_str() {
                    self.add(style, status);
                }
                if let Some(exit) = exit {
                    self.add(style, &format!("exit {exit}"));
                }
                &["status", "exit"]
            }
            _ => &[],
        }
    }
}

/// Members of a body by their paths; of a list only how many items it has, unless it is short and plain.
fn flatten(members: &mut Vec<(String, String)>, path: &str, value: &Value) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                flatten(members, &path, value);
            }
        }
        Value::Array(items) => {
            let words: Option<Vec<String>> = items.iter().map(plain).collect();
            let list = words.map(|words| words.join(","));
            let list = list.filter(|list| list.chars().count() <= LIST_CHARS);
            let text = list.unwrap_or_else(|| format!("({})", items.len()));
            members.push((path.to_owned(), text));
        }
        other => members.extend(plain(other).map(|text| (path.to_owned(), text))),
    }
}

/// A value that has no parts.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Object(_) | Value::Array(_) => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// The call of this run that a frame answers.
fn answered(frame: &Value) -> Option<u64> {
    list(frame, "links")
        .find(|link| word(link, "rel") == "answers")
        .and_then(|link| link["seq"].as_u64())
}

fn arrow(link: &Value) -> String {
    let to = match (link["seq"].as_u64(), link["run"].as_str()) {
        (Some(seq), _) => seq.to_string(),
        (None, Some(run)) => format!("run {run}"),
        (None, None) => "?".to_owned(),
    };
    format!("{}→{to}", word(link, "rel"))
}

fn actor(frame: &Value) -> String {
    let actor = &frame["actor"];
    format!("{}:{}", word(actor, "type"), word(actor, "id"))
}

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("")
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests;
