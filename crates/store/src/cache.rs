//! Hot collections in memory: a bounded set of (plane, resource) pairs whose objects are all here, uncompressed and
//! in order, so that a hot get or list costs no disk read and no decoding.
//!
//! A loaded collection is complete and equals the newest durable state: the committer applies every change to it.
//! Lists take a snapshot (a persistent map, so that is one pointer copy) and read it without a lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use imbl::OrdMap;
use parking_lot::RwLock;
use polder_model::{PlaneId, SmolStr};

use crate::key::{ObjectName, ResourceId, Revision};
use crate::object::StoredObject;

/// Single reads of a cold collection before it is loaded; a list loads at once.
const GETS_BEFORE_LOAD: u64 = 4;
/// Reads of a collection that was too large, before somebody tries again to load it.
const READS_BEFORE_RETRY: u64 = 1_000;
/// Changes that may arrive while a collection is being loaded.
const LOADING_CHANGES_MAX: usize = 10_000;
/// Cold collections whose reads are counted.
const COLD_LEN_MAX: usize = 16_384;
/// Memory an object costs beside its record.
const OBJECT_OVERHEAD: usize = 200;
/// Memory a loaded collection costs, even an empty one: without it empty collections would be free, and kept forever.
const COLLECTION_OVERHEAD: usize = 400;
const SHARDS: usize = 16;

type CollectionKey = (PlaneId, ResourceId);

/// The objects of one collection at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) objects: OrdMap<ObjectName, Arc<StoredObject>>,
    /// How many objects each namespace has.
    counts: OrdMap<SmolStr, u64>,
    /// No change later than this is in it; it may be later than the newest one.
    pub(crate) last_change: Revision,
}

impl Snapshot {
    fn new(objects: OrdMap<ObjectName, Arc<StoredObject>>, last_change: Revision) -> Snapshot {
        let mut snapshot = Snapshot { objects, counts: OrdMap::new(), last_change };
        let mut names = snapshot.objects.keys().map(|name| &name.namespace).peekable();
        while let Some(namespace) = names.next() {
            let mut count = 1;
            while names.next_if_eq(&namespace).is_some() {
                count += 1;
            }
            snapshot.counts.insert(namespace.clone(), count);
        }
        snapshot
    }

    /// How many objects there are, in all or in one namespace.
    pub(crate) fn count(&self, namespace: Option<&str>) -> u64 {
        match namespace {
            Some(namespace) => self.counts.get(namespace).copied().unwrap_or(0),
            None => self.objects.len() as u64,
        }
    }

    fn count_change(&mut self, namespace: &SmolStr, before: bool, after: bool) {
        let count = self.counts.get(namespace).copied().unwrap_or(0);
        match (before, after) {
            (false, true) => drop(self.counts.insert(namespace.clone(), count + 1)),
            (true, false) if count > 1 => drop(self.counts.insert(namespace.clone(), count - 1)),
            (true, false) => drop(self.counts.remove(namespace)),
            (true, true) | (false, false) => {}
        }
    }
}

#[derive(Debug)]
pub(crate) struct Cache {
    shards: [RwLock<BTreeMap<CollectionKey, Slot>>; SHARDS],
    bytes: AtomicUsize,
    /// Of collections that are being loaded; not in `bytes` yet.
    loading_bytes: AtomicUsize,
    bytes_max: usize,
    clock: AtomicU64,
}

/// What one load holds. All of them together may hold as much as the cache.
pub(crate) struct Loading<'a> {
    cache: &'a Cache,
    bytes: usize,
}

impl Loading<'_> {
    /// False when there is no room for one more object.
    pub(crate) fn add(&mut self, object: &StoredObject) -> bool {
        let bytes = weight(object);
        self.bytes += bytes;
        self.cache.loading_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.cache.bytes_max
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.cache.loading_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum Slot {
    /// Not here; single reads are counted.
    Cold { gets: AtomicU64 },
    /// Too large when it was last looked at, which is a lot to read for nothing: reads are counted.
    Large { reads: AtomicU64 },
    /// Being read from the engine; changes that arrive meanwhile wait here. `None` after too many.
    Loading { changes: Option<Vec<CacheChange>> },
    Loaded {
        snapshot: Snapshot,
        /// The revision it was read at: changes up to it are in it already.
        loaded_at: Revision,
        bytes: usize,
        used: AtomicU64,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct CacheChange {
    pub(crate) revision: Revision,
    pub(crate) name: ObjectName,
    pub(crate) object: Option<Arc<StoredObject>>,
}

/// What came of reading a whole collection.
pub(crate) enum Load {
    Whole(OrdMap<ObjectName, Arc<StoredObject>>),
    TooLarge,
    Failed,
}

/// What a single read finds.
pub(crate) enum Lookup {
    /// The object, and the newest change that can have made it so.
    Found(Option<Arc<StoredObject>>, Revision),
    Cold,
    /// Cold, but read often enough to be worth loading.
    Warm,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Cache {
        Cache {
            shards: std::array::from_fn(|_| RwLock::default()),
            bytes: AtomicUsize::new(0),
            loading_bytes: AtomicUsize::new(0),
            bytes_max,
            clock: AtomicU64::new(1),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A collection larger than this is never loaded: it would push everybody else's out.
    pub(crate) fn collection_bytes_max(&self) -> usize {
        self.bytes_max / 4
    }

    pub(crate) fn loading(&self) -> Loading<'_> {
        Loading { cache: self, bytes: 0 }
    }

    pub(crate) fn get(&self, plane: PlaneId, resource: ResourceId, name: &ObjectName) -> Lookup {
        let shard = self.shard((plane, resource)).read();
        match shard.get(&(plane, resource)) {
            Some(Slot::Loaded { snapshot, used, .. }) => {
                used.store(self.tick(), Ordering::Relaxed);
                Lookup::Found(snapshot.objects.get(name).cloned(), snapshot.last_change)
            }
            Some(Slot::Loading { .. }) => Lookup::Cold,
            Some(Slot::Cold { gets }) => {
                if gets.fetch_add(1, Ordering::Relaxed) >= GETS_BEFORE_LOAD {
                    Lookup::Warm
                } else {
                    Lookup::Cold
                }
            }
            Some(Slot::Large { reads }) => {
                if reads.fetch_add(1, Ordering::Relaxed) >= READS_BEFORE_RETRY {
                    Lookup::Warm
                } else {
                    Lookup::Cold
                }
            }
            None => {
                drop(shard);
                let mut shard = self.shard((plane, resource)).write();
                if shard.len() < COLD_LEN_MAX / SHARDS {
                    shard.entry((plane, resource)).or_insert_with(|| Slot::Cold { gets: AtomicU64::new(1) });
                } else {
                    shard.retain(|_, slot| !matches!(slot, Slot::Cold { .. } | Slot::Large { .. }));
                }
                Lookup::Cold
            }
        }
    }

    pub(crate) fn snapshot(&self, plane: PlaneId, resource: ResourceId) -> Option<Snapshot> {
        let shard = self.shard((plane, resource)).read();
        match shard.get(&(plane, resource)) {
            Some(Slot::Loaded { snapshot, used, .. }) => {
                used.store(self.tick(), Ordering::Relaxed);
                Some(snapshot.clone())
            }
            _ => None,
        }
    }

    /// Claims the right to load a collection. From here on changes to it are kept aside, so that whatever the
    /// loader's scan misses is applied on top of it.
    pub(crate) fn begin_load(&self, plane: PlaneId, resource: ResourceId) -> bool {
        let mut shard = self.shard((plane, resource)).write();
        match shard.get(&(plane, resource)) {
            Some(Slot::Loading { .. } | Slot::Loaded { .. }) => false,
            Some(Slot::Large { reads }) if reads.fetch_add(1, Ordering::Relaxed) < READS_BEFORE_RETRY => {
                false
            }
            Some(Slot::Cold { .. } | Slot::Large { .. }) | None => {
                shard.insert((plane, resource), Slot::Loading { changes: Some(Vec::new()) });
                true
            }
        }
    }

    /// Ends a load. `loaded_at` is the revision of the scan, read after the load began.
    pub(crate) fn end_load(&self, plane: PlaneId, resource: ResourceId, load: Load, loaded_at: Revision) {
        let mut shard = self.shard((plane, resource)).write();
        let Some(Slot::Loading { changes }) = shard.remove(&(plane, resource)) else { return };
        let (objects, changes) = match (load, changes) {
            (Load::Whole(objects), Some(changes)) => (objects, changes),
            (Load::TooLarge, _) => {
                shard.insert((plane, resource), Slot::Large { reads: AtomicU64::new(0) });
                return;
            }
            (Load::Failed, _) | (_, None) => return,
        };
        let mut total = COLLECTION_OVERHEAD + objects.values().map(|object| weight(object)).sum::<usize>();
        let mut snapshot = Snapshot::new(objects, loaded_at);
        for change in changes.into_iter().filter(|change| change.revision > loaded_at) {
            apply(&mut snapshot, &mut total, change);
        }
        self.bytes.fetch_add(total, Ordering::Relaxed);
        let used = AtomicU64::new(self.tick());
        shard.insert((plane, resource), Slot::Loaded { snapshot, loaded_at, bytes: total, used });
        drop(shard);
        self.evict();
    }

    /// Takes all of a group's changes to a collection in, at once: no reader may see half a commit. Only the
    /// committer calls this, in revision order.
    pub(crate) fn change(&self, plane: PlaneId, resource: ResourceId, changes: Vec<CacheChange>) {
        let mut shard = self.shard((plane, resource)).write();
        match shard.get_mut(&(plane, resource)) {
            Some(Slot::Loaded { snapshot, loaded_at, bytes, .. }) => {
                let before = *bytes;
                for change in changes.into_iter().filter(|change| change.revision > *loaded_at) {
                    apply(snapshot, bytes, change);
                }
                let after = *bytes;
                self.bytes.fetch_add(after, Ordering::Relaxed);
                self.bytes.fetch_sub(before, Ordering::Relaxed);
            }
            Some(Slot::Loading { changes: kept }) => {
                if let Some(waiting) = kept {
                    waiting.extend(changes);
                    if waiting.len() > LOADING_CHANGES_MAX {
                        *kept = None;
                    }
                }
            }
            Some(Slot::Cold { .. } | Slot::Large { .. }) | None => {}
        }
    }

    /// Forgets everything of a plane.
    pub(crate) fn forget_plane(&self, plane: PlaneId) {
        let mut shard = self.shard((plane, ResourceId(0))).write();
        let own = (plane, ResourceId(0))..=(plane, ResourceId(u32::MAX));
        let keys: Vec<CollectionKey> = shard.range(own).map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(Slot::Loaded { bytes, .. }) = shard.remove(&key) {
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
    }

    /// Lets the least recently used collections go until the rest fits.
    pub(crate) fn evict(&self) {
        if self.bytes() <= self.bytes_max {
            return;
        }
        let mut loaded = Vec::new();
        for shard in &self.shards {
            for (key, slot) in shard.read().iter() {
                if let Slot::Loaded { used, .. } = slot {
                    loaded.push((used.load(Ordering::Relaxed), *key));
                }
            }
        }
        loaded.sort_unstable();
        for (_, key) in loaded {
            if self.bytes() <= self.bytes_max - self.bytes_max / 8 {
                break;
            }
            if let Some(Slot::Loaded { bytes, .. }) = self.shard(key).write().remove(&key) {
                self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
    }

    /// All collections of a plane are in one shard, so that forgetting a plane looks at no other.
    fn shard(&self, (plane, _): CollectionKey) -> &RwLock<BTreeMap<CollectionKey, Slot>> {
        let mixed = plane.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 60) as usize % SHARDS]
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

fn weight(object: &StoredObject) -> usize {
    object.record.len() + OBJECT_OVERHEAD
}

fn apply(snapshot: &mut Snapshot, bytes: &mut usize, change: CacheChange) {
    let (namespace, after) = (change.name.namespace.clone(), change.object.is_some());
    let before = match &change.object {
        Some(object) => {
            *bytes += weight(object);
            snapshot.objects.insert(change.name, object.clone())
        }
        None => snapshot.objects.remove(&change.name),
    };
    snapshot.count_change(&namespace, before.is_some(), after);
    if let Some(before) = before {
        *bytes -= weight(&before);
    }
    snapshot.last_change = snapshot.last_change.max(change.revision);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_not_read_again_and_again() {
        let cache = Cache::new(1 << 20);
        let (plane, resource, name) = (PlaneId(1), ResourceId(0), ObjectName::cluster("a"));
        assert!(cache.begin_load(plane, resource));
        cache.end_load(plane, resource, Load::TooLarge, Revision(1));
        for _ in 0..READS_BEFORE_RETRY / 2 {
            assert!(!cache.begin_load(plane, resource));
            assert!(matches!(cache.get(plane, resource, &name), Lookup::Cold));
        }
        assert!(matches!(cache.get(plane, resource, &name), Lookup::Warm), "it may have become small");
        assert!(cache.begin_load(plane, resource));
        cache.end_load(plane, resource, Load::Failed, Revision(1));
        assert!(cache.begin_load(plane, resource), "what failed may be tried at once");
    }

    #[test]
    fn loads_share_a_limit() {
        let record = crate::object::Record::encode(&polder_model::json!({}));
        let (name, revision, space) = (ObjectName::cluster("a"), Revision(1), crate::key::SpaceId(1));
        let object = StoredObject { name, revision, space, record };
        let cache = Cache::new(10 * weight(&object));
        let (mut one, mut two) = (cache.loading(), cache.loading());
        assert!((0..5).all(|_| one.add(&object) && two.add(&object)));
        assert!(!one.add(&object) && !two.add(&object), "together they are as large as the cache");
        drop(one);
        assert!(two.add(&object), "what is given up is free again");
        drop(two);
        assert_eq!(cache.loading_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn empty_collections_are_evicted_too() {
        let cache = Cache::new(10 * COLLECTION_OVERHEAD);
        for plane in 0..1_000 {
            let (plane, resource) = (PlaneId(plane), ResourceId(0));
            assert!(cache.begin_load(plane, resource));
            cache.end_load(plane, resource, Load::Whole(OrdMap::new()), Revision(1));
        }
        let slots: usize = cache.shards.iter().map(|shard| shard.read().len()).sum();
        assert!(slots <= 10, "{slots} collections");
        assert!(cache.snapshot(PlaneId(999), ResourceId(0)).is_some(), "the newest stays");
    }
}
