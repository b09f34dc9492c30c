//! Classes of payloads: the tier of a payload whose writer named none, as the tenant's retention policy says.

use super::intake::FrameRequest;
use super::{RecordError, Recorder};
use crate::access::LOOK_HOLDS;
use crate::store;
use lru::LruCache;
use onrecord_core::id::TenantId;
use onrecord_core::json;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Tenants whose classes are remembered, the last used.
const TENANTS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1_023);

/// Tiers by `KIND.NAME`. What else a policy says is not asked here.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Classes {
    #[serde(default)]
    classes: BTreeMap<String, u8>,
}

impl Classes {
    /// Gives the payloads of a frame, and not of its result, the tiers of their classes, where their writer named none. What an
    /// agent committed to itself stays as it is.
    pub(super) fn give(&self, request: &mut FrameRequest) {
        if self.classes.is_empty() {
            return;
        }
        let kind = request.kind.as_str();
        for payload in &mut request.payloads {
            if !payload.tier_named && payload.own.is_none() {
                let class = format!("{kind}.{}", payload.name);
                payload.tier = self.classes.get(&class).copied().unwrap_or(payload.tier);
            }
        }
    }
}

/// The classes of tenants, as they were when somebody looked last.
pub(super) struct Looks(Mutex<LruCache<TenantId, (Instant, Arc<Classes>)>>);

impl Default for Looks {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(TENANTS)))
    }
}

impl Recorder {
    /// The classes of a tenant. What another process changes holds within [`LOOK_HOLDS`].
    pub(super) async fn classes(&self, tenant: &TenantId) -> Result<Arc<Classes>, RecordError> {
        let looks = || {
            self.classes
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some((at, classes)) = looks().get(tenant)
            && at.elapsed() < LOOK_HOLDS
        {
            return Ok(classes.clone());
        }
        // Read before the database is asked: the look holds from then on.
        let at = Instant::now();
        let (recorder, of_tenant) = (self.clone(), tenant.clone());
        let look = async move {
            let mut tx = recorder.store.begin(&of_tenant).await?;
            let last = store::retention::last_policy(&mut tx, &of_tenant).await?;
            tx.commit().await.map_err(store::StoreError::from)?;
            let Some((version, document)) = last else {
                return Ok(Classes::default());
            };
            let wrong = |_| store::contradiction("retention_policies", "document", version);
            Ok(json::typed(&document).map_err(wrong)?)
        };
        let classes = Arc::new(Box::pin(self.detached(look)).await?);
        looks().put(tenant.clone(), (at, classes.clone()));
        Ok(classes)
    }
}
