//! A fleet that lives through what its seed decides: requests, moves, failures. A tick is a second.
//!
//! Everything happens in one thread and in one order, so that a seed is a run. The judge ([`Checker`]) sees every answer;
//! [`Simulation::sweep`] looks at every plane of every cell, also of those that were replaced and do not know it.

mod faults;
mod moving;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use faults::Broken;
pub use faults::Faults;
use moving::Mover;

use crate::cell::{Answer, Cell, Request, State};
use crate::checker::Checker;
use crate::directory::{Directory, Member, Ticket};
use crate::map::{CellId, Homes, Plane, Slot, Zone};
use crate::placement::{Load, Rates};
use crate::random::Random;
use crate::router::{Outcome, Retry, Router};

#[derive(Clone, Debug)]
pub struct Config {
    pub seed: u64,
    pub planes: u32,
    pub cells: u16,
    pub zones: u16,
    pub routers: usize,
    pub requests_per_tick: u64,
    pub router_table_len_max: usize,
    pub lease_ticks: u64,
    /// How much longer than a lease the directory waits: clocks differ.
    pub lease_margin_ticks: u64,
    /// How far backups are behind.
    pub backup_lag_ticks: u64,
    /// How long a cell takes to be restored, and a new backup to be begun.
    pub restore_ticks: u64,
    pub seed_backup_ticks: u64,
    pub copy_bytes_per_tick: u64,
    pub rates: Rates,
    /// What a cell may have; writes are of a window of [`WINDOW_TICKS`].
    pub bounds: Load,
    /// Look at every plane this often.
    pub sweep_every_ticks: u64,
}

/// Over how long writes are counted before cells are relieved.
pub const WINDOW_TICKS: u64 = 50;

/// What happened, since somebody last took it.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub ticks: u64,
    pub requests: u64,
    pub done: u64,
    pub two_hops: u64,
    pub retries: BTreeMap<Retry, u64>,
    pub moves_done: u64,
    pub moves_aborted: u64,
    pub movers_crashed: u64,
    pub frozen_ticks_max: u64,
    pub flips: u64,
    pub restored: u64,
    pub writes_lost: u64,
    pub planes_lost: u64,
    pub exceptions_max: usize,
    pub router_table_max: usize,
    pub cells_over_bounds_max: usize,
}

#[derive(Debug)]
pub struct Simulation {
    config: Config,
    faults: Faults,
    now: u64,
    random: Random,
    directory: Directory,
    cells: BTreeMap<CellId, Cell>,
    /// Incarnations that were replaced and may not know it.
    replaced: Vec<(u64, Cell)>,
    routers: Vec<Router>,
    broken: Broken,
    wish: Homes,
    slots_due: VecDeque<Slot>,
    slots_moving: BTreeSet<Slot>,
    movers: BTreeMap<Plane, Mover>,
    /// Messages to the directory that have not arrived.
    commits: Vec<(u64, Ticket)>,
    flips: Vec<(u64, Slot, (CellId, u32), CellId)>,
    writes: BTreeMap<CellId, BTreeMap<Plane, u64>>,
    made: Vec<Plane>,
    planes_lost: BTreeSet<Plane>,
    next_number: u32,
    next_cell: u16,
    checker: Checker,
    counts: Counts,
    firsts: Vec<(u64, String)>,
    first_seen: BTreeSet<&'static str>,
}

impl Simulation {
    pub fn new(config: Config) -> Simulation {
        let ids: Vec<CellId> = (0..config.cells).map(CellId).collect();
        let bids: Vec<(CellId, u32)> = ids.iter().map(|id| (*id, 100)).collect();
        let homes = Homes::wished(&bids).expect("a fleet has a cell");
        let members = ids.iter().map(|id| (*id, new_member(*id, config.zones, config.lease_ticks))).collect();
        let directory = Directory::new(members, homes.clone());
        let mut by_home: BTreeMap<CellId, Vec<Plane>> = BTreeMap::new();
        for plane in (0..config.planes).map(Plane::numbered) {
            by_home.entry(homes.of(plane.slot)).or_default().push(plane);
        }
        let mut cells = BTreeMap::new();
        for (id, member) in directory.members() {
            let mut cell = Cell::new(*id, member.incarnation, member.zone, 0, &directory);
            let mut planes = by_home.remove(id).unwrap_or_default();
            planes.sort_unstable();
            cell.fill(planes.into_iter());
            cells.insert(*id, cell);
        }
        let routers = vec![Router::new(&directory, config.router_table_len_max); config.routers];
        Simulation {
            faults: Faults::default(),
            now: 0,
            random: Random::new(config.seed),
            directory,
            cells,
            replaced: Vec::new(),
            routers,
            broken: Broken::default(),
            wish: homes,
            slots_due: VecDeque::new(),
            slots_moving: BTreeSet::new(),
            movers: BTreeMap::new(),
            commits: Vec::new(),
            flips: Vec::new(),
            writes: BTreeMap::new(),
            made: Vec::new(),
            planes_lost: BTreeSet::new(),
            next_number: config.planes,
            next_cell: config.cells,
            checker: Checker::default(),
            counts: Counts::default(),
            firsts: Vec::new(),
            first_seen: BTreeSet::new(),
            config,
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    pub fn violations(&self) -> &[String] {
        self.checker.violations()
    }

    /// What went wrong for clients or operators for the first time, and when, in that order.
    pub fn firsts(&self) -> &[(u64, String)] {
        &self.firsts
    }

    pub fn run(&mut self, ticks: u64) {
        for _ in 0..ticks {
            self.tick();
        }
    }

    /// Runs until nothing is broken, moving or due, without new faults. False if that takes too long.
    pub fn settle(&mut self, ticks_max: u64) -> bool {
        self.faults = Faults::default();
        for _ in 0..ticks_max {
            if self.is_settled() {
                return true;
            }
            self.tick();
        }
        self.is_settled()
    }

    fn tick(&mut self) {
        self.now += 1;
        self.counts.ticks += 1;
        self.break_and_mend();
        self.keep_up();
        self.deliver();
        self.replace_lost();
        self.step_movers();
        self.place();
        for _ in 0..self.config.requests_per_tick {
            self.request();
        }
        if self.config.sweep_every_ticks > 0 && self.now.is_multiple_of(self.config.sweep_every_ticks) {
            self.sweep(false);
        }
        let tables = self.routers.iter().map(Router::table_len).max().unwrap_or_default();
        self.counts.router_table_max = self.counts.router_table_max.max(tables);
        self.counts.exceptions_max = self.counts.exceptions_max.max(self.directory.exceptions().len());
    }

    /// Everybody who reaches the directory follows it, and cells back up.
    fn keep_up(&mut self) {
        let now = self.now;
        let reachable = !self.broken.directory_away();
        for (id, cell) in &mut self.cells {
            let zone = self.directory.member(*id).map(|member| member.backup_zone);
            if zone.is_some_and(|zone| self.broken.zone_up(zone)) && !self.broken.is_seeding(*id) {
                cell.back_up(now.saturating_sub(self.config.backup_lag_ticks));
            }
            cell.forget(now);
            if reachable && cell.has_quorum() && !self.broken.is_cut(*id) {
                if cell.lease_until < now + self.config.lease_ticks / 2 {
                    cell.lease(&mut self.directory, now + self.config.lease_ticks, 100_000);
                }
                let behind = usize::try_from(self.random.below(4)).unwrap_or_default();
                cell.follow(&self.directory, self.directory.len().saturating_sub(behind), now);
                cell.resolve(&self.directory, now);
            }
        }
        // Those who were replaced try as well, as soon as they can.
        for (_, cell) in &mut self.replaced {
            cell.lease(&mut self.directory, now + self.config.lease_ticks, 100_000);
        }
        self.replaced.retain(|(until, _)| *until > now);
        for (index, router) in self.routers.iter_mut().enumerate() {
            if reachable && !self.broken.is_router_cut(index) {
                let behind = usize::try_from(self.random.below(4)).unwrap_or_default();
                router.follow(&self.directory, self.directory.len().saturating_sub(behind));
            }
        }
    }

    /// A client asks a router for something: reads mostly, of planes by Zipf's law.
    fn request(&mut self) {
        let router = usize::try_from(self.random.below(self.routers.len() as u64)).unwrap_or_default();
        let kind = self.random.below(1000);
        let write = self.random.bits();
        let (plane, request) = match kind {
            0..5 => {
                let plane = Plane::numbered(self.next_number);
                self.next_number += 1;
                (plane, Request::Create)
            }
            5..350 => (self.some_plane(), Request::Write(write)),
            _ => (self.some_plane(), Request::Read),
        };
        self.counts.requests += 1;
        match self.send(router, plane, request) {
            Outcome::Done { done, cell, incarnation, hops } => {
                self.counts.done += 1;
                self.counts.two_hops += u64::from(hops == 2);
                match request {
                    Request::Read => self.checker.read(plane, done),
                    Request::Create => self.made.push(plane),
                    Request::Write(write) => {
                        self.checker.wrote(plane, write, done, (cell, incarnation));
                        *self.writes.entry(cell).or_default().entry(plane).or_default() += 1;
                    }
                }
            }
            Outcome::Retry(retry) => {
                *self.counts.retries.entry(retry).or_default() += 1;
                match retry {
                    Retry::Moving => self.first("a request met a plane that was being moved"),
                    Retry::Away => self.first("a request met a cell that did not answer"),
                    Retry::StaleMap => self.first("a request met a router whose map was too old"),
                }
            }
            Outcome::NotFound if request == Request::Create => {
                self.checker.violate(format!("{plane:?} could not be made: not found"));
            }
            Outcome::NotFound if self.planes_lost.contains(&plane) => {}
            Outcome::NotFound => self.checker.violate(format!("tick {}: {plane:?} was not found", self.now)),
        }
    }

    fn some_plane(&mut self) -> Plane {
        if self.random.below(20) == 0
            && let Some(plane) = self.random.pick(&self.made)
        {
            return *plane;
        }
        let planes = u64::from(self.config.planes);
        // Ranks are spread over the numbers by a factor that no number of planes here has in common.
        let number = self.random.zipf(planes).wrapping_mul(2_654_435_761) % planes;
        Plane::numbered(u32::try_from(number).unwrap_or_default())
    }

    fn send(&mut self, router: usize, plane: Plane, request: Request) -> Outcome {
        let Simulation { cells, replaced, routers, now, .. } = self;
        routers[router].route(plane, |id, incarnation| {
            if let Some(cell) = cells.get_mut(&id).filter(|cell| cell.incarnation == incarnation) {
                return cell.ask(plane, request, *now);
            }
            let old = replaced.iter_mut().find(|(_, cell)| cell.id == id && cell.incarnation == incarnation);
            old.map_or(Answer::Away, |(_, cell)| cell.ask(plane, request, *now))
        })
    }

    /// No plane is accepted by two, by whomever it would be asked for; once all is settled each by exactly one.
    pub fn sweep(&mut self, settled: bool) {
        let mut owners = vec![0_u8; self.next_number as usize];
        for cell in self.cells.values().chain(self.replaced.iter().map(|(_, cell)| cell)) {
            if !cell.serves(self.now) {
                continue;
            }
            let live = cell.planes().iter().filter(|(_, record)| record.state == State::Live);
            for (plane, _) in live {
                owners[plane.number as usize] += 1;
            }
        }
        if let Some(number) = owners.iter().position(|count| *count > 1) {
            self.checker.violate(format!("tick {}: plane {number} has two owners", self.now));
        }
        if settled {
            let made =
                self.made.iter().map(|plane| plane.number).filter(|number| owners[*number as usize] == 0);
            let first = (0..self.config.planes).filter(|number| owners[*number as usize] == 0);
            let orphan =
                first.chain(made).find(|number| !self.planes_lost.iter().any(|lost| lost.number == *number));
            if let Some(number) = orphan {
                self.checker.violate(format!("tick {}: plane {number} has no owner", self.now));
            }
        }
    }

    /// When all is settled: each plane has one owner, any router finds it within two hops, and cells are even. Returns
    /// how much more than the average the fullest cell has.
    pub fn audit(&mut self, sample: u64) -> f64 {
        self.sweep(true);
        for _ in 0..sample {
            let number = self.random.below(u64::from(self.config.planes));
            let plane = Plane::numbered(u32::try_from(number).unwrap_or_default());
            for router in 0..self.routers.len() {
                match self.send(router, plane, Request::Read) {
                    Outcome::Done { done, .. } => self.checker.read(plane, done),
                    other => self.checker.violate(format!(
                        "tick {}: settled, and router {router} does not find {plane:?}: {other:?}",
                        self.now
                    )),
                }
            }
        }
        self.imbalance()
    }

    fn imbalance(&self) -> f64 {
        let counts: Vec<usize> = self.cells.values().map(|cell| cell.planes().len()).collect();
        let fullest = counts.iter().max().copied().unwrap_or_default();
        fullest as f64 * counts.len() as f64 / counts.iter().sum::<usize>().max(1) as f64
    }

    fn is_settled(&self) -> bool {
        let len = self.directory.len();
        self.broken.is_whole()
            && self.directory.tickets().is_empty()
            && self.movers.is_empty()
            && self.commits.is_empty()
            && self.flips.is_empty()
            && self.slots_due.is_empty()
            && self.slots_moving.is_empty()
            && self.directory.members().values().all(|member| !member.draining && !member.lost)
            && self.cells.len() == self.directory.members().len()
            && self
                .cells
                .values()
                .all(|cell| cell.serves(self.now) && cell.pending() == 0 && cell.seen == len)
            && self.routers.iter().all(|router| router.seen == len)
    }

    fn first(&mut self, what: &'static str) {
        if self.first_seen.insert(what) {
            self.firsts.push((self.now, what.to_owned()));
        }
    }
}

fn new_member(id: CellId, zones: u16, lease_until: u64) -> Member {
    Member {
        zone: Zone(id.0 % zones),
        backup_zone: Zone((id.0 + 1) % zones),
        weight: 100,
        draining: false,
        incarnation: 1,
        lease_until,
        revision_ceiling: 0,
        lost: false,
    }
}
