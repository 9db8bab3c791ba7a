//! Somebody outside is not asked for a while because they have not answered lately, so that requests need not wait for nothing.
//!
//! Each plane finds that out for itself: nobody's odd questions keep others from being answered. An answer, whoever gets it, is good
//! news for all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use polder_model::PlaneId;
use tokio::time::Instant;

/// So many questions of a plane in a row get no answer before the next ones are not asked.
const IN_A_ROW: u32 = 3;
/// After this time one is asked again.
const REST: Duration = Duration::from_secs(2);
/// Planes that are known to wait. With more, all find out anew.
const PLANES_LEN_MAX: usize = 16 * 1024;

#[derive(Default)]
pub(crate) struct Breaker {
    planes: Mutex<HashMap<PlaneId, Trouble>>,
    /// Whether there are any, for those who have no trouble.
    has_trouble: AtomicBool,
}

/// What a plane knows.
struct Trouble {
    failures: u32,
    /// When somebody may ask again.
    until: Instant,
}

/// How a question may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Again too, if it fails.
    Freely,
    /// To see whether somebody answers by now.
    Once,
}

impl Breaker {
    /// Whether a plane may ask now, a question that takes no longer than `patience`.
    pub(crate) fn leave(&self, plane: PlaneId, patience: Duration) -> Option<Leave> {
        if !self.has_trouble.load(Ordering::Acquire) {
            return Some(Leave::Freely);
        }
        let now = Instant::now();
        let mut planes = self.planes.lock();
        match planes.get_mut(&plane) {
            Some(trouble) if trouble.failures >= IN_A_ROW => {
                if now < trouble.until {
                    return None;
                }
                // Others do not ask meanwhile. Whoever hangs up before there is an answer leaves it to the next.
                trouble.until = now + patience;
                Some(Leave::Once)
            }
            _ => Some(Leave::Freely),
        }
    }

    pub(crate) fn failed(&self, plane: PlaneId) {
        let until = Instant::now() + REST;
        let mut planes = self.planes.lock();
        if planes.len() >= PLANES_LEN_MAX && !planes.contains_key(&plane) {
            planes.clear();
        }
        let trouble = planes.entry(plane).or_insert(Trouble { failures: 0, until });
        trouble.failures = trouble.failures.saturating_add(1);
        trouble.until = until;
        self.has_trouble.store(true, Ordering::Release);
    }

    pub(crate) fn answered(&self) {
        if self.has_trouble.load(Ordering::Acquire) {
            let mut planes = self.planes.lock();
            planes.clear();
            self.has_trouble.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_nothing_asks_seldom() {
        let (breaker, one, other) = (Breaker::default(), PlaneId(2), PlaneId(3));
        let patience = Duration::from_secs(10);
        for _ in 0..IN_A_ROW {
            assert_eq!(breaker.leave(one, patience), Some(Leave::Freely));
            breaker.failed(one);
        }
        assert_eq!(breaker.leave(one, patience), None);
        assert_eq!(
            breaker.leave(other, patience),
            Some(Leave::Freely),
            "what one finds is no news for others"
        );
        tokio::time::advance(REST).await;
        assert_eq!(breaker.leave(one, patience), Some(Leave::Once));
        assert_eq!(breaker.leave(one, patience), None, "somebody asks already");
        // Nobody says what came of it.
        tokio::time::advance(patience).await;
        assert_eq!(breaker.leave(one, patience), Some(Leave::Once));
        breaker.failed(one);
        assert_eq!(breaker.leave(one, patience), None);
        breaker.answered();
        assert_eq!(breaker.leave(one, patience), Some(Leave::Freely), "an answer to anybody is one for all");
    }

    #[test]
    fn what_is_known_is_bounded() {
        let breaker = Breaker::default();
        for plane in 0..2 * PLANES_LEN_MAX as u64 + 1 {
            breaker.failed(PlaneId(plane));
        }
        assert_eq!(breaker.planes.lock().len(), 1);
    }
}
