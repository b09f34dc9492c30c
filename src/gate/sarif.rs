//! SARIF 2.1: findings of static analysis, read as a stream. A finding from the named level on is a
//! failure; lower ones, and those that were suppressed, count as skipped.

mod rules;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::tally::{Case, Reading};
use super::{Format, Weight};
use rules::{Rule, RuleName, RuleReference, Rules};

/// Rules whose findings are kept apart until the rule's own level is known.
const RULES: usize = 20_000;

/// A level of a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Level {
    /// No finding is a failure.
    None,
    /// Minor.
    Note,
    /// A problem.
    Warning,
    /// A serious problem.
    #[default]
    Error,
}

impl Level {
    fn of(word: &str) -> Option<Self> {
        match word {
            "none" => Some(Self::None),
            "note" => Some(Self::Note),
            "warning" => Some(Self::Warning),
            "error" => Some(Self::Error),
            _ => None,
        }
    }
}

/// Whether a JSON object that begins like this is SARIF.
pub(super) fn fits(head: &str) -> bool {
    let has = |member: &str| head.contains(member);
    has("\"runs\"") && (has("\"version\"") || has("sarif")) || (has("\"$schema\"") && has("sarif"))
}

/// Reads a report. `level` is the lowest that fails.
///
/// # Errors
/// The bytes cannot be had.
pub(super) fn read(input: impl Read, level: Level) -> io::Result<Reading> {
    let mut reading = Reading::new(Format::Sarif);
    let mut json = serde_json::Deserializer::from_reader(io::BufReader::new(input));
    let log = Log {
        reading: &mut reading,
        level,
    };
    let done = log.deserialize(&mut json).and_then(|()| json.end());
    if let Err(error) = done {
        if error.is_io() {
            return Err(error.into());
        }
        let code = if error.is_eof() {
            "truncated"
        } else {
            "not_well_formed"
        };
        reading.broken(code, error.to_string());
    }
    Ok(reading)
}

/// The whole file.
struct Log<'a> {
    reading: &'a mut Reading,
    level: Level,
}

impl<'de> DeserializeSeed<'de> for Log<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Log<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a SARIF log")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut version = None;
        let mut runs = 0;
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "version" => version = Some(map.next_value::<String>()?),
                "runs" => {
                    runs += map.next_value_seed(Runs {
                        reading: self.reading,
                        level: self.level,
                    })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if !version
            .as_deref()
            .is_some_and(|version| version.starts_with("2."))
        {
            let text = format!(
                "version {} is not 2",
                version.as_deref().unwrap_or("(none)")
            );
            self.reading.broken("version", text);
        }
        if runs == 0 {
            self.reading
                .broken("no_runs", "there is no run in it: nothing was analysed");
        } else {
            self.reading.empty_is_good = true;
        }
        Ok(())
    }
}

struct Runs<'a> {
    reading: &'a mut Reading,
    level: Level,
}

impl<'de> DeserializeSeed<'de> for Runs<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<u64, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Runs<'_> {
    type Value = u64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array of runs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut runs: A) -> Result<u64, A::Error> {
        let mut count = 0;
        while let Some(()) = runs.next_element_seed(Run {
            reading: self.reading,
            level: self.level,
        })? {
            count += 1;
        }
        Ok(count)
    }
}

/// One run of one tool.
struct Run<'a> {
    reading: &'a mut Reading,
    level: Level,
}

#[derive(Deserialize)]
struct Tool {
    driver: Component,
    #[serde(default)]
    extensions: Vec<Component>,
}

/// The tool itself, or what was added to it; both have rules.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Component {
    name: Option<String>,
    version: Option<String>,
    semantic_version: Option<String>,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Invocation {
    execution_successful: Option<bool>,
    tool_execution_notifications: Option<Vec<Notification>>,
}

#[derive(Deserialize)]
struct Notification {
    level: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    rule_id: Option<String>,
    rule_index: Option<i64>,
    rule: Option<RuleReference>,
    baseline_state: Option<String>,
    level: Option<String>,
    kind: Option<String>,
    message: Option<Message>,
    suppressions: Option<Vec<Suppression>>,
}

#[derive(Deserialize)]
struct Message {
    text: Option<String>,
}

#[derive(Deserialize)]
struct Suppression {
    status: Option<String>,
}

impl<'de> DeserializeSeed<'de> for Run<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Run<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a run")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut rules = Rules::default();
        let mut found = false;
        let mut waiting = HashMap::new();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "tool" => {
                    let Tool { driver, extensions } = map.next_value()?;
                    let version = driver.version.or(driver.semantic_version);
                    self.reading
                        .tool(driver.name.as_deref(), version.as_deref());
                    let more = extensions.into_iter().map(|one| one.rules);
                    rules = Rules::new(driver.rules, more);
                }
                "invocations" => {
                    for invocation in map.next_value::<Vec<Invocation>>()? {
                        let told = invocation.tool_execution_notifications.unwrap_or_default();
                        if told.iter().any(|one| one.level.as_deref() == Some("error")) {
                            let text = "the tool says that it met errors of its own";
                            self.reading.notice("tool_errors", Weight::Told, text);
                        }
                        if invocation.execution_successful == Some(false) {
                            let text = "the tool says that it did not run to its end";
                            self.reading.broken("run_failed", text);
                        }
                    }
                }
                // `null` says that the tool did not get so far.
                "results" => {
                    found = map.next_value_seed(Findings {
                        reading: self.reading,
                        level: self.level,
                        waiting: &mut waiting,
                    })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if !found {
            let text = "a run has no results, not even an empty list of them";
            self.reading.broken("no_results", text);
        }
        settle(self.reading, self.level, &rules, waiting);
        Ok(())
    }
}

/// Findings that name no level have their rule's, which may have come after them.
fn settle(
    reading: &mut Reading,
    level: Level,
    rules: &Rules,
    waiting: HashMap<RuleName, (u64, Option<String>)>,
) {
    let ids = rules.by_id();
    for (name, (count, message)) in waiting {
        let rule = rules.find(&ids, &name);
        let case = weigh(rule.map_or(Level::Warning, Rule::level), level);
        reading.counts.add(case, count);
        if case == Case::Failed {
            let id = rule.map(|rule| rule.id.as_str()).or(name.id());
            reading.list(case, id.unwrap_or(""), message.as_deref());
            reading.more_failures += count - 1;
        }
    }
}

fn weigh(found: Level, level: Level) -> Case {
    if level != Level::None && found >= level {
        Case::Failed
    } else {
        Case::Skipped
    }
}

struct Findings<'a> {
    reading: &'a mut Reading,
    level: Level,
    waiting: &'a mut HashMap<RuleName, (u64, Option<String>)>,
}

impl<'de> DeserializeSeed<'de> for Findings<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<bool, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Findings<'_> {
    type Value = bool;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array of results")
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut results: A) -> Result<bool, A::Error> {
        while let Some(finding) = results.next_element::<Finding>()? {
            self.finding(finding);
        }
        Ok(true)
    }
}

impl Findings<'_> {
    fn finding(&mut self, finding: Finding) {
        let message = finding.message.and_then(|message| message.text);
        let id = finding.rule_id;
        let name = id.as_deref().unwrap_or("");
        // Rejected ones, and those that nobody has looked at yet, do not suppress.
        let suppressions = finding.suppressions.unwrap_or_default();
        let suppressed = !suppressions.is_empty()
            && suppressions.iter().all(|one| {
                one.status
                    .as_deref()
                    .is_none_or(|status| status == "accepted")
            });
        let case = match finding.kind.as_deref() {
            // What is no longer there, as a comparison with an earlier scan says.
            _ if suppressed || finding.baseline_state.as_deref() == Some("absent") => Case::Skipped,
            Some("pass") => Case::Passed,
            Some("notApplicable" | "informational") => Case::Skipped,
            // `open` and `review`: nobody knows yet whether it is one.
            None | Some("fail" | "open" | "review") => match finding.level.as_deref() {
                Some(word) => weigh(Level::of(word).unwrap_or(Level::Error), self.level),
                None if self.waiting.len() < RULES => {
                    let rule = RuleName::new(id, finding.rule_index, finding.rule);
                    self.waiting.entry(rule).or_insert((0, message)).0 += 1;
                    return;
                }
                None => weigh(Level::Error, self.level),
            },
            Some(other) => {
                let text = format!("the kind {other:?} is none that is known: taken as a failure");
                self.reading.notice("unknown_outcome", Weight::Told, text);
                Case::Failed
            }
        };
        self.reading.case(case, name, message.as_deref());
    }
}
