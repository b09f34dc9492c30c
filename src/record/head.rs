//! Heads: how far a run is, signed.

use super::open::state_of;
use super::{RecordError, Recorder};
use crate::access::Caller;
use crate::store::{self, Tx};
use crate::vault::SealKey;
use onrecord_core::chain::Chain;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::{FRAMES_SUBJECT, Predicate, RunHead};

impl Recorder {
    /// A signed `run-head` of a run at a size, or at its present one.
    pub async fn head(
        &self,
        caller: Caller,
        run: RunId,
        size: Option<u64>,
    ) -> Result<String, RecordError> {
        let recorder = self.clone();
        self.detached(async move { recorder.head_now(&caller.tenant, &run, size).await })
            .await
    }

    pub(super) async fn head_now(
        &self,
        tenant: &TenantId,
        run: &RunId,
        size: Option<u64>,
    ) -> Result<String, RecordError> {
        let key = self.seal_key_now(tenant).await?;
        let mut tx = self.store.snapshot(tenant).await?;
        let row = store::runs::find(&mut tx, run)
            .await?
            .ok_or_else(|| RecordError::NoRun(run.clone()))?;
        let size = size.unwrap_or(row.chain.size());
        if size == 0 || size > row.chain.size() {
            return Err(RecordError::NoFrame {
                run: run.clone(),
                seq: size.saturating_sub(1),
            });
        }
        let chain = if size == row.chain.size() {
            row.chain
        } else {
            chain_at(&mut tx, row.chain, size).await?
        };
        tx.commit().await.map_err(store::StoreError::from)?;
        sign(&key, &chain)
    }
}

/// The signed `run-head` of a chain as it is.
pub(crate) fn sign(key: &SealKey, chain: &Chain) -> Result<String, RecordError> {
    let at = chain
        .last_at()
        .ok_or_else(|| store::contradiction("runs", "last_at", chain.run()))?;
    let head = Predicate::RunHead(RunHead {
        at,
        state: state_of(chain),
    });
    let subject = Some((FRAMES_SUBJECT, chain.file_digest()));
    let envelope = key.sign(chain.tenant(), &head, subject)?;
    Ok(String::from_utf8_lossy(&envelope).into_owned())
}

/// The chain as it was at a smaller size, from the frames.
async fn chain_at(tx: &mut Tx, now: Chain, size: u64) -> Result<Chain, RecordError> {
    let mut chain = Chain::new(now.tenant().clone(), now.run().clone());
    while chain.size() < size {
        let limit = u32::try_from((size - chain.size()).min(1_000)).unwrap_or(1_000);
        let page = store::frames::page(tx, now.run(), chain.size(), limit).await?;
        if page.is_empty() {
            return Err(store::contradiction(
                "frames",
                "seq",
                format!("{}/{}", now.run(), chain.size()),
            )
            .into());
        }
        for bytes in page {
            let seq = chain.size();
            // A stored frame that does not extend its chain is no fault of whoever asks.
            chain.extend(&bytes, None).map_err(|_| {
                store::contradiction("frames", "bytes", format!("{}/{seq}", now.run()))
            })?;
        }
    }
    Ok(chain)
}
