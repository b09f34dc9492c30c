//! The tree against the golden proofs and other people's proofs.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

#[path = "../../../tests/shared/mod.rs"]
mod shared;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::merkle::{
    BadProof, consistency_path, inclusion_path, root_of, verify_consistency, verify_inclusion,
};
use serde::Deserialize;
use shared::shared;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};

/// Hashes each node anew from the leaves.
struct Tree(Vec<Hash>);

impl Tree {
    fn root(&self, size: u64) -> Hash {
        root_of(self.0[..size as usize].iter().copied())
    }

    fn node(&self, level: u8, index: u64) -> Result<Hash, Infallible> {
        let leaves = (index << level) as usize..((index + 1) << level) as usize;
        Ok(root_of(self.0[leaves].iter().copied()))
    }

    fn inclusion(&self, index: u64, size: u64) -> Vec<Hash> {
        inclusion_path(index, size, |level, at| self.node(level, at)).unwrap()
    }

    fn consistency(&self, first: u64, second: u64) -> Vec<Hash> {
        consistency_path(first, second, |level, at| self.node(level, at)).unwrap()
    }
}

#[derive(Deserialize)]
struct Golden {
    size: Option<u64>,
    root: Option<Hash>,
    index: Option<u64>,
    first: Option<u64>,
    second: Option<u64>,
    path: Option<Vec<Hash>>,
}

#[test]
fn golden_proofs() {
    let lines = fs::read_to_string(vectors().join("proofs.ndjson")).unwrap();
    let (mut roots, mut inclusions, mut consistencies) = (BTreeMap::new(), 0, 0);
    let tree = Tree(
        (0..100_u32)
            .map(|index| leaf_hash(index.to_string().as_bytes()))
            .collect(),
    );
    for line in lines.lines() {
        let golden: Golden = serde_json::from_str(line).unwrap();
        match golden {
            Golden {
                root: Some(root),
                size: Some(size),
                ..
            } => {
                assert_eq!(tree.root(size), root);
                roots.insert(size, root);
            }
            Golden {
                index: Some(index),
                size: Some(size),
                path: Some(path),
                ..
            } => {
                assert_eq!(tree.inclusion(index, size), path);
                let leaf = &tree.0[index as usize];
                assert_eq!(
                    verify_inclusion(leaf, index, size, &path, &roots[&size]),
                    Ok(())
                );
                inclusions += 1;
            }
            Golden {
                first: Some(first),
                second: Some(second),
                path: Some(path),
                ..
            } => {
                assert_eq!(tree.consistency(first, second), path);
                let old = tree.root(first);
                assert_eq!(
                    verify_consistency(first, second, &old, &roots[&second], &path),
                    Ok(())
                );
                consistencies += 1;
            }
            _ => panic!("a line of another kind: {line}"),
        }
    }
    assert_eq!((roots.len(), inclusions, consistencies), (10, 139, 139));
}

#[derive(Deserialize)]
struct Invalid {
    name: String,
    path: Vec<Hash>,
    leaf: Option<Hash>,
    index: Option<u64>,
    size: Option<u64>,
    root: Option<Hash>,
    first: Option<u64>,
    second: Option<u64>,
    old: Option<Hash>,
    new: Option<Hash>,
}

#[test]
fn golden_invalid_proofs_are_refused_for_their_defect() {
    let cases: Vec<Invalid> =
        serde_json::from_slice(&fs::read(vectors().join("invalid.json")).unwrap()).unwrap();
    assert_eq!(cases.len(), 21);
    for case in cases {
        let name = case.name;
        let verdict = match (case.leaf, case.old) {
            (Some(leaf), None) => verify_inclusion(
                &leaf,
                case.index.unwrap(),
                case.size.unwrap(),
                &case.path,
                &case.root.unwrap(),
            ),
            (None, Some(old)) => verify_consistency(
                case.first.unwrap(),
                case.second.unwrap(),
                &old,
                &case.new.unwrap(),
                &case.path,
            ),
            _ => panic!("{name} is of another kind"),
        };
        let expected = match name.as_str() {
            "index-past-end" | "empty-tree" | "first-larger" => "Range",
            "path-short"
            | "path-long"
            | "one-leaf-with-path"
            | "node-as-leaf-unhashed"
            | "empty-path"
            | "equal-sizes-with-path"
            | "zero-with-path" => "Length",
            _ => "Root",
        };
        let found = match verdict {
            Ok(()) => "accepted",
            Err(BadProof::Range) => "Range",
            Err(BadProof::Length { .. }) => "Length",
            Err(BadProof::Root { .. }) => "Root",
        };
        // A size that is not the path's may show by the length or by the root.
        if name == "size-other" {
            assert_ne!(found, "accepted");
        } else {
            assert_eq!(found, expected, "{name}");
        }
    }
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/merkle")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Foreign {
    leaf_idx: Option<u64>,
    tree_size: Option<u64>,
    root: Option<String>,
    leaf_hash: Option<String>,
    size1: Option<u64>,
    size2: Option<u64>,
    root1: Option<String>,
    root2: Option<String>,
    proof: Option<Vec<String>>,
    want_err: bool,
}

impl Foreign {
    /// `None` where something is no hash of 32 bytes, which our types do not take.
    fn accepted(&self) -> Option<bool> {
        let hash = |text: &String| Hash::from_slice(&STANDARD.decode(text).unwrap()).ok();
        let path: Vec<Hash> = self
            .proof
            .iter()
            .flatten()
            .map(hash)
            .collect::<Option<_>>()?;
        let verdict = match (self.leaf_idx, self.size1) {
            (Some(index), None) => verify_inclusion(
                &hash(self.leaf_hash.as_ref()?)?,
                index,
                self.tree_size?,
                &path,
                &hash(self.root.as_ref()?)?,
            ),
            (None, Some(first)) => verify_consistency(
                first,
                self.size2?,
                &hash(self.root1.as_ref()?)?,
                &hash(self.root2.as_ref()?)?,
                &path,
            ),
            _ => panic!("neither inclusion nor consistency"),
        };
        Some(verdict.is_ok())
    }
}

#[test]
fn foreign_proofs() {
    let Some(folder) = shared("vectors/rfc6962-merkle-proofs") else {
        return;
    };
    let (mut folders, mut accepted, mut refused, mut unreadable) = (
        vec![folder.join("inclusion"), folder.join("consistency")],
        0,
        0,
        0,
    );
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let case: Foreign = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            let verdict = case.accepted();
            if path.ends_with("sizes-are-equal-one-and-proof-is-empty.json") {
                // Its two roots are equal but 12 bytes long, so for us it is no proof at all.
                assert_eq!(verdict, None);
                continue;
            }
            let right = verdict.unwrap_or(false) != case.want_err;
            assert!(right, "{}", path.display());
            match verdict {
                None => unreadable += 1,
                Some(true) => accepted += 1,
                Some(false) => refused += 1,
            }
        }
    }
    assert_eq!((accepted, refused, unreadable), (11, 132, 52));
}

#[derive(Deserialize)]
struct ReferenceTree {
    leaves_hex: Vec<String>,
    roots_by_size: Vec<Hash>,
    inclusion: Vec<ReferenceInclusion>,
    consistency: Vec<ReferenceConsistency>,
}

#[derive(Deserialize)]
struct ReferenceInclusion {
    index: u64,
    size: u64,
    proof: Vec<Hash>,
}

#[derive(Deserialize)]
struct ReferenceConsistency {
    size1: u64,
    size2: u64,
    proof: Vec<Hash>,
}

#[test]
fn the_reference_tree_of_eight_leaves() {
    let Some(folder) = shared("vectors/rfc6962-reference-tree") else {
        return;
    };
    let reference: ReferenceTree =
        serde_json::from_slice(&fs::read(folder.join("ct-8-leaves.json")).unwrap()).unwrap();
    let leaves: Vec<Hash> = reference
        .leaves_hex
        .iter()
        .map(|text| {
            let mut bytes = vec![0; text.len() / 2];
            assert!(onrecord_core::digest::unhex(text, &mut bytes));
            leaf_hash(&bytes)
        })
        .collect();
    let tree = Tree(leaves);
    assert_eq!(reference.roots_by_size.len(), 9);
    for (size, root) in reference.roots_by_size.iter().enumerate() {
        assert_eq!(tree.root(size as u64), *root);
    }
    assert!(!reference.inclusion.is_empty() && !reference.consistency.is_empty());
    for case in reference.inclusion {
        assert_eq!(tree.inclusion(case.index, case.size), case.proof);
    }
    for case in reference.consistency {
        assert_eq!(tree.consistency(case.size1, case.size2), case.proof);
    }
}
