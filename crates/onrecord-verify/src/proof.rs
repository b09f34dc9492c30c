//! Proofs of the ledger: a proof's entry, its checkpoint, who signed that, and the witnesses' quorum
//! (spec: `docs/spec/verification.md`, "Ledger proofs").

use crate::code::Code;
use crate::trust::Trust;
use onrecord_core::digest::Hash;
use onrecord_core::id::Origin;
use onrecord_core::merkle::verify_inclusion;
use onrecord_core::note::{Checkpoint, Cosignature, Note, TlogProof, cosigned_message};
use onrecord_core::timestamp::Timestamp;
use std::ops::RangeInclusive;

/// Bytes of a proof: 64 hashes and 100 signatures are far below.
pub(crate) const PROOF_BYTES: usize = 65_536;
/// Seconds that a witness's clock may be behind the store's.
const CLOCK_SECONDS: i128 = 300;
const MICROS: i128 = 1_000_000;

/// What a proof says.
#[derive(Clone, Debug)]
pub(crate) struct Proven {
    pub index: u64,
    /// `None` where it is malformed.
    pub checkpoint: Option<Checkpoint>,
    /// Pinned witnesses by their place in the trust file, with the second at which they signed.
    pub witnesses: Vec<(usize, u64)>,
    pub quorum: bool,
}

impl Proven {
    /// Who cosigned, in words.
    pub fn cosigned_by(&self, trust: Option<&Trust>) -> String {
        let Some(trust) = trust else {
            return String::new();
        };
        let names: Vec<&str> = self
            .witnesses
            .iter()
            .filter_map(|(index, _)| Some(trust.witnesses().get(*index)?.verifier.name()))
            .collect();
        if names.is_empty() {
            return ", cosigned by no witness that is pinned".into();
        }
        format!(", cosigned by {}", names.join(", "))
    }

    /// Whether a quorum cosigned from 300 s before the time to so many seconds after it, ends included.
    pub fn anchored(&self, trust: &Trust, sealed_at: Timestamp, seconds: u64) -> bool {
        let window = window(sealed_at, seconds);
        trust.has_quorum()
            && trust.quorum_met(|witness| {
                self.witnesses.iter().any(|(index, time)| {
                    *index == witness && window.contains(&(i128::from(*time) * MICROS))
                })
            })
    }
}

/// The microseconds in which others have to have seen a seal.
fn window(sealed_at: Timestamp, seconds: u64) -> RangeInclusive<i128> {
    let sealed = i128::from(sealed_at.micros());
    sealed - CLOCK_SECONDS * MICROS..=sealed + i128::from(seconds) * MICROS
}

/// Whether an authority stamped a seal in that time.
pub(crate) fn stamped(at: Option<Timestamp>, sealed_at: Timestamp, seconds: u64) -> bool {
    at.is_some_and(|at| window(sealed_at, seconds).contains(&i128::from(at.micros())))
}

/// Checks the proof of an entry by its leaf hash. `origin` is the ledger that it has to be.
pub(crate) fn check(
    text: &[u8],
    leaf: &Hash,
    origin: Option<&Origin>,
    trust: Option<&Trust>,
    emit: &mut dyn FnMut(Code, String),
) -> Option<Proven> {
    let proof = match std::str::from_utf8(text).map_err(|error| error.to_string()) {
        Ok(text) => TlogProof::parse(text).map_err(|error| error.to_string()),
        Err(error) => Err(error),
    };
    let proof = match proof {
        Ok(proof) => proof,
        Err(error) => {
            emit(Code::Proof, error);
            return None;
        }
    };
    let mut proven = Proven {
        index: proof.index,
        checkpoint: None,
        witnesses: Vec::new(),
        quorum: false,
    };
    let (note, checkpoint) = match read_checkpoint(&proof.checkpoint) {
        Ok(read) => read,
        Err(error) => {
            emit(Code::Checkpoint, error);
            return Some(proven);
        }
    };
    proven.witnesses = check_signatures(&note, &checkpoint, trust, emit);
    if let Err(error) = verify_inclusion(
        leaf,
        proof.index,
        checkpoint.size,
        &proof.path,
        &checkpoint.root,
    ) {
        emit(
            Code::LedgerInclusion,
            format!("entry {}: {error}", proof.index),
        );
    }
    if let Some(origin) = origin
        && origin.as_str() != checkpoint.origin
    {
        emit(
            Code::CheckpointOrigin,
            format!(
                "the checkpoint is of {:?}, the evidence of {origin}",
                checkpoint.origin
            ),
        );
    }
    proven.quorum = check_quorum(&proven.witnesses, trust, emit);
    proven.checkpoint = Some(checkpoint);
    Some(proven)
}

/// Takes a signed checkpoint apart.
pub(crate) fn read_checkpoint(text: &str) -> Result<(Note, Checkpoint), String> {
    let note = Note::parse(text).map_err(|error| error.to_string())?;
    let checkpoint = Checkpoint::parse(&note.text).map_err(|error| error.to_string())?;
    Ok((note, checkpoint))
}

/// The log's signature and those of all pinned witnesses that signed; what nobody pinned is ignored.
pub(crate) fn check_signatures(
    note: &Note,
    checkpoint: &Checkpoint,
    trust: Option<&Trust>,
    emit: &mut dyn FnMut(Code, String),
) -> Vec<(usize, u64)> {
    let Some(trust) = trust.filter(|trust| trust.has_logs()) else {
        return Vec::new();
    };
    check_log(note, checkpoint, trust, emit);
    let mut witnesses = Vec::new();
    for (index, witness) in trust.witnesses().iter().enumerate() {
        for bytes in note.signatures_of(&witness.verifier) {
            let cosignature = Cosignature::from_bytes(bytes).ok().filter(|one| {
                let message = cosigned_message(one.time, &note.text);
                witness.key.verifies(message.as_bytes(), &one.signature)
            });
            match cosignature {
                Some(one) => witnesses.push((index, one.time)),
                None => emit(
                    Code::Cosignature,
                    format!("the cosignature of {} is false", witness.verifier.name()),
                ),
            }
        }
    }
    witnesses
}

fn check_log(
    note: &Note,
    checkpoint: &Checkpoint,
    trust: &Trust,
    emit: &mut dyn FnMut(Code, String),
) {
    let (mut pinned, mut signed) = (false, false);
    for log in trust.logs_of(&checkpoint.origin) {
        pinned = true;
        for bytes in note.signatures_of(&log.verifier) {
            signed = true;
            let signature = bytes.try_into().ok();
            if !signature.is_some_and(|signature| log.key.verifies(note.text.as_bytes(), signature))
            {
                emit(
                    Code::CheckpointSignature,
                    format!("the signature of {} is false", log.verifier.name()),
                );
            }
        }
    }
    if !pinned {
        // Nobody said whose signature would count: that could not be checked, which is not the same as false.
        emit(
            Code::SignerUnknown,
            format!(
                "no log line pins {:?}, which signed the checkpoint",
                checkpoint.origin
            ),
        );
    } else if !signed {
        emit(
            Code::CheckpointSignature,
            format!("not signed by the pinned key of {}", checkpoint.origin),
        );
    }
}

pub(crate) fn check_quorum(
    witnesses: &[(usize, u64)],
    trust: Option<&Trust>,
    emit: &mut dyn FnMut(Code, String),
) -> bool {
    let Some(trust) = trust.filter(|trust| trust.has_logs()) else {
        return false;
    };
    let met = trust.quorum_met(|witness| witnesses.iter().any(|(index, _)| *index == witness));
    if !met {
        emit(
            Code::WitnessQuorum,
            format!(
                "cosigned by {} pinned witnesses, which is not the quorum",
                witnesses.len()
            ),
        );
    }
    met
}
