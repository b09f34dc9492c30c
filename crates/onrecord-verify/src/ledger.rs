//! A whole ledger: checkpoint, hash tiles, entries (spec: `docs/spec/verification.md`, "Whole ledger").

use crate::check::Check;
use crate::code::{Code, Stage};
use crate::copy::LedgerCopy;
use crate::entries::Entries;
use crate::proof;
use crate::report::What;
use crate::tar::{Archive, Body, Entry, TarError};
use crate::trust::Trust;
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::limits::ENVELOPE_BYTES;
use onrecord_core::merkle::Frontier;
use onrecord_core::note::{Checkpoint, TILE_WIDTH, Tile, TileKind};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};

/// The member that tells a ledger from a bundle.
pub(crate) const CHECKPOINT: &str = "checkpoint";
/// Bytes of a checkpoint: 100 signatures are far below.
const CHECKPOINT_BYTES: usize = 65_536;
/// Bytes of a full hash tile.
const TILE_BYTES: usize = 32 * TILE_WIDTH as usize;

impl LedgerCopy {
    /// Reads and checks a whole ledger. What is wrong with it is in its [`LedgerCopy::findings`].
    pub fn read(input: impl Read, trust: Option<&Trust>) -> Self {
        let mut check = Check::new(trust);
        let mut archive = Archive::new(BufReader::with_capacity(crate::BUFFER_BYTES, input));
        let first = match archive.next() {
            Ok(Some(entry)) if entry.name == CHECKPOINT => Ok(entry),
            Ok(_) => Err(TarError::Malformed(
                "no ledger: its first member is not the checkpoint".into(),
            )),
            Err(error) => Err(error),
        };
        let mut copy = match first {
            Ok(first) => verify(&mut check, &mut archive, first),
            Err(error) => {
                check.push_tar(&error);
                Self::default()
            }
        };
        copy.findings = check.findings.sorted().0;
        copy
    }
}

/// Checks a ledger from the header of its checkpoint on.
pub(crate) fn verify<R: BufRead>(
    check: &mut Check<'_>,
    archive: &mut Archive<R>,
    first: Entry,
) -> LedgerCopy {
    check.facts.what = What::Ledger;
    check.note_trust();
    let mut reader = Reader::default();
    if let Err(error) = reader.read(check, archive, first) {
        check.push_tar(&error);
    }
    reader.finish(check)
}

#[derive(Default)]
struct Reader {
    checkpoint: Option<Checkpoint>,
    quorum: bool,
    /// Hashes of the tiles by level and index of the node, in the order of [`Tile::all`].
    tiles: BTreeMap<u8, Vec<Hash>>,
    frontier: Frontier,
    /// Whether a tile's hash is not that of the entries.
    bad_tile: Option<(u8, u64)>,
    entries: Entries,
    whole: bool,
}

impl Reader {
    fn read<R: BufRead>(
        &mut self,
        check: &mut Check<'_>,
        archive: &mut Archive<R>,
        first: Entry,
    ) -> Result<(), TarError> {
        let mut body = archive.body(&first);
        let text = body.all(CHECKPOINT_BYTES)?;
        body.finish()?;
        let Some(size) = self.read_checkpoint(check, text) else {
            return Ok(());
        };
        for tile in Tile::all(size) {
            let name = tile.to_string();
            let entry = archive.next()?.filter(|entry| entry.name == name);
            let entry = entry.ok_or_else(|| {
                TarError::Malformed(format!("{name} is not here, or not in its place"))
            })?;
            let mut body = archive.body(&entry);
            match tile.kind {
                TileKind::Hashes { level } => self.read_hashes(check, &tile, level, &mut body)?,
                TileKind::Entries => self.read_entries(check, &tile, &mut body)?,
            }
            body.finish()?;
        }
        if let Some(more) = archive.next()? {
            return Err(TarError::Malformed(format!(
                "{:?} does not belong to a ledger of {size} entries",
                more.name
            )));
        }
        self.whole = true;
        Ok(())
    }

    /// The size, where the checkpoint could be read.
    fn read_checkpoint(&mut self, check: &mut Check<'_>, text: Option<Vec<u8>>) -> Option<u64> {
        let text = text.and_then(|text| String::from_utf8(text).ok());
        let read = text.ok_or_else(|| "it is no text of a checkpoint's length".to_owned());
        let (note, checkpoint) = match read.and_then(|text| proof::read_checkpoint(&text)) {
            Ok(read) => read,
            Err(cause) => {
                check.push(Stage::Proof, Code::Checkpoint, cause);
                return None;
            }
        };
        let trust = check.trust;
        let findings = &mut check.findings;
        let witnesses = proof::check_signatures(&note, &checkpoint, trust, &mut |code, cause| {
            findings.push(Stage::Proof, code, None, cause);
        });
        let mut emit = |code, cause| findings.push(Stage::LedgerQuorum, code, None, cause);
        self.quorum = proof::check_quorum(&witnesses, trust, &mut emit);
        if trust.is_some_and(|trust| !trust.has_logs()) {
            check.push(
                Stage::Proof,
                Code::SignerUnknown,
                "the trust file has no log line, so nobody stands for the checkpoint",
            );
        }
        check.facts.ledger_origin = Some(checkpoint.origin.clone());
        check.facts.ledger_size = Some(checkpoint.size);
        check.facts.size = Some(checkpoint.size);
        check.facts.root = Some(checkpoint.root);
        if checkpoint.size == 0 {
            check.push(Stage::Proof, Code::NoEntries, "the ledger has no entries");
        }
        self.entries.begin(&checkpoint.origin);
        let size = checkpoint.size;
        self.checkpoint = Some(checkpoint);
        if check.findings.has(Code::CheckpointSignature) {
            // A size is taken from signed data only, and without it there is no telling what should be here.
            check.skip("tiles and entries, since the checkpoint's signature is false");
            return None;
        }
        Some(size)
    }

    fn read_hashes<R: BufRead>(
        &mut self,
        check: &mut Check<'_>,
        tile: &Tile,
        level: u8,
        body: &mut Body<'_, R>,
    ) -> Result<(), TarError> {
        let bytes = body.all(TILE_BYTES)?.unwrap_or_default();
        match onrecord_core::note::read_hashes(&bytes, tile.width) {
            Some(hashes) => self.tiles.entry(8 * level).or_default().extend(hashes),
            None => check.push(
                Stage::LedgerTiles,
                Code::LedgerTile,
                format!("{tile} has not {} hashes", tile.width),
            ),
        }
        Ok(())
    }

    fn read_entries<R: BufRead>(
        &mut self,
        check: &mut Check<'_>,
        tile: &Tile,
        body: &mut Body<'_, R>,
    ) -> Result<(), TarError> {
        for _ in 0..tile.width {
            let entry = match body.exactly(2)? {
                Some(length) => {
                    body.exactly(usize::from(u16::from_be_bytes([length[0], length[1]])))?
                }
                None => None,
            };
            let Some(entry) = entry.filter(|entry| entry.len() <= ENVELOPE_BYTES) else {
                check.push(
                    Stage::LedgerRoot,
                    Code::LedgerRoot,
                    format!("{tile} ends within an entry"),
                );
                return Ok(());
            };
            self.entry(check, &entry);
        }
        if !body.chunk()?.is_empty() {
            check.push(
                Stage::LedgerRoot,
                Code::LedgerRoot,
                format!("{tile} has more than its {} entries", tile.width),
            );
        }
        Ok(())
    }

    fn entry(&mut self, check: &mut Check<'_>, bytes: &[u8]) {
        let leaf = leaf_hash(bytes);
        let (tiles, bad) = (&self.tiles, &mut self.bad_tile);
        self.frontier.push_with(leaf, |level, index, hash| {
            let told = tiles
                .get(&level)
                .and_then(|tile| tile.get(usize::try_from(index).ok()?));
            if level % 8 == 0 && told != Some(&hash) {
                bad.get_or_insert((level, index));
            }
        });
        self.entries.read(check, bytes, leaf);
    }

    fn finish(self, check: &mut Check<'_>) -> LedgerCopy {
        if let (Some(checkpoint), true) = (&self.checkpoint, self.whole) {
            let root = self.frontier.root();
            if root != checkpoint.root || self.frontier.size() != checkpoint.size {
                check.push(
                    Stage::LedgerRoot,
                    Code::LedgerRoot,
                    format!(
                        "the root over {} entries is {root}, the checkpoint's {}",
                        self.frontier.size(),
                        checkpoint.root
                    ),
                );
            }
            if let Some((level, index)) = self.bad_tile {
                check.push(
                    Stage::LedgerTiles,
                    Code::LedgerTile,
                    format!("node {index} of level {level} is not that of the entries"),
                );
            }
            check.ledger = Some(format!(
                "{} entries of {}{}",
                checkpoint.size,
                checkpoint.origin,
                if self.quorum {
                    ", cosigned by a quorum"
                } else {
                    ""
                }
            ));
        }
        let mut copy = self.entries.finish(check);
        copy.origin = self.checkpoint.map(|checkpoint| checkpoint.origin);
        copy
    }
}
