//! Keys that sign for a tenant: which there are, and another seal key in the place of one that is revoked.

use super::{RecordError, Recorder, commit};
use crate::access::Caller;
use crate::ledger;
use crate::store::signing_keys::Holder;
pub(crate) use crate::store::signing_keys::SigningKeyRow;
use crate::store::tenants::LockedTenant;
use crate::store::{self, StoreError, Tx};
use crate::vault::{PublicKey, SealKey, VaultError};
use onrecord_core::digest::Hash;
use onrecord_core::id::TenantId;
use onrecord_core::statement::{Key, KeyAction, KeyRole, Predicate};
use onrecord_core::submitted;
use std::sync::Arc;

/// The keys of a tenant as they are listed.
pub(crate) struct SigningKeys {
    /// Whose they are.
    pub(crate) tenant: TenantId,
    /// In the order in which they were added.
    pub(crate) keys: Vec<SigningKeyRow>,
    /// The seal key in force.
    pub(crate) in_force: Hash,
    /// The ledger's key, a C2SP verifier key.
    pub(crate) ledger: String,
}

/// A key that an agent is to sign with.
pub(crate) struct NewAgentKey {
    /// Id of the agent as an actor.
    pub(crate) actor: String,
    /// SPKI DER in base64.
    pub(crate) spki: String,
    /// Its signature over [`submitted::possession`].
    pub(crate) proof: [u8; 64],
    /// Whether it is known that the actor wrote frames without signing them.
    pub(crate) unsigned_before: bool,
}

/// A rotation that is done.
pub(crate) struct Rotated {
    /// The key in force now.
    pub(crate) keyid: Hash,
    /// The key that was revoked.
    pub(crate) revoked: Hash,
    /// Ledger index of its revocation: what it would sign from there on does not count.
    pub(crate) revoked_index: u64,
}

impl Recorder {
    /// The keys that sign for the caller's tenant, those that are revoked too.
    pub(crate) async fn signing_keys(&self, caller: Caller) -> Result<SigningKeys, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let tenant = &caller.tenant;
            let ledger = recorder.keys(tenant).await?.ledger().verifier().to_string();
            let mut tx = recorder.store.snapshot(tenant).await?;
            let keys = store::signing_keys::all(&mut tx, tenant).await?;
            let in_force = store::tenants::seal_key(&mut tx, tenant).await?;
            tx.commit().await.map_err(StoreError::from)?;
            Ok(SigningKeys {
                tenant: tenant.clone(),
                keys,
                in_force,
                ledger,
            })
        })
        .await
    }

    /// Makes another seal key, puts it in force, and revokes the one before it for a reason. `expected` is the key that
    /// is to be revoked, if the caller says so: a request that comes twice does not revoke two.
    ///
    /// # Errors
    /// [`RecordError::KeyNotInForce`]: another one is in force.
    pub(crate) async fn rotate_seal_key(
        &self,
        caller: Caller,
        reason: String,
        expected: Option<Hash>,
    ) -> Result<Rotated, RecordError> {
        self.refuse_secret("/reason", &reason)?;
        let recorder = self.clone();
        self.detached(async move { recorder.rotate_now(&caller.tenant, reason, expected).await })
            .await
    }

    /// Registers a key that an agent signs its frames with, from now on all of them. False where it was registered for it
    /// before.
    ///
    /// # Errors
    /// [`RecordError::FalseSignature`]: the proof is not that of the key; [`RecordError::AgentKeyTaken`];
    /// [`RecordError::WroteUnsigned`], unless the caller says that it may be.
    pub(crate) async fn add_agent_key(
        &self,
        caller: Caller,
        request: NewAgentKey,
    ) -> Result<(SigningKeyRow, bool), RecordError> {
        self.refuse_secret("/actor", &request.actor)?;
        let recorder = self.clone();
        self.detached(async move {
            let tenant = &caller.tenant;
            let added = recorder.add_agent_key_now(tenant, &request).await;
            recorder.agents.changed(tenant).await;
            added
        })
        .await
    }

    async fn add_agent_key_now(
        &self,
        tenant: &TenantId,
        request: &NewAgentKey,
    ) -> Result<(SigningKeyRow, bool), RecordError> {
        let (keyid, key) = onrecord_verify::PublicKey::from_spki(&request.spki)
            .map_err(|_| RecordError::Vault(VaultError::Key))?;
        let message = submitted::possession(tenant, &request.actor);
        if !key.verifies(message.as_bytes(), &request.proof) {
            return Err(RecordError::FalseSignature);
        }
        let keys = self.keys(tenant).await?;
        let public = PublicKey::from_spki(&request.spki)?;
        let mut tx = self.store.begin(tenant).await?;
        if !request.unsigned_before
            && store::frames::has_unsigned(&mut tx, tenant, &request.actor).await?
        {
            return Err(RecordError::WroteUnsigned {
                actor: request.actor.clone(),
            });
        }
        let mut locked = store::tenants::lock(&mut tx, tenant).await?;
        let known = store::signing_keys::all(&mut tx, tenant).await?;
        if let Some(row) = known.into_iter().find(|row| row.keyid == keyid) {
            return if row.actor() == Some(&request.actor) && row.revoked_index.is_none() {
                Ok((row, false))
            } else {
                Err(RecordError::AgentKeyTaken(keyid))
            };
        }
        let holder = Holder::Agent(request.actor.clone());
        let row = self.add_key(&mut tx, &mut locked, &public, holder).await?;
        ledger::checkpoint(&mut tx, &locked, &keys).await?;
        // A crash before this line leaves nothing, after it a key that is registered; whoever asks again is told so.
        commit(tx).await?;
        tracing::info!(%tenant, %keyid, index = row.added_index, "an agent's key was registered");
        Ok((row, true))
    }

    /// Revokes an agent's key: it signs nothing any more. Its agent still has to sign, with another.
    ///
    /// # Errors
    /// [`RecordError::NoAgentKey`]: there is none of that id.
    pub(crate) async fn revoke_agent_key(
        &self,
        caller: Caller,
        keyid: Hash,
        reason: Option<String>,
    ) -> Result<(), RecordError> {
        self.refuse_secret("/reason", reason.as_deref().unwrap_or_default())?;
        let recorder = self.clone();
        self.detached(async move {
            let tenant = &caller.tenant;
            let revoked = recorder.revoke_agent_key_now(tenant, keyid, reason).await;
            recorder.agents.changed(tenant).await;
            revoked
        })
        .await
    }

    async fn revoke_agent_key_now(
        &self,
        tenant: &TenantId,
        keyid: Hash,
        reason: Option<String>,
    ) -> Result<(), RecordError> {
        let keys = self.keys(tenant).await?;
        let mut tx = self.store.begin(tenant).await?;
        let mut locked = store::tenants::lock(&mut tx, tenant).await?;
        let known = store::signing_keys::all(&mut tx, tenant).await?;
        let agents = known.into_iter().filter(|row| row.actor().is_some());
        let row = agents
            .into_iter()
            .find(|row| row.keyid == keyid)
            .ok_or(RecordError::NoAgentKey(keyid))?;
        if row.revoked_index.is_some() {
            return Ok(());
        }
        let public = PublicKey::from_spki(&row.spki)?;
        let key = (&public, KeyRole::Agent);
        self.end_key(&mut tx, &mut locked, key, reason).await?;
        ledger::checkpoint(&mut tx, &locked, &keys).await?;
        // A crash before this line leaves the key as it was, after it revoked.
        commit(tx).await?;
        tracing::info!(%tenant, %keyid, "an agent's key was revoked");
        Ok(())
    }

    async fn rotate_now(
        &self,
        tenant: &TenantId,
        reason: String,
        expected: Option<Hash>,
    ) -> Result<Rotated, RecordError> {
        let keys = self.keys(tenant).await?;
        let mut tx = self.store.begin(tenant).await?;
        let mut locked = store::tenants::lock(&mut tx, tenant).await?;
        let old = self.vault.seal_key(tenant, &locked.seal_key).await?;
        let old = old.public().clone();
        if expected.is_some_and(|expected| expected != old.keyid) {
            return Err(RecordError::KeyNotInForce { keyid: old.keyid });
        }
        // Under the lock, so that no two processes make keys at once. A crash after this leaves a key file that
        // nobody uses.
        let new = self.vault.new_seal_key(tenant).await?;
        self.add_key(&mut tx, &mut locked, &new, Holder::Seal)
            .await?;
        store::tenants::update_seal_key(&mut tx, &mut locked, new.keyid).await?;
        // Signed with the new key, as all that follows: from here on the old one counts for nothing.
        let role = KeyRole::Seal;
        let index = self
            .end_key(&mut tx, &mut locked, (&old, role), Some(reason))
            .await?;
        ledger::checkpoint(&mut tx, &locked, &keys).await?;
        // A crash before this line leaves the old key in force, and the same file; after it the new one is in force.
        commit(tx).await?;
        // A crash before this line leaves the secret of a key that nobody signs with any more: it is destroyed at the
        // next start.
        if let Err(error) = self.vault.destroy_seal_keys(tenant, &[old.keyid]).await {
            tracing::error!(%tenant, keyid = %old.keyid, %error, "the secret of a revoked seal key is there still");
        }
        tracing::info!(%tenant, keyid = %new.keyid, revoked = %old.keyid, index, "the seal key was rotated");
        Ok(Rotated {
            keyid: new.keyid,
            revoked: old.keyid,
            revoked_index: index,
        })
    }

    /// Enters into the ledger that a key begins, and keeps its public half.
    pub(super) async fn add_key(
        &self,
        tx: &mut Tx,
        tenant: &mut LockedTenant,
        key: &PublicKey,
        holder: Holder,
    ) -> Result<SigningKeyRow, RecordError> {
        let role = match &holder {
            Holder::Seal => KeyRole::Seal,
            Holder::Agent(_) => KeyRole::Agent,
        };
        let said = statement(tenant, KeyAction::Added, (key, role), None)?;
        let entry = ledger::append(tx, tenant, &self.vault, &said, None).await?;
        let row = SigningKeyRow {
            keyid: key.keyid,
            holder,
            spki: key.spki.clone(),
            added_index: entry.index,
            revoked_index: None,
        };
        store::signing_keys::insert(tx, &tenant.tenant, &row).await?;
        Ok(row)
    }

    /// Enters into the ledger that a key ends, and returns at which index.
    pub(super) async fn end_key(
        &self,
        tx: &mut Tx,
        tenant: &mut LockedTenant,
        key: (&PublicKey, KeyRole),
        reason: Option<String>,
    ) -> Result<u64, RecordError> {
        let said = statement(tenant, KeyAction::Revoked, key, reason)?;
        let entry = ledger::append(tx, tenant, &self.vault, &said, None).await?;
        store::signing_keys::revoke(tx, &tenant.tenant, &key.0.keyid, entry.index).await?;
        Ok(entry.index)
    }

    /// The seal key in force, as a transaction sees it.
    pub(crate) async fn seal_key(
        &self,
        tx: &mut Tx,
        tenant: &TenantId,
    ) -> Result<Arc<SealKey>, RecordError> {
        let keyid = store::tenants::seal_key(tx, tenant).await?;
        Ok(self.vault.seal_key(tenant, &keyid).await?)
    }

    /// The seal key in force now.
    pub(crate) async fn seal_key_now(
        &self,
        tenant: &TenantId,
    ) -> Result<Arc<SealKey>, RecordError> {
        let mut last = true;
        loop {
            let mut tx = self.store.snapshot(tenant).await?;
            let key = self.seal_key(&mut tx, tenant).await;
            tx.commit().await.map_err(StoreError::from)?;
            match key {
                // It was revoked and destroyed between the two looks; the next look finds the one in its place.
                Err(RecordError::Vault(VaultError::NoSealKey { .. })) if last => last = false,
                key => return key,
            }
        }
    }

    /// Destroys the secrets of seal keys that are revoked, where a crash left them after a rotation.
    pub(super) async fn destroy_revoked(&self, tenant: &TenantId) -> Result<(), RecordError> {
        let mut tx = self.store.snapshot(tenant).await?;
        let keys = store::signing_keys::all(&mut tx, tenant).await?;
        tx.commit().await.map_err(StoreError::from)?;
        let revoked = keys.into_iter().filter(|key| key.revoked_index.is_some());
        let revoked: Vec<Hash> = revoked.map(|key| key.keyid).collect();
        let gone = self.vault.destroy_seal_keys(tenant, &revoked).await?;
        if gone > 0 {
            tracing::info!(%tenant, gone, "secrets of revoked seal keys were destroyed");
        }
        Ok(())
    }
}

fn statement(
    tenant: &LockedTenant,
    action: KeyAction,
    (key, role): (&PublicKey, KeyRole),
    reason: Option<String>,
) -> Result<Predicate, RecordError> {
    Ok(Predicate::Key(Key {
        action,
        at: ledger::next_time(tenant)?,
        keyid: key.keyid,
        reason,
        role,
        spki: key.spki.clone(),
    }))
}
