//! Values by content, so that a thousand planes with the same CRD hold one copy of what was made from it.
//!
//! A value nobody uses stays for whoever needs it next, until the values together weigh too much. Looking one up costs
//! no walk over the others; a sweep does, and comes only when the weight says so.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Shared values with a weight each.
pub(crate) struct Interned<K, V> {
    values: HashMap<K, (Arc<V>, usize)>,
    bytes: usize,
    bytes_max: usize,
}

impl<K: Eq + Hash, V> Interned<K, V> {
    pub(crate) fn new(bytes_max: usize) -> Interned<K, V> {
        Interned { values: HashMap::new(), bytes: 0, bytes_max }
    }

    pub(crate) fn get(&self, key: &K) -> Option<Arc<V>> {
        self.values.get(key).map(|(value, _)| value.clone())
    }

    /// Keeps a value, or gives the one that somebody else has kept meanwhile.
    pub(crate) fn insert(&mut self, key: K, value: V, bytes: usize) -> Arc<V> {
        if let Some(known) = self.get(&key) {
            return known;
        }
        let value = Arc::new(value);
        self.values.insert(key, (value.clone(), bytes));
        self.bytes += bytes;
        if self.is_heavy() {
            self.sweep();
        }
        value
    }

    /// The same if there is room among those that are in use. Says whether it is kept.
    pub(crate) fn offer(&mut self, key: K, value: V, bytes: usize) -> (Arc<V>, bool) {
        if let Some(known) = self.get(&key) {
            return (known, true);
        }
        if self.bytes + bytes > self.bytes_max {
            self.sweep();
        }
        if self.bytes + bytes > self.bytes_max {
            return (Arc::new(value), false);
        }
        (self.insert(key, value, bytes), true)
    }

    /// Lets go of what nobody uses.
    pub(crate) fn sweep(&mut self) {
        let bytes = &mut self.bytes;
        self.values.retain(|_, (value, own)| {
            let used = Arc::strong_count(value) > 1;
            if !used {
                *bytes -= *own;
            }
            used
        });
    }

    pub(crate) fn is_heavy(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// Light enough to go on for a while.
    pub(crate) fn is_light(&self) -> bool {
        self.bytes <= self.bytes_max / 4 * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_values_go_when_there_are_too_many() {
        let mut interned: Interned<u32, u32> = Interned::new(100);
        let used = interned.insert(0, 0, 10);
        for key in 1..100 {
            drop(interned.insert(key, key, 10));
            assert!(interned.bytes <= 100 && !interned.is_heavy(), "{key}");
        }
        assert!(Arc::ptr_eq(&used, &interned.get(&0).unwrap()), "what is used stays");
        assert!(Arc::ptr_eq(&used, &interned.insert(0, 7, 10)), "the first one wins");
        let all: Vec<_> = (200..220).map(|key| interned.insert(key, key, 10)).collect();
        assert!(interned.is_heavy(), "what is used cannot be thrown away here");
        assert!(!interned.offer(300, 300, 10).1, "nor is there room for more");
        drop(all);
        assert!(interned.offer(300, 300, 10).1);
        interned.sweep();
        assert!(interned.is_light() && interned.values.len() == 1);
    }
}
