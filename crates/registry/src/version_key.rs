//! By what something is kept that was made of one version of an object: it is never stale, since that version never changes.

use polder_model::PlaneId;
use polder_store::{ObjectName, ResourceId, Revision, StoredObject};

/// One version of one object, as one version of its API shows it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct VersionKey {
    plane: PlaneId,
    resource: ResourceId,
    api_version: usize,
    revision: Revision,
    /// As the object itself tells its revision; an import raises what a plane tells.
    resource_version: u64,
    name: ObjectName,
}

impl VersionKey {
    pub fn new(
        plane: PlaneId,
        resource: ResourceId,
        api_version: usize,
        resource_version: u64,
        stored: &StoredObject,
    ) -> VersionKey {
        let (revision, name) = (stored.revision, stored.name.clone());
        VersionKey { plane, resource, api_version, revision, resource_version, name }
    }

    /// What it holds beside itself.
    pub fn heap_bytes(&self) -> usize {
        self.name.namespace.len() + self.name.name.len()
    }
}
