//! A run's bundle, member by member as it streams (spec: `docs/spec/verification.md`, "Run bundle").

use crate::Options;
use crate::check::Check;
use crate::code::{Code, Stage};
use crate::copy;
use crate::frames::{self, Frames};
use crate::leaves::Leaves;
use crate::ledger_lines::{self, Context, Lines};
use crate::manifest::{self, Members};
use crate::payloads::Demands;
use crate::proof::PROOF_BYTES;
use crate::receipts;
use crate::report::What;
use crate::seal::{self, Seal};
use crate::tar::{Archive, Body, Entry, TarError};
use crate::time_stamp::STAMP_BYTES;
use onrecord_core::bundle::Member;
use onrecord_core::chain::Links;
use onrecord_core::digest::Hash;
use onrecord_core::id::Origin;
use onrecord_core::limits::ENVELOPE_BYTES;
use std::io::BufRead;
use std::iter;

/// What has passed of the bundle.
#[derive(Default)]
struct Run {
    seal: Option<Seal>,
    sealed: bool,
    frames: Frames,
    lines: Lines,
    members: Members,
    manifest: Option<Hash>,
    exported: bool,
}

/// Checks a bundle from its first member's header on.
pub(crate) fn verify<R: BufRead>(
    check: &mut Check<'_>,
    archive: &mut Archive<R>,
    first: Entry,
    options: &Options,
) {
    check.facts.what = What::Run;
    check.note_trust();
    let mut run = Run::default();
    if let Err(error) = run.read(check, archive, first, options) {
        // Nothing after this is known, and what is missing is not missed: it may have been there.
        check.push_tar(&error);
        return;
    }
    run.finish(check, options);
}

impl Run {
    fn read<R: BufRead>(
        &mut self,
        check: &mut Check<'_>,
        archive: &mut Archive<R>,
        first: Entry,
        options: &Options,
    ) -> Result<(), TarError> {
        let mut next = Some(first);
        let mut last: Option<Member> = None;
        let (mut proof, mut stamp) = (None, None);
        while let Some(entry) = next {
            let member = Member::from_name(&entry.name).ok_or_else(|| {
                TarError::Malformed(format!("{:?} is no member of a bundle", entry.name))
            })?;
            if last.as_ref() >= Some(&member) {
                return Err(TarError::Malformed(format!(
                    "{} stands out of its order, or twice",
                    entry.name
                )));
            }
            if last.as_ref() < Some(&Member::Frames) && member >= Member::Frames {
                self.sealed_up(check, proof.take(), stamp.take());
            }
            let mut body = archive.body(&entry);
            if member == Member::SealProof {
                proof = Some(body.all(PROOF_BYTES)?.ok_or(()));
            } else if member == Member::SealTime {
                stamp = Some(body.all(STAMP_BYTES)?.ok_or(()));
            } else {
                self.member(check, &member, &mut body, options)?;
            }
            let digest = body.finish()?;
            match member {
                Member::Manifest => self.manifest = Some(digest),
                Member::Export => {}
                _ => self.members.push(member.clone(), digest),
            }
            last = Some(member);
            next = archive.next()?;
        }
        if last.as_ref() < Some(&Member::Frames) {
            self.sealed_up(check, proof, stamp);
        }
        Ok(())
    }

    fn member<R: BufRead>(
        &mut self,
        check: &mut Check<'_>,
        member: &Member,
        body: &mut Body<'_, R>,
        options: &Options,
    ) -> Result<(), TarError> {
        match member {
            Member::Seal => {
                self.sealed = true;
                let bytes = body.all(ENVELOPE_BYTES)?;
                self.seal = seal::check_seal(check, bytes.as_deref());
            }
            Member::Frames => {
                self.frames = frames::read(check, body, &options.receipts, self.sealed)?;
                let Frames { chain, file, .. } = &self.frames;
                if let (Some(seal), Some(chain), Some(file), false) =
                    (&self.seal, chain, file, self.frames.broken)
                {
                    seal::check_frames(check, seal, chain, *file);
                }
            }
            Member::Ledger => {
                let context = Context {
                    frames: &self.frames,
                    seal: self.seal.as_ref(),
                    origin: self.origin(),
                    keep_places: options.ledger.is_some(),
                };
                self.lines = ledger_lines::read(check, &context, body)?;
            }
            Member::Disclosures => {
                let known = self.members.has(&Member::Frames) && !self.frames.broken;
                self.frames.payloads.read(check, body, known)?;
            }
            Member::Payload(commit) => self.frames.payloads.open(check, commit, body)?,
            Member::Manifest => {
                self.account(check, options);
                manifest::read(check, &self.members, &self.frames.payloads, body)?;
            }
            Member::Export => {
                self.exported = true;
                if self.manifest.is_none() {
                    self.account(check, options);
                }
                let bytes = body.all(ENVELOPE_BYTES)?;
                let told = self.members.has(&Member::Disclosures);
                manifest::check_export(check, bytes.as_deref(), &self.frames, self.manifest, told);
            }
            Member::SealProof | Member::SealTime | Member::KeyPem(_) | Member::KeyNote(_) => {}
        }
        Ok(())
    }

    /// Seal, proof and time stamp have passed, or are not there.
    fn sealed_up(
        &mut self,
        check: &mut Check<'_>,
        proof: Option<Result<Vec<u8>, ()>>,
        stamp: Option<Result<Vec<u8>, ()>>,
    ) {
        if !self.sealed {
            check.push(
                Stage::Seal,
                Code::Unsealed,
                "there is no seal: the run is open, or its seal was taken away",
            );
        }
        if let Some(seal) = &mut self.seal {
            seal::check_stamp(check, seal, borrowed(&stamp));
            seal::check_proof(check, seal, borrowed(&proof));
            seal::check_anchor(check, seal);
        }
    }

    /// The ledger that the run belongs to: by the seal, or by frame 0 while there is none.
    fn origin(&self) -> Option<&Origin> {
        let sealed = self.seal.as_ref().and_then(|seal| seal.run.as_ref());
        let opened = self.frames.chain.as_ref().and_then(Links::opened);
        sealed
            .map(|run| &run.ledger.origin)
            .or(opened.map(|opened| &opened.ledger))
    }

    /// The states of all payloads, once the last could have passed.
    fn account(&self, check: &mut Check<'_>, options: &Options) {
        let demands = Demands {
            full: options.full,
            presented: &options.presented,
            whole: !self.frames.broken,
            certificates: Some(&self.lines.certificates).filter(|_| !self.lines.failed),
        };
        self.frames.payloads.finish(check, &demands);
    }

    fn finish(self, check: &mut Check<'_>, options: &Options) {
        if self.manifest.is_none() && !self.exported {
            self.account(check, options);
        }
        let missing = |member: &Member| !self.members.has(member);
        let mut absent: Vec<Member> = [Member::Frames, Member::Ledger, Member::Disclosures]
            .into_iter()
            .filter(missing)
            .collect();
        absent.extend(self.manifest.is_none().then_some(Member::Manifest));
        absent.extend((!self.exported).then_some(Member::Export));
        for member in absent {
            let name = member.name();
            if !check
                .findings
                .iter()
                .any(|one| one.code == Code::MemberMissing && one.cause.contains(&name))
            {
                check.push(
                    Stage::Container,
                    Code::MemberMissing,
                    format!("{name} is not here"),
                );
            }
        }
        let signed = &options.signed_receipts;
        receipts::check_signed(check, signed, &self.frames, self.origin());
        if let Some(ledger) = &options.ledger {
            copy::check(
                check,
                ledger,
                &self.frames,
                self.seal.as_ref(),
                &self.lines,
                self.origin(),
            );
        }
        let copy = options.ledger.as_ref().map(|copy| &copy.leaves);
        for failed in iter::once(&self.frames.leaves)
            .chain(copy)
            .filter_map(Leaves::failed)
        {
            check.push(
                Stage::Container,
                Code::Input,
                format!("hashes could not be read back from a temporary file: {failed}"),
            );
        }
        if self.seal.is_none() && self.frames.chain.is_some() {
            check.skip("whether frames were cut off the end, since there is no seal; a receipt or a head in the ledger would show it");
        }
    }
}

/// A member's bytes: nothing where there is no such member, an error where it was too long to be read.
fn borrowed(member: &Option<Result<Vec<u8>, ()>>) -> Result<Option<&[u8]>, ()> {
    match member {
        None => Ok(None),
        Some(Ok(bytes)) => Ok(Some(bytes)),
        Some(Err(())) => Err(()),
    }
}
