//! Who may do what: tokens, roles, and the actor that a token may speak for.

mod agents;
mod tokens;

pub(crate) use agents::Agents;
pub use agents::{AgentKey, AgentKeys, SignedRequest};
pub use tokens::{LOOK_HOLDS, Tokens};

use crate::store::tokens::NewTokenRow;
use crate::store::{self, Store, StoreError};
use crate::vault::{self, VaultError};
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Actor, ActorType, Kind};
use onrecord_core::id::TenantId;
use onrecord_core::timestamp::Timestamp;
use onrecord_core::{json, limits};
use std::fmt;

/// What a token may be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Records runs, as an agent, its tools, or an importer of transcripts.
    Agent,
    /// Records verdicts, as a verifier.
    Gate,
    /// A person: reads and exports.
    Auditor,
    /// A person: holds, retains, erases.
    Compliance,
    /// A person: makes and revokes tokens.
    Admin,
}

/// Who may read payloads.
pub const READERS: [Role; 3] = [Role::Auditor, Role::Compliance, Role::Admin];

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Agent,
        Self::Gate,
        Self::Auditor,
        Self::Compliance,
        Self::Admin,
    ];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Gate => "gate",
            Self::Auditor => "auditor",
            Self::Compliance => "compliance",
            Self::Admin => "admin",
        }
    }

    /// The role of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }

    /// The actors that a token with this role may write frames as.
    fn actors(self) -> &'static [ActorType] {
        match self {
            Self::Agent => &[ActorType::Agent, ActorType::Tool, ActorType::Importer],
            Self::Gate => &[ActorType::Verifier],
            Self::Auditor | Self::Compliance | Self::Admin => &[ActorType::Human],
        }
    }
}

/// What can go wrong with a token.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// No token, or not one of ours, or an expired or revoked one: which, is not told.
    #[error("the token is missing, malformed, unknown, expired or revoked")]
    Unauthenticated,
    /// The signature of a request is not taken, and why.
    #[error("{0}")]
    Signature(String),
    /// The token has none of the roles that are needed.
    #[error("the token has none of the roles {0}")]
    Role(String),
    /// The token is of another tenant.
    #[error("the token is of another tenant than the ledger")]
    OtherTenant,
    /// The token may not speak for that actor.
    #[error("{0}")]
    Actor(String),
    /// A new token is malformed.
    #[error("{0}")]
    Malformed(String),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Randomness.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// Who is calling: what a good token says.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The only tenant that it sees.
    pub tenant: TenantId,
    /// Id of the token; empty where the request was signed instead.
    pub token: String,
    /// The key that the request was signed with.
    key: Option<Hash>,
    name: String,
    roles: Vec<Role>,
    actor_type: Option<ActorType>,
    actor_id: Option<String>,
}

/// A token at its creation: the only time that its secret is seen.
pub struct NewToken {
    /// Id, the public part.
    pub id: String,
    /// The whole token.
    pub token: Secret,
}

/// A text that is not for logs.
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}

/// What a new token is to be.
#[derive(Clone, Debug)]
pub struct TokenRequest {
    /// What people call it, 1 to 200 characters.
    pub name: String,
    /// At least one.
    pub roles: Vec<Role>,
    /// The actor type that it may speak for; `None` for any that its roles allow.
    pub actor_type: Option<ActorType>,
    /// The actor id that it may speak for; `None` for any.
    pub actor_id: Option<String>,
    /// From when it opens nothing.
    pub expires_at: Option<Timestamp>,
}

impl TokenRequest {
    /// The owner's token: every role, for any actor.
    pub fn owner() -> Self {
        Self {
            name: "owner".to_owned(),
            roles: Role::ALL.to_vec(),
            actor_type: None,
            actor_id: None,
            expires_at: None,
        }
    }

    fn check(&self) -> Result<(), AccessError> {
        let malformed = |text: &str| Err(AccessError::Malformed(text.to_owned()));
        let fits = |text: &str| is_name(text, limits::ACTOR_CHARS);
        if !fits(&self.name) || self.actor_id.as_deref().is_some_and(|id| !fits(id)) {
            return malformed(
                "name and actor id have 1 to 200 characters, none of them a control character or a noncharacter",
            );
        }
        if self.roles.is_empty() {
            return malformed("a token has at least one role");
        }
        if let Some(kind) = self.actor_type
            && !self.roles.iter().any(|role| role.actors().contains(&kind))
        {
            return malformed("none of the token's roles may write as that actor type");
        }
        Ok(())
    }
}

/// Whether a text may stand in evidence as somebody's name or purpose: 1 to `most` characters, no control
/// characters, and nothing that the format's JSON refuses. What could not be signed is refused before
/// anything rests on it.
pub fn is_name(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.chars().count())
        && !text.chars().any(char::is_control)
        && json::to_canonical(&text).is_ok()
}

/// Whether a text is a code, as purposes and matters have to be: they stand on the ledger for ever, where free text could
/// name anybody. 1 to 64 letters, digits, dots, underscores and hyphens of ASCII, the first a letter or a digit.
pub fn is_code(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&text.len())
        && text.bytes().all(fits)
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
}

const PREFIX: &str = "onr_";
const ID_CHARS: usize = 12;
const SECRET_CHARS: usize = 50;

/// Makes a token in a transaction and returns it. The secret has 50 characters of 36, which is 258 bits.
pub(crate) async fn create(
    tx: &mut store::Tx,
    tenant: &TenantId,
    request: &TokenRequest,
) -> Result<NewToken, AccessError> {
    request.check()?;
    let id = vault::new_name(ID_CHARS)?;
    let secret = vault::new_name(SECRET_CHARS)?;
    let row = NewTokenRow {
        id: &id,
        tenant,
        name: &request.name,
        secret_hash: &Hash::of(&[secret.as_bytes()]).0,
        roles: request.roles.iter().map(|role| role.as_str()).collect(),
        actor_type: request.actor_type.map(|kind| kind.as_str()),
        actor_id: request.actor_id.as_deref(),
        expires_at: request.expires_at,
    };
    store::tokens::insert(tx, &row).await?;
    Ok(NewToken {
        token: Secret(format!("{PREFIX}{id}_{secret}")),
        id,
    })
}

/// Whether the token of a caller opens anything still: what goes on for long asks again.
pub async fn still_opens(store: &Store, caller: &Caller) -> Result<bool, AccessError> {
    if let Some(keyid) = &caller.key {
        let mut tx = store.snapshot(&caller.tenant).await?;
        let rows = store::signing_keys::all(&mut tx, &caller.tenant).await?;
        tx.commit().await.map_err(StoreError::from)?;
        let keys = AgentKeys::of(rows)?;
        return Ok(keys.key(keyid).is_some_and(|key| !key.revoked));
    }
    let row = store.token(&caller.token).await?;
    Ok(row.is_some_and(|row| row.live))
}

impl Caller {
    /// The server itself, for what it does on its own account.
    pub(crate) fn server(tenant: TenantId) -> Self {
        Self {
            tenant,
            token: String::new(),
            key: None,
            name: "onrecord".to_owned(),
            roles: Vec::new(),
            actor_type: Some(ActorType::System),
            actor_id: Some("onrecord".to_owned()),
        }
    }

    /// What a request was authenticated by: the id of a token, or of a key.
    pub(crate) fn credential(&self) -> String {
        self.key.map_or_else(|| self.token.clone(), |key| key.hex())
    }

    /// The first of some roles that the token has.
    pub fn role_of(&self, roles: &[Role]) -> Option<Role> {
        roles.iter().copied().find(|role| self.roles.contains(role))
    }

    /// An agent that signed its request.
    fn signing(tenant: TenantId, key: Hash, actor: String) -> Self {
        Self {
            tenant,
            token: String::new(),
            key: Some(key),
            name: actor.clone(),
            roles: vec![Role::Agent],
            actor_type: Some(ActorType::Agent),
            actor_id: Some(actor),
        }
    }

    /// Whether the request was signed, and brought no token.
    pub fn signs(&self) -> bool {
        self.key.is_some()
    }

    /// Fails unless the token has one of the roles.
    pub fn needs(&self, roles: &[Role]) -> Result<(), AccessError> {
        if self.role_of(roles).is_some() {
            return Ok(());
        }
        let words: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
        Err(AccessError::Role(words.join(", ")))
    }

    fn may_be(&self, kind: ActorType) -> bool {
        self.roles.iter().any(|role| role.actors().contains(&kind))
    }

    /// The actor that the token stands for when nothing else is said.
    pub fn actor(&self) -> Actor {
        let by_role = [ActorType::Agent, ActorType::Verifier, ActorType::Human]
            .into_iter()
            .find(|kind| self.may_be(*kind));
        let kind = self.actor_type.or(by_role).unwrap_or(ActorType::System);
        Actor {
            id: self.actor_id.clone().unwrap_or_else(|| self.name.clone()),
            keyid: None,
            kind,
        }
    }

    /// The agent that the token stands for, if it stands for one.
    pub fn agent(&self) -> Option<Actor> {
        let actor = self.actor();
        (self.actor_type == Some(ActorType::Agent) && self.actor_id.is_some()).then_some(actor)
    }

    /// The person, or whatever the token is, that reads or exports.
    pub fn reader(&self) -> Actor {
        let person = self.actor_type.is_none() && self.may_be(ActorType::Human);
        let actor = self.actor();
        if person {
            Actor {
                kind: ActorType::Human,
                ..actor
            }
        } else {
            actor
        }
    }

    /// The actor of a frame: the one asked for, if the token may speak for it, or its own.
    pub fn speak(&self, asked: Option<Actor>, kind: Kind) -> Result<Actor, AccessError> {
        // Turns and the end of a run are its writer's, as its seal is: a gate or a reader who ended it
        // would shut the agent out.
        if matches!(kind, Kind::Turn | Kind::TurnEnd | Kind::SessionEnd) {
            self.needs(&[Role::Agent, Role::Admin])?;
        }
        let actor = match asked {
            Some(actor) => actor,
            // Somebody with every role who posts a verdict means to be the verifier.
            None if kind == Kind::GateResult
                && self.actor_type.is_none()
                && self.may_be(ActorType::Verifier) =>
            {
                Actor {
                    kind: ActorType::Verifier,
                    ..self.actor()
                }
            }
            None => self.actor(),
        };
        self.check(&actor)?;
        // Nor by an importer: every agent's token may write as one, and what a transcript says of a gate
        // is an observation.
        if kind == Kind::GateResult && actor.kind != ActorType::Verifier {
            return Err(AccessError::Actor(format!(
                "a gate_result is written by a verifier, not by {} {:?}",
                actor.kind, actor.id
            )));
        }
        Ok(actor)
    }

    fn check(&self, actor: &Actor) -> Result<(), AccessError> {
        let refuse = |why: String| {
            Err(AccessError::Actor(format!(
                "the token may not write as {} {:?}: {why}",
                actor.kind, actor.id
            )))
        };
        if !self.may_be(actor.kind) {
            return refuse(match actor.kind {
                ActorType::Verifier => "only gate tokens write as verifier".to_owned(),
                ActorType::Human => {
                    "only people's tokens (auditor, compliance, admin) write as human".to_owned()
                }
                ActorType::System => "only the store writes as system".to_owned(),
                _ => "only agent tokens write as agent, tool or importer".to_owned(),
            });
        }
        // An agent's tools and importers are named by it; everybody else, a tool with a token of its own
        // among them, speaks for one id alone.
        let of_agent = matches!(actor.kind, ActorType::Tool | ActorType::Importer)
            && self.actor_type != Some(actor.kind);
        if let Some(own) = self.actor_type
            && own != actor.kind
            && !(of_agent && own == ActorType::Agent)
        {
            return refuse(format!("it speaks for {own}"));
        }
        match &self.actor_id {
            Some(own) if *own != actor.id && !of_agent => refuse(format!("it speaks for {own:?}")),
            _ => Ok(()),
        }
    }
}
