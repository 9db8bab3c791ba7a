//! What is kept of what extension servers say: for a while, of bounded number and bytes, in all and for one plane.
//!
//! Invariant: a plane that has much makes room for others, and never the other way round: when there is too much, it is the
//! plane with the most that loses what it has longest.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use polder_model::{PlaneId, SmolStr};
use polder_registry::extensions::Extension;

/// How long an answer is good, and a failure.
const GOOD_FOR: Duration = Duration::from_secs(60);
const FAILED_FOR: Duration = Duration::from_secs(5);
/// Answers that are kept.
const LEN_MAX: usize = 4096;

/// What is known of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known<T> {
    pub(super) value: Option<T>,
    /// It could not be asked: this is what it last said, if anything.
    pub(super) stale: bool,
    /// What the value weighs.
    pub(super) bytes: usize,
}

/// What is known, and whether its server is to be asked.
pub(super) struct Look<T> {
    pub(super) known: Known<T>,
    pub(super) ask: bool,
}

struct Entry<T> {
    /// Nothing if the server never told anything.
    value: Option<T>,
    stale: bool,
    since: Instant,
    /// Where the server was then.
    address: u64,
    bytes: usize,
}

pub(super) struct Cache<T> {
    kept: Mutex<Kept<T>>,
    bytes_max: usize,
    plane_bytes_max: usize,
}

struct Kept<T> {
    planes: HashMap<PlaneId, Own<T>>,
    bytes: usize,
    len: usize,
}

/// What is kept of one plane, by group and version.
struct Own<T> {
    entries: HashMap<(SmolStr, SmolStr), Entry<T>>,
    bytes: usize,
}

impl<T: Clone> Cache<T> {
    pub(super) fn new(bytes_max: usize, plane_bytes_max: usize) -> Cache<T> {
        let kept = Mutex::new(Kept { planes: HashMap::new(), bytes: 0, len: 0 });
        Cache { kept, bytes_max, plane_bytes_max }
    }

    pub(super) fn look(&self, plane: PlaneId, extension: &Extension) -> Look<T> {
        let kept = self.kept.lock();
        let entry = kept.planes.get(&plane).and_then(|own| own.entries.get(&key(extension)));
        let entry = entry.filter(|entry| entry.address == address(extension));
        let (value, stale, recent, bytes) = match entry {
            None => (None, true, false, 0),
            Some(entry) => {
                let good_for = if entry.stale { FAILED_FOR } else { GOOD_FOR };
                (entry.value.clone(), entry.stale, entry.since.elapsed() < good_for, entry.bytes)
            }
        };
        // Somebody looks after it anyway.
        let unavailable = extension.available == Some(false);
        Look { known: Known { value, stale: stale || unavailable, bytes }, ask: !recent && !unavailable }
    }

    /// Keeps what a server said. What is too much for one plane is as if it had not been said.
    pub(super) fn put(&self, plane: PlaneId, extension: &Extension, value: T, bytes: usize) -> Known<T> {
        let bytes = bytes + size_of::<Entry<T>>();
        let mut kept = self.kept.lock();
        kept.remove(plane, &key(extension));
        let own = kept.planes.get(&plane).map_or(0, |own| own.bytes);
        let (value, stale, bytes) = match own + bytes <= self.plane_bytes_max {
            true => (Some(value), false, bytes),
            false => (None, true, size_of::<Entry<T>>()),
        };
        self.insert(&mut kept, plane, extension, value.clone(), stale, bytes);
        Known { value, stale, bytes }
    }

    /// Notes that a server did not answer.
    pub(super) fn failed(&self, plane: PlaneId, extension: &Extension, known: Known<T>) -> Known<T> {
        let mut kept = self.kept.lock();
        kept.remove(plane, &key(extension));
        let bytes = known.bytes.max(size_of::<Entry<T>>());
        self.insert(&mut kept, plane, extension, known.value.clone(), true, bytes);
        Known { value: known.value, stale: true, bytes }
    }

    fn insert(
        &self,
        kept: &mut Kept<T>,
        plane: PlaneId,
        extension: &Extension,
        value: Option<T>,
        stale: bool,
        bytes: usize,
    ) {
        let entry = Entry { value, stale, since: Instant::now(), address: address(extension), bytes };
        let own = kept.planes.entry(plane).or_insert_with(|| Own { entries: HashMap::new(), bytes: 0 });
        own.entries.insert(key(extension), entry);
        own.bytes += bytes;
        kept.bytes += bytes;
        kept.len += 1;
        while kept.len > LEN_MAX || kept.bytes > self.bytes_max {
            let by_bytes = kept.bytes > self.bytes_max;
            let most = kept.planes.iter().max_by_key(|(_, own)| match by_bytes {
                true => own.bytes,
                false => own.entries.len(),
            });
            let Some((plane, own)) = most else { break };
            // A quarter of it: looking for whom is not done for each answer.
            let mut order: Vec<(Instant, (SmolStr, SmolStr))> =
                own.entries.iter().map(|(key, entry)| (entry.since, key.clone())).collect();
            order.sort_unstable();
            let plane = *plane;
            for (_, key) in order.iter().take(order.len().div_ceil(4)) {
                kept.remove(plane, key);
            }
        }
    }
}

impl<T> Kept<T> {
    fn remove(&mut self, plane: PlaneId, key: &(SmolStr, SmolStr)) {
        let Some(own) = self.planes.get_mut(&plane) else { return };
        if let Some(old) = own.entries.remove(key) {
            own.bytes -= old.bytes;
            self.bytes -= old.bytes;
            self.len -= 1;
        }
        if own.entries.is_empty() {
            self.planes.remove(&plane);
        }
    }
}

fn key(extension: &Extension) -> (SmolStr, SmolStr) {
    (extension.group.clone(), extension.version.clone())
}

/// Changes when another server may be meant.
fn address(extension: &Extension) -> u64 {
    let mut hash = DefaultHasher::new();
    (&extension.namespace, &extension.service, extension.port).hash(&mut hash);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use polder_registry::extensions::Trust;

    use super::*;

    const BYTES_MAX: usize = 32 << 20;
    const PLANE_BYTES_MAX: usize = 4 << 20;

    fn cache() -> Cache<u8> {
        Cache::new(BYTES_MAX, PLANE_BYTES_MAX)
    }

    fn extension(version: &str, service: &str, available: Option<bool>) -> Extension {
        Extension {
            group: "a.example".into(),
            version: version.into(),
            namespace: "n".into(),
            service: service.into(),
            port: 443,
            trust: Trust::Anybody,
            group_priority: 1,
            version_priority: 1,
            available,
        }
    }

    #[test]
    fn servers_are_asked_now_and_then() {
        let (cache, plane) = (cache(), PlaneId(7));
        let one = extension("v1", "s", None);
        let look = |extension: &Extension| {
            let look = cache.look(plane, extension);
            (look.known.value, look.known.stale, look.ask)
        };
        assert_eq!(look(&one), (None, true, true));
        cache.put(plane, &one, 1, 100);
        assert_eq!(look(&one), (Some(1), false, false));
        assert_eq!(look(&extension("v1", "other", None)), (None, true, true), "another server");
        assert_eq!(look(&extension("v1", "s", Some(false))), (Some(1), true, false), "what it last said");
        cache.failed(plane, &one, cache.look(plane, &one).known);
        assert_eq!(look(&one), (Some(1), true, false), "not again at once");
        assert_eq!(cache.look(PlaneId(8), &one).known.value, None, "another plane's");
    }

    #[track_caller]
    fn assert_sound(cache: &Cache<u8>) {
        let kept = cache.kept.lock();
        assert!(kept.bytes <= BYTES_MAX && kept.len <= LEN_MAX);
        let bytes = |own: &Own<u8>| own.entries.values().map(|entry| entry.bytes).sum::<usize>();
        assert!(kept.planes.values().all(|own| own.bytes == bytes(own) && own.bytes <= PLANE_BYTES_MAX));
        assert_eq!(kept.bytes, kept.planes.values().map(bytes).sum::<usize>());
        assert_eq!(kept.len, kept.planes.values().map(|own| own.entries.len()).sum::<usize>());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let cache = cache();
        for plane in 0..20_000 {
            cache.put(PlaneId(plane), &extension("v1", "s", None), 1, 100);
        }
        assert_sound(&cache);
        for plane in 0..200 {
            cache.put(PlaneId(plane), &extension("v1", "s", None), 1, 1 << 20);
        }
        assert_sound(&cache);
    }

    #[test]
    fn one_plane_does_not_push_out_another() {
        let (cache, modest) = (cache(), extension("v1", "s", None));
        for plane in 0..100 {
            cache.put(PlaneId(plane), &modest, 1, 1000);
        }
        for version in 0..10_000 {
            let version = format!("v{version}");
            cache.put(PlaneId(1000), &extension(&version, "s", None), 1, 1 << 10);
            cache.put(PlaneId(1001), &extension(&version, "s", None), 1, 0);
        }
        assert_sound(&cache);
        for plane in 0..100 {
            assert_eq!(cache.look(PlaneId(plane), &modest).known.value, Some(1), "{plane}");
        }
        let much = cache.put(PlaneId(2000), &modest, 1, PLANE_BYTES_MAX);
        assert_eq!((much.value, much.stale), (None, true), "more than a plane may have");
        assert!(!cache.look(PlaneId(2000), &modest).ask, "it is not asked again at once");
    }
}
