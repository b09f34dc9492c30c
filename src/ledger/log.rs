//! What a ledger is to those who follow it: tiles, roots and proofs of consistency, cut from the nodes that are kept.
//!
//! Nodes and entries never change, so all of it is the same whenever it is asked for.

use crate::store::{self, StoreError, Tx};
use onrecord_core::digest::Hash;
use onrecord_core::id::TenantId;
use onrecord_core::merkle::{self, Frontier};
use onrecord_core::note::{Tile, TileKind, write_entry};

/// The bytes of a tile of a ledger that has all of it.
pub(crate) async fn tile(
    tx: &mut Tx,
    tenant: &TenantId,
    tile: &Tile,
) -> Result<Vec<u8>, StoreError> {
    let (level, nodes) = tile.nodes();
    match tile.kind {
        TileKind::Hashes { .. } => store::ledger::hashes(tx, tenant, level, nodes).await,
        TileKind::Entries => {
            let mut bundle = Vec::new();
            for entry in store::ledger::entries(tx, tenant, nodes).await? {
                write_entry(&mut bundle, &entry.bytes)
                    .map_err(|_| store::contradiction("ledger_entries", "bytes", entry.index))?;
            }
            Ok(bundle)
        }
    }
}

/// The root of the tree over the first entries.
pub(crate) async fn root(tx: &mut Tx, tenant: &TenantId, size: u64) -> Result<Hash, StoreError> {
    let wanted = merkle::root_nodes(size);
    let nodes = store::ledger::nodes(tx, tenant, &wanted).await?;
    let nodes = wanted.iter().filter_map(|node| nodes.get(node).copied());
    let frontier = Frontier::from_nodes(size, nodes.collect())
        .ok_or_else(|| store::contradiction("ledger_nodes", "hash", tenant))?;
    Ok(frontier.root())
}

/// The path that shows the tree of `first` entries to be the beginning of that of `second`.
pub(crate) async fn consistency(
    tx: &mut Tx,
    tenant: &TenantId,
    first: u64,
    second: u64,
) -> Result<Vec<Hash>, StoreError> {
    let wanted = merkle::consistency_nodes(first, second);
    let nodes = store::ledger::nodes(tx, tenant, &wanted).await?;
    merkle::consistency_path(first, second, |level, index| {
        nodes.get(&(level, index)).copied().ok_or_else(|| {
            store::contradiction("ledger_nodes", "hash", format!("{tenant}/{level}/{index}"))
        })
    })
}
