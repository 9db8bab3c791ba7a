//! Objects as programs inside Polder read them, kept for a while: a controller looks at the same pods again and again, and
//! so do others.
//!
//! Invariant: what is kept is of one version of one object, so it is never stale; and all of it takes a bounded room.

use std::sync::Arc;

use parking_lot::Mutex;
use polder_model::{PlaneId, Recent, Status, Value};
use polder_store::{ObjectName, ResourceId, Revision, StoredObject};

use crate::context::RequestContext;
use crate::definition::Target;
use crate::planes::has_live_status;
use crate::registry::{Registry, convert};

/// What objects may take.
const BYTES_MAX: usize = 128 * 1024 * 1024;
/// What is heavier is not kept: it would drive out all others.
const OBJECT_BYTES_MAX: usize = BYTES_MAX / 32;
/// What a place among the others takes beside the object: its key, twice where the table grows, and its counts.
const PLACE_BYTES: usize =
    2 * size_of::<(Key, Arc<Value>, usize)>() + size_of::<Value>() + 2 * size_of::<usize>();

pub(crate) struct ParsedObjects(Mutex<Recent<Key, Arc<Value>>>);

impl Default for ParsedObjects {
    fn default() -> ParsedObjects {
        ParsedObjects(Mutex::new(Recent::new(BYTES_MAX)))
    }
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
        if let Some(found) = self.0.lock().get(&key) {
            return Ok(found);
        }
        let value = stored.record.to_unmanaged_value(resource_version);
        let mut value = value.map_err(|error| Status::internal(error.to_string()))?;
        convert(target, &mut value, &definition.storage, &target.group_version());
        value.set_at(&["kind"], definition.kind.clone());
        value.set_at(&["apiVersion"], target.api_version());
        let value = Arc::new(value);
        let bytes = weight(&key, &value);
        if bytes <= OBJECT_BYTES_MAX {
            let dropped = self.0.lock().insert(key, value.clone(), bytes);
            drop(dropped);
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
        self.0.lock().get(&key)
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

/// What an object takes up: many small members take twenty times the room of their text, long texts hardly more than it.
fn weight(key: &Key, value: &Value) -> usize {
    let names = key.name.namespace.len() + key.name.name.len();
    let held = value.heap_bytes();
    // An allocator rounds up, by an eighth at most.
    PLACE_BYTES + names + held + held / 8
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
        let bytes = weight(&key(1), &value);
        assert!((times_min * len..=times_max * len).contains(&bytes), "{bytes} of {len}");
    }

    #[test]
    fn many_small_members_weigh_what_they_take() {
        check(Value::from(vec![json!({}); 10_000]), 8, 16);
        check(Value::from(vec![json!(1); 10_000]), 12, 24);
        check(json!({"data": ("x".repeat(100_000))}), 1, 2);
    }
}
