//! Memory for what is long, in all and for one tenant. Nobody waits for it: who finds none fails.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// What is no longer than this takes no room: there is enough for as many as there can be.
pub(crate) const SMALL_BYTES: usize = 64 << 10;
const ALL_BYTES_MAX: usize = 256 << 20;
const TENANT_BYTES_MAX: usize = 32 << 20;

#[derive(Debug, Default)]
pub(crate) struct Room {
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    tenants: HashMap<u64, usize>,
}

/// Room that somebody has, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    room: Arc<Room>,
    tenant: u64,
    bytes: usize,
}

impl Held {
    pub(crate) fn new(room: &Arc<Room>, tenant: u64) -> Held {
        Held { room: room.clone(), tenant, bytes: 0 }
    }

    /// Makes it enough for so many bytes; false when there is not that much.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        if bytes <= SMALL_BYTES.max(self.bytes) {
            return true;
        }
        let more = bytes - self.bytes;
        let mut taken = self.room.taken.lock();
        let own = taken.tenants.get(&self.tenant).copied().unwrap_or(0);
        if taken.all + more > ALL_BYTES_MAX || own + more > TENANT_BYTES_MAX {
            return false;
        }
        taken.all += more;
        taken.tenants.insert(self.tenant, own + more);
        self.bytes = bytes;
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut taken = self.room.taken.lock();
        taken.all -= self.bytes;
        if let Some(own) = taken.tenants.get_mut(&self.tenant) {
            *own -= self.bytes;
            if *own == 0 {
                taken.tenants.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_takes_its_share_and_gives_it_back() {
        let room = Arc::new(Room::default());
        let mut one = Held::new(&room, 1);
        assert!(one.grow(SMALL_BYTES) && room.taken.lock().all == 0, "small things are free");
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
        assert!(room.taken.lock().all == 0 && room.taken.lock().tenants.is_empty());
    }
}
