//! XML of reports, element by element, in constant memory.
//!
//! Names are local names: a prefix and its namespace do not count. Entities that a document defines
//! for itself are not expanded, and a document that has some is not read.

mod bound;

use std::io::{self, BufReader, Read};

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};

use super::decode::{Kind, Utf8};
use super::tally::Reading;
use bound::Bounded;

/// Elements within each other, at most.
const DEPTH: usize = 200;
/// Bytes of the text of an element that are kept.
const TEXT: usize = 16 * 1024;

/// A piece of the document.
#[derive(Debug)]
pub(super) enum Piece {
    /// An element begins.
    Start(Element),
    /// An element ends: its name, and the beginning of the text directly in it.
    End(String, String),
}

/// An element's beginning.
#[derive(Debug)]
pub(super) struct Element {
    /// Its local name.
    pub name: String,
    /// The name of the element that it is in, or nothing.
    pub parent: String,
    /// How many elements it is in.
    pub depth: usize,
    attributes: Vec<(String, String)>,
}

impl Element {
    /// An attribute, if it is there.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    /// A count. One that is no count is said.
    pub fn count(&self, name: &str, reading: &mut Reading) -> Option<u64> {
        let text = self.get(name)?.trim();
        let count = text.parse().ok();
        if count.is_none() && !text.is_empty() {
            reading.notice(
                "not_a_count",
                super::Weight::NoPass,
                format!("{name}=\"{text}\" of <{}> is no count", self.name),
            );
        }
        count
    }
}

/// A document being read.
pub(super) struct Xml<R: Read> {
    reader: quick_xml::Reader<BufReader<Bounded<Utf8<R>>>>,
    buffer: Vec<u8>,
    open: Vec<(String, String)>,
    /// The end of an empty element, which is told after its beginning.
    empty: bool,
    begun: bool,
    /// The reading ended early, and why was said.
    broken: bool,
}

impl<R: Read> Xml<R> {
    /// Over a document of which [`Kind`] has seen the beginning.
    pub fn new(input: R, kind: &Kind) -> Self {
        let bounded = Bounded::new(Utf8::new(input, kind));
        let mut reader =
            quick_xml::Reader::from_reader(BufReader::with_capacity(64 * 1024, bounded));
        let config = reader.config_mut();
        config.check_end_names = true;
        config.allow_dangling_amp = true;
        Self {
            reader,
            buffer: Vec::new(),
            open: Vec::new(),
            empty: false,
            begun: false,
            broken: false,
        }
    }

    /// The next piece; nothing at the end. What breaks the document off is said in the reading.
    ///
    /// # Errors
    /// The bytes cannot be had.
    pub fn next(&mut self, reading: &mut Reading) -> io::Result<Option<Piece>> {
        if self.empty {
            self.empty = false;
            return Ok(self.close());
        }
        while !self.broken {
            self.buffer.clear();
            let event = match self.reader.read_event_into(&mut self.buffer) {
                Ok(event) => event,
                Err(quick_xml::Error::Io(error)) if error.kind() != io::ErrorKind::InvalidData => {
                    return Err(io::Error::new(error.kind(), error.to_string()));
                }
                Err(error) => {
                    self.broken = true;
                    let at = self.reader.error_position();
                    reading.broken("not_well_formed", format!("byte {at}: {error}"));
                    break;
                }
            };
            match event {
                Event::Start(start) => {
                    let element = element(&start, &self.open);
                    return Ok(self.open(element, reading));
                }
                Event::Empty(start) => {
                    let element = element(&start, &self.open);
                    self.empty = element.is_some();
                    return Ok(self.open(element, reading));
                }
                Event::End(_) => return Ok(self.close()),
                Event::Text(text) => {
                    if self.open.is_empty() && !text.xml10_content().trim().is_empty() {
                        self.stray(reading);
                    } else {
                        keep(&mut self.open, &text.xml10_content());
                    }
                }
                Event::CData(text) => keep(&mut self.open, &text.xml10_content()),
                Event::GeneralRef(entity) => {
                    let found = entity.resolve_char_ref().ok().flatten();
                    let text = found.map(String::from).unwrap_or_else(|| {
                        let name = entity.xml10_content();
                        quick_xml::escape::resolve_predefined_entity(&name)
                            .map_or_else(|| format!("&{name};"), str::to_owned)
                    });
                    keep(&mut self.open, &text);
                }
                Event::DocType(definition) if definition.xml10_content().contains('[') => {
                    self.broken = true;
                    reading.broken(
                        "entities_defined",
                        "the document defines entities of its own, which is not read",
                    );
                }
                Event::Eof => {
                    self.end(reading);
                    break;
                }
                Event::DocType(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            }
        }
        Ok(None)
    }

    fn open(&mut self, element: Option<Element>, reading: &mut Reading) -> Option<Piece> {
        let Some(element) = element else {
            self.broken = true;
            let at = self.reader.buffer_position();
            let text =
                format!("the tag before byte {at} has an attribute that is none, or one twice");
            reading.broken("not_well_formed", text);
            return None;
        };
        if element.depth == 0 && self.begun {
            self.stray(reading);
            return None;
        }
        if element.depth >= DEPTH {
            self.broken = true;
            reading.broken("too_deep", format!("elements nest more than {DEPTH} deep"));
            return None;
        }
        self.begun = true;
        self.open.push((element.name.clone(), String::new()));
        Some(Piece::Start(element))
    }

    fn close(&mut self) -> Option<Piece> {
        let (name, text) = self.open.pop()?;
        Some(Piece::End(name, text))
    }

    /// Something follows the root element: two reports in one file, or half of another.
    fn stray(&mut self, reading: &mut Reading) {
        self.broken = true;
        self.empty = false;
        let what = if self.begun {
            "something follows the end of the document"
        } else {
            "the document begins with text"
        };
        reading.broken("not_well_formed", what);
    }

    fn end(&mut self, reading: &mut Reading) {
        self.broken = true;
        if let Some((name, _)) = self.open.last() {
            reading.broken(
                "truncated",
                format!("the file ends within <{name}>: it is cut off"),
            );
        } else if !self.begun {
            reading.broken("truncated", "there is no element in it");
        }
    }
}

/// Adds text to the element that is open, as long as there is room.
fn keep(open: &mut [(String, String)], text: &str) {
    if let Some((_, kept)) = open.last_mut() {
        let room = TEXT.saturating_sub(kept.len());
        kept.push_str(&text[..text.floor_char_boundary(room)]);
    }
}

/// The element; nothing where its attributes are not well formed.
fn element(start: &BytesStart<'_>, open: &[(String, String)]) -> Option<Element> {
    let (mut attributes, mut names) = (Vec::new(), Vec::new());
    // The parser's own check takes time with the square of their number.
    for attribute in start.attributes().with_checks(false) {
        let attribute = attribute.ok()?;
        names.push(attribute.key);
        let value = attribute.normalized_value(XmlVersion::Implicit1_0);
        // One with an unknown entity, or cut within one, is taken as it is spelled.
        let value = value.unwrap_or_else(|_| attribute.value.clone());
        let name = attribute.key.local_name().as_ref().to_owned();
        attributes.push((name, value.into_owned()));
    }
    names.sort_unstable();
    if names.windows(2).any(|two| two[0] == two[1]) {
        return None;
    }
    Some(Element {
        name: start.local_name().as_ref().to_owned(),
        parent: open
            .last()
            .map(|(name, _)| name.clone())
            .unwrap_or_default(),
        depth: open.len(),
        attributes,
    })
}

/// The local name of the root element of a document that begins like this.
pub(super) fn root(head: &str) -> Option<String> {
    let mut reader = quick_xml::Reader::from_str(head);
    loop {
        match reader.read_event().ok()? {
            Event::Start(start) | Event::Empty(start) => {
                return Some(start.local_name().as_ref().to_owned());
            }
            Event::Eof => return None,
            _ => {}
        }
    }
}

/// Whether the element may be where it is: the root has to be one of these.
pub(super) fn expect_root(element: &Element, roots: &[&str], reading: &mut Reading) -> bool {
    let fits = element.depth > 0 || roots.contains(&element.name.as_str());
    if !fits {
        reading.broken(
            "wrong_root",
            format!(
                "the root element is <{}>, not <{}>",
                element.name,
                roots.join("> or <")
            ),
        );
    }
    fits
}
