//! Who is next, among planes that want more than there is: whoever has used least so far, in relation to its weight.
//!
//! What a plane has used is counted from where the others stand when it begins to wait, so that nobody saves up turns by
//! wanting nothing. Within a plane, first come, first served.
//!
//! Invariant: a plane is in `order` while something of it waits. One of which nothing waits is remembered only as long as it
//! has used more than who was served last.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use hashbrown::HashMap;
use polder_model::PlaneId;

/// Planes remembered before those are looked for that can be forgotten.
const SWEEP_LEN: usize = 1_024;

#[derive(Debug)]
pub(crate) struct Line<T> {
    planes: HashMap<PlaneId, Own<T>>,
    order: BTreeSet<(u64, PlaneId)>,
    /// What the plane had used that was served last.
    now: u64,
}

#[derive(Debug)]
struct Own<T> {
    used: u64,
    waiting: VecDeque<T>,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line { planes: HashMap::new(), order: BTreeSet::new(), now: 0 }
    }
}

impl<T> Line<T> {
    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn push(&mut self, plane: PlaneId, item: T) {
        let now = self.now;
        let own = self.planes.entry(plane).or_insert_with(|| Own { used: now, waiting: VecDeque::new() });
        if own.waiting.is_empty() {
            own.used = own.used.max(now);
            self.order.insert((own.used, plane));
        }
        own.waiting.push_back(item);
    }

    pub(crate) fn pop(&mut self) -> Option<(PlaneId, T)> {
        let (used, plane) = self.order.first().copied()?;
        let own = self.planes.get_mut(&plane)?;
        let item = own.waiting.pop_front()?;
        self.now = used;
        if own.waiting.is_empty() {
            self.order.remove(&(used, plane));
        }
        Some((plane, item))
    }

    /// A plane has used something. While nobody waits that takes nothing from anybody, and is not counted.
    pub(crate) fn spend(&mut self, plane: PlaneId, weight: u64, spent: Duration) {
        if self.is_empty() {
            if !self.planes.is_empty() {
                *self = Line::default();
            }
            return;
        }
        let spent = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX).max(1);
        let spent = spent.saturating_mul(1_000) / weight.max(1);
        if self.planes.len() >= SWEEP_LEN && !self.planes.contains_key(&plane) {
            let now = self.now;
            self.planes.retain(|_, own| own.used > now || !own.waiting.is_empty());
        }
        let now = self.now;
        let own = self.planes.entry(plane).or_insert_with(|| Own { used: now, waiting: VecDeque::new() });
        let is_waiting = !own.waiting.is_empty() && self.order.remove(&(own.used, plane));
        own.used = own.used.max(now).saturating_add(spent);
        if is_waiting {
            self.order.insert((own.used, plane));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves so many turns of planes that always want more, and counts who had how much.
    fn served(planes: &[(u64, u64, u64)], turns: usize) -> Vec<u64> {
        let mut line = Line::default();
        for (plane, ..) in planes {
            (0..3).for_each(|_| line.push(PlaneId(*plane), ()));
        }
        let mut had = vec![0; planes.len()];
        for _ in 0..turns {
            let (plane, ()) = line.pop().unwrap();
            let at = planes.iter().position(|(own, ..)| PlaneId(*own) == plane).unwrap();
            let (_, weight, cost) = planes[at];
            had[at] += cost;
            line.push(plane, ());
            line.spend(plane, weight, Duration::from_micros(cost));
        }
        had
    }

    #[test]
    fn planes_have_the_same_however_long_their_turns_are() {
        let had = served(&[(1, 100, 10), (2, 100, 1_000)], 10_100);
        assert!(had[0].abs_diff(had[1]) <= 1_000, "{had:?}");
    }

    #[test]
    fn weights_count() {
        let had = served(&[(1, 100, 50), (2, 300, 50), (3, 50, 50)], 9_000);
        let part = |at: usize| had[at] as f64 / had.iter().sum::<u64>() as f64;
        assert!((part(0) - 100.0 / 450.0).abs() < 0.01 && (part(1) - 300.0 / 450.0).abs() < 0.01, "{had:?}");
    }

    #[test]
    fn who_wanted_nothing_has_saved_nothing_and_lost_nothing() {
        let mut line = Line::default();
        (0..100).for_each(|_| line.push(PlaneId(1), 1));
        for _ in 0..50 {
            let (plane, _) = line.pop().unwrap();
            line.spend(plane, 100, Duration::from_millis(1));
        }
        // It comes before the next of the other, and after that they take turns.
        (0..3).for_each(|_| line.push(PlaneId(2), 2));
        let order: Vec<u64> = (0..6)
            .map(|_| {
                let (plane, _) = line.pop().unwrap();
                line.spend(plane, 100, Duration::from_millis(1));
                plane.0
            })
            .collect();
        assert_eq!(order, [2, 1, 2, 1, 2, 1]);
    }

    /// Whoever asks for one thing after the other, and never for two at a time, has no more than others.
    #[test]
    fn what_was_used_is_remembered_while_it_counts() {
        let mut line = Line::default();
        (0..100).for_each(|_| line.push(PlaneId(1), ()));
        let mut had = [0; 3];
        for _ in 0..60 {
            line.push(PlaneId(2), ());
            let first = line.pop().unwrap().0;
            line.spend(first, 100, Duration::from_millis(1));
            had[usize::try_from(first.0).unwrap()] += 1;
            if line.planes.get(&PlaneId(2)).is_some_and(|own| own.waiting.len() > 1) {
                line.planes.get_mut(&PlaneId(2)).unwrap().waiting.pop_front();
            }
        }
        assert!(had[1] >= 25, "{had:?}");
    }

    #[test]
    fn nothing_is_remembered_when_nobody_waits() {
        let mut line = Line::default();
        for plane in 0..10_000 {
            line.push(PlaneId(plane), ());
        }
        while let Some((plane, ())) = line.pop() {
            line.spend(plane, 100, Duration::from_millis(1));
        }
        line.spend(PlaneId(1), 100, Duration::from_millis(1));
        assert!(line.planes.is_empty() && line.order.is_empty());
    }
}
