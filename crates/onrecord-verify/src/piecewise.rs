//! The same rules for whoever has evidence otherwise than as a file: entry by entry, frame by frame, a seal beside its frames.
//! What is found is what [`crate::verify`] finds of the file that it would be.

use crate::check::Check;
use crate::code::{Code, Stage};
use crate::copy::LedgerCopy;
use crate::entries::Entries;
use crate::report::{Finding, Findings};
use crate::seal;
use crate::submitted::Agents;
use crate::{Trust, proof};
use onrecord_core::chain::Links;
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::frame::Frame;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::note::Checkpoint;
use onrecord_core::timestamp::Timestamp;

/// A ledger that is read entry by entry, from the first on.
pub struct LedgerWalk {
    entries: Entries,
}

/// A run as the ledger tells it so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldRun {
    /// Index of its opening.
    pub open_index: u64,
    /// Its number in the tenant.
    pub run_no: u64,
    /// Time of the opening.
    pub opened_at: Timestamp,
    /// Frames that the last entry about it counts.
    pub size: u64,
    /// Whether it has a seal.
    pub sealed: bool,
}

impl LedgerWalk {
    /// A ledger of this origin without entries.
    pub fn new(origin: &str) -> Self {
        let mut entries = Entries::default();
        entries.begin(origin);
        Self { entries }
    }

    /// Reads the next entry; what is wrong with it, in the order in which it was found.
    pub fn read(&mut self, bytes: &[u8], trust: Option<&Trust>) -> Vec<Finding> {
        let mut check = Check::new(trust);
        self.entries.read(&mut check, bytes, leaf_hash(bytes));
        check.findings.taken()
    }

    /// Entries so far.
    pub fn size(&self) -> u64 {
        self.entries.tree().size()
    }

    /// Root over all of them.
    pub fn root(&self) -> Hash {
        self.entries.tree().root()
    }

    /// Root over the first `size` of them; `None` beyond them, or where the hashes could not be read back from their
    /// temporary file.
    pub fn root_at(&self, size: u64) -> Option<Hash> {
        self.entries.root_at(size)
    }

    /// The tenant that the first entry names.
    pub fn tenant(&self) -> Option<&TenantId> {
        self.entries.tenant()
    }

    /// The runs that were opened, by their ids.
    pub fn runs(&self) -> impl Iterator<Item = (&RunId, ToldRun)> {
        self.entries.runs()
    }

    /// What all entries came to, to hold bundles against.
    pub fn finish(self) -> LedgerCopy {
        self.entries.finish(&mut Check::new(None))
    }
}

/// A signed checkpoint that could be read.
#[derive(Clone, Debug)]
pub struct SignedCheckpoint {
    /// What it says.
    pub checkpoint: Checkpoint,
    /// What is wrong with its signatures, and whether too few witnesses cosigned; nothing where no log is pinned.
    pub findings: Vec<Finding>,
}

impl SignedCheckpoint {
    /// Reads a signed checkpoint and checks the log's signature, those of pinned witnesses, and their quorum.
    ///
    /// # Errors
    /// The text is none, in words.
    pub fn read(text: &str, trust: Option<&Trust>) -> Result<Self, String> {
        let (note, checkpoint) = proof::read_checkpoint(text)?;
        let mut findings = Findings::default();
        let mut emit = |code, cause| findings.push(Stage::Proof, code, None, cause);
        let witnesses = proof::check_signatures(&note, &checkpoint, trust, &mut emit);
        proof::check_quorum(&witnesses, trust, &mut emit);
        Ok(Self {
            checkpoint,
            findings: findings.taken(),
        })
    }

    /// Whether the log that the trust file pins signed it: a size is taken from signed data only.
    pub fn is_signed(&self) -> bool {
        let unsigned = [Code::CheckpointSignature, Code::SignerUnknown];
        !self.findings.iter().any(|one| unsigned.contains(&one.code))
    }
}

/// Checks a seal, its proof and what it says of frames whose chain holds; `file` is the digest of their lines.
pub fn check_seal(
    envelope: &[u8],
    proof: Option<&str>,
    (chain, file): (&Links, Hash),
    trust: Option<&Trust>,
) -> Vec<Finding> {
    let mut check = Check::new(trust);
    if let Some(mut seal) = seal::check_seal(&mut check, Some(envelope)) {
        seal::check_proof(&mut check, &mut seal, Ok(proof.map(str::as_bytes)));
        seal::check_frames(&mut check, &seal, chain, file);
    }
    check.findings.taken()
}

/// The frames of a run that agents signed, read in their order.
pub struct SignedFrames {
    agents: Agents,
}

impl Default for SignedFrames {
    fn default() -> Self {
        Self {
            agents: Agents::of_run(),
        }
    }
}

impl SignedFrames {
    /// Reads the next frame, signed or not; what is wrong with its signature, its count or its lack of one. `first` is the
    /// hash of frame 0.
    pub fn read(
        &mut self,
        frame: &Frame<'_>,
        bytes: &[u8],
        first: Option<&Hash>,
        trust: Option<&Trust>,
    ) -> Vec<Finding> {
        let mut check = Check::new(trust);
        self.agents.read(&mut check, frame, bytes, first);
        check.findings.taken()
    }
}
