//! How long to wait before something is tried again that keeps failing, and since when something has been seen. What
//! is remembered is a table of fixed size; who comes to an occupied place takes it.

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

/// When something was first seen.
#[derive(Default)]
pub(crate) struct Sightings {
    /// Who is there, and since when.
    places: Mutex<Vec<(u64, i64)>>,
}

impl Sightings {
    /// When something was first seen: now, if it is not known.
    pub(crate) fn first(&self, what: impl Hash, now: i64) -> i64 {
        let owner = hash(what);
        let mut places = self.places.lock();
        if places.is_empty() {
            places.resize(PLACES, (0, 0));
        }
        let place = &mut places[usize::try_from(owner % PLACES as u64).unwrap_or_default()];
        if place.0 != owner {
            *place = (owner, now);
        }
        place.1
    }

    pub(crate) fn forget(&self, what: impl Hash) {
        let owner = hash(what);
        let mut places = self.places.lock();
        let number = usize::try_from(owner % PLACES as u64).unwrap_or_default();
        if let Some(place) = places.get_mut(number).filter(|place| place.0 == owner) {
            *place = (0, 0);
        }
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
