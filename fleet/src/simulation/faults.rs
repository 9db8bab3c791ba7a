//! What breaks, how it is noticed, and how it is mended.

use std::collections::BTreeMap;

use super::Simulation;
use crate::cell::Cell;
use crate::map::{CellId, Zone};
use crate::placement;

/// How long an incarnation that was replaced may go on trying.
const REPLACED_TICKS: u64 = 300;

/// How often each happens: chances in a million, each tick; for movers, each tick of each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A machine of a cell stops for a while; two of three at a time are too many.
    pub machine: u64,
    /// A cell and its disks are gone.
    pub cell: u64,
    /// A cell does not reach the directory for a while, perhaps for longer than its lease. Clients reach it.
    pub cell_cut: u64,
    pub zone: u64,
    pub router_cut: u64,
    /// The directory is away for everybody.
    pub directory: u64,
    /// Whoever drives a move dies. If this can happen, messages are late or lost too.
    pub mover: u64,
}

/// What is broken now, and until when.
#[derive(Debug, Default)]
pub(super) struct Broken {
    machines: Vec<(u64, CellId, u32)>,
    cut: BTreeMap<CellId, u64>,
    routers: BTreeMap<usize, u64>,
    directory_until: u64,
    zone: Option<(Zone, u64)>,
    /// What is left of destroyed cells elsewhere: their backups.
    graves: BTreeMap<CellId, Cell>,
    restoring: BTreeMap<CellId, u64>,
    /// Cells whose backup begins anew, in another zone.
    seeding: BTreeMap<CellId, (u64, Zone)>,
    now: u64,
}

impl Broken {
    pub(super) fn directory_away(&self) -> bool {
        self.now < self.directory_until
    }

    pub(super) fn is_cut(&self, cell: CellId) -> bool {
        self.cut.contains_key(&cell)
    }

    pub(super) fn is_router_cut(&self, router: usize) -> bool {
        self.routers.contains_key(&router)
    }

    pub(super) fn is_seeding(&self, cell: CellId) -> bool {
        self.seeding.contains_key(&cell)
    }

    pub(super) fn zone_up(&self, zone: Zone) -> bool {
        self.zone.is_none_or(|(down, _)| down != zone)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.machines.is_empty()
            && self.cut.is_empty()
            && self.routers.is_empty()
            && !self.directory_away()
            && self.zone.is_none()
            && self.graves.is_empty()
            && self.restoring.is_empty()
            && self.seeding.is_empty()
    }
}

impl Simulation {
    pub(super) fn break_and_mend(&mut self) {
        let now = self.now;
        self.broken.now = now;
        self.mend();
        let faults = self.faults;
        let lease = self.config.lease_ticks;
        if self.random.chance(faults.machine)
            && let Some(id) = self.some_cell()
        {
            self.stop_machine(id);
        }
        if self.random.chance(faults.cell)
            && let Some(id) = self.some_cell()
        {
            self.destroy_cell(id);
        }
        if self.random.chance(faults.cell_cut)
            && let Some(id) = self.some_cell()
        {
            let until = now + 1 + self.random.below(3 * lease);
            self.broken.cut.entry(id).or_insert(until);
        }
        if self.random.chance(faults.zone) {
            let zone =
                Zone(u16::try_from(self.random.below(u64::from(self.config.zones))).unwrap_or_default());
            self.lose_zone(zone);
        }
        if self.random.chance(faults.router_cut) {
            let router = usize::try_from(self.random.below(self.routers.len() as u64)).unwrap_or_default();
            let until = now + 1 + self.random.below(20 * lease);
            self.broken.routers.entry(router).or_insert(until);
        }
        if self.random.chance(faults.directory) {
            self.broken.directory_until = now + 1 + self.random.below(lease * 3 / 2);
            self.first("the directory was away");
        }
    }

    /// A machine of a cell stops: one of its etcd members and one replica.
    fn stop_machine(&mut self, id: CellId) {
        let until = self.now + 1 + self.random.below(self.config.lease_ticks * 2);
        if let Some(cell) = self.cells.get_mut(&id).filter(|cell| cell.etcd_up > 1) {
            cell.etcd_up -= 1;
            cell.replicas_up -= 1;
            self.broken.machines.push((until, id, cell.incarnation));
            if !cell.has_quorum() {
                self.first("a cell had no quorum");
            }
        }
    }

    /// A cell is gone, with its disks. Its backup is elsewhere.
    pub fn destroy_cell(&mut self, id: CellId) {
        if let Some(cell) = self.cells.remove(&id) {
            self.broken.graves.insert(id, cell);
            self.broken.seeding.remove(&id);
            self.first("a cell was lost");
        }
    }

    /// A zone is away for a while: cells in it are lost, backups in it cannot be read.
    pub fn lose_zone(&mut self, zone: Zone) {
        if self.broken.zone.is_some() || self.config.zones < 3 {
            return;
        }
        let until = self.now + 200 + self.random.below(400);
        self.broken.zone = Some((zone, until));
        self.first("a zone was lost");
        let inside: Vec<CellId> =
            self.cells.values().filter(|cell| cell.zone == zone).map(|cell| cell.id).collect();
        for id in inside {
            self.destroy_cell(id);
        }
    }

    fn some_cell(&mut self) -> Option<CellId> {
        let ids: Vec<CellId> = self.cells.keys().copied().collect();
        self.random.pick(&ids).copied()
    }

    fn mend(&mut self) {
        let now = self.now;
        let broken = &mut self.broken;
        let back: Vec<_> = broken.machines.extract_if(.., |(until, ..)| *until <= now).collect();
        for (_, id, incarnation) in back {
            if let Some(cell) = self.cells.get_mut(&id).filter(|cell| cell.incarnation == incarnation) {
                cell.etcd_up += 1;
                cell.replicas_up += 1;
            }
        }
        broken.cut.retain(|_, until| *until > now);
        broken.routers.retain(|_, until| *until > now);
        if broken.zone.is_some_and(|(_, until)| until <= now) {
            broken.zone = None;
        }
    }

    /// Finds cells whose lease has ended, and restores each in another zone once that is ready; keeps a backup of each
    /// in another zone than its own.
    pub(super) fn replace_lost(&mut self) {
        if self.broken.directory_away() {
            return;
        }
        let now = self.now;
        let ended = |(id, member): (&CellId, &crate::directory::Member)| {
            (!member.lost && now > member.lease_until + self.config.lease_margin_ticks).then_some(*id)
        };
        let lost: Vec<CellId> = self.directory.members().iter().filter_map(ended).collect();
        for id in lost {
            if self.directory.declare_lost(id, now).is_ok() {
                self.broken.restoring.insert(id, now + self.config.restore_ticks);
            }
        }
        let ready: Vec<CellId> =
            self.broken.restoring.iter().filter(|(_, at)| **at <= now).map(|(id, _)| *id).collect();
        for id in ready {
            self.restore(id);
        }
        self.keep_backups();
    }

    fn zones_up(&self) -> Vec<Zone> {
        (0..self.config.zones).map(Zone).filter(|zone| self.broken.zone_up(*zone)).collect()
    }

    fn restore(&mut self, id: CellId) {
        let now = self.now;
        let Some(member) = self.directory.member(id) else { return };
        if !self.broken.zone_up(member.backup_zone) {
            self.first("a lost cell waited for the zone of its backup");
            return;
        }
        let mut by_zone: BTreeMap<Zone, usize> = BTreeMap::new();
        for cell in self.cells.values() {
            *by_zone.entry(cell.zone).or_default() += 1;
        }
        let zone = placement::restore_zone(member.zone, member.backup_zone, &self.zones_up(), &by_zone);
        let Some(zone) = zone else { return };
        let Some(old) = self.broken.graves.remove(&id).or_else(|| self.cells.remove(&id)) else { return };
        let Some((incarnation, floor)) = self.directory.place(id, zone, now + self.config.lease_ticks) else {
            return;
        };
        // Taken for dead, and perhaps not: what is left of it may go on, and must not matter.
        self.replaced.push((now + REPLACED_TICKS, old.clone()));
        let before = old.planes().clone();
        let (mut cell, behind) = old.restore(incarnation, floor, zone, now, &self.directory);
        cell.lease(&mut self.directory, now + self.config.lease_ticks, 100_000);
        let lost_before = (self.checker.writes_lost, self.checker.planes_lost);
        for plane in behind {
            if self.directory.owner(plane) != id || !before.contains_key(&plane) {
                continue;
            }
            let left = cell.planes().get(&plane).map(|record| (record.writes, record.digest));
            if left.is_none() {
                self.planes_lost.insert(plane);
            }
            self.checker.cut(plane, left);
        }
        let missing = self
            .directory
            .exceptions()
            .iter()
            .find(|(plane, owner)| owner.cell == id && !cell.planes().contains_key(plane));
        if let Some((plane, _)) = missing {
            self.checker
                .violate(format!("tick {now}: {plane:?} was moved to {id:?} and is not in its backup"));
        }
        self.counts.writes_lost += self.checker.writes_lost - lost_before.0;
        self.counts.planes_lost += self.checker.planes_lost - lost_before.1;
        if self.checker.writes_lost > 0 {
            self.first("an acknowledged write was not in the backup of a lost cell");
        }
        self.counts.restored += 1;
        self.broken.restoring.remove(&id);
        self.broken.cut.remove(&id);
        self.broken.seeding.remove(&id);
        self.cells.insert(id, cell);
    }

    fn keep_backups(&mut self) {
        let now = self.now;
        let up = self.zones_up();
        let mut counts: BTreeMap<Zone, usize> = BTreeMap::new();
        for member in self.directory.members().values() {
            *counts.entry(member.backup_zone).or_default() += 1;
        }
        let ids: Vec<CellId> = self.cells.keys().copied().collect();
        for id in ids {
            let Some(member) = self.directory.member_mut(id) else { continue };
            if let Some((ready, zone)) = self.broken.seeding.get(&id).copied() {
                if ready <= now && up.contains(&zone) && zone != member.zone {
                    member.backup_zone = zone;
                    self.broken.seeding.remove(&id);
                } else if ready <= now {
                    self.broken.seeding.remove(&id);
                }
                continue;
            }
            let unsafe_now = member.backup_zone == member.zone || !up.contains(&member.backup_zone);
            if unsafe_now && let Some(zone) = placement::backup_zone(member.zone, &up, &counts) {
                self.broken.seeding.insert(id, (now + self.config.seed_backup_ticks, zone));
            }
        }
        let directory = &self.directory;
        self.broken.seeding.retain(|id, _| directory.member(*id).is_some());
    }
}
