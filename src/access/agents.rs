//! The keys that agents sign their frames with, as they were looked up a moment ago.

use super::{AccessError, Caller, LOOK_HOLDS};
use crate::store::signing_keys::SigningKeyRow;
use crate::store::{self, Store, StoreError};
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Actor, ActorType};
use onrecord_core::id::TenantId;
use onrecord_verify::PublicKey;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
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
    replays: Replays,
}

/// Signatures of requests that were taken, for as long as they could be sent again.
#[derive(Default)]
struct Replays(Mutex<HashMap<[u8; 64], i64>>);

impl Replays {
    /// Whether a signature is taken for the first time.
    fn take(&self, request: &SignedRequest, now: i64) -> bool {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Now and then, so that it costs little and there are at most twice as many as have to be.
        if taken.len() >= 1_024 && taken.len() == taken.capacity() {
            taken.retain(|_, created| now - *created <= SIGNED_AGO_S);
        }
        taken.insert(request.sig, request.created).is_none()
    }
}

/// A request that an agent signed, as it came.
pub struct SignedRequest {
    /// Whose key it says.
    pub tenant: TenantId,
    /// Which key it says.
    pub keyid: Hash,
    /// When, in seconds since 1970.
    pub created: i64,
    /// What is signed.
    pub message: Vec<u8>,
    /// The signature.
    pub sig: [u8; 64],
}

/// How long ago a request may have been signed, in seconds by the database's clock.
pub const SIGNED_AGO_S: i64 = 60;
/// How far ahead of the database's clock that of a signer may be, in seconds.
pub const SIGNED_AHEAD_S: i64 = 10;

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
            replays: Replays::default(),
        }
    }

    /// Those that were looked up a moment ago; `None` where the database is to be asked.
    pub(crate) fn remembered(&self, tenant: &TenantId) -> Option<Arc<AgentKeys>> {
        let looks = self.looks.read().unwrap_or_else(PoisonError::into_inner);
        let look = looks.get(tenant)?;
        let age = look.at.elapsed();
        let holds =
            age < LOOK_HOLDS || age < 2 * LOOK_HOLDS && look.again.swap(true, Ordering::Relaxed);
        holds.then(|| look.keys.clone())
    }

    /// Looks again after they changed, so that whoever looked before the change does not come after it; or forgets them.
    pub(crate) async fn changed(&self, tenant: &TenantId) {
        if let Err(error) = self.look_up(tenant).await {
            tracing::warn!(%tenant, %error, "keys of agents that changed could not be looked up");
            let mut looks = self.looks.write().unwrap_or_else(PoisonError::into_inner);
            looks.remove(tenant);
        }
    }

    /// The agent that signed a request: strictly, within the window, and once in this process.
    ///
    /// # Errors
    /// [`AccessError::Signature`], and why; an unknown key and a false signature are not told apart.
    pub(crate) async fn caller(&self, request: &SignedRequest) -> Result<Caller, AccessError> {
        let refused = |why: &str| Err(AccessError::Signature(why.to_owned()));
        let (tenant, keyid) = (&request.tenant, &request.keyid);
        let known = |keys: &AgentKeys| keys.key(keyid).is_some();
        let keys = match self.remembered(tenant).filter(|keys| known(keys)) {
            Some(keys) => keys,
            // Not remembered: anybody may name any tenant here.
            None => Arc::new(self.read(tenant).await?),
        };
        let key = keys.key(keyid).filter(|key| !key.revoked);
        let Some(key) = key.filter(|key| key.key.verifies(&request.message, &request.sig)) else {
            return refused("no key that counts made this signature over this request");
        };
        let now = self.store.now().await?.micros() / 1_000_000;
        if !(now - SIGNED_AGO_S..=now + SIGNED_AHEAD_S).contains(&request.created) {
            return refused("`created` is too long ago, or ahead, by the clock of the database");
        }
        if !self.replays.take(request, now) {
            return refused(
                "the request was taken already; sign another with a `created` or `nonce` of its own",
            );
        }
        Ok(Caller::signing(tenant.clone(), *keyid, key.actor.clone()))
    }

    async fn read(&self, tenant: &TenantId) -> Result<AgentKeys, StoreError> {
        let mut tx = self.store.snapshot(tenant).await?;
        let rows = store::signing_keys::all(&mut tx, tenant).await?;
        tx.commit().await?;
        AgentKeys::of(rows)
    }

    /// Looks them up in the database.
    pub(crate) async fn look_up(&self, tenant: &TenantId) -> Result<Arc<AgentKeys>, StoreError> {
        let at = Instant::now();
        let keys = Arc::new(self.read(tenant).await?);
        let mut looks = self.looks.write().unwrap_or_else(PoisonError::into_inner);
        if looks.get(tenant).is_none_or(|known| known.at <= at) {
            let look = Look {
                at,
                keys: keys.clone(),
                again: AtomicBool::new(false),
            };
            looks.insert(tenant.clone(), look);
        }
        Ok(keys)
    }
}
