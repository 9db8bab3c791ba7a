//! Names the store has never seen. It keeps the name of every resource that was ever stored, so a plane may bring new
//! ones only so fast: enough for anybody who uses CRDs, too slow to fill memory with made-up names.

use std::collections::HashMap;

use parking_lot::Mutex;
use polder_model::PlaneId;

/// New names a plane may bring at once.
const NAMES_MAX: u32 = 4_000;
/// Then one more each so many seconds.
const REFILL_SECONDS: i64 = 60;
/// Planes that are remembered; those with the most left are forgotten first.
const PLANES_LEN_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct FreshNames {
    planes: Mutex<HashMap<PlaneId, Spent>>,
}

#[derive(Clone, Copy)]
struct Spent {
    names: u32,
    since: i64,
}

impl Spent {
    /// What is still counted against the plane.
    fn at(self, now: i64) -> Spent {
        let back = now.saturating_sub(self.since).max(0) / REFILL_SECONDS;
        let names = self.names.saturating_sub(u32::try_from(back).unwrap_or(u32::MAX));
        Spent { names, since: self.since.saturating_add(back * REFILL_SECONDS) }
    }
}

impl FreshNames {
    /// Whether a plane may bring one more name.
    pub(crate) fn take(&self, plane: PlaneId, now: i64) -> bool {
        let mut planes = self.planes.lock();
        if planes.len() >= PLANES_LEN_MAX && !planes.contains_key(&plane) {
            planes.retain(|_, spent| spent.at(now).names > 0);
            let mut all: Vec<(u32, PlaneId)> = planes.iter().map(|(id, spent)| (spent.names, *id)).collect();
            all.sort_unstable();
            let surplus = (all.len() + 1).saturating_sub(PLANES_LEN_MAX / 4 * 3);
            for (_, plane) in all.into_iter().take(surplus) {
                planes.remove(&plane);
            }
        }
        let spent = planes.entry(plane).or_insert(Spent { names: 0, since: now });
        *spent = spent.at(now);
        if spent.names >= NAMES_MAX {
            return false;
        }
        spent.names += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_run_out_and_come_back_slowly() {
        let fresh = FreshNames::default();
        let (greedy, modest) = (PlaneId(7), PlaneId(8));
        assert_eq!((0..10_000).filter(|_| fresh.take(greedy, 1_000)).count(), 4_000);
        assert!(fresh.take(modest, 1_000), "others do not notice");
        assert!(!fresh.take(greedy, 1_059));
        assert_eq!((0..10).filter(|_| fresh.take(greedy, 1_180)).count(), 3);
        for plane in 0..30_000 {
            assert!(fresh.take(PlaneId(100 + plane), 1_180));
        }
        assert!(fresh.planes.lock().len() <= PLANES_LEN_MAX);
        assert!(!fresh.take(greedy, 1_180), "who has spent most is remembered");
    }
}
