//! What was converted a moment ago, for the many who watch it: each of them sees the same change at the same time, and
//! the webhook is asked once. Reads do not look here: whoever mends a webhook sees what it makes of things now.
//!
//! Invariant: what is being made belongs to all who wait for it. Whoever of them is asked goes on with it, so one that nobody
//! asks any more, because its client takes nothing, holds up none of the others; and it ends with the last of them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared as Common, WeakShared};
use parking_lot::Mutex;
use polder_model::{PlaneId, SmolStr, Status};
use polder_store::{ObjectName, ResourceId, Revision, StoredObject};

/// Changes that are kept, and what they may weigh together and each, to be kept longer than somebody waits for them.
const LEN_MAX: usize = 1024;
const BYTES_MAX: usize = 16 * 1024 * 1024;
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// How often somebody waits for what others make of it, before it is made alone.
const WAITS_MAX: usize = 2;

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

pub(crate) type Converting<T> = BoxFuture<'static, Result<T, Status>>;

/// What becomes of one or more objects: of all, or of the first of them.
type Converted = Converting<Arc<[Arc<StoredObject>]>>;

#[derive(Default)]
pub(crate) struct Shared {
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    slots: HashMap<Key, Slot>,
    /// The oldest first.
    order: VecDeque<Key>,
    bytes: usize,
    next_id: u64,
}

enum Slot {
    /// Among others that are made together.
    Making {
        making: WeakShared<Converted>,
        place: Place,
    },
    Made(Arc<StoredObject>),
}

/// Where an object is among those that are made together.
#[derive(Clone, Copy)]
struct Place {
    id: u64,
    at: usize,
    is_alone: bool,
}

enum Found {
    Making(Common<Converted>, Place),
    Made(Arc<StoredObject>),
}

impl Slots {
    /// What is made, or being made by somebody who is still there.
    fn find(&self, key: &Key) -> Option<Found> {
        match self.slots.get(key)? {
            Slot::Making { making, place } => making.upgrade().map(|making| Found::Making(making, *place)),
            Slot::Made(object) => Some(Found::Made(object.clone())),
        }
    }

    /// Notes that these are being made.
    fn begin(&mut self, keys: &[Key], converted: Converted) -> (Common<Converted>, u64) {
        let making = converted.shared();
        self.next_id += 1;
        let (id, is_alone) = (self.next_id, keys.len() == 1);
        for (at, key) in keys.iter().enumerate() {
            let Some(making) = making.downgrade() else { continue };
            self.put(key, Slot::Making { making, place: Place { id, at, is_alone } });
        }
        (making, id)
    }

    fn put(&mut self, key: &Key, slot: Slot) {
        self.forget(key);
        self.bytes += slot.weight();
        while self.order.len() >= LEN_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.bytes -= self.slots.remove(&oldest).map_or(0, |slot| slot.weight());
        }
        self.order.push_back(key.clone());
        self.slots.insert(key.clone(), slot);
    }

    fn forget(&mut self, key: &Key) {
        if let Some(slot) = self.slots.remove(key) {
            self.bytes -= slot.weight();
            self.order.retain(|own| own != key);
        }
    }

    /// Keeps what was made, if that is still what somebody waits for.
    fn finish(&mut self, key: &Key, id: u64, made: Option<&Arc<StoredObject>>) {
        let is_own = matches!(self.slots.get(key), Some(Slot::Making { place, .. }) if place.id == id);
        match made.filter(|object| object.record.len() <= KEPT_BYTES_MAX) {
            _ if !is_own => {}
            Some(object) => self.put(key, Slot::Made(object.clone())),
            None => self.forget(key),
        }
    }
}

impl Slot {
    fn weight(&self) -> usize {
        match self {
            Slot::Making { .. } => 0,
            Slot::Made(object) => object.record.len(),
        }
    }
}

impl Shared {
    /// What others have made of an object, or are making; what `make` gives otherwise. If it fails, that is told to all who
    /// wait for it, and tried anew by whoever comes later.
    pub(crate) async fn get(
        &self,
        key: Key,
        make: impl Fn() -> Converting<Arc<StoredObject>>,
    ) -> Result<Arc<StoredObject>, Status> {
        for _ in 0..WAITS_MAX {
            let found = {
                let mut slots = self.slots.lock();
                slots.find(&key).unwrap_or_else(|| {
                    let converted = make().map(|made| made.map(|object| Arc::from([object]))).boxed();
                    let (making, id) = slots.begin(std::slice::from_ref(&key), converted);
                    Found::Making(making, Place { id, at: 0, is_alone: true })
                })
            };
            let (making, place) = match found {
                Found::Made(object) => return Ok(object),
                Found::Making(making, place) => (making, place),
            };
            let converted = making.await;
            let made = converted.as_ref().ok().and_then(|objects| objects.get(place.at));
            self.slots.lock().finish(&key, place.id, made);
            match (made, &converted) {
                (Some(object), _) => return Ok(object.clone()),
                (None, Err(status)) if place.is_alone => return Err(status.clone()),
                // Another one may have been at fault, or it did not fit in with the others.
                _ => {}
            }
        }
        make().await
    }

    /// Makes what will be asked for next, all at once, as far as nobody has done so. If that fails, whoever asks is told.
    pub(crate) async fn prepare(
        &self,
        mut wanted: Vec<(Key, Arc<StoredObject>)>,
        make: impl FnOnce(Vec<Arc<StoredObject>>) -> Converting<Vec<Arc<StoredObject>>>,
    ) {
        let (keys, making, id) = {
            let mut slots = self.slots.lock();
            wanted.retain(|(key, _)| slots.find(key).is_none());
            if wanted.len() < 2 {
                return;
            }
            let (keys, objects): (Vec<Key>, Vec<_>) = wanted.into_iter().unzip();
            let (making, id) = slots.begin(&keys, make(objects).map(|made| made.map(Arc::from)).boxed());
            (keys, making, id)
        };
        let converted = making.await;
        let mut slots = self.slots.lock();
        for (at, key) in keys.iter().enumerate() {
            slots.finish(key, id, converted.as_ref().ok().and_then(|objects| objects.get(at)));
        }
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

    type Made = Result<Arc<StoredObject>, Status>;

    fn stored(text: &str) -> Made {
        let record = Record::encode(&json!({"metadata": {}, "spec": (text.to_owned())}));
        let (name, revision, space) = (ObjectName::new("n", "w"), Revision(1), SpaceId(1));
        Ok(Arc::new(StoredObject { name, revision, space, record }))
    }

    fn ready(made: Made) -> impl Fn() -> Converting<Arc<StoredObject>> {
        move || std::future::ready(made.clone()).boxed()
    }

    #[tokio::test]
    async fn many_who_wait_ask_once() {
        let (shared, asked) = (Shared::default(), Arc::new(AtomicUsize::new(0)));
        let make = || {
            let asked = asked.clone();
            let converting = async move {
                asked.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                stored("a")
            };
            converting.boxed()
        };
        let all = (0..100).map(|_| shared.get(key(1), make));
        assert!(futures_util::future::join_all(all).await.iter().all(Result::is_ok));
        shared.get(key(1), make).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        // If all give up, it is begun anew.
        let slow = shared.get(key(2), || std::future::pending().boxed());
        assert!(tokio::time::timeout(std::time::Duration::from_millis(1), slow).await.is_err());
        shared.get(key(2), make).await.unwrap();
    }

    #[tokio::test]
    async fn one_whom_nobody_asks_any_more_holds_up_nobody() {
        let shared = Shared::default();
        let make = || {
            let converting = async {
                tokio::task::yield_now().await;
                stored("a")
            };
            converting.boxed()
        };
        let mut stalled = Box::pin(shared.get(key(1), make));
        assert!((&mut stalled).now_or_never().is_none(), "it has begun");
        shared.get(key(1), || unreachable!("it is being made")).await.unwrap();
        stalled.await.unwrap();
    }

    #[tokio::test]
    async fn what_comes_next_is_made_together() {
        let shared = Shared::default();
        let wanted = |revisions: &[u64]| -> Vec<(Key, Arc<StoredObject>)> {
            revisions.iter().map(|revision| (key(*revision), stored("a").unwrap())).collect()
        };
        let made = |_| -> Converting<Vec<Arc<StoredObject>>> {
            // The last one does not fit in.
            std::future::ready(Ok(vec![stored("1").unwrap(), stored("2").unwrap()])).boxed()
        };
        shared.prepare(wanted(&[1, 2, 3]), made).await;
        for revision in [1, 2] {
            shared.get(key(revision), || unreachable!("it is made")).await.unwrap();
        }
        shared.get(key(3), ready(stored("3"))).await.unwrap();
        // If one of them fails, each is made alone.
        shared
            .prepare(wanted(&[4, 5]), |_| std::future::ready(Err(Status::untyped(500, "no"))).boxed())
            .await;
        shared.get(key(4), ready(stored("4"))).await.unwrap();
        shared.get(key(5), ready(Err(Status::untyped(500, "no")))).await.unwrap_err();
        // What is made or being made is not made again.
        shared.prepare(wanted(&[1, 2, 6]), |_| unreachable!("one is made alone")).await;
    }

    #[tokio::test]
    async fn failures_and_heavy_ones_are_not_kept() {
        let shared = Shared::default();
        let refused = || Err(Status::untyped(500, "no"));
        shared.get(key(1), ready(refused())).await.unwrap_err();
        shared.get(key(1), ready(stored("a"))).await.unwrap();
        shared.get(key(2), ready(stored(&"a".repeat(KEPT_BYTES_MAX)))).await.unwrap();
        shared.get(key(2), ready(refused())).await.unwrap_err();
        for revision in 0..2 * LEN_MAX as u64 {
            shared.get(key(revision), ready(stored("a"))).await.unwrap();
        }
        assert_eq!(shared.slots.lock().slots.len(), LEN_MAX);
        let heavy = "a".repeat(KEPT_BYTES_MAX - 100);
        for revision in 0..LEN_MAX as u64 {
            shared.get(key(10_000 + revision), ready(stored(&heavy))).await.unwrap();
        }
        let slots = shared.slots.lock();
        assert!(slots.order.len() == slots.slots.len() && slots.bytes <= BYTES_MAX);
        assert_eq!(slots.bytes, slots.slots.values().map(Slot::weight).sum::<usize>());
    }
}
