//! The closed vocabularies of frames.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            /// All of them, in the order of the specification.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word in the format.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The one that a word names.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// The closed vocabulary of frame kinds.
    Kind {
        /// Opens the run; frame 0 and only that.
        Session = "session",
        /// Opens a turn.
        Turn = "turn",
        /// Closes a turn with the count and root of its frames.
        TurnEnd = "turn_end",
        /// A tool was asked to do something.
        ToolCall = "tool_call",
        /// What a tool answered.
        ToolResult = "tool_result",
        /// The verdict of a gate on a candidate.
        GateResult = "gate_result",
        /// A model was asked.
        ModelCall = "model_call",
        /// What a model answered.
        ModelResult = "model_result",
        /// Something was observed.
        Observation = "observation",
        /// An alternative was chosen, by a policy or by a person.
        Decision = "decision",
        /// Something outside the run was changed.
        SideEffect = "side_effect",
        /// The context was compacted, evicted, re-encoded or served from a cache.
        Context = "context",
        /// Chunks were retrieved.
        Retrieval = "retrieval",
        /// Memory was read or written.
        Memory = "memory",
        /// A file has a new version.
        FileVersion = "file_version",
        /// A point from which the run can be resumed.
        Snapshot = "snapshot",
        /// How the run came out.
        Outcome = "outcome",
        /// Ends the run; nothing follows.
        SessionEnd = "session_end",
    }
}

words! {
    /// Who wrote a frame.
    ActorType {
        /// The agent itself.
        Agent = "agent",
        /// A person.
        Human = "human",
        /// The store.
        System = "system",
        /// A tool that the agent called.
        Tool = "tool",
        /// A gate.
        Verifier = "verifier",
        /// A program that reads transcripts.
        Importer = "importer",
    }
}

words! {
    /// How a link is meant.
    Rel {
        /// Made from it.
        DerivedFrom = "derived_from",
        /// Observed by it.
        ObservedBy = "observed_by",
        /// Selected by it.
        SelectedBy = "selected_by",
        /// Caused by it.
        Caused = "caused",
        /// Verified by it.
        VerifiedBy = "verified_by",
        /// Stands in its place.
        Replaced = "replaced",
        /// Cancelled it.
        Cancelled = "cancelled",
        /// Answers it.
        Answers = "answers",
        /// Uses it.
        Uses = "uses",
    }
}

words! {
    /// How a run came out: `outcome.body.status`.
    Status {
        /// Done.
        Completed = "completed",
        /// Not done.
        Failed = "failed",
        /// Stopped.
        Cancelled = "cancelled",
    }
}
