//! Runs controllers for all planes: follows the feed, asks each controller what a change makes it look at, and lets
//! workers do that, planes taking turns.
//!
//! How far the feed has been followed, and which planes have work left, is saved now and then. After a restart the feed
//! is followed from there, and the planes with work left are looked at anew: every object a controller is interested
//! in is shown to it. So is a fork, which has objects that no change told of.
//!
//! Invariant: whatever a saved cursor leaves behind has been observed, and is done or belongs to a plane that the
//! cursor names.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use polder_model::{GroupResource, PlaneId, SmolStr, Status};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::{ChangesError, Client, Cursor, Query};
use crate::controller::{Change, Controller, Interest, Next, Snapshot};
use crate::in_plane::InPlane;
use crate::queue::{FairQueue, Outcome};

const WORKERS: usize = 16;
/// Keys of one plane worked on at a time.
const PARALLEL: usize = 4;
/// Keys of one plane that are remembered one by one.
const PLANE_LEN_MAX: usize = 20_000;
const SAVE_EVERY: Duration = Duration::from_secs(5);
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Objects shown at once when a plane is looked at anew.
const LOOK_PAGE_LEN: usize = 500;

/// The resource of `Plane` objects, in the core plane.
const PLANES: (&str, &str) = ("polder.dev", "planes");

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Item {
    /// Whose key it is; `LOOK` for the whole plane.
    controller: usize,
    key: SmolStr,
}

const LOOK: usize = usize::MAX;

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
        let queue = FairQueue::new(PLANE_LEN_MAX, look(), PARALLEL);
        let (followed, news) = (AtomicU64::new(0), AtomicBool::new(false));
        Runner { client, controllers, interested, curious, queue, followed, news }
    }

    /// Runs until told to stop. All tasks are the tracker's.
    pub async fn run(self: Arc<Self>, tasks: TaskTracker, stop: CancellationToken) {
        for _ in 0..WORKERS {
            let (runner, tracker) = (self.clone(), tasks.clone());
            let work = async move {
                loop {
                    runner.take_turn(&tracker).await;
                }
            };
            tasks.spawn(stop.clone().run_until_cancelled_owned(work));
        }
        let runner = self.clone();
        let save = async move {
            loop {
                sleep(SAVE_EVERY).await;
                runner.save().await;
            }
        };
        tasks.spawn(stop.clone().run_until_cancelled_owned(save));
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
        self.followed.store(self.client.revision(), Ordering::Release);
        self.client.planes().into_iter().for_each(|plane| self.queue.add(plane, look()));
        self.news.store(true, Ordering::Release);
    }

    async fn follow_on(&self) -> ChangesError {
        let mut changes = match self.client.changes(self.followed.load(Ordering::Acquire)) {
            Ok(changes) => changes,
            Err(error) => return error,
        };
        loop {
            let change = match changes.next().await {
                Ok(change) => change,
                Err(error) => return error,
            };
            // A commit may have several changes: those before the last one are seen again after a restart.
            self.followed.fetch_max(change.revision.saturating_sub(1), Ordering::AcqRel);
            self.observe(&change);
            if !is_own(&change) {
                self.news.store(true, Ordering::Release);
            }
        }
    }

    fn observe(&self, change: &Change) {
        let interested = self.interested.get(&change.resource).into_iter().flatten();
        for number in interested.chain(&self.curious) {
            self.controllers[*number].observe(change, &mut |key| {
                self.queue.add(change.plane, Item { controller: *number, key });
            });
        }
        if change.plane == PlaneId::CORE
            && (change.resource.group.as_str(), change.resource.resource.as_str()) == PLANES
        {
            self.observe_plane(change);
        }
    }

    fn observe_plane(&self, change: &Change) {
        match (&change.old, &change.new) {
            (None, Some(new)) if new.value().at(&["spec", "forkFrom"]).is_some() => {
                if let Some(plane) = self.client.plane(&change.name) {
                    self.queue.add(plane, look());
                }
            }
            (Some(_), None) => {
                let is_gone = |plane| !self.client.has_plane(plane);
                self.controllers.iter().for_each(|controller| controller.forget(&is_gone));
            }
            _ => {}
        }
    }

    async fn take_turn(self: &Arc<Self>, tasks: &TaskTracker) {
        let turn = self.queue.take().await;
        let (plane, item) = (turn.plane, turn.item.clone());
        let name = self.controllers.get(item.controller).map_or("look", |controller| controller.name());
        let key = item.key.clone();
        // In a task of its own: whatever goes wrong in one plane, the others go on.
        let runner = self.clone();
        let outcome = match tasks.spawn(async move { runner.work(plane, &item).await }).await {
            Ok(Ok(Next::Done)) => Outcome::Done,
            Ok(Ok(Next::Again)) => Outcome::Again,
            Ok(Ok(Next::Later)) => Outcome::Later,
            Ok(Ok(Next::After(delay))) => Outcome::After(delay),
            // The plane is gone, or what the key stands for is.
            Ok(Err(status)) if status.code == 404 => Outcome::Done,
            // Somebody else was faster. Another look will show what is left to do.
            Ok(Err(status)) if status.code == 409 => {
                tracing::debug!(%plane, controller = name, %key, error = %status, "is tried again");
                Outcome::Later
            }
            Ok(Err(status)) => {
                tracing::warn!(%plane, controller = name, %key, error = %status, "cannot be reconciled yet");
                Outcome::Later
            }
            Err(error) if error.is_panic() => {
                tracing::error!(%plane, controller = name, %key, %error, "a controller broke off");
                Outcome::Later
            }
            Err(_) => Outcome::Later,
        };
        turn.finish(outcome);
        if self.queue.is_idle(plane) {
            self.news.store(true, Ordering::Release);
        }
    }

    async fn work(&self, plane: PlaneId, item: &Item) -> Result<Next, Status> {
        match self.controllers.get(item.controller) {
            Some(controller) => {
                let plane = InPlane { client: self.client.clone(), plane };
                controller.reconcile(&plane, &item.key).await
            }
            None => self.look_at(plane).await,
        }
    }

    /// Shows every object of a plane to those who are interested in it.
    async fn look_at(&self, plane: PlaneId) -> Result<Next, Status> {
        for (number, controller) in self.controllers.iter().enumerate() {
            controller.look(plane, &mut |key| self.queue.add(plane, Item { controller: number, key }));
        }
        let mut seen = HashSet::new();
        for facts in self.client.resources(plane).await? {
            let resource = facts.name.group_resource();
            if !self.interested.contains_key(&resource) || !seen.insert(resource.clone()) {
                continue;
            }
            let mut after = None;
            loop {
                let query = Query { after, limit: LOOK_PAGE_LEN, ..Query::default() };
                let page = self.client.list(plane, &facts.name, query).await?;
                let full = page.len() >= LOOK_PAGE_LEN;
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
                    let (revision, old) = (0, None);
                    self.observe(&Change {
                        revision,
                        resource_version,
                        plane,
                        resource,
                        namespace,
                        name,
                        old,
                        new,
                    });
                }
                if !full {
                    break;
                }
            }
        }
        Ok(Next::Done)
    }

    async fn save(&self) {
        if !self.news.swap(false, Ordering::AcqRel) {
            return;
        }
        // In this order: what was observed up to here is in the queue, or done, when the queue is asked.
        let revision = self.followed.load(Ordering::Acquire);
        let cursor = Cursor { revision, unfinished: self.queue.busy() };
        if let Err(error) = self.client.cursor_save(cursor).await {
            tracing::warn!(%error, "cannot save how far controllers have come");
            self.news.store(true, Ordering::Release);
        }
    }
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
