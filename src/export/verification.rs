//! The server verifies as everybody does: the bundle's stream goes into the offline verifier.

use super::{ExportError, ExportRequest, Pieces, Withhold};
use crate::access::Caller;
use crate::record::{RecordError, Recorder};
use crate::store::signing_keys::{Holder, SigningKeyRow};
use crate::store::{self, StoreError};
use bytes::Bytes;
use onrecord_core::id::{Origin, TenantId};
use onrecord_core::note::VerifierKey;
use onrecord_verify::{Options, Report, Trust};
use std::io::{self, Read};
use tokio::sync::mpsc;

/// Pieces that come over a channel, as a reader for a thread that may block.
pub struct ChannelReader<E> {
    pieces: mpsc::Receiver<Result<Bytes, E>>,
    current: Bytes,
}

impl<E> ChannelReader<E> {
    /// A reader of what comes.
    pub fn new(pieces: mpsc::Receiver<Result<Bytes, E>>) -> Self {
        Self {
            pieces,
            current: Bytes::new(),
        }
    }
}

impl<E: ToString> Read for ChannelReader<E> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                None => return Ok(0),
                Some(Ok(piece)) => self.current = piece,
                Some(Err(error)) => return Err(io::Error::other(error.to_string())),
            }
        }
        let length = out.len().min(self.current.len());
        out[..length].copy_from_slice(&self.current.split_to(length));
        Ok(length)
    }
}

/// The trust file for the keys of a tenant: what an auditor pins. It names every key that ever signed, so that what was
/// sealed with one that is revoked verifies for ever; what would be signed with it later does not.
fn trust_file(
    tenant: &TenantId,
    origin: &Origin,
    verifier: &VerifierKey,
    keys: &[SigningKeyRow],
) -> String {
    let mut text = format!(
        "# Trust file of tenant {tenant}: pin it from a channel that you trust, not from a bundle.\n\
         log {verifier}\n\
         quorum none\n"
    );
    for key in keys {
        text.push_str(&match (&key.holder, key.revoked_index) {
            (Holder::Seal, None) => format!("seal-key {} {tenant} {origin}\n", key.spki),
            (Holder::Seal, Some(until)) => {
                format!("seal-key {} {tenant} {origin} until {until}\n", key.spki)
            }
            // Its frames from before its end were signed, and have to be signed for ever.
            (Holder::Agent(actor), _) => format!("agent-key {} {actor}\n", key.spki),
        });
    }
    text
}

impl Recorder {
    /// The trust file of the caller's tenant.
    pub async fn trust(&self, caller: Caller) -> Result<String, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let keys = recorder.keys(&caller.tenant).await?;
            let origin = recorder
                .store()
                .origin(&caller.tenant)
                .await?
                .ok_or_else(|| RecordError::NoTenant(caller.tenant.clone()))?;
            let mut tx = recorder.store().snapshot(&caller.tenant).await?;
            let signing_keys = store::signing_keys::all(&mut tx, &caller.tenant).await?;
            tx.commit().await.map_err(StoreError::from)?;
            let verifier = keys.ledger().verifier();
            Ok(trust_file(&caller.tenant, &origin, verifier, &signing_keys))
        })
        .await
    }

    /// Exports a run with all its payloads into the verifier, under the tenant's own keys.
    pub async fn verification(
        &self,
        caller: Caller,
        run: onrecord_core::id::RunId,
    ) -> Result<Report, RecordError> {
        let request = ExportRequest {
            purpose: "verification".to_owned(),
            // Nobody reads it but the verifier, which tells nothing of any payload.
            on_ledger: false,
            withhold: Withhold::default(),
        };
        let pieces: Pieces = self.export(caller.clone(), run, request).await?;
        self.verify_stream::<ExportError>(caller, pieces).await
    }

    /// Verifies a stream under the keys of the caller's tenant.
    pub async fn verify_stream<E: ToString + Send + 'static>(
        &self,
        caller: Caller,
        pieces: mpsc::Receiver<Result<Bytes, E>>,
    ) -> Result<Report, RecordError> {
        let text = self.trust(caller).await?;
        let report = tokio::task::spawn_blocking(move || {
            let trust = Trust::parse(&text).ok();
            onrecord_verify::verify(
                ChannelReader::new(pieces),
                &Options {
                    trust,
                    ..Options::default()
                },
            )
        });
        report.await.map_err(|_| RecordError::CutOff)
    }
}
