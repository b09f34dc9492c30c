//! The onrecord server: it keeps the evidence of what AI agents did.
//!
//! The rooms of the house, and who sees what, are in `docs/ARCHITECTURE.md`.

pub mod postgres;
pub mod store;
pub mod vault;
