//! What a fleet must agree on: cells, homes of slots, planes that live elsewhere, moves under way. Small and seldom
//! changed, so that one group of etcd, over several zones, can keep it. No request of a tenant asks it.
//!
//! A move is a [`Ticket`]. The plane has its new owner in the moment the directory commits the ticket, and only then; both
//! cells learn it from here, however often they ask, whatever they forgot. A ticket that was aborted can no longer be
//! committed, also by a message that was late.
//!
//! Who follows the directory reads its changes in order, each once ([`Directory::changes`]).

use std::collections::BTreeMap;

use crate::map::{CellId, Homes, Owner, Plane, Slot, Zone};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Home {
        slot: Slot,
        cell: CellId,
    },
    Owned {
        plane: Plane,
        owner: Owner,
    },
    /// A cell runs somewhere else from now on, and its earlier incarnations count no longer.
    Placed {
        cell: CellId,
        incarnation: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The epoch the plane has with its new owner.
    pub epoch: u64,
    pub plane: Plane,
    pub from: CellId,
    pub to: CellId,
}

#[derive(Clone, Debug)]
pub struct Member {
    pub zone: Zone,
    pub backup_zone: Zone,
    pub weight: u32,
    pub draining: bool,
    pub incarnation: u32,
    /// Until when the incarnation may accept anything.
    pub lease_until: u64,
    /// Revisions above this were never given out by it.
    pub revision_ceiling: u64,
    /// Found dead, and being restored.
    pub lost: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    NotTheOwner,
    AnotherMove,
    NoSuchTicket,
    OldIncarnation,
    /// The lease of the incarnation before has not ended for sure.
    Leased,
}

#[derive(Debug)]
pub struct Directory {
    members: BTreeMap<CellId, Member>,
    homes: Homes,
    /// Planes that are not at their home.
    exceptions: BTreeMap<Plane, Owner>,
    tickets: BTreeMap<Plane, Ticket>,
    epoch: u64,
    log: Vec<Change>,
}

impl Directory {
    pub fn new(members: BTreeMap<CellId, Member>, homes: Homes) -> Directory {
        Directory {
            members,
            homes,
            exceptions: BTreeMap::new(),
            tickets: BTreeMap::new(),
            epoch: 0,
            log: Vec::new(),
        }
    }

    pub fn members(&self) -> &BTreeMap<CellId, Member> {
        &self.members
    }

    pub fn member(&self, cell: CellId) -> Option<&Member> {
        self.members.get(&cell)
    }

    pub fn member_mut(&mut self, cell: CellId) -> Option<&mut Member> {
        self.members.get_mut(&cell)
    }

    pub fn homes(&self) -> &Homes {
        &self.homes
    }

    pub fn exceptions(&self) -> &BTreeMap<Plane, Owner> {
        &self.exceptions
    }

    pub fn exceptions_of(&self, slot: Slot) -> impl Iterator<Item = (Plane, Owner)> + '_ {
        let planes = Plane { slot, number: 0 }..=Plane { slot, number: u32::MAX };
        self.exceptions.range(planes).map(|(plane, owner)| (*plane, *owner))
    }

    pub fn tickets(&self) -> &BTreeMap<Plane, Ticket> {
        &self.tickets
    }

    pub fn owner(&self, plane: Plane) -> CellId {
        self.exceptions.get(&plane).map_or_else(|| self.homes.of(plane.slot), |owner| owner.cell)
    }

    /// How many changes there are: the epoch of the map.
    pub fn len(&self) -> usize {
        self.log.len()
    }

    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    pub fn changes(&self, from: usize, to: usize) -> &[Change] {
        self.log.get(from..to).unwrap_or_default()
    }

    pub fn join(&mut self, cell: CellId, member: Member) {
        self.log.push(Change::Placed { cell, incarnation: member.incarnation });
        self.members.insert(cell, member);
    }

    pub fn leave(&mut self, cell: CellId) {
        self.members.remove(&cell);
    }

    pub fn begin(&mut self, plane: Plane, from: CellId, to: CellId) -> Result<Ticket, Refused> {
        if self.owner(plane) != from || from == to {
            return Err(Refused::NotTheOwner);
        }
        if self.tickets.contains_key(&plane) {
            return Err(Refused::AnotherMove);
        }
        self.epoch += 1;
        let ticket = Ticket { epoch: self.epoch, plane, from, to };
        self.tickets.insert(plane, ticket);
        Ok(ticket)
    }

    /// The moment a plane changes its owner.
    pub fn commit(&mut self, ticket: &Ticket) -> Result<Owner, Refused> {
        if self.tickets.get(&ticket.plane) != Some(ticket) {
            return Err(Refused::NoSuchTicket);
        }
        self.tickets.remove(&ticket.plane);
        let owner = Owner { cell: ticket.to, epoch: ticket.epoch };
        if self.homes.of(ticket.plane.slot) == owner.cell {
            self.exceptions.remove(&ticket.plane);
        } else {
            self.exceptions.insert(ticket.plane, owner);
        }
        self.log.push(Change::Owned { plane: ticket.plane, owner });
        Ok(owner)
    }

    /// Whether it was still there to be aborted.
    pub fn abort(&mut self, ticket: &Ticket) -> bool {
        let found = self.tickets.get(&ticket.plane) == Some(ticket);
        if found {
            self.tickets.remove(&ticket.plane);
        }
        found
    }

    /// Gives a slot another home. The old one has closed it before: it has no plane of it and makes none.
    pub fn flip(&mut self, slot: Slot, from: (CellId, u32), to: CellId) -> Result<(), Refused> {
        let (cell, incarnation) = from;
        if self.homes.of(slot) != cell || !self.members.contains_key(&to) {
            return Err(Refused::NotTheOwner);
        }
        if self.members.get(&cell).is_none_or(|member| member.incarnation != incarnation || member.lost) {
            return Err(Refused::OldIncarnation);
        }
        self.homes.set(slot, to);
        let at_home: Vec<Plane> =
            self.exceptions_of(slot).filter(|(_, owner)| owner.cell == to).map(|(plane, _)| plane).collect();
        for plane in at_home {
            self.exceptions.remove(&plane);
        }
        self.log.push(Change::Home { slot, cell: to });
        Ok(())
    }

    /// A cell says that it lives, and how far its revisions may get before it says so again.
    pub fn renew(&mut self, cell: CellId, incarnation: u32, until: u64, ceiling: u64) -> Result<(), Refused> {
        let member = self.members.get_mut(&cell).ok_or(Refused::OldIncarnation)?;
        if member.incarnation != incarnation || member.lost {
            return Err(Refused::OldIncarnation);
        }
        member.lease_until = member.lease_until.max(until);
        member.revision_ceiling = member.revision_ceiling.max(ceiling);
        Ok(())
    }

    /// A cell whose lease has ended is taken for dead. From here on it gets no lease, so that whoever is restored in its place is
    /// alone; and whatever it had to do with is off.
    pub fn declare_lost(&mut self, cell: CellId, now: u64) -> Result<(), Refused> {
        let member = self.members.get_mut(&cell).ok_or(Refused::OldIncarnation)?;
        if now <= member.lease_until {
            return Err(Refused::Leased);
        }
        member.lost = true;
        self.tickets.retain(|_, ticket| ticket.from != cell && ticket.to != cell);
        Ok(())
    }

    /// A lost cell runs again, elsewhere: its next incarnation, and the epoch below which it does nothing.
    pub fn place(&mut self, cell: CellId, zone: Zone, lease_until: u64) -> Option<(u32, u64)> {
        let member = self.members.get_mut(&cell).filter(|member| member.lost)?;
        self.epoch += 1;
        member.incarnation += 1;
        member.lost = false;
        member.zone = zone;
        member.lease_until = lease_until;
        self.log.push(Change::Placed { cell, incarnation: member.incarnation });
        Some((member.incarnation, self.epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> Directory {
        let member = |zone| Member {
            zone: Zone(zone),
            backup_zone: Zone(zone + 1),
            weight: 100,
            draining: false,
            incarnation: 1,
            lease_until: 10,
            revision_ceiling: 100,
            lost: false,
        };
        let members = BTreeMap::from([(CellId(0), member(0)), (CellId(1), member(1))]);
        Directory::new(members, Homes::wished(&[(CellId(0), 1)]).unwrap())
    }

    #[test]
    fn an_aborted_move_cannot_be_committed_later() {
        let mut directory = directory();
        let plane = Plane::numbered(1);
        let first = directory.begin(plane, CellId(0), CellId(1)).unwrap();
        assert_eq!(directory.begin(plane, CellId(0), CellId(1)), Err(Refused::AnotherMove));
        assert!(directory.abort(&first));
        assert_eq!(directory.commit(&first), Err(Refused::NoSuchTicket));
        let second = directory.begin(plane, CellId(0), CellId(1)).unwrap();
        assert_eq!(directory.commit(&first), Err(Refused::NoSuchTicket));
        let owner = directory.commit(&second).unwrap();
        assert!(owner.epoch > first.epoch);
        assert!(!directory.abort(&second));
        assert_eq!(directory.owner(plane), CellId(1));
        assert_eq!(directory.begin(plane, CellId(0), CellId(1)), Err(Refused::NotTheOwner));
    }

    #[test]
    fn a_plane_that_comes_home_is_no_exception() {
        let mut directory = directory();
        let plane = Plane::numbered(1);
        let away = directory.begin(plane, CellId(0), CellId(1)).unwrap();
        directory.commit(&away).unwrap();
        assert_eq!(directory.exceptions().len(), 1);
        directory.flip(plane.slot, (CellId(0), 1), CellId(1)).unwrap();
        assert_eq!((directory.exceptions().len(), directory.owner(plane)), (0, CellId(1)));
        assert_eq!(directory.flip(plane.slot, (CellId(0), 1), CellId(1)), Err(Refused::NotTheOwner));
    }

    #[test]
    fn only_a_cell_whose_lease_has_ended_is_replaced() {
        let mut directory = directory();
        assert_eq!(directory.declare_lost(CellId(0), 10), Err(Refused::Leased));
        assert_eq!(directory.place(CellId(0), Zone(2), 50), None);
        directory.declare_lost(CellId(0), 11).unwrap();
        assert_eq!(directory.renew(CellId(0), 1, 40, 200), Err(Refused::OldIncarnation));
        let (incarnation, _) = directory.place(CellId(0), Zone(2), 50).unwrap();
        assert_eq!(incarnation, 2);
        assert_eq!(directory.renew(CellId(0), 1, 60, 200), Err(Refused::OldIncarnation));
        assert_eq!(directory.flip(Slot(0), (CellId(0), 1), CellId(1)), Err(Refused::OldIncarnation));
        directory.renew(CellId(0), 2, 60, 200).unwrap();
    }

    #[test]
    fn moves_of_a_lost_cell_are_off() {
        let mut directory = directory();
        let ticket = directory.begin(Plane::numbered(1), CellId(0), CellId(1)).unwrap();
        directory.declare_lost(CellId(1), 11).unwrap();
        assert_eq!(directory.commit(&ticket), Err(Refused::NoSuchTicket));
    }
}
