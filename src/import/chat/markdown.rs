//! Conversations written down as Markdown: a line names who speaks, and what follows is what was said.
//!
//! Four ways to name a speaker are known: a heading (`## User`), bold with a colon (`**User:** …`) or
//! alone on its line (`**User**`), and plain (`User: …`). The first that a file uses is the file's own: in
//! the others its texts may speak of users. Inside of code fences nobody speaks.

use std::collections::VecDeque;
use std::path::Path;

use super::opening;
use crate::import::conversation::Conversation;
use crate::import::document::{Document, Parts, bytes};
use crate::import::payload::Payload;
use crate::import::request::FrameRequest;
use crate::import::{Format, ImportError, Sink, Transcript, stem};

/// Speakers that are looked for.
const LOOK: usize = 64;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaker {
    User,
    Model,
    System,
    Tool,
}

/// How a file names its speakers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// A heading of so many `#`.
    Heading(usize),
    Bold,
    Plain,
}

/// What one of them said, or what stands before the first of them.
struct Section<'t> {
    speaker: Option<Speaker>,
    /// Blank lines and rules before the speaker's name.
    gap: &'t str,
    /// The speaker's name as it is written, up to what is said.
    name: &'t str,
    said: &'t str,
}

/// Whether a user and a model speak one after the other in a text.
pub(super) fn fits(text: &str) -> bool {
    let sections = sections(text);
    let speakers = sections.iter().filter_map(|section| section.speaker);
    let talk: Vec<_> = speakers.take(LOOK).collect();
    talk.windows(2)
        .any(|pair| pair == [Speaker::User, Speaker::Model])
}

/// Opens a text.
///
/// # Errors
/// The file cannot be read, is too large, no UTF-8, or has no two speakers.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let bytes = bytes(path, Format::Chat)?;
    let length = bytes.len() as u64;
    let Ok(text) = String::from_utf8(bytes) else {
        return Err(Format::Chat.refused(path, "it is neither JSON nor text in UTF-8"));
    };
    if !fits(&text) {
        let why = "it is neither JSON nor a text in which a user and a model speak in turn, each \
            named on a line (`## User`, `**User:**`, `User:`)";
        return Err(Format::Chat.refused(path, why));
    }
    let name = session.map_or_else(|| stem(path), str::to_owned);
    let frames = frames(&sections(&text));
    let parts = Text {
        total: frames.len(),
        frames,
    };
    let opening = opening(&name, None, None, false);
    Ok(Box::new(Document::new(length, opening, parts)))
}

/// The frames of a text.
struct Text {
    frames: VecDeque<FrameRequest>,
    total: usize,
}

impl Parts for Text {
    fn step(&mut self, out: &mut Sink<'_>) -> bool {
        let Some(frame) = self.frames.pop_front() else {
            return false;
        };
        out.record();
        out.frame(frame);
        true
    }

    fn progress(&self) -> (usize, usize) {
        (self.total - self.frames.len(), self.total)
    }
}

fn frames(sections: &[Section<'_>]) -> VecDeque<FrameRequest> {
    let mut conversation = Conversation::default();
    let mut frames = VecDeque::new();
    for (index, section) in sections.iter().enumerate() {
        let key = format!("message/{}", index + 1);
        let (mut frame, name) = match section.speaker {
            None => (conversation.classed("context", "preamble", key), "text"),
            Some(Speaker::System) => {
                let frame = conversation.classed("context", "system_prompt", key);
                (frame, "text")
            }
            Some(Speaker::User) => (conversation.prompt(key), "prompt"),
            Some(Speaker::Model) => (conversation.answer(key), "text"),
            // Which call it answers, the text does not say.
            Some(Speaker::Tool) => (conversation.result(key, None).0, "result"),
        };
        for (name, text) in [
            ("gap", section.gap),
            ("name", section.name),
            (name, section.said),
        ] {
            if !text.is_empty() {
                frame.attach(Payload::text(name, text.to_owned()));
            }
        }
        frames.push_back(frame);
    }
    frames
}

/// Cuts a text where its speakers change. What they said and the names and gaps between make the text
/// again, but for blank lines at its end.
fn sections(text: &str) -> Vec<Section<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut marks: Vec<(usize, usize, Speaker)> = Vec::new();
    let mut style = None;
    let mut fence: Option<&str> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let mark = fence_of(line);
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            // A fence ends with one of its own kind, at least as long, and nothing after it.
            (Some(open), Some(mark)) if mark.starts_with(open) && line.trim() == mark => {
                fence = None;
            }
            (None, None) => {
                if let Some((found, speaker, name)) = speaker(line)
                    && *style.get_or_insert(found) == found
                {
                    marks.push((start, start + name, speaker));
                }
            }
            _ => {}
        }
    }
    let first = marks.first().map_or(text.len(), |(start, ..)| *start);
    let mut sections = Vec::new();
    let mut gap;
    let (before, rest) = end_of(&text[..first]);
    gap = rest;
    if !before.is_empty() {
        sections.push(Section {
            speaker: None,
            gap: "",
            name: "",
            said: before,
        });
    }
    for (index, (start, said, speaker)) in marks.iter().enumerate() {
        let end = marks.get(index + 1).map_or(text.len(), |(next, ..)| *next);
        let (words, rest) = end_of(&text[*said..end]);
        sections.push(Section {
            speaker: Some(*speaker),
            gap,
            name: &text[*start..*said],
            said: words,
        });
        gap = rest;
    }
    sections
}

/// Divides what was said from the blank lines and rules after it: a file that grows has other ones
/// there than before.
fn end_of(text: &str) -> (&str, &str) {
    let mut words = text.trim_end();
    while let Some(line) = words.rsplit('\n').next()
        && is_rule(line)
    {
        words = words[..words.len() - line.len()].trim_end();
    }
    text.split_at(words.len())
}

fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.len() >= 3
        && ["-", "*", "_"]
            .into_iter()
            .any(|one| line.chars().all(|character| one.starts_with(character)))
}

/// The marks with which a code fence begins or ends.
fn fence_of(line: &str) -> Option<&str> {
    let line = line.trim_start_matches(' ');
    ['`', '~'].into_iter().find_map(|mark| {
        let length = line.len() - line.trim_start_matches(mark).len();
        (length >= 3).then(|| &line[..length])
    })
}

/// Whether a line names a speaker: how, whom, and how many bytes of it do.
fn speaker(line: &str) -> Option<(Style, Speaker, usize)> {
    let content = line.trim_end();
    if let Some(title) = content.strip_prefix('#') {
        let title = title.trim_start_matches('#');
        let level = content.len() - title.len();
        let name = title.strip_prefix(' ')?.trim();
        let name = name.trim_matches(['*', '_']).trim_end_matches(':');
        let speaker = named(name.trim_matches(['*', '_']).trim())?;
        return (level <= 6).then_some((Style::Heading(level), speaker, line.len()));
    }
    for mark in ["**", "__"] {
        let Some(inner) = content.strip_prefix(mark) else {
            continue;
        };
        let (name, rest) = inner.split_once(mark)?;
        let colon = name.ends_with(':') || rest.starts_with(':');
        let speaker = named(name.trim_end_matches(':').trim())?;
        if !colon && !rest.is_empty() {
            return None;
        }
        let rest = rest.strip_prefix(':').unwrap_or(rest);
        return Some((Style::Bold, speaker, said_from(line, content, rest)));
    }
    let (name, rest) = content.split_once(':')?;
    // Without any mark only names that little else begins a line with.
    let names = [
        "User",
        "Human",
        "Assistant",
        "AI",
        "ChatGPT",
        "Claude",
        "System",
    ];
    let speaker = named(name).filter(|_| names.contains(&name))?;
    Some((Style::Plain, speaker, said_from(line, content, rest)))
}

/// Where what is said begins: after the name, or on the next line.
fn said_from(line: &str, content: &str, rest: &str) -> usize {
    match rest.trim_start() {
        "" => line.len(),
        words => content.len() - words.len(),
    }
}

fn named(name: &str) -> Option<Speaker> {
    match name.to_ascii_lowercase().as_str() {
        "user" | "human" | "you" => Some(Speaker::User),
        "assistant" | "ai" | "model" | "bot" | "chatgpt" | "claude" | "gemini" | "copilot"
        | "cursor" => Some(Speaker::Model),
        "system" | "developer" => Some(Speaker::System),
        "tool" | "tool result" => Some(Speaker::Tool),
        _ => None,
    }
}
