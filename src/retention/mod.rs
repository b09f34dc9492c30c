//! Retention: what has to stay, and what may go.
//!
//! Everything that erases asks [`hold::in_force`] in the transaction in which it does so, under the tenant's lock.

pub mod hold;
