//! What a session pins of what a run stands on, so that it can be repeated: the manifest of a replay. A reading above the format;
//! names stand in bodies as `docs/kinds.md` has them.

use crate::frame::Frame;
use crate::json;

/// Where a pin stands.
#[derive(Clone, Copy)]
enum Place {
    /// A member of the session's body, or of a member of it, and so on.
    Body(&'static [&'static str]),
    /// A payload of the session.
    Payload(&'static str),
}

/// Everything that a session should pin, by its name in reports.
const PINS: [(&str, Place); PINNED] = [
    ("agent", Place::Body(&["agent"])),
    ("mandate", Place::Body(&["mandate"])),
    ("task", Place::Payload("task")),
    ("release", Place::Body(&["release"])),
    ("toolchain", Place::Body(&["pins", "toolchain"])),
    ("image", Place::Body(&["pins", "image"])),
    (
        "repository.remote",
        Place::Body(&["pins", "repository", "remote"]),
    ),
    (
        "repository.branch",
        Place::Body(&["pins", "repository", "branch"]),
    ),
    (
        "repository.commit",
        Place::Body(&["pins", "repository", "commit"]),
    ),
    (
        "repository.dirty",
        Place::Body(&["pins", "repository", "dirty"]),
    ),
    ("untracked", Place::Payload("untracked")),
    ("lockfiles", Place::Body(&["pins", "lockfiles"])),
    ("migrations", Place::Body(&["pins", "migrations"])),
    ("environment", Place::Payload("environment")),
    ("prompts", Place::Payload("prompts")),
    ("model", Place::Body(&["pins", "model"])),
    ("sampling", Place::Body(&["pins", "sampling"])),
    ("profile", Place::Body(&["profile"])),
];

/// How many pins there are.
pub const PINNED: usize = 18;

/// Of each pin its name, and whether a session frame has it.
pub fn of(session: &Frame<'_>) -> [(&'static str, bool); PINNED] {
    PINS.map(|(name, place)| {
        let is_there = match place {
            Place::Body(path) => has(session.body.as_bytes(), path),
            Place::Payload(name) => session.payloads().iter().any(|one| one.name == name),
        };
        (name, is_there)
    })
}

/// Whether something stands at a path: neither null nor empty.
fn has(object: &[u8], path: &[&str]) -> bool {
    let Some((name, rest)) = path.split_first() else {
        let nothing: [&[u8]; 4] = [b"null", b"\"\"", b"{}", b"[]"];
        return !nothing.contains(&object);
    };
    let members = json::members(object, json::Limits::FRAME).unwrap_or_default();
    let member = members.iter().find(|member| member.name == *name);
    member.is_some_and(|member| has(member.raw, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_at_a_path_is_found() {
        let body = br#"{"agent":"a","pins":{"lockfiles":[],"model":null,"repository":{"commit":"c","dirty":false}},"release":""}"#;
        for (path, expected) in [
            (&["agent"][..], true),
            (&["release"], false),
            (&["pins", "lockfiles"], false),
            (&["pins", "model"], false),
            (&["pins", "repository", "commit"], true),
            (&["pins", "repository", "dirty"], true),
            (&["pins", "repository", "remote"], false),
            (&["agent", "name"], false),
        ] {
            assert_eq!(has(body, path), expected, "{path:?}");
        }
    }
}
