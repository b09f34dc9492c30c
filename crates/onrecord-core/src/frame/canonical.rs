//! Reading a frame from canonical bytes, whose members stand in one order only.
//!
//! This is the way of every frame that is well, in one pass. It reads nothing that is not canonical: each
//! step takes the one spelling of what it is for, and leaves the body to the scanner. It gives what
//! checking the bytes and then reading by names gives, or nothing: a fault, a member that is not ours, or
//! one that is not as we have it, is left to be named there.

use super::{Actor, Frame, Link, PayloadRef, Redaction, Submitted, Trace};
use crate::json::{canonical_value, plain_run, unescape};
use crate::limits::SAFE_INTEGER;
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;

/// The frame that a text is, which is canonical then.
pub(super) fn frame(text: &str) -> Option<Frame<'_>> {
    let mut cursor = Cursor {
        text,
        at: 0,
        before: b'{',
    };
    let frame = cursor.frame()?;
    (cursor.at == text.len()).then_some(frame)
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// What stands before the next member: a brace before the first of an object, else a comma.
    before: u8,
}

impl<'a> Cursor<'a> {
    fn frame(&mut self) -> Option<Frame<'a>> {
        // In the order of their names, whatever the order in the structure.
        let actor = self.required("actor", Self::actor)?;
        let at = self.required("at", Self::parsed)?;
        let body = self.required("body", Self::object)?;
        let key = self.required("key", Self::string)?;
        let kind = self.required("kind", |this| this.word(super::Kind::from_word))?;
        let links = self.optional("links", |this| this.list(Self::link))?;
        let occurred_at = self.optional("occurred_at", Self::parsed)?;
        let onrecord = self.required("onrecord", Self::string)?;
        let payloads = self.optional("payloads", |this| this.list(Self::payload))?;
        let prev = self.required("prev", Self::parsed)?;
        let run = self.required("run", Self::parsed)?;
        let seq = self.required("seq", Self::number)?;
        let submitted = self.optional("submitted", Self::submitted)?;
        let tenant = self.required("tenant", Self::parsed)?;
        let trace = self.optional("trace", Self::trace)?;
        let turn = self.optional("turn", Self::number)?;
        self.eat("}")?;
        Some(Frame {
            onrecord,
            tenant,
            run,
            seq,
            prev,
            kind,
            key,
            at,
            occurred_at,
            turn,
            actor,
            body,
            payloads,
            links,
            trace,
            submitted,
        })
    }

    fn actor(&mut self) -> Option<Actor> {
        self.before = b'{';
        let actor = Actor {
            id: self.required("id", Self::owned)?,
            keyid: self.optional("keyid", Self::parsed)?,
            kind: self.required("type", |this| this.word(super::ActorType::from_word))?,
        };
        self.eat("}").map(|()| actor)
    }

    fn payload(&mut self) -> Option<PayloadRef> {
        self.before = b'{';
        let payload = PayloadRef {
            commit: self.required("commit", Self::parsed)?,
            kept: self.optional("kept", Self::boolean)?,
            media: self.required("media", Self::owned)?,
            name: self.required("name", Self::owned)?,
            redactions: self.optional("redactions", |this| this.list(Self::redaction))?,
            size: self.required("size", Self::number)?,
            tier: self.required("tier", Self::number)?.try_into().ok()?,
        };
        self.eat("}").map(|()| payload)
    }

    fn redaction(&mut self) -> Option<Redaction> {
        self.before = b'{';
        let redaction = Redaction {
            fingerprint: self.optional("fingerprint", Self::parsed)?,
            kind: self.required("kind", Self::owned)?,
            pointer: self.optional("pointer", Self::owned)?,
            range: self.optional("range", Self::range)?,
            rule: self.required("rule", Self::owned)?,
            rules: self.required("rules", Self::owned)?,
        };
        self.eat("}").map(|()| redaction)
    }

    fn range(&mut self) -> Option<(u64, u64)> {
        self.eat("[")?;
        let start = self.number()?;
        self.eat(",")?;
        let end = self.number()?;
        self.eat("]").map(|()| (start, end))
    }

    fn link(&mut self) -> Option<Link> {
        self.before = b'{';
        let link = Link {
            hash: self.optional("hash", Self::parsed)?,
            rel: self.required("rel", |this| this.word(super::Rel::from_word))?,
            run: self.optional("run", Self::parsed)?,
            seq: self.optional("seq", Self::number)?,
        };
        self.eat("}").map(|()| link)
    }

    fn trace(&mut self) -> Option<Trace> {
        self.before = b'{';
        let trace = Trace {
            span_id: self.required("span_id", Self::owned)?,
            trace_id: self.required("trace_id", Self::owned)?,
        };
        self.eat("}").map(|()| trace)
    }

    fn submitted(&mut self) -> Option<Submitted> {
        self.before = b'{';
        let submitted = Submitted {
            keyid: self.required("keyid", Self::parsed)?,
            n: self.required("n", Self::number)?,
            sig: self.required("sig", Self::owned)?,
        };
        self.eat("}").map(|()| submitted)
    }

    #[inline(always)]
    fn required<T>(&mut self, name: &str, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.member(name) { read(self) } else { None }
    }

    /// The outer `None` is a member that is there and cannot be read.
    #[inline(always)]
    fn optional<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Option<T>> {
        if self.member(name) {
            read(self).map(Some)
        } else {
            Some(None)
        }
    }

    /// Steps over the name of the next member, and over the brace or the comma before it, if it is this one.
    #[inline(always)]
    fn member(&mut self, name: &str) -> bool {
        let rest = &self.text.as_bytes()[self.at..];
        let end = name.len() + 2;
        let is_next = rest.len() > end + 1
            && rest[0] == self.before
            && rest[1] == b'"'
            && rest[2..end] == *name.as_bytes()
            && rest[end..end + 2] == *b"\":";
        if is_next {
            // Every object has a member, so that this holds after it, too.
            self.before = b',';
            self.at += end + 2;
        }
        is_next
    }

    #[inline(always)]
    fn eat(&mut self, expected: &str) -> Option<()> {
        let found = self.text.as_bytes()[self.at..].starts_with(expected.as_bytes());
        found.then(|| self.at += expected.len())
    }

    fn list<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        self.eat("[")?;
        let mut all = Vec::new();
        if self.eat("]").is_some() {
            return Some(all);
        }
        loop {
            all.push(read(self)?);
            if self.eat(",").is_none() {
                return self.eat("]").map(|()| all);
            }
        }
    }

    fn boolean(&mut self) -> Option<bool> {
        let value = self.eat("true").is_some();
        (value || self.eat("false").is_some()).then_some(value)
    }

    /// A whole number; one with a sign, a point or an exponent is left at what follows its digits.
    fn number(&mut self) -> Option<u64> {
        let (bytes, start) = (self.text.as_bytes(), self.at);
        let mut value = 0u64;
        while let Some(digit @ b'0'..=b'9') = bytes.get(self.at) {
            value = value.checked_mul(10)?.checked_add((digit - b'0').into())?;
            self.at += 1;
        }
        let digits = self.at - start;
        let leads = digits > 1 && bytes[start] == b'0';
        (digits > 0 && !leads && value <= SAFE_INTEGER.unsigned_abs()).then_some(value)
    }

    /// What stands between the quotes.
    #[inline]
    fn quoted(&mut self) -> Option<&'a str> {
        let open = self.at;
        self.eat("\"")?;
        let end = plain_run(self.text.as_bytes(), self.at);
        self.at = match self.text.as_bytes().get(end) {
            Some(b'"') => end + 1,
            _ => canonical_value(self.text, open, 0)?,
        };
        self.text.get(open + 1..self.at - 1)
    }

    fn string(&mut self) -> Option<Cow<'a, str>> {
        let raw = self.quoted()?;
        Some(if raw.contains('\\') {
            Cow::Owned(unescape(raw))
        } else {
            Cow::Borrowed(raw)
        })
    }

    fn owned(&mut self) -> Option<String> {
        self.string().map(Cow::into_owned)
    }

    /// A text none of whose characters is ever escaped.
    fn parsed<T: FromStr>(&mut self) -> Option<T> {
        self.quoted()?.parse().ok()
    }

    fn word<T>(&mut self, from_word: impl Fn(&str) -> Option<T>) -> Option<T> {
        from_word(self.quoted()?)
    }

    /// An object of any members, in the frame's own.
    fn object(&mut self) -> Option<&'a str> {
        let start = self.at;
        if self.text.as_bytes().get(start) != Some(&b'{') {
            return None;
        }
        self.at = canonical_value(self.text, start, 1)?;
        self.text.get(start..self.at)
    }
}

#[cfg(test)]
mod tests;
