//! What is made from a few objects of a plane and kept until one of them is written.
//!
//! What is kept is bounded: planes not used for long are let go, and cost one look at their objects when they come
//! back. An idle plane has nothing here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use polder_model::PlaneId;

const EPOCHS: usize = 4096;

/// One value for each plane that has been used lately.
pub(crate) struct Memo<V> {
    /// Counts changes, by plane modulo a few: a value made before a change is not kept after it.
    epochs: [AtomicU64; EPOCHS],
    clock: AtomicU64,
    planes: Mutex<HashMap<PlaneId, Slot<V>>>,
}

struct Slot<V> {
    value: V,
    used: u64,
}

/// When a value was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

impl<V> Default for Memo<V> {
    fn default() -> Memo<V> {
        Memo {
            epochs: std::array::from_fn(|_| AtomicU64::new(0)),
            clock: AtomicU64::new(0),
            planes: Mutex::default(),
        }
    }
}

impl<V: Clone> Memo<V> {
    fn changes(&self, plane: PlaneId) -> &AtomicU64 {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits choose")]
        &self.epochs[plane.0 as usize % EPOCHS]
    }

    /// To be asked before anything is read that a value is made from.
    pub(crate) fn epoch(&self, plane: PlaneId) -> Epoch {
        Epoch(self.changes(plane).load(Ordering::Acquire))
    }

    pub(crate) fn get(&self, plane: PlaneId) -> Option<V> {
        let mut planes = self.planes.lock();
        let slot = planes.get_mut(&plane)?;
        slot.used = self.clock.fetch_add(1, Ordering::Relaxed);
        Some(slot.value.clone())
    }

    /// The same for somebody who does not use it.
    pub(crate) fn peek(&self, plane: PlaneId) -> Option<V> {
        self.planes.lock().get(&plane).map(|slot| slot.value.clone())
    }

    /// A value that is filled after it is there, and whether it is new.
    pub(crate) fn get_or_insert_with(&self, plane: PlaneId, make: impl FnOnce() -> V) -> (V, bool) {
        let used = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut planes = self.planes.lock();
        let len = planes.len();
        let slot = planes.entry(plane).or_insert_with(|| Slot { value: make(), used });
        slot.used = used;
        let value = slot.value.clone();
        (value, planes.len() > len)
    }

    /// Keeps a value, unless something changed since its epoch. Gives what it took the place of, and whether it is kept.
    pub(crate) fn keep(&self, plane: PlaneId, value: V, epoch: Epoch) -> (bool, Option<V>) {
        let used = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut planes = self.planes.lock();
        if self.epoch(plane) != epoch {
            return (false, None);
        }
        (true, planes.insert(plane, Slot { value, used }).map(|slot| slot.value))
    }

    /// Tells what is kept of a plane about a change; gives it away if it cannot follow. What is being made is not kept: it may have
    /// been made before the change.
    pub(crate) fn tell(&self, plane: PlaneId, follows: impl FnOnce(&V) -> bool) -> Option<V> {
        // Under the lock, so that the change is told to what is kept from now on.
        let mut planes = self.planes.lock();
        self.changes(plane).fetch_add(1, Ordering::AcqRel);
        if planes.get(&plane).is_some_and(|slot| follows(&slot.value)) {
            return None;
        }
        planes.remove(&plane).map(|slot| slot.value)
    }

    /// What is known of a plane may be wrong.
    pub(crate) fn forget(&self, plane: PlaneId) -> Option<V> {
        self.changes(plane).fetch_add(1, Ordering::AcqRel);
        self.planes.lock().remove(&plane).map(|slot| slot.value)
    }

    pub(crate) fn len(&self) -> usize {
        self.planes.lock().len()
    }

    /// Lets go of a quarter of the planes a condition holds for, those that were not used for longest.
    pub(crate) fn let_go(&self, which: impl Fn(&V) -> bool) -> Vec<V> {
        let mut planes = self.planes.lock();
        let own = planes.iter().filter(|(_, slot)| which(&slot.value));
        let mut order: Vec<(u64, PlaneId)> = own.map(|(plane, slot)| (slot.used, *plane)).collect();
        order.sort_unstable();
        let quarter = order.iter().take(order.len().div_ceil(4));
        quarter.filter_map(|(_, plane)| planes.remove(plane)).map(|slot| slot.value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_before_a_change_is_not_kept_after_it() {
        let memo: Memo<u32> = Memo::default();
        let (one, two) = (PlaneId(1), PlaneId(2));
        let epoch = memo.epoch(one);
        assert_eq!(memo.keep(one, 1, epoch), (true, None));
        assert_eq!((memo.get(one), memo.get(two)), (Some(1), None));
        assert_eq!(memo.keep(one, 2, epoch), (true, Some(1)));
        assert_eq!(memo.forget(one), Some(2));
        assert_eq!(memo.keep(one, 3, epoch), (false, None));
        assert_eq!((memo.get(one), memo.len()), (None, 0));
    }

    #[test]
    fn what_follows_stays_and_what_is_being_made_does_not() {
        let memo: Memo<u32> = Memo::default();
        let plane = PlaneId(1);
        memo.keep(plane, 1, memo.epoch(plane));
        let epoch = memo.epoch(plane);
        let mut told = 0;
        assert_eq!(
            memo.tell(plane, |value| {
                told = *value;
                true
            }),
            None
        );
        assert_eq!((told, memo.get(plane)), (1, Some(1)));
        assert_eq!(memo.keep(plane, 2, epoch), (false, None));
        assert_eq!(memo.tell(plane, |_| false), Some(1));
        assert_eq!((memo.get(plane), memo.tell(plane, |_| true)), (None, None));
        let (value, is_new) = memo.get_or_insert_with(plane, || 3);
        assert!(value == 3 && is_new && !memo.get_or_insert_with(plane, || 4).1);
        assert_eq!(memo.peek(plane), Some(3));
    }

    #[test]
    fn those_not_used_for_longest_go() {
        let memo: Memo<u64> = Memo::default();
        for plane in 0..8 {
            memo.keep(PlaneId(plane), plane, memo.epoch(PlaneId(plane)));
        }
        memo.get(PlaneId(0));
        assert_eq!(memo.let_go(|_| true), [1, 2]);
        assert_eq!(memo.let_go(|value| value % 2 == 1), [3]);
        assert_eq!(memo.let_go(|_| false), [0_u64; 0]);
        assert_eq!(memo.len(), 5);
    }
}
