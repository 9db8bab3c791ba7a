//! What each plane may use of the server at one time: requests in flight, request rate, open watches, and memory
//! for what is on its way to its clients.
//!
//! Counters exist only while a plane is in use: an idle plane costs nothing here. A place is given back when the
//! last byte of the answer has left, not when the answer has been made: a slow client's answer still costs memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use polder_model::{PlaneId, Status};
use polder_store::{Limits, Plane};

/// What the bodies of a plane's requests and answers may take together.
const IN_FLIGHT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Gates of all planes that are in use.
#[derive(Default)]
pub(crate) struct Gates {
    planes: Mutex<HashMap<PlaneId, Arc<Gate>>>,
}

struct Gate {
    counts: Mutex<Counts>,
    /// Of bodies that are in memory for a client.
    bytes: AtomicUsize,
}

struct Counts {
    requests: u64,
    watches: u64,
    /// Requests that may still be made at once, refilled over time.
    tokens: f64,
    filled: Instant,
}

/// A place taken; given back when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Pass(Arc<Place>);

struct Place {
    gate: Arc<Gate>,
    is_watch: AtomicBool,
}

/// Bytes that are counted for a plane until they are let go of.
struct Carried {
    bytes: Bytes,
    counted: usize,
    pass: Pass,
}

/// Room for bytes that are about to arrive.
pub(crate) struct Reserved {
    bytes: usize,
    pass: Pass,
}

/// Whether bytes take memory of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    Counted,
    /// They are kept anyway, for many answers.
    Nothing,
}

impl Gates {
    /// Takes a place for a request, or says which limit is in the way.
    pub(crate) fn enter(&self, plane: &Plane, default: &Limits) -> Result<Pass, Status> {
        let in_flight = own_or(plane.limits.requests_in_flight, default.requests_in_flight);
        let rate = own_or(plane.limits.requests_per_second, default.requests_per_second);
        let now = Instant::now();
        #[expect(clippy::cast_precision_loss, reason = "rates are small")]
        let rate_f = rate as f64;
        let new = || {
            let counts = Counts { requests: 0, watches: 0, tokens: rate_f, filled: now };
            Arc::new(Gate { counts: Mutex::new(counts), bytes: AtomicUsize::new(0) })
        };
        // Cloned under the lock, so that a gate somebody is about to use is not swept away.
        let gate = self.planes.lock().entry(plane.id).or_insert_with(new).clone();
        let mut counts = gate.counts.lock();
        let elapsed = now.saturating_duration_since(counts.filled).as_secs_f64();
        counts.tokens = (counts.tokens + elapsed * rate_f).min(rate_f);
        counts.filled = now;
        if rate > 0 && counts.tokens < 1.0 {
            return Err(refusal(plane, "requests per second", rate));
        }
        if in_flight > 0 && counts.requests >= in_flight {
            return Err(refusal(plane, "requests in flight", in_flight));
        }
        if gate.bytes.load(Ordering::Relaxed) >= IN_FLIGHT_BYTES_MAX {
            return Err(too_many_bytes(plane));
        }
        counts.tokens -= 1.0;
        counts.requests += 1;
        drop(counts);
        Ok(Pass(Arc::new(Place { gate, is_watch: AtomicBool::new(false) })))
    }

    pub(crate) fn watches(&self) -> u64 {
        self.planes.lock().values().map(|gate| gate.counts.lock().watches).sum()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.planes.lock().values().map(|gate| gate.counts.lock().requests).sum()
    }

    /// Forgets planes that nobody has used for a while. Called now and then.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        self.planes.lock().retain(|_, gate| {
            let recent = now.saturating_duration_since(gate.counts.lock().filled).as_secs() < 2;
            recent || Arc::strong_count(gate) > 1
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
        if !self.0.is_watch.swap(true, Ordering::Relaxed) {
            counts.requests -= 1;
            counts.watches += 1;
        }
        Ok(())
    }

    /// Bytes on their way to the client: until they have left, or been dropped, they and the place are taken.
    pub(crate) fn carry(&self, bytes: Bytes, weight: Weight) -> Bytes {
        if bytes.is_empty() {
            return bytes;
        }
        let counted = if weight == Weight::Counted { bytes.len() } else { 0 };
        self.0.gate.bytes.fetch_add(counted, Ordering::Relaxed);
        Bytes::from_owner(Carried { bytes, counted, pass: self.clone() })
    }

    /// Room for bytes that are about to arrive, until it is dropped.
    pub(crate) fn reserve(&self, plane: &Plane, bytes: usize) -> Result<Reserved, Status> {
        let reserved = Reserved { bytes, pass: self.clone() };
        let before = self.0.gate.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > IN_FLIGHT_BYTES_MAX {
            return Err(too_many_bytes(plane));
        }
        Ok(reserved)
    }

    /// Whether the plane may have so many bytes more in memory.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.0.gate.bytes.load(Ordering::Relaxed).saturating_add(more) <= IN_FLIGHT_BYTES_MAX
    }

    /// The same for a read that can be made again.
    pub(crate) fn check_room(&self, plane: &Plane, more: usize) -> Result<(), Status> {
        if self.has_room(more) { Ok(()) } else { Err(too_many_bytes(plane)) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.gate.counts.lock();
        if *self.is_watch.get_mut() {
            counts.watches -= 1;
        } else {
            counts.requests -= 1;
        }
    }
}

impl AsRef<[u8]> for Carried {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.pass.0.gate.bytes.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.pass.0.gate.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn own_or(own: u64, default: u64) -> u64 {
    if own > 0 { own } else { default }
}

fn refusal(plane: &Plane, what: &str, limit: u64) -> Status {
    Status::too_many_requests(format!("plane {} has reached its limit of {limit} {what}", plane.name), 1)
}

fn too_many_bytes(plane: &Plane) -> Status {
    refusal(plane, "bytes of requests and answers in flight", IN_FLIGHT_BYTES_MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_store::memory::MemoryEngine;
    use polder_store::{Store, StoreOptions};

    fn core() -> Arc<Plane> {
        let engine = Box::new(MemoryEngine::default());
        let store = Store::open(engine, StoreOptions::default(), "", |_| Vec::new()).unwrap();
        store.plane("core").unwrap()
    }

    #[test]
    fn a_place_is_held_until_the_last_byte_has_left() {
        let (gates, plane) = (Gates::default(), core());
        let limits = Limits { requests_in_flight: 1, ..Limits::default() };
        let pass = gates.enter(&plane, &limits).unwrap();
        let sent = pass.carry(Bytes::from_static(b"answer"), Weight::Counted);
        let part = sent.slice(2..3);
        drop((pass, sent));
        assert_eq!(gates.enter(&plane, &limits).err().map(|status| status.code), Some(429));
        drop(part);
        assert!(gates.enter(&plane, &limits).is_ok());
        assert_eq!(gates.requests(), 0);
    }

    #[test]
    fn answers_on_their_way_are_bounded() {
        let (gates, plane) = (Gates::default(), core());
        let limits = Limits::default();
        let pass = gates.enter(&plane, &limits).unwrap();
        let shared = pass.carry(Bytes::from(vec![0; IN_FLIGHT_BYTES_MAX]), Weight::Nothing);
        assert!(pass.has_room(1), "what many answers share counts for none");
        let own = pass.carry(Bytes::from(vec![0; IN_FLIGHT_BYTES_MAX]), Weight::Counted);
        assert!(!pass.has_room(1));
        let refused = pass.check_room(&plane, 1).unwrap_err();
        assert_eq!(
            refused.message,
            "plane core has reached its limit of 67108864 bytes of requests and answers in flight"
        );
        assert_eq!(gates.enter(&plane, &limits).err().map(|status| status.code), Some(429));
        drop((own, shared));
        assert!(gates.enter(&plane, &limits).is_ok());
        let arriving = pass.reserve(&plane, IN_FLIGHT_BYTES_MAX).unwrap();
        assert_eq!(pass.reserve(&plane, 1).err().map(|status| status.code), Some(429));
        drop(arriving);
        assert!(pass.reserve(&plane, 1).is_ok() && pass.has_room(IN_FLIGHT_BYTES_MAX));
    }

    #[test]
    fn a_watch_is_no_request() {
        let (gates, plane) = (Gates::default(), core());
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
