//! Whether bytes are canonical.

use super::error::JsonError;
use super::keys::Key;
use super::scan::{Place, Target};
use alloc::boxed::Box;
use core::cmp::Ordering;

/// Notices that input is not canonical, and keeps no more of an object than the last key.
pub(super) struct Checker<'a> {
    text: &'a str,
    differs: &'a mut bool,
}

impl<'a> Checker<'a> {
    pub(super) fn new(text: &'a str, differs: &'a mut bool) -> Self {
        Self { text, differs }
    }
}

impl Target for Checker<'_> {
    type Object = Option<Key>;

    fn replace(&mut self, _from: usize, _to: usize, _canonical: &[u8]) {
        *self.differs = true;
    }

    #[inline(always)]
    fn position(&self, at: usize) -> usize {
        at
    }

    fn open(&mut self) -> Option<Key> {
        None
    }

    #[inline]
    fn member(&mut self, last: &mut Option<Key>, key: Key, _place: Place, _depth: usize) {
        if let Some(last) = *last
            && last.compare(key, self.text) != Ordering::Less
        {
            *self.differs = true;
        }
        *last = Some(key);
    }

    fn close(&mut self, _: Option<Key>, _at: usize, _depth: usize) -> Result<(), Box<JsonError>> {
        Ok(())
    }

    fn element(&mut self, _depth: usize, _from: usize, _to: usize) {}
}
