//! Where planes and cells should be: pure functions of what is known of all cells.
//!
//! Three reasons to move planes: a slot should have another home (a cell came, goes or weighs otherwise), a plane lives
//! on a cell that is being drained, a cell has more than its bounds. How many move at a time is bounded, over the fleet and for each
//! cell, since a move costs its target writes.

use std::collections::BTreeMap;

use crate::map::{CellId, Homes, Plane, Zone};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    pub planes: u64,
    pub bytes: u64,
    /// In the last window.
    pub writes: u64,
}

#[derive(Clone, Debug)]
pub struct CellView {
    pub cell: CellId,
    pub zone: Zone,
    pub weight: u32,
    pub draining: bool,
    /// It serves and has a backup that follows: only then it may be given more.
    pub takes: bool,
    pub load: Load,
}

#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub moves_max: usize,
    pub moves_of_cell_max: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    pub plane: Plane,
    pub from: CellId,
    pub to: CellId,
}

/// How many moves may begin, by what is under way.
#[derive(Clone, Debug)]
pub struct Budget {
    rates: Rates,
    total: usize,
    by_cell: BTreeMap<CellId, usize>,
}

impl Budget {
    pub fn new(rates: Rates, under_way: impl Iterator<Item = (CellId, CellId)>) -> Budget {
        let mut budget = Budget { rates, total: 0, by_cell: BTreeMap::new() };
        for (from, to) in under_way {
            budget.count(from, to);
        }
        budget
    }

    pub fn take(&mut self, from: CellId, to: CellId) -> bool {
        let full = |cell| self.by_cell.get(&cell).is_some_and(|count| *count >= self.rates.moves_of_cell_max);
        let allowed = self.total < self.rates.moves_max && !full(from) && !full(to);
        if allowed {
            self.count(from, to);
        }
        allowed
    }

    pub fn is_spent(&self) -> bool {
        self.total >= self.rates.moves_max
    }

    fn count(&mut self, from: CellId, to: CellId) {
        self.total += 1;
        *self.by_cell.entry(from).or_default() += 1;
        *self.by_cell.entry(to).or_default() += 1;
    }
}

/// The homes that slots should have. None if there is no cell for them.
pub fn wished_homes(cells: &[CellView]) -> Option<Homes> {
    let bidders = cells.iter().filter(|view| !view.draining).map(|view| (view.cell, view.weight));
    Homes::wished(&bidders.collect::<Vec<_>>())
}

/// What should leave a cell that has more than its bounds: given its planes with most load first, those that bring it below, each to
/// the cell that has least, of the zone that has least. A plane that would take its target over a bound stays: moving
/// trouble around does not end it.
pub fn relieve(
    from: &CellView,
    planes: &[(Plane, Load)],
    cells: &[CellView],
    bounds: Load,
    budget: &mut Budget,
) -> Vec<Move> {
    let mut loads: BTreeMap<CellId, Load> = cells.iter().map(|view| (view.cell, view.load)).collect();
    let mut zones: BTreeMap<Zone, u64> = BTreeMap::new();
    for view in cells {
        *zones.entry(view.zone).or_default() += view.load.writes;
    }
    let mut moves = Vec::new();
    for (plane, load) in planes {
        if loads.get(&from.cell).is_none_or(|now| within(now, &bounds)) {
            break;
        }
        // A plane that is too much for any cell stays, and is no reason for the others to leave.
        if !within(load, &bounds) {
            if let Some(now) = loads.get_mut(&from.cell) {
                *now = difference(now, load);
            }
            continue;
        }
        let fits = |view: &&CellView| {
            view.cell != from.cell
                && view.takes
                && !view.draining
                && loads.get(&view.cell).is_some_and(|now| within(&sum(now, load), &bounds))
        };
        let least = |view: &&CellView| {
            (zones.get(&view.zone).copied(), loads.get(&view.cell).map(|now| now.writes), view.cell)
        };
        let Some(to) = cells.iter().filter(fits).min_by_key(least) else { continue };
        if !budget.take(from.cell, to.cell) {
            break;
        }
        moves.push(Move { plane: *plane, from: from.cell, to: to.cell });
        if let Some(now) = loads.get_mut(&to.cell) {
            *now = sum(now, load);
        }
        if let Some(now) = loads.get_mut(&from.cell) {
            *now = difference(now, load);
        }
        *zones.entry(to.zone).or_default() += load.writes;
    }
    moves
}

pub fn within(load: &Load, bounds: &Load) -> bool {
    load.planes <= bounds.planes && load.bytes <= bounds.bytes && load.writes <= bounds.writes
}

/// The zone for a backup of a cell: another one than the cell's, with the fewest backups. `up` has the zones that are there.
pub fn backup_zone(own: Zone, up: &[Zone], backups: &BTreeMap<Zone, usize>) -> Option<Zone> {
    let others = up.iter().copied().filter(|zone| *zone != own);
    others.min_by_key(|zone| (backups.get(zone).copied().unwrap_or_default(), *zone))
}

/// The zone to restore a cell in: neither where it was lost nor where its backup is, so that the backup stays one; if
/// there is no third, beside the backup. Of several the one with the fewest cells.
pub fn restore_zone(lost: Zone, backup: Zone, up: &[Zone], cells: &BTreeMap<Zone, usize>) -> Option<Zone> {
    let fewest =
        |zone: &Zone| (*zone == backup, *zone == lost, cells.get(zone).copied().unwrap_or_default(), *zone);
    up.iter().copied().min_by_key(fewest)
}

fn difference(one: &Load, other: &Load) -> Load {
    Load {
        planes: one.planes.saturating_sub(other.planes),
        bytes: one.bytes.saturating_sub(other.bytes),
        writes: one.writes.saturating_sub(other.writes),
    }
}

fn sum(one: &Load, other: &Load) -> Load {
    Load {
        planes: one.planes + other.planes,
        bytes: one.bytes + other.bytes,
        writes: one.writes + other.writes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(cell: u16, writes: u64) -> CellView {
        let load = Load { planes: 10, bytes: 10, writes };
        CellView { cell: CellId(cell), zone: Zone(cell % 3), weight: 100, draining: false, takes: true, load }
    }

    const BOUNDS: Load = Load { planes: 100, bytes: 100, writes: 100 };
    const RATES: Rates = Rates { moves_max: 3, moves_of_cell_max: 2 };

    fn budget() -> Budget {
        Budget::new(RATES, std::iter::empty())
    }

    fn hot(writes: &[u64]) -> Vec<(Plane, Load)> {
        let load = |writes: &u64| Load { planes: 1, bytes: 1, writes: *writes };
        (0..).map(Plane::numbered).zip(writes.iter().map(load)).collect()
    }

    #[test]
    fn a_cell_is_relieved_until_it_is_within_its_bounds() {
        let cells = [view(0, 150), view(1, 20), view(2, 30)];
        let moves = relieve(&cells[0], &hot(&[60, 40, 10]), &cells, BOUNDS, &mut budget());
        assert_eq!(moves, [Move { plane: Plane::numbered(0), from: CellId(0), to: CellId(1) }]);
        assert_eq!(relieve(&cells[1], &hot(&[20]), &cells, BOUNDS, &mut budget()), []);
    }

    #[test]
    fn trouble_is_not_moved_around() {
        let mut cells = [view(0, 150), view(1, 60), view(2, 20)];
        cells[2].takes = false;
        let check = |hot_writes: &[u64], expected: &[u32]| {
            let moves = relieve(&cells[0], &hot(hot_writes), &cells, BOUNDS, &mut budget());
            assert!(moves.iter().all(|one| one.to == CellId(1)), "only there is a backup");
            assert_eq!(moves.iter().map(|one| one.plane.number).collect::<Vec<_>>(), expected);
        };
        check(&[80, 30, 10], &[1, 2]);
        // Without its largest plane the cell is within its bounds, and with it nothing helps.
        check(&[120, 30, 1], &[]);
    }

    #[test]
    fn moves_at_a_time_are_bounded() {
        let cells = [view(0, 200), view(1, 0), view(2, 0), view(3, 0)];
        let moves = relieve(&cells[0], &hot(&[5; 20]), &cells, BOUNDS, &mut budget());
        assert_eq!(moves.len(), RATES.moves_of_cell_max);
        let mut budget = Budget::new(RATES, [(CellId(8), CellId(9)); 3].into_iter());
        assert!(budget.is_spent() && !budget.take(CellId(0), CellId(1)));
    }

    #[test]
    fn backups_are_in_another_zone() {
        let up = [Zone(0), Zone(1), Zone(2)];
        let counts = BTreeMap::from([(Zone(1), 4), (Zone(2), 2)]);
        assert_eq!(backup_zone(Zone(0), &up, &counts), Some(Zone(2)));
        assert_eq!(backup_zone(Zone(0), &[Zone(0)], &counts), None);
        assert_eq!(restore_zone(Zone(0), Zone(1), &up[1..], &counts), Some(Zone(2)));
        assert_eq!(restore_zone(Zone(0), Zone(1), &[Zone(1)], &counts), Some(Zone(1)));
    }
}
