//! Priority and fairness within a plane: its requests take seats by its own flow schemas and priority levels, and wait for
//! them in line. How planes share the server is none of this: see [`crate::limits`], [`crate::turns`] and
//! [`crate::threads`].
//!
//! A request has as many seats as it is expected to cost ([`cost`]), until its last byte has left; a watch until it has been
//! told the state that it begins with. A plane that nobody uses has no hall.

mod cost;
mod seats;
#[cfg(test)]
mod seats_tests;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use polder_model::Status;
use polder_registry::flows::{Flow, Flows, KeptApart, Level, WhenFull};
use tokio::sync::oneshot;
use tokio::time::Instant;

pub(crate) use self::cost::Cost;
use self::cost::Costs;
use self::seats::{Granted, Refusal, Seats, Wish};

/// When to come back is told to whoever is turned away.
const RETRY_AFTER: u32 = 1;

/// Where the requests of one plane sit and wait.
#[derive(Default)]
pub(crate) struct Hall {
    seats: Mutex<Seats<Waiter>>,
    costs: Mutex<Costs>,
}

/// Seats taken; given back when dropped.
pub(crate) struct Seat {
    hall: Arc<Hall>,
    level: Bytes,
    width: u64,
}

/// A request as far as fairness goes.
pub(crate) struct Guest<'a> {
    pub(crate) flows: &'a Arc<Flows>,
    pub(crate) flow: &'a Flow,
    pub(crate) level: &'a Level,
    pub(crate) user: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) cost: Option<Cost>,
    /// How many seats its plane has.
    pub(crate) seats: u64,
    /// How long it waits.
    pub(crate) until: Instant,
}

impl Hall {
    /// Seats for a request, as soon as it is its turn.
    pub(crate) async fn enter(self: &Arc<Self>, guest: &Guest<'_>) -> Result<Seat, Status> {
        let level = guest.level;
        let width = guest.cost.map_or(1, |cost| self.costs.lock().seats(cost));
        let wish = Wish { flows: guest.flows, level, width, all: guest.seats };
        let mut receiver = None;
        let granted = self.seats.lock().enter(&wish, || {
            let (seat, end) = oneshot::channel();
            receiver = Some(end);
            (guest.flow_hash(), Waiter { level: level.uid.clone(), seat })
        });
        let number = match granted {
            Granted::Seats(width) => {
                return Ok(Seat { hall: self.clone(), level: level.uid.clone(), width });
            }
            Granted::Waits(number) => number,
            Granted::Refused(refusal) => return Err(refused(guest, refusal)),
        };
        let _in_line = InLine { hall: self, level: &level.uid, number };
        let seat = match receiver {
            Some(receiver) => tokio::time::timeout_at(guest.until, receiver).await.ok().and_then(Result::ok),
            None => None,
        };
        seat.ok_or_else(|| refused(guest, Refusal::QueueFull))
    }

    /// What a request of this kind has cost.
    pub(crate) fn learn(&self, cost: Cost, bytes: u64) {
        self.costs.lock().learn(cost, bytes);
    }

    /// Seats taken, and requests that wait for some.
    pub(crate) fn state(&self) -> (u64, u64) {
        let seats = self.seats.lock();
        (seats.in_use(), seats.waiting())
    }

    /// Changes who sits where, and tells those who can have seats now.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut Seats<Waiter>, &mut dyn FnMut(Waiter, u64))) {
        let mut called = Vec::new();
        change(&mut self.seats.lock(), &mut |waiter, width| called.push((waiter, width)));
        for (waiter, width) in called {
            // Whoever is gone gives it back right here.
            drop(waiter.seat.send(Seat { hall: self.clone(), level: waiter.level, width }));
        }
    }
}

/// Somebody in line.
struct Waiter {
    level: Bytes,
    seat: oneshot::Sender<Seat>,
}

/// A place in line, given up when dropped.
struct InLine<'a> {
    hall: &'a Arc<Hall>,
    level: &'a Bytes,
    number: u64,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.hall.change(|seats, call| seats.give_up(self.level, self.number, call));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.hall.change(|seats, call| seats.leave(&self.level, self.width, call));
    }
}

impl Guest<'_> {
    /// Tells its flow from others of its level.
    fn flow_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.flow.schema.hash(&mut hasher);
        match self.flow.kept_apart {
            KeptApart::None => {}
            KeptApart::ByUser => self.user.hash(&mut hasher),
            KeptApart::ByNamespace => self.namespace.hash(&mut hasher),
        }
        hasher.finish()
    }
}

fn refused(guest: &Guest<'_>, refusal: Refusal) -> Status {
    let (level, seats) = (guest.level, guest.seats);
    let text = match refusal {
        // What is exempt from the plane's rules is not from the provider's.
        Refusal::Full if level.full == WhenFull::Exempt => {
            format!("the plane has reached its limit of {seats} requests in flight")
        }
        Refusal::Full => {
            format!("too many requests of priority level {:?}: please try again later", level.name)
        }
        Refusal::QueueFull => {
            format!("too many requests of priority level {:?} wait: please try again later", level.name)
        }
    };
    Status::too_many_requests(text, RETRY_AFTER)
}
