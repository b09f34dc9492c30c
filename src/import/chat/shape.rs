//! The shapes that a chat has as JSON, told by their members.

use serde_json::Value;

use super::{item, text};

/// Items of a list that are looked at.
const LOOK: usize = 8;

/// Roles that chats have.
const ROLES: [&str; 8] = [
    "system",
    "developer",
    "user",
    "human",
    "assistant",
    "model",
    "tool",
    "function",
];

/// What a JSON value is, as a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A list of messages or items.
    Messages,
    /// An object with `messages` or `input`, or an answer with `choices` or `output`, or both.
    Exchange,
    /// One message of a model, as Anthropic's API answers.
    Message,
    /// A conversation of ChatGPT's export.
    ChatGpt,
    /// A conversation of Claude.ai's export.
    ClaudeAi,
    /// A list of conversations, all of this shape.
    Many(Export),
}

/// What a list of conversations has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Export {
    /// Objects with `messages`.
    Exchanges,
    /// ChatGPT's conversations.
    ChatGpt,
    /// Claude.ai's conversations.
    ClaudeAi,
}

impl Shape {
    /// The shape of a value; `None` where it is no chat. An outline of the value is enough.
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Array(_) if messages(value) => Some(Self::Messages),
            Value::Array(items) => {
                let all = |test: fn(&Value) -> bool| {
                    !items.is_empty() && items.iter().take(LOOK).all(test)
                };
                let exchange = |one: &Value| one.get("messages").is_some_and(messages);
                if all(is_chatgpt) {
                    Some(Self::Many(Export::ChatGpt))
                } else if all(is_claude_ai) {
                    Some(Self::Many(Export::ClaudeAi))
                } else {
                    all(exchange).then_some(Self::Many(Export::Exchanges))
                }
            }
            _ if is_chatgpt(value) => Some(Self::ChatGpt),
            _ if is_claude_ai(value) => Some(Self::ClaudeAi),
            _ if is_answer(value) => Some(Self::Message),
            _ => is_exchange(value).then_some(Self::Exchange),
        }
    }
}

/// Whether this is a list of messages or items, at least one of them with a role that chats have or
/// of a type that only Responses have.
pub(super) fn messages(value: &Value) -> bool {
    let Some(items) = value.as_array() else {
        return false;
    };
    let look = || items.iter().take(LOOK);
    let known = |one: &Value| match text(one, "role") {
        Some(role) => ROLES.contains(&role),
        None => item::is_item(one),
    };
    look().any(known) && look().all(|one| is_message(one) || item::is_item(one))
}

/// Whether this is an object with a role and something said. Roles of all kinds are: what comes of
/// them is seen later.
pub(super) fn is_message(value: &Value) -> bool {
    let said = match value.get("content") {
        Some(content) => content.is_string() || content.is_array() || content.is_null(),
        None => {
            let call = value.get("function_call").is_some_and(Value::is_object);
            call || value.get("tool_calls").is_some_and(Value::is_array)
        }
    };
    said && text(value, "role").is_some()
}

/// Whether this is a request, an answer, or both.
pub(super) fn is_exchange(value: &Value) -> bool {
    let list = |member: &str| value.get(member).is_some_and(messages);
    let choice = |one: &Value| one.get("message").is_some_and(is_message);
    let choices = value.get("choices").and_then(Value::as_array);
    let response = text(value, "object") == Some("response");
    let asked = text(value, "input").is_some() && text(value, "model").is_some();
    list("messages")
        || choices.is_some_and(|all| !all.is_empty() && all.iter().all(choice))
        || (list("input") && text(value, "model").is_some())
        || (list("output") && (response || asked || list("input")))
}

fn is_answer(value: &Value) -> bool {
    text(value, "type") == Some("message")
        && text(value, "role") == Some("assistant")
        && value.get("content").is_some_and(Value::is_array)
}

fn is_chatgpt(value: &Value) -> bool {
    let node = |node: &Value| node.get("message").is_some() && node.get("children").is_some();
    let mapping = value.get("mapping").and_then(Value::as_object);
    let named = text(value, "conversation_id").is_some();
    mapping.is_some_and(|nodes| (named || !nodes.is_empty()) && nodes.values().take(LOOK).all(node))
}

fn is_claude_ai(value: &Value) -> bool {
    let message = |one: &Value| text(one, "sender").is_some() && text(one, "uuid").is_some();
    let messages = value.get("chat_messages").and_then(Value::as_array);
    messages.is_some_and(|all| all.iter().take(LOOK).all(message)) && text(value, "uuid").is_some()
}
