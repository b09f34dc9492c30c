//! A turn alone, with the path that leads to the seal.

use super::{ExportError, ExportRequest, Withhold, path};
use crate::access::Caller;
use crate::ledger::Erasures;
use crate::record::{RecordError, Recorder, offload};
use crate::retention::expired::Expired;
use crate::store::{self, StoreError};
use crate::vault::VaultError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::bundle::{Disclosure, State, TURN_PROOF, TurnProof};
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Frame, PayloadRef};
use onrecord_core::id::RunId;
use onrecord_core::json;

/// Bytes of frames and payloads that a proof may hold: it is one JSON text, made in memory, of which the
/// verifier reads 256 MiB, and base64 and escapes make it longer.
const TURN_BYTES: u64 = 96 * 1024 * 1024;

/// What is to be told of a payload.
enum Told {
    Disclosed,
    Erased(u64),
    NotKept,
    Withheld,
}

impl Recorder {
    /// The proof of one turn of a sealed run: canonical bytes.
    pub async fn turn_proof(
        &self,
        caller: Caller,
        run: RunId,
        turn: u64,
        request: ExportRequest,
    ) -> Result<Vec<u8>, RecordError> {
        self.refuse_secret("/purpose", &request.purpose)?;
        let recorder = self.clone();
        self.detached(async move {
            let withhold = &request.withhold;
            let proof = match recorder.turn_proof_now(&caller, &run, turn, withhold).await {
                // Between the look at the keys and that at the payloads an erasure renewed a key.
                Err(RecordError::Vault(VaultError::NoRunKey { .. })) => {
                    recorder.turn_proof_now(&caller, &run, turn, withhold).await
                }
                proof => proof,
            };
            let (proof, disclosed) = proof?;
            if !disclosed.is_empty() {
                recorder
                    .log_access(&caller, &run, &request.purpose, Some(disclosed))
                    .await?;
            }
            Ok(proof)
        })
        .await
    }

    /// The proof, and the commitments of the payloads that it discloses.
    async fn turn_proof_now(
        &self,
        caller: &Caller,
        run: &RunId,
        turn: u64,
        withhold: &Withhold,
    ) -> Result<(Vec<u8>, Vec<Hash>), RecordError> {
        let mut tx = self.store.snapshot(&caller.tenant).await?;
        let row = store::runs::find(&mut tx, run)
            .await?
            .ok_or_else(|| RecordError::NoRun(run.clone()))?;
        let sealed = row.sealed.ok_or_else(|| RecordError::Open(run.clone()))?;
        let bytes = store::frames::turn_bytes(&mut tx, run, turn, !withhold.is_all()).await?;
        if bytes > TURN_BYTES {
            return Err(RecordError::TurnTooLarge { turn, bytes });
        }
        let bytes = store::frames::of_turn(&mut tx, run, turn).await?;
        let frames = bytes
            .iter()
            .map(|bytes| Frame::parse(bytes))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| store::contradiction("frames", "bytes", run))?;
        let last = frames.last().ok_or(RecordError::NoTurn {
            run: run.clone(),
            turn,
        })?;
        let (_, path) = path::path(&mut tx, &row.chain, last.seq).await?;
        let run_keys = self.read_run_keys(&caller.tenant, run).await?;
        let erasures = Erasures::of(&mut tx, &caller.tenant, run).await?;
        let expired = Expired::of(&mut tx, &caller.tenant, run).await?;
        let withhold = &withhold.clone().and_tiers(expired.tiers());
        let mut disclosures = Vec::new();
        let mut committed = Vec::new();
        for frame in &frames {
            let told = |payload: &PayloadRef| {
                let (seq, tier) = (frame.seq, payload.tier);
                let erased = erasures.covering(seq, tier, &payload.commit);
                let told = match erased {
                    _ if payload.kept == Some(false) => Told::NotKept,
                    Some(index) => Told::Erased(index),
                    None if withhold.covers(frame.kind, seq, &payload.name, tier) => Told::Withheld,
                    None => Told::Disclosed,
                };
                (seq, payload.commit, told)
            };
            committed.extend(frame.payloads().iter().map(told));
        }
        for (seq, commit, told) in committed {
            let stored = store::payloads::one(&mut tx, run, &commit).await?;
            disclosures.push(match (told, stored) {
                (Told::NotKept, _) => Disclosure::of(commit, State::NotKept),
                (Told::Erased(index), _) => Disclosure::erased(commit, index),
                (_, None) => Disclosure::of(commit, State::Missing),
                (Told::Withheld, _) => Disclosure::of(commit, State::Withheld),
                (Told::Disclosed, Some(stored)) => {
                    let opened = offload(stored.ciphertext.len(), || {
                        run_keys.open(stored.key.tier, stored.key.key_version, &stored.media, &commit, &stored.key.wrapped_dek, &stored.ciphertext)
                    });
                    let opened = opened.map_err(|error| {
                        if matches!(error, VaultError::NoRunKey { .. }) {
                            return RecordError::Vault(error);
                        }
                        tracing::error!(error = %ExportError::Payload { run: run.clone(), commit }, frame = seq, "a turn proof broke off");
                        store::contradiction("payloads", "ciphertext", commit).into()
                    })?;
                    Disclosure { data: Some(STANDARD.encode(&opened.plaintext)), ..Disclosure::disclosed(commit, opened.salt) }
                }
            });
        }
        let seal = store::ledger::entry(&mut tx, &caller.tenant, sealed.index).await?;
        tx.commit().await.map_err(StoreError::from)?;
        let text = |bytes: Vec<u8>| {
            String::from_utf8(bytes).map_err(|_| store::contradiction("frames", "bytes", run))
        };
        drop(frames);
        let disclosed = disclosures
            .iter()
            .filter(|one| one.state == State::Disclosed);
        let disclosed = disclosed.map(|one| one.commit).collect();
        let proof = TurnProof {
            disclosures: (!disclosures.is_empty()).then_some(disclosures),
            frames: bytes.into_iter().map(text).collect::<Result<_, _>>()?,
            onrecord: TURN_PROOF.to_owned(),
            path,
            proof: Some(sealed.proof),
            seal: text(seal)?,
        };
        let proof =
            json::to_canonical(&proof).map_err(|_| store::contradiction("frames", "bytes", run))?;
        Ok((proof, disclosed))
    }
}
