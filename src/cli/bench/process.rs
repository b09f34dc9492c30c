//! Processor time of processes, as Linux tells it in `/proc`. Elsewhere, and of processes that are not on
//! this machine, nothing is measured.

use std::fs;
use std::time::Duration;

/// Time of this thread, to the nanosecond where the kernel counts so.
pub(super) fn of_this_thread() -> Option<Duration> {
    let exact = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let exact = exact.and_then(|text| text.split(' ').next()?.parse().ok());
    exact
        .map(Duration::from_nanos)
        .or_else(|| Some(Stat::read("thread-self")?.own))
}

/// Time of a process with all its threads.
pub(super) fn of_process(pid: u32) -> Option<Duration> {
    Some(Stat::read(&pid.to_string())?.own)
}

/// Time of a process and its children: those that live, and those that ended and were waited for.
pub(super) fn of_family(pid: u32) -> Option<Duration> {
    let parent = Stat::read(&pid.to_string())?;
    let mut time = parent.own + parent.ended_children;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.parse::<u32>().is_ok()) else {
            continue;
        };
        // One that ended meanwhile is none.
        if let Some(child) = Stat::read(name).filter(|child| child.parent == pid) {
            time += child.own;
        }
    }
    Some(time)
}

/// The postmaster of a backend of this machine; `None` where that process is not PostgreSQL's.
pub(super) fn postmaster(backend: u32) -> Option<u32> {
    let stat = Stat::read(&backend.to_string())?;
    (stat.name == "postgres" && stat.parent > 1).then_some(stat.parent)
}

/// What `/proc/PID/stat` says (proc(5)).
struct Stat {
    name: String,
    parent: u32,
    own: Duration,
    ended_children: Duration,
}

impl Stat {
    fn read(process: &str) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name stands in parentheses and may have any character, parentheses too.
        let (before, after) = text.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
        Some(Self {
            name: name.to_owned(),
            parent: u32::try_from(number(1)?).ok()?,
            own: ticks(number(11)? + number(12)?),
            ended_children: ticks(number(13)? + number(14)?),
        })
    }
}

fn ticks(count: u64) -> Duration {
    let a_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_micros(count.saturating_mul(1_000_000) / a_second)
}
