//! `onrecord settings`: what the tenant chose for itself.

use crate::client::Client;
use serde_json::{Value, json};

/// Arguments of `onrecord settings`.
#[derive(Clone, Debug, clap::Args)]
pub struct SettingsArgs {
    /// Choose after which time a run that nobody writes to is sealed as interrupted: 90s, 15m, 24h, 7d, `never`, or `server` for
    /// what the server has
    #[arg(long, value_name = "TIME", value_parser = parse_idle)]
    pub seal_idle: Option<Idle>,
    /// Choose how many people it takes to release a hold; fewer than before takes the role admin
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=2))]
    pub hold_release_people: Option<u64>,
    /// Print the settings as JSON
    #[arg(long)]
    pub json: bool,
}

/// After which time an idle run is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// As the server says.
    Server,
    /// After so many seconds; 0 for never.
    After(u64),
}

fn parse_idle(text: &str) -> Result<Idle, String> {
    let expected =
        || "expected a number and s, m, h or d, such as 24h; never; or server".to_owned();
    match text {
        "never" => return Ok(Idle::After(0)),
        "server" => return Ok(Idle::Server),
        _ => {}
    }
    let (number, unit) = text
        .split_at_checked(text.len().saturating_sub(1))
        .ok_or_else(expected)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(expected()),
    };
    let number: u64 = number.parse().map_err(|_| expected())?;
    match number.checked_mul(seconds) {
        Some(0) => Err("0 would be never; say never".to_owned()),
        Some(seconds) if seconds < 1 << 53 => Ok(Idle::After(seconds)),
        _ => Err(expected()),
    }
}

/// Runs the command.
pub async fn run(args: SettingsArgs, client: Client) -> anyhow::Result<()> {
    let path = "/v1/settings";
    let mut answer: Value = client.read(path).await?;
    if args.seal_idle.is_some() || args.hold_release_people.is_some() {
        // What is chosen takes the place of all that was: the rest is said again.
        let idle = match args.seal_idle {
            None => answer["seal_idle_seconds"].as_u64(),
            Some(Idle::Server) => None,
            Some(Idle::After(seconds)) => Some(seconds),
        };
        let people = args.hold_release_people;
        let people = people.or_else(|| answer["hold_release_people"].as_u64());
        let mut wanted = json!({});
        for (name, number) in [("seal_idle_seconds", idle), ("hold_release_people", people)] {
            if let Some(number) = number {
                wanted[name] = number.into();
            }
        }
        let media = "application/json";
        answer = client.put(path, media, wanted.to_string()).await?.1;
    }
    if args.json {
        return super::print(&format!("{answer}\n"));
    }
    let idle = match answer["seal_idle_seconds"].as_u64() {
        None => "sealed when the server says".to_owned(),
        Some(0) => "never sealed by themselves".to_owned(),
        Some(seconds) => format!("sealed as interrupted after {seconds} s"),
    };
    let since = match answer["version"].as_u64() {
        None | Some(0) => String::new(),
        Some(version) => {
            let by = onrecord_verify::escape(answer["by"]["id"].as_str().unwrap_or_default());
            let at = answer["at"].as_str().unwrap_or_default();
            format!(
                " (version {version}, {at} by {by}, ledger entry {})",
                answer["index"]
            )
        }
    };
    let people = match answer["hold_release_people"].as_u64() {
        Some(2) => "two people",
        _ => "one person",
    };
    super::print(&format!(
        "runs that nobody writes to: {idle}{since}\nholds are released by: {people}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_with_a_unit() {
        assert_eq!(parse_idle("90s"), Ok(Idle::After(90)));
        assert_eq!(parse_idle("15m"), Ok(Idle::After(900)));
        assert_eq!(parse_idle("24h"), Ok(Idle::After(86_400)));
        assert_eq!(parse_idle("7d"), Ok(Idle::After(604_800)));
        assert_eq!(parse_idle("never"), Ok(Idle::After(0)));
        assert_eq!(parse_idle("server"), Ok(Idle::Server));
        for wrong in [
            "",
            "s",
            "24",
            "-1h",
            "1 h",
            "0h",
            "1w",
            "1é",
            "18446744073709551615d",
        ] {
            assert!(parse_idle(wrong).is_err(), "{wrong:?}");
        }
    }
}
