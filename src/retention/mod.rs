//! Retention: what has to stay, and what may go.
//!
//! Everything that erases asks `decide` in the transaction in which it certifies what it erases, under the tenant's lock, and
//! only `work` erases.

pub mod certificate;
pub(crate) mod decide;
pub mod erasure;
pub(crate) mod flag;
pub(crate) mod hold;
pub(crate) mod order;
pub(crate) mod release;
mod work;
