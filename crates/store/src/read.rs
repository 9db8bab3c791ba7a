//! Reading from the engine through a plane's stack, at a revision that is still kept, and loading hot collections.

use std::sync::Arc;

use imbl::OrdMap;
use polder_model::PlaneId;

use crate::cache::{Load, Snapshot};
use crate::engine::{EngineError, Reader};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::object::StoredObject;
use crate::plane::Plane;
use crate::scan::StackScan;
use crate::shared::Shared;

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("revision {at} has been compacted; the oldest kept is after {compacted}")]
    Compacted { at: Revision, compacted: Revision },
    #[error("revision {at} is in the future; the newest is {current}")]
    Future { at: Revision, current: Revision },
    #[error("cannot read")]
    Engine(#[from] EngineError),
    #[error("cannot ask the other replicas what is newest")]
    Unreachable(#[source] Arc<EngineError>),
    #[error("this replica is behind the others")]
    Behind,
    #[error("the plane is gone")]
    NoPlane,
    #[error("the server stops")]
    Closed,
}

impl Shared {
    /// The plane as it is now: a caller's value may be from before a fork, when other spaces made it up.
    pub(crate) fn plane_now(&self, plane: PlaneId) -> Result<Arc<Plane>, ReadError> {
        self.planes.read().by_id.get(&plane).cloned().ok_or(ReadError::NoPlane)
    }

    /// Waits until a commit that a reader has found in the cache is visible to all: reads never go back. That is
    /// in a moment, because the commit is durable already.
    pub(crate) async fn visible(&self, revision: Revision) {
        if self.current() < revision {
            self.current.subscribe().wait_for(|current| *current >= revision.0).await.ok();
        }
    }

    /// Reads the newest visible state of a plane from the engine.
    pub(crate) fn at_current<T>(
        &self,
        plane: PlaneId,
        read: impl Fn(&Plane, Revision) -> Result<T, EngineError>,
    ) -> Result<T, ReadError> {
        loop {
            // The revision before the plane: a fork in between gives the plane one more space, which then hides
            // nothing; the other way around, what is written to that space would be missed.
            let at = self.current();
            let (answer, now) = self.through_stack(plane, |plane| read(plane, at))?;
            // History may be gone, but then there is a newer state.
            if self.check_kept(&now, at).is_ok() {
                return Ok(answer);
            }
        }
    }

    /// Reads the state of a plane at a revision from the engine, if it is kept.
    pub(crate) fn at_revision<T>(
        &self,
        plane: PlaneId,
        at: Revision,
        read: impl Fn(&Plane, Revision) -> Result<T, EngineError>,
    ) -> Result<T, ReadError> {
        let (answer, now) = self.through_stack(plane, |plane| read(plane, at))?;
        self.check_kept(&now, at)?;
        Ok(answer)
    }

    /// Reads through the stack a plane has now. Whether that was allowed is checked after reading: what was read counts
    /// only if it was not being removed meanwhile, with its plane, as old history, or because layers were merged.
    pub(crate) fn through_stack<T>(
        &self,
        plane: PlaneId,
        read: impl Fn(&Plane) -> Result<T, EngineError>,
    ) -> Result<(T, Arc<Plane>), ReadError> {
        loop {
            let before = self.plane_now(plane)?;
            let answer = read(&before)?;
            let now = self.plane_now(plane)?;
            if reads_the_same(&before, &now) {
                return Ok((answer, now));
            }
        }
    }

    pub(crate) fn check_kept(&self, plane: &Plane, at: Revision) -> Result<(), ReadError> {
        let compacted = self.compacted().max(plane.floor);
        if at < compacted { Err(ReadError::Compacted { at, compacted }) } else { Ok(()) }
    }

    pub(crate) fn find(
        &self,
        stack: &[SpaceId],
        resource: ResourceId,
        name: &ObjectName,
        at: Revision,
    ) -> Result<Option<Arc<StoredObject>>, EngineError> {
        find(&*self.reader, stack, resource, name, at)
    }

    /// Brings a collection into the cache, unless it is too large or somebody else is at it.
    pub(crate) fn load(&self, plane: PlaneId, resource: ResourceId) -> Option<Snapshot> {
        if !self.cache.begin_load(plane, resource) {
            return self.cache.snapshot(plane, resource);
        }
        // Read after the load began: later changes are kept aside. Should some of them be compacted away before
        // the scan gets there, they are still applied on top of it. The plane comes after the revision, so that
        // its stack has every space written up to it.
        let at = self.applied();
        let before = self.plane_now(plane).ok();
        let mut load = before.as_ref().map_or(Load::Failed, |plane| self.load_objects(plane, resource, at));
        // A plane deleted meanwhile was perhaps read while it was being removed, and so were layers merged meanwhile.
        let same = |before: Arc<Plane>| self.plane_now(plane).is_ok_and(|now| reads_the_same(&before, &now));
        if !before.is_some_and(same) {
            load = Load::Failed;
        }
        self.cache.end_load(plane, resource, load, at);
        self.cache.snapshot(plane, resource)
    }

    /// A whole collection, unless it is too large for the cache or cannot be read.
    fn load_objects(&self, plane: &Plane, resource: ResourceId, at: Revision) -> Load {
        let mut left = self.cache.collection_bytes_max();
        let mut loading = self.cache.loading();
        let mut objects = OrdMap::new();
        let mut scan = StackScan::new(&*self.reader, &plane.stack, resource, None, None, at);
        loop {
            let object = match scan.next() {
                Ok(Some(object)) => object,
                Ok(None) => return Load::Whole(objects),
                Err(_) => return Load::Failed,
            };
            left = match left.checked_sub(object.record.len()) {
                Some(left) => left,
                None => return Load::TooLarge,
            };
            if !loading.add(&object) {
                return Load::Failed;
            }
            objects.insert(object.name.clone(), object);
        }
    }
}

/// Whether all spaces of a plane as it was are still there: a fork puts one on top, merging takes some away.
fn reads_the_same(before: &Plane, now: &Plane) -> bool {
    now.stack.ends_with(&before.stack)
}

/// Looks an object up through a stack of spaces; the first space that knows it decides.
pub(crate) fn find(
    reader: &dyn Reader,
    stack: &[SpaceId],
    resource: ResourceId,
    name: &ObjectName,
    at: Revision,
) -> Result<Option<Arc<StoredObject>>, EngineError> {
    for &space in stack {
        if let Some(version) = reader.version(space, resource, name, at)? {
            let (name, revision) = (name.clone(), version.revision);
            let record = version.record;
            return Ok(record.map(|record| Arc::new(StoredObject { name, revision, space, record })));
        }
    }
    Ok(None)
}

/// Reads from the engine when it is the plane's turn. Runs to its end even when the caller goes away.
pub(crate) async fn run_blocking<T: Send + 'static>(
    shared: &Arc<Shared>,
    plane: PlaneId,
    work: impl FnOnce(&Shared) -> T + Send + 'static,
) -> Option<T> {
    let turn = shared.turns.take(plane).await;
    let shared = shared.clone();
    let read = tokio::task::spawn_blocking(move || {
        let answer = work(&shared);
        drop(turn);
        answer
    });
    read.await.ok()
}
