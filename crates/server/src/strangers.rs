//! Answers that no plane counts: refusals, and what anybody may ask. They are small, but one that is not taken is memory
//! all the same, so that a connection may have a few at a time, and all together not many more than there are connections.
//! Beyond that a request is not answered at all: HTTP/2 resets its stream, HTTP/1.1 closes the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Of one connection. A client whose token has expired asks a few dozen things before it notices.
const CONNECTION_MAX: usize = 64;
/// Of all connections; each may have one besides.
const TOTAL_MAX: usize = 16 * 1024;

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many answers have not been taken")]
pub(crate) struct TooManyAnswers;

/// The answers of one connection that no plane counts.
#[derive(Debug, Default)]
pub(crate) struct Strangers {
    own: Arc<AtomicUsize>,
    total: Arc<AtomicUsize>,
}

/// The place of one such answer, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct StrangerPlace {
    own: Arc<AtomicUsize>,
    total: Arc<AtomicUsize>,
}

impl Strangers {
    /// A connection's count, which is part of the server's.
    pub(crate) fn new(total: &Arc<AtomicUsize>) -> Strangers {
        Strangers { own: Arc::default(), total: total.clone() }
    }

    pub(crate) fn enter(&self) -> Result<StrangerPlace, TooManyAnswers> {
        let place = StrangerPlace { own: self.own.clone(), total: self.total.clone() };
        let own = self.own.fetch_add(1, Ordering::Relaxed);
        let total = self.total.fetch_add(1, Ordering::Relaxed);
        if own >= CONNECTION_MAX || (own > 0 && total >= TOTAL_MAX) {
            return Err(TooManyAnswers);
        }
        Ok(place)
    }
}

impl Drop for StrangerPlace {
    fn drop(&mut self) {
        self.own.fetch_sub(1, Ordering::Relaxed);
        self.total.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_always_answered_and_many_are_not() {
        let total = Arc::new(AtomicUsize::new(0));
        let greedy = Strangers::new(&total);
        let places: Vec<_> = (0..CONNECTION_MAX).map(|_| greedy.enter().unwrap()).collect();
        assert!(greedy.enter().is_err());
        let other = Strangers::new(&total);
        total.fetch_add(TOTAL_MAX, Ordering::Relaxed);
        let first = other.enter();
        assert!(first.is_ok() && other.enter().is_err());
        drop((places, first));
        assert_eq!(total.load(Ordering::Relaxed), TOTAL_MAX);
    }
}
