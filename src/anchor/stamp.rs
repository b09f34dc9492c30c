//! Time stamps (RFC 3161): an authority's word for when the signature of a seal was there.

use super::{AnchorError, Anchors, answer, lock, told};
use crate::store::anchors::{self, StampRow, Stamped};
use crate::store::{self, StoreError};
use crate::vault::random;
use onrecord_core::digest::Hash;
use onrecord_core::id::TenantId;
use onrecord_core::note::Note;
use onrecord_core::statement::Signed;
use onrecord_core::timestamp::Timestamp;
use onrecord_verify::{STAMP_BYTES, TimeStamp};
use reqwest::{StatusCode, Url, header};

/// Seals that are stamped in one round at most.
const SEALS: u32 = 50;
/// Seals that are older were sealed long before there was an authority, and are not stamped.
const SINCE_MICROS: i64 = 7 * 24 * 3_600 * 1_000_000;
/// The pause between two stamped checkpoints of a ledger.
const CHECKPOINTS_MICROS: i64 = 3_600 * 1_000_000;
/// A request up to the imprint: version 1, SHA-256 (RFC 3161, 2.4.1).
const REQUEST: [u8; 24] = [
    0x30, 0x40, 0x02, 0x01, 0x01, 0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65,
    0x03, 0x04, 0x02, 0x01, 0x05, 0x00, 0x04, 0x20,
];

/// An authority that stamps.
pub(super) struct Authority {
    http: reqwest::Client,
    url: Url,
}

impl Authority {
    pub(super) fn new(http: reqwest::Client, url: &str) -> Result<Self, AnchorError> {
        let wrong = |problem: &str| AnchorError::Address {
            url: url.to_owned(),
            problem: problem.to_owned(),
        };
        let url = Url::parse(url).map_err(|_| wrong("expected http(s)://HOST/PATH"))?;
        // Over http too, as most authorities offer it: the reply is signed, and the request tells a digest alone.
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("expected http(s)://HOST/PATH"));
        }
        Ok(Self { http, url })
    }

    pub(super) fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Has 64 bytes of a signature stamped.
    async fn stamp(&self, signature: &[u8; 64]) -> Result<(Timestamp, Vec<u8>), String> {
        let imprint = Hash::of(&[signature]);
        let mut nonce = random::bytes::<8>().map_err(|error| error.to_string())?;
        // Positive, and of eight bytes without a leading zero, so that it has one spelling.
        nonce[0] = nonce[0] & 0x7f | 0x40;
        let sent = self
            .http
            .post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/timestamp-query")
            .body(request(&imprint, &nonce))
            .send()
            .await;
        let response = sent.map_err(told)?;
        let status = response.status();
        let reply = answer(response, STAMP_BYTES).await?;
        if status != StatusCode::OK {
            return Err(format!("it answered {status}"));
        }
        let stamp = TimeStamp::parse(&reply).map_err(|error| error.to_string())?;
        if stamp.imprint != imprint || stamp.nonce.as_deref() != Some(&nonce[..]) {
            return Err("its reply is to another request".to_owned());
        }
        Ok((stamp.time, reply))
    }
}

/// TimeStampReq ::= SEQUENCE { version 1, messageImprint, nonce, certReq TRUE } (RFC 3161, 2.4.1).
fn request(imprint: &Hash, nonce: &[u8; 8]) -> Vec<u8> {
    let mut request = REQUEST.to_vec();
    request.extend_from_slice(&imprint.0);
    request.extend_from_slice(&[0x02, 0x08]);
    request.extend_from_slice(nonce);
    request.extend_from_slice(&[0x01, 0x01, 0xff]);
    // Whole: 3 of the version, 51 of the imprint, 10 of the nonce, 3 of the flag.
    request[1] = 3 + 51 + 10 + 3;
    request
}

impl Anchors {
    /// Has the seals of a tenant stamped that are not, and now and then its latest checkpoint.
    pub(super) async fn ask_authority(
        &self,
        tenant: &TenantId,
        size: u64,
    ) -> Result<(), AnchorError> {
        let Some(authority) = &self.authority else {
            return Ok(());
        };
        if !lock(&self.stamping).is_due() {
            return Ok(());
        }
        let next = match self.known(tenant, |known| known.stamped) {
            Some(next) => next,
            None => self.first_to_stamp(tenant, size).await?,
        };
        if next >= size {
            return Ok(());
        }
        let mut tx = self.recorder.store().snapshot(tenant).await?;
        let seals = anchors::seals(&mut tx, tenant, next..size, SEALS).await?;
        let (size, note) = store::ledger::checkpoint(&mut tx, tenant).await?;
        let last = anchors::stamp(&mut tx, tenant, Stamped::Checkpoint, None).await?;
        tx.commit().await.map_err(StoreError::from)?;
        let now = self.recorder.store().now().await?;
        let mut to_stamp = Vec::new();
        for (index, _, bytes) in &seals {
            let wrong = || store::contradiction("ledger_entries", "bytes", index);
            let signed = Signed::parse(bytes).map_err(|_| wrong())?;
            to_stamp.push((Stamped::Seal, *index, signed.sig));
        }
        let is_due = |last: StampRow| now.micros() - last.stamped_at.micros() >= CHECKPOINTS_MICROS;
        if last.is_none_or(is_due) {
            let signature = signature(&note);
            let wrong = || store::contradiction("checkpoints", "note", size);
            to_stamp.push((Stamped::Checkpoint, size, signature.ok_or_else(wrong)?));
        }
        for (subject, number, signature) in to_stamp {
            match authority.stamp(&signature).await {
                Ok((stamped_at, reply)) => {
                    let row = StampRow {
                        number,
                        stamped_at,
                        reply,
                    };
                    let mut tx = self.recorder.store().begin(tenant).await?;
                    anchors::insert_stamp(&mut tx, tenant, subject, &row).await?;
                    // A crash before it leaves a stamp that nobody has, and the seal is stamped again.
                    tx.commit().await.map_err(StoreError::from)?;
                    if subject == Stamped::Seal {
                        self.known(tenant, |known| known.stamped = Some(number + 1));
                    }
                    lock(&self.stamping).well();
                }
                Err(problem) => {
                    if lock(&self.stamping).failed(problem.clone()) {
                        tracing::warn!(
                            url = authority.url(),
                            problem,
                            "the time-stamping authority did not stamp; it is asked again"
                        );
                    }
                    return Ok(());
                }
            }
        }
        if u64::from(SEALS) > seals.len() as u64 {
            self.known(tenant, |known| known.stamped = Some(size));
        }
        Ok(())
    }

    /// Where stamping goes on: behind the last stamped seal, or with those of the last days.
    async fn first_to_stamp(&self, tenant: &TenantId, size: u64) -> Result<u64, AnchorError> {
        let now = self.recorder.store().now().await?;
        let mut tx = self.recorder.store().snapshot(tenant).await?;
        let last = anchors::stamp(&mut tx, tenant, Stamped::Seal, None).await?;
        let next = match last {
            Some(last) => last.number + 1,
            None => {
                let since = Timestamp::from_micros(now.micros() - SINCE_MICROS);
                anchors::index_from(&mut tx, tenant, since.unwrap_or(Timestamp::MIN), size).await?
            }
        };
        tx.commit().await.map_err(StoreError::from)?;
        self.known(tenant, |known| known.stamped = Some(next));
        Ok(next)
    }
}

/// The 64 bytes of the log's signature under a note.
fn signature(note: &str) -> Option<[u8; 64]> {
    let note = Note::parse(note).ok()?;
    note.signatures.first()?.bytes.as_slice().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_the_der_of_its_parts() {
        let request = request(&Hash([7; 32]), &[0x41; 8]);
        assert_eq!(request.len(), usize::from(request[1]) + 2);
        assert_eq!(request[24..56], [7; 32]);
        assert_eq!(
            request[56..66],
            [2, 8, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41, 0x41]
        );
        assert_eq!(request[66..], [1, 1, 0xff]);
    }
}
