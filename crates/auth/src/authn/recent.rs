//! What was used lately, and not more than a number of it.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by key. When there are too many, those go that were not used since the last time there were.
pub(super) struct Recent<K, V> {
    new: HashMap<K, V>,
    old: HashMap<K, V>,
    len_max: usize,
}

impl<K: Eq + Hash + Clone, V: Clone> Recent<K, V> {
    pub(super) fn new(len_max: usize) -> Recent<K, V> {
        Recent { new: HashMap::new(), old: HashMap::new(), len_max }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.new.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.insert(key, value.clone());
        Some(value)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.new.len() >= self.len_max / 2 {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays() {
        let mut recent = Recent::new(8);
        for key in 0..100 {
            recent.insert(key, key);
            assert_eq!(recent.get(&0), Some(0), "{key}");
            assert!(recent.new.len() + recent.old.len() <= 8, "{key}");
        }
        assert_eq!((recent.get(&99), recent.get(&50)), (Some(99), None));
    }
}
