//! Langfuse.

use std::path::Path;

use super::sample::Sample;
use super::{Format, ImportError, Transcript};

/// Whether the file is of this format.
pub(super) fn fits(_sample: &Sample) -> bool {
    false
}

/// Opens a file.
pub(super) fn open(
    path: &Path,
    _session: Option<&str>,
) -> Result<Box<dyn Transcript>, ImportError> {
    Err(Format::Langfuse.refused(path, "not read yet"))
}
