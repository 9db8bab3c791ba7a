//! Objects as programs inside Polder read them, kept for a while: a controller looks at the same pods again and again, and
//! so do others.
//!
//! Invariant: what is kept is of one version of one object, so it is never stale; and all of it takes a bounded room.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use polder_model::{PlaneId, Status, Value};
use polder_store::{ObjectName, ResourceId, Revision, StoredObject};

use crate::context::RequestContext;
use crate::definition::Target;
use crate::planes::has_live_status;
use crate::registry::{Registry, convert};

/// What objects may take, in two halves: the older one is dropped when the newer one is full.
const HALF_BYTES_MAX: usize = 64 * 1024 * 1024;
/// What is heavier is not kept: it would drive out all others.
const OBJECT_BYTES_MAX: usize = HALF_BYTES_MAX / 16;
/// What a place among the others takes beside the object: its key, twice where the table grows, and its counts.
const PLACE_BYTES: usize = 2 * size_of::<(Key, Kept)>() + size_of::<Value>() + 2 * size_of::<usize>();

#[derive(Default)]
pub(crate) struct ParsedObjects(Mutex<Halves>);

#[derive(Default)]
struct Halves {
    newer: HashMap<Key, Kept>,
    newer_bytes: usize,
    older: HashMap<Key, Kept>,
}

struct Kept {
    value: Arc<Value>,
    /// What it takes up: many small members take twenty times the room of their text, long texts hardly more than it.
    bytes: usize,
}

/// One version of one object, as one version of its API shows it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    plane: PlaneId,
    resource: ResourceId,
    api_version: usize,
    revision: Revision,
    /// As the object itself tells its revision; an import raises what a plane tells.
    resource_version: u64,
    name: ObjectName,
}

impl ParsedObjects {
    /// An object as the API shows it, without managed fields if it is of a built-in kind: a write without them leaves them
    /// alone. Events are whole, because only their managed fields tell when they were written, and are not kept.
    pub(crate) fn read(
        &self,
        registry: &Registry,
        context: &RequestContext,
        target: &Target,
        stored: &StoredObject,
    ) -> Result<Arc<Value>, Status> {
        let definition = &target.definition;
        if definition.is_custom() || definition.kind == "Event" || has_live_status(context, target) {
            return registry.to_client(context, target, stored).map(Arc::new);
        }
        let resource_version = context.plane.resource_version(stored.revision);
        let (plane, resource) = (context.plane.id, definition.resource_id);
        let key = Key::new(plane, resource, target.version, resource_version, stored);
        if let Some(found) = self.0.lock().find(&key) {
            return Ok(found);
        }
        let value = stored.record.to_unmanaged_value(resource_version);
        let mut value = value.map_err(|error| Status::internal(error.to_string()))?;
        convert(target, &mut value, &definition.storage, &target.group_version());
        value.set_at(&["kind"], definition.kind.clone());
        value.set_at(&["apiVersion"], target.api_version());
        let value = Arc::new(value);
        let kept = Kept::new(&key, value.clone());
        if kept.bytes <= OBJECT_BYTES_MAX {
            self.0.lock().keep(key, kept);
        }
        Ok(value)
    }

    /// The same, if it has been read lately.
    pub(crate) fn find(
        &self,
        plane: PlaneId,
        resource: ResourceId,
        api_version: usize,
        resource_version: u64,
        stored: &StoredObject,
    ) -> Option<Arc<Value>> {
        let key = Key::new(plane, resource, api_version, resource_version, stored);
        self.0.lock().find(&key)
    }
}

impl Key {
    fn new(
        plane: PlaneId,
        resource: ResourceId,
        api_version: usize,
        resource_version: u64,
        stored: &StoredObject,
    ) -> Key {
        let (revision, name) = (stored.revision, stored.name.clone());
        Key { plane, resource, api_version, revision, resource_version, name }
    }
}

impl Kept {
    fn new(key: &Key, value: Arc<Value>) -> Kept {
        let names = key.name.namespace.len() + key.name.name.len();
        let held = value.heap_bytes();
        // An allocator rounds up, by an eighth at most.
        Kept { bytes: PLACE_BYTES + names + held + held / 8, value }
    }
}

impl Halves {
    fn find(&mut self, key: &Key) -> Option<Arc<Value>> {
        if let Some(kept) = self.newer.get(key) {
            return Some(kept.value.clone());
        }
        let (key, kept) = self.older.remove_entry(key)?;
        let value = kept.value.clone();
        self.keep(key, kept);
        Some(value)
    }

    fn keep(&mut self, key: Key, kept: Kept) {
        if self.newer_bytes + kept.bytes > HALF_BYTES_MAX {
            self.older = mem::take(&mut self.newer);
            self.newer_bytes = 0;
        }
        self.newer_bytes += kept.bytes;
        if let Some(before) = self.newer.insert(key, kept) {
            self.newer_bytes -= before.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    fn key(revision: u64) -> Key {
        Key {
            plane: PlaneId(2),
            resource: ResourceId(3),
            api_version: 0,
            revision: Revision(revision),
            resource_version: revision,
            name: ObjectName::new("n", "w"),
        }
    }

    /// How many times its text an object weighs.
    #[track_caller]
    fn check(value: Value, times_min: usize, times_max: usize) {
        let len = value.to_vec().len();
        let bytes = Kept::new(&key(1), Arc::new(value)).bytes;
        assert!((times_min * len..=times_max * len).contains(&bytes), "{bytes} of {len}");
    }

    #[test]
    fn many_small_members_weigh_what_they_take() {
        check(Value::from(vec![json!({}); 10_000]), 8, 16);
        check(Value::from(vec![json!(1); 10_000]), 12, 24);
        check(json!({"data": ("x".repeat(100_000))}), 1, 2);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut halves = Halves::default();
        let value = Arc::new(Value::from(vec![json!({}); 10_000]));
        let one = Kept::new(&key(0), value.clone()).bytes;
        for revision in 0..2_000 {
            // The same one twice counts once.
            for _ in 0..2 {
                halves.keep(key(revision), Kept::new(&key(revision), value.clone()));
            }
            let all: usize = halves.newer.values().chain(halves.older.values()).map(|kept| kept.bytes).sum();
            assert!(all <= 2 * HALF_BYTES_MAX && halves.newer_bytes == halves.newer.len() * one);
        }
        assert!(halves.find(&key(1_999)).is_some() && halves.find(&key(0)).is_none());
    }
}
