//! What each plane may use of the server at one time: requests in flight, request rate, open watches.
//!
//! Counters exist only while a plane is in use: an idle plane costs nothing here.

use std::sync::Arc;
use std::time::Instant;

use hashbrown::HashMap;
use parking_lot::Mutex;
use polder_model::{PlaneId, Status};
use polder_store::{Limits, Plane};

/// Gates of all planes that are in use.
#[derive(Default)]
pub(crate) struct Gates {
    planes: Mutex<HashMap<PlaneId, Gate>>,
}

struct Gate {
    requests: u64,
    watches: u64,
    /// Requests that may still be made at once, refilled over time.
    tokens: f64,
    filled: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request,
    Watch,
}

/// A place taken; given back when dropped.
pub(crate) struct Pass {
    gates: Arc<Gates>,
    plane: PlaneId,
    kind: Kind,
}

impl Gates {
    /// Takes a place for a request, or says which limit is in the way.
    pub(crate) fn enter(self: &Arc<Self>, plane: &Plane, default: &Limits) -> Result<Pass, Status> {
        let in_flight = own_or(plane.limits.requests_in_flight, default.requests_in_flight);
        let rate = own_or(plane.limits.requests_per_second, default.requests_per_second);
        let mut planes = self.planes.lock();
        let now = Instant::now();
        #[expect(clippy::cast_precision_loss, reason = "rates are small")]
        let rate_f = rate as f64;
        let gate = planes.entry(plane.id).or_insert_with(|| Gate {
            requests: 0,
            watches: 0,
            tokens: rate_f,
            filled: now,
        });
        let elapsed = now.duration_since(gate.filled).as_secs_f64();
        gate.tokens = (gate.tokens + elapsed * rate_f).min(rate_f);
        gate.filled = now;
        if rate > 0 && gate.tokens < 1.0 {
            return Err(refusal(plane, "requests per second", rate));
        }
        if in_flight > 0 && gate.requests >= in_flight {
            return Err(refusal(plane, "requests in flight", in_flight));
        }
        gate.tokens -= 1.0;
        gate.requests += 1;
        Ok(Pass { gates: self.clone(), plane: plane.id, kind: Kind::Request })
    }

    /// Turns a request's place into a watch's: it is no longer in flight, but open.
    pub(crate) fn become_watch(
        &self,
        mut pass: Pass,
        plane: &Plane,
        default: &Limits,
    ) -> Result<Pass, Status> {
        let watches = own_or(plane.limits.watches, default.watches);
        let mut planes = self.planes.lock();
        let full = planes.get(&plane.id).is_some_and(|gate| watches > 0 && gate.watches >= watches);
        if full {
            drop(planes);
            return Err(refusal(plane, "open watches", watches));
        }
        if let Some(gate) = planes.get_mut(&plane.id) {
            gate.requests -= 1;
            gate.watches += 1;
            pass.kind = Kind::Watch;
        }
        drop(planes);
        Ok(pass)
    }

    pub(crate) fn watches(&self) -> u64 {
        self.planes.lock().values().map(|gate| gate.watches).sum()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.planes.lock().values().map(|gate| gate.requests).sum()
    }

    /// Forgets planes that nobody has used for a while. Called now and then.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        self.planes.lock().retain(|_, gate| {
            gate.requests > 0 || gate.watches > 0 || now.duration_since(gate.filled).as_secs() < 2
        });
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut planes = self.gates.planes.lock();
        if let Some(gate) = planes.get_mut(&self.plane) {
            match self.kind {
                Kind::Request => gate.requests -= 1,
                Kind::Watch => gate.watches -= 1,
            }
        }
    }
}

fn own_or(own: u64, default: u64) -> u64 {
    if own > 0 { own } else { default }
}

fn refusal(plane: &Plane, what: &str, limit: u64) -> Status {
    Status::too_many_requests(format!("plane {} has reached its limit of {limit} {what}", plane.name), 1)
}
