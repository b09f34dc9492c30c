//! The names of tiles and what is in them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

#[path = "../../../tests/shared/mod.rs"]
mod shared;

use onrecord_core::digest::leaf_hash;
use onrecord_core::merkle::root_of;
use onrecord_core::note::{
    BadBundle, BadTile, Checkpoint, EntryTooLong, Note, TILE_WIDTH, Tile, TileKind, read_entries,
    read_hashes, write_entry,
};
use proptest::prelude::*;
use shared::shared;
use std::fs;

#[test]
fn names_come_back_and_others_are_refused() {
    let hashes = |level| TileKind::Hashes { level };
    for (text, kind, index, width) in [
        ("tile/0/000", hashes(0), 0, 256),
        ("tile/0/000.p/1", hashes(0), 0, 1),
        ("tile/1/067.p/255", hashes(1), 67, 255),
        ("tile/0/x001/067", hashes(0), 1_067, 256),
        ("tile/7/x001/x234/067.p/9", hashes(7), 1_234_067, 9),
        ("tile/0/x001/000", hashes(0), 1_000, 256),
        (
            "tile/0/x072/x057/x594/x037/x927/935",
            hashes(0),
            (1 << 56) - 1,
            256,
        ),
        ("tile/entries/000", TileKind::Entries, 0, 256),
        (
            "tile/entries/x001/x234/067.p/22",
            TileKind::Entries,
            1_234_067,
            22,
        ),
    ] {
        let tile = Tile { kind, index, width };
        assert_eq!(Tile::parse(text), Ok(tile));
        assert_eq!(tile.to_string(), text);
    }
    for text in [
        "",
        "tile",
        "tile/",
        "tile/0",
        "tile/0/",
        "/tile/0/000",
        "tile/0/000/",
        "checkpoint",
        "tile/00/000",
        "tile/8/000",
        "tile/63/000",
        "tile/64/000",
        "tile/-1/000",
        "tile/+1/000",
        "tile//000",
        "tile/Entries/000",
        "tile/entry/000",
        "tile/0/0",
        "tile/0/00",
        "tile/0/0000",
        "tile/0/x000",
        "tile/0/x000/001",
        "tile/0/001/000",
        "tile/0/x001/x000",
        "tile/0/x01/000",
        "tile/0/X001/000",
        "tile/0/x001//000",
        "tile/0/xx01/000",
        "tile/0/x+01/000",
        "tile/0/000.p",
        "tile/0/000.p/",
        "tile/0/000.p/0",
        "tile/0/000.p/01",
        "tile/0/000.p/256",
        "tile/0/000.p/257",
        "tile/0/000.p/65792",
        "tile/0/000.p/1/",
        "tile/0/000.p/1.p/1",
        "tile/0/000.q/1",
        "tile/0/../000",
        "tile/0/x001/../000",
        "tile/0/000\0",
        "tile/0/\u{660}00",
        "tile/0/x072/x057/x594/x037/x927/936",
        "tile/0/x999/x999/x999/x999/x999/x999/999",
    ] {
        assert_eq!(Tile::parse(text), Err(BadTile), "{text}");
    }
}

/// The example of C2SP, and the sizes around full tiles.
#[test]
fn a_log_has_its_tiles_and_no_others() {
    let all = |size| Tile::all(size).collect::<Vec<_>>();
    assert_eq!(all(0), []);
    let names = |size| all(size).iter().map(Tile::to_string).collect::<Vec<_>>();
    assert_eq!(names(22), ["tile/0/000.p/22", "tile/entries/000.p/22"]);
    assert_eq!(
        names(256),
        ["tile/0/000", "tile/1/000.p/1", "tile/entries/000"]
    );
    let large = names(70_000);
    let count = |prefix: &str| large.iter().filter(|name| name.starts_with(prefix)).count();
    assert_eq!(
        (count("tile/0/"), count("tile/1/"), count("tile/2/")),
        (274, 2, 1)
    );
    assert_eq!((count("tile/entries/"), large.len()), (274, 551));
    for name in [
        "tile/0/273.p/112",
        "tile/1/001.p/17",
        "tile/2/000.p/1",
        "tile/entries/273.p/112",
    ] {
        assert!(large.iter().any(|found| found == name), "{name}");
    }
    let mut sorted = large.clone();
    sorted.sort();
    assert_eq!(sorted, large);
}

#[test]
fn a_tile_knows_its_nodes_and_the_smallest_log_that_has_it() {
    for (text, nodes, size) in [
        ("tile/0/000.p/1", (0, 0..1), 1),
        ("tile/0/x001/067", (0, 273_152..273_408), 273_408),
        ("tile/1/001.p/17", (8, 256..273), 273 * 256),
        ("tile/entries/001.p/2", (0, 256..258), 258),
        ("tile/7/000.p/255", (56, 0..255), 255 << 56),
        // A log of 2^64 entries is one too many for a u64; no size of ours reaches this tile.
        ("tile/7/000", (56, 0..256), u64::MAX),
        ("tile/7/001", (56, 256..512), u64::MAX),
    ] {
        let tile = Tile::parse(text).unwrap();
        assert_eq!((tile.nodes(), tile.size()), (nodes, size), "{text}");
    }
}

#[test]
fn entries_come_back_and_cut_bundles_are_refused() {
    let long = vec![b'x'; 65_535];
    let mut bundle = vec![];
    for entry in [b"one".as_slice(), b"", &long] {
        write_entry(&mut bundle, entry).unwrap();
    }
    assert_eq!(bundle[..7], *b"\0\x03one\0\0");
    assert_eq!(
        read_entries(&bundle).unwrap(),
        [b"one".as_slice(), b"", &long]
    );
    assert_eq!(read_entries(b""), Ok(vec![]));
    for (cut, entry) in [
        (1, 0),
        (2, 0),
        (4, 0),
        (6, 1),
        (8, 2),
        (bundle.len() - 1, 2),
    ] {
        assert_eq!(read_entries(&bundle[..cut]), Err(BadBundle::Cut { entry }));
    }
    let length = bundle.len();
    assert_eq!(
        write_entry(&mut bundle, &vec![0; 65_536]),
        Err(EntryTooLong { found: 65_536 })
    );
    assert_eq!(bundle.len(), length);
    assert_eq!(
        read_entries(&[0; 512]).map(|entries| entries.len()),
        Ok(256)
    );
    assert_eq!(read_entries(&[0; 514]), Err(BadBundle::TooMany));
    assert_eq!(read_hashes(&[5; 64], 2).map(|hashes| hashes.len()), Some(2));
    for (bytes, width) in [(64, 1), (64, 3), (63, 2), (65, 2), (0, 1)] {
        assert_eq!(read_hashes(&vec![5; bytes], width), None);
    }
}

proptest! {
    #[test]
    fn names_are_read_as_written(level in 0_u8..9, index in any::<u64>(), shift in 8_u32..64, width in 1..=TILE_WIDTH) {
        let kind = if level > 7 { TileKind::Entries } else { TileKind::Hashes { level } };
        let tile = Tile { kind, index: index >> shift, width };
        prop_assert_eq!(Tile::parse(&tile.to_string()), Ok(tile));
    }

    #[test]
    fn what_is_taken_is_written_so(text in "tile/([0-9]|entries)/(x[0-9]{3}/){0,2}[0-9]{3}(.p/[0-9]{1,3})?") {
        if let Ok(tile) = Tile::parse(&text) {
            prop_assert_eq!(tile.to_string(), text);
        }
    }

    #[test]
    fn every_tile_of_a_log_exists_in_it(size in 0_u64..200_000) {
        for tile in Tile::all(size) {
            prop_assert!(tile.size() <= size);
        }
    }
}

/// A log that Tessera wrote: every checkpoint is the root over tile and entries of its size.
#[test]
fn a_foreign_log() {
    let Some(folder) = shared("vectors/tlog-tiles-tessera") else {
        return;
    };
    for size in 0..=15 {
        let text = fs::read_to_string(folder.join(format!("checkpoint.{size}"))).unwrap();
        let note = Note::parse(&text).unwrap();
        assert_eq!(note.to_string(), text);
        let checkpoint = Checkpoint::parse(&note.text).unwrap();
        assert_eq!(checkpoint.size, size);
        let tiles: Vec<_> = Tile::all(size)
            .map(|tile| (tile, fs::read(folder.join(tile.to_string())).unwrap()))
            .collect();
        let [(hashes, hash_bytes), (_, bundle)] = &tiles[..] else {
            assert_eq!((size, tiles.len()), (0, 0));
            assert_eq!(checkpoint.root, root_of([]));
            continue;
        };
        let hashes = read_hashes(hash_bytes, hashes.width).unwrap();
        let entries = read_entries(bundle).unwrap();
        let leaves: Vec<_> = entries.iter().map(|entry| leaf_hash(entry)).collect();
        assert_eq!(leaves, hashes);
        assert_eq!(root_of(leaves), checkpoint.root);
        let mut written = vec![];
        for entry in entries {
            write_entry(&mut written, entry).unwrap();
        }
        assert_eq!(written, *bundle);
    }
}
