//! The server over HTTP, each test with a server and a database of its own.
#![cfg(test)]

mod access;
#[path = "../api/mod.rs"]
mod api;
mod backups;
mod bad_input;
mod bench;
mod bodies;
mod bundles;
mod by_hand;
mod cases;
mod command_line;
mod concurrency;
mod contract;
mod database;
mod encoded;
mod erasing;
mod follow;
mod hang_up;
#[path = "../harness/mod.rs"]
mod harness;
mod holds;
mod idempotency;
mod kept;
mod keys;
mod ledger;
mod log;
mod migration;
mod pages;
mod people;
mod reading;
mod rotation;
mod running;
#[path = "../shared/mod.rs"]
mod shared;
mod signed_frames;
mod signed_requests;
mod signing_agent;
mod signing_keys;
mod story;
mod stream;
mod together;
