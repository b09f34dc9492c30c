//! Tiles: the log as files (c2sp.org/tlog-tiles).

use super::decimal;
use crate::digest::Hash;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// Hashes or entries of a full tile.
pub const TILE_WIDTH: u16 = 256;
/// The highest level that a tree of fewer than 2^64 leaves has; C2SP's names would allow 63.
const TOP_LEVEL: u8 = 7;

/// Up to 256 hashes or entries side by side; as text its path, `tile/0/x001/067` or `tile/entries/000.p/22`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tile {
    /// Hashes of a level, or entries.
    pub kind: TileKind,
    /// Place among its kind, from 0; at most 2^56 − 1.
    pub index: u64,
    /// 1 to 256; below 256 the tile is partial.
    pub width: u16,
}

/// What a tile holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TileKind {
    /// Nodes of level 8 × `level` of the tree.
    Hashes {
        /// 0 to 7; 0 has the leaf hashes.
        level: u8,
    },
    /// The entries themselves, under the leaf hashes of level 0.
    Entries,
}

/// The text is no tile's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tile's path is tile/LEVEL/INDEX or tile/entries/INDEX, such as tile/0/x001/067.p/5")]
pub struct BadTile;

impl Tile {
    /// The tiles that make up the log of `size` entries, hashes by level, then the entries.
    pub fn all(size: u64) -> impl Iterator<Item = Self> {
        (0..=TOP_LEVEL)
            .map(move |level| (TileKind::Hashes { level }, size >> (8 * level)))
            .chain([(TileKind::Entries, size)])
            .flat_map(|(kind, hashes)| {
                let full = hashes / u64::from(TILE_WIDTH);
                let rest = (hashes % u64::from(TILE_WIDTH)) as u16;
                let tile = move |index, width| Self { kind, index, width };
                (0..full)
                    .map(move |index| tile(index, TILE_WIDTH))
                    .chain((rest > 0).then(|| tile(full, rest)))
            })
    }

    /// The nodes of the tree that it holds, or stands for: their level and their indices in it.
    pub fn nodes(&self) -> (u8, Range<u64>) {
        let start = self.index.saturating_mul(u64::from(TILE_WIDTH));
        (
            8 * self.level(),
            start..start.saturating_add(u64::from(self.width)),
        )
    }

    /// Entries that a log must have for this tile to exist.
    pub fn size(&self) -> u64 {
        let (level, nodes) = self.nodes();
        u64::try_from(u128::from(nodes.end) << level).unwrap_or(u64::MAX)
    }

    fn level(&self) -> u8 {
        match self.kind {
            TileKind::Hashes { level } => level,
            TileKind::Entries => 0,
        }
    }

    /// Takes a path below the log's prefix, without a leading slash.
    pub fn parse(text: &str) -> Result<Self, BadTile> {
        parse(text).ok_or(BadTile)
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TileKind::Hashes { level } => write!(formatter, "tile/{level}/")?,
            TileKind::Entries => formatter.write_str("tile/entries/")?,
        }
        let groups = (1..7)
            .take_while(|group| self.index >= 1_000_u64.pow(*group))
            .count() as u32;
        for group in (1..=groups).rev() {
            write!(
                formatter,
                "x{:03}/",
                self.index / 1_000_u64.pow(group) % 1_000
            )?;
        }
        write!(formatter, "{:03}", self.index % 1_000)?;
        if self.width < TILE_WIDTH {
            write!(formatter, ".p/{}", self.width)?;
        }
        Ok(())
    }
}

fn parse(text: &str) -> Option<Tile> {
    let (kind, rest) = text.strip_prefix("tile/")?.split_once('/')?;
    let kind = match kind {
        "entries" => TileKind::Entries,
        level => TileKind::Hashes {
            level: u8::try_from(decimal(level)?)
                .ok()
                .filter(|level| *level <= TOP_LEVEL)?,
        },
    };
    let (index, width) = match rest.split_once(".p/") {
        None => (rest, TILE_WIDTH),
        Some((index, width)) => {
            let width = u16::try_from(decimal(width)?).ok()?;
            (index, (1..TILE_WIDTH).contains(&width).then_some(width)?)
        }
    };
    let mut groups = index.rsplit('/');
    let mut digits: Vec<&str> = groups.next().into_iter().collect();
    for group in groups {
        digits.push(group.strip_prefix('x')?);
    }
    let three = |group: &&str| group.len() == 3 && group.bytes().all(|byte| byte.is_ascii_digit());
    // A first group of zeros would be a second name of the same tile.
    if !digits.iter().all(three) || digits.len() > 1 && digits.last() == Some(&"000") {
        return None;
    }
    let index = digits.iter().rev().copied().collect::<String>();
    let index = index.parse::<u64>().ok().filter(|index| index >> 56 == 0)?;
    Some(Tile { kind, index, width })
}

/// The entry has more bytes than its 16-bit length can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entry has at most 65,535 bytes, this one has {found}")]
pub struct EntryTooLong {
    /// Bytes of the entry.
    pub found: usize,
}

/// Appends an entry to a bundle: `uint16 length ‖ entry`, big-endian (c2sp.org/tlog-tiles, "Log entries").
pub fn write_entry(bundle: &mut Vec<u8>, entry: &[u8]) -> Result<(), EntryTooLong> {
    let length = u16::try_from(entry.len()).map_err(|_| EntryTooLong { found: entry.len() })?;
    bundle.extend_from_slice(&length.to_be_bytes());
    bundle.extend_from_slice(entry);
    Ok(())
}

/// Why bytes are no entry bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBundle {
    /// It ends within an entry or a length.
    #[error("the bundle ends within entry {entry}")]
    Cut {
        /// From 0, within the bundle.
        entry: usize,
    },
    /// More than a full tile has.
    #[error("a bundle has at most {TILE_WIDTH} entries")]
    TooMany,
}

/// The entries of a bundle. How many there should be is the tile's width, which the caller compares.
pub fn read_entries(mut bundle: &[u8]) -> Result<Vec<&[u8]>, BadBundle> {
    let mut entries = Vec::new();
    while !bundle.is_empty() {
        if entries.len() == usize::from(TILE_WIDTH) {
            return Err(BadBundle::TooMany);
        }
        let cut = BadBundle::Cut {
            entry: entries.len(),
        };
        let (length, rest) = bundle.split_first_chunk().ok_or(cut)?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (entry, rest) = rest.split_at_checked(length).ok_or(cut)?;
        entries.push(entry);
        bundle = rest;
    }
    Ok(entries)
}

/// The hashes of a tile of that width; `None` if the bytes are fewer or more.
pub fn read_hashes(bytes: &[u8], width: u16) -> Option<Vec<Hash>> {
    let (hashes, rest) = bytes.as_chunks();
    let exact = rest.is_empty() && hashes.len() == usize::from(width);
    exact.then(|| hashes.iter().copied().map(Hash).collect())
}
