//! The seal, its proof, and the seal against the frames (checks 2, 3 and 5).

use crate::authority::{self, Unproven};
use crate::check::Check;
use crate::code::{Code, Stage};
use crate::proof::{self, Proven};
use crate::statement::{self, Signer};
use crate::time_stamp::TimeStamp;
use crate::trust::Trust;
use onrecord_core::chain::Links;
use onrecord_core::digest::Hash;
use onrecord_core::frame::Kind;
use onrecord_core::statement::{Completeness, Outcome, Predicate, RunSeal, Signed};
use onrecord_core::timestamp::Timestamp;

/// A seal whose envelope could be read.
pub(crate) struct Seal {
    pub signed: Signed,
    pub signer: Signer,
    /// `None` where its members are malformed.
    pub run: Option<RunSeal>,
    /// Where its proof says it stands.
    pub proven: Option<Proven>,
}

impl Seal {
    /// Leaf hash of the envelope.
    pub fn leaf(&self) -> Hash {
        self.signed.leaf
    }
}

/// Check 2. `None` where the envelope says nothing.
pub(crate) fn check_seal(check: &mut Check<'_>, envelope: Option<&[u8]>) -> Option<Seal> {
    let Some(bytes) = envelope else {
        check.push(
            Stage::Seal,
            Code::Statement,
            "the seal has more bytes than an envelope may have",
        );
        return None;
    };
    let trust = check.trust;
    let findings = &mut check.findings;
    let mut emit = |code, cause| findings.push(Stage::Seal, code, None, cause);
    let statement = statement::check(bytes, trust, None, Code::SealSignature, &mut emit)?;
    let named = statement.signed.name.clone();
    let run = match statement.predicate {
        Some(Predicate::RunSeal(run)) => Some(run),
        _ if named != "run-seal" => {
            emit(
                Code::Statement,
                format!("a {named} stands in the seal's place"),
            );
            None
        }
        _ => None,
    };
    check.signer = Some(statement.signer);
    check.facts.signer = Some(statement.signed.keyid);
    if let Some(run) = &run {
        check.facts.sealed_at = Some(run.sealed_at);
        check.facts.ledger_origin = Some(run.ledger.origin.to_string());
        check.completeness = Some(run.completeness);
    }
    Some(Seal {
        signed: statement.signed,
        signer: statement.signer,
        run,
        proven: None,
    })
}

/// Check 3. `proof` is the member's bytes: `Ok(None)` where it is absent, `Err` where it is too long.
pub(crate) fn check_proof(
    check: &mut Check<'_>,
    seal: &mut Seal,
    proof: Result<Option<&[u8]>, ()>,
) {
    if seal.signer == Signer::Unknown {
        check.skip("the seal's ledger proof, since its signer is unknown");
        return;
    }
    let text = match proof {
        Ok(Some(text)) => text,
        Ok(None) => {
            if check.trust.is_none() || check.checks_ledger() {
                check.push(
                    Stage::Proof,
                    Code::LedgerMissing,
                    "the seal has no ledger proof",
                );
            }
            if let Signer::Trusted { until: Some(_) } = seal.signer {
                check.skip("whether the run was sealed before its key ended, since nothing says where it stands in the ledger");
            }
            return;
        }
        Err(()) => {
            check.push(
                Stage::Proof,
                Code::Proof,
                "the proof is longer than any can be",
            );
            return;
        }
    };
    let trust = check.trust;
    let stamped_at = check.facts.stamped_at;
    let origin = seal.run.as_ref().map(|run| &run.ledger.origin);
    let findings = &mut check.findings;
    let mut emit = |code, cause| findings.push(Stage::Proof, code, None, cause);
    let Some(proven) = proof::check(text, &seal.leaf(), origin, trust, &mut emit) else {
        return;
    };
    if let Some(run) = &seal.run
        && run.ledger.open_index >= proven.index
    {
        emit(
            Code::LedgerOrder,
            format!(
                "sealed at index {}, opened at {}",
                proven.index, run.ledger.open_index
            ),
        );
    }
    if let Signer::Trusted { until: Some(until) } = seal.signer
        && proven.index >= until
    {
        emit(
            Code::KeyRevoked,
            format!(
                "sealed at index {}, the key counts until {until}",
                proven.index
            ),
        );
    }
    if let (Some(trust), Some(run), true) = (trust, &seal.run, proven.quorum)
        && let Some(seconds) = trust.anchor_seconds()
        && !proven.anchored(trust, run.sealed_at, seconds)
        && !proof::stamped(stamped_at, run.sealed_at, seconds)
    {
        emit(Code::TimeAnchor, no_anchor(run.sealed_at, seconds));
    }
    check.note_proven(&proven);
    seal.proven = Some(proven);
}

fn no_anchor(sealed_at: Timestamp, seconds: u64) -> String {
    format!(
        "no quorum cosigned and no authority stamped it from 300 s before {sealed_at} to {seconds} s after it"
    )
}

/// The time stamp of a seal, before its proof is checked. `stamp` is the member's bytes: `Err` where it is too long.
pub(crate) fn check_stamp(check: &mut Check<'_>, seal: &Seal, stamp: Result<Option<&[u8]>, ()>) {
    const BY_HAND: &str = "`openssl ts -verify` does, over the 64 bytes of the seal's signature";
    let authorities = check.trust.map_or(&[][..], Trust::authorities);
    if authorities.is_empty() {
        if stamp != Ok(None) {
            check.skip(format!("the RFC 3161 time stamp of the seal (seal.tsr), since no time-authority line pins who made it; {BY_HAND}"));
        }
        return;
    }
    if seal.signer == Signer::Unknown {
        check.skip("the seal's time stamp, since its signer is unknown");
        return;
    }
    let bytes = match stamp {
        Ok(Some(bytes)) => bytes,
        Ok(None) => {
            check.skip(
                "when the seal was there by an authority's clock, since it has no time stamp",
            );
            return;
        }
        Err(()) => {
            check.push(
                Stage::Proof,
                Code::TimeStamp,
                "the time stamp is longer than any can be",
            );
            return;
        }
    };
    let stamp = match TimeStamp::parse(bytes) {
        Ok(stamp) => stamp,
        Err(error) => {
            check.push(
                Stage::Proof,
                Code::TimeStamp,
                format!("the time stamp: {error}"),
            );
            return;
        }
    };
    if stamp.imprint != Hash::of(&[&seal.signed.sig]) {
        let cause = "the time stamp is of something else than the seal's signature";
        check.push(Stage::Proof, Code::TimeStamp, cause);
        return;
    }
    match authority::check(&stamp, authorities) {
        Ok(()) => check.facts.stamped_at = Some(stamp.time),
        Err(Unproven::False(cause)) => {
            check.push(Stage::Proof, Code::TimeStamp, format!("the time stamp: {cause}"));
        }
        Err(Unproven::Unknown) => {
            let cause = "the time stamp leads to no authority that is pinned";
            check.push(Stage::Proof, Code::TimeAuthority, cause);
        }
        Err(Unproven::Unsupported) => check.skip(format!(
            "the RFC 3161 time stamp of the seal (seal.tsr), which is signed otherwise than by RSA with SHA-2; {BY_HAND}"
        )),
    }
}

/// The time anchor of a seal where no ledger is checked: an authority alone can give it.
pub(crate) fn check_anchor(check: &mut Check<'_>, seal: &Seal) {
    if let (Some(trust), Some(run), false) = (check.trust, &seal.run, check.checks_ledger())
        && let Some(seconds) = trust.anchor_seconds()
        && !proof::stamped(check.facts.stamped_at, run.sealed_at, seconds)
    {
        let cause = no_anchor(run.sealed_at, seconds);
        check.push(Stage::Proof, Code::TimeAnchor, cause);
    }
}

/// Check 5, of a chain that has no fault of its own, and the digest of its lines.
pub(crate) fn check_frames(check: &mut Check<'_>, seal: &Seal, chain: &Links, file: Hash) {
    let Some(run) = &seal.run else { return };
    let mut emit = |code, cause: String| check.push(Stage::SealedFrames, code, cause);
    if seal.signed.tenant != *chain.tenant() || run.state.run != *chain.run() {
        emit(
            Code::SealScope,
            format!(
                "the seal is of {}/{}, the frames of {}/{}",
                seal.signed.tenant,
                run.state.run,
                chain.tenant(),
                chain.run()
            ),
        );
        return;
    }
    if let Some(opened) = chain.opened()
        && opened.ledger != run.ledger.origin
    {
        emit(
            Code::SealScope,
            format!(
                "the seal names ledger {}, frame 0 {}",
                run.ledger.origin, opened.ledger
            ),
        );
    }
    if run.state.size != chain.size() {
        emit(
            Code::SealSize,
            format!(
                "the seal has {} frames, the bundle {}",
                run.state.size,
                chain.size()
            ),
        );
        return;
    }
    if run.state.head != chain.head() {
        emit(
            Code::SealHead,
            format!(
                "the seal's last frame is {}, the bundle's {}",
                run.state.head,
                chain.head()
            ),
        );
    }
    if run.state.root != chain.root() {
        emit(
            Code::SealRoot,
            format!(
                "the seal's root is {}, the frames' {}",
                run.state.root,
                chain.root()
            ),
        );
    }
    if seal.signed.digest != file {
        emit(
            Code::SealSubject,
            format!(
                "the seal's subject is {}, frames.ndjson {file}",
                seal.signed.digest
            ),
        );
    }
    if let Err(cause) = summary(run, chain) {
        emit(Code::SealSummary, cause);
    }
}

/// What the seal says of the run, against the frames.
fn summary(run: &RunSeal, chain: &Links) -> Result<(), String> {
    let opened = chain.opened().ok_or("frame 0 was not read")?;
    let interrupted = run.completeness == Completeness::Interrupted;
    let payloads = &run.payloads;
    let gone = payloads.erased.saturating_add(payloads.missing);
    let checks = [
        (run.run_no == opened.run_no, "run_no"),
        (run.opened_at == opened.at, "opened_at"),
        // What is recorded afterwards cannot have been sealed.
        (chain.last_at() <= Some(run.sealed_at), "sealed_at"),
        (run.outcome == Outcome::from(chain.outcome()), "outcome"),
        (run.kinds == *chain.kinds(), "kinds"),
        (payloads.count == chain.payloads(), "payloads.count"),
        (gone <= payloads.count, "payloads"),
        (
            interrupted != chain.kinds().contains_key(&Kind::SessionEnd),
            "completeness",
        ),
    ];
    match checks.iter().find(|(holds, _)| !holds) {
        None => Ok(()),
        Some((_, member)) => Err(format!("the seal's {member} is not that of the frames")),
    }
}
