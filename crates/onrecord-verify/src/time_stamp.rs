//! RFC 3161 replies: what an authority says it saw, and when. Whether to believe it is `authority`'s to say.

use crate::der::{BadDer, Reader, only, tag};
use onrecord_core::digest::Hash;
use onrecord_core::timestamp::Timestamp;

/// Bytes of a reply at most: a chain of certificates is far below.
pub const STAMP_BYTES: usize = 65_536;

/// id-signedData (RFC 5652, 5.1), as DER has it.
const SIGNED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02];
/// id-ct-TSTInfo (RFC 3161, 2.4.2).
pub(crate) const TST_INFO: &[u8] = &[
    0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x10, 0x01, 0x04,
];
/// id-sha256, and the algorithm with it: its parameters may be NULL or absent.
const SHA256: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];

/// Why a reply is no time stamp.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadStamp {
    /// Not DER, or not of the structure of a reply.
    #[error("it is no DER of an RFC 3161 reply")]
    Malformed,
    /// The authority refused.
    #[error("the authority refused: status {0}")]
    Refused(u64),
    /// It stamps a digest other than SHA-256.
    #[error("it stamps a digest other than SHA-256")]
    Digest,
    /// Its time is none.
    #[error("its time is not one of the calendar")]
    Time,
}

impl From<BadDer> for BadStamp {
    fn from(_: BadDer) -> Self {
        Self::Malformed
    }
}

/// A reply, taken apart. Nothing of it is checked.
#[derive(Clone, Debug)]
pub struct TimeStamp {
    /// SHA-256 of what is stamped.
    pub imprint: Hash,
    /// When, by the authority's clock.
    pub time: Timestamp,
    /// What the request said to tell its reply from others, without leading zeros.
    pub nonce: Option<Vec<u8>>,
    /// The SignedData, for whoever checks who signed it.
    pub(crate) signed_data: Vec<u8>,
}

impl TimeStamp {
    /// TimeStampResp ::= SEQUENCE { status, timeStampToken } (RFC 3161, 2.4.2).
    pub fn parse(reply: &[u8]) -> Result<Self, BadStamp> {
        if reply.len() > STAMP_BYTES {
            return Err(BadStamp::Malformed);
        }
        let mut response = only(reply, tag::SEQUENCE)?;
        let status = number(response.sequence()?.integer()?)?;
        // Granted, or granted with changes.
        if status > 1 {
            return Err(BadStamp::Refused(status));
        }
        let mut token = response.sequence()?;
        response.end()?;
        if token.oid()? != SIGNED_DATA {
            return Err(BadStamp::Malformed);
        }
        let signed_data = token.expect(tag::context(0))?.content;
        token.end()?;
        let mut stamp = read_info(content(signed_data)?)?;
        stamp.signed_data = signed_data.to_vec();
        Ok(stamp)
    }
}

/// The TSTInfo in a SignedData.
pub(crate) fn content(signed_data: &[u8]) -> Result<&[u8], BadDer> {
    let mut signed = only(signed_data, tag::SEQUENCE)?;
    signed.integer()?;
    signed.expect(tag::SET)?;
    let mut encapsulated = signed.sequence()?;
    if encapsulated.oid()? != TST_INFO {
        return Err(BadDer);
    }
    let explicit = encapsulated.expect(tag::context(0))?.content;
    encapsulated.end()?;
    let mut explicit = Reader(explicit);
    let info = explicit.expect(tag::OCTET_STRING)?.content;
    explicit.end()?;
    Ok(info)
}

/// TSTInfo ::= SEQUENCE { version, policy, messageImprint, serialNumber, genTime, accuracy?, ordering?, nonce?, … }.
fn read_info(info: &[u8]) -> Result<TimeStamp, BadStamp> {
    let mut info = only(info, tag::SEQUENCE)?;
    if number(info.integer()?)? != 1 {
        return Err(BadStamp::Malformed);
    }
    info.oid()?;
    let mut imprint = info.sequence()?;
    if imprint.sequence()?.oid()? != SHA256 {
        return Err(BadStamp::Digest);
    }
    let digest = imprint.expect(tag::OCTET_STRING)?.content;
    imprint.end()?;
    info.integer()?;
    let time = info.expect(tag::GENERALIZED_TIME)?.content;
    info.optional(tag::SEQUENCE)?;
    if let Some(ordering) = info.optional(tag::BOOLEAN)? {
        Reader::boolean(ordering)?;
    }
    let nonce = if info.0.first() == Some(&tag::INTEGER) {
        let bytes = info.integer()?;
        Some(bytes.strip_prefix(&[0]).unwrap_or(bytes).to_vec())
    } else {
        None
    };
    info.optional(tag::context(0))?;
    info.optional(tag::context(1))?;
    info.end()?;
    Ok(TimeStamp {
        imprint: Hash::from_slice(digest).map_err(|_| BadStamp::Digest)?,
        time: generalized_time(time).ok_or(BadStamp::Time)?,
        nonce,
        signed_data: Vec::new(),
    })
}

/// A small number.
fn number(bytes: &[u8]) -> Result<u64, BadStamp> {
    match bytes {
        [first, ..] if bytes.len() <= 8 && *first < 0x80 => {
            let value = bytes
                .iter()
                .fold(0, |value, byte| value << 8 | u64::from(*byte));
            Ok(value)
        }
        _ => Err(BadStamp::Malformed),
    }
}

/// `YYYYMMDDhhmmss` or with a fraction, and `Z` (RFC 3161, 2.4.2); what is below a microsecond is cut off.
pub(crate) fn generalized_time(bytes: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('Z')?;
    let (whole, fraction) = match text.split_once('.') {
        Some((_, "")) => return None,
        Some((_, fraction)) if fraction.ends_with('0') => return None,
        Some((whole, fraction)) => (whole, fraction),
        None => (text, ""),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() != 14 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let (date, time) = whole.split_at(8);
    let fraction: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let spelled = format!(
        "{}-{}-{}T{}:{}:{}.{fraction}Z",
        &date[..4],
        &date[4..6],
        &date[6..],
        &time[..2],
        &time[2..4],
        &time[4..]
    );
    spelled.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_one_spelling() {
        let read = |text: &str| generalized_time(text.as_bytes()).map(|time| time.to_string());
        assert_eq!(
            read("20260809110232Z").as_deref(),
            Some("2026-08-09T11:02:32.000000Z")
        );
        assert_eq!(
            read("20260809110232.5Z").as_deref(),
            Some("2026-08-09T11:02:32.500000Z")
        );
        assert_eq!(
            read("20260809110232.1234567Z").as_deref(),
            Some("2026-08-09T11:02:32.123456Z")
        );
        for bad in [
            "20260809110232",
            "202608091102Z",
            "20260809110232.Z",
            "20260809110232.50Z",
            "20261309110232Z",
            "20260809110232+0100",
            "2026080911023éZ",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
