//! What each plane may use of the server at one time: requests in flight, request rate, open watches, and memory
//! for what is on its way to its clients.
//!
//! Counters exist only while a plane is in use: an idle plane costs nothing here. A place is given back when the
//! last byte of the answer has left, not when the answer has been made: a slow client's answer still costs memory.
//! How much of that there may be is the business of [`crate::budget`], and who of a plane goes first that of
//! [`crate::fairness`].
//!
//! All planes together have a limit too. When it is reached, whoever has its share by its weight is turned away, and whoever
//! has less is not: so the limit may be passed by as many as there are planes, and no plane is locked out by others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use hashbrown::HashMap;
use parking_lot::Mutex;
use polder_model::{PlaneId, Status};
use polder_store::{Limits, Plane};

use crate::budget::{Account, Asking, Budget, Room, SMALL_BYTES_MAX, TooMuch};
use crate::fairness::{Cost, Guest, Hall, Seat};

/// How long a request that has not been answered yet waits for room.
const ROOM_PATIENCE: Duration = Duration::from_secs(10);

/// What all planes may have at a time: as many as fit into so much memory, at what one takes when it does next to nothing.
const REQUEST_BYTES: usize = 32 * 1024;
const WATCH_BYTES: usize = 4 * 1024;
/// The weight of a plane that says none.
pub(crate) const WEIGHT_DEFAULT: u64 = Limits::WEIGHT_DEFAULT;
/// For each request that may be under way so many may be there: the others wait for a seat.
const PRESENT_PER_SEAT: u64 = 2;

/// Gates of all planes that are in use.
pub(crate) struct Gates {
    planes: Mutex<HashMap<PlaneId, Arc<Gate>>>,
    budget: Arc<Budget>,
    all: Arc<All>,
}

/// What all planes have together, and may have.
struct All {
    requests: AtomicU64,
    watches: AtomicU64,
    requests_max: u64,
    watches_max: u64,
}

struct Gate {
    counts: Mutex<Counts>,
    hall: Arc<Hall>,
    all: Arc<All>,
    /// Of bodies that are in memory for a client.
    account: Arc<Account>,
}

struct Counts {
    /// What one plane may have of what all may have, the last time somebody looked: requests, watches.
    shares: [u64; 2],
    requests: u64,
    watches: u64,
    /// Requests that may still be made at once, refilled over time.
    tokens: f64,
    filled: Instant,
}

/// What a plane has at a time.
#[derive(Debug, Default)]
pub(crate) struct PlaneLoad {
    pub(crate) requests: u64,
    pub(crate) watches: u64,
    pub(crate) seats: u64,
    /// Requests that wait for a seat.
    pub(crate) waiting: u64,
}

/// A place taken; given back when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Pass(Arc<Place>);

struct Place {
    gate: Arc<Gate>,
    is_watch: AtomicBool,
    sitting: Mutex<Option<Sitting>>,
    /// Bytes it has sent.
    sent: AtomicU64,
}

struct Sitting {
    _seat: Seat,
    /// What it was expected to send.
    cost: Option<Cost>,
}

/// Bytes on their way to a client, with what they take up.
struct Carried {
    bytes: Bytes,
    _pass: Pass,
    _room: Option<Arc<Room>>,
}

/// Whether bytes take memory of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    Counted,
    /// They are kept anyway, for many answers.
    Nothing,
}

impl Gates {
    pub(crate) fn new(bytes_max: usize) -> Gates {
        let all = All {
            requests: AtomicU64::new(0),
            watches: AtomicU64::new(0),
            requests_max: (bytes_max / REQUEST_BYTES) as u64,
            watches_max: (bytes_max / WATCH_BYTES) as u64,
        };
        Gates { planes: Mutex::default(), budget: Arc::new(Budget::new(bytes_max)), all: Arc::new(all) }
    }

    /// Takes a place for a request, or says which limit is in the way.
    pub(crate) fn enter(&self, plane: &Plane, default: &Limits) -> Result<Pass, Status> {
        self.place(plane, default, true)
    }

    /// The same for whoever asks how the server is: however full memory is, that must be heard.
    pub(crate) fn enter_probe(&self, plane: &Plane, default: &Limits) -> Result<Pass, Status> {
        self.place(plane, default, false)
    }

    fn place(&self, plane: &Plane, default: &Limits, needs_room: bool) -> Result<Pass, Status> {
        let in_flight = own_or(plane.limits.requests_in_flight, default.requests_in_flight);
        let rate = own_or(plane.limits.requests_per_second, default.requests_per_second);
        let now = Instant::now();
        #[expect(clippy::cast_precision_loss, reason = "rates are small")]
        let rate_f = rate as f64;
        let new = || {
            let counts = Counts { shares: [0; 2], requests: 0, watches: 0, tokens: rate_f, filled: now };
            Arc::new(Gate {
                counts: Mutex::new(counts),
                hall: Arc::default(),
                all: self.all.clone(),
                account: self.budget.account(plane.id),
            })
        };
        // Cloned under the lock, so that a gate somebody is about to use is not swept away.
        let (gate, planes_len) = {
            let mut planes = self.planes.lock();
            let gate = planes.entry(plane.id).or_insert_with(new).clone();
            (gate, planes.len() as u64)
        };
        let mut counts = gate.counts.lock();
        let weight = own_or(plane.limits.weight, WEIGHT_DEFAULT);
        counts.shares = self.all.shares(weight, planes_len);
        let elapsed = now.saturating_duration_since(counts.filled).as_secs_f64();
        counts.tokens = (counts.tokens + elapsed * rate_f).min(rate_f);
        counts.filled = now;
        if rate > 0 && counts.tokens < 1.0 {
            return Err(refusal(plane, "requests per second", rate));
        }
        let present_max = in_flight.saturating_mul(PRESENT_PER_SEAT);
        if in_flight > 0 && counts.requests >= present_max {
            return Err(refusal(plane, "requests in flight and waiting", present_max));
        }
        let all = self.all.requests.load(Ordering::Relaxed);
        if all >= self.all.requests_max && counts.requests >= counts.shares[0] {
            return Err(overloaded());
        }
        if needs_room && gate.account.is_full() {
            return Err(too_many_bytes(plane, &gate.account));
        }
        counts.tokens -= 1.0;
        counts.requests += 1;
        self.all.requests.fetch_add(1, Ordering::Relaxed);
        drop(counts);
        Ok(Pass(Arc::new(Place::new(gate))))
    }

    pub(crate) fn watches(&self) -> u64 {
        self.all.watches.load(Ordering::Relaxed)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.all.requests.load(Ordering::Relaxed)
    }

    /// What one plane has now.
    pub(crate) fn of_plane(&self, plane: PlaneId) -> PlaneLoad {
        let gate = self.planes.lock().get(&plane).cloned();
        gate.map_or_else(PlaneLoad::default, |gate| {
            let (seats, waiting) = gate.hall.state();
            let counts = gate.counts.lock();
            PlaneLoad { requests: counts.requests, watches: counts.watches, seats, waiting }
        })
    }

    /// How many requests of a plane may be under way; none is as many as one likes.
    pub(crate) fn seats(&self, plane: &Plane, default: &Limits) -> u64 {
        own_or(plane.limits.requests_in_flight, default.requests_in_flight)
    }

    /// Bytes of bodies in memory, of all planes.
    pub(crate) fn bytes(&self) -> usize {
        self.budget.used()
    }

    /// Forgets planes that nobody has used for a while. Called now and then.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        self.planes.lock().retain(|_, gate| {
            let recent = now.saturating_duration_since(gate.counts.lock().filled).as_secs() < 2;
            recent || Arc::strong_count(gate) > 1 || Arc::strong_count(&gate.account) > 1
        });
    }
}

impl Pass {
    /// Turns a request's place into a watch's: it is no longer in flight, but open.
    pub(crate) fn become_watch(&self, plane: &Plane, default: &Limits) -> Result<(), Status> {
        let watches = own_or(plane.limits.watches, default.watches);
        let mut counts = self.0.gate.counts.lock();
        if watches > 0 && counts.watches >= watches {
            return Err(refusal(plane, "open watches", watches));
        }
        let all = &self.0.gate.all;
        if all.watches.load(Ordering::Relaxed) >= all.watches_max && counts.watches >= counts.shares[1] {
            return Err(overloaded());
        }
        if !self.0.is_watch.swap(true, Ordering::Relaxed) {
            counts.requests -= 1;
            counts.watches += 1;
            all.requests.fetch_sub(1, Ordering::Relaxed);
            all.watches.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes seats for a request, when it is its turn.
    pub(crate) async fn sit(&self, guest: &Guest<'_>) -> Result<(), Status> {
        let seat = self.0.gate.hall.enter(guest).await?;
        *self.0.sitting.lock() = Some(Sitting { _seat: seat, cost: guest.cost });
        Ok(())
    }

    /// The rest of it takes next to nothing.
    pub(crate) fn stand_up(&self) {
        let sitting = self.0.sitting.lock().take();
        self.0.learn(sitting.as_ref());
    }

    /// Bytes on their way to the client: until they have left, or been dropped, they and the place are taken.
    pub(crate) fn carry(&self, bytes: Bytes, weight: Weight) -> Bytes {
        let room = (weight == Weight::Counted).then(|| Arc::new(self.count(bytes.len())));
        self.carry_in(bytes, room)
    }

    /// The same for bytes that have room already.
    pub(crate) fn carry_in(&self, bytes: Bytes, room: Option<Arc<Room>>) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        self.0.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Bytes::from_owner(Carried { bytes, _pass: self.clone(), _room: room })
    }

    /// Counts bytes that are in memory already.
    pub(crate) fn count(&self, bytes: usize) -> Room {
        self.0.gate.account.count(bytes)
    }

    /// The same for what may yet become large.
    pub(crate) fn count_large(&self, bytes: usize) -> Room {
        self.0.gate.account.count_large(bytes)
    }

    /// Room for bytes that are about to be made or to arrive. What is large waits for it, but not for long: whoever asks
    /// can ask again.
    pub(crate) async fn room(
        &self,
        plane: &Plane,
        bytes: usize,
        deadline: tokio::time::Instant,
    ) -> Result<Room, Status> {
        let account = &self.0.gate.account;
        if bytes <= SMALL_BYTES_MAX {
            return account.small_room(bytes).ok_or_else(|| too_many_bytes(plane, account));
        }
        let asking = account.room(bytes).map_err(|much| too_much(plane, bytes, much))?;
        let deadline = deadline.min(tokio::time::Instant::now() + ROOM_PATIENCE);
        tokio::time::timeout_at(deadline, asking).await.map_err(|_| too_many_bytes(plane, account))
    }

    /// Room for bytes that are there and should stay. Who holds them does not wait.
    pub(crate) fn room_now(&self, plane: &Plane, bytes: usize) -> Result<Room, Status> {
        let account = &self.0.gate.account;
        let room = if bytes <= SMALL_BYTES_MAX {
            account.small_room(bytes)
        } else {
            account.room(bytes).map_err(|much| too_much(plane, bytes, much))?.now_or_never()
        };
        room.ok_or_else(|| too_many_bytes(plane, account))
    }

    /// Room for what selectors are parsed into, for as long as they are in use.
    pub(crate) fn selectors_room(&self, plane: &Plane, bytes: usize) -> Result<Room, Status> {
        self.0.gate.account.selectors_room(bytes).ok_or_else(|| {
            let text = format!(
                "plane {} has too many long selectors in use: close watches that have one",
                plane.name
            );
            Status::too_many_requests(text, 1)
        })
    }

    /// Room for more of an answer that has begun.
    pub(crate) fn more_room(&self, bytes: usize) -> Result<Asking, TooMuch> {
        self.0.gate.account.room(bytes)
    }

    /// Whether small things may be held for this plane.
    pub(crate) fn has_room(&self) -> bool {
        !self.0.gate.account.is_full()
    }

    /// Knows when the place is given back, and does not keep it from being given back.
    pub(crate) fn weak(&self) -> std::sync::Weak<dyn Send + Sync> {
        let weak: std::sync::Weak<Place> = Arc::downgrade(&self.0);
        weak
    }
}

impl Place {
    fn new(gate: Arc<Gate>) -> Place {
        Place { gate, is_watch: AtomicBool::new(false), sitting: Mutex::new(None), sent: AtomicU64::new(0) }
    }

    fn learn(&self, sitting: Option<&Sitting>) {
        if let Some(cost) = sitting.and_then(|sitting| sitting.cost) {
            self.gate.hall.learn(cost, self.sent.load(Ordering::Relaxed));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let sitting = self.sitting.get_mut().take();
        self.learn(sitting.as_ref());
        drop(sitting);
        let (mut counts, all) = (self.gate.counts.lock(), &self.gate.all);
        if *self.is_watch.get_mut() {
            counts.watches -= 1;
            all.watches.fetch_sub(1, Ordering::Relaxed);
        } else {
            counts.requests -= 1;
            all.requests.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl All {
    /// What a plane of this weight may have, of requests and watches, when so many planes are in use.
    fn shares(&self, weight: u64, planes_len: u64) -> [u64; 2] {
        let of = |max: u64| (max.saturating_mul(weight) / (planes_len.max(1) * WEIGHT_DEFAULT)).max(1);
        [of(self.requests_max), of(self.watches_max)]
    }
}

impl AsRef<[u8]> for Carried {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn own_or(own: u64, default: u64) -> u64 {
    if own > 0 { own } else { default }
}

fn overloaded() -> Status {
    Status::too_many_requests("the server has as many requests as it can serve: please try again later", 1)
}

fn refusal(plane: &Plane, what: &str, limit: u64) -> Status {
    Status::too_many_requests(format!("plane {} has reached its limit of {limit} {what}", plane.name), 1)
}

/// What is larger than this is not given to anybody, so it is not waited for either.
fn too_much(plane: &Plane, bytes: usize, much: TooMuch) -> Status {
    Status::too_large(format!(
        "this takes {bytes} bytes of memory at one time, and plane {} may have {}: ask for less, and without `pretty`",
        plane.name, much.bytes_max
    ))
}

fn too_many_bytes(plane: &Plane, account: &Account) -> Status {
    if account.owes_much() {
        return refusal(plane, "bytes of requests and answers in flight", account.plane_bytes_max() as u64);
    }
    Status::too_many_requests(
        "the server has reached its limit of bytes of requests and answers in flight",
        1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_store::memory::MemoryEngine;
    use polder_store::{Store, StoreOptions};

    fn core() -> Arc<Plane> {
        let engine = Box::new(MemoryEngine::default());
        let store = Store::open(engine, StoreOptions::default(), "", |_, _| Vec::new()).unwrap();
        store.plane("core").unwrap()
    }

    fn gates() -> Gates {
        Gates::new(1 << 30)
    }

    #[test]
    fn a_place_is_held_until_the_last_byte_has_left() {
        let (gates, plane) = (gates(), core());
        let limits = Limits { requests_in_flight: 1, ..Limits::default() };
        let waits = gates.enter(&plane, &limits).unwrap();
        let pass = gates.enter(&plane, &limits).unwrap();
        let sent = pass.carry(Bytes::from_static(b"answer"), Weight::Counted);
        let part = sent.slice(2..3);
        drop((pass, sent));
        assert_eq!(gates.enter(&plane, &limits).err().map(|status| status.code), Some(429));
        drop(part);
        assert!(gates.enter(&plane, &limits).is_ok());
        drop(waits);
        assert_eq!(gates.requests(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_on_their_way_are_bounded() {
        const PLANE_MAX: usize = 64 * 1024 * 1024;
        let (gates, plane) = (gates(), core());
        let limits = Limits::default();
        let pass = gates.enter(&plane, &limits).unwrap();
        let shared = pass.carry(Bytes::from(vec![0; PLANE_MAX]), Weight::Nothing);
        assert!(pass.has_room(), "what many answers share counts for none");
        let own = pass.carry(Bytes::from(vec![0; PLANE_MAX]), Weight::Counted);
        assert!(!pass.has_room());
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        for bytes in [1, 1 << 20] {
            let refused = pass.room(&plane, bytes, deadline).await.err().unwrap();
            let expected =
                "plane core has reached its limit of 67108864 bytes of requests and answers in flight";
            assert_eq!((refused.code, refused.message.as_str()), (429, expected));
        }
        assert_eq!(gates.enter(&plane, &limits).err().map(|status| status.code), Some(429));
        drop((own, shared));
        assert_eq!(gates.bytes(), 0);
        assert!(gates.enter(&plane, &limits).is_ok());
        assert!(pass.room(&plane, 1 << 20, deadline).await.is_ok());
        // What could never be had is refused without waiting.
        let before = tokio::time::Instant::now();
        let refused = pass.room(&plane, 2 * PLANE_MAX, deadline).await.err().unwrap();
        assert_eq!((refused.code, before.elapsed()), (413, Duration::ZERO));
        assert!(refused.message.contains("without `pretty`"), "{}", refused.message);
    }

    #[test]
    fn probes_need_no_room() {
        let (gates, plane) = (gates(), core());
        let limits = Limits::default();
        let _all = gates.enter(&plane, &limits).unwrap().count(1 << 30);
        assert!(gates.enter(&plane, &limits).is_err());
        assert!(gates.enter_probe(&plane, &limits).is_ok());
    }

    /// When the server has all it can serve, whoever has its share is turned away, and nobody else is.
    #[test]
    fn planes_share_what_the_server_can_do() {
        let engine = Box::new(MemoryEngine::default());
        let store = Store::open(engine, StoreOptions::default(), "", |_, _| Vec::new()).unwrap();
        let plane = |id: u64, weight: u64| {
            let mut plane = (*store.plane("core").unwrap()).clone();
            (plane.id, plane.limits.weight) = (PlaneId(id), weight);
            plane
        };
        let gates = Gates::new(8 * REQUEST_BYTES);
        let (greedy, light, heavy) = (plane(1, 0), plane(2, 0), plane(3, 400));
        let enter = |plane: &Plane| gates.enter(plane, &Limits::default());
        let mut held: Vec<Pass> = (0..8).map(|_| enter(&greedy).unwrap()).collect();
        let refused = enter(&greedy).err().unwrap();
        assert_eq!(
            (refused.code, refused.details.map(|details| details.retry_after_seconds)),
            (429, Some(1))
        );
        // Two planes: four each.
        held.extend((0..4).map(|_| enter(&light).unwrap()));
        assert!(enter(&light).is_err());
        // Three planes, and one of them weighs four times as much: 8 / 3 * 4.
        held.extend((0..10).map(|_| enter(&heavy).unwrap()));
        assert!(enter(&heavy).is_err() && enter(&greedy).is_err() && enter(&light).is_err());
        drop(held);
        assert_eq!(gates.requests(), 0);
        assert!(enter(&greedy).is_ok());
    }

    #[test]
    fn a_watch_is_no_request() {
        let (gates, plane) = (gates(), core());
        let limits = Limits { requests_in_flight: 1, watches: 1, ..Limits::default() };
        let watch = gates.enter(&plane, &limits).unwrap();
        watch.become_watch(&plane, &limits).unwrap();
        let second = gates.enter(&plane, &limits).unwrap();
        assert_eq!(second.become_watch(&plane, &limits).unwrap_err().code, 429);
        assert_eq!((gates.requests(), gates.watches()), (1, 1));
        drop((watch, second));
        assert_eq!((gates.requests(), gates.watches()), (0, 0));
    }
}
