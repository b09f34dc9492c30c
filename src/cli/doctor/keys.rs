//! The keys: whether the root key is there for its owner alone, and opens those of every tenant.

use super::Findings;
use super::folder::{mode, private};
use crate::start::{Config, RootSource, survey_keys};
use std::fs;

/// Checks the keys folder. `tenants` are those of the database, where it could be asked.
pub(super) async fn check(findings: &mut Findings, config: &Config, tenants: Option<&[String]>) {
    let folder = config.keys_folder();
    let shown = folder.display();
    let is_empty = tenants.is_none_or(<[String]>::is_empty);
    let found = match fs::metadata(&folder) {
        Ok(found) => found,
        Err(error) => {
            let text = format!("{shown}: {error}");
            if is_empty && error.kind() == std::io::ErrorKind::NotFound {
                findings.skipped("keys", text + "; the first `onrecord serve` makes them");
            } else {
                findings.failed(
                    "keys",
                    text,
                    "put the folder back from its backup, or name it with --keys: without the keys nothing is \
                     read, signed or appended",
                );
            }
            return;
        }
    };
    if mode(&found) & 0o077 != 0 {
        findings.failed(
            "keys",
            format!("{shown} is open to others (mode {:04o})", mode(&found)),
            "chmod 0700",
        );
    }
    // One from outside is in somebody else's care; the vault refuses it where anybody may read it.
    if matches!(config.root_key, RootSource::File(None)) {
        private(findings, "root key", &folder.join("root.key"));
    }
    let found = match survey_keys(config).await {
        Ok(found) => found,
        Err(error) => {
            findings.failed("keys", error.to_string(), "");
            return;
        }
    };
    if found.checked {
        findings.ok(
            "root key",
            format!(
                "of provider {}, the one that the keys are under",
                found.provider
            ),
        );
    }
    let found = found.tenants;
    for tenant in &found {
        match &tenant.fault {
            None => findings.ok(
                "keys",
                format!(
                    "of tenant {}: seal, ledger and {} epoch open under the root key",
                    tenant.tenant, tenant.epochs
                ),
            ),
            Some(fault) => findings.failed(
                "keys",
                format!("of tenant {}: {fault}", tenant.tenant),
                "put the file back from its backup; the server does not start without it",
            ),
        }
    }
    for tenant in tenants.unwrap_or_default() {
        if !found.iter().any(|one| one.tenant.as_str() == tenant) {
            findings.failed(
                "keys",
                format!("of tenant {tenant}: not in {shown}"),
                "give every server process the same keys folder (--keys), or put them back from the backup",
            );
        }
    }
    if folder.join("root.check.next").exists() {
        findings.failed(
            "root key",
            "the keys are on their way to another one",
            "run `onrecord keys rewrap-root` again with the same options; it goes on",
        );
    }
    for folder in fs::read_dir(&folder).into_iter().flatten().flatten() {
        leftovers(findings, &folder.path());
    }
}

/// Files of keys that were never finished, or not removed to the end.
fn leftovers(findings: &mut Findings, path: &std::path::Path) {
    let files = fs::read_dir(path).into_iter().flatten().flatten();
    let unfinished = files
        .map(|entry| entry.path())
        .chain([path.to_owned()])
        .filter(|path| {
            let name = path.file_name().unwrap_or_default();
            let name = name.as_encoded_bytes();
            name.starts_with(b".tmp") || name.ends_with(b".destroyed")
        });
    for path in unfinished {
        findings.warning(
            "leftovers",
            format!(
                "{}: a key that was never finished, or not destroyed to the end",
                path.display()
            ),
            "remove it: nothing uses it",
        );
    }
}
