//! Other people's vectors, data and cases: a folder `shared` beside the repository, never copied into it.
//!
//! Every test crate takes this one file, so that all of them look in the same places.

use std::path::{Path, PathBuf};

/// A file or folder in `shared`, such as `vectors/signed-note`; none there is said aloud.
pub fn shared(name: &str) -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|folder| folder.join("shared").join(name))
        .find(|path| path.exists());
    if found.is_none() {
        eprintln!("skipped: no shared/{name} beside the repository");
    }
    found
}
