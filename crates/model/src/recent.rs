//! What was used lately, and not more than a weight of it.
//!
//! Invariant: no call drops more than a few times what it adds, so that nobody waits while much is forgotten at once.

use std::collections::{HashMap, hash_map};
use std::hash::Hash;

/// Values by key, in three parts. What is new and what was used lately is in the first. When that is full it becomes the
/// second, whose values go back to the first if they are used; and the second becomes the third, which is dropped little
/// by little.
pub struct Recent<K, V> {
    new: HashMap<K, Weighed<V>>,
    new_weight: usize,
    old: HashMap<K, Weighed<V>>,
    gone: hash_map::IntoIter<K, Weighed<V>>,
    part_max: usize,
}

struct Weighed<V> {
    value: V,
    weight: usize,
}

/// What was dropped to make room: for whoever has the lock on the rest to drop after it.
#[must_use = "is dropped when no lock is held"]
pub struct Dropped<K, V> {
    _all: Vec<(K, Weighed<V>)>,
}

impl<K: Eq + Hash, V: Clone> Recent<K, V> {
    /// Holds values that weigh so much together.
    pub fn new(weight_max: usize) -> Recent<K, V> {
        let gone = HashMap::new().into_iter();
        Recent { new: HashMap::new(), new_weight: 0, old: HashMap::new(), gone, part_max: weight_max / 3 }
    }

    pub fn get(&mut self, key: &K) -> Option<V> {
        if let Some(found) = self.new.get(key) {
            return Some(found.value.clone());
        }
        let (key, found) = self.old.remove_entry(key)?;
        let value = found.value.clone();
        drop(self.put(key, found));
        Some(value)
    }

    /// Adds a value. One that weighs more than a third of all is not kept.
    pub fn insert(&mut self, key: K, value: V, weight: usize) -> Dropped<K, V> {
        let added = Weighed { value, weight };
        if weight > self.part_max {
            return Dropped { _all: vec![(key, added)] };
        }
        self.put(key, added)
    }

    fn put(&mut self, key: K, added: Weighed<V>) -> Dropped<K, V> {
        let mut dropped = Vec::new();
        // Twice what is added: the third part is empty before the first one is full.
        let mut due = added.weight.saturating_mul(2);
        while due > 0
            && let Some((key, one)) = self.gone.next()
        {
            due = due.saturating_sub(one.weight.max(1));
            dropped.push((key, one));
        }
        if self.new_weight + added.weight > self.part_max {
            let capacity = self.new.len();
            let full = std::mem::replace(&mut self.new, HashMap::with_capacity(capacity));
            self.gone = std::mem::replace(&mut self.old, full).into_iter();
            self.new_weight = 0;
        }
        self.new_weight += added.weight;
        if let Some(before) = self.new.insert(key, added) {
            self.new_weight -= before.weight;
        }
        Dropped { _all: dropped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<K, V> Recent<K, V> {
        fn weights(&self) -> [usize; 3] {
            let sum = |part: &HashMap<K, Weighed<V>>| part.values().map(|own| own.weight).sum();
            [sum(&self.new), sum(&self.old), self.gone.len()]
        }
    }

    #[test]
    fn what_is_used_stays() {
        let mut recent = Recent::new(12);
        for key in 0..100 {
            drop(recent.insert(key, key, 1));
            assert_eq!(recent.get(&0), Some(0), "{key}");
            assert!(recent.weights().iter().sum::<usize>() <= 12, "{key}");
        }
        assert_eq!((recent.get(&99), recent.get(&50)), (Some(99), None));
    }

    #[test]
    fn all_weighs_no_more_than_it_may() {
        let mut recent = Recent::new(3_000);
        for key in 0..5_000_usize {
            let weight = 1 + key * 37 % 300;
            // The same one twice counts once.
            for _ in 0..2 {
                drop(recent.insert(key, (), weight));
            }
            let [new, old, _] = recent.weights();
            assert!(new <= 1_000 && old <= 1_000 && new == recent.new_weight, "{key}");
        }
        assert!(recent.insert(0, (), 1_001)._all.len() == 1 && recent.get(&0).is_none());
    }

    #[test]
    fn little_is_dropped_at_a_time() {
        let mut recent = Recent::new(3_000);
        for key in 0..20_000 {
            // Light ones first, then heavy ones, and so on.
            let weight = if key % 2_000 < 1_000 { 1 } else { 100 };
            let left = recent.gone.len();
            let Dropped { _all: dropped } = recent.insert(key, (), weight);
            assert!(dropped.len() <= 2 * weight, "{key}: {}", dropped.len());
            assert!(
                recent.gone.len() <= left || left == dropped.len(),
                "nothing is dropped all at once: {key}"
            );
        }
    }
}
