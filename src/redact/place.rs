//! Placeholders: they take the place of secrets, and are pointed at.

use super::{Found, Mark, Place, Redacted, Shape};
use onrecord_core::json::{Limits, canonicalize};
use onrecord_core::limits;

/// Bytes of a pointer; a longer one is cut to where a parent is. A frame has no room for more, and thousands of
/// placeholders may stand under one long name.
const POINTER_BYTES: usize = 512;

/// Puts placeholders where the findings are, which are in order and not over one another.
pub(super) fn replace(payload: &[u8], found: Vec<Found>, shape: Shape) -> Redacted {
    let (mut bytes, places) = written(payload, &found, &[]);
    let marks = |places: Vec<Place>| {
        let pairs = found.iter().zip(places);
        pairs
            .map(|(one, place)| Mark {
                place,
                kind: one.kind.clone(),
                rule: one.rule.clone(),
                secret: one.secret.clone(),
            })
            .collect()
    };
    if shape == Shape::Json
        && let Some(mut pointers) = pointers(&bytes, &places)
    {
        let keys: Vec<bool> = pointers.iter().map(|one| one.1).collect();
        if keys.contains(&true) {
            // Two members may not have one name, and their order follows from their names.
            let (numbered, places) = written(payload, &found, &keys);
            pointers = self::pointers(&numbered, &places).unwrap_or(pointers);
            let unsized_limits = Limits {
                bytes: usize::MAX,
                ..Limits::PAYLOAD
            };
            bytes = canonicalize(&numbered, unsized_limits).unwrap_or(numbered);
        }
        let places = pointers
            .into_iter()
            .map(|(pointer, _)| Place::Pointer(pointer));
        return Redacted {
            marks: marks(places.collect()),
            bytes,
        };
    }
    let places = places
        .into_iter()
        .map(|(start, end)| Place::Range(start as u64, end as u64));
    Redacted {
        marks: marks(places.collect()),
        bytes,
    }
}

/// Puts findings of a payload with placeholders where they are in the payload itself.
pub(super) fn back(written: &[Found], found: &mut [Found]) {
    // Where each placeholder begins and ends, quotes included, and what it stands for.
    let mut places = Vec::with_capacity(written.len());
    let (mut at, mut from) = (0, 0);
    for one in written {
        let start = at + (one.start - from);
        at = start + quote(one).len() * 2 + placeholder(one).len();
        from = one.end;
        places.push((start, at, one.start, one.end));
    }
    let origin = |place: usize, is_end: bool| {
        let index = places.partition_point(|(start, ..)| *start < place + usize::from(!is_end));
        match index.checked_sub(1).map(|index| places[index]) {
            None => place,
            Some((_, end, first, last)) if place < end || is_end && place == end => {
                if is_end {
                    last
                } else {
                    first
                }
            }
            Some((_, end, _, last)) => last + (place - end),
        }
    };
    for one in found {
        (one.start, one.end) = (origin(one.start, false), origin(one.end, true));
    }
}

fn placeholder(one: &Found) -> String {
    format!("[redacted:{}]", one.kind)
}

/// The quotes of what takes the place of a number, escaped as the strings demand that it stands in.
fn quote(one: &Found) -> Vec<u8> {
    one.quoted.map_or(Vec::new(), |levels| {
        let slashes = 2usize.saturating_pow(levels) - 1;
        [vec![b'\\'; slashes], vec![b'"']].concat()
    })
}

/// The payload with placeholders, and where they are. Those in keys are numbered.
pub(super) fn written(
    payload: &[u8],
    found: &[Found],
    keys: &[bool],
) -> (Vec<u8>, Vec<(usize, usize)>) {
    let mut bytes = Vec::with_capacity(payload.len() + found.len() * 8);
    let mut places = Vec::with_capacity(found.len());
    let (mut from, mut key) = (0, 0);
    for (index, one) in found.iter().enumerate() {
        bytes.extend_from_slice(&payload[from..one.start]);
        let quote = quote(one);
        bytes.extend_from_slice(&quote);
        let start = bytes.len();
        bytes.extend_from_slice(placeholder(one).as_bytes());
        places.push((start, bytes.len()));
        if keys.get(index) == Some(&true) {
            key += 1;
            if key > 1 {
                bytes.extend_from_slice(format!(".{key}").as_bytes());
            }
        }
        bytes.extend_from_slice(&quote);
        from = one.end;
    }
    bytes.extend_from_slice(&payload[from..]);
    (bytes, places)
}

/// The pointers to the values of a JSON document in which places are, and whether they are in a key.
fn pointers(json: &[u8], places: &[(usize, usize)]) -> Option<Vec<(String, bool)>> {
    let mut walk = Walk {
        json,
        at: 0,
        places,
        steps: Vec::new(),
        found: Vec::with_capacity(places.len()),
    };
    walk.value()?;
    (walk.found.len() == places.len()).then_some(walk.found)
}

/// A walk over canonical JSON, which has no space.
struct Walk<'a> {
    json: &'a [u8],
    at: usize,
    places: &'a [(usize, usize)],
    steps: Vec<Step<'a>>,
    found: Vec<(String, bool)>,
}

enum Step<'a> {
    Key(&'a [u8]),
    Index(usize),
}

impl Walk<'_> {
    /// None where it is other bytes after all.
    fn value(&mut self) -> Option<()> {
        if self.steps.len() > limits::DEPTH {
            return None;
        }
        match self.json.get(self.at)? {
            b'{' => {
                self.at += 1;
                while self.json.get(self.at)? != &b'}' {
                    let key = self.string()?;
                    self.steps.push(Step::Key(&self.json[key.0..key.1]));
                    self.note(true);
                    // The colon.
                    self.at += 1;
                    self.value()?;
                    self.steps.pop();
                    self.at += usize::from(self.json.get(self.at) == Some(&b','));
                }
                self.at += 1;
            }
            b'[' => {
                self.at += 1;
                let mut index = 0;
                while self.json.get(self.at)? != &b']' {
                    self.steps.push(Step::Index(index));
                    self.value()?;
                    self.steps.pop();
                    index += 1;
                    self.at += usize::from(self.json.get(self.at) == Some(&b','));
                }
                self.at += 1;
            }
            b'"' => {
                self.string()?;
                self.note(false);
            }
            _ => {
                let rest = self.json[self.at..].iter();
                let length = rest.take_while(|byte| !b",]}".contains(byte)).count();
                if length == 0 {
                    return None;
                }
                self.at += length;
            }
        }
        Some(())
    }

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

    /// Points at what was just passed, for each place in it.
    fn note(&mut self, key: bool) {
        while self
            .places
            .get(self.found.len())
            .is_some_and(|place| place.1 <= self.at)
        {
            let pointer = pointer(&self.steps);
            self.found.push((pointer, key));
        }
    }
}

/// RFC 6901, of the nearest parent whose pointer is not too long.
fn pointer(steps: &[Step<'_>]) -> String {
    let mut pointer = String::new();
    for step in steps {
        let parent = pointer.len();
        pointer.push('/');
        match step {
            Step::Index(index) => pointer.push_str(&index.to_string()),
            Step::Key(raw) if raw.len() > POINTER_BYTES * 6 => return pointer[..parent].to_owned(),
            Step::Key(raw) => {
                let name = super::view::unescaped(raw).bytes;
                let name = String::from_utf8_lossy(&name);
                pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
            }
        }
        if pointer.len() > POINTER_BYTES {
            pointer.truncate(parent);
            break;
        }
    }
    pointer
}
