//! Writing a frame: a draft, and its canonical bytes at a place.

use super::{Actor, FORMAT, Kind, Link, PayloadRef, Redaction, Submitted, Trace};
use crate::digest::Hash;
use crate::id::{RunId, TenantId};
use crate::json::write_string;
use crate::timestamp::Timestamp;
use alloc::string::String;
use alloc::vec::Vec;

/// A frame before it has its place: all but `onrecord`, `tenant`, `run`, `seq`, `prev` and `at`.
#[derive(Clone, Debug)]
pub struct Draft {
    /// What it records.
    pub kind: Kind,
    /// Idempotency key.
    pub key: String,
    /// The writer's time.
    pub occurred_at: Option<Timestamp>,
    /// Number of its turn.
    pub turn: Option<u64>,
    /// Who writes it.
    pub actor: Actor,
    /// Canonical bytes of an object.
    pub body: Vec<u8>,
    /// Payloads by commitment.
    pub payloads: Vec<PayloadRef>,
    /// Links.
    pub links: Vec<Link>,
    /// Trace context.
    pub trace: Option<Trace>,
    /// The agent's signature.
    pub submitted: Option<Submitted>,
}

impl Draft {
    /// The canonical bytes of the frame at its place. Members stand in the order of RFC 8785, which
    /// for these names is the order of their ASCII letters.
    pub fn write(
        &self,
        tenant: &TenantId,
        run: &RunId,
        seq: u64,
        prev: &Hash,
        at: Timestamp,
    ) -> Vec<u8> {
        let length = 640 + self.body.len() + 256 * self.payloads.len() + 64 * self.links.len();
        let mut out = Vec::with_capacity(length);
        put(&mut out, r#"{"actor":"#);
        actor(&mut out, &self.actor);
        put(&mut out, r#","at":"#);
        plain(&mut out, &at.text());
        put(&mut out, r#","body":"#);
        out.extend_from_slice(&self.body);
        put(&mut out, r#","key":"#);
        write_string(&mut out, &self.key);
        put(&mut out, r#","kind":"#);
        plain(&mut out, self.kind.as_str().as_bytes());
        if !self.links.is_empty() {
            put(&mut out, r#","links":"#);
            list(&mut out, &self.links, link);
        }
        if let Some(occurred_at) = self.occurred_at {
            put(&mut out, r#","occurred_at":"#);
            plain(&mut out, &occurred_at.text());
        }
        put(&mut out, r#","onrecord":"#);
        plain(&mut out, FORMAT.as_bytes());
        if !self.payloads.is_empty() {
            put(&mut out, r#","payloads":"#);
            list(&mut out, &self.payloads, payload);
        }
        put(&mut out, r#","prev":"#);
        plain(&mut out, &prev.digits());
        put(&mut out, r#","run":"#);
        plain(&mut out, run.as_str().as_bytes());
        put(&mut out, r#","seq":"#);
        number(&mut out, seq);
        if let Some(one) = &self.submitted {
            put(&mut out, r#","submitted":"#);
            submitted(&mut out, one);
        }
        put(&mut out, r#","tenant":"#);
        plain(&mut out, tenant.as_str().as_bytes());
        if let Some(one) = &self.trace {
            put(&mut out, r#","trace":"#);
            trace(&mut out, one);
        }
        if let Some(turn) = self.turn {
            put(&mut out, r#","turn":"#);
            number(&mut out, turn);
        }
        out.push(b'}');
        out
    }
}

fn actor(out: &mut Vec<u8>, one: &Actor) {
    put(out, r#"{"id":"#);
    write_string(out, &one.id);
    if let Some(keyid) = &one.keyid {
        put(out, r#","keyid":"#);
        plain(out, &keyid.digits());
    }
    put(out, r#","type":"#);
    plain(out, one.kind.as_str().as_bytes());
    out.push(b'}');
}

fn link(out: &mut Vec<u8>, one: &Link) {
    out.push(b'{');
    if let Some(hash) = &one.hash {
        put(out, r#""hash":"#);
        plain(out, &hash.digits());
        out.push(b',');
    }
    put(out, r#""rel":"#);
    plain(out, one.rel.as_str().as_bytes());
    if let Some(run) = &one.run {
        put(out, r#","run":"#);
        plain(out, run.as_str().as_bytes());
    }
    if let Some(seq) = one.seq {
        put(out, r#","seq":"#);
        number(out, seq);
    }
    out.push(b'}');
}

fn payload(out: &mut Vec<u8>, one: &PayloadRef) {
    put(out, r#"{"commit":"#);
    plain(out, &one.commit.digits());
    if let Some(kept) = one.kept {
        put(out, r#","kept":"#);
        put(out, if kept { "true" } else { "false" });
    }
    put(out, r#","media":"#);
    write_string(out, &one.media);
    put(out, r#","name":"#);
    write_string(out, &one.name);
    if let Some(redactions) = &one.redactions {
        put(out, r#","redactions":"#);
        list(out, redactions, redaction);
    }
    put(out, r#","size":"#);
    number(out, one.size);
    put(out, r#","tier":"#);
    number(out, one.tier.into());
    out.push(b'}');
}

fn redaction(out: &mut Vec<u8>, one: &Redaction) {
    // Its members are declared in canonical order and hold no fractions, so this is what RFC 8785 writes.
    if let Ok(bytes) = serde_json::to_vec(one) {
        out.extend_from_slice(&bytes);
    }
}

fn submitted(out: &mut Vec<u8>, one: &Submitted) {
    put(out, r#"{"keyid":"#);
    plain(out, &one.keyid.digits());
    put(out, r#","n":"#);
    number(out, one.n);
    put(out, r#","sig":"#);
    write_string(out, &one.sig);
    out.push(b'}');
}

fn trace(out: &mut Vec<u8>, one: &Trace) {
    put(out, r#"{"span_id":"#);
    write_string(out, &one.span_id);
    put(out, r#","trace_id":"#);
    write_string(out, &one.trace_id);
    out.push(b'}');
}

fn list<T>(out: &mut Vec<u8>, all: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (index, one) in all.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, one);
    }
    out.push(b']');
}

fn put(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

/// A string of characters that no string escapes.
fn plain(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(text);
    out.push(b'"');
}

fn number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
