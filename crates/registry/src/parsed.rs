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
/// A parsed object takes about so many times the room of its text.
const PARSED_PER_STORED: usize = 3;

#[derive(Default)]
pub(crate) struct ParsedObjects(Mutex<Halves>);

#[derive(Default)]
struct Halves {
    newer: HashMap<Key, Arc<Value>>,
    newer_bytes: usize,
    older: HashMap<Key, Arc<Value>>,
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
        if let Some(found) = self.0.lock().find(&key, stored.record.len()) {
            return Ok(found);
        }
        let value = stored.record.to_unmanaged_value(resource_version);
        let mut value = value.map_err(|error| Status::internal(error.to_string()))?;
        convert(target, &mut value, &definition.storage, &target.group_version());
        value.set_at(&["kind"], definition.kind.clone());
        value.set_at(&["apiVersion"], target.api_version());
        let value = Arc::new(value);
        self.0.lock().keep(key, value.clone(), stored.record.len());
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
        self.0.lock().find(&key, stored.record.len())
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

impl Halves {
    fn find(&mut self, key: &Key, stored_len: usize) -> Option<Arc<Value>> {
        if let Some(value) = self.newer.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.older.remove_entry(key)?;
        self.keep(key, value.clone(), stored_len);
        Some(value)
    }

    fn keep(&mut self, key: Key, value: Arc<Value>, stored_len: usize) {
        let bytes = stored_len * PARSED_PER_STORED + size_of::<Key>();
        if self.newer_bytes + bytes > HALF_BYTES_MAX {
            self.older = mem::take(&mut self.newer);
            self.newer_bytes = 0;
        }
        self.newer_bytes += bytes;
        self.newer.insert(key, value);
    }
}
