//! Who may hold much at one time: a turn of a controller that reads a large collection of its plane whole.
//!
//! Small lists need no place. A turn that reads more waits for one of a few places, and keeps it until it ends, since that is how
//! long it may hold what it read.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

tokio::task_local! {
    static HELD: Mutex<Option<OwnedSemaphorePermit>>;
}

/// The places.
#[derive(Clone, Debug)]
pub struct Places(Arc<Semaphore>);

impl Places {
    pub fn new(len: usize) -> Places {
        Places(Arc::new(Semaphore::new(len)))
    }

    /// Waits for a place, unless this turn has one. Outside of a turn it is kept until the value returned is dropped.
    pub async fn take(&self) -> Option<OwnedSemaphorePermit> {
        if HELD.try_with(|held| held.lock().is_some()).unwrap_or(false) {
            return None;
        }
        // Nobody closes it.
        let place = self.0.clone().acquire_owned().await.ok()?;
        let mut place = Some(place);
        HELD.try_with(|held| *held.lock() = place.take()).ok();
        place
    }
}

/// Runs a turn: a place that is taken in it is given back at its end.
pub async fn within_turn<T>(work: impl Future<Output = T>) -> T {
    HELD.scope(Mutex::new(None), work).await
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_turn_has_one_place_until_it_ends() {
        let places = Places::new(1);
        let turn = within_turn(async {
            assert!(places.take().await.is_none(), "the turn keeps it");
            assert!(places.take().await.is_none(), "and needs no other");
            assert!(within_turn(places.take()).now_or_never().is_none(), "another turn waits");
        });
        turn.await;
        assert!(places.take().now_or_never().is_some_and(|place| place.is_some()));
    }
}
