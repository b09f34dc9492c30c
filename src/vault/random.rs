//! The operating system's randomness: the one place that asks for it.

use super::VaultError;

/// Fills an array with random bytes.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], VaultError> {
    let mut out = [0; N];
    #[expect(clippy::disallowed_methods, reason = "the home of randomness")]
    getrandom::fill(&mut out).map_err(|_| VaultError::Randomness)?;
    Ok(out)
}
