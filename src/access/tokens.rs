//! Tokens that were looked up a moment ago, so that an agent that posts many frames does not cost a look each.

use super::{AccessError, Caller, ID_CHARS, PREFIX, Role, SECRET_CHARS};
use crate::store::{Store, tokens::TokenRow};
use lru::LruCache;
use onrecord_core::digest::Hash;
use onrecord_core::frame::ActorType;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a look at a token holds. A revocation that another server process makes, or an end that comes, takes
/// effect within it; one of this process at once.
pub const LOOK_HOLDS: Duration = Duration::from_secs(1);
/// Tokens that are remembered, the last used.
const TOKENS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4_095);

/// Finds out who calls.
#[derive(Clone)]
pub struct Tokens {
    store: Store,
    looks: Arc<Mutex<LruCache<String, Look>>>,
}

struct Look {
    at: Instant,
    secret_hash: Vec<u8>,
    caller: Caller,
}

impl Tokens {
    /// Tokens of a database.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            looks: Arc::new(Mutex::new(LruCache::new(TOKENS))),
        }
    }

    /// The caller of a token that was looked up a moment ago; `None` where the database is to be asked.
    pub fn remembered(&self, token: &str) -> Option<Caller> {
        let (id, secret) = parts(token)?;
        let mut looks = self.looks();
        let look = looks
            .get(id)
            .filter(|look| look.at.elapsed() < LOOK_HOLDS)?;
        is_secret(secret, &look.secret_hash).then(|| look.caller.clone())
    }

    /// Looks a token up in the database.
    pub async fn look_up(&self, token: &str) -> Result<Caller, AccessError> {
        let (id, secret) = parts(token).ok_or(AccessError::Unauthenticated)?;
        let at = Instant::now();
        let row = self.store.token(id).await?;
        let row = row
            .filter(|row| is_secret(secret, &row.secret_hash) && row.live)
            .ok_or(AccessError::Unauthenticated)?;
        let secret_hash = row.secret_hash.clone();
        let caller = Caller::of(row);
        let look = Look {
            at,
            secret_hash,
            caller: caller.clone(),
        };
        self.looks().put(id.to_owned(), look);
        Ok(caller)
    }

    /// Forgets a token that was revoked.
    pub fn forget(&self, id: &str) {
        self.looks().pop(id);
    }

    fn looks(&self) -> MutexGuard<'_, LruCache<String, Look>> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id and the secret of a token, if it can be one.
fn parts(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.strip_prefix(PREFIX)?.split_once('_')?;
    let plausible = |text: &str, length: usize| {
        text.len() == length
            && text
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
    };
    (plausible(id, ID_CHARS) && plausible(secret, SECRET_CHARS)).then_some((id, secret))
}

fn is_secret(secret: &str, hash: &[u8]) -> bool {
    let found = Hash::of(&[secret.as_bytes()]);
    subtle::ConstantTimeEq::ct_eq(&found.0[..], hash).into()
}

impl Caller {
    fn of(row: TokenRow) -> Self {
        Self {
            tenant: row.tenant,
            token: row.id,
            key: None,
            name: row.name,
            roles: row
                .roles
                .iter()
                .filter_map(|word| Role::from_word(word))
                .collect(),
            actor_type: row.actor_type.as_deref().and_then(ActorType::from_word),
            actor_id: row.actor_id,
        }
    }
}
