//! A log as a server shows it over HTTP (c2sp.org/tlog-tiles). What it sends is nobody's word yet: each answer has a limit
//! in bytes and in time, and is taken apart strictly.

use super::MonitorError;
use crate::client::{Client, ClientError};
use onrecord_core::digest::Hash;
use onrecord_core::note::{TILE_WIDTH, Tile, TileKind, read_entries, read_hashes};
use std::time::Duration;

/// Bytes of a checkpoint: 100 signatures are far below.
const CHECKPOINT_BYTES: usize = 65_536;
/// Bytes of a full tile of hashes.
const HASHES_BYTES: usize = 32 * TILE_WIDTH as usize;
/// Bytes of a full tile of entries, each as long as one can be.
const ENTRIES_BYTES: usize = (2 + 65_535) * TILE_WIDTH as usize;
/// How long one answer may take, however slowly it comes.
const PATIENCE: Duration = Duration::from_secs(300);

/// Where a log is.
pub(super) struct Log {
    pub(super) client: Client,
}

impl Log {
    /// The signed checkpoint, unread.
    pub(super) async fn checkpoint(&self) -> Result<String, MonitorError> {
        let bytes = self.read("/checkpoint", CHECKPOINT_BYTES).await?;
        String::from_utf8(bytes).map_err(|_| MonitorError::Answer {
            what: "checkpoint".to_owned(),
            cause: "it is no text".to_owned(),
        })
    }

    /// The entries of a tile, as many as it is wide.
    pub(super) async fn entries(&self, tile: &Tile) -> Result<Vec<Vec<u8>>, MonitorError> {
        let bytes = self.tile(tile, ENTRIES_BYTES).await?;
        let bad = |cause: String| MonitorError::Answer {
            what: tile.to_string(),
            cause,
        };
        let entries = read_entries(&bytes).map_err(|error| bad(error.to_string()))?;
        let width = usize::from(tile.width);
        if entries.len() < width {
            return Err(bad(format!("it has {} entries", entries.len())));
        }
        Ok(entries[..width]
            .iter()
            .map(|entry| entry.to_vec())
            .collect())
    }

    /// The hashes of a tile, as many as it is wide.
    pub(super) async fn hashes(&self, tile: &Tile) -> Result<Vec<Hash>, MonitorError> {
        let bytes = self.tile(tile, HASHES_BYTES).await?;
        let wanted = bytes.get(..32 * usize::from(tile.width));
        let hashes = wanted.and_then(|bytes| read_hashes(bytes, tile.width));
        hashes.ok_or_else(|| MonitorError::Answer {
            what: tile.to_string(),
            cause: format!("it has {} bytes", bytes.len()),
        })
    }

    /// A tile, or the full one in its place where a log that grew has the part no more.
    async fn tile(&self, tile: &Tile, limit: usize) -> Result<Vec<u8>, MonitorError> {
        let full = Tile {
            width: TILE_WIDTH,
            ..*tile
        };
        match self.read(&format!("/{tile}"), limit).await {
            Err(MonitorError::Client(error)) if *tile != full && error.status() == Some(404) => {
                self.read(&format!("/{full}"), limit).await
            }
            other => other,
        }
    }

    async fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, MonitorError> {
        match tokio::time::timeout(PATIENCE, self.client.read_at_most(path, limit)).await {
            Ok(answer) => Ok(answer?.to_vec()),
            Err(_) => Err(MonitorError::Client(ClientError::Broken {
                url: self.client.base().to_owned(),
                why: format!("{path} did not come within {} s", PATIENCE.as_secs()),
            })),
        }
    }
}

/// The tile that has a node of a level that is a multiple of 8, in a tree of a size.
pub(super) fn tile_of(level: u8, index: u64, size: u64) -> Tile {
    let width = u64::from(TILE_WIDTH);
    let nodes = size >> level;
    let first = index / width * width;
    Tile {
        kind: TileKind::Hashes { level: level / 8 },
        index: index / width,
        width: nodes.saturating_sub(first).min(width) as u16,
    }
}
