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
pub(crate) enum Kind {
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
    /// Takes a place, or says which limit is in the way.
    pub(crate) fn enter(
        self: &Arc<Self>,
        plane: &Plane,
        default: &Limits,
        kind: Kind,
    ) -> Result<Pass, Status> {
        let limit = |own: u64, default: u64| if own > 0 { own } else { default };
        let in_flight = limit(plane.limits.requests_in_flight, default.requests_in_flight);
        let rate = limit(plane.limits.requests_per_second, default.requests_per_second);
        let watches = limit(plane.limits.watches, default.watches);
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
        let refused = |what: &str, limit: u64| {
            let text = format!("plane {} has reached its limit of {limit} {what}", plane.name);
            Err(Status::too_many_requests(text, 1))
        };
        if rate > 0 {
            let elapsed = now.duration_since(gate.filled).as_secs_f64();
            gate.tokens = (gate.tokens + elapsed * rate_f).min(rate_f);
            gate.filled = now;
            if gate.tokens < 1.0 {
                return refused("requests per second", rate);
            }
            gate.tokens -= 1.0;
        }
        match kind {
            Kind::Request if in_flight > 0 && gate.requests >= in_flight => {
                return refused("requests in flight", in_flight);
            }
            Kind::Watch if watches > 0 && gate.watches >= watches => return refused("open watches", watches),
            Kind::Request => gate.requests += 1,
            Kind::Watch => gate.watches += 1,
        }
        Ok(Pass { gates: self.clone(), plane: plane.id, kind })
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
