//! Memory for what extension servers answer to this server itself: in all, and for one plane. Nobody waits for it: who finds none
//! fails, and is asked again later.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use polder_model::PlaneId;

/// What is no longer than this takes no room: there is enough for as many calls as there can be.
const SMALL_BYTES: usize = 16 << 10;
const ALL_BYTES_MAX: usize = 128 << 20;
const PLANE_BYTES_MAX: usize = 8 << 20;

#[derive(Default)]
pub(super) struct Room(Mutex<Taken>);

#[derive(Default)]
struct Taken {
    all: usize,
    planes: HashMap<PlaneId, usize>,
}

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
        let more = bytes - self.bytes;
        let mut taken = self.room.0.lock();
        let own = taken.planes.get(&self.plane).copied().unwrap_or_default() + more;
        // The fuller it is, the less one plane may have.
        let own_max = PLANE_BYTES_MAX.min((ALL_BYTES_MAX - taken.all) / 4);
        if taken.all + more > ALL_BYTES_MAX || own > own_max {
            return false;
        }
        taken.all += more;
        taken.planes.insert(self.plane, own);
        self.bytes = bytes;
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut taken = self.room.0.lock();
        taken.all -= self.bytes;
        if let Some(own) = taken.planes.get_mut(&self.plane) {
            *own -= self.bytes;
            if *own == 0 {
                taken.planes.remove(&self.plane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plane_takes_its_share_and_gives_it_back() {
        let room = Arc::new(Room::default());
        let mut one = Held::new(&room, PlaneId(1));
        assert!(one.grow(SMALL_BYTES) && room.0.lock().all == 0, "small things are free");
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
        assert!(room.0.lock().all == 0 && room.0.lock().planes.is_empty());
    }
}
