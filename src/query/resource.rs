//! What queries are about.

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
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Frames => "frames",
            Self::PayloadRecords => "payload-records",
        }
    }
}

impl FromStr for Resource {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        let mut all = Self::ALL.into_iter();
        all.find(|resource| resource.name() == word).ok_or(())
    }
}
