//! Memory for what is long, in all and for one tenant. Nobody waits for it: who finds none fails.

use std::sync::Arc;

use parking_lot::Mutex;
use polder_model::{PlaneId, Shares};

/// What is no longer than this takes no room: there is enough for as many as there can be.
pub(crate) const SMALL_BYTES: usize = 64 << 10;
const ALL_BYTES_MAX: usize = 256 << 20;
const TENANT_BYTES_MAX: usize = 32 << 20;

#[derive(Debug, Default)]
pub(crate) struct Room(Mutex<Shares>);

/// Room that somebody has, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    room: Arc<Room>,
    tenant: PlaneId,
    bytes: usize,
}

impl Held {
    pub(crate) fn new(room: &Arc<Room>, tenant: u64) -> Held {
        Held { room: room.clone(), tenant: PlaneId(tenant), bytes: 0 }
    }

    /// Makes it enough for so many bytes; false when there is not that much.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        if bytes <= SMALL_BYTES.max(self.bytes) {
            return true;
        }
        let more = bytes - self.bytes;
        let has = self.room.0.lock().take(self.tenant, more, TENANT_BYTES_MAX, ALL_BYTES_MAX);
        if has {
            self.bytes = bytes;
        }
        has
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.0.lock().give_back(self.tenant, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_takes_its_share_and_gives_it_back() {
        let room = Arc::new(Room::default());
        let mut one = Held::new(&room, 1);
        assert!(one.grow(SMALL_BYTES) && room.0.lock().all() == 0, "small things are free");
        assert!(one.grow(TENANT_BYTES_MAX - 1));
        let (mut two, mut other) = (Held::new(&room, 1), Held::new(&room, 2));
        assert!(!two.grow(1 << 20) && other.grow(1 << 20));
        drop(one);
        assert!(two.grow(1 << 20));
        let many: Vec<(Held, bool)> = (10..30)
            .map(|tenant| {
                let mut held = Held::new(&room, tenant);
                let grown = held.grow(TENANT_BYTES_MAX);
                (held, grown)
            })
            .collect();
        assert_eq!(many.iter().filter(|(_, grown)| *grown).count(), 7);
        drop((two, other, many));
        assert_eq!(room.0.lock().all(), 0);
    }
}
