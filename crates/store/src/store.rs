//! The store as the rest of the system sees it: reads, commits, watches, planes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use polder_model::{GroupResource, PlaneId};
use tokio::sync::{mpsc, oneshot};

use crate::cache::Lookup;
use crate::change::{Change, CommitError, Committed};
use crate::committer::{self, Committer, Job};
use crate::engine::{Engine, EngineError, Names as _};
use crate::feed::{Event, Watch, WatchError, WatchScope};
use crate::fresh::Freshness;
use crate::key::{ObjectName, ResourceId, Revision};
use crate::list::{ListPage, ListQuery, page_from_snapshot};
use crate::object::{Record, StoredObject};
use crate::plane::{Plane, Profile};
use crate::read::{ReadError, run_blocking};
use crate::shared::Shared;

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

/// What a store has from the start, or gets when it is opened.
pub struct Beginning<'a> {
    /// The content address of all that `base` says. Empty: there is nothing of the kind, and it is not asked.
    pub digest: String,
    /// The objects every new plane of a profile starts with.
    pub base: Box<BaseObjects<'a>>,
    /// An object of the core plane that is written in the same commit, unless there is one.
    pub core: Option<(GroupResource, ObjectName, Record)>,
}

/// See [`Beginning::base`]. It is told how to number resources.
pub type BaseObjects<'a> = dyn Fn(Profile, &dyn Fn(&GroupResource) -> ResourceId) -> Vec<BaseObject> + 'a;
/// One of them.
pub type BaseObject = (ResourceId, ObjectName, Record);

/// Looks up objects of the core plane while a store is opened.
pub type CoreLookup<'a> = dyn Fn(&GroupResource, &ObjectName) -> Result<Option<Record>, EngineError> + 'a;

/// How it goes with the other replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    pub leads: bool,
    /// Commits that are known of and not here yet.
    pub behind: u64,
    /// How often a group of changes was planned again because others were first.
    pub overtaken: u64,
    /// How often it was asked what is newest: for many readers at a time.
    pub questions: u64,
}

/// Told what other replicas have changed, when it is visible here.
pub(crate) type Follower = Box<dyn Fn(&[Arc<Event>]) + Send + Sync>;

/// The store. Cheap to share; closing it waits for the last commit.
#[derive(Debug)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
    committer: Mutex<Option<std::thread::JoinHandle<()>>>,
    freshness: Freshness,
}

impl Store {
    /// Opens a store on an engine, makes base layers if their digest is new, and the core plane if it is missing.
    ///
    /// `base` are the objects every new plane of a profile starts with; `digest` is the content address of all of them. With an
    /// empty digest there are none, and `base` is not asked.
    pub fn open(
        engine: Box<dyn Engine>,
        options: StoreOptions,
        digest: &str,
        base: impl Fn(Profile, &dyn Fn(&GroupResource) -> ResourceId) -> Vec<BaseObject>,
    ) -> Result<Arc<Store>, EngineError> {
        let base = &base;
        Store::open_with(engine, options, |_| {
            let base =
                Box::new(move |profile, ids: &dyn Fn(&GroupResource) -> ResourceId| base(profile, ids));
            Ok(Beginning { digest: digest.to_owned(), base, core: None })
        })
    }

    /// The same where what planes start with depends on what the core plane has. Asked again when another replica has written
    /// meanwhile, so what it says is of all replicas or of none.
    pub fn open_with<'a>(
        mut engine: Box<dyn Engine>,
        options: StoreOptions,
        begin: impl FnMut(&CoreLookup<'_>) -> Result<Beginning<'a>, EngineError>,
    ) -> Result<Arc<Store>, EngineError> {
        let recovered = engine.recover()?;
        let freshness = Freshness::new(engine.horizon());
        let shared = Arc::new(Shared::new(engine.reader(), &options, &recovered)?);
        let mut committer = Committer::new(engine, shared.clone(), &options, recovered)?;
        shared.set_leading(committer.leads());
        committer.begin(begin)?;

        let (jobs, queue) = mpsc::channel(options.queue_len_max);
        let ticks = jobs.downgrade();
        let news = jobs.downgrade();
        committer.set_bell(Arc::new(move || {
            // A committer with a full queue looks before its next group anyway.
            if let Some(jobs) = news.upgrade() {
                jobs.try_send(Job::News).ok();
            }
        }));
        let thread = std::thread::Builder::new()
            .name("polder-commit".into())
            .spawn(move || committer.run(queue))
            .map_err(|error| EngineError::Failed(Box::new(error)))?;
        committer::start_ticks(ticks).map_err(|error| EngineError::Failed(Box::new(error)))?;
        Ok(Arc::new(Store { shared, jobs, committer: Mutex::new(Some(thread)), freshness }))
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

    /// The planes that were changed after a revision, or may have been.
    pub fn planes_changed(&self, after: Revision) -> Vec<PlaneId> {
        let planes = self.shared.planes.read();
        let changed = |plane: &&Arc<Plane>| plane.usage.last_change().is_none_or(|last| last > after);
        planes.by_id.values().filter(changed).map(|plane| plane.id).collect()
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
        self.shared.resources.read().find(name)
    }

    /// What a short id stands for.
    pub fn resource_name(&self, id: ResourceId) -> Option<GroupResource> {
        self.shared.resources.read().name(id)
    }

    /// Commits a change: all of it under one revision, durable when this returns, or nothing. Runs to its end even
    /// when the caller goes away.
    pub async fn commit(&self, change: Change) -> Result<Committed, CommitError> {
        if !self.is_shared() {
            return self.submit(change).await;
        }
        let (looked, again) = (self.current(), change.clone());
        let outcome = self.submit(change).await;
        // What is refused commits nothing, so nobody has checked that it was judged by the newest state.
        if outcome.as_ref().is_err_and(CommitError::is_judgement) {
            let unasked = |error| CommitError::Engine(Arc::new(EngineError::Unavailable(Box::new(error))));
            self.fresh().await.map_err(unasked)?;
            if self.current() > looked {
                return self.submit(again).await;
            }
        }
        outcome
    }

    async fn submit(&self, change: Change) -> Result<Committed, CommitError> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(Job::Commit { change, reply }).await.map_err(|_| CommitError::Closed)?;
        // Whatever is queued is answered, also at the end. Without an answer the committer has died, perhaps after it
        // made the change.
        answer.await.map_err(|_| {
            CommitError::Unknown(Arc::new(EngineError::Unknown("the committer has died".into())))
        })?
    }

    /// Tells somebody what other replicas change, in order, each change when it is visible here. Called on the thread that
    /// commits, so it must be quick. Once.
    pub fn follow_others(&self, follower: impl Fn(&[Arc<Event>]) + Send + Sync + 'static) {
        self.shared.follower.set(Box::new(follower)).ok();
    }

    /// Waits until everything is visible here that anybody was told of before, on whichever replica. Done at once where there are
    /// no others.
    pub async fn fresh(&self) -> Result<(), ReadError> {
        let Some(newest) = self.freshness.newest().await? else { return Ok(()) };
        if newest > self.current() && !self.wait_for(newest, Freshness::patience()).await {
            return Err(ReadError::Behind);
        }
        drop(self.shared.telling.read());
        Ok(())
    }

    /// How it goes with the other replicas; nothing where there are none.
    pub fn sharing(&self) -> Option<Sharing> {
        let (questions, newest) = self.freshness.asked();
        let behind = newest.map_or(0, |newest| newest.0.saturating_sub(self.current().0));
        let overtaken = self.shared.overtaken.load(Ordering::Relaxed);
        self.is_shared().then_some(Sharing { leads: self.leads(), behind, overtaken, questions })
    }

    /// Whether what replicas share was there when somebody last asked; where there are none, always.
    pub fn is_in_touch(&self) -> bool {
        self.freshness.is_answered()
    }

    /// Whether other replicas may write, too.
    pub fn is_shared(&self) -> bool {
        self.freshness.is_shared()
    }

    /// The newest version of an object.
    pub async fn get(
        &self,
        plane: &Arc<Plane>,
        resource: ResourceId,
        name: &ObjectName,
    ) -> Result<Option<Arc<StoredObject>>, ReadError> {
        if !name.is_storable() {
            return Ok(None);
        }
        let warm = match self.shared.cache.get(plane.id, resource, name) {
            Lookup::Found(object, last_change) => {
                self.shared.visible(last_change).await;
                return Ok(object);
            }
            Lookup::Cold => false,
            Lookup::Warm => true,
        };
        let (plane, name) = (plane.id, name.clone());
        let read = run_blocking(&self.shared, plane, move |shared| {
            if warm {
                shared.load(plane, resource);
            }
            shared.at_current(plane, |plane, at| shared.find(&plane.stack, resource, &name, at))
        });
        read.await.ok_or(ReadError::Closed)?
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
        let plane = plane.id;
        let page = run_blocking(&self.shared, plane, move |shared| {
            let Some(at) = query.at else {
                if let Some(snapshot) = shared.load(plane, query.resource)
                    && let Some(page) = page_from_snapshot(&snapshot, current, &query)
                {
                    return Ok(page);
                }
                return shared.at_current(plane, |plane, at| shared.page_from_engine(plane, &query, at));
            };
            shared.at_revision(plane, at, |plane, at| shared.page_from_engine(plane, &query, at))
        });
        let page = page.await.ok_or(ReadError::Closed)??;
        self.shared.visible(page.revision).await;
        Ok(page)
    }

    /// Whether nothing was written to a plane since the commit that made it, and it stands on nothing but the base
    /// layer.
    pub async fn is_untouched(&self, plane: &Arc<Plane>) -> Result<bool, ReadError> {
        let plane = plane.id;
        let read = run_blocking(&self.shared, plane, move |shared| {
            let plane = shared.plane_now(plane)?;
            let (overlay, below) = (plane.overlay(), &plane.stack[1..]);
            let fresh = below.iter().all(|space| shared.planes.read().bases.contains(space));
            // A plane's number is the revision of that commit.
            let first_only = plane.usage.last_change() == Some(Revision(plane.id.0));
            Ok(fresh && (first_only || shared.reader.is_empty(overlay)?))
        });
        read.await.ok_or(ReadError::Closed)?
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

    /// A watch that sees nothing, and ends when watches of clients do: for streams that do not come from here.
    pub fn lifeline(&self, plane: PlaneId) -> Result<Watch, WatchError> {
        // A number that no resource has.
        self.watch(WatchScope::Collection(plane, ResourceId(u32::MAX)), self.current())
    }

    /// Ends every watch on a collection; whoever may watch begins again.
    pub fn end_client_watches(&self) {
        self.shared.feed.end_collections();
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

    /// Whether this store leads: it alone does what only one of several may do. Known within a second.
    pub fn leading(&self) -> tokio::sync::watch::Receiver<bool> {
        self.shared.leading.subscribe()
    }

    /// The same at this moment.
    pub fn leads(&self) -> bool {
        *self.shared.leading.borrow()
    }

    /// Whether writes can be made: the committer is there, and knows what it has written.
    pub fn is_running(&self) -> bool {
        !self.jobs.is_closed() && !self.shared.is_stopped()
    }

    /// Whether everything read so far was what had been written.
    pub fn is_sound(&self) -> bool {
        !self.shared.damaged.load(Ordering::Relaxed)
    }

    /// Finishes what is queued and stops the committer.
    pub fn close(&self) {
        self.shared.feed.end_all();
        let thread = self.committer.lock().take();
        if let Some(thread) = thread {
            // The flag before the knock: a committer that is too busy to take the knock finds the flag.
            self.shared.set_closing();
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
