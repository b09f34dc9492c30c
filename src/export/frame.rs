//! A frame alone, with the path that leads to what is signed of its run.

use super::path;
use crate::access::Caller;
use crate::record::{RecordError, Recorder, sign_head};
use crate::store::{self, StoreError};
use onrecord_core::bundle::{FRAME_PROOF, FrameProof};
use onrecord_core::id::RunId;
use onrecord_core::json;

impl Recorder {
    /// The proof of one frame, canonical bytes: under the seal of its run, or under a head that is signed for it while the
    /// run is open. No payload comes along.
    ///
    /// # Errors
    /// [`RecordError::NoRun`], [`RecordError::NoFrame`]; the database and the keys.
    pub async fn frame_proof(
        &self,
        caller: Caller,
        run: RunId,
        seq: u64,
    ) -> Result<Vec<u8>, RecordError> {
        let recorder = self.clone();
        self.detached(async move { recorder.frame_proof_now(&caller, &run, seq).await })
            .await
    }

    async fn frame_proof_now(
        &self,
        caller: &Caller,
        run: &RunId,
        seq: u64,
    ) -> Result<Vec<u8>, RecordError> {
        let tenant = &caller.tenant;
        let mut tx = self.store.snapshot(tenant).await?;
        let row = store::runs::find(&mut tx, run)
            .await?
            .ok_or_else(|| RecordError::NoRun(run.clone()))?;
        if seq >= row.chain.size() {
            let run = run.clone();
            return Err(RecordError::NoFrame { run, seq });
        }
        let (frame, path) = path::path(&mut tx, &row.chain, seq).await?;
        let sealed = match row.sealed {
            None => None,
            Some(sealed) => {
                let seal = store::ledger::entry(&mut tx, tenant, sealed.index).await?;
                Some((seal, sealed.proof))
            }
        };
        tx.commit().await.map_err(StoreError::from)?;
        let wrong = |_| store::contradiction("frames", "bytes", format!("{run}/{seq}"));
        let (head, seal, proof) = match sealed {
            Some((seal, proof)) => {
                let seal = String::from_utf8(seal).map_err(wrong)?;
                (None, Some(seal), Some(proof))
            }
            None => {
                let key = self.seal_key_now(tenant).await?;
                (Some(sign_head(&key, &row.chain)?), None, None)
            }
        };
        let proof = FrameProof {
            frame: String::from_utf8(frame).map_err(wrong)?,
            head,
            onrecord: FRAME_PROOF.to_owned(),
            path,
            proof,
            seal,
        };
        Ok(json::to_canonical(&proof)
            .map_err(|_| store::contradiction("frames", "bytes", format!("{run}/{seq}")))?)
    }
}
