//! Movers, which take a ticket from step to step and may die after any of them, and the placement that gives them work.

use std::collections::BTreeMap;

use super::{Simulation, WINDOW_TICKS, new_member};
use crate::cell::{Cell, Copied, State};
use crate::directory::Ticket;
use crate::map::{CellId, Plane, Slot};
use crate::placement::{self, Budget, CellView, Load, Move};

/// How long one step may take before the move is given up.
const STEP_TICKS_MAX: u64 = 120;
/// How often placement is thought about, and moves that nobody drives are given up.
const PLAN_TICKS: u64 = 5;
const ORPHAN_TICKS: u64 = 50;
/// Slots that are moved at a time.
const SLOTS_MAX: usize = 1024;
/// How many planes of a cell with too many are looked at to find large ones.
const CANDIDATES: usize = 2000;

#[derive(Debug)]
pub(super) struct Mover {
    ticket: Ticket,
    stage: Stage,
    since: u64,
    frozen_at: u64,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Freeze,
    Copy { copied: Copied, ready_at: u64 },
    Cover { received_at: u64 },
    Asked,
}

enum Step {
    Wait,
    Next(Stage),
    GiveUp,
}

impl Simulation {
    pub(super) fn step_movers(&mut self) {
        let now = self.now;
        let planes: Vec<Plane> = self.movers.keys().copied().collect();
        for plane in planes {
            let Some(mut mover) = self.movers.remove(&plane) else { continue };
            if self.random.chance(self.faults.mover) {
                self.counts.movers_crashed += 1;
                continue;
            }
            if self.directory.tickets().get(&plane) != Some(&mover.ticket) {
                continue;
            }
            match self.step(&mover) {
                Step::Next(stage) => {
                    if matches!(mover.stage, Stage::Freeze) {
                        mover.frozen_at = now;
                    }
                    mover.stage = stage;
                    mover.since = now;
                }
                Step::Wait if now < mover.since + STEP_TICKS_MAX => {}
                Step::Wait | Step::GiveUp => {
                    if !self.broken.directory_away() {
                        self.counts.moves_aborted += u64::from(self.directory.abort(&mover.ticket));
                        continue;
                    }
                }
            }
            self.movers.insert(plane, mover);
        }
        if now.is_multiple_of(ORPHAN_TICKS) && !self.broken.directory_away() {
            let driven = |ticket: &&Ticket| !self.movers.contains_key(&ticket.plane);
            let orphans: Vec<Ticket> = self.directory.tickets().values().filter(driven).copied().collect();
            for ticket in orphans {
                self.counts.moves_aborted += u64::from(self.directory.abort(&ticket));
            }
        }
    }

    fn step(&mut self, mover: &Mover) -> Step {
        let (now, ticket) = (self.now, &mover.ticket);
        let plane = ticket.plane;
        let serving = |cell: &&mut Cell| cell.serves(now);
        match mover.stage {
            Stage::Freeze => {
                let Some(source) = self.cells.get_mut(&ticket.from).filter(serving) else {
                    return Step::Wait;
                };
                let Some(copied) = source.freeze(plane, now) else { return Step::GiveUp };
                let ready_at = now + 1 + plane.bytes() / self.config.copy_bytes_per_tick.max(1);
                Step::Next(Stage::Copy { copied, ready_at })
            }
            Stage::Copy { copied, ready_at } => {
                let Some(target) = self.cells.get_mut(&ticket.to).filter(serving) else { return Step::Wait };
                if now < ready_at {
                    return Step::Wait;
                }
                if target.receive(ticket, copied, now) {
                    Step::Next(Stage::Cover { received_at: now })
                } else {
                    Step::GiveUp
                }
            }
            Stage::Cover { received_at } => {
                let covered = |cell: &Cell| cell.serves(now) && cell.covers(ticket, received_at);
                if !self.cells.get(&ticket.to).is_some_and(covered) {
                    return Step::Wait;
                }
                let Some(source) = self.cells.get_mut(&ticket.from).filter(serving) else {
                    return Step::Wait;
                };
                if !source.hand(plane, now) {
                    return Step::GiveUp;
                }
                self.ask_to_commit(mover);
                Step::Next(Stage::Asked)
            }
            Stage::Asked => {
                // No answer may also be one that got lost: asked again, and given up only through the directory.
                if (now - mover.since) % 10 == 9 {
                    self.ask_to_commit(mover);
                }
                Step::Wait
            }
        }
    }

    fn ask_to_commit(&mut self, mover: &Mover) {
        let frozen = self.now - mover.frozen_at;
        self.counts.frozen_ticks_max = self.counts.frozen_ticks_max.max(frozen);
        // Messages take their time, and some get lost.
        let at = self.now + self.random.below(if self.faults.mover > 0 { 60 } else { 3 });
        if self.faults.mover == 0 || self.random.below(4) > 0 {
            self.commits.push((at, mover.ticket));
        }
    }

    /// Messages to the directory arrive.
    pub(super) fn deliver(&mut self) {
        if self.broken.directory_away() {
            return;
        }
        let now = self.now;
        let arrived: Vec<Ticket> =
            self.commits.extract_if(.., |(at, _)| *at <= now).map(|(_, ticket)| ticket).collect();
        for ticket in arrived {
            self.counts.moves_done += u64::from(self.directory.commit(&ticket).is_ok());
        }
        let flips: Vec<_> = self.flips.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, slot, from, to) in flips {
            self.slots_moving.remove(&slot);
            if self.directory.flip(slot, from, to).is_ok() {
                self.counts.flips += 1;
                // What is wished for may have changed while the message was on its way.
                if self.wish.of(slot) != to {
                    self.slots_due.push_back(slot);
                }
            } else {
                self.slots_due.push_back(slot);
                if let Some(cell) = self.cells.get_mut(&from.0).filter(|cell| cell.incarnation == from.1) {
                    cell.reopen(slot);
                }
            }
        }
    }

    pub(super) fn place(&mut self) {
        if !self.now.is_multiple_of(PLAN_TICKS) || self.broken.directory_away() {
            return;
        }
        let views = self.views();
        let under_way = self.directory.tickets().values().map(|ticket| (ticket.from, ticket.to));
        let mut budget = Budget::new(self.config.rates, under_way);
        self.move_slots(&mut budget);
        self.empty_drained(&mut budget);
        if self.now.is_multiple_of(WINDOW_TICKS) {
            self.relieve(&views, &mut budget);
            self.writes.clear();
        }
    }

    /// A cell more. Its slots come to it in the following ticks.
    pub fn add_cell(&mut self) -> CellId {
        let id = CellId(self.next_cell);
        self.next_cell += 1;
        let member = new_member(id, self.config.zones, self.now + self.config.lease_ticks);
        let zone = member.zone;
        self.directory.join(id, member);
        self.cells.insert(id, Cell::new(id, 1, zone, self.now, &self.directory));
        self.wish_anew();
        id
    }

    /// A cell is to go, after everything it has.
    pub fn drain_cell(&mut self, id: CellId) {
        if let Some(member) = self.directory.member_mut(id) {
            member.draining = true;
        }
        self.wish_anew();
    }

    fn wish_anew(&mut self) {
        if let Some(wish) = placement::wished_homes(&self.views()) {
            self.slots_due = self.directory.homes().differences(&wish).collect();
            self.slots_moving.clear();
            self.wish = wish;
        }
    }

    fn views(&self) -> Vec<CellView> {
        let members = self.directory.members().iter();
        let view = |(id, member): (&CellId, &crate::directory::Member)| {
            let cell = self.cells.get(id);
            let writes = self.writes.get(id).map_or(0, |planes| planes.values().sum());
            CellView {
                cell: *id,
                zone: member.zone,
                weight: member.weight,
                draining: member.draining,
                takes: cell.is_some_and(|cell| cell.serves(self.now)) && !self.broken.is_seeding(*id),
                load: Load {
                    planes: cell.map_or(0, |cell| cell.planes().len() as u64),
                    bytes: cell.map_or(0, Cell::bytes),
                    writes,
                },
            }
        };
        members.map(view).collect()
    }

    fn begin(&mut self, one: Move) {
        if let Ok(ticket) = self.directory.begin(one.plane, one.from, one.to) {
            let mover = Mover { ticket, stage: Stage::Freeze, since: self.now, frozen_at: self.now };
            self.movers.insert(one.plane, mover);
        }
    }

    fn move_slots(&mut self, budget: &mut Budget) {
        while self.slots_moving.len() < SLOTS_MAX
            && let Some(slot) = self.slots_due.pop_front()
        {
            self.slots_moving.insert(slot);
        }
        let slots: Vec<Slot> = self.slots_moving.iter().copied().collect();
        for slot in slots {
            let (home, to) = (self.directory.homes().of(slot), self.wish.of(slot));
            if home == to {
                self.slots_moving.remove(&slot);
                continue;
            }
            let Some(cell) = self.cells.get_mut(&home).filter(|cell| cell.serves(self.now)) else { continue };
            let mut moves = Vec::new();
            let mut empty = true;
            for (plane, record) in cell.planes_of(slot) {
                empty = false;
                if record.state == State::Live
                    && !self.directory.tickets().contains_key(&plane)
                    && budget.take(home, to)
                {
                    moves.push(Move { plane, from: home, to });
                }
            }
            if empty && !self.flips.iter().any(|(_, asked, ..)| *asked == slot) && cell.close(slot) {
                let at = self.now + 1 + self.random.below(3);
                self.flips.push((at, slot, (home, cell.incarnation), to));
            }
            for one in moves {
                self.begin(one);
            }
            if budget.is_spent() {
                break;
            }
        }
    }

    /// Planes that a cell to be drained has of other cells' slots go home; a cell that has nothing any more leaves.
    fn empty_drained(&mut self, budget: &mut Budget) {
        let draining = |(id, member): (&CellId, &crate::directory::Member)| member.draining.then_some(*id);
        let drained: Vec<CellId> = self.directory.members().iter().filter_map(draining).collect();
        for id in drained {
            let guests: Vec<Plane> = self
                .directory
                .exceptions()
                .iter()
                .filter(|(_, owner)| owner.cell == id)
                .map(|(plane, _)| *plane)
                .collect();
            for plane in guests {
                let to = self.directory.homes().of(plane.slot);
                let moving = self.directory.tickets().contains_key(&plane);
                if to != id && !moving && budget.take(id, to) {
                    self.begin(Move { plane, from: id, to });
                }
            }
            let named = |ticket: &Ticket| ticket.from == id || ticket.to == id;
            let empty =
                self.cells.get(&id).is_some_and(|cell| cell.planes().is_empty() && cell.serves(self.now));
            if empty
                && self.directory.homes().count(id) == 0
                && !self.directory.tickets().values().any(named)
                && !self.directory.exceptions().values().any(|owner| owner.cell == id)
            {
                self.directory.leave(id);
                self.cells.remove(&id);
            }
        }
    }

    fn relieve(&mut self, views: &[CellView], budget: &mut Budget) {
        let over: Vec<&CellView> =
            views.iter().filter(|view| !placement::within(&view.load, &self.config.bounds)).collect();
        self.counts.cells_over_bounds_max = self.counts.cells_over_bounds_max.max(over.len());
        for view in over {
            let bounds = self.config.bounds;
            let load = view.load;
            if load.writes > bounds.writes {
                self.first("a cell had more writes than its bound");
            }
            if load.planes > bounds.planes || load.bytes > bounds.bytes {
                self.first("a cell had more planes or bytes than its bound");
            }
            if view.draining || !view.takes {
                continue;
            }
            let none = BTreeMap::new();
            let written = self.writes.get(&view.cell).unwrap_or(&none);
            let load_of = |plane: Plane| Load {
                planes: 1,
                bytes: plane.bytes(),
                writes: written.get(&plane).copied().unwrap_or_default(),
            };
            let mut candidates: Vec<(Plane, Load)> =
                written.keys().map(|plane| (*plane, load_of(*plane))).collect();
            candidates.sort_by_key(|(plane, load)| (std::cmp::Reverse(load.writes), *plane));
            if load.planes > bounds.planes || load.bytes > bounds.bytes {
                let cell = self.cells.get(&view.cell);
                let some = cell.into_iter().flat_map(|cell| cell.planes().keys()).take(CANDIDATES);
                candidates = some.map(|plane| (*plane, load_of(*plane))).collect();
                candidates.sort_by_key(|(plane, load)| (std::cmp::Reverse(load.bytes), *plane));
            }
            candidates.retain(|(plane, _)| !self.directory.tickets().contains_key(plane));
            for one in placement::relieve(view, &candidates, views, bounds, budget) {
                self.begin(one);
            }
        }
    }
}
