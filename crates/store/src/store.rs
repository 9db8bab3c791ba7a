//! The store as the rest of the system sees it: reads, commits, watches, planes.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use imbl::OrdMap;
use parking_lot::{Mutex, RwLock};
use polder_model::{GroupResource, PlaneId};
use tokio::sync::{mpsc, oneshot, watch};

use crate::cache::{Cache, Lookup, Snapshot};
use crate::change::{Change, CommitError, Committed};
use crate::committer::{self, Committer, Job};
use crate::engine::{Engine, EngineError, Reader, Scan};
use crate::feed::{Feed, Watch, WatchError, WatchScope};
use crate::key::{ObjectName, ResourceId, Revision, SpaceId};
use crate::object::{Record, StoredObject};
use crate::plane::Plane;

/// Objects read from the engine at once while listing.
const SCAN_CHUNK_LEN: usize = 512;

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
    /// Durable, perhaps not visible yet.
    applied: AtomicU64,
    delivered: AtomicU64,
    compacted: AtomicU64,
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
            self.by_name.remove(plane.name.as_str());
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
            Lookup::Found(object) => return Ok(object),
            Lookup::Cold => false,
            Lookup::Warm => true,
        };
        let (shared, plane, name) = (self.shared.clone(), plane.id, name.clone());
        run_blocking(move || {
            let plane = shared.plane_now(plane)?;
            if warm {
                shared.load(&plane, resource);
            }
            Ok(shared.find(&plane.stack, resource, &name, Revision::NEWEST)?)
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
            return Ok(page);
        }
        let (shared, plane) = (self.shared.clone(), plane.id);
        run_blocking(move || {
            let plane = shared.plane_now(plane)?;
            if query.at.is_none()
                && let Some(snapshot) = shared.load(&plane, query.resource)
                && let Some(page) = page_from_snapshot(&snapshot, current, &query)
            {
                return Ok(page);
            }
            shared.page_from_engine(&plane, &query)
        })
        .await
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
        Ok(Watch::start(self.shared.clone(), scope, after))
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
    fn load(&self, plane: &Plane, resource: ResourceId) -> Option<Snapshot> {
        if !self.cache.begin_load(plane.id, resource) {
            return self.cache.snapshot(plane.id, resource);
        }
        let mut left = self.cache.collection_bytes_max();
        let mut objects = OrdMap::new();
        let mut merge = StackScan::new(self, &plane.stack, resource, None, None, Revision::NEWEST);
        let complete = loop {
            match merge.next() {
                Ok(Some(object)) => match left.checked_sub(object.record.len()) {
                    Some(rest) => {
                        left = rest;
                        objects.insert(object.name.clone(), object);
                    }
                    None => break false,
                },
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let applied = Revision(self.applied.load(Ordering::Acquire));
        // The plane may have been deleted or forked meanwhile: then this stack is no longer its stack.
        let same = |now: &Arc<Plane>| now.stack == plane.stack;
        let still = self.planes.read().by_id.get(&plane.id).is_some_and(same);
        self.cache.end_load(plane.id, resource, (complete && still).then_some(objects), applied);
        self.cache.snapshot(plane.id, resource)
    }

    fn page_from_engine(&self, plane: &Plane, query: &ListQuery) -> Result<ListPage, ReadError> {
        let at = query.at.unwrap_or_else(|| self.current());
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
        // Checked after reading: what was read counts only if it was not being compacted away meanwhile.
        self.check_kept(plane, at)?;
        Ok(page)
    }
}

/// Objects of a stack of spaces in name order, upper spaces hiding lower ones.
struct StackScan<'a> {
    shared: &'a Shared,
    resource: ResourceId,
    namespace: Option<&'a str>,
    at: Revision,
    spaces: Vec<SpaceCursor>,
}

struct SpaceCursor {
    space: SpaceId,
    /// The next objects, in reverse order.
    buffer: Vec<(ObjectName, crate::engine::Version)>,
    after: Option<ObjectName>,
    done: bool,
}

impl<'a> StackScan<'a> {
    fn new(
        shared: &'a Shared,
        stack: &[SpaceId],
        resource: ResourceId,
        namespace: Option<&'a str>,
        after: Option<ObjectName>,
        at: Revision,
    ) -> StackScan<'a> {
        let cursor = |&space| SpaceCursor { space, buffer: Vec::new(), after: after.clone(), done: false };
        StackScan { shared, resource, namespace, at, spaces: stack.iter().map(cursor).collect() }
    }

    fn next(&mut self) -> Result<Option<Arc<StoredObject>>, EngineError> {
        loop {
            for index in 0..self.spaces.len() {
                self.fill(index)?;
            }
            let heads = self.spaces.iter().enumerate();
            let first =
                heads.filter_map(|(index, cursor)| cursor.buffer.last().map(|(name, _)| (name, index))).min();
            let Some((_, index)) = first else { return Ok(None) };
            let space = self.spaces[index].space;
            let Some((name, version)) = self.spaces[index].buffer.pop() else { return Ok(None) };
            for lower in &mut self.spaces[index + 1..] {
                if lower.buffer.last().is_some_and(|(own, _)| *own == name) {
                    lower.buffer.pop();
                }
            }
            if let Some(record) = version.record {
                return Ok(Some(Arc::new(StoredObject { name, revision: version.revision, space, record })));
            }
        }
    }

    fn fill(&mut self, index: usize) -> Result<(), EngineError> {
        let cursor = &mut self.spaces[index];
        if cursor.done || !cursor.buffer.is_empty() {
            return Ok(());
        }
        let mut objects = self.shared.reader.scan(&Scan {
            space: cursor.space,
            resource: self.resource,
            namespace: self.namespace,
            after: cursor.after.as_ref(),
            at: self.at,
            limit: SCAN_CHUNK_LEN,
        })?;
        cursor.done = objects.len() < SCAN_CHUNK_LEN;
        cursor.after = objects.last().map(|(name, _)| name.clone());
        objects.reverse();
        cursor.buffer = objects;
        Ok(())
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
    let from = match (&query.after, &query.namespace) {
        (Some(after), _) => Bound::Excluded(after.clone()),
        (None, Some(namespace)) => Bound::Included(ObjectName::new(namespace.clone(), "")),
        (None, None) => Bound::Unbounded,
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
