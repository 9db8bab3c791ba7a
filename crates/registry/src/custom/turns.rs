//! One writer of CRDs per plane at a time: whether names are free is decided against all the others of the plane, and
//! must still be true when the decision is stored.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use polder_model::PlaneId;
use tokio::sync::OwnedMutexGuard;

/// Idle entries beyond this are cleared away.
const IDLE_LEN_MAX: usize = 256;

#[derive(Default)]
pub(crate) struct Turns {
    planes: Mutex<HashMap<PlaneId, Arc<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    /// Waits until nobody else writes CRDs of the plane.
    pub(crate) async fn take(&self, plane: PlaneId) -> OwnedMutexGuard<()> {
        let turn = {
            let mut planes = self.planes.lock();
            if planes.len() > IDLE_LEN_MAX {
                planes.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            planes.entry(plane).or_default().clone()
        };
        turn.lock_owned().await
    }
}
