//! A cell: the one that knows which planes it has. It serves those, says where those are that it gave away, and nothing else.
//!
//! What a cell knows of its planes is durable: each change goes through `Cell::put`, which also notes what was there before,
//! until the backup in another zone has it. A lost cell is what its backup has, and then what the directory says.
//!
//! Resource versions are the cell's revision plus the plane's offset. Freezing a plane pins its version; the offset at the
//! new cell is such that versions go on above it. Revisions stay below a ceiling that the directory knows, so a
//! restored cell, which does not know what it gave out last, goes on from there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::directory::{Change, Directory, Ticket};
use crate::map::{CellId, Owner, Plane, Slot, Zone};
use crate::random::mix;

/// How long a cell that is not the home of a plane remembers where it went, in ticks.
const POINTER_TICKS: u64 = 600;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Live,
    /// Takes no writes: it is being copied.
    Frozen,
    /// Does nothing: the directory was asked to commit, and may have.
    Handing,
    /// A copy that is nobody's until the directory says so.
    Incoming,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    pub epoch: u64,
    /// Of all writes in their order: two logs are the same if these are.
    pub digest: u64,
    pub offset: u64,
    /// The version at which the plane was frozen.
    pub pinned: u64,
    pub writes: u32,
    pub state: State,
}

/// What a plane is when it travels.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    pub digest: u64,
    pub version: u64,
    pub writes: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    pub epoch: u64,
    pub version: u64,
    pub writes: u32,
    pub digest: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Done(Done),
    Moved(Owner),
    /// No such plane here; if this is the home of its slot, nowhere.
    Unknown {
        home: bool,
    },
    /// The plane is being moved. Try again.
    Moving,
    /// No quorum, no lease, or nobody there. Try again.
    Away,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    Read,
    Write(u64),
    Create,
}

#[derive(Clone, Debug)]
pub struct Cell {
    pub id: CellId,
    pub incarnation: u32,
    pub zone: Zone,
    /// Members of its etcd that run, of three; and replicas of Polder.
    pub etcd_up: u8,
    pub replicas_up: u8,
    pub lease_until: u64,
    /// How far it follows the directory.
    pub seen: usize,
    /// Everything of it that happened until then is in the backup.
    pub backed_up: u64,
    bytes: u64,
    floor: u64,
    revision: u64,
    revision_ceiling: u64,
    planes: BTreeMap<Plane, Record>,
    /// Planes that are not simply live.
    pending: BTreeSet<Plane>,
    home_of: Vec<bool>,
    closed: BTreeSet<Slot>,
    pointers: BTreeMap<Plane, Owner>,
    pointers_end: VecDeque<(u64, Plane)>,
    /// What changed since the backup, with what was there before.
    tail: VecDeque<(u64, Plane, Option<Record>)>,
}

impl Cell {
    pub fn new(id: CellId, incarnation: u32, zone: Zone, now: u64, directory: &Directory) -> Cell {
        let mut cell = Cell {
            id,
            incarnation,
            zone,
            etcd_up: 3,
            replicas_up: 3,
            lease_until: 0,
            seen: directory.len(),
            backed_up: now,
            bytes: 0,
            floor: 0,
            revision: 0,
            revision_ceiling: 0,
            planes: BTreeMap::new(),
            pending: BTreeSet::new(),
            home_of: Slot::all().map(|slot| directory.homes().of(slot) == id).collect(),
            closed: BTreeSet::new(),
            pointers: BTreeMap::new(),
            pointers_end: VecDeque::new(),
            tail: VecDeque::new(),
        };
        let elsewhere = directory.exceptions().iter().filter(|(plane, _)| cell.home_of[plane.slot.index()]);
        cell.pointers = elsewhere.map(|(plane, owner)| (*plane, *owner)).collect();
        cell
    }

    /// Fills a cell that has never served. In the order of planes, which is much faster for millions.
    pub fn fill(&mut self, planes: impl Iterator<Item = Plane>) {
        let empty = Record { epoch: 0, digest: 0, offset: 0, pinned: 0, writes: 0, state: State::Live };
        self.planes = planes.map(|plane| (plane, empty)).collect();
        self.bytes = self.planes.keys().map(|plane| plane.bytes()).sum();
    }

    pub fn planes(&self) -> &BTreeMap<Plane, Record> {
        &self.planes
    }

    pub fn planes_of(&self, slot: Slot) -> impl Iterator<Item = (Plane, Record)> + '_ {
        let planes = Plane { slot, number: 0 }..=Plane { slot, number: u32::MAX };
        self.planes.range(planes).map(|(plane, record)| (*plane, *record))
    }

    /// Planes that are on their way, and where they stand.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn pointers(&self) -> usize {
        self.pointers.len()
    }

    pub fn has_quorum(&self) -> bool {
        self.etcd_up >= 2 && self.replicas_up >= 1
    }

    pub fn serves(&self, now: u64) -> bool {
        self.has_quorum() && now <= self.lease_until
    }

    /// Whether a write of this plane would be taken now.
    pub fn accepts(&self, plane: Plane, now: u64) -> bool {
        self.serves(now) && self.planes.get(&plane).is_some_and(|record| record.state == State::Live)
    }

    pub fn lease(&mut self, directory: &mut Directory, until: u64, revisions: u64) {
        let ceiling = self.revision + revisions;
        if directory.renew(self.id, self.incarnation, until, ceiling).is_ok() {
            self.lease_until = until;
            self.revision_ceiling = ceiling;
        }
    }

    pub fn ask(&mut self, plane: Plane, request: Request, now: u64) -> Answer {
        if !self.serves(now) {
            return Answer::Away;
        }
        // A slot that is closed may have another home already, which makes planes there.
        let home = self.home_of[plane.slot.index()] && !self.closed.contains(&plane.slot);
        let Some(mut record) = self.planes.get(&plane).copied() else {
            if let Some(owner) = self.pointers.get(&plane) {
                return Answer::Moved(*owner);
            }
            if request != Request::Create || !home {
                return Answer::Unknown { home };
            }
            if self.revision >= self.revision_ceiling {
                return Answer::Away;
            }
            let empty =
                Record { epoch: self.floor, digest: 0, offset: 0, pinned: 0, writes: 0, state: State::Live };
            self.revision += 1;
            self.put(now, plane, Some(empty));
            return Answer::Done(self.done(&empty));
        };
        match (record.state, request) {
            (State::Live | State::Frozen, Request::Read) | (State::Live, Request::Create) => {
                Answer::Done(self.done(&record))
            }
            (State::Live, Request::Write(_)) if self.revision >= self.revision_ceiling => Answer::Away,
            (State::Live, Request::Write(write)) => {
                self.revision += 1;
                record.writes += 1;
                record.digest = mix(record.digest ^ write);
                self.put(now, plane, Some(record));
                Answer::Done(self.done(&record))
            }
            (State::Incoming, _) => {
                self.pointers.get(&plane).map_or(Answer::Moving, |owner| Answer::Moved(*owner))
            }
            _ => Answer::Moving,
        }
    }

    /// Stops the writes of a plane, so that it can be copied.
    pub fn freeze(&mut self, plane: Plane, now: u64) -> Option<Copied> {
        let mut record = self.planes.get(&plane).copied().filter(|record| record.state == State::Live)?;
        record.state = State::Frozen;
        record.pinned = self.revision + record.offset;
        self.put(now, plane, Some(record));
        Some(Copied { digest: record.digest, version: record.pinned, writes: record.writes })
    }

    /// Takes a copy, which is nobody's yet. A copy of an older move never replaces one of a newer.
    pub fn receive(&mut self, ticket: &Ticket, copied: Copied, now: u64) -> bool {
        let known = self.planes.get(&ticket.plane);
        if known.is_some_and(|record| record.state != State::Incoming || record.epoch > ticket.epoch) {
            return false;
        }
        let record = Record {
            epoch: ticket.epoch,
            digest: copied.digest,
            offset: copied.version.saturating_sub(self.revision),
            pinned: copied.version,
            writes: copied.writes,
            state: State::Incoming,
        };
        self.put(now, ticket.plane, Some(record));
        true
    }

    /// Whether the copy of this move is here, and in the backup too: the cell can be lost from now on, and still has it.
    pub fn covers(&self, ticket: &Ticket, since: u64) -> bool {
        let here = self.planes.get(&ticket.plane);
        here.is_some_and(|record| record.state == State::Incoming && record.epoch == ticket.epoch)
            && self.backed_up >= since
    }

    /// Stops everything of a frozen plane, before the directory is asked to commit its move.
    pub fn hand(&mut self, plane: Plane, now: u64) -> bool {
        let Some(mut record) = self.planes.get(&plane).copied().filter(|one| one.state == State::Frozen)
        else {
            return false;
        };
        record.state = State::Handing;
        self.put(now, plane, Some(record));
        true
    }

    /// Looks up what became of every move that this cell has a part in.
    pub fn resolve(&mut self, directory: &Directory, now: u64) {
        let pending: Vec<Plane> = self.pending.iter().copied().collect();
        for plane in pending {
            let Some(mut record) = self.planes.get(&plane).copied() else { continue };
            let owner = directory.owner(plane);
            let moving = directory.tickets().contains_key(&plane);
            if owner != self.id {
                // Ours until the directory said otherwise; a copy that is waited for stays.
                if record.state != State::Incoming || !moving {
                    self.put(now, plane, None);
                    self.point(plane, directory.exceptions().get(&plane).copied(), now);
                }
            } else if record.state == State::Incoming || !moving {
                record.state = State::Live;
                self.put(now, plane, Some(record));
                self.pointers.remove(&plane);
            }
        }
    }

    /// No plane of a slot is made here any more, if there is none. The directory may then give the slot away.
    pub fn close(&mut self, slot: Slot) -> bool {
        let empty = self.planes_of(slot).next().is_none();
        if empty {
            self.closed.insert(slot);
        }
        empty
    }

    /// The directory refused, and nobody else will ask it: the slot is still ours.
    pub fn reopen(&mut self, slot: Slot) {
        self.closed.remove(&slot);
    }

    /// Follows the directory: what it is home of, and where the planes of those slots are.
    pub fn follow(&mut self, directory: &Directory, to: usize, now: u64) {
        for change in directory.changes(self.seen, to) {
            match *change {
                Change::Home { slot, cell } => {
                    self.home_of[slot.index()] = cell == self.id;
                    self.closed.remove(&slot);
                    if cell == self.id {
                        let elsewhere =
                            directory.exceptions_of(slot).filter(|(_, owner)| owner.cell != self.id);
                        self.pointers.extend(elsewhere);
                    }
                }
                Change::Owned { plane, owner } if self.home_of[plane.slot.index()] => {
                    // Pointers may be of a later state of the directory than this change.
                    if self.pointers.get(&plane).is_some_and(|known| known.epoch > owner.epoch) {
                        continue;
                    }
                    if owner.cell == self.id {
                        self.pointers.remove(&plane);
                    } else {
                        self.point(plane, Some(owner), now);
                    }
                }
                Change::Owned { .. } | Change::Placed { .. } => {}
            }
        }
        self.seen = self.seen.max(to);
    }

    /// Lets the backup have everything until `until`, and forgets pointers that nobody needs.
    pub fn back_up(&mut self, until: u64) {
        while self.tail.front().is_some_and(|(at, ..)| *at <= until) {
            self.tail.pop_front();
        }
        self.backed_up = self.backed_up.max(until);
    }

    pub fn forget(&mut self, now: u64) {
        while let Some((at, plane)) = self.pointers_end.front().copied()
            && at <= now
        {
            self.pointers_end.pop_front();
            if !self.home_of[plane.slot.index()] {
                self.pointers.remove(&plane);
            }
        }
    }

    /// What a lost cell becomes: its backup, corrected by what the directory says. Also returns the planes of which
    /// the backup may have less than there was.
    pub fn restore(
        self,
        incarnation: u32,
        floor: u64,
        zone: Zone,
        now: u64,
        directory: &Directory,
    ) -> (Cell, Vec<Plane>) {
        let mut restored = Cell::new(self.id, incarnation, zone, now, directory);
        restored.planes = self.planes;
        let mut behind = BTreeSet::new();
        for (_, plane, before) in self.tail.into_iter().rev() {
            behind.insert(plane);
            match before {
                Some(record) => restored.planes.insert(plane, record),
                None => restored.planes.remove(&plane),
            };
        }
        restored.backed_up = self.backed_up;
        restored.bytes = restored.planes.keys().map(|plane| plane.bytes()).sum();
        let known: Vec<Plane> = restored.planes.keys().copied().collect();
        for plane in known {
            let mut record = restored.planes[&plane];
            if directory.owner(plane) != self.id {
                restored.put(now, plane, None);
                continue;
            }
            record.state = State::Live;
            // Whatever the incarnation before may still do, it does at lower epochs.
            record.epoch = record.epoch.max(floor);
            restored.planes.insert(plane, record);
        }
        restored.floor = floor;
        let ceiling = directory.member(self.id).map_or(0, |member| member.revision_ceiling);
        restored.revision = ceiling;
        restored.revision_ceiling = ceiling;
        (restored, behind.into_iter().collect())
    }

    fn done(&self, record: &Record) -> Done {
        let live = record.state == State::Live;
        let version = if live { self.revision + record.offset } else { record.pinned };
        Done { epoch: record.epoch, version, writes: record.writes, digest: record.digest }
    }

    fn put(&mut self, now: u64, plane: Plane, record: Option<Record>) {
        let before = match record {
            Some(record) => self.planes.insert(plane, record),
            None => self.planes.remove(&plane),
        };
        match (before, record) {
            (None, Some(_)) => self.bytes += plane.bytes(),
            (Some(_), None) => self.bytes -= plane.bytes(),
            _ => {}
        }
        match record {
            Some(record) if record.state != State::Live => self.pending.insert(plane),
            _ => self.pending.remove(&plane),
        };
        self.tail.push_back((now, plane, before));
    }

    fn point(&mut self, plane: Plane, owner: Option<Owner>, now: u64) {
        if let Some(owner) = owner {
            self.pointers.insert(plane, owner);
            self.pointers_end.push_back((now + POINTER_TICKS, plane));
        }
    }
}
