//! The words of verdicts, the status of each, and the order of the checks (spec: `docs/spec/verification.md`).

use serde::{Deserialize, Serialize};
use std::fmt;

/// How grave a verdict is; the exit code says the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Everything that was to be checked was, and holds.
    Verified,
    /// Checked and false.
    Altered,
    /// Something that is needed is not there: it could not be checked.
    Incomplete,
    /// The input is nothing that can be checked, or the usage was wrong.
    Unusable,
}

impl Status {
    /// 0, 1, 2 and 3, in the order of the variants.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Verified => 0,
            Self::Altered => 1,
            Self::Incomplete => 2,
            Self::Unusable => 3,
        }
    }

    /// The word in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Altered => "altered",
            Self::Incomplete => "incomplete",
            Self::Unusable => "unusable",
        }
    }

    /// Lower is graver: unusable input says nothing at all, an alteration is worse than a gap.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Self::Unusable => 0,
            Self::Altered => 1,
            Self::Incomplete => 2,
            Self::Verified => 3,
        }
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $word:literal, $status:ident;)*) => {
        /// What a check found; the words are part of the interface.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Code { $($(#[$doc])* #[serde(rename = $word)] $variant,)* }

        impl Code {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word in reports.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// What it makes of the evidence. A sealed run without frames is altered, see [`Code::NoFrames`].
            pub const fn status(self) -> Status {
                match self { $(Self::$variant => Status::$status,)* }
            }
        }
    };
}

codes! {
    /// Nothing was found.
    Verified = "verified", Verified;
    /// Not the one allowed form of the archive.
    Tar = "tar", Unusable;
    /// Cannot be read, or is no evidence of ours.
    Input = "input", Unusable;
    /// An argument, the trust file or the receipts are wrong.
    Usage = "usage", Unusable;
    /// A member is not there that has to be, or that the manifest names.
    MemberMissing = "member_missing", Incomplete;
    /// No trust file: nothing says whose signature would count.
    NoTrust = "no_trust", Incomplete;
    /// No seal: the run is open, or its seal was taken away.
    Unsealed = "unsealed", Incomplete;
    /// An envelope, its statement or its members are malformed, or it is another statement than belongs here.
    Statement = "statement", Altered;
    /// Signed by a key or a log that nobody pinned.
    SignerUnknown = "signer_unknown", Incomplete;
    /// The seal's signature is false, or its key is not for this tenant and ledger.
    SealSignature = "seal_signature", Altered;
    /// Another suite, or none.
    Suite = "suite", Altered;
    /// The seal has no proof in the ledger.
    LedgerMissing = "ledger_missing", Incomplete;
    /// A ledger proof is malformed.
    Proof = "proof", Altered;
    /// A checkpoint is malformed.
    Checkpoint = "checkpoint", Altered;
    /// A checkpoint is not signed by the log.
    CheckpointSignature = "checkpoint_signature", Altered;
    /// A pinned witness's cosignature is false.
    Cosignature = "cosignature", Altered;
    /// The entry is not where its proof says.
    LedgerInclusion = "ledger_inclusion", Altered;
    /// The checkpoint is another ledger's.
    CheckpointOrigin = "checkpoint_origin", Altered;
    /// Entries stand in an order that cannot be.
    LedgerOrder = "ledger_order", Altered;
    /// Signed after the key was revoked.
    KeyRevoked = "key_revoked", Altered;
    /// Fewer witnesses cosigned than the policy asks for.
    WitnessQuorum = "witness_quorum", Incomplete;
    /// Witnesses and authorities saw the seal too early or too late for its time, or not at all.
    TimeAnchor = "time_anchor", Incomplete;
    /// A pinned authority's time stamp is false, or of something else.
    TimeStamp = "time_stamp", Altered;
    /// The time stamp is by an authority that nobody pinned, though others are.
    TimeAuthority = "time_authority", Incomplete;
    /// No frames; a sealed run has at least one, so there it is an alteration.
    NoFrames = "no_frames", Incomplete;
    /// The last line of the frames does not end.
    FramesTorn = "frames_torn", Altered;
    /// A frame is not strict JSON.
    FrameJson = "frame_json", Altered;
    /// A frame is not canonical.
    FrameCanonical = "frame_canonical", Altered;
    /// A frame's members are not those of the format.
    FrameShape = "frame_shape", Altered;
    /// A frame belongs to another tenant or run.
    FrameScope = "frame_scope", Altered;
    /// A frame is not in its place.
    FrameSeq = "frame_seq", Altered;
    /// A frame does not name the one before.
    FramePrev = "frame_prev", Altered;
    /// The store's time went back.
    FrameTime = "frame_time", Altered;
    /// A frame may not stand there.
    FrameStructure = "frame_structure", Altered;
    /// A turn's count or root is not that of its frames.
    TurnRoot = "turn_root", Altered;
    /// The turn has no end.
    TurnOpen = "turn_open", Incomplete;
    /// The turn is not in the sealed run.
    TurnInclusion = "turn_inclusion", Altered;
    /// The frame is not in the run that is signed.
    FrameInclusion = "frame_inclusion", Altered;
    /// The seal is another run's.
    SealScope = "seal_scope", Altered;
    /// The seal counts other frames.
    SealSize = "seal_size", Altered;
    /// The seal names another last frame.
    SealHead = "seal_head", Altered;
    /// The seal has another root.
    SealRoot = "seal_root", Altered;
    /// The seal has another digest of the file.
    SealSubject = "seal_subject", Altered;
    /// What the seal says of the run is not so.
    SealSummary = "seal_summary", Altered;
    /// A ledger statement's signature is false, or its key is not for this tenant and ledger.
    LedgerStatement = "ledger_statement", Altered;
    /// The ledger has another seal of the run.
    SecondSeal = "second_seal", Altered;
    /// The ledger has another opening of the run or of its number.
    SecondOpen = "second_open", Altered;
    /// The opening is not that of this run.
    RunOpen = "run_open", Altered;
    /// The ledger knows frames that are not here, or others.
    RunHead = "run_head", Altered;
    /// Erased while a hold was in force.
    ErasureHeld = "erasure_held", Altered;
    /// The opening is not in the bundle.
    OpenMissing = "open_missing", Incomplete;
    /// The ledger shows itself otherwise elsewhere.
    SplitView = "split_view", Altered;
    /// Your copy of the ledger ends before the entry.
    LedgerBehind = "ledger_behind", Incomplete;
    /// A receipt names a frame that is not here, or another.
    Receipt = "receipt", Altered;
    /// An agent's frame is unsigned, out of its count, under another's key, or its signature is false.
    Submitted = "submitted", Altered;
    /// The states of the payloads are not those of the frames' payloads.
    Disclosures = "disclosures", Altered;
    /// A payload is not what was committed to.
    PayloadCommit = "payload_commit", Altered;
    /// A payload is said to be disclosed and is not there, or is said to be missing.
    PayloadMissing = "payload_missing", Incomplete;
    /// No certificate covers an erased payload.
    ErasureUncertified = "erasure_uncertified", Incomplete;
    /// A payload was left out, and everything was asked for.
    PayloadWithheld = "payload_withheld", Incomplete;
    /// The manifest is not that of the members.
    Manifest = "manifest", Altered;
    /// The export's signature is false, or its key is not for this tenant and ledger.
    ExportSignature = "export_signature", Altered;
    /// What the export says of the bundle is not so.
    Export = "export", Altered;
    /// Anything else that is not as it should be.
    Malformed = "malformed", Altered;
    /// The ledger is empty.
    NoEntries = "no_entries", Incomplete;
    /// The entries are not those under the checkpoint.
    LedgerRoot = "ledger_root", Altered;
    /// A hash tile is not that of the entries.
    LedgerTile = "ledger_tile", Altered;
    /// Time went back in the ledger.
    LedgerTime = "ledger_time", Altered;
    /// A run's number is missing, or a run was never opened.
    RunGap = "run_gap", Altered;
    /// A seal does not name the seal before it.
    PreviousSeal = "previous_seal", Altered;
}

impl From<onrecord_core::chain::FrameCode> for Code {
    fn from(code: onrecord_core::chain::FrameCode) -> Self {
        use onrecord_core::chain::FrameCode as Rule;
        match code {
            Rule::FrameJson => Self::FrameJson,
            Rule::FrameCanonical => Self::FrameCanonical,
            Rule::Suite => Self::Suite,
            Rule::FrameShape => Self::FrameShape,
            Rule::FrameScope => Self::FrameScope,
            Rule::FrameSeq => Self::FrameSeq,
            Rule::FramePrev => Self::FramePrev,
            Rule::FrameTime => Self::FrameTime,
            Rule::FrameStructure => Self::FrameStructure,
            Rule::TurnRoot => Self::TurnRoot,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Where in the order of the checks a finding stands; the first of the gravest names the verdict.
///
/// The bundle's members come nearly in this order, so that findings are made in it; those that are made
/// early or late (receipts and agents' signatures are checked as the frames pass) are put in their place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    #[default]
    Container,
    Seal,
    Proof,
    Frames,
    SealedFrames,
    LedgerLines,
    LedgerEnd,
    LedgerCopy,
    Receipts,
    Submitted,
    Inclusion,
    Payloads,
    Manifest,
    LedgerRoot,
    LedgerTiles,
    LedgerEntries,
    LedgerQuorum,
}
