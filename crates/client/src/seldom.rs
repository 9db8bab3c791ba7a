//! Complaints about planes, for the server's log: seldom for each plane, however much goes wrong in it. What a tenant breaks on
//! purpose, thousands of times a second, does not fill the provider's disk, nor hide what others have to complain about.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use polder_model::{PlaneId, Recent};

/// Planes that are remembered.
const PLANES_MAX: usize = 16 * 1024;

/// When each plane was last complained about.
pub struct Seldom {
    told: Mutex<Recent<PlaneId, Instant>>,
    every: Duration,
}

impl Seldom {
    pub fn new(every: Duration) -> Seldom {
        Seldom { told: Mutex::new(Recent::new(PLANES_MAX)), every }
    }

    /// Whether it is time to complain about a plane; if so, it is not for a while.
    pub fn is_due(&self, plane: PlaneId) -> bool {
        let now = Instant::now();
        let mut told = self.told.lock();
        if told.get(&plane).is_some_and(|last| now.duration_since(last) < self.every) {
            return false;
        }
        let dropped = told.insert(plane, now, 1);
        drop(told);
        drop(dropped);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plane_is_complained_about_seldom() {
        let seldom = Seldom::new(Duration::from_secs(3600));
        assert!(seldom.is_due(PlaneId(2)));
        assert!(!seldom.is_due(PlaneId(2)));
        assert!(seldom.is_due(PlaneId(3)), "another plane's complaints are its own");
        let often = Seldom::new(Duration::ZERO);
        assert!(often.is_due(PlaneId(2)) && often.is_due(PlaneId(2)));
    }
}
