//! The onrecord server: it keeps the evidence of what AI agents did.
//!
//! The rooms of the house, and who sees what, are in `docs/ARCHITECTURE.md`.

pub mod access;
pub mod anchor;
pub mod audit;
pub mod cli;
pub mod client;
mod durable;
pub mod export;
pub mod gate;
pub mod http;
pub mod import;
pub mod ledger;
mod listen;
pub mod monitor;
pub mod postgres;
mod query;
pub mod record;
pub mod redact;
pub mod retention;
pub mod rotation;
pub mod seed;
pub mod start;
pub mod store;
pub mod vault;
pub mod witness;
