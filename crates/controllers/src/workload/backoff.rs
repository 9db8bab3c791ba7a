//! How long to wait before something is tried again that keeps failing, and since when something has been seen. Failures
//! are remembered in a table of fixed size; who comes to an occupied place takes it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use parking_lot::Mutex;

const PLACES: usize = 1024;

pub(crate) struct Backoff {
    first_seconds: i64,
    last_seconds: i64,
    places: Mutex<Vec<Place>>,
}

#[derive(Clone, Default)]
struct Place {
    owner: u64,
    tried: i64,
    delay: i64,
}

impl Backoff {
    pub(crate) fn new(first_seconds: i64, last_seconds: i64) -> Backoff {
        Backoff { first_seconds, last_seconds, places: Mutex::default() }
    }

    /// Whether something may be tried now; if not, in how many seconds.
    pub(crate) fn try_now(&self, what: impl Hash, now: i64) -> Result<(), i64> {
        let owner = hash(what);
        let mut places = self.places.lock();
        if places.is_empty() {
            places.resize(PLACES, Place::default());
        }
        let place = &mut places[usize::try_from(owner % PLACES as u64).unwrap_or_default()];
        if place.owner != owner || now.saturating_sub(place.tried) > 2 * self.last_seconds {
            *place = Place { owner, tried: now, delay: self.first_seconds };
            return Ok(());
        }
        let due = place.tried + place.delay;
        if now < due {
            return Err(due - now);
        }
        place.tried = now;
        place.delay = (place.delay * 2).min(self.last_seconds);
        Ok(())
    }
}

/// When something was first seen. Who asks says when it need not be known any longer.
#[derive(Default)]
pub(crate) struct Sightings {
    since: Mutex<HashMap<u64, i64>>,
}

/// More sightings than this are kept only if they are young.
const SIGHTINGS_MAX: usize = 1_000_000;
const YOUNG_SECONDS: i64 = 600;

impl Sightings {
    /// When something was first seen: now, if it is not known.
    pub(crate) fn first(&self, what: impl Hash, now: i64) -> i64 {
        let mut since = self.since.lock();
        if since.len() >= SIGHTINGS_MAX {
            since.retain(|_, first| now.saturating_sub(*first) < YOUNG_SECONDS);
        }
        *since.entry(hash(what)).or_insert(now)
    }

    pub(crate) fn forget(&self, what: impl Hash) {
        self.since.lock().remove(&hash(what));
    }
}

fn hash(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sight_counts() {
        let seen = Sightings::default();
        seen.forget("a");
        assert_eq!([seen.first("a", 5), seen.first("a", 9), seen.first("b", 9)], [5, 5, 9]);
        seen.forget("a");
        assert_eq!([seen.first("a", 12), seen.first("b", 12)], [12, 9]);
    }

    #[test]
    fn waits_grow() {
        let backoff = Backoff::new(1, 8);
        let tries: Vec<i64> = (100..130).filter(|now| backoff.try_now("a", *now).is_ok()).collect();
        assert_eq!(tries, [100, 101, 103, 107, 115, 123]);
        assert_eq!(backoff.try_now("b", 124), Ok(()));
        assert_eq!(backoff.try_now("a", 124), Err(7));
        assert_eq!(backoff.try_now("a", 1000), Ok(()), "it is long ago");
        assert_eq!(backoff.try_now("a", 1001), Ok(()), "so it starts anew");
    }
}
