//! The server over HTTP, each test with a server and a database of its own.
#![cfg(test)]

#[path = "../api/mod.rs"]
mod api;
#[path = "../harness/mod.rs"]
mod harness;
mod log;
mod running;
mod story;
