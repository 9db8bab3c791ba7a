//! What was converted a moment ago, for the many who watch it: each of them sees the same change at the same time, and
//! the webhook is asked once. Reads do not look here: whoever mends a webhook sees what it makes of things now.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use polder_model::{PlaneId, SmolStr, Status};
use polder_store::{ObjectName, ResourceId, Revision, StoredObject};
use tokio::sync::OnceCell;

/// Changes that are kept, and what one of them may weigh to be kept longer than somebody waits for it.
const LEN_MAX: usize = 256;
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// One version of one object, in another version of its kind, under one definition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) conversion: u64,
    pub(crate) plane: PlaneId,
    pub(crate) resource: ResourceId,
    pub(crate) version: SmolStr,
    pub(crate) name: ObjectName,
    pub(crate) revision: Revision,
}

type Converted = Result<Arc<StoredObject>, Status>;

#[derive(Default)]
pub(crate) struct Shared {
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    cells: HashMap<Key, Arc<OnceCell<Converted>>>,
    /// The oldest first.
    order: VecDeque<Key>,
}

impl Slots {
    fn cell(&mut self, key: &Key) -> Arc<OnceCell<Converted>> {
        if let Some(cell) = self.cells.get(key) {
            return cell.clone();
        }
        while self.order.len() >= LEN_MAX {
            let oldest = self.order.pop_front();
            oldest.and_then(|oldest| self.cells.remove(&oldest));
        }
        self.order.push_back(key.clone());
        self.cells.entry(key.clone()).or_default().clone()
    }

    fn forget(&mut self, key: &Key) {
        if self.cells.remove(key).is_some() {
            self.order.retain(|own| own != key);
        }
    }
}

impl Shared {
    /// What others have made of it, or are making; what `make` gives otherwise. If whoever makes it gives up, the next one
    /// does. A failure is told to all who wait for it, and tried anew by whoever comes later.
    pub(crate) async fn get(&self, key: Key, make: impl Future<Output = Converted>) -> Converted {
        let cell = self.slots.lock().cell(&key);
        let converted = cell.get_or_init(|| make).await.clone();
        if converted.as_ref().is_ok_and(|stored| stored.record.len() <= KEPT_BYTES_MAX) {
            return converted;
        }
        let mut slots = self.slots.lock();
        if slots.cells.get(&key).is_some_and(|own| Arc::ptr_eq(own, &cell)) {
            slots.forget(&key);
        }
        converted
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use polder_model::json;
    use polder_store::{Record, SpaceId};

    use super::*;

    fn key(revision: u64) -> Key {
        Key {
            conversion: 1,
            plane: PlaneId(2),
            resource: ResourceId(3),
            version: "v2".into(),
            name: ObjectName::new("n", "w"),
            revision: Revision(revision),
        }
    }

    fn stored(text: &str) -> Converted {
        let record = Record::encode(&json!({"metadata": {}, "spec": (text.to_owned())}));
        let (name, revision, space) = (ObjectName::new("n", "w"), Revision(1), SpaceId(1));
        Ok(Arc::new(StoredObject { name, revision, space, record }))
    }

    #[tokio::test]
    async fn many_who_wait_ask_once() {
        let (shared, asked) = (Shared::default(), AtomicUsize::new(0));
        let make = || async {
            asked.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            stored("a")
        };
        let all = (0..100).map(|_| shared.get(key(1), make()));
        assert!(futures_util::future::join_all(all).await.iter().all(Result::is_ok));
        shared.get(key(1), make()).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        // One who gives up leaves it to the next.
        let slow = shared.get(key(2), std::future::pending());
        assert!(tokio::time::timeout(std::time::Duration::from_millis(1), slow).await.is_err());
        shared.get(key(2), make()).await.unwrap();
    }

    #[tokio::test]
    async fn failures_and_heavy_ones_are_not_kept() {
        let shared = Shared::default();
        shared.get(key(1), async { Err(Status::untyped(500, "no")) }).await.unwrap_err();
        shared.get(key(1), async { stored("a") }).await.unwrap();
        shared.get(key(2), async { stored(&"a".repeat(KEPT_BYTES_MAX)) }).await.unwrap();
        shared.get(key(2), async { Err(Status::untyped(500, "no")) }).await.unwrap_err();
        for revision in 0..2000 {
            shared.get(key(revision), async { stored("a") }).await.unwrap();
        }
        let slots = shared.slots.lock();
        assert!(slots.cells.len() <= LEN_MAX && slots.order.len() == slots.cells.len());
    }
}
