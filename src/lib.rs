//! onrecord
