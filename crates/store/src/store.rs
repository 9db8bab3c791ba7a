//! The store as the rest of the system sees it: reads, commits, watches, planes.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use imbl::OrdMap;
use parking_lot::{Mutex, RwLock};
use polder_model::{GroupResource, PlaneId};
use tokio::sync::{mpsc, oneshot, watch};

use crate::cache::{Cache, Lookup, Snapshot};
use crate::change::{Change, CommitError, Committed};
use crate::committer::{self, Committer, Job};
use crate::engine::{Engine, EngineError, Reader};
use crate::feed::{Feed, Watch, WatchError, WatchScope};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::object::{Record, StoredObject};
use crate::plane::Plane;
use crate::scan::StackScan;

#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Memory for hot collections.
    pub cache_bytes_max: usize,
    /// Memory for recent events.
    pub recent_bytes_max: usize,
    /// How long superseded versions are kept, so that lists can be continued and watches resumed.
    pub history: Duration,
    /// Commits kept however old they are.
    pub history_len_min: u64,
    /// Changes waiting to be committed.
    pub queue_len_max: usize,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            cache_bytes_max: 256 << 20,
            recent_bytes_max: 32 << 20,
            history: Duration::from_secs(300),
            history_len_min: 1_000,
            queue_len_max: 4_096,
        }
    }
}

/// The store. Cheap to share; closing it waits for the last commit.
#[derive(Debug)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    committer: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// What readers, watches and the committer share.
pub(crate) struct Shared {
    pub(crate) reader: Arc<dyn Reader>,
    pub(crate) cache: Cache,
    pub(crate) feed: Feed,
    pub(crate) planes: RwLock<PlaneTable>,
    pub(crate) resources: RwLock<ResourceTable>,
    current: watch::Sender<u64>,
    /// Durable, perhaps not visible yet. The planes are as of this revision or later; changes after it have not
    /// reached the cache.
    applied: AtomicU64,
    delivered: AtomicU64,
    compacted: AtomicU64,
    closing: AtomicBool,
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
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn unstored(&self) -> Vec<(ResourceId, GroupResource)> {
        let ids = (self.stored..self.names.len()).filter_map(|index| u32::try_from(index).ok());
        ids.map(|index| (ResourceId(index), self.names[index as usize].clone())).collect()
    }
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("revision {at} has been compacted; the oldest kept is after {compacted}")]
    Compacted { at: Revision, compacted: Revision },
    #[error("revision {at} is in the future; the newest is {current}")]
    Future { at: Revision, current: Revision },
    #[error("cannot read")]
    Engine(#[from] EngineError),
    #[error("the plane is gone")]
    NoPlane,
    #[error("the server stops")]
    Closed,
}

/// Which objects of one resource a list asks for.
#[derive(Clone)]
pub struct ListQuery {
    pub resource: ResourceId,
    pub namespace: Option<polder_model::SmolStr>,
    /// Only names after this one: the continuation of an earlier page.
    pub after: Option<ObjectName>,
    /// At exactly this revision; `None` reads the newest.
    pub at: Option<Revision>,
    /// Zero means all.
    pub limit: usize,
    /// Keeps the objects it returns true for.
    pub filter: Option<Arc<Filter>>,
}

pub type Filter = dyn Fn(&StoredObject) -> bool + Send + Sync;

/// A consistent part of a collection.
#[derive(Debug)]
pub struct ListPage {
    /// The state this is a part of.
    pub revision: Revision,
    pub objects: Vec<Arc<StoredObject>>,
    /// More objects follow the last one.
    pub more: bool,
    /// How many follow; only counted when there is no filter.
    pub remaining: Option<u64>,
}

impl Store {
    /// Opens a store on an engine, makes the base layer if its digest is new, and the core plane if it is missing.
    ///
    /// `base` are the objects every new plane starts with; `digest` is their content address.
    pub fn open(
        mut engine: Box<dyn Engine>,
        options: StoreOptions,
        digest: &str,
        base: impl FnOnce(&dyn Fn(&GroupResource) -> ResourceId) -> Vec<(ResourceId, ObjectName, Record)>,
    ) -> Result<Arc<Store>, EngineError> {
        let recovered = engine.recover()?;
        if recovered.compacted > recovered.current {
            return Err(EngineError::Damaged(format!(
                "history is forgotten up to {}, but ends at {}",
                recovered.compacted, recovered.current
            )));
        }
        let mut resources = ResourceTable::default();
        for (id, name) in &recovered.resources {
            if id.0 as usize != resources.names.len() {
                return Err(EngineError::Damaged(format!("resource {} is out of order", id.0)));
            }
            resources.by_name.insert(name.clone(), *id);
            resources.names.push(name.clone());
        }
        resources.stored = resources.names.len();

        let shared = Arc::new(Shared {
            reader: engine.reader(),
            cache: Cache::new(options.cache_bytes_max),
            feed: Feed::new(recovered.current, options.recent_bytes_max),
            planes: RwLock::default(),
            resources: RwLock::new(resources),
            current: watch::Sender::new(recovered.current.0),
            applied: AtomicU64::new(recovered.current.0),
            delivered: AtomicU64::new(recovered.current.0),
            compacted: AtomicU64::new(recovered.compacted.0),
            closing: AtomicBool::new(false),
        });
        let mut committer = Committer::new(engine, shared.clone(), &options, recovered)?;
        committer.ensure_base(digest, || base(&|name| shared.resource_id(name)))?;

        let (jobs, queue) = mpsc::channel(options.queue_len_max);
        let ticks = jobs.downgrade();
        let thread = std::thread::Builder::new()
            .name("polder-commit".into())
            .spawn(move || committer.run(queue))
            .map_err(|error| EngineError::Failed(Box::new(error)))?;
        committer::start_ticks(ticks).map_err(|error| EngineError::Failed(Box::new(error)))?;
        Ok(Arc::new(Store { shared, jobs, committer: Mutex::new(Some(thread)) }))
    }

    /// The newest visible revision.
    pub fn current(&self) -> Revision {
        self.shared.current()
    }

    /// History up to here is gone.
    pub fn compacted(&self) -> Revision {
        self.shared.compacted()
    }

    pub fn plane(&self, name: &str) -> Option<Arc<Plane>> {
        self.shared.planes.read().by_name.get(name).cloned()
    }

    pub fn plane_by_id(&self, id: PlaneId) -> Option<Arc<Plane>> {
        self.shared.planes.read().by_id.get(&id).cloned()
    }

    pub fn planes_len(&self) -> usize {
        self.shared.planes.read().by_id.len()
    }

    /// Bytes of hot objects in memory.
    pub fn cache_bytes(&self) -> usize {
        self.shared.cache.bytes()
    }

    /// The short id of a resource, made on first use.
    pub fn resource_id(&self, name: &GroupResource) -> ResourceId {
        self.shared.resource_id(name)
    }

    /// The short id of a resource that has one.
    pub fn known_resource(&self, name: &GroupResource) -> Option<ResourceId> {
        self.shared.resources.read().by_name.get(name).copied()
    }

    /// Commits a change: all of it under one revision, durable when this returns, or nothing. Runs to its end even
    /// when the caller goes away.
    pub async fn commit(&self, change: Change) -> Result<Committed, CommitError> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job::Commit { change, reply }).await.map_err(|_| CommitError::Closed)?;
        answer.await.map_err(|_| CommitError::Closed)?
    }

    /// The newest version of an object.
    pub async fn get(
        &self,
        plane: &Arc<Plane>,
        resource: ResourceId,
        name: &ObjectName,
    ) -> Result<Option<Arc<StoredObject>>, ReadError> {
        let warm = match self.shared.cache.get(plane.id, resource, name) {
            Lookup::Found(object, last_change) => {
                self.shared.visible(last_change).await;
                return Ok(object);
            }
            Lookup::Cold => false,
            Lookup::Warm => true,
        };
        let (shared, plane, name) = (self.shared.clone(), plane.id, name.clone());
        run_blocking(move || {
            if warm {
                shared.load(plane, resource);
            }
            shared.at_current(plane, |plane, at| shared.find(&plane.stack, resource, &name, at))
        })
        .await
    }

    /// A page of a collection.
    pub async fn list(&self, plane: &Arc<Plane>, query: ListQuery) -> Result<ListPage, ReadError> {
        let current = self.current();
        if let Some(at) = query.at {
            if at > current {
                return Err(ReadError::Future { at, current });
            }
            self.shared.check_kept(plane, at)?;
        }
        if let Some(snapshot) = self.shared.cache.snapshot(plane.id, query.resource)
            && let Some(page) = page_from_snapshot(&snapshot, current, &query)
        {
            self.shared.visible(page.revision).await;
            return Ok(page);
        }
        let (shared, plane) = (self.shared.clone(), plane.id);
        let page = run_blocking(move || {
            let Some(at) = query.at else {
                if let Some(snapshot) = shared.load(plane, query.resource)
                    && let Some(page) = page_from_snapshot(&snapshot, current, &query)
                {
                    return Ok(page);
                }
                return shared.at_current(plane, |plane, at| shared.page_from_engine(plane, &query, at));
            };
            let page = shared.page_from_engine(&*shared.plane_now(plane)?, &query, at)?;
            // Checked after reading: what was read counts only if it was not being removed meanwhile.
            shared.check_kept(&*shared.plane_now(plane)?, at)?;
            Ok(page)
        })
        .await?;
        self.shared.visible(page.revision).await;
        Ok(page)
    }

    /// Whether nothing was ever written to a plane, and it stands on nothing but the base layer.
    pub async fn is_untouched(&self, plane: &Arc<Plane>) -> Result<bool, ReadError> {
        let (shared, plane) = (self.shared.clone(), plane.id);
        run_blocking(move || {
            let plane = shared.plane_now(plane)?;
            Ok(plane.stack.len() <= 2 && shared.reader.is_empty(plane.overlay())?)
        })
        .await
    }

    /// Watches changes after a revision.
    pub fn watch(&self, scope: WatchScope, after: Revision) -> Result<Watch, WatchError> {
        let compacted = match scope {
            WatchScope::Collection(plane, _) => {
                let plane = self.plane_by_id(plane).ok_or(WatchError::Ended)?;
                self.compacted().max(plane.floor)
            }
            WatchScope::Everything => self.compacted(),
        };
        if after < compacted {
            return Err(WatchError::Compacted { compacted });
        }
        let watch = Watch::start(self.shared.clone(), scope, after);
        // Looked for again after subscribing: nobody would end the watch of a plane deleted in between.
        match scope {
            WatchScope::Collection(plane, _) if self.plane_by_id(plane).is_none() => Err(WatchError::Ended),
            _ => Ok(watch),
        }
    }

    /// Ends the watches on one collection, because what it serves has changed or is gone.
    pub fn end_watches(&self, plane: PlaneId, resource: ResourceId) {
        self.shared.feed.end_collection(plane, resource);
    }

    /// Ends every watch: the server stops.
    pub fn end_all_watches(&self) {
        self.shared.feed.end_all();
    }

    /// Waits until a revision is visible; false when it is not in time.
    pub async fn wait_for(&self, revision: Revision, patience: Duration) -> bool {
        let mut current = self.shared.current.subscribe();
        let reached = current.wait_for(|current| *current >= revision.0);
        matches!(tokio::time::timeout(patience, reached).await, Ok(Ok(_)))
    }

    /// Forgets history up to a revision now, instead of when it is old enough.
    pub async fn compact(&self, floor: Revision) -> Result<(), CommitError> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job::Compact { floor, reply }).await.map_err(|_| CommitError::Closed)?;
        answer.await.map_err(|_| CommitError::Closed)?
    }

    /// Waits until dropped planes have been removed from the engine.
    pub async fn settle(&self) -> Result<(), CommitError> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job::Settle { reply }).await.map_err(|_| CommitError::Closed)?;
        answer.await.map_err(|_| CommitError::Closed)
    }

    /// Whether writes can be made: the committer is there.
    pub fn is_running(&self) -> bool {
        !self.jobs.is_closed()
    }

    /// Finishes what is queued and stops the committer.
    pub fn close(&self) {
        self.shared.feed.end_all();
        let thread = self.committer.lock().take();
        if let Some(thread) = thread {
            // The flag before the knock: a committer that is too busy to take the knock finds the flag.
            self.shared.closing.store(true, Ordering::Release);
            self.jobs.try_send(Job::Stop).ok();
            thread.join().ok();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    pub(crate) fn current(&self) -> Revision {
        Revision(*self.current.borrow())
    }

    pub(crate) fn set_current(&self, revision: Revision) {
        self.current.send_replace(revision.0);
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

    pub(crate) fn resource_id(&self, name: &GroupResource) -> ResourceId {
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

    /// The plane as it is now: a caller's value may be from before a fork, when other spaces made it up.
    fn plane_now(&self, plane: PlaneId) -> Result<Arc<Plane>, ReadError> {
        self.planes.read().by_id.get(&plane).cloned().ok_or(ReadError::NoPlane)
    }

    /// Waits until a commit that a reader has found in the cache is visible to all: reads never go back. That is
    /// in a moment, because the commit is durable already.
    async fn visible(&self, revision: Revision) {
        if self.current() < revision {
            self.current.subscribe().wait_for(|current| *current >= revision.0).await.ok();
        }
    }

    /// Reads the newest visible state of a plane from the engine.
    fn at_current<T>(
        &self,
        plane: PlaneId,
        read: impl Fn(&Plane, Revision) -> Result<T, EngineError>,
    ) -> Result<T, ReadError> {
        loop {
            // The revision before the plane: a fork in between gives the plane one more space, which then hides
            // nothing; the other way around, what is written to that space would be missed.
            let at = self.current();
            let answer = read(&*self.plane_now(plane)?, at)?;
            // Checked after reading: what was read counts only if it was not being removed meanwhile. The plane
            // may be gone; history may be gone too, but then there is a newer state.
            if self.check_kept(&*self.plane_now(plane)?, at).is_ok() {
                return Ok(answer);
            }
        }
    }

    fn check_kept(&self, plane: &Plane, at: Revision) -> Result<(), ReadError> {
        let compacted = self.compacted().max(plane.floor);
        if at < compacted { Err(ReadError::Compacted { at, compacted }) } else { Ok(()) }
    }

    /// Looks an object up through a stack of spaces; the first space that knows it decides.
    pub(crate) fn find(
        &self,
        stack: &[SpaceId],
        resource: ResourceId,
        name: &ObjectName,
        at: Revision,
    ) -> Result<Option<Arc<StoredObject>>, EngineError> {
        for &space in stack {
            if let Some(version) = self.reader.version(space, resource, name, at)? {
                let (name, revision) = (name.clone(), version.revision);
                return Ok(version
                    .record
                    .map(|record| Arc::new(StoredObject { name, revision, space, record })));
            }
        }
        Ok(None)
    }

    /// Brings a collection into the cache, unless it is too large or somebody else is at it.
    fn load(&self, plane: PlaneId, resource: ResourceId) -> Option<Snapshot> {
        if !self.cache.begin_load(plane, resource) {
            return self.cache.snapshot(plane, resource);
        }
        // Read after the load began: later changes are kept aside. Should some of them be compacted away before
        // the scan gets there, they are still applied on top of it. The plane comes after the revision, so that
        // its stack has every space written up to it.
        let at = Revision(self.applied.load(Ordering::Acquire));
        let objects = match self.plane_now(plane) {
            Ok(plane) => self.load_objects(&plane, resource, at),
            Err(_) => None,
        };
        // A plane deleted meanwhile was perhaps read while it was being removed.
        let objects = objects.filter(|_| self.plane_now(plane).is_ok());
        self.cache.end_load(plane, resource, objects, at);
        self.cache.snapshot(plane, resource)
    }

    /// A whole collection, unless it is too large for the cache or cannot be read.
    fn load_objects(
        &self,
        plane: &Plane,
        resource: ResourceId,
        at: Revision,
    ) -> Option<OrdMap<ObjectName, Arc<StoredObject>>> {
        let mut left = self.cache.collection_bytes_max();
        let mut objects = OrdMap::new();
        let mut scan = StackScan::new(self, &plane.stack, resource, None, None, at);
        while let Some(object) = scan.next().ok()? {
            left = left.checked_sub(object.record.len())?;
            objects.insert(object.name.clone(), object);
        }
        Some(objects)
    }

    fn page_from_engine(
        &self,
        plane: &Plane,
        query: &ListQuery,
        at: Revision,
    ) -> Result<ListPage, EngineError> {
        let namespace = query.namespace.as_deref();
        let mut scan = StackScan::new(self, &plane.stack, query.resource, namespace, query.after.clone(), at);
        let mut page = ListPage { revision: at, objects: Vec::new(), more: false, remaining: None };
        while let Some(object) = scan.next()? {
            if query.filter.as_ref().is_some_and(|filter| !filter(&object)) {
                continue;
            }
            if query.limit > 0 && page.objects.len() == query.limit {
                page.more = true;
                break;
            }
            page.objects.push(object);
        }
        if page.more && query.filter.is_none() {
            let mut remaining = 1;
            while scan.next()?.is_some() {
                remaining += 1;
            }
            page.remaining = Some(remaining);
        }
        Ok(page)
    }
}

/// A page of a loaded collection; `None` when the snapshot is newer than the revision asked for.
fn page_from_snapshot(snapshot: &Snapshot, current: Revision, query: &ListQuery) -> Option<ListPage> {
    let revision = match query.at {
        Some(at) if snapshot.last_change > at => return None,
        Some(at) => at,
        // Everything up to `current` is in the snapshot; it may hold a commit that is about to become current.
        None => current.max(snapshot.last_change),
    };
    let first = ObjectName::new(query.namespace.clone().unwrap_or_default(), "");
    let from = match &query.after {
        // A name before the namespace says nothing about where in the namespace to begin.
        Some(after) if *after >= first => Bound::Excluded(after.clone()),
        _ => Bound::Included(first),
    };
    let in_namespace = |name: &ObjectName| match &query.namespace {
        Some(namespace) => name.namespace == *namespace,
        None => true,
    };
    let mut rest =
        snapshot.objects.range((from, Bound::Unbounded)).take_while(|(name, _)| in_namespace(name));
    let mut page = ListPage { revision, objects: Vec::new(), more: false, remaining: None };
    for (_, object) in rest.by_ref() {
        if query.filter.as_ref().is_some_and(|filter| !filter(object)) {
            continue;
        }
        if query.limit > 0 && page.objects.len() == query.limit {
            page.more = true;
            break;
        }
        page.objects.push(object.clone());
    }
    if page.more && query.filter.is_none() {
        page.remaining = Some(1 + rest.count() as u64);
    }
    Some(page)
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
) -> Result<T, ReadError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| ReadError::Closed)?
}
