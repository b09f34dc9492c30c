//! One frame alone, out of a run (spec: `docs/spec/verification.md`, "Frame proof").

use crate::Options;
use crate::check::Check;
use crate::code::{Code, Stage};
use crate::payloads::{Demands, Ledger as PayloadLedger};
use crate::report::What;
use crate::seal;
use crate::statement;
use crate::submitted::Agents;
use onrecord_core::bundle::FrameProof;
use onrecord_core::chain::Chain;
use onrecord_core::digest::leaf_hash;
use onrecord_core::frame::Frame;
use onrecord_core::id::TenantId;
use onrecord_core::merkle::verify_inclusion;
use onrecord_core::statement::{Predicate, State};

/// Checks a frame proof.
pub(crate) fn verify(check: &mut Check<'_>, proof: FrameProof, options: &Options) {
    check.facts.what = What::Frame;
    check.note_trust();
    let signed = match (&proof.seal, &proof.head) {
        (Some(seal), None) => under_seal(check, seal, proof.proof.as_deref()),
        (None, Some(head)) if proof.proof.is_none() => under_head(check, head),
        _ => {
            let cause = "a frame proof has a seal, with its proof or without, or else a head";
            check.push(Stage::Container, Code::Input, cause);
            return;
        }
    };
    let bytes = proof.frame.as_bytes();
    let frame = match Chain::read(bytes, 0) {
        Ok(frame) => frame,
        Err(fault) => {
            // Where it would stand is not known.
            check.push(Stage::Frames, fault.code.into(), fault.detail);
            return;
        }
    };
    check.facts.tenant = Some(frame.tenant.to_string());
    check.facts.run = Some(frame.run.to_string());
    check.facts.turn = frame.turn;
    check.facts.seq = Some(frame.seq);
    if let Some((tenant, state)) = &signed {
        in_run(check, &frame, bytes, (tenant, state), &proof);
    }
    let mut agents = Agents::of_turn();
    agents.read(check, &frame, bytes, None);
    agents.finish(check);
    let mut payloads = PayloadLedger::default();
    payloads.declare(&frame);
    payloads.sort();
    payloads.withhold();
    let demands = Demands {
        full: options.full,
        presented: &options.presented,
        whole: true,
        certificates: None,
    };
    payloads.finish(check, &demands);
    check.skip("the frames before and after this one, which do not come with a frame proof");
    check.skip_bundles_only(options);
}

/// Tenant and state that a seal signs.
fn under_seal(check: &mut Check<'_>, seal: &str, proof: Option<&str>) -> Option<(TenantId, State)> {
    let mut seal = seal::check_seal(check, Some(seal.as_bytes()))?;
    seal::check_proof(check, &mut seal, Ok(proof.map(str::as_bytes)));
    Some((seal.signed.tenant, seal.run?.state))
}

/// Tenant and state that a head signs. Nothing says that the run does not go on otherwise.
fn under_head(check: &mut Check<'_>, head: &str) -> Option<(TenantId, State)> {
    check.push(
        Stage::Seal,
        Code::Unsealed,
        "there is no seal: the frame is under a head, which the store signed while the run was open",
    );
    let trust = check.trust;
    let findings = &mut check.findings;
    let mut emit = |code, cause| findings.push(Stage::Seal, code, None, cause);
    let statement = statement::check(head.as_bytes(), trust, None, Code::SealSignature, &mut emit)?;
    let state = match statement.predicate {
        Some(Predicate::RunHead(head)) => Some(head.state),
        Some(_) => {
            let name = &statement.signed.name;
            emit(
                Code::Statement,
                format!("a {name} stands in the head's place"),
            );
            None
        }
        None => None,
    };
    check.signer = Some(statement.signer);
    check.facts.signer = Some(statement.signed.keyid);
    Some((statement.signed.tenant, state?))
}

/// The frame in the run that is signed.
fn in_run(
    check: &mut Check<'_>,
    frame: &Frame<'_>,
    bytes: &[u8],
    (tenant, state): (&TenantId, &State),
    proof: &FrameProof,
) {
    check.facts.size = Some(state.size);
    check.facts.head = Some(state.head);
    check.facts.root = Some(state.root);
    if *tenant != frame.tenant || state.run != frame.run {
        let cause = format!(
            "what is signed is of {tenant}/{}, the frame of {}/{}",
            state.run, frame.tenant, frame.run
        );
        check.push(Stage::SealedFrames, Code::SealScope, cause);
        return;
    }
    let leaf = leaf_hash(bytes);
    let included = verify_inclusion(&leaf, frame.seq, state.size, &proof.path, &state.root);
    if let Err(error) = included {
        check.push_at(
            Stage::Inclusion,
            Code::FrameInclusion,
            frame.seq,
            format!("the frame is not in the signed run: {error}"),
        );
    }
}
