//! How long to wait before something is tried again that keeps failing. What is remembered is a table of fixed size;
//! who comes to an occupied place takes it.

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
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        let owner = hasher.finish();
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

#[cfg(test)]
mod tests {
    use super::*;

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
