//! Plain chats: what the APIs of OpenAI and Anthropic take and give, saved as a file, exports of ChatGPT
//! and Claude.ai, and conversations written down as Markdown.
//!
//! A record is a message, or an item of OpenAI's Responses. A file that is one conversation is one run;
//! of a file of many, each is a run of its own, linked with the file's. Of the file's own account of a
//! conversation (its title, the model's settings), what later versions may say differently is in a frame
//! whose key is made of its content.

mod chatgpt;
mod claude_ai;
mod exchange;
mod item;
mod lines;
mod markdown;
mod shape;
mod talk;
mod whole;

use std::path::Path;

use serde_json::Value;

use super::conversation::session;
use super::request::{key_part, label};
use super::sample::Sample;
use super::text::{Written, counted_time, written_time};
use super::{Format, ImportError, Opening, Transcript};
use shape::Shape;

/// Whether the file is a conversation. This is the last format that is tried, and it takes only what
/// cannot be much else: a list counts if all of its first items are messages.
pub(super) fn fits(sample: &Sample) -> bool {
    match &sample.document {
        Some(document) => Shape::of(document).is_some(),
        None => lines::fits(&sample.text, &sample.records) || markdown::fits(&sample.text),
    }
}

/// Opens a file.
///
/// # Errors
/// The file cannot be read, is too large to be read as a whole, or is no conversation.
pub(super) fn open(path: &Path, session: Option<&str>) -> Result<Box<dyn Transcript>, ImportError> {
    let sample = Sample::of(path)?;
    if sample.document.is_some() {
        return whole::open(path, session);
    }
    // A text may have objects among its lines too.
    match sample.text.trim_start().starts_with('{') {
        true => lines::open(path, session, &sample.records),
        false => markdown::open(path, session),
    }
}

/// The `session` frame's request of a run with this name. `account` is what the file says about the
/// conversation: when it began, and who answered, if that is known.
fn opening(name: &str, agent: Option<&str>, account: Option<&Value>, times: bool) -> Opening {
    let mut body = session(Format::Chat, agent.unwrap_or(""), None, times);
    // A chat may be about anything, and with anybody.
    body.remove("profile");
    if agent.is_none() {
        body.remove("agent");
    }
    if let Some(id) = label(&name.into()) {
        body.insert("session_id".into(), id);
    }
    Opening {
        key: format!("import/chat/{}", key_part(name)),
        session: body,
        payloads: Vec::new(),
        occurred_at: account.and_then(time).and_then(|time| time.at),
    }
}

/// The time of a message or a conversation, under the names that chats have for it.
fn time(value: &Value) -> Option<Written> {
    [
        "timestamp",
        "created_at",
        "createdAt",
        "create_time",
        "created",
        "time",
    ]
    .into_iter()
    .find_map(|member| match value.get(member)? {
        Value::String(text) => written_time(text),
        number => counted_time(number),
    })
}

/// The text of a member.
fn text<'v>(value: &'v Value, member: &str) -> Option<&'v str> {
    value.get(member)?.as_str()
}
