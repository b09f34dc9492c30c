//! Places in JSON that are redacted whatever stands there, and places that never are.

use super::rules::RuleError;
use super::view::unescaped;
use super::{Found, Rank};
use onrecord_core::limits;
use zeroize::Zeroizing;

/// Id of the rule.
const RULE: &str = "json-always";
/// Kind of what stood there.
const KIND: &str = "private";

/// Compiled pointers.
#[derive(Default)]
pub(super) struct Pointers {
    paths: Vec<(Vec<Step>, Rule)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Always,
    Never,
}

enum Step {
    /// `*`: any member, any element.
    Any,
    Name(String),
}

/// What the pointers say of a document.
#[derive(Default)]
pub(super) struct Places {
    /// What is redacted.
    pub(super) always: Vec<Found>,
    /// `[start, end)` of what stays.
    pub(super) never: Vec<(usize, usize)>,
}

impl Pointers {
    /// # Errors
    /// Names the list and the entry that is no pointer.
    pub(super) fn new(always: &[String], never: &[String]) -> Result<Self, RuleError> {
        let mut paths = Vec::new();
        for (list, pointers, rule) in [
            ("json.always", always, Rule::Always),
            ("json.never", never, Rule::Never),
        ] {
            for (index, pointer) in pointers.iter().enumerate() {
                let steps = pointer.strip_prefix('/').ok_or_else(|| {
                    let entry = index + 1;
                    RuleError::Malformed(format!("{list}, entry {entry}: a pointer begins with /"))
                })?;
                let step = |step: &str| match step {
                    "*" => Step::Any,
                    name => Step::Name(name.replace("~1", "/").replace("~0", "~")),
                };
                paths.push((steps.split('/').map(step).collect(), rule));
            }
        }
        Ok(Self { paths })
    }

    /// Whether anything is redacted for its place alone.
    pub(super) fn has_always(&self) -> bool {
        self.paths.iter().any(|(_, rule)| *rule == Rule::Always)
    }

    /// The places of a canonical document; none where it is none.
    pub(super) fn places(&self, json: &[u8]) -> Places {
        if self.paths.is_empty() {
            return Places::default();
        }
        let mut walk = Walk {
            json,
            at: 0,
            paths: &self.paths,
            places: Places::default(),
        };
        let all: Vec<usize> = (0..self.paths.len()).collect();
        match walk.value(0, &all, false) {
            Some(()) => walk.places.in_order(),
            None => Places::default(),
        }
    }
}

impl Places {
    /// Places inside of others are these.
    fn in_order(mut self) -> Self {
        self.never
            .sort_by_key(|(start, end)| (*start, usize::MAX - *end));
        let mut last = 0;
        self.never.retain(|(_, end)| {
            let outer = *end > last;
            last = last.max(*end);
            outer
        });
        self
    }

    /// Whether a finding is in a place that is never redacted.
    pub(super) fn stays(&self, found: &Found) -> bool {
        let after = self
            .never
            .partition_point(|(start, _)| *start <= found.start);
        let place = after.checked_sub(1).map(|index| self.never[index]);
        place.is_some_and(|(_, end)| found.end <= end)
    }
}

struct Walk<'a> {
    json: &'a [u8],
    at: usize,
    paths: &'a [(Vec<Step>, Rule)],
    places: Places,
}

impl Walk<'_> {
    /// `alive` are the pointers that lead here or on; `whole` says that one of them redacts all of this.
    fn value(&mut self, depth: usize, alive: &[usize], whole: bool) -> Option<()> {
        if depth > limits::DEPTH {
            return None;
        }
        let start = self.at;
        let ends = |rule: Rule| {
            let mut alive = alive.iter().map(|index| &self.paths[*index]);
            alive.any(|(steps, own)| steps.len() == depth && *own == rule)
        };
        let (whole, never) = (whole || ends(Rule::Always), ends(Rule::Never));
        match self.json.get(self.at)? {
            b'{' => {
                self.at += 1;
                while self.json.get(self.at)? != &b'}' {
                    let (from, to) = self.string()?;
                    let name = if alive.is_empty() {
                        Vec::new()
                    } else {
                        unescaped(&self.json[from..to]).bytes.into_owned()
                    };
                    self.at += 1;
                    let below = self.below(depth, alive, &name);
                    self.value(depth + 1, &below, whole)?;
                    self.at += usize::from(self.json.get(self.at) == Some(&b','));
                }
                self.at += 1;
            }
            b'[' => {
                self.at += 1;
                let mut index = 0;
                while self.json.get(self.at)? != &b']' {
                    let below = self.below(depth, alive, index.to_string().as_bytes());
                    self.value(depth + 1, &below, whole)?;
                    index += 1;
                    self.at += usize::from(self.json.get(self.at) == Some(&b','));
                }
                self.at += 1;
            }
            b'"' => {
                let (from, to) = self.string()?;
                if whole {
                    self.take(from, to, None);
                }
            }
            _ => {
                let rest = self.json[self.at..].iter();
                self.at += rest.take_while(|byte| !b",]}".contains(byte)).count();
                let first = *self.json.get(start)?;
                if self.at == start {
                    return None;
                }
                if whole && (first == b'-' || first.is_ascii_digit()) {
                    self.take(start, self.at, Some(0));
                }
            }
        }
        if never {
            self.places.never.push((start, self.at));
        }
        Some(())
    }

    /// The pointers that lead on below a step.
    fn below(&self, depth: usize, alive: &[usize], name: &[u8]) -> Vec<usize> {
        let leads = |index: &&usize| match self.paths[**index].0.get(depth) {
            Some(Step::Any) => true,
            Some(Step::Name(own)) => own.as_bytes() == name,
            None => false,
        };
        alive.iter().filter(leads).copied().collect()
    }

    /// What stands between the quotes of a string.
    fn string(&mut self) -> Option<(usize, usize)> {
        let start = self.at + 1;
        if self.json.get(self.at) != Some(&b'"') {
            return None;
        }
        self.at = start;
        while self.json.get(self.at)? != &b'"' {
            self.at += 1 + usize::from(self.json[self.at] == b'\\');
        }
        self.at += 1;
        Some((start, self.at - 1))
    }

    fn take(&mut self, start: usize, end: usize, quoted: Option<u32>) {
        let value = &self.json[start..end];
        if value.is_empty() || is_placeholder(value) {
            return;
        }
        self.places.always.push(Found {
            start,
            end,
            secret: Zeroizing::new(unescaped(value).bytes.into_owned()),
            rule: RULE.to_owned(),
            kind: KIND.to_owned(),
            rank: Rank::Name,
            quoted,
        });
    }
}

/// Whether a value is a placeholder and nothing else.
fn is_placeholder(value: &[u8]) -> bool {
    let kind = value
        .strip_prefix(super::value::PLACEHOLDER)
        .and_then(|rest| rest.strip_suffix(b"]"));
    let fits = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    kind.is_some_and(|kind| kind.len() <= 64 && kind.iter().all(fits))
}
