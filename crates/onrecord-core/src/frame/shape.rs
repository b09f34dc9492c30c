//! The shapes of a frame's members, for those who read frames and those who write them.

use super::{Actor, Link, PayloadRef, Redaction, Submitted, Trace};
use crate::limits;
use crate::payload;
use alloc::format;
use alloc::string::String;

/// An idempotency key: 1 to 200 printable ASCII characters.
pub fn check_key(key: &str) -> Result<(), String> {
    if key.is_empty() || key.len() > limits::KEY_CHARS || !printable(key) {
        return Err(format!(
            "key: 1 to {} printable ASCII characters",
            limits::KEY_CHARS
        ));
    }
    Ok(())
}

/// A body: the canonical bytes of an object.
pub fn check_body(body: &[u8]) -> Result<(), String> {
    if body.first() == Some(&b'{') {
        Ok(())
    } else {
        Err("body: an object".into())
    }
}

/// An actor: an id of 1 to 200 characters without control characters.
pub fn check_actor(actor: &Actor) -> Result<(), String> {
    let length = actor.id.chars().count();
    if length == 0 || length > limits::ACTOR_CHARS || actor.id.chars().any(char::is_control) {
        return Err(format!(
            "actor.id: 1 to {} characters, no control characters",
            limits::ACTOR_CHARS
        ));
    }
    Ok(())
}

/// The media type of a payload: 1 to 127 printable ASCII characters.
pub fn check_media(media: &str) -> Result<(), String> {
    if media.is_empty() || media.len() > limits::MEDIA_CHARS || !printable(media) {
        return Err(format!(
            "media: 1 to {} printable ASCII characters",
            limits::MEDIA_CHARS
        ));
    }
    Ok(())
}

/// The name of a payload: `[a-z][a-z0-9_.-]{0,63}`.
pub fn check_name(name: &str) -> Result<(), String> {
    let rest = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'-')
    };
    let fits = name.len() <= limits::NAME_CHARS
        && name.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
        && name.bytes().all(rest);
    if fits {
        Ok(())
    } else {
        Err("name: a lower-case letter and up to 63 of a-z, 0-9, `_`, `.`, `-`".into())
    }
}

/// A W3C trace context: 32 and 16 lower-case hex digits, not all zero.
pub fn check_trace(trace: &Trace) -> Result<(), String> {
    let fits = |text: &str, length: usize| {
        text.len() == length
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            && text.bytes().any(|byte| byte != b'0')
    };
    if fits(&trace.trace_id, 32) && fits(&trace.span_id, 16) {
        return Ok(());
    }
    Err("trace: trace_id of 32 and span_id of 16 lower-case hex digits, not all zero".into())
}

/// Payload references: not empty where present, each of the right shape.
pub fn check_payloads(payloads: Option<&[PayloadRef]>) -> Result<(), String> {
    let Some(payloads) = payloads else {
        return Ok(());
    };
    if payloads.is_empty() {
        return Err("payloads: absent rather than empty".into());
    }
    for one in payloads {
        check_name(&one.name)?;
        check_media(&one.media)?;
        if !payload::is_bucket(one.size) {
            return Err(format!("payloads: size {} is no bucket", one.size));
        }
        if one.tier > 3 {
            return Err("payloads: tier is 0 to 3".into());
        }
        if one.kept == Some(true) {
            return Err("payloads: kept is false or absent".into());
        }
        check_redactions(one.redactions.as_deref())?;
    }
    Ok(())
}

fn check_redactions(redactions: Option<&[Redaction]>) -> Result<(), String> {
    let Some(redactions) = redactions else {
        return Ok(());
    };
    if redactions.is_empty() {
        return Err("redactions: absent rather than empty".into());
    }
    for one in redactions {
        let place = match (&one.pointer, one.range) {
            (Some(pointer), None) => pointer.is_empty() || pointer.starts_with('/'),
            (None, Some((start, end))) => start < end,
            _ => false,
        };
        if !place {
            return Err("redactions: either a pointer or a range that is not empty".into());
        }
    }
    Ok(())
}

/// Links: not empty where present, each `{rel, seq}` or `{rel, run, hash}`.
pub fn check_links(links: Option<&[Link]>) -> Result<(), String> {
    let Some(links) = links else { return Ok(()) };
    if links.is_empty() {
        return Err("links: absent rather than empty".into());
    }
    let fits = |link: &Link| {
        matches!(
            (link.seq, &link.run, &link.hash),
            (Some(_), None, None) | (None, Some(_), Some(_))
        )
    };
    if links.iter().all(fits) {
        Ok(())
    } else {
        Err("links: each is {rel, seq} or {rel, run, hash}".into())
    }
}

/// A signature: `n` counts from 1, `sig` are 64 bytes in base64.
pub fn check_submitted(submitted: &Submitted) -> Result<(), String> {
    if submitted.n == 0 {
        return Err("submitted.n: counts from 1".into());
    }
    signature(&submitted.sig)
        .map(|_| ())
        .ok_or_else(|| "submitted.sig: 64 bytes in base64".into())
}

/// The 64 bytes of a signature in canonical base64.
pub fn signature(text: &str) -> Option<[u8; 64]> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .ok()?
        .try_into()
        .ok()
}

fn printable(text: &str) -> bool {
    text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
}
