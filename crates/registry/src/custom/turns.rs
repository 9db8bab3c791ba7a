//! One writer at a time of what depends on others: CRDs of a plane, whose names are free or not; objects of a namespace
//! that a quota counts. What was decided must still be true when it is stored.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use polder_model::PlaneId;
use tokio::sync::OwnedMutexGuard;

/// Idle entries beyond this are cleared away.
const IDLE_LEN_MAX: usize = 256;

pub(crate) struct Turns<K = PlaneId> {
    places: Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>,
}

impl<K> Default for Turns<K> {
    fn default() -> Turns<K> {
        Turns { places: Mutex::default() }
    }
}

impl<K: Hash + Eq> Turns<K> {
    /// Waits until nobody else writes in this place.
    pub(crate) async fn take(&self, place: K) -> OwnedMutexGuard<()> {
        let turn = {
            let mut places = self.places.lock();
            if places.len() > IDLE_LEN_MAX {
                places.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            places.entry(place).or_default().clone()
        };
        turn.lock_owned().await
    }
}
