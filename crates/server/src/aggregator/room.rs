//! Memory for what extension servers answer to this server itself: in all, and for one plane. Nobody waits for it: who finds none
//! fails, and is asked again later.

use std::sync::Arc;

use parking_lot::Mutex;
use polder_model::{PlaneId, Shares};

/// What is no longer than this takes no room: there is enough for as many calls as there can be.
const SMALL_BYTES: usize = 16 << 10;
const ALL_BYTES_MAX: usize = 128 << 20;
const PLANE_BYTES_MAX: usize = 8 << 20;

#[derive(Default)]
pub(super) struct Room(Mutex<Shares>);

/// Room that somebody has, until it is dropped.
pub(super) struct Held {
    room: Arc<Room>,
    plane: PlaneId,
    bytes: usize,
}

impl Held {
    pub(super) fn new(room: &Arc<Room>, plane: PlaneId) -> Held {
        Held { room: room.clone(), plane, bytes: 0 }
    }

    /// Makes it enough for so many bytes; false when there is not that much.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        if bytes <= SMALL_BYTES.max(self.bytes) {
            return true;
        }
        let mut taken = self.room.0.lock();
        // The fuller it is, the less one plane may have.
        let own_max = PLANE_BYTES_MAX.min((ALL_BYTES_MAX - taken.all()) / 4);
        let has = taken.take(self.plane, bytes - self.bytes, own_max, ALL_BYTES_MAX);
        if has {
            self.bytes = bytes;
        }
        has
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.0.lock().give_back(self.plane, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_takes_its_share_and_gives_it_back() {
        let room = Arc::new(Room::default());
        let mut one = Held::new(&room, PlaneId(1));
        assert!(one.grow(SMALL_BYTES) && room.0.lock().all() == 0, "small things are free");
        assert!(one.grow(PLANE_BYTES_MAX));
        let (mut two, mut other) = (Held::new(&room, PlaneId(1)), Held::new(&room, PlaneId(2)));
        assert!(!two.grow(1 << 20) && other.grow(1 << 20));
        drop(one);
        assert!(two.grow(1 << 20));
        let many: Vec<Held> = (10..100)
            .map(|plane| {
                let mut held = Held::new(&room, PlaneId(plane));
                held.grow(PLANE_BYTES_MAX);
                held
            })
            .collect();
        let mut late = Held::new(&room, PlaneId(1000));
        assert!(late.grow(1 << 20), "there is something left for whoever comes late");
        drop((two, other, many, late));
        assert_eq!(room.0.lock().all(), 0);
    }
}
