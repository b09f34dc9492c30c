//! onrecord
fn main() {}
