//! A router: brings a request to the cell that has its plane, in at most two hops. Any number of them; they know nothing that
//! cannot be learnt again.
//!
//! It has the homes of all slots, as of some epoch, and a bounded table of planes that it knows to be elsewhere. Where both
//! are wrong, the cell that is asked says so. What a router learns never replaces something newer, and nobody is asked
//! more than twice for one request, so there are no loops.

use std::collections::{BTreeMap, VecDeque};

use crate::cell::{Answer, Done};
use crate::directory::{Change, Directory};
use crate::map::{CellId, Homes, Owner, Plane};

/// A router that is further behind gets the map anew and forgets its table: nobody keeps changes for ever.
const CHANGES_BEHIND_MAX: usize = 100_000;

pub const HOPS_MAX: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Retry {
    /// The plane is being moved.
    Moving,
    /// The cell does not answer, has no quorum or no lease.
    Away,
    /// The router's map is older than what it met; it has learnt something.
    StaleMap,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done { done: Done, cell: CellId, incarnation: u32, hops: u8 },
    NotFound,
    Retry(Retry),
}

#[derive(Clone, Debug)]
pub struct Router {
    homes: Homes,
    incarnations: BTreeMap<CellId, u32>,
    pub seen: usize,
    table: BTreeMap<Plane, Owner>,
    table_order: VecDeque<Plane>,
    table_len_max: usize,
}

impl Router {
    pub fn new(directory: &Directory, table_len_max: usize) -> Router {
        let mut router = Router {
            homes: directory.homes().clone(),
            incarnations: BTreeMap::new(),
            seen: 0,
            table: BTreeMap::new(),
            table_order: VecDeque::new(),
            table_len_max,
        };
        router.load(directory);
        router
    }

    pub fn table_len(&self) -> usize {
        self.table.len()
    }

    /// Follows the directory up to this change.
    pub fn follow(&mut self, directory: &Directory, to: usize) {
        if directory.len() - self.seen > CHANGES_BEHIND_MAX {
            self.load(directory);
            return;
        }
        for change in directory.changes(self.seen, to) {
            match *change {
                Change::Home { slot, cell } => self.homes.set(slot, cell),
                // Only what it has asked for before: the table is for planes that its clients use.
                Change::Owned { plane, owner } if self.table.contains_key(&plane) => self.learn(plane, owner),
                Change::Owned { .. } => {}
                Change::Placed { cell, incarnation } => {
                    self.incarnations.insert(cell, incarnation);
                }
            }
        }
        self.seen = self.seen.max(to);
    }

    /// Sends a request to where the plane seems to be, and once more to where it is then said to be.
    pub fn route(&mut self, plane: Plane, mut ask: impl FnMut(CellId, u32) -> Answer) -> Outcome {
        let home = self.homes.of(plane.slot);
        let mut cell = self.table.get(&plane).map_or(home, |owner| owner.cell);
        for hops in 1..=HOPS_MAX {
            let Some(incarnation) = self.incarnations.get(&cell).copied() else {
                return Outcome::Retry(Retry::StaleMap);
            };
            match ask(cell, incarnation) {
                Answer::Done(done) => return Outcome::Done { done, cell, incarnation, hops },
                Answer::Moving => return Outcome::Retry(Retry::Moving),
                Answer::Away => return Outcome::Retry(Retry::Away),
                Answer::Unknown { home: true } => {
                    self.table.remove(&plane);
                    return Outcome::NotFound;
                }
                Answer::Unknown { home: false } => {
                    self.table.remove(&plane);
                    if cell == home {
                        return Outcome::Retry(Retry::StaleMap);
                    }
                    cell = home;
                }
                Answer::Moved(owner) => {
                    self.learn(plane, owner);
                    cell = owner.cell;
                }
            }
        }
        Outcome::Retry(Retry::StaleMap)
    }

    fn load(&mut self, directory: &Directory) {
        self.homes = directory.homes().clone();
        self.incarnations =
            directory.members().iter().map(|(cell, member)| (*cell, member.incarnation)).collect();
        self.seen = directory.len();
        self.table.clear();
        self.table_order.clear();
    }

    fn learn(&mut self, plane: Plane, owner: Owner) {
        match self.table.get_mut(&plane) {
            Some(known) if known.epoch < owner.epoch => *known = owner,
            Some(_) => {}
            None => {
                self.table.insert(plane, owner);
                self.table_order.push_back(plane);
            }
        }
        while self.table_order.len() > self.table_len_max {
            if let Some(oldest) = self.table_order.pop_front() {
                self.table.remove(&oldest);
            }
        }
    }
}
