//! Every limit of the format in one place (spec: `docs/spec/json.md`, `docs/spec/frames.md`).

/// Bytes of a frame, as received and as canonical.
pub const FRAME_BYTES: usize = 65_536;
/// Bytes of a signed statement's envelope: what fits a C2SP entry bundle.
pub const ENVELOPE_BYTES: usize = 65_535;
/// Nesting of JSON: the outer value is 1.
pub const DEPTH: usize = 32;
/// The largest magnitude that every JSON reader keeps exactly: 2^53 − 1.
pub const SAFE_INTEGER: i64 = 9_007_199_254_740_991;
/// Bytes of one payload before padding.
pub const PAYLOAD_BYTES: usize = 16 * 1024 * 1024;
/// Characters of an idempotency key.
pub const KEY_CHARS: usize = 200;
/// Characters of a media type.
pub const MEDIA_CHARS: usize = 127;
/// Characters of a payload's name.
pub const NAME_CHARS: usize = 64;
/// Characters of an actor's id.
pub const ACTOR_CHARS: usize = 200;
/// Payloads of one frame that a store takes; a reader has no such limit.
pub const PAYLOADS: usize = 64;
