//! The keys that agents sign their frames with, as they were looked up a moment ago.

use super::LOOK_HOLDS;
use crate::store::signing_keys::SigningKeyRow;
use crate::store::{self, Store, StoreError};
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Actor, ActorType};
use onrecord_core::id::TenantId;
use onrecord_verify::PublicKey;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

/// The keys of one tenant's agents.
#[derive(Debug, Default)]
pub struct AgentKeys {
    keys: HashMap<Hash, AgentKey>,
    actors: HashSet<String>,
}

/// A key of an agent.
#[derive(Debug)]
pub struct AgentKey {
    /// Whose it is.
    pub actor: String,
    /// Its public half.
    pub key: PublicKey,
    /// Whether it signs nothing any more.
    pub revoked: bool,
}

impl AgentKeys {
    /// Those among the keys of a tenant.
    ///
    /// # Errors
    /// A row has no key.
    pub(crate) fn of(rows: Vec<SigningKeyRow>) -> Result<Self, StoreError> {
        let mut found = Self::default();
        for row in rows {
            let Some(actor) = row.actor().map(str::to_owned) else {
                continue;
            };
            let wrong = |_| store::contradiction("signing_keys", "spki", row.keyid);
            let (keyid, key) = PublicKey::from_spki(&row.spki).map_err(wrong)?;
            found.actors.insert(actor.clone());
            let key = AgentKey {
                actor,
                key,
                revoked: row.revoked_index.is_some(),
            };
            found.keys.insert(keyid, key);
        }
        Ok(found)
    }

    /// The key of an id.
    pub fn key(&self, keyid: &Hash) -> Option<&AgentKey> {
        self.keys.get(keyid)
    }

    /// Whether an actor has to sign: one that ever had a key is pinned by the trust file, and an unsigned frame of it is a
    /// fault there.
    pub fn must_sign(&self, actor: &Actor) -> bool {
        actor.kind == ActorType::Agent && self.actors.contains(&actor.id)
    }
}

/// Finds the keys of agents. What another server process registers or revokes takes effect within twice
/// [`LOOK_HOLDS`], what this one does at once.
pub(crate) struct Agents {
    store: Store,
    looks: RwLock<HashMap<TenantId, Look>>,
}

struct Look {
    at: Instant,
    keys: Arc<AgentKeys>,
    /// Whether somebody looks again, so that the others need not wait for it.
    again: AtomicBool,
}

impl Agents {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            looks: RwLock::default(),
        }
    }

    /// Those that were looked up a moment ago; `None` where the database is to be asked.
    pub(crate) fn remembered(&self, tenant: &TenantId) -> Option<Arc<AgentKeys>> {
        let looks = self.looks.read().unwrap_or_else(PoisonError::into_inner);
        let look = looks.get(tenant)?;
        let age = look.at.elapsed();
        let holds = age < LOOK_HOLDS
            || age < 2 * LOOK_HOLDS && look.again.swap(true, Ordering::Relaxed);
        holds.then(|| look.keys.clone())
    }

    /// Forgets those of a tenant, after they changed.
    pub(crate) fn forget(&self, tenant: &TenantId) {
        let mut looks = self.looks.write().unwrap_or_else(PoisonError::into_inner);
        looks.remove(tenant);
    }

    /// Looks them up in the database.
    pub(crate) async fn look_up(&self, tenant: &TenantId) -> Result<Arc<AgentKeys>, StoreError> {
        let at = Instant::now();
        let mut tx = self.store.snapshot(tenant).await?;
        let rows = store::signing_keys::all(&mut tx, tenant).await?;
        tx.commit().await?;
        let keys = Arc::new(AgentKeys::of(rows)?);
        let mut looks = self.looks.write().unwrap_or_else(PoisonError::into_inner);
        let look = Look {
            at,
            keys: keys.clone(),
            again: AtomicBool::new(false),
        };
        looks.insert(tenant.clone(), look);
        Ok(keys)
    }
}
