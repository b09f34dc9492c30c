//! One command a file.

pub mod import;
