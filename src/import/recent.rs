//! A map from ids that keeps the newest entries only, so that memory does not grow with a session.

use std::collections::{HashMap, VecDeque};

/// Entries that are kept. A call is answered long before so many others were made.
const KEPT: usize = 4_096;

/// The last entries that were put in, by their ids.
pub(super) struct Recent<V> {
    entries: HashMap<String, (u64, V)>,
    order: VecDeque<(u64, String)>,
    count: u64,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            order: VecDeque::new(),
            count: 0,
        }
    }
}

impl<V> Recent<V> {
    /// Puts an entry in, in the place of one with the same id, and forgets what is too old.
    pub fn insert(&mut self, id: String, value: V) {
        self.count += 1;
        self.order.push_back((self.count, id.clone()));
        self.entries.insert(id, (self.count, value));
        while self.order.len() > KEPT
            && let Some((count, id)) = self.order.pop_front()
        {
            if self.entries.get(&id).is_some_and(|(own, _)| *own == count) {
                self.entries.remove(&id);
            }
        }
    }

    /// The entry with this id.
    pub fn get(&self, id: &str) -> Option<&V> {
        self.entries.get(id).map(|(_, value)| value)
    }

    /// All entries that are kept, in no order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|(_, value)| value)
    }

    /// Takes the entry with this id out.
    pub fn remove(&mut self, id: &str) -> Option<V> {
        self.entries.remove(id).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_entries_are_kept() {
        let mut recent = Recent::default();
        recent.insert("again".to_owned(), 0);
        recent.insert("taken".to_owned(), 0);
        assert_eq!(recent.remove("taken"), Some(0));
        assert_eq!(recent.remove("taken"), None);
        recent.insert("again".to_owned(), 1);
        for count in 0..KEPT - 1 {
            recent.insert(count.to_string(), 2);
        }
        assert_eq!(recent.get("again"), Some(&1), "put in anew");
        recent.insert("one more".to_owned(), 3);
        assert_eq!(recent.get("again"), None);
        assert_eq!(recent.get("0"), Some(&2));
        assert_eq!((recent.entries.len(), recent.order.len()), (KEPT, KEPT));
    }
}
