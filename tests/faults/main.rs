//! The real program when things go wrong: killed, told to stop, its database taken away.
#![cfg(test)]

#[path = "../api/mod.rs"]
mod api;
mod database;
mod kill;
mod load;
mod process;
mod stop;
mod watch;
