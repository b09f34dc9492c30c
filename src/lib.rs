//! onrecord
pub mod postgres;
