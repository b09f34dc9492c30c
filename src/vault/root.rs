//! The root key, wherever it is kept: what the keys of tenants are wrapped by.

use super::cipher::{self, Key};
use super::transit::{TransitKey, TransitSource};
use super::{VaultError, files, random};
use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use zeroize::Zeroizing;

/// Where the root key is.
#[derive(Clone)]
pub enum RootSource {
    /// In a file; without a name in `root.key` in the folder of the keys, where it is made at the first start.
    File(Option<PathBuf>),
    /// 64 hex digits that were given, such as by a variable of the environment.
    Given(Zeroizing<String>),
    /// In a service that wraps and opens with it, and does not give it away.
    Transit(TransitSource),
}

impl fmt::Debug for RootSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => formatter.debug_tuple("File").field(path).finish(),
            Self::Given(_) => formatter.write_str("Given([secret])"),
            Self::Transit(source) => source.fmt(formatter),
        }
    }
}

/// What a root key answers; it may have to ask a service.
pub(super) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, VaultError>> + Send + 'a>>;

/// A root key.
pub(super) trait RootKey: Send + Sync {
    /// What it is, in words that hold no secret and no space: they stand beside the check value.
    fn provider(&self) -> String;

    /// Wraps a secret, so that it opens under the same label alone.
    fn wrap<'a>(&'a self, label: &'a str, secret: &'a [u8]) -> Answer<'a, Vec<u8>>;

    /// Opens what [`RootKey::wrap`] made.
    ///
    /// # Errors
    /// [`VaultError::Cipher`]: it was made by another root key, under another label, or altered.
    fn unwrap<'a>(&'a self, label: &'a str, wrapped: &'a [u8]) -> Answer<'a, Zeroizing<Vec<u8>>>;
}

/// A root key that this process has.
struct FileKey(Key);

/// The same, not from a file.
struct GivenKey(Key);

impl RootKey for FileKey {
    fn provider(&self) -> String {
        "file".to_owned()
    }

    fn wrap<'a>(&'a self, label: &'a str, secret: &'a [u8]) -> Answer<'a, Vec<u8>> {
        Box::pin(async { cipher::wrap(&self.0, label, secret) })
    }

    fn unwrap<'a>(&'a self, label: &'a str, wrapped: &'a [u8]) -> Answer<'a, Zeroizing<Vec<u8>>> {
        Box::pin(async { cipher::unwrap(&self.0, label, wrapped) })
    }
}

impl RootKey for GivenKey {
    fn provider(&self) -> String {
        "environment".to_owned()
    }

    fn wrap<'a>(&'a self, label: &'a str, secret: &'a [u8]) -> Answer<'a, Vec<u8>> {
        Box::pin(async { cipher::wrap(&self.0, label, secret) })
    }

    fn unwrap<'a>(&'a self, label: &'a str, wrapped: &'a [u8]) -> Answer<'a, Zeroizing<Vec<u8>>> {
        Box::pin(async { cipher::unwrap(&self.0, label, wrapped) })
    }
}

/// Opens a root key; `folder` is that of the keys. It is not yet known whether it is the right one.
pub(super) fn open(folder: &Path, source: &RootSource) -> Result<Box<dyn RootKey>, VaultError> {
    Ok(match source {
        RootSource::File(path) => {
            let path = path.clone().unwrap_or_else(|| folder.join("root.key"));
            Box::new(FileKey(files::read_root(&path)?))
        }
        RootSource::Given(digits) => {
            let mut key = Zeroizing::new([0; 32]);
            if !onrecord_core::digest::unhex(digits, &mut key[..]) {
                return Err(VaultError::Given);
            }
            Box::new(GivenKey(key))
        }
        RootSource::Transit(source) => Box::new(TransitKey::new(source)?),
    })
}

/// Makes a root key file, where there is none; whoever was first, theirs is the key.
pub(super) fn make(path: &Path) -> Result<(), VaultError> {
    let key = Zeroizing::new(random::bytes::<32>()?);
    let text = Zeroizing::new(format!("{}\n", onrecord_core::digest::hex(&key[..])));
    files::write_new(path, text.as_bytes()).map(drop)
}
