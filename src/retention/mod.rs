//! Retention: what has to stay, and what may go.
//!
//! Everything that erases asks `decide` in the transaction in which it certifies what it erases, under the tenant's lock, and
//! only `work` and `expire` erase.

pub mod certificate;
pub(crate) mod decide;
pub mod dry_run;
pub mod erasure;
mod expire;
pub(crate) mod expired;
pub(crate) mod flag;
pub(crate) mod hold;
mod listing;
pub(crate) mod order;
pub mod pace;
pub mod policies;
pub mod policy;
pub mod presets;
pub(crate) mod release;
pub mod sweep;
pub(crate) mod term;
mod work;
