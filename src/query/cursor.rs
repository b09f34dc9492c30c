//! Cursors: where the next page of a query begins, for whoever asked for the page before and for that query only.
//!
//! base64url of a version, a digest of the query, the key of the last row at full precision, and a MAC under a key of the
//! tenant. So a page that is asked for with a cursor belongs to a query that was entered into the ledger.

use crate::record::{RecordError, Recorder};
use crate::store::search::frames::FrameKey;
use crate::store::search::payloads::PayloadKey;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;

const VERSION: u8 = 1;
/// Bytes of the digest of a query, and of the MAC.
const HALF: usize = 16;

/// Why a text is no cursor of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadCursor {
    /// It was not made here, or was changed since.
    #[error("the cursor is not one that was given out here")]
    Garbled,
    /// It goes on with something else.
    #[error("the cursor is of another query, another order or another caller")]
    OtherQuery,
}

/// The last row of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Run(RunId),
    Frame(FrameKey),
    Payload(PayloadKey),
}

impl Key {
    pub(super) fn run(self) -> Option<RunId> {
        match self {
            Self::Run(run) => Some(run),
            _ => None,
        }
    }

    pub(super) fn frame(self) -> Option<FrameKey> {
        match self {
            Self::Frame(key) => Some(key),
            _ => None,
        }
    }

    pub(super) fn payload(self) -> Option<PayloadKey> {
        match self {
            Self::Payload(key) => Some(key),
            _ => None,
        }
    }

    /// A letter for what it is of, and its parts.
    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Run(run) => [&b"r"[..], &run.to_bits().to_be_bytes()].concat(),
            Self::Frame(FrameKey { at, run, seq }) => [
                &b"f"[..],
                &at.micros().to_be_bytes(),
                &run.to_bits().to_be_bytes(),
                &seq.to_be_bytes(),
            ]
            .concat(),
            Self::Payload(PayloadKey { run, seq, place }) => [
                &b"p"[..],
                &run.to_bits().to_be_bytes(),
                &seq.to_be_bytes(),
                &place.to_be_bytes(),
            ]
            .concat(),
        }
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (letter, mut rest) = bytes.split_first()?;
        let key = match letter {
            b'r' => Self::Run(run(&mut rest)?),
            b'f' => Self::Frame(FrameKey {
                at: Timestamp::from_micros(number(&mut rest)?.cast_signed())?,
                run: run(&mut rest)?,
                seq: number(&mut rest)?,
            }),
            b'p' => Self::Payload(PayloadKey {
                run: run(&mut rest)?,
                seq: number(&mut rest)?,
                place: number(&mut rest)?,
            }),
            _ => return None,
        };
        rest.is_empty().then_some(key)
    }
}

fn run(rest: &mut &[u8]) -> Option<RunId> {
    let (run, left) = rest.split_first_chunk::<16>()?;
    *rest = left;
    Some(RunId::from_bits(u128::from_be_bytes(*run)))
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, left) = rest.split_first_chunk::<8>()?;
    *rest = left;
    Some(u64::from_be_bytes(*number))
}

/// The cursor of a page's last row. `query` is a digest of all that the following page has to be asked for with.
pub(super) async fn write(
    recorder: &Recorder,
    tenant: &TenantId,
    query: &[u8; HALF],
    key: &Key,
) -> Result<String, RecordError> {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(query);
    bytes.extend(key.to_bytes());
    let mac = recorder.cursor_mac(tenant, &bytes).await?;
    bytes.extend_from_slice(&mac);
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// The row that a cursor names.
pub(super) async fn read(
    recorder: &Recorder,
    tenant: &TenantId,
    query: &[u8; HALF],
    text: &str,
) -> Result<Result<Key, BadCursor>, RecordError> {
    let bytes = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
    let Some((signed, mac)) = bytes.split_last_chunk::<HALF>() else {
        return Ok(Err(BadCursor::Garbled));
    };
    let expected = recorder.cursor_mac(tenant, signed).await?;
    if !bool::from(subtle::ConstantTimeEq::ct_eq(&expected[..], &mac[..])) {
        return Ok(Err(BadCursor::Garbled));
    }
    let parts = signed
        .strip_prefix(&[VERSION])
        .and_then(|rest| rest.split_first_chunk::<HALF>());
    let key = parts.and_then(|(of, key)| Some((of, Key::from_bytes(key)?)));
    Ok(match key {
        None => Err(BadCursor::Garbled),
        Some((of, _)) if of != query => Err(BadCursor::OtherQuery),
        Some((_, key)) => Ok(key),
    })
}
