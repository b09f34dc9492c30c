//! The database: version, tables, what protects the evidence, and whether it waits for its disk.

use super::Findings;
use crate::store::check::{self, DatabaseFacts, Migrations};

/// The oldest major version of PostgreSQL that the migrations are written for.
const OLDEST_MAJOR: u32 = 14;

/// Checks a database; its facts, where it answers.
pub(super) async fn check(findings: &mut Findings, url: &str) -> Option<DatabaseFacts> {
    let facts = match check::check(url).await {
        Ok(facts) => facts,
        Err(error) => {
            findings.failed(
                "database",
                error.to_string(),
                "check the address (--database-url), that PostgreSQL runs there, and what its log says",
            );
            return None;
        }
    };
    let text = format!("PostgreSQL {}, as role {}", facts.version, facts.role);
    if facts.major < OLDEST_MAJOR {
        findings.failed("database", text, "upgrade PostgreSQL to 14 or later");
    } else if facts.encoding != "UTF8" {
        findings.failed(
            "database",
            format!("{text}; its encoding is {}", facts.encoding),
            "create it with encoding 'UTF8'",
        );
    } else {
        findings.ok("database", text);
    }
    tables(findings, &facts);
    durability(findings, &facts);
    Some(facts)
}

/// Checks the database of the keys of runs, or the schema of them beside the evidence.
pub(super) async fn check_keys(findings: &mut Findings, url: &str) {
    const CHECK: &str = "key tables";
    let facts = match check::check_keys(url).await {
        Ok(facts) => facts,
        Err(error) => {
            findings.failed(
                CHECK,
                error.to_string(),
                "check the address (--key-database-url), and that PostgreSQL runs there: without it no run is opened, \
                 exported or verified",
            );
            return;
        }
    };
    const MIGRATE: &str =
        "run `onrecord migrate` with the same --database-url and --key-database-url as the server";
    match facts.migrations {
        Migrations::Current if facts.unprotected.is_empty() => {
            findings.ok(CHECK, "as this version has them, with row security");
        }
        Migrations::Current => {}
        Migrations::None => findings.warning(CHECK, "there are none yet", MIGRATE),
        Migrations::Behind { applied, of } => findings.failed(
            CHECK,
            format!("{applied} of this version's {of} migrations were applied"),
            MIGRATE,
        ),
        Migrations::Foreign => findings.failed(
            CHECK,
            "they are not those of this version",
            "use the program of the version that migrated them, or a later one",
        ),
    }
    for what in &facts.unprotected {
        findings.failed(
            CHECK,
            what.as_str(),
            "somebody changed the tables; put it back as migrations/keys has it, and ask who and why",
        );
    }
}

fn tables(findings: &mut Findings, facts: &DatabaseFacts) {
    const MIGRATE: &str =
        "run `onrecord migrate --database-url URL` as the role that owns the tables";
    match facts.migrations {
        Migrations::Current => findings.ok("migrations", "the tables are those of this version"),
        Migrations::None => {
            findings.warning("migrations", "there are no tables yet", MIGRATE);
            return;
        }
        Migrations::Behind { applied, of } => findings.failed(
            "migrations",
            format!("{applied} of this version's {of} were applied"),
            MIGRATE,
        ),
        Migrations::Foreign => findings.failed(
            "migrations",
            "the tables are not those of this version",
            "use the program of the version that migrated them, or a later one",
        ),
    }
    if facts.may_serve == Some(false) {
        findings.failed(
            "role",
            format!(
                "{} may not work as onrecord_app, or not erase as onrecord_eraser",
                facts.role
            ),
            "grant onrecord_app and onrecord_eraser to the role that the server logs in as",
        );
    }
    if facts.unprotected.is_empty() {
        findings.ok(
            "protection",
            "triggers, row security and rights keep the evidence append-only",
        );
    }
    for what in &facts.unprotected {
        findings.failed(
            "protection",
            what.as_str(),
            "somebody changed the tables; put it back as migrations/0001_init.sql has it, and ask who and why",
        );
    }
}

fn durability(findings: &mut Findings, facts: &DatabaseFacts) {
    // The server sets this one for itself.
    let (waits, disk): (Vec<&String>, Vec<&String>) = facts
        .not_durable
        .iter()
        .partition(|name| *name == "synchronous_commit");
    for name in &disk {
        findings.failed(
            "durability",
            format!("{name} is off: a power cut may lose or tear frames that have a receipt"),
            "set it on in postgresql.conf and reload",
        );
    }
    if !waits.is_empty() {
        findings.warning(
            "durability",
            "synchronous_commit is off; the server sets it on for its own connections",
            "set it on, for whatever else writes there",
        );
    }
    if facts.not_durable.is_empty() {
        findings.ok(
            "durability",
            "fsync, full_page_writes and synchronous_commit are on",
        );
    }
}
