//! What a new cluster is given in its `postgresql.conf`: PostgreSQL's own defaults are made for the smallest machine.

use std::fs;

/// The least for pages in memory, PostgreSQL's own default, and the most: what is more is better left to the system's cache.
const BUFFERS_MIB: std::ops::RangeInclusive<u64> = 128..=1024;
/// The part of the memory that is for pages.
const SHARE: u64 = 8;

/// Lines for the end of `postgresql.conf`.
///
/// Pages that do not fit into the buffers are written by whoever needs room, which is then whoever appends. Checkpoints that
/// come with each gibibyte of the journal come every half a minute under load; twice as much is still repeated within a
/// minute after a crash.
pub(super) fn settings() -> String {
    let mib = memory_bytes().unwrap_or(0) / SHARE / (1024 * 1024);
    let buffers = mib.clamp(*BUFFERS_MIB.start(), *BUFFERS_MIB.end());
    format!(
        "\n# Written by onrecord when it made this cluster, and never looked at again.\n\
         shared_buffers = {buffers}MB\nmax_wal_size = 2GB\nmin_wal_size = 512MB\n"
    )
}

/// The memory that there is for this process: the machine's, or less where its control group has a bound. `None` where
/// neither is told.
fn memory_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.as_deref().and_then(total);
    // The root of what this process sees: in a container its own group.
    let bound = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    // `max` is no number, and no bound.
    let bound = bound.and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(bound).min()
}

/// `MemTotal` of `/proc/meminfo` (proc(5)), in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_memory_is_read_as_it_is_told() {
        let told = "MemTotal:       24683520 kB\nMemFree:          253212 kB\n";
        assert_eq!(total(told), Some(24_683_520 * 1024));
        for none in ["", "MemFree: 1 kB", "MemTotal: many kB", "MemTotal: 12"] {
            assert_eq!(total(none), None, "{none}");
        }
    }
}
