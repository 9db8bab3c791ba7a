//! What readers, watches and the committer share: where the store stands, and which planes and resources there are.
//!
//! Only the committer moves it forward; everybody else reads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::{HashMap, HashSet};
use parking_lot::RwLock;
use polder_model::{GroupResource, PlaneId};
use tokio::sync::watch;

use crate::cache::Cache;
use crate::engine::{EngineError, Names, Reader, Recovered};
use crate::feed::Feed;
use crate::key::{ResourceId, Revision, SpaceId};
use crate::noting::Noting;
use crate::plane::Plane;
use crate::store::{Follower, StoreOptions};
use crate::turns::Turns;

/// What readers, watches and the committer share.
pub(crate) struct Shared {
    pub(crate) reader: Arc<dyn Reader>,
    /// Something that was read was not what had been written.
    pub(crate) damaged: Arc<AtomicBool>,
    pub(crate) turns: Arc<Turns>,
    pub(crate) cache: Cache,
    pub(crate) feed: Feed,
    pub(crate) planes: RwLock<PlaneTable>,
    pub(crate) resources: RwLock<ResourceTable>,
    pub(crate) current: watch::Sender<u64>,
    /// Durable, perhaps not visible yet. The planes are as of this revision or later; changes after it have not
    /// reached the cache.
    applied: AtomicU64,
    delivered: AtomicU64,
    compacted: AtomicU64,
    closing: AtomicBool,
    /// The committer takes no changes any more.
    stopped: AtomicBool,
    /// See [`crate::engine::Engine::leads`].
    pub(crate) leading: watch::Sender<bool>,
    pub(crate) follower: OnceLock<Follower>,
    /// Held while what others did becomes visible and is told: whoever waits for it waits until both are done.
    pub(crate) telling: RwLock<()>,
    /// How often others were first.
    pub(crate) overtaken: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("current", &self.current()).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
pub(crate) struct PlaneTable {
    pub(crate) by_name: HashMap<polder_model::SmolStr, Arc<Plane>>,
    pub(crate) by_id: HashMap<PlaneId, Arc<Plane>>,
    /// The layers with what every plane starts with, of this and of earlier versions.
    pub(crate) bases: HashSet<SpaceId>,
}

impl PlaneTable {
    pub(crate) fn insert(&mut self, plane: Arc<Plane>) {
        self.by_name.insert(plane.name.as_str().into(), plane.clone());
        self.by_id.insert(plane.id, plane);
    }

    pub(crate) fn remove(&mut self, id: PlaneId) {
        if let Some(plane) = self.by_id.remove(&id) {
            // One group may delete a plane and make another of that name; the changes come in any order.
            let name = plane.name.as_str();
            if self.by_name.get(name).is_some_and(|named| named.id == id) {
                self.by_name.remove(name);
            }
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct ResourceTable {
    by_name: HashMap<GroupResource, ResourceId>,
    names: Vec<GroupResource>,
    /// How many of `names` the engine has.
    pub(crate) stored: usize,
}

impl ResourceTable {
    fn recover(rows: &[(ResourceId, GroupResource)]) -> Result<ResourceTable, EngineError> {
        let mut resources = ResourceTable::default();
        for (id, name) in rows {
            if id.0 as usize != resources.names.len() {
                return Err(EngineError::Damaged(format!("resource {} is out of order", id.0)));
            }
            resources.by_name.insert(name.clone(), *id);
            resources.names.push(name.clone());
        }
        resources.stored = resources.names.len();
        Ok(resources)
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn find(&self, name: &GroupResource) -> Option<ResourceId> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn name(&self, id: ResourceId) -> Option<GroupResource> {
        self.names.get(id.0 as usize).cloned()
    }

    pub(crate) fn unstored(&self) -> Vec<(ResourceId, GroupResource)> {
        let ids = (self.stored..self.names.len()).filter_map(|index| u32::try_from(index).ok());
        ids.map(|index| (ResourceId(index), self.names[index as usize].clone())).collect()
    }
}

impl Shared {
    pub(crate) fn new(
        reader: Arc<dyn Reader>,
        options: &StoreOptions,
        recovered: &Recovered,
    ) -> Result<Shared, EngineError> {
        if recovered.compacted > recovered.current {
            return Err(EngineError::Damaged(format!(
                "history is forgotten up to {}, but ends at {}",
                recovered.compacted, recovered.current
            )));
        }
        let damaged = Arc::new(AtomicBool::new(false));
        Ok(Shared {
            reader: Arc::new(Noting::new(reader, damaged.clone())),
            damaged,
            turns: Turns::of_reads(),
            cache: Cache::new(options.cache_bytes_max),
            feed: Feed::new(recovered.current, options.recent_bytes_max),
            planes: RwLock::default(),
            resources: RwLock::new(ResourceTable::recover(&recovered.resources)?),
            current: watch::Sender::new(recovered.current.0),
            applied: AtomicU64::new(recovered.current.0),
            delivered: AtomicU64::new(recovered.current.0),
            compacted: AtomicU64::new(recovered.compacted.0),
            closing: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            leading: watch::Sender::new(false),
            follower: OnceLock::new(),
            telling: RwLock::new(()),
            overtaken: AtomicU64::new(0),
        })
    }

    pub(crate) fn current(&self) -> Revision {
        Revision(*self.current.borrow())
    }

    pub(crate) fn set_current(&self, revision: Revision) {
        self.current.send_replace(revision.0);
    }

    pub(crate) fn applied(&self) -> Revision {
        Revision(self.applied.load(Ordering::Acquire))
    }

    pub(crate) fn set_applied(&self, revision: Revision) {
        self.applied.store(revision.0, Ordering::Release);
    }

    pub(crate) fn delivered(&self) -> Revision {
        Revision(self.delivered.load(Ordering::Acquire))
    }

    pub(crate) fn set_delivered(&self, revision: Revision) {
        self.delivered.store(revision.0, Ordering::Release);
    }

    pub(crate) fn compacted(&self) -> Revision {
        Revision(self.compacted.load(Ordering::Acquire))
    }

    pub(crate) fn set_compacted(&self, revision: Revision) {
        self.compacted.fetch_max(revision.0, Ordering::AcqRel);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(crate) fn set_stopped(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    pub(crate) fn set_leading(&self, leads: bool) {
        self.leading.send_if_modified(|leading| std::mem::replace(leading, leads) != leads);
    }

    pub(crate) fn set_closing(&self) {
        self.closing.store(true, Ordering::Release);
    }
}

impl Names for Shared {
    fn resource_id(&self, name: &GroupResource) -> ResourceId {
        if let Some(id) = self.resources.read().by_name.get(name) {
            return *id;
        }
        let mut resources = self.resources.write();
        if let Some(id) = resources.by_name.get(name) {
            return *id;
        }
        let id = ResourceId(u32::try_from(resources.names.len()).expect("fewer than 2^32 resources"));
        resources.by_name.insert(name.clone(), id);
        resources.names.push(name.clone());
        id
    }

    fn unstored(&self) -> Vec<(ResourceId, GroupResource)> {
        self.resources.read().unstored()
    }
}
