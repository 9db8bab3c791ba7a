//! Which cell is the home of which plane: 65,536 slots by the hash of a plane's name, and for each slot a cell.
//!
//! The homes of slots are written down, not computed by whoever routes: so that they change one slot at a time, after the
//! planes of that slot have moved. What they *should* be is computed, by weighted rendezvous hashing ([`wish`]): each
//! cell bids for each slot, and a cell that comes or goes changes nobody else's bids.

use crate::random::{mix, stable_hash};

pub const SLOTS: usize = 1 << 16;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u16);

impl Slot {
    pub fn of(name: &str) -> Slot {
        let [a, b, ..] = stable_hash(name.as_bytes()).to_be_bytes();
        Slot(u16::from_be_bytes([a, b]))
    }

    pub fn all() -> impl Iterator<Item = Slot> {
        (0..=u16::MAX).map(Slot)
    }

    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A plane as a fleet sees it. The number stands for its name: ten million names would be most of a simulation.
/// Ordered by slot first, so that the planes of a slot are a range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Plane {
    pub slot: Slot,
    pub number: u32,
}

impl Plane {
    pub fn numbered(number: u32) -> Plane {
        Plane { slot: Slot::of(&format!("tenant-{number}")), number }
    }

    /// How much it holds, made up: half of all planes 2 KiB, a quarter 4, an eighth 8 and so on up to 64 MiB; 17 KiB
    /// on average.
    pub fn bytes(self) -> u64 {
        let halvings = mix(u64::from(self.number)).trailing_zeros().min(15);
        2048 << halvings
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CellId(pub u16);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Zone(pub u16);

/// Who has a plane, and since which epoch. Epochs come from the directory, grow, and are never given twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    pub cell: CellId,
    pub epoch: u64,
}

/// The homes of all slots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Homes(Vec<CellId>);

impl Homes {
    /// What the cells that take part, with their weights, should be home of.
    pub fn wished(cells: &[(CellId, u32)]) -> Option<Homes> {
        Slot::all().map(|slot| wish(slot, cells)).collect::<Option<Vec<CellId>>>().map(Homes)
    }

    pub fn of(&self, slot: Slot) -> CellId {
        self.0[slot.index()]
    }

    pub fn set(&mut self, slot: Slot, cell: CellId) {
        self.0[slot.index()] = cell;
    }

    pub fn count(&self, cell: CellId) -> usize {
        self.0.iter().filter(|home| **home == cell).count()
    }

    /// The slots whose home is another one there.
    pub fn differences<'a>(&'a self, other: &'a Homes) -> impl Iterator<Item = Slot> + 'a {
        Slot::all().filter(|slot| self.of(*slot) != other.of(*slot))
    }

    pub fn bytes(&self) -> usize {
        self.0.len() * size_of::<CellId>()
    }
}

/// The cell that should be home of a slot: the highest bid. A bid is `weight / -ln(u)`, with `u` between zero and one by
/// the hash of slot and cell, which makes each win in proportion to its weight.
pub fn wish(slot: Slot, cells: &[(CellId, u32)]) -> Option<CellId> {
    let bid = |cell: CellId, weight: u32| {
        let hash = mix(mix(u64::from(slot.0) + 1) ^ mix(u64::from(cell.0) + (1 << 32)));
        // 53 bits are what a float holds exactly; the half keeps it from zero and one.
        let between = ((hash >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        f64::from(weight) / -between.ln()
    };
    let bids =
        cells.iter().filter(|(_, weight)| *weight > 0).map(|(cell, weight)| (bid(*cell, *weight), *cell));
    bids.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, cell)| cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even(cells: u16) -> Vec<(CellId, u32)> {
        (0..cells).map(|cell| (CellId(cell), 100)).collect()
    }

    #[test]
    fn a_new_cell_takes_its_share_and_nobody_else_moves() {
        for cells in [1, 3, 10, 30] {
            let before = Homes::wished(&even(cells)).unwrap();
            let after = Homes::wished(&even(cells + 1)).unwrap();
            let moved: Vec<Slot> = before.differences(&after).collect();
            assert!(moved.iter().all(|slot| after.of(*slot) == CellId(cells)), "{cells} cells");
            let share = moved.len() as f64 * f64::from(cells + 1) / SLOTS as f64;
            assert!((0.9..1.1).contains(&share), "{cells} cells: {share} of its share");
        }
    }

    #[test]
    fn a_cell_that_goes_leaves_its_slots_to_all_others() {
        let before = Homes::wished(&even(10)).unwrap();
        let after = Homes::wished(&even(9)).unwrap();
        assert!(before.differences(&after).all(|slot| before.of(slot) == CellId(9)));
        for cell in (0..9).map(CellId) {
            let grown = after.count(cell) as f64 / before.count(cell) as f64;
            assert!((1.05..1.17).contains(&grown), "{cell:?}: {grown}");
        }
    }

    #[test]
    fn weights_are_shares() {
        let homes = Homes::wished(&[(CellId(0), 100), (CellId(1), 300), (CellId(2), 0)]).unwrap();
        let share = homes.count(CellId(1)) as f64 / SLOTS as f64;
        assert!((0.74..0.76).contains(&share), "{share}");
        assert_eq!(homes.count(CellId(2)), 0);
        assert_eq!(Homes::wished(&[]), None);
    }

    #[test]
    fn names_spread_over_slots() {
        let mut found = vec![0_u32; 64];
        for number in 0..64_000 {
            found[Plane::numbered(number).slot.index() / 1024] += 1;
        }
        assert!(found.iter().all(|count| (850..1150).contains(count)), "{found:?}");
    }
}
