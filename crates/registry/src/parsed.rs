//! Objects as programs inside Polder read them, kept for a while: a controller looks at the same pods again and again, and
//! so do others.
//!
//! Invariant: what is kept is of one version of one object, so it is never stale; and all of it takes a bounded room.

use std::sync::Arc;

use parking_lot::Mutex;
use polder_model::{PlaneId, Recent, Status, Value};
use polder_store::{ResourceId, StoredObject};

use crate::context::RequestContext;
use crate::definition::Target;
use crate::planes::has_live_status;
use crate::registry::{Registry, convert};
use crate::version_key::VersionKey;

/// What objects may take.
const BYTES_MAX: usize = 128 * 1024 * 1024;
/// What is heavier is not kept: it would drive out all others.
const OBJECT_BYTES_MAX: usize = BYTES_MAX / 32;
/// What a place among the others takes beside the object: its key, twice where the table grows, and its counts.
const PLACE_BYTES: usize =
    2 * size_of::<(VersionKey, Arc<Value>, usize)>() + size_of::<Value>() + 2 * size_of::<usize>();

pub(crate) struct ParsedObjects(Mutex<Recent<VersionKey, Arc<Value>>>);

impl Default for ParsedObjects {
    fn default() -> ParsedObjects {
        ParsedObjects(Mutex::new(Recent::new(BYTES_MAX)))
    }
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
        let key = VersionKey::new(plane, resource, target.version, resource_version, stored);
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
        let key = VersionKey::new(plane, resource, api_version, resource_version, stored);
        self.0.lock().get(&key)
    }
}

/// What an object takes up: many small members take twenty times the room of their text, long texts hardly more than it.
fn weight(key: &VersionKey, value: &Value) -> usize {
    let held = value.heap_bytes();
    // An allocator rounds up, by an eighth at most.
    PLACE_BYTES + key.heap_bytes() + held + held / 8
}

#[cfg(test)]
mod tests {
    use polder_model::json;
    use polder_store::{ObjectName, Record, Revision, SpaceId};

    use super::*;

    fn key() -> VersionKey {
        let (name, record) = (ObjectName::new("n", "w"), Record::encode(&json!({})));
        let stored = StoredObject { name, revision: Revision(1), space: SpaceId(1), record };
        VersionKey::new(PlaneId(2), ResourceId(3), 0, 1, &stored)
    }

    /// How many times its text an object weighs.
    #[track_caller]
    fn check(value: Value, times_min: usize, times_max: usize) {
        let len = value.to_vec().len();
        let bytes = weight(&key(), &value);
        assert!((times_min * len..=times_max * len).contains(&bytes), "{bytes} of {len}");
    }

    #[test]
    fn many_small_members_weigh_what_they_take() {
        check(Value::from(vec![json!({}); 10_000]), 8, 16);
        check(Value::from(vec![json!(1); 10_000]), 12, 24);
        check(json!({"data": ("x".repeat(100_000))}), 1, 2);
    }
}
