//! One turn alone, out of a sealed run (spec: `docs/spec/verification.md`, "Turn proof").

use crate::Options;
use crate::check::Check;
use crate::code::{Code, Stage};
use crate::payloads::{Demands, Ledger as PayloadLedger};
use crate::report::What;
use crate::seal::{self, Seal};
use crate::submitted::Agents;
use onrecord_core::bundle::TurnProof;
use onrecord_core::chain::{Chain, Line, Links, Seen};
use onrecord_core::digest::Hash;
use onrecord_core::frame::Kind;
use onrecord_core::invariants::Invariants;
use onrecord_core::merkle::verify_inclusion;

/// Checks a turn proof.
pub(crate) fn verify(check: &mut Check<'_>, proof: TurnProof, options: &Options) {
    check.facts.what = What::Turn;
    check.note_trust();
    if proof.frames.is_empty() {
        let cause = "the turn proof has no frames";
        check.push(Stage::Container, Code::Input, cause);
        return;
    }
    let mut sealed = seal::check_seal(check, Some(proof.seal.as_bytes()));
    if let Some(seal) = &mut sealed {
        seal::check_proof(check, seal, Ok(proof.proof.as_deref().map(str::as_bytes)));
    }
    let mut turn = Turn {
        payloads: PayloadLedger::default(),
        agents: Agents::of_turn(),
        meaning: Invariants::new(),
        closed: None,
    };
    let chain = turn.read(check, &proof.frames);
    if let Some(chain) = &chain {
        turn.in_run(check, chain, sealed.as_ref(), &proof.path);
    }
    let broken = chain.is_none();
    turn.finish(check, &proof, options, broken);
}

struct Turn {
    payloads: PayloadLedger,
    agents: Agents,
    meaning: Invariants,
    /// Place and hash of the `turn_end`.
    closed: Option<(u64, Hash)>,
}

impl Turn {
    /// The frames, which are of one turn, from its `turn` to its `turn_end`; `None` after a fault.
    fn read(&mut self, check: &mut Check<'_>, frames: &[String]) -> Option<Links> {
        let first = match Chain::read(frames.first()?.as_bytes(), 0) {
            Ok(first) => first,
            Err(fault) => {
                // Where it would stand is not known.
                check.push(Stage::Frames, fault.code.into(), fault.detail);
                return None;
            }
        };
        let mut chain = Links::of_turn(&first);
        let mut seen = Seen::default();
        check.facts.tenant = Some(first.tenant.to_string());
        check.facts.run = Some(first.run.to_string());
        check.facts.turn = first.turn;
        check.facts.size = Some(frames.len() as u64);
        for line in frames {
            let read = Chain::read(line.as_bytes(), chain.size()).and_then(|frame| {
                chain.extend(&frame, Line::of(line.as_bytes()), Some(&mut seen))?;
                Ok(frame)
            });
            let frame = match read {
                Ok(frame) => frame,
                Err(fault) => {
                    check.push_at(Stage::Frames, fault.code.into(), fault.seq, fault.detail);
                    return None;
                }
            };
            self.agents.read(check, &frame, line.as_bytes(), None);
            self.meaning.read(&frame);
            self.payloads.declare(&frame);
            self.closed = (frame.kind == Kind::TurnEnd).then(|| (frame.seq, chain.head()));
        }
        check.facts.head = Some(chain.head());
        Some(chain)
    }

    /// The turn in the sealed run.
    fn in_run(&self, check: &mut Check<'_>, chain: &Links, seal: Option<&Seal>, path: &[Hash]) {
        let run = seal.and_then(|seal| Some((seal, seal.run.as_ref()?)));
        if let Some((seal, run)) = run
            && (seal.signed.tenant != *chain.tenant() || run.state.run != *chain.run())
        {
            check.push(
                Stage::SealedFrames,
                Code::SealScope,
                format!(
                    "the seal is of {}/{}, the turn of {}/{}",
                    seal.signed.tenant,
                    run.state.run,
                    chain.tenant(),
                    chain.run()
                ),
            );
        }
        let Some((seq, hash)) = self.closed else {
            check.push(
                Stage::Frames,
                Code::TurnOpen,
                "the turn has no turn_end, so nothing says that it is whole",
            );
            return;
        };
        if let Some((_, run)) = run
            && let Err(error) = verify_inclusion(&hash, seq, run.state.size, path, &run.state.root)
        {
            check.push_at(
                Stage::Inclusion,
                Code::TurnInclusion,
                seq,
                format!("the turn_end is not in the sealed run: {error}"),
            );
        }
    }

    fn finish(mut self, check: &mut Check<'_>, proof: &TurnProof, options: &Options, broken: bool) {
        self.agents.finish(check);
        check.meaning = self.meaning.finish();
        self.payloads.sort();
        if !broken {
            match &proof.disclosures {
                Some(all) => self.payloads.take(check, all),
                None => self.payloads.withhold(),
            }
        }
        // The certificates stand in the ledger, which does not come with a turn.
        let demands = Demands {
            full: options.full,
            presented: &options.presented,
            whole: !broken,
            certificates: None,
        };
        self.payloads.finish(check, &demands);
        if check.payloads.erased > 0 {
            check.skip("certificates of erasure, which do not come with a turn proof");
        }
        check.skip_bundles_only(options);
    }
}
