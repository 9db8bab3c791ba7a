//! Runs controllers for all planes: follows the feed, asks each controller what a change makes it look at, and lets
//! it do that, planes taking turns.
//!
//! How far the feed has been followed, and which planes have work left, is saved now and then. After a restart the feed
//! is followed from there, and the planes with work left are looked at anew: every object a controller is interested
//! in is shown to it. So is a fork, which has objects that no change told of: at once if its source had work left, else
//! when something changes in it.
//!
//! Invariant: whatever a saved cursor leaves behind has been observed, and is done or belongs to a plane that the
//! cursor names.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use polder_model::{GroupResource, PlaneId, SmolStr, Status};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::afterwards::Afterwards;
use crate::client::{ChangesError, Client, Cursor, Query};
use crate::controller::{Change, Controller, Interest, Next, Snapshot};
use crate::in_plane::InPlane;
use crate::large::within_turn;
use crate::queue::{FairQueue, Outcome, Pace, work_on};
use crate::seldom::Seldom;
use crate::stage::Places;

const PACE: Pace = Pace { at_once: 64, long: Duration::from_secs(1) };
/// Keys of one plane worked on at a time.
const PARALLEL: usize = 4;
/// Planes worked on at a time, for each core: those that need little, and those that need more. Few of the latter, since
/// each of them waits for the others at every step; more than none wait for a commit now and then.
const LIGHT_PER_CORE: usize = 8;
const LONG_PER_CORE: usize = 1;
/// Keys of one plane that are remembered one by one.
const PLANE_LEN_MAX: usize = 20_000;
/// Changes observed before others get on.
const YIELD_EVERY: u64 = 32;
const SAVE_EVERY: Duration = Duration::from_secs(5);
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Work is given up after this time, and tried again.
const LONGEST: Duration = Duration::from_secs(300);
/// No more often than this it is said of a plane that something in it cannot be reconciled.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
/// Objects shown at once when a plane is looked at anew.
const LOOK_PAGE_LEN: usize = 500;

/// The resource of `Plane` objects, in the core plane.
const PLANES: (&str, &str) = ("polder.dev", "planes");

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Item {
    /// Whose key it is; `LOOK`, `TELL` or `LEFT` for the whole plane.
    controller: usize,
    key: SmolStr,
}

const LOOK: usize = usize::MAX;
/// The whole plane, for those who tell of the server.
const TELL: usize = usize::MAX - 1;
/// What turns of the plane have left for later.
const LEFT: usize = usize::MAX - 2;
/// And how much later: when the chain of steps they belong to is over, as a rule.
const LEFT_FOR: Duration = Duration::from_millis(250);
/// Planes that are told at a time, and how long the next ones wait for them.
const TELL_LEN: usize = 256;
const TELL_PATIENCE: Duration = Duration::from_secs(60);

pub struct Runner {
    client: Arc<dyn Client>,
    controllers: Vec<Box<dyn Controller>>,
    /// Who is interested in a resource.
    interested: HashMap<GroupResource, Vec<usize>>,
    /// Who is interested in all of them.
    curious: Vec<usize>,
    queue: FairQueue<Item>,
    followed: AtomicU64,
    /// Something has happened since the cursor was saved.
    news: AtomicBool,
    /// A plane has been deleted since.
    deleted: AtomicBool,
    /// Copies that were looked at since the start.
    looked: Mutex<HashSet<PlaneId>>,
    complaints: Seldom,
    /// What planes begin with may say something old of the server.
    tells_new: AtomicBool,
    /// Planes that are being told.
    telling: Mutex<HashSet<PlaneId>>,
    told: Notify,
    left: Arc<Afterwards>,
}

impl Runner {
    pub fn new(client: Arc<dyn Client>, controllers: Vec<Box<dyn Controller>>) -> Runner {
        let mut interested: HashMap<GroupResource, Vec<usize>> = HashMap::new();
        let mut curious = Vec::new();
        for (number, controller) in controllers.iter().enumerate() {
            match controller.interest() {
                Interest::Everything => curious.push(number),
                Interest::In(resources) => {
                    for resource in resources {
                        interested.entry(resource).or_default().push(number);
                    }
                }
            }
        }
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let places = Places { light: cores * LIGHT_PER_CORE, long: cores * LONG_PER_CORE };
        let queue = FairQueue::on_stage(PLANE_LEN_MAX, look(), PARALLEL, places);
        let (followed, news, deleted) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Runner {
            client,
            controllers,
            interested,
            curious,
            queue,
            followed,
            news,
            deleted,
            looked: Mutex::default(),
            complaints: Seldom::new(COMPLAIN_EVERY),
            tells_new: AtomicBool::new(false),
            telling: Mutex::default(),
            told: Notify::new(),
            left: Arc::default(),
        }
    }

    /// From now on planes that are made are shown to those who tell of the server.
    pub fn tell_new(&self) {
        self.tells_new.store(true, Ordering::Release);
    }

    /// Shows all planes to those who tell of the server, a few at a time. When it has returned true, a restart does not
    /// leave one out: it was told, or has keys left and is named by the cursor.
    pub async fn tell(&self) -> bool {
        self.tell_new();
        let mut planes = self.client.planes_changed(0);
        planes.sort_unstable();
        for some in planes.chunks(TELL_LEN) {
            self.telling.lock().extend(some);
            some.iter().for_each(|plane| self.queue.add(*plane, tell()));
            let all = async {
                loop {
                    let told = self.told.notified();
                    if self.telling.lock().is_empty() {
                        return;
                    }
                    told.await;
                }
            };
            // One that cannot be looked at keeps the others waiting only so long: its key stays.
            timeout(TELL_PATIENCE, all).await.ok();
            self.telling.lock().clear();
        }
        self.save_now().await
    }

    /// Runs until told to stop. All tasks are the tracker's. Those of planes that need much run on `long`, and those of the others
    /// on `light`, so that the others do not wait for what these compute, and following the feed waits for nobody.
    pub async fn run(
        self: Arc<Self>,
        tasks: TaskTracker,
        [light, long]: [Handle; 2],
        stop: CancellationToken,
    ) {
        let work = |runner: Arc<Runner>, plane, item| -> BoxFuture<'static, Outcome> {
            Box::pin(async move { runner.turn(plane, item).await })
        };
        let work = work_on(
            self.clone(),
            PACE,
            (tasks.clone(), long),
            |runner| &runner.queue,
            |runner| runner.client.revision(),
            work,
        );
        tasks.spawn_on(stop.clone().run_until_cancelled_owned(work), &light);
        let runner = self.clone();
        let save = async move {
            loop {
                sleep(SAVE_EVERY).await;
                runner.save().await;
            }
        };
        tasks.spawn_on(stop.clone().run_until_cancelled_owned(save), &light);
        stop.run_until_cancelled(self.follow()).await;
        self.save().await;
    }

    async fn follow(&self) {
        let cursor = loop {
            match self.client.cursor().await {
                Ok(cursor) => break cursor,
                Err(error) => {
                    tracing::warn!(%error, "cannot read how far controllers have come");
                    sleep(RETRY_AFTER).await;
                }
            }
        };
        match cursor {
            Some(cursor) => {
                self.followed.store(cursor.revision, Ordering::Release);
                cursor.unfinished.iter().for_each(|plane| self.queue.add(*plane, look()));
            }
            None => self.begin_anew(),
        }
        loop {
            match self.follow_on().await {
                ChangesError::Ended => return,
                ChangesError::Gone { after } => {
                    tracing::warn!(
                        after,
                        "changes were forgotten before controllers saw them: all planes are looked at"
                    );
                    self.begin_anew();
                }
                error @ ChangesError::Failed(_) => {
                    tracing::warn!(%error, "controllers wait");
                    sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    /// Goes on with what comes from now on, and looks at everything there is.
    fn begin_anew(&self) {
        let (since, newest) = (self.followed.load(Ordering::Acquire), self.client.revision());
        // In this order: a cursor that is saved meanwhile names the planes.
        self.client.planes_changed(since).into_iter().for_each(|plane| self.queue.add(plane, look()));
        self.followed.store(newest, Ordering::Release);
        self.news.store(true, Ordering::Release);
    }

    async fn follow_on(&self) -> ChangesError {
        let mut changes = match self.client.changes(self.followed.load(Ordering::Acquire)) {
            Ok(changes) => changes,
            Err(error) => return error,
        };
        let mut seen = 0_u64;
        loop {
            let change = match changes.next().await {
                Ok(change) => change,
                Err(error) => return error,
            };
            // A commit may have several changes: those before the last one are seen again after a restart.
            self.followed.fetch_max(change.revision.saturating_sub(1), Ordering::AcqRel);
            self.observe(&change);
            self.queue.has_seen(change.revision);
            if !is_own(&change) {
                self.news.store(true, Ordering::Release);
            }
            seen += 1;
            if seen.is_multiple_of(YIELD_EVERY) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Shows a change to those who are interested in it and are asked.
    fn show(&self, change: &Change, asks: &dyn Fn(usize) -> bool) {
        let interested = self.interested.get(&change.resource).into_iter().flatten();
        for number in interested.chain(&self.curious).filter(|number| asks(**number)) {
            let controller = &self.controllers[*number];
            let mut wake = |key| self.queue.add(change.plane, Item { controller: *number, key });
            // All planes depend on this going on.
            let observed = catch_unwind(AssertUnwindSafe(|| controller.observe(change, &mut wake)));
            if observed.is_err() {
                let (plane, controller) = (change.plane, controller.name());
                tracing::error!(%plane, controller, key = %change.key(), "a controller cannot look at a change");
            }
        }
    }

    fn observe(&self, change: &Change) {
        self.show(change, &|_| true);
        // What else a copy began with is looked at when something changes there, not when it is made: most are never used.
        // Its own first commit, whose number is its name, tells of nothing else.
        if change.is_copy && change.revision > change.plane.0 && self.looked.lock().insert(change.plane) {
            self.queue.add(change.plane, look());
        }
        if change.plane == PlaneId::CORE
            && (change.resource.group.as_str(), change.resource.resource.as_str()) == PLANES
        {
            self.observe_plane(change);
        }
    }

    fn observe_plane(&self, change: &Change) {
        match (&change.old, &change.new) {
            // A copy of a plane with work left has the same work left.
            (None, Some(new)) => {
                if change.revision > 0
                    && self.tells_new.load(Ordering::Acquire)
                    && let Some(plane) = self.client.plane(&change.name)
                {
                    self.queue.add(plane, tell());
                }
                let source =
                    new.value().str_at(&["spec", "forkFrom"]).and_then(|name| self.client.plane(name));
                if source.is_some_and(|source| !self.queue.is_idle(source))
                    && let Some(plane) = self.client.plane(&change.name)
                    && self.looked.lock().insert(plane)
                {
                    self.queue.add(plane, look());
                }
            }
            (Some(_), None) => self.deleted.store(true, Ordering::Release),
            _ => {}
        }
    }

    async fn turn(&self, plane: PlaneId, item: Item) -> Outcome {
        if item.controller == LEFT {
            return if self.left.work(plane).await { Outcome::Again } else { Outcome::Done };
        }
        let late = |_| Err(Status::timeout("a controller took too long"));
        let work = self.left.within_turn(plane, within_turn(self.work(plane, &item)));
        let done = timeout(LONGEST, work).await.unwrap_or_else(late);
        if self.left.has(plane) {
            self.queue.add_after(plane, left(), LEFT_FOR);
        }
        // If it was the last one of its plane, the cursor can leave the plane out.
        self.news.store(true, Ordering::Release);
        let is_over = done.as_ref().map_or_else(|status| status.code == 404, |next| *next == Next::Done);
        if item.controller == TELL && is_over && self.telling.lock().remove(&plane) {
            self.told.notify_waiters();
        }
        let controller = self.controllers.get(item.controller).map_or("look", |controller| controller.name());
        let key = &item.key;
        match done {
            Ok(Next::Done) => Outcome::Done,
            Ok(Next::Again) => Outcome::Again,
            Ok(Next::Later) => Outcome::Later,
            Ok(Next::Seldom) => Outcome::Seldom,
            Ok(Next::After(delay)) => Outcome::After(delay),
            Ok(Next::Aside) => Outcome::Aside,
            // The plane is gone, or what the key stands for is.
            Err(status) if status.code == 404 => Outcome::Done,
            // What a plane's own users cause (a conflict, a quota, a webhook) is no news for whoever runs the server.
            Err(status) if status.code < 500 => {
                tracing::debug!(%plane, controller, %key, error = %status, "is tried again");
                Outcome::Later
            }
            Err(status) if self.complaints.is_due(plane) => {
                tracing::warn!(%plane, controller, %key, error = %status, "cannot be reconciled yet");
                Outcome::Later
            }
            Err(status) => {
                tracing::debug!(%plane, controller, %key, error = %status, "cannot be reconciled yet");
                Outcome::Later
            }
        }
    }

    async fn work(&self, plane: PlaneId, item: &Item) -> Result<Next, Status> {
        match self.controllers.get(item.controller) {
            Some(controller) => {
                let plane = InPlane { client: self.client.clone(), plane };
                controller.reconcile(&plane, &item.key).await
            }
            None => self.look_at(plane, item.controller == TELL).await,
        }
    }

    /// Shows every object of a plane to those who are interested in it, or to those of them who tell of the server.
    async fn look_at(&self, plane: PlaneId, for_tellers: bool) -> Result<Next, Status> {
        let asks = |number: usize| !for_tellers || self.controllers[number].tells();
        for (number, controller) in self.controllers.iter().enumerate().filter(|(number, _)| asks(*number)) {
            controller.look(plane, &mut |key| self.queue.add(plane, Item { controller: number, key }));
        }
        let mut seen = HashSet::new();
        for facts in self.client.resources(plane).await? {
            let resource = facts.name.group_resource();
            let interested = self.interested.get(&resource);
            let is_asked_for = interested.is_some_and(|all| all.iter().any(|number| asks(*number)));
            if !is_asked_for || !seen.insert(resource.clone()) {
                continue;
            }
            let mut after = None;
            loop {
                let query = Query { after, limit: LOOK_PAGE_LEN, ..Query::default() };
                let page = self.client.list(plane, &facts.name, query).await?;
                if page.is_empty() {
                    break;
                }
                after = None;
                for object in page {
                    let text = |field| SmolStr::new(object.str_at(&["metadata", field]).unwrap_or_default());
                    let (namespace, name) = (text("namespace"), text("name"));
                    after = Some((namespace.clone(), name.clone()));
                    let resource = resource.clone();
                    let version =
                        object.str_at(&["metadata", "resourceVersion"]).and_then(|text| text.parse().ok());
                    let resource_version = version.unwrap_or_default();
                    let new = Some(Snapshot::from(object));
                    let (revision, old, is_copy) = (0, None, false);
                    let change = Change {
                        revision,
                        resource_version,
                        plane,
                        is_copy,
                        resource,
                        namespace,
                        name,
                        old,
                        new,
                    };
                    match for_tellers {
                        true => self.show(&change, &asks),
                        false => self.observe(&change),
                    }
                }
            }
        }
        Ok(Next::Done)
    }

    async fn save(&self) {
        if self.deleted.swap(false, Ordering::AcqRel) {
            let is_gone = |plane| !self.client.has_plane(plane);
            self.controllers.iter().for_each(|controller| controller.forget(&is_gone));
            self.looked.lock().retain(|plane| !is_gone(*plane));
        }
        if self.news.swap(false, Ordering::AcqRel) {
            self.save_now().await;
        }
    }

    /// Saves how far the feed was followed, and which planes have keys left.
    async fn save_now(&self) -> bool {
        // In this order: what was observed up to here is in the queue, or done, when the queue is asked.
        let revision = self.followed.load(Ordering::Acquire);
        let cursor = Cursor { revision, unfinished: self.queue.busy() };
        if let Err(error) = self.client.cursor_save(cursor).await {
            tracing::warn!(%error, "cannot save how far controllers have come");
            self.news.store(true, Ordering::Release);
            return false;
        }
        true
    }
}

fn tell() -> Item {
    Item { controller: TELL, key: SmolStr::default() }
}

fn left() -> Item {
    Item { controller: LEFT, key: SmolStr::default() }
}

fn look() -> Item {
    Item { controller: LOOK, key: SmolStr::default() }
}

/// Whether a change is no more than a cursor that was saved.
fn is_own(change: &Change) -> bool {
    change.plane == PlaneId::CORE
        && change.resource.group == "polder.dev"
        && change.resource.resource == "cursors"
}
