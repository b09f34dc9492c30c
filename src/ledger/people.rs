//! People stand in the ledger under pseudonyms: what is in it can never be taken out again, but whom a pseudonym stands
//! for can be forgotten.

use super::LedgerError;
use crate::store::{self, StoreError, Tx};
use crate::vault;
use onrecord_core::frame::{Actor, ActorType};
use onrecord_core::id::TenantId;
use std::collections::{BTreeSet, HashMap};

/// Random characters of a pseudonym: 82 bits.
const CHARS: usize = 16;

/// The pseudonyms of some people, by person.
#[derive(Default)]
pub(crate) struct Pseudonyms(HashMap<String, String>);

impl Pseudonyms {
    /// Those of the people among some actors; whoever has none yet gets one.
    pub(crate) async fn of(
        tx: &mut Tx,
        tenant: &TenantId,
        actors: impl IntoIterator<Item = &Actor>,
    ) -> Result<Self, LedgerError> {
        let people = actors.into_iter().filter(|actor| is_person(actor));
        let people: BTreeSet<&str> = people.map(|actor| actor.id.as_str()).collect();
        let people = Vec::from_iter(people);
        if people.is_empty() {
            return Ok(Self::default());
        }
        let mut known = store::people::pseudonyms(tx, tenant, &people).await?;
        let new = people.iter().filter(|person| !known.contains_key(**person));
        let new = new.map(|person| Ok((*person, format!("p_{}", vault::new_name(CHARS)?))));
        let new = new.collect::<Result<Vec<_>, LedgerError>>()?;
        if !new.is_empty() {
            store::people::insert(tx, tenant, &new).await?;
            known = store::people::pseudonyms(tx, tenant, &people).await?;
        }
        Ok(Self(known))
    }

    /// The actor as a statement names it: a person by the pseudonym, anybody else as they are.
    pub(crate) fn actor(&self, actor: &Actor) -> Result<Actor, StoreError> {
        if !is_person(actor) {
            return Ok(actor.clone());
        }
        let missing = || store::contradiction("people", "person", "somebody who was just added");
        Ok(Actor {
            id: self.0.get(&actor.id).cloned().ok_or_else(missing)?,
            ..actor.clone()
        })
    }
}

/// One actor as a statement names it.
pub(crate) async fn stand_in(
    tx: &mut Tx,
    tenant: &TenantId,
    actor: &Actor,
) -> Result<Actor, LedgerError> {
    Ok(Pseudonyms::of(tx, tenant, [actor]).await?.actor(actor)?)
}

fn is_person(actor: &Actor) -> bool {
    actor.kind == ActorType::Human
}
