//! The server over HTTP, each test with a server and a database of its own.
#![cfg(test)]

mod access;
mod anchors;
#[path = "../api/mod.rs"]
mod api;
mod attacks;
mod auditing;
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
mod coverage;
mod cursors;
mod database;
mod encoded;
mod erasing;
mod fake_log;
mod filled_in;
mod filters;
mod flags;
mod follow;
mod hang_up;
#[path = "../harness/mod.rs"]
mod harness;
mod hold_orders;
mod holds;
mod idempotency;
mod kept;
mod keys;
mod ledger;
mod log;
mod migration;
mod monitoring;
mod open_runs;
mod operator;
mod pages;
mod people;
mod proofs;
mod queries;
mod query_command;
mod reading;
mod releases;
mod reports;
mod retention;
mod rewinds;
mod rotation;
mod running;
mod seeding;
mod settings;
#[path = "../shared/mod.rs"]
mod shared;
mod signed_frames;
mod signed_requests;
mod signing_agent;
mod signing_keys;
mod stamps;
mod story;
mod stream;
mod together;
mod witness;
