//! How much of something each plane has, and all together: counts that go up and down, and are forgotten at nothing.

use std::collections::HashMap;

use crate::PlaneId;

#[derive(Debug, Default)]
pub struct Shares {
    all: usize,
    planes: HashMap<PlaneId, usize>,
}

impl Shares {
    pub fn all(&self) -> usize {
        self.all
    }

    pub fn of(&self, plane: PlaneId) -> usize {
        self.planes.get(&plane).copied().unwrap_or_default()
    }

    /// Gives a plane more, if that leaves it and all within bounds.
    pub fn take(&mut self, plane: PlaneId, more: usize, plane_max: usize, all_max: usize) -> bool {
        let (all, own) = (self.all.saturating_add(more), self.of(plane).saturating_add(more));
        if all > all_max || own > plane_max {
            return false;
        }
        self.all = all;
        self.planes.insert(plane, own);
        true
    }

    /// Takes back what was given.
    pub fn give_back(&mut self, plane: PlaneId, less: usize) {
        self.all = self.all.saturating_sub(less);
        if let Some(own) = self.planes.get_mut(&plane) {
            *own = own.saturating_sub(less);
            if *own == 0 {
                self.planes.remove(&plane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_and_nothing_is_remembered_of_nothing() {
        let (one, two) = (PlaneId(1), PlaneId(2));
        let mut shares = Shares::default();
        assert!(shares.take(one, 3, 4, 6) && !shares.take(one, 2, 4, 6) && shares.take(one, 1, 4, 6));
        assert!(!shares.take(two, 3, 4, 6) && shares.take(two, 2, 4, 6));
        assert_eq!((shares.all(), shares.of(one), shares.of(two)), (6, 4, 2));
        assert!(!shares.take(two, usize::MAX, usize::MAX, 6));
        shares.give_back(one, 4);
        shares.give_back(two, 2);
        assert!(shares.all() == 0 && shares.planes.is_empty());
    }
}
