//! What queries are about.

use super::filter::Fields;
use crate::store::search::field::{FRAME_FIELDS, PAYLOAD_FIELDS, RUN_FIELDS};
use std::str::FromStr;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Runs.
    Runs,
    /// Frames of all runs.
    Frames,
    /// What is recorded about payloads of all runs; never what they say.
    PayloadRecords,
}

impl Resource {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Runs, Self::Frames, Self::PayloadRecords];

    /// The word, as in the address.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Frames => "frames",
            Self::PayloadRecords => "payload-records",
        }
    }

    /// What filters of it may be about.
    pub(super) fn fields(self) -> Fields {
        match self {
            Self::Runs => OF_RUNS,
            Self::Frames => OF_FRAMES,
            Self::PayloadRecords => OF_PAYLOAD_RECORDS,
        }
    }
}

static OF_RUNS: Fields = &[("", RUN_FIELDS)];
static OF_FRAMES: Fields = &[("", FRAME_FIELDS), ("run.", RUN_FIELDS)];
static OF_PAYLOAD_RECORDS: Fields = &[("", PAYLOAD_FIELDS), ("run.", RUN_FIELDS)];

impl FromStr for Resource {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        let mut all = Self::ALL.into_iter();
        all.find(|resource| resource.as_str() == word).ok_or(())
    }
}
