//! The real program when things go wrong: killed, told to stop, its database taken away, frozen or full.
#![cfg(test)]

#[path = "../api/mod.rs"]
mod api;
mod chance;
mod database;
mod fair;
mod freeze;
mod full_disk;
#[path = "../harness/mod.rs"]
mod harness;
mod insist;
mod kill;
mod load;
mod process;
mod processes;
mod proxy;
mod restart;
mod soak;
mod stop;
mod table;
mod watch;
mod wire;

/// A number from the environment, which whoever runs the tests may set.
fn setting(name: &str) -> Option<u64> {
    #[expect(
        clippy::disallowed_methods,
        reason = "seeds and lengths of long runs are asked for by whoever runs the tests"
    )]
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}
