//! onrecord

pub mod cli;
pub mod client;
pub mod import;
