//! The ledger of a tenant: its entries by the verifier's rules, and every table beside them against the entries.

use super::found::{At, Found};
use super::marks::Marks;
use super::nodes::Nodes;
use super::queries::Queries;
use crate::store::StoreError;
use crate::store::audit::{EntryRow, KeyRow, Reader, RunMark, TenantRow, checkpoint_row};
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::id::RunId;
use onrecord_core::merkle::Frontier;
use onrecord_core::statement::{Key, KeyAction, KeyRole, Predicate, Signed};
use onrecord_verify::{Code, LedgerCopy, LedgerWalk, SignedCheckpoint, Trust};
use std::collections::BTreeMap;

/// A ledger that was read, for the runs to be held against.
pub(super) struct Ledger {
    pub(super) origin: String,
    pub(super) copy: LedgerCopy,
    /// Whom to believe: the reader's own trust file, or the keys that the ledger itself names.
    pub(super) trust: Option<Trust>,
}

/// What the entries say of the tables beside them.
#[derive(Default)]
struct Said {
    leaves: Vec<Hash>,
    last_at: Option<i64>,
    last_seal: Option<(RunId, Hash)>,
    /// Keys by their ids, with the indexes at which they were added and revoked.
    keys: BTreeMap<Hash, SaidKey>,
    seal_key: Option<Hash>,
    /// Runs by the index and number of their opening.
    opened: BTreeMap<RunId, (i64, u64)>,
    /// Digests of the documents of policies.
    policies: BTreeMap<i64, Hash>,
    holds: Marks,
    flags: Marks,
    queries: Queries,
}

struct SaidKey {
    role: KeyRole,
    spki: String,
    added: Option<i64>,
    revoked: Option<i64>,
}

/// Reads the ledger of the tenant that the reader sees, and its list of runs.
pub(super) async fn check(
    reader: &mut Reader,
    tenant: &str,
    trusts: &[Trust],
    found: &mut Found,
) -> Result<(Ledger, Vec<RunMark>), StoreError> {
    let row = reader.tenant(tenant).await?;
    let keys = reader.keys().await?;
    let trust = match trusts.iter().find(|trust| trust.pins(&row.origin)) {
        Some(trust) => Some(trust.clone()),
        None => own_trust(tenant, &row.origin, &reader.key_statements().await?, &keys),
    };
    let mut walk = LedgerWalk::new(&row.origin);
    let mut said = Said::default();
    let mut entries = reader.entries().await?;
    while let Some(entry) = entries.next().await? {
        check_entry(
            &EntryRow::read(&entry)?,
            &mut walk,
            trust.as_ref(),
            &mut said,
            found,
        );
    }
    drop(entries);
    let nodes = Nodes {
        table: "ledger_nodes",
        level: 0,
        all: true,
    };
    nodes
        .check(reader.nodes().await?, said.leaves.clone(), found)
        .await?;
    check_checkpoints(reader, &row, &said.leaves, trust.as_ref(), found).await?;
    check_tenant(&row, &walk, &said, found);
    check_keys(&keys, &said, found);
    for (table, documents) in [
        ("redaction_rules", reader.rules().await?),
        ("settings", reader.settings().await?),
        ("retention_policies", reader.retention_policies().await?),
    ] {
        for row in documents {
            let at = At::of(table, "document").index(row.index);
            match said.policies.get(&row.index) {
                Some(digest) => found.digest(at, &Hash::of(&[&row.document]).0, digest),
                None => found.surplus(at, format!("no entry is about version {}", row.version)),
            }
        }
    }
    let holds = std::mem::take(&mut said.holds);
    let columns = ["ledger_index", "matter", "released_index"];
    holds.check(reader.holds().await?, ("holds", columns), found);
    let flags = std::mem::take(&mut said.flags);
    let columns = ["set_index", "flag", "cleared_index"];
    flags.check(reader.flags().await?, ("run_flags", columns), found);
    let queries = std::mem::take(&mut said.queries);
    queries.check(reader.queries().await?, found).await?;
    let runs = reader.runs().await?;
    check_runs(&runs, &row, &said, found);
    let ledger = Ledger {
        origin: row.origin,
        copy: walk.finish(),
        trust,
    };
    Ok((ledger, runs))
}

/// The keys that the ledger itself names: they show that it hangs together, and not whose it is.
fn own_trust(tenant: &str, origin: &str, statements: &[Vec<u8>], keys: &[KeyRow]) -> Option<Trust> {
    let mut text = String::new();
    let mut add = |line: String| {
        // What is malformed is named where it stands.
        if Trust::parse(&format!("{text}{line}")).is_ok() {
            text.push_str(&line);
        }
    };
    for bytes in statements {
        let Some(key) = key_of(bytes).filter(|key| key.action == KeyAction::Added) else {
            continue;
        };
        match key.role {
            KeyRole::Seal => add(format!("seal-key {} {tenant} {origin}\n", key.spki)),
            // Whose it is stands in the table only.
            KeyRole::Agent => {
                let row = keys.iter().find(|row| row.keyid == key.keyid.0);
                if let Some(actor) = row.and_then(|row| row.actor.as_ref()) {
                    add(format!("agent-key {} {actor}\n", key.spki));
                }
            }
            _ => {}
        }
    }
    Trust::parse(&text).ok()
}

fn key_of(bytes: &[u8]) -> Option<Key> {
    match Signed::parse(bytes).ok()?.predicate().ok()? {
        Some(Predicate::Key(key)) => Some(key),
        _ => None,
    }
}

fn check_entry(
    row: &EntryRow,
    walk: &mut LedgerWalk,
    trust: Option<&Trust>,
    said: &mut Said,
    found: &mut Found,
) {
    let at = |column| At::of("ledger_entries", column).index(row.index);
    let expected = i64::try_from(walk.size()).unwrap_or(i64::MAX);
    if row.index != expected {
        let cause = format!("index {} follows {}", row.index, expected - 1);
        found.missing(at("idx").index(expected), cause);
    }
    let leaf = leaf_hash(&row.bytes);
    found.digest(at("leaf"), &row.leaf, &leaf);
    found.rules(at("bytes"), walk.read(&row.bytes, trust));
    said.leaves.push(leaf);
    let Ok(signed) = Signed::parse(&row.bytes) else {
        return;
    };
    found.column(at("name"), row.name.as_str(), signed.name.as_str());
    let Ok(Some(predicate)) = signed.predicate() else {
        return;
    };
    found.column(at("run"), row.run.as_ref(), predicate.run());
    let time = predicate.at().micros();
    found.column(at("at"), row.at, time);
    said.last_at = Some(time);
    match predicate {
        Predicate::RunOpen(open) => {
            said.opened
                .entry(open.state.run)
                .or_insert((row.index, open.run_no));
        }
        Predicate::RunSeal(seal) => said.last_seal = Some((seal.state.run, leaf)),
        Predicate::Key(key) => said.key(key, row.index),
        Predicate::Policy(_) => {
            said.policies.insert(row.index, signed.digest);
        }
        Predicate::Hold(hold) => said.holds.hold(row.index, &hold),
        Predicate::Flag(flag) => said.flags.flag(row.index, &flag),
        Predicate::Query(query) => said.queries.query(row.index, query, signed.digest),
        _ => {}
    }
}

impl Said {
    fn key(&mut self, key: Key, index: i64) {
        let known = self.keys.entry(key.keyid).or_insert(SaidKey {
            role: key.role,
            spki: key.spki,
            added: None,
            revoked: None,
        });
        match key.action {
            KeyAction::Added => {
                known.added.get_or_insert(index);
                if key.role == KeyRole::Seal {
                    self.seal_key = Some(key.keyid);
                }
            }
            KeyAction::Revoked => {
                known.revoked.get_or_insert(index);
            }
        }
    }
}

/// Every checkpoint: form, origin, root, and signatures where a log is pinned.
async fn check_checkpoints(
    reader: &mut Reader,
    tenant: &TenantRow,
    leaves: &[Hash],
    trust: Option<&Trust>,
    found: &mut Found,
) -> Result<(), StoreError> {
    let mut cosignatures = reader.cosignatures().await?;
    let mut rows = reader.checkpoints().await?;
    let (mut tree, mut rest) = (Frontier::new(), leaves.iter());
    let mut last = 0;
    while let Some(row) = rows.next().await? {
        let (size, note) = checkpoint_row(&row)?;
        last = size;
        let at = At::of("checkpoints", "note").index(size);
        let cosigned = cosignatures.remove(&size).unwrap_or_default();
        let signed = match SignedCheckpoint::read(&format!("{note}{cosigned}"), trust) {
            Ok(signed) => signed,
            Err(cause) => {
                found.rule(Code::Checkpoint, at, cause);
                continue;
            }
        };
        // How many witnesses had cosigned it says nothing of the database.
        let mut findings = signed.findings;
        findings.retain(|one| one.code != Code::WitnessQuorum);
        found.rules(at, findings);
        let said = signed.checkpoint;
        if said.origin != tenant.origin {
            let cause = format!("of {:?}, the ledger is {:?}", said.origin, tenant.origin);
            found.rule(Code::CheckpointOrigin, at, cause);
        }
        found.column(
            At::of("checkpoints", "size").index(size),
            size,
            signed_size(said.size),
        );
        while tree.size() < said.size
            && let Some(leaf) = rest.next()
        {
            tree.push(*leaf);
        }
        if tree.size() != said.size {
            let cause = format!("of {} entries, the ledger has {}", said.size, leaves.len());
            found.surplus(at, cause);
        } else if tree.root() != said.root {
            let cause = format!(
                "its root is {}, that of the entries {}",
                said.root,
                tree.root()
            );
            found.rule(Code::LedgerRoot, at, cause);
        }
    }
    let size = signed_size(leaves.len() as u64);
    if last < size {
        let at = At::of("checkpoints", "size").index(size);
        found.missing(at, format!("no checkpoint of all {size} entries"));
    }
    Ok(())
}

fn signed_size(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// What the tenant's row says of the end of its ledger.
fn check_tenant(row: &TenantRow, walk: &LedgerWalk, said: &Said, found: &mut Found) {
    let at = |column| At::of("tenants", column);
    found.column(at("ledger_size"), row.ledger_size, signed_size(walk.size()));
    let mut tree = Frontier::new();
    said.leaves.iter().for_each(|leaf| tree.push(*leaf));
    let nodes: Vec<u8> = tree.nodes().iter().flat_map(|node| node.0).collect();
    if row.ledger_nodes != nodes {
        found.push(
            super::found::COLUMN,
            onrecord_verify::Status::Altered,
            at("ledger_nodes"),
            "it is not the edge of the entries' tree",
        );
    }
    if let Some(last) = said.last_at {
        found.column(at("ledger_at"), row.ledger_at, last);
    }
    let last = said.last_seal.as_ref();
    found.column(
        at("last_seal_run"),
        row.last_seal_run.as_ref(),
        last.map(|seal| &seal.0),
    );
    found.column(
        at("last_seal_leaf"),
        row.last_seal_leaf.as_deref(),
        last.map(|seal| &seal.1.0[..]),
    );
    if let Some(key) = &said.seal_key {
        found.digest(at("seal_key"), &row.seal_key, key);
    }
    let next = said.opened.values().map(|(_, run_no)| run_no + 1).max();
    found.column(
        at("next_run_no"),
        row.next_run_no,
        signed_size(next.unwrap_or(1)),
    );
}

/// The keys that the tables know, against the statements that added and revoked them.
fn check_keys(rows: &[KeyRow], said: &Said, found: &mut Found) {
    let of_table = |key: &&SaidKey| matches!(key.role, KeyRole::Seal | KeyRole::Agent);
    for row in rows {
        let at = |column| At::of("signing_keys", column).index(row.added_index);
        let key = Hash::from_slice(&row.keyid).ok();
        let key = key.and_then(|key| said.keys.get(&key)).filter(of_table);
        let Some(key) = key else {
            found.surplus(at("keyid"), "no entry added this key");
            continue;
        };
        let role = if key.role == KeyRole::Seal {
            "seal"
        } else {
            "agent"
        };
        found.column(at("role"), row.role.as_str(), role);
        found.column(at("spki"), &row.spki, &key.spki);
        found.column(at("added_index"), Some(row.added_index), key.added);
        found.column(at("revoked_index"), row.revoked_index, key.revoked);
    }
    for (keyid, key) in said.keys.iter().filter(|(_, key)| of_table(key)) {
        if !rows.iter().any(|row| row.keyid == keyid.0) {
            let at = At::of("signing_keys", "keyid").index(key.added.unwrap_or_default());
            found.missing(at, format!("the key {keyid} is not there"));
        }
    }
}

/// Runs that are there, against those that were opened. What is wrong with one of them itself is its own affair.
fn check_runs(runs: &[RunMark], row: &TenantRow, said: &Said, found: &mut Found) {
    let there: std::collections::HashMap<&RunId, i64> =
        runs.iter().map(|run| (&run.run, run.run_no)).collect();
    for (run, (index, run_no)) in &said.opened {
        if !there.contains_key(run) {
            let cause = format!("run {run}, number {run_no}, was opened and is not there");
            found.missing(At::of("runs", "run").index(*index), cause);
        }
    }
    for run in runs
        .iter()
        .filter(|run| !said.opened.contains_key(&run.run))
    {
        let cause = format!("no entry of {} opens run {}", row.origin, run.run);
        found.surplus(At::of("runs", "run"), cause);
    }
    let mut numbers: Vec<i64> = runs.iter().map(|run| run.run_no).collect();
    numbers.sort_unstable();
    if let Some(gap) = (1..)
        .zip(&numbers)
        .find(|(wanted, number)| wanted != *number)
    {
        let cause = format!("run number {} stands where {} has to be", gap.1, gap.0);
        found.rule(Code::RunGap, At::of("runs", "run_no"), cause);
    }
}
