//! Bundles taken apart and put together again, as somebody with a tar would.

use onrecord_core::bundle::{self, BLOCK};
use onrecord_core::digest::Hash;

/// Members of a bundle in their order.
#[derive(Clone, Debug)]
pub struct Bundle(pub Vec<(String, Vec<u8>)>);

impl Bundle {
    pub fn read(mut tar: &[u8]) -> Self {
        let mut members = Vec::new();
        loop {
            let (block, rest) = tar.split_first_chunk::<BLOCK>().expect("a block");
            if block.iter().all(|byte| *byte == 0) {
                assert_eq!(rest, [0; BLOCK], "two zero blocks end it");
                return Self(members);
            }
            let (name, size) = bundle::parse_header(block).expect("a header");
            let length = usize::try_from(size).expect("a size");
            members.push((name, rest[..length].to_vec()));
            tar = &rest[length + bundle::padding(size)..];
        }
    }

    pub fn write(&self) -> Vec<u8> {
        let mut tar = Vec::new();
        for (name, bytes) in &self.0 {
            let size = bytes.len() as u64;
            tar.extend_from_slice(&bundle::header(name, size).expect("a header"));
            tar.extend_from_slice(bytes);
            tar.resize(tar.len() + bundle::padding(size), 0);
        }
        tar.resize(tar.len() + 2 * BLOCK, 0);
        tar
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(other, _)| other == name)
    }

    #[track_caller]
    pub fn member(&self, name: &str) -> &[u8] {
        let found = self.0.iter().find(|(other, _)| other == name);
        &found.unwrap_or_else(|| panic!("no {name}")).1
    }

    pub fn set(&mut self, name: &str, bytes: impl Into<Vec<u8>>) {
        let place = self.0.iter_mut().find(|(other, _)| other == name);
        place.expect("the member").1 = bytes.into();
    }

    /// The manifest as it had to be for these members.
    pub fn manifest(&self) -> String {
        self.0
            .iter()
            .filter(|(name, _)| name != "MANIFEST.sha256" && name != "export.dsse.json")
            .map(|(name, bytes)| bundle::manifest_line(&Hash::of(&[bytes]), name))
            .collect()
    }

    /// The frames, without their line ends.
    pub fn frames(&self) -> Vec<Vec<u8>> {
        let mut lines: Vec<_> = self
            .member("frames.ndjson")
            .split(|byte| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect();
        assert_eq!(lines.pop(), Some(Vec::new()), "the last line is whole");
        lines
    }

    /// Names of the payloads and their bytes, by commitment.
    pub fn payload(&self, commit: &str) -> &[u8] {
        self.member(&format!("payloads/{commit}"))
    }
}
