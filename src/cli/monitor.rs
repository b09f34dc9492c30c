//! `onrecord monitor`: a ledger watched from outside.

use super::audit::read_trust;
use super::doctor::clock;
use super::terminal::{BAD, DOUBTFUL, GOOD, Line, Screen, show, tell};
use crate::client::{Client, ServerArgs};
use crate::monitor::{Alarm, Monitor, Round, address};
use anyhow::Context as _;
use onrecord_verify::Code;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The exit code of a ledger that could not be checked.
const NOT_CHECKED: u8 = 2;

/// Arguments of `onrecord monitor`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes of --once: 0 everything fits; 1 an alarm stands; 2 it could not be checked. Without --once it goes on until
it is stopped, and ends with 2 where its folder or its arguments cannot be used.")]
pub struct MonitorArgs {
    /// Address of the log, such as `https://records.example/t/LOGID`, or of the server where the trust file pins one log
    pub url: String,
    /// Folder of its own: what it believes, a copy of the ledger, and evidence of contradictions
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Trust file, which came by another way than from this server
    #[arg(long, value_name = "FILE")]
    pub trust: PathBuf,
    /// API token of an auditor: entries are not for everybody
    #[arg(
        long,
        env = "ONRECORD_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    pub token: Option<String>,
    /// Look once, tell all alarms that stand, and end
    #[arg(long)]
    pub once: bool,
    /// How long it waits between two looks
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration, conflicts_with = "once")]
    pub every: Duration,
    /// After how long a run without a seal is an alarm
    #[arg(long, value_name = "TIME", default_value = "48h", value_parser = duration)]
    pub open_after: Duration,
    /// Print a JSON line for each alarm, and with --once one at the end
    #[arg(long)]
    pub json: bool,
}

/// A time such as `90s`, `15m`, `48h` or `3d`.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => 0,
    };
    let number: Option<u64> = number.parse().ok();
    number
        .and_then(|number| number.checked_mul(seconds))
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs)
        .ok_or_else(|| "expected a time such as 90s, 15m, 48h or 3d".to_owned())
}

/// Runs the command.
pub async fn run(args: MonitorArgs) -> anyhow::Result<ExitCode> {
    match watch(&args).await {
        Err(error) if !error.is::<super::terminal::Closed>() => {
            tell(format_args!("error: {}", super::told(&error)));
            Ok(ExitCode::from(NOT_CHECKED))
        }
        other => other,
    }
}

async fn watch(args: &MonitorArgs) -> anyhow::Result<ExitCode> {
    let trust = read_trust(&args.trust)?;
    let client = Client::new(&ServerArgs {
        url: address(&args.url, &trust)?,
        token: args.token.clone(),
    })?;
    let mut monitor = Monitor::new(client, trust, &args.dir, args.open_after)?;
    if args.once {
        let round = monitor.round(now()?).await?;
        monitor.copy(true)?;
        tell_alarms(args, round.alarms.iter())?;
        monitor.news(&round)?;
        show(&end(args, &round))?;
        return Ok(ExitCode::from(u8::from(is_alarmed(&round))));
    }
    let mut last = None;
    loop {
        // What could not be checked is said once, and checked again.
        let failed = match monitor.round(now()?).await {
            Ok(round) => {
                let news: Vec<Alarm> = monitor.news(&round)?.into_iter().cloned().collect();
                tell_alarms(args, news.iter())?;
                monitor.copy(false)?;
                None
            }
            Err(error) if error.is_fatal() => return Err(error.into()),
            Err(error) => Some(error.to_string()),
        };
        if failed != last {
            match &failed {
                Some(why) => tell(format_args!("not checked: {why}")),
                None if last.is_some() => tell("checked again"),
                None => {}
            }
            last = failed;
        }
        tokio::time::sleep(args.every).await;
    }
}

fn now() -> anyhow::Result<onrecord_core::timestamp::Timestamp> {
    clock::now().context("this machine's clock stands before 1970")
}

fn is_alarmed(round: &Round) -> bool {
    !round.alarms.is_empty()
}

fn tell_alarms<'a>(
    args: &MonitorArgs,
    alarms: impl Iterator<Item = &'a Alarm>,
) -> anyhow::Result<()> {
    for alarm in alarms {
        if args.json {
            show(&format!("{}\n", serde_json::to_string(alarm)?))?;
            continue;
        }
        let gap = Code::ALL
            .iter()
            .any(|code| code.as_str() == alarm.alarm && code.status().exit_code() == 2);
        let style = if gap { DOUBTFUL } else { BAD };
        let mut line = Line::default();
        line.add(style, &format!("ALARM {}", alarm.alarm));
        for (what, number) in [("entry", alarm.index), ("size", alarm.size)] {
            if let Some(number) = number {
                line.text(&format!(" {what} {number}"));
            }
        }
        if let Some(run) = &alarm.run {
            line.text(&format!(" run {run}"));
        }
        line.text(&format!(": {}", alarm.cause));
        if let Some(evidence) = &alarm.evidence {
            line.text(&format!("; see {}", evidence.display()));
        }
        show(&line.render(Screen {
            width: None,
            ..Screen::stdout()
        }))?;
    }
    Ok(())
}

fn end(args: &MonitorArgs, round: &Round) -> String {
    let alarms = round.alarms.len() as u64 + round.more;
    if args.json {
        let value =
            json!({"origin": round.origin, "size": round.size, "new": round.new, "alarms": alarms});
        return format!("{value}\n");
    }
    let mut line = Line::default();
    if is_alarmed(round) {
        line.add(BAD, &format!("{alarms} alarms"));
    } else {
        line.add(GOOD, "everything fits");
    }
    line.text(&format!(
        ": {} entries of {}, {} of them new",
        round.size, round.origin, round.new
    ));
    line.render(Screen::stdout())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2d"), Ok(Duration::from_secs(172_800)));
        for text in [
            "",
            "5",
            "s",
            "0s",
            "-1s",
            "1w",
            "1 h",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
