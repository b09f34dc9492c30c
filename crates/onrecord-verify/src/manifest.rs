//! The manifest and the export statement, which close a bundle (check 10).

use crate::check::Check;
use crate::code::{Code, Stage};
use crate::frames::Frames;
use crate::payloads::Ledger as PayloadLedger;
use crate::statement;
use crate::tar::{Body, LineEnd, TarError};
use onrecord_core::bundle::{Member, manifest_line};
use onrecord_core::chain::Links;
use onrecord_core::digest::Hash;
use onrecord_core::id::Origin;
use onrecord_core::statement::{Export, ExportCounts, Predicate};
use std::io::BufRead;

/// Bytes of a line: a digest, two spaces and a name of at most 100.
const LINE_BYTES: usize = 166;

/// The members before the manifest, in their order, with their digests.
#[derive(Default)]
pub(crate) struct Members(Vec<(Member, Hash)>);

impl Members {
    pub fn push(&mut self, member: Member, digest: Hash) {
        self.0.push((member, digest));
    }

    pub fn has(&self, member: &Member) -> bool {
        self.0.binary_search_by(|(one, _)| one.cmp(member)).is_ok()
    }
}

/// Reads `MANIFEST.sha256` beside the members that came before it: both are in the same order.
pub(crate) fn read<R: BufRead>(
    check: &mut Check<'_>,
    members: &Members,
    payloads: &PayloadLedger,
    body: &mut Body<'_, R>,
) -> Result<(), TarError> {
    let mut left = members.0.as_slice();
    let mut line = Vec::new();
    loop {
        match body.line(&mut line, LINE_BYTES)? {
            LineEnd::None => break,
            LineEnd::Whole => {}
            LineEnd::Torn | LineEnd::TooLong => {
                check.push(
                    Stage::Manifest,
                    Code::Manifest,
                    "a line of the manifest is too long or does not end",
                );
                return Ok(());
            }
        }
        let Some((digest, member)) = parse(&line) else {
            check.push(
                Stage::Manifest,
                Code::Manifest,
                "a line of the manifest is not a digest and a member",
            );
            return Ok(());
        };
        if !members.has(&member) {
            absent(check, payloads, &member);
            continue;
        }
        let before = left.partition_point(|(one, _)| *one < member);
        unlisted(check, &left[..before]);
        left = &left[before..];
        match left.split_first() {
            Some(((one, found), rest)) if *one == member => {
                if *found != digest {
                    check.push(
                        Stage::Manifest,
                        Code::Manifest,
                        format!(
                            "{} has digest {found}, the manifest says {digest}",
                            member.name()
                        ),
                    );
                }
                left = rest;
            }
            _ => check.push(
                Stage::Manifest,
                Code::Manifest,
                format!(
                    "{} stands in the manifest out of its order, or twice",
                    member.name()
                ),
            ),
        }
    }
    unlisted(check, left);
    Ok(())
}

fn unlisted(check: &mut Check<'_>, members: &[(Member, Hash)]) {
    for (member, _) in members {
        check.push(
            Stage::Manifest,
            Code::Manifest,
            format!("{} is not in the manifest", member.name()),
        );
    }
}

/// A member that the manifest names and that is not here; some have a word of their own for that.
fn absent(check: &mut Check<'_>, payloads: &PayloadLedger, member: &Member) {
    let said = match member {
        Member::Seal => true,
        Member::SealProof => {
            check.findings.has(Code::Unsealed) || check.findings.has(Code::LedgerMissing)
        }
        Member::Payload(commit) => payloads.is_disclosed(commit),
        _ => false,
    };
    if !said {
        check.push(
            Stage::Container,
            Code::MemberMissing,
            format!("the manifest names {}, which is not here", member.name()),
        );
    }
}

fn parse(line: &[u8]) -> Option<(Hash, Member)> {
    let text = std::str::from_utf8(line).ok()?;
    let (digest, name) = text.split_once("  ")?;
    let (digest, member) = (digest.parse().ok()?, Member::from_name(name)?);
    // The one spelling, as it is written.
    (manifest_line(&digest, &member.name()).trim_end_matches('\n') == text)
        .then_some((digest, member))
}

/// Checks `export.dsse.json`. `manifest` is the digest of the manifest, where there is one; `told` is whether
/// the states of the payloads are here, to be counted.
pub(crate) fn check_export(
    check: &mut Check<'_>,
    bytes: Option<&[u8]>,
    frames: &Frames,
    manifest: Option<Hash>,
    told: bool,
) {
    let Some(bytes) = bytes else {
        check.push(
            Stage::Manifest,
            Code::Statement,
            "the export has more bytes than an envelope may have",
        );
        return;
    };
    let trust = check.trust;
    let chain = frames.chain.as_ref();
    let origin: Option<&Origin> = chain.and_then(Links::opened).map(|opened| &opened.ledger);
    let findings = &mut check.findings;
    let mut emit = |code, cause| findings.push(Stage::Manifest, code, None, cause);
    let Some(statement) = statement::check(bytes, trust, origin, Code::ExportSignature, &mut emit)
    else {
        return;
    };
    let Some(Predicate::Export(export)) = &statement.predicate else {
        if statement.signed.name != "export" {
            emit(
                Code::Statement,
                format!("a {} stands in the export's place", statement.signed.name),
            );
        }
        return;
    };
    if manifest.is_some_and(|manifest| manifest != statement.signed.digest) {
        emit(
            Code::Manifest,
            format!(
                "the export was made for a manifest with digest {}",
                statement.signed.digest
            ),
        );
    }
    let Some(chain) = chain else { return };
    if statement.signed.tenant != *chain.tenant() || export.run != *chain.run() {
        emit(
            Code::Export,
            format!("it is of run {} of {}", export.run, statement.signed.tenant),
        );
    } else if told && !frames.broken {
        compare(check, export);
    }
}

/// What the export says is here, against what is.
fn compare(check: &mut Check<'_>, export: &Export) {
    let here = ExportCounts {
        disclosed: check.payloads.disclosed,
        erased: check.payloads.erased,
        missing: check.payloads.missing,
        not_kept: check.payloads.not_kept,
        withheld: check.payloads.withheld,
    };
    if export.payloads != here {
        check.push(
            Stage::Manifest,
            Code::Export,
            format!("it counts {:?}, here are {here:?}", export.payloads),
        );
    }
}
