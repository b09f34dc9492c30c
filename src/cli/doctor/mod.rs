//! `onrecord doctor`: checks a set-up, and says what is wrong and what to do.
//!
//! It looks and changes nothing, but for a file in the data folder that vanishes at once, by which the disk
//! is measured. Secrets stand in no finding.

pub(super) mod clock;
mod database;
mod folder;
mod keys;
mod server;

use super::serve::Place;
use super::terminal::{BAD, BOLD, DIM, DOUBTFUL, GOOD, Line, Screen, show};
use crate::client::ServerArgs;
use crate::postgres::{ClusterState, inspect};
use crate::start::{Config, DATABASE};
use crate::store::check::DatabaseFacts;
use serde_json::json;
use std::process::ExitCode;

/// Arguments of `onrecord doctor`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 nothing failed, 1 something did.")]
pub struct DoctorArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    place: Place,
    /// Print a JSON line for each check
    #[arg(long)]
    json: bool,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ok,
    Skipped,
    Warning,
    Failed,
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// What a check found, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    check: &'static str,
    status: Status,
    found: String,
    action: String,
}

/// The findings so far.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn ok(&mut self, check: &'static str, found: impl Into<String>) {
        self.add(check, Status::Ok, found, "");
    }

    fn skipped(&mut self, check: &'static str, why: impl Into<String>) {
        self.add(check, Status::Skipped, why, "");
    }

    fn warning(&mut self, check: &'static str, found: impl Into<String>, action: &str) {
        self.add(check, Status::Warning, found, action);
    }

    fn failed(&mut self, check: &'static str, found: impl Into<String>, action: &str) {
        self.add(check, Status::Failed, found, action);
    }

    fn add(&mut self, check: &'static str, status: Status, found: impl Into<String>, action: &str) {
        self.0.push(Finding {
            check,
            status,
            found: found.into(),
            action: action.to_owned(),
        });
    }
}

/// Runs the command.
pub async fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let config = args.place.config()?;
    let mut findings = Findings::default();
    findings.ok("program", format!("onrecord {}", env!("CARGO_PKG_VERSION")));
    let is_named = args.place.keys.data_dir.is_some();
    let facts = if folder::check(&mut findings, &config, is_named) {
        look_inside(&mut findings, &config).await
    } else {
        None
    };
    let date = server::check(&mut findings, &args.server).await;
    clock::check(
        &mut findings,
        clock::now(),
        facts.map(|facts| facts.now),
        date,
    );
    let failed = report(&findings.0, args.json)?;
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The checks of a data folder that is there; what its database is like, where it could be asked.
async fn look_inside(findings: &mut Findings, config: &Config) -> Option<DatabaseFacts> {
    let url = match &config.database_url {
        Some(url) => {
            findings.skipped("postgresql", "not needed: --database-url names a database");
            Some(url.clone())
        }
        None => cluster(findings, config),
    };
    let facts = match url {
        Some(url) => {
            let facts = database::check(findings, &url).await;
            let key_url = config.key_database_url.as_deref();
            database::check_keys(findings, key_url.unwrap_or(&url)).await;
            facts
        }
        None => None,
    };
    let tenants = facts.as_ref().map(|facts| facts.tenants.as_slice());
    keys::check(findings, config, tenants).await;
    facts
}

/// The embedded PostgreSQL; the address of its database where it runs.
fn cluster(findings: &mut Findings, config: &Config) -> Option<String> {
    let bin_dir = config.postgres_bin.as_deref();
    let found = match inspect(&config.data_dir, bin_dir, DATABASE) {
        Ok(found) => found,
        Err(error) => {
            findings.failed("postgresql", error.to_string(), "");
            return None;
        }
    };
    match &found.installation {
        Ok(installation) => findings.ok(
            "postgresql",
            format!(
                "{} in {}",
                installation.major(),
                installation.bin_dir().display()
            ),
        ),
        Err(error) => findings.failed("postgresql", error.to_string(), ""),
    }
    if found.unfinished {
        findings.warning(
            "leftovers",
            "postgres.new: an initdb that runs or was cut off",
            "nothing to do: the next start throws it away",
        );
    }
    match found.state {
        ClusterState::Running { url } => {
            findings.ok("cluster", "runs, with its server");
            return Some(url);
        }
        ClusterState::Absent => {
            findings.skipped("cluster", "not made yet: the first `onrecord serve` does");
        }
        ClusterState::Stopped => findings.ok("cluster", "stopped in good order"),
        ClusterState::Killed => findings.warning(
            "cluster",
            "PostgreSQL was killed, and left its pid file",
            "nothing to do: the next `onrecord serve` repeats its journal",
        ),
        ClusterState::LeftOver { pid } => findings.warning(
            "cluster",
            format!("PostgreSQL (process {pid}) outlived its server"),
            "nothing to do: the next `onrecord serve` stops it first",
        ),
    }
    findings.skipped(
        "database",
        "the embedded PostgreSQL does not run with its server; ask again when it does",
    );
    None
}

/// Prints what was found; whether something failed.
fn report(findings: &[Finding], json: bool) -> anyhow::Result<bool> {
    let screen = Screen::stdout();
    let count = |status| findings.iter().filter(|one| one.status == status).count();
    let text: String = if json {
        findings
            .iter()
            .map(|one| format!("{}\n", one.json()))
            .collect()
    } else {
        let lines: String = findings.iter().map(|one| one.lines(screen)).collect();
        let mut end = Line::default();
        end.add(
            BOLD,
            &format!(
                "{} ok, {} skipped, {} to look at, {} failed",
                count(Status::Ok),
                count(Status::Skipped),
                count(Status::Warning),
                count(Status::Failed)
            ),
        );
        format!("{lines}\n{}", end.render(screen))
    };
    show(&text)?;
    Ok(count(Status::Failed) > 0)
}

impl Finding {
    fn json(&self) -> serde_json::Value {
        let mut value = json!({
            "check": self.check,
            "status": self.status.as_str(),
            "found": self.found,
        });
        if !self.action.is_empty() {
            value["do"] = self.action.as_str().into();
        }
        value
    }

    /// Whole, however long: this is read once, and what to do stands at its end.
    fn lines(&self, screen: Screen) -> String {
        let screen = Screen {
            width: None,
            ..screen
        };
        let style = match self.status {
            Status::Ok => GOOD,
            Status::Skipped => DIM,
            Status::Warning => DOUBTFUL,
            Status::Failed => BAD,
        };
        let mut line = Line::default();
        line.add(style, self.status.as_str())
            .column(9)
            .text(self.check)
            .column(21)
            .text(&self.found);
        let mut out = line.render(screen);
        if !self.action.is_empty() {
            let mut line = Line::default();
            line.text(&format!("{:21}→ {}", "", self.action));
            out.push_str(&line.render(screen));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_what_to_do() {
        let mut findings = Findings::default();
        findings.ok("program", "onrecord 1");
        findings.failed("disk", "full\u{1b}[2J", "make room");
        let screen = Screen {
            width: Some(30),
            coloured: false,
        };
        let text: String = findings.0.iter().map(|one| one.lines(screen)).collect();
        let expected = "\
ok       program     onrecord 1
failed   disk        full\\u{1b}[2J
                     → make room
";
        assert_eq!(text, expected);
        assert_eq!(
            findings.0[1].json().to_string(),
            r#"{"check":"disk","status":"failed","found":"full\u001b[2J","do":"make room"}"#
        );
    }
}
