//! The keys of runs: of each run and tier one, and a newer version whenever it was renewed.

use super::cipher::{self, Key, Place};
use super::{TIERS, TenantKeys, VaultError, random};
use onrecord_core::digest::Hash;
use onrecord_core::id::{RunId, TenantId};
use std::collections::HashMap;
use zeroize::Zeroizing;

/// A key of a run and tier as it lies in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedRunKey {
    /// 0 to 3.
    pub tier: i16,
    /// 0 for the one that the run was opened with; higher ones took its place.
    pub version: i16,
    /// The epoch whose key wraps it.
    pub epoch: i32,
    /// The wrapped bytes.
    pub wrapped: Vec<u8>,
}

/// The keys of a run; those that were erased are gone.
pub struct RunKeys {
    tenant: TenantId,
    run: RunId,
    /// By tier and version.
    keys: HashMap<(i16, i16), Key>,
    /// The newest version of each tier that has one.
    newest: [Option<i16>; TIERS as usize],
    derived: Derived,
}

/// What of a run's keys hangs on no tier, and outlives them all; derived once.
#[derive(Clone)]
struct Derived {
    /// [`cipher::fingerprint_key`].
    fingerprint: Key,
    /// [`cipher::subject_key`], the same for all runs of the tenant.
    subjects: Key,
    /// [`cipher::request_base`].
    request_base: Key,
    /// [`cipher::request_key`] of requests without payloads, which is the same for all of them.
    request: Key,
}

/// A payload as it is stored.
pub struct SealedPayload {
    /// The commitment.
    pub commit: Hash,
    /// Length after padding, in bytes.
    pub size: u64,
    /// `size` + 16 bytes.
    pub ciphertext: Vec<u8>,
    /// The payload's key under the run's.
    pub wrapped_dek: Vec<u8>,
    /// Version of the run's key that wraps it.
    pub key_version: i16,
    /// For the fingerprint of the request; `None` where the agent kept the payload, and its key.
    dek: Option<Key>,
}

/// A payload as it is disclosed.
pub struct OpenedPayload {
    /// What was said.
    pub plaintext: Vec<u8>,
    /// The salt of its commitment.
    pub salt: Hash,
}

/// The first version has the label that keys had before they had versions.
fn run_label(tenant: &TenantId, run: &RunId, tier: i16, version: i16) -> String {
    match version {
        0 => format!("onrecord/run-key/1\n{tenant}\n{run}\n{tier}"),
        _ => format!("onrecord/run-key/1\n{tenant}\n{run}\n{tier}\n{version}"),
    }
}

fn dek_label(run: &RunId, commit: &Hash) -> String {
    format!("onrecord/dek/1\n{run}\n{commit}")
}

impl TenantKeys {
    /// Makes the keys of a new run, one a tier, under the newest epoch.
    ///
    /// # Errors
    /// [`VaultError::Randomness`].
    pub fn new_run(&self, run: &RunId) -> Result<(RunKeys, Vec<WrappedRunKey>), VaultError> {
        let mut keys = self.no_keys(run)?;
        let tiers = 0..i16::from(TIERS);
        let wrapped = tiers
            .map(|tier| self.new_key(&mut keys, tier, 0))
            .collect::<Result<_, _>>()?;
        Ok((keys, wrapped))
    }

    /// Opens the keys of a run.
    ///
    /// # Errors
    /// [`VaultError::Epoch`]: one is under an epoch that was not there when the folder was read.
    pub fn open_run(&self, run: &RunId, wrapped: &[WrappedRunKey]) -> Result<RunKeys, VaultError> {
        let mut keys = self.no_keys(run)?;
        for one in wrapped {
            let label = run_label(&self.tenant, run, one.tier, one.version);
            let key = cipher::unwrap_key(self.epoch_key(one.epoch)?, &label, &one.wrapped)?;
            keys.put(one.tier, one.version, key);
        }
        Ok(keys)
    }

    /// Wraps a key of a run again, under the newest epoch; the key itself is the same.
    ///
    /// # Errors
    /// [`VaultError::Epoch`]: that which wraps it is not there. [`VaultError::Cipher`]: it does not open.
    pub fn rewrap(&self, run: &RunId, old: &WrappedRunKey) -> Result<WrappedRunKey, VaultError> {
        let label = run_label(&self.tenant, run, old.tier, old.version);
        let key = cipher::unwrap_key(self.epoch_key(old.epoch)?, &label, &old.wrapped)?;
        Ok(WrappedRunKey {
            epoch: self.epoch,
            wrapped: cipher::wrap(self.epoch_key(self.epoch)?, &label, &key[..])?,
            ..*old
        })
    }

    /// Makes a fresh key of a run and tier under the newest epoch. `version` is one that the tier has not had:
    /// one above [`RunKeys::version`] never was. Returns the keys of the run with it, and the key for the database.
    ///
    /// # Errors
    /// [`VaultError::Randomness`].
    pub fn renew(
        &self,
        run: &RunKeys,
        tier: i16,
        version: i16,
    ) -> Result<(RunKeys, WrappedRunKey), VaultError> {
        let mut keys = RunKeys {
            tenant: run.tenant.clone(),
            run: run.run.clone(),
            keys: run.keys.clone(),
            newest: run.newest,
            derived: run.derived.clone(),
        };
        let wrapped = self.new_key(&mut keys, tier, version)?;
        Ok((keys, wrapped))
    }

    /// The fingerprint of a subject, the same in all runs of the tenant.
    ///
    /// # Errors
    /// None that can be expected.
    pub fn subject(&self, subject: &str) -> Result<[u8; 16], VaultError> {
        cipher::subject_fingerprint(&cipher::subject_key(&self.fingerprint)?, subject)
    }

    /// What tells a cursor of the tenant that was given out here from any other text.
    ///
    /// # Errors
    /// None that can be expected.
    pub fn cursor_mac(&self, cursor: &[u8]) -> Result<[u8; 16], VaultError> {
        cipher::cursor_mac(&self.fingerprint, cursor)
    }

    fn new_key(
        &self,
        keys: &mut RunKeys,
        tier: i16,
        version: i16,
    ) -> Result<WrappedRunKey, VaultError> {
        let key = Zeroizing::new(random::bytes::<32>()?);
        let label = run_label(&self.tenant, &keys.run, tier, version);
        let wrapped = cipher::wrap(self.epoch_key(self.epoch)?, &label, &key[..])?;
        keys.put(tier, version, key);
        Ok(WrappedRunKey {
            tier,
            version,
            epoch: self.epoch,
            wrapped,
        })
    }

    fn no_keys(&self, run: &RunId) -> Result<RunKeys, VaultError> {
        let request_base = cipher::request_base(&self.fingerprint, run)?;
        Ok(RunKeys {
            tenant: self.tenant.clone(),
            run: run.clone(),
            keys: HashMap::new(),
            newest: [None; TIERS as usize],
            derived: Derived {
                fingerprint: cipher::fingerprint_key(&self.fingerprint, run)?,
                subjects: cipher::subject_key(&self.fingerprint)?,
                request: cipher::request_key(&request_base, &[])?,
                request_base,
            },
        })
    }

    fn epoch_key(&self, epoch: i32) -> Result<&Key, VaultError> {
        self.epochs.get(&epoch).ok_or(VaultError::Epoch { epoch })
    }
}

impl SealedPayload {
    /// What is stored of a payload that the agent kept: its commitment, so that it is in no other place of the run, and
    /// nothing that could be opened.
    pub fn kept(commit: Hash, size: u64) -> Self {
        Self {
            commit,
            size,
            ciphertext: Vec::new(),
            wrapped_dek: Vec::new(),
            key_version: 0,
            dek: None,
        }
    }
}

impl RunKeys {
    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The newest version of all tiers' keys; 0 where none was ever renewed.
    pub fn version(&self) -> i16 {
        self.newest.iter().flatten().copied().max().unwrap_or(0)
    }

    /// The newest version of a tier's key; `None` where it has none.
    pub fn tier_version(&self, tier: i16) -> Option<i16> {
        let tier = usize::try_from(tier).ok()?;
        self.newest.get(tier).copied().flatten()
    }

    /// Commits to a payload and encrypts it under a key of its own, which the newest key of the tier wraps.
    ///
    /// # Errors
    /// [`VaultError::NoRunKey`]: the tier has no key.
    pub fn seal(
        &self,
        tier: i16,
        media: &str,
        plaintext: Vec<u8>,
    ) -> Result<SealedPayload, VaultError> {
        let dek = Zeroizing::new(random::bytes::<32>()?);
        self.seal_under(dek, tier, media, plaintext)
    }

    /// The same under a key that the agent made, which thereby made the commitment too.
    ///
    /// # Errors
    /// [`VaultError::NoRunKey`]: the tier has no key.
    pub fn seal_under(
        &self,
        dek: Zeroizing<[u8; 32]>,
        tier: i16,
        media: &str,
        plaintext: Vec<u8>,
    ) -> Result<SealedPayload, VaultError> {
        let (commit, ciphertext) = cipher::seal_payload(&dek, &self.place(media), plaintext)?;
        let (wrapped_dek, key_version) = self.wrap(tier, &commit, &dek)?;
        Ok(SealedPayload {
            commit,
            size: ciphertext.len() as u64 - 16,
            ciphertext,
            wrapped_dek,
            key_version,
            dek: Some(dek),
        })
    }

    /// Decrypts a payload and checks it against its commitment. `key_version` is that of the run's key which
    /// wraps the payload's.
    ///
    /// # Errors
    /// [`VaultError::NoRunKey`]: there is no such key; [`VaultError::Cipher`]: it does not open.
    pub fn open(
        &self,
        tier: i16,
        key_version: i16,
        media: &str,
        commit: &Hash,
        wrapped_dek: &[u8],
        ciphertext: &[u8],
    ) -> Result<OpenedPayload, VaultError> {
        let dek = self.dek(tier, key_version, commit, wrapped_dek)?;
        let plaintext = cipher::open_payload(&dek, &self.place(media), commit, ciphertext)?;
        Ok(OpenedPayload {
            plaintext,
            salt: Hash(cipher::salt(&dek)?),
        })
    }

    /// The salt of a payload's commitment.
    ///
    /// # Errors
    /// As [`RunKeys::open`].
    pub fn salt(
        &self,
        tier: i16,
        key_version: i16,
        commit: &Hash,
        wrapped_dek: &[u8],
    ) -> Result<Hash, VaultError> {
        cipher::salt(&self.dek(tier, key_version, commit, wrapped_dek)?).map(Hash)
    }

    /// Wraps a payload's key by the newest key of its tier. Returns it with the version of that.
    ///
    /// # Errors
    /// As [`RunKeys::open`].
    pub fn rewrap(
        &self,
        tier: i16,
        commit: &Hash,
        from_version: i16,
        wrapped_dek: &[u8],
    ) -> Result<(Vec<u8>, i16), VaultError> {
        let dek = self.dek(tier, from_version, commit, wrapped_dek)?;
        self.wrap(tier, commit, &dek)
    }

    /// Wraps the key of a payload that is not stored yet by the newest key of its tier.
    ///
    /// # Errors
    /// [`VaultError::NoRunKey`]: the tier has no key.
    pub fn rewrap_new(&self, tier: i16, payload: &mut SealedPayload) -> Result<(), VaultError> {
        // Of what the agent kept there is none.
        if let Some(dek) = &payload.dek {
            (payload.wrapped_dek, payload.key_version) = self.wrap(tier, &payload.commit, dek)?;
        }
        Ok(())
    }

    /// The fingerprints of subjects, 16 bytes each in the order of the bytes; `None` for none of them.
    ///
    /// # Errors
    /// None that can be expected.
    pub fn subjects(&self, subjects: &[String]) -> Result<Option<Vec<u8>>, VaultError> {
        if subjects.is_empty() {
            return Ok(None);
        }
        let prints = subjects
            .iter()
            .map(|one| cipher::subject_fingerprint(&self.derived.subjects, one));
        let mut prints = prints.collect::<Result<Vec<_>, _>>()?;
        prints.sort_unstable();
        prints.dedup();
        Ok(Some(prints.concat()))
    }

    /// The fingerprint of a secret that was redacted, by which it is found to be the same elsewhere in the run.
    ///
    /// # Errors
    /// None that can be expected.
    pub fn secret_fingerprint(&self, secret: &[u8]) -> Result<Hash, VaultError> {
        cipher::secret_fingerprint(&self.derived.fingerprint, secret)
    }

    /// The fingerprint of a new frame's request, by which a retry is told from another request.
    ///
    /// # Errors
    /// None that can be expected.
    pub fn request_mac<'a>(
        &self,
        payloads: impl IntoIterator<Item = &'a SealedPayload>,
        request: &[u8],
    ) -> Result<[u8; 16], VaultError> {
        let deks: Vec<Key> = payloads
            .into_iter()
            .filter_map(|payload| payload.dek.clone())
            .collect();
        if deks.is_empty() {
            return cipher::request_mac(&self.derived.request, request);
        }
        let key = cipher::request_key(&self.derived.request_base, &deks)?;
        cipher::request_mac(&key, request)
    }

    /// Whether a request is the one that a stored frame was made of. `stored` are its payloads, those
    /// of a result after those of its call, in their order, as `(tier, key version, commit, wrapped DEK)`.
    ///
    /// # Errors
    /// As [`RunKeys::open`].
    pub fn same_request(
        &self,
        stored: &[(i16, i16, Hash, Vec<u8>)],
        request: &[u8],
        mac: &[u8],
    ) -> Result<bool, VaultError> {
        let deks = stored
            .iter()
            .map(|(tier, version, commit, wrapped)| self.dek(*tier, *version, commit, wrapped))
            .collect::<Result<Vec<Key>, _>>()?;
        // Frames of before there was a fingerprint key have a MAC under the first key of tier 0.
        let bases = [Some(&self.derived.request_base), self.keys.get(&(0, 0))];
        for base in bases.into_iter().flatten() {
            let expected = cipher::request_mac(&cipher::request_key(base, &deks)?, request)?;
            if subtle::ConstantTimeEq::ct_eq(&expected[..], mac).into() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn put(&mut self, tier: i16, version: i16, key: Key) {
        self.keys.insert((tier, version), key);
        let newest = usize::try_from(tier)
            .ok()
            .and_then(|tier| self.newest.get_mut(tier));
        if let Some(newest) = newest {
            *newest = (*newest).max(Some(version));
        }
    }

    fn place<'a>(&'a self, media: &'a str) -> Place<'a> {
        Place {
            tenant: &self.tenant,
            run: &self.run,
            media,
        }
    }

    fn key(&self, tier: i16, version: i16) -> Result<&Key, VaultError> {
        let key = self.keys.get(&(tier, version));
        key.ok_or(VaultError::NoRunKey { tier, version })
    }

    fn wrap(&self, tier: i16, commit: &Hash, dek: &Key) -> Result<(Vec<u8>, i16), VaultError> {
        let version = self.tier_version(tier).unwrap_or(0);
        let key = self.key(tier, version)?;
        let wrapped = cipher::wrap(key, &dek_label(&self.run, commit), &dek[..])?;
        Ok((wrapped, version))
    }

    fn dek(
        &self,
        tier: i16,
        key_version: i16,
        commit: &Hash,
        wrapped_dek: &[u8],
    ) -> Result<Key, VaultError> {
        let key = self.key(tier, key_version)?;
        cipher::unwrap_key(key, &dek_label(&self.run, commit), wrapped_dek)
    }
}
