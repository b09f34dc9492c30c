//! The server over HTTP, each test with a server and a database of its own.
#![cfg(test)]

#[path = "../api/mod.rs"]
mod api;
mod bad_input;
mod bodies;
mod cases;
#[path = "../harness/mod.rs"]
mod harness;
mod idempotency;
mod log;
mod running;
mod story;
