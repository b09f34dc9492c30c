//! Redaction: secrets are found in payloads before anything of them is hashed or written.
//!
//! A pure function from bytes and rules to other bytes and a list of what was taken out; no clock, no input, no
//! output. Findings are places in the bytes as they came, whatever they were read through (JSON, colours, base64),
//! so that a secret is replaced where it stands and everything else stays byte for byte.

mod anchors;
mod check;
mod compile;
mod document;
mod echo;
mod json;
mod named;
mod place;
mod pointers;
mod rules;
mod text;
mod value;
mod view;
mod wrapped;

#[cfg(test)]
mod tests;

pub use document::{DOCUMENT_BYTES, Document};
pub use rules::{LITERAL_BYTES, Literals, RuleError, RuleSet};

use echo::Echo;
use pointers::Places;
use zeroize::Zeroizing;

/// How a payload is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Canonical JSON; it stays canonical JSON of the same shape.
    Json,
    /// Text, or bytes in which text may stand.
    Text,
}

/// A secret in a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where it begins, in bytes of the payload as it was given.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// What kind of secret, a word of `[a-z0-9_]`.
    pub kind: String,
    /// Id of the rule.
    pub rule: String,
}

/// A payload without its secrets.
pub struct Redacted {
    /// The payload, with `[redacted:KIND]` in place of each secret.
    pub bytes: Vec<u8>,
    /// What was taken out, in the order in which it stood there.
    pub marks: Vec<Mark>,
}

/// What was taken out at one place.
#[derive(Clone)]
pub struct Mark {
    /// Where the placeholder is.
    pub place: Place,
    /// What kind of secret.
    pub kind: String,
    /// Id of the rule.
    pub rule: String,
    /// The secret itself, for its fingerprint.
    pub secret: Zeroizing<Vec<u8>>,
}

/// Says nothing of the secret.
impl std::fmt::Debug for Mark {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut mark = formatter.debug_struct("Mark");
        mark.field("place", &self.place).field("rule", &self.rule);
        mark.finish_non_exhaustive()
    }
}

/// Where a placeholder is in a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// RFC 6901 pointer to the value of a JSON document that the placeholder is, or stands in.
    Pointer(String),
    /// `[start, end)` in bytes.
    Range(u64, u64),
}

/// Which of two findings at one place tells more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It is known what it is.
    Token,
    /// What stands around it says so.
    Context,
    /// Its name says so.
    Name,
    /// It was found elsewhere, or configured.
    Known,
}

/// A secret on its way back to where it stands.
#[derive(Clone)]
struct Found {
    start: usize,
    end: usize,
    secret: Zeroizing<Vec<u8>>,
    rule: String,
    kind: String,
    rank: Rank,
    /// What takes its place needs quotes, which so many strings escape.
    quoted: Option<u32>,
}

/// The fewest bytes of a secret that is looked for elsewhere in its payload, and has a fingerprint: of shorter ones
/// there are so few that trying them all is cheap.
pub const TELLING_BYTES: usize = 8;

/// How often a payload is looked at again once something was taken out: a token may begin where another ended.
const ROUNDS: usize = 8;

impl RuleSet {
    /// Finds the secrets of a payload, in their order.
    pub fn find(&self, payload: &[u8], shape: Shape) -> Vec<Finding> {
        let found = self.found(payload, shape).into_iter();
        found
            .map(|one| Finding {
                start: one.start,
                end: one.end,
                kind: one.kind,
                rule: one.rule,
            })
            .collect()
    }

    /// Takes the secrets out of a payload; `None` where there are none, and the payload is as it should be.
    pub fn redact(&self, payload: &[u8], shape: Shape) -> Option<Redacted> {
        let found = self.found(payload, shape);
        (!found.is_empty()).then(|| place::replace(payload, found, shape))
    }

    /// All secrets in their order, none over another, and none that comes to light when the others are gone.
    fn found(&self, payload: &[u8], shape: Shape) -> Vec<Found> {
        let mut found = self.found_once(payload, shape);
        for _ in 0..ROUNDS {
            if found.is_empty() {
                break;
            }
            let (bytes, _) = place::written(payload, &found, &[]);
            let mut more = self.found_once(&bytes, shape);
            if more.is_empty() {
                break;
            }
            place::back(&found, &mut more);
            found.extend(more);
            found = merged(found);
        }
        found
    }

    fn found_once(&self, payload: &[u8], shape: Shape) -> Vec<Found> {
        let has_places = shape == Shape::Json && self.pointers.has_always();
        if !has_places && !text::is_suspect(self, payload) {
            return Vec::new();
        }
        let (read, mut places) = match shape {
            Shape::Json => (json::find(self, payload, 0), self.pointers.places(payload)),
            Shape::Text => (None, Places::default()),
        };
        let mut found = read.unwrap_or_else(|| text::find(self, payload, 0));
        found.retain(|one| !self.is_allowed(&one.secret));
        found.append(&mut places.always);
        if let Some(literals) = &self.literals {
            found.extend(literals.find(payload));
        }
        // What is never redacted is not looked for elsewhere either; an operator's literals are redacted everywhere.
        let stays = |one: &Found| one.kind != rules::LITERAL && places.stays(one);
        found.retain(|one| !stays(one));
        // What was found once is looked for everywhere, in every spelling.
        let telling = found.iter().filter(|one| is_telling(&one.secret));
        let known = telling.map(|one| (one.secret.to_vec(), one.rule.clone(), one.kind.clone()));
        if let Some(echo) = Echo::new(known, false) {
            found.extend(echo.find(payload).into_iter().filter(|one| !stays(one)));
        }
        merged(found)
    }
}

/// Whether a secret is long and odd enough not to be found by chance.
fn is_telling(secret: &[u8]) -> bool {
    let classes: [fn(&u8) -> bool; 4] = [
        u8::is_ascii_lowercase,
        u8::is_ascii_uppercase,
        u8::is_ascii_digit,
        u8::is_ascii_punctuation,
    ];
    let classes = classes
        .iter()
        .filter(|class| secret.iter().any(class))
        .count();
    secret.len() >= TELLING_BYTES && classes > 1 && check::variety(secret) > 4
}

/// Findings that overlap become one, which is called what the best of them is.
fn merged(mut found: Vec<Found>) -> Vec<Found> {
    found.retain(|one| one.start < one.end);
    found.sort_by_key(|one| (one.start, one.rank, usize::MAX - one.end));
    let mut merged: Vec<Found> = Vec::with_capacity(found.len());
    for one in found {
        match merged.last_mut() {
            Some(last) if one.start < last.end => {
                let (start, end) = (last.start, last.end.max(one.end));
                if one.rank < last.rank {
                    *last = one;
                }
                (last.start, last.end) = (start, end);
            }
            _ => merged.push(one),
        }
    }
    merged
}
