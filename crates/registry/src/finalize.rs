//! What must happen after a request was answered: a namespace's and a CRD's contents go first, then they themselves;
//! CRDs that wait for names are looked at again.
//!
//! Chores are done by a few workers, planes taking turns, a bounded piece of work each turn. Which planes have any is
//! stored with the write that makes them (a *mark* in the core plane), so that after a crash they go on without a look
//! at every plane. A mark goes only when a look at its plane, made after the mark was read, finds nothing.
//!
//! What counts as unfinished is what still carries our own finalizer. Whoever put another one there takes it away in an
//! ordinary write, and the object goes with that.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use polder_auth::UserInfo;
use polder_client::Propagation;
use polder_client::queue::{FairQueue, Outcome, Spent};
use polder_model::{GroupResource, PlaneId, SmolStr, Status, Value, json};
use polder_store::{Change, Expect, Filter, Key, ListQuery, ObjectName, Plane, Record, StoredObject, Write};

use crate::context::{RequestContext, WriteOptions};
use crate::custom::{self, CLEANUP_FINALIZER};
use crate::definition::Target;
use crate::delete::DeleteOptions;

use crate::registry::Registry;
use crate::remains::{Remains, report};
use crate::status::{commit_failed, read_failed};

const WORKERS: usize = 4;
/// Nobody waits longer for a chore of another plane.
const LONG: Duration = Duration::from_secs(1);
/// Chores of one plane that are remembered one by one.
const PLANE_LEN_MAX: usize = 1_000;
/// Objects removed in one turn.
const TURN_LEN_MAX: usize = 512;
const TURN_BYTES_MAX: usize = 1 << 20;
/// Deletes under way at a time: they share a commit group.
const PARALLEL: usize = 64;
/// Where our finalizers are: in the spec of a namespace, in the metadata of a CRD.
const NAMESPACE_HOLD: Hold = Hold { path: ["spec", "finalizers"], finalizer: "kubernetes" };
pub(crate) const CRD_HOLD: Hold = Hold { path: ["metadata", "finalizers"], finalizer: CLEANUP_FINALIZER };
/// Marks are objects of a resource nobody serves.
const MARKS: (&str, &str) = ("polder.dev", "chores");

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Chore {
    /// Removes what is in a namespace, then the namespace.
    Namespace { name: SmolStr },
    /// Removes the objects of a CRD, then the CRD.
    CustomResources { crd: SmolStr },
    /// Gives free names to CRDs of a group that wait for them.
    Names { group: SmolStr },
    /// Finds out what else a plane has to do.
    Look,
    /// Finds the planes that had something to do when the server last stopped. Of the core plane.
    Resume,
}

/// A finalizer of ours.
#[derive(Clone, Copy)]
pub(crate) struct Hold {
    path: [&'static str; 2],
    finalizer: &'static str,
}

pub(crate) struct Chores {
    queue: FairQueue<Chore>,
}

impl Default for Chores {
    fn default() -> Chores {
        Chores { queue: FairQueue::new(PLANE_LEN_MAX, Chore::Look, 1) }
    }
}

/// Whether a resource is that of marks.
pub(crate) fn is_mark(resource: &GroupResource) -> bool {
    (resource.group.as_str(), resource.resource.as_str()) == MARKS
}

impl Registry {
    /// Takes up what a plane was deleting when it was forked, and brings its default roles back. Called once, when a plane is first
    /// used. A plane that stands on nothing but the base has a mark for whatever it has to delete.
    pub async fn resume_chores(&self, plane: PlaneId) {
        let Some(plane) = self.store.plane_by_id(plane) else { return };
        if plane.stack.len() > 2
            && let Err(status) = self.look_or_mark(&plane).await
        {
            tracing::warn!(plane = %plane.name, error = %status, "cannot look for unfinished deletions yet");
            self.add_chore(plane.id, Chore::Look);
        }
        if let Err(status) = self.restore_default_roles(&plane).await {
            tracing::warn!(plane = %plane.id, error = %status, "cannot look for default roles");
        }
    }

    /// Does chores until the server stops, while this replica leads. Whoever runs the server owns the workers.
    pub async fn run_chores(self: Arc<Self>) {
        let worker = |registry: Arc<Registry>| async move {
            let mut leads = registry.store.leading();
            while leads.wait_for(|leads| *leads).await.is_ok() {
                registry.take_turn().await;
            }
        };
        let workers: Vec<_> = (0..WORKERS).map(|_| self.tasks.spawn(worker(self.clone()))).collect();
        let mut leads = self.store.leading();
        while leads.wait_for(|leads| *leads).await.is_ok() {
            self.chores.queue.add(PlaneId::CORE, Chore::Resume);
            if leads.wait_for(|leads| !*leads).await.is_err() {
                break;
            }
        }
        join_all(workers).await;
    }

    /// Queues a chore where it will be done. Elsewhere nothing is lost: the mark of its plane tells whoever leads.
    pub(crate) fn add_chore(&self, plane: PlaneId, chore: Chore) {
        if self.store.leads() {
            self.chores.queue.add(plane, chore);
        }
    }

    /// Another replica has marked a plane: there is something to do.
    pub(crate) fn marked_elsewhere(&self, name: &ObjectName) {
        if let Some(plane) = self.store.plane(&name.name) {
            self.add_chore(plane.id, Chore::Look);
        }
    }

    /// Does the next chore. One that takes long (a webhook of its plane may be slow, or dead) goes on by itself: it holds up
    /// none but its plane.
    async fn take_turn(self: &Arc<Self>) {
        let (plane, chore) = self.chores.queue.take().await.detach();
        let mut work = self.tasks.spawn(self.clone().turn(plane, chore));
        drop(tokio::time::timeout(LONG, &mut work).await);
    }

    async fn turn(self: Arc<Self>, plane: PlaneId, chore: Chore) {
        // In a task of its own: whatever goes wrong in one plane's chore, it is tried again.
        let (registry, own) = (self.clone(), chore.clone());
        let task = self.tasks.spawn(async move { registry.do_chore(plane, &own).await });
        let outcome = match task.await {
            Ok(Ok(outcome)) => outcome,
            // The plane is gone, or what the chore was about is.
            Ok(Err(status)) if status.code == 404 => Outcome::Done,
            Ok(Err(status)) => {
                tracing::warn!(%plane, ?chore, error = %status, "a chore is not done yet");
                Outcome::Later
            }
            Err(error) => {
                tracing::error!(%plane, ?chore, %error, "a chore broke off");
                Outcome::Later
            }
        };
        self.chores.queue.finish(plane, &chore, outcome, Spent::default());
        if self.chores.queue.is_idle(plane)
            && let Err(status) = self.unmark(plane).await
        {
            tracing::warn!(%plane, error = %status, "cannot note that a plane's chores are done");
        }
    }

    /// Something that held others up is gone: who waits for that may go on.
    pub(crate) fn nudge_holder(&self, plane: PlaneId, resource: &GroupResource, name: &ObjectName) {
        if !name.namespace.is_empty() {
            self.chores.queue.nudge(plane, &Chore::Namespace { name: name.namespace.clone() });
        }
        if !resource.group.is_empty() {
            let crd = SmolStr::from(format!("{}.{}", resource.resource, resource.group));
            self.chores.queue.nudge(plane, &Chore::CustomResources { crd });
        }
    }

    /// Goes on with what was under way when the server last stopped.
    async fn resume_marked(&self, core: &Arc<Plane>) -> Result<(), Status> {
        let page = self.store.list(core, everything(self.marks(), None)).await;
        let marks = page.map_err(|error| read_failed(core, error))?.objects;
        for mark in marks {
            match self.store.plane(&mark.name.name) {
                Some(plane) => self.add_chore(plane.id, Chore::Look),
                None => {
                    let key = Key { plane: core.id, resource: self.marks(), name: mark.name.clone() };
                    self.store.commit(Change::delete(key, Expect::At(mark.revision))).await.ok();
                }
            }
        }
        Ok(())
    }

    fn marks(&self) -> polder_store::ResourceId {
        self.store.resource_id(&GroupResource::new(MARKS.0, MARKS.1))
    }

    /// The write that says a plane has chores; part of the commit that makes them.
    pub(crate) fn chore_mark(&self, plane: &Plane) -> Write {
        let name = ObjectName::cluster(plane.name.as_str());
        let record = Record::encode(&json!({"metadata": {"name": (plane.name.as_str())}}));
        let key = Key { plane: PlaneId::CORE, resource: self.marks(), name };
        Write { key, record: Some(record), expect: Expect::Anything }
    }

    /// The write that takes the mark of a plane away, if it has one; part of the commit that deletes the plane.
    pub(crate) async fn chore_unmark(&self, plane: &str) -> Result<Option<Write>, Status> {
        let Some(core) = self.store.plane_by_id(PlaneId::CORE) else { return Ok(None) };
        let name = ObjectName::cluster(plane);
        let found = self.store.get(&core, self.marks(), &name).await;
        let found = found.map_err(|error| read_failed(&core, error))?;
        let key = Key { plane: PlaneId::CORE, resource: self.marks(), name };
        Ok(found.map(|_| Write { key, record: None, expect: Expect::Anything }))
    }

    /// Takes a plane's mark away, unless there is something to do after all.
    async fn unmark(&self, plane: PlaneId) -> Result<(), Status> {
        let (Some(core), Some(plane)) =
            (self.store.plane_by_id(PlaneId::CORE), self.store.plane_by_id(plane))
        else {
            return Ok(());
        };
        let name = ObjectName::cluster(plane.name.as_str());
        let found = self.store.get(&core, self.marks(), &name).await;
        let Some(mark) = found.map_err(|error| read_failed(&core, error))? else { return Ok(()) };
        let unfinished = self.deletions(&plane).await?;
        if !unfinished.is_empty() {
            // Somebody is about to queue them, or a chore came to nothing: then trying at once would never end.
            unfinished.into_iter().for_each(|chore| self.chores.queue.add_later(plane.id, chore));
            return Ok(());
        }
        // Names that became free just now are given away while the mark is there.
        custom::settle_all_names(self, &RequestContext::new(plane, UserInfo::system())).await?;
        let key = Key { plane: PlaneId::CORE, resource: self.marks(), name };
        // If it was marked again meanwhile, it stays.
        self.store.commit(Change::delete(key, Expect::At(mark.revision))).await.ok();
        Ok(())
    }

    /// The same where another replica may lead: then it is told.
    async fn look_or_mark(&self, plane: &Arc<Plane>) -> Result<(), Status> {
        if self.store.leads() {
            return self.look(plane).await;
        }
        if !self.deletions(plane).await?.is_empty() {
            let change = Change { writes: vec![self.chore_mark(plane)], ..Change::default() };
            let marked = self.store.commit(change).await;
            marked.map_err(|error| {
                commit_failed(plane, &GroupResource::new(MARKS.0, MARKS.1), plane.name.as_str(), error)
            })?;
        }
        Ok(())
    }

    /// Queues whatever a plane has to do.
    async fn look(&self, plane: &Arc<Plane>) -> Result<(), Status> {
        for chore in self.deletions(plane).await? {
            self.add_chore(plane.id, chore);
        }
        let catalog = self.catalog(plane).await?;
        for (name, _) in catalog.crds().filter(|(_, crd)| crd.waiting) {
            self.add_chore(plane.id, Chore::Names { group: name.group.clone() });
        }
        Ok(())
    }

    /// What a plane is deleting and cannot finish without us.
    async fn deletions(&self, plane: &Arc<Plane>) -> Result<Vec<Chore>, Status> {
        let held: Arc<Filter> = Arc::new(|stored: &StoredObject| {
            marked(&stored.record).is_some_and(|object| carries(&object, NAMESPACE_HOLD))
        });
        let page = self.store.list(plane, everything(self.namespaces, Some(held))).await;
        let page = page.map_err(|error| read_failed(plane, error))?;
        let namespaces =
            page.objects.iter().map(|stored| Chore::Namespace { name: stored.name.name.clone() });
        let catalog = self.catalog(plane).await?;
        let crds = catalog.crds().filter(|(_, crd)| crd.terminating && crd.held);
        let crds = crds.map(|(name, _)| Chore::CustomResources {
            crd: SmolStr::from(format!("{}.{}", name.resource, name.group)),
        });
        Ok(namespaces.chain(crds).collect())
    }

    async fn do_chore(&self, plane: PlaneId, chore: &Chore) -> Result<Outcome, Status> {
        let Some(plane) = self.store.plane_by_id(plane) else { return Ok(Outcome::Done) };
        // A webhook that does not answer must not keep anything from being deleted.
        let context = RequestContext::new(plane, UserInfo::system()).without_conversion();
        // What was queued may be over, or may have been made again since: only what is being deleted now counts.
        let (resource, name) = match chore {
            Chore::Namespace { name } => (self.namespaces, name),
            Chore::CustomResources { crd } => (self.crds, crd),
            Chore::Names { group } => {
                custom::settle_names(self, &context, group).await?;
                return Ok(Outcome::Done);
            }
            Chore::Look => {
                self.look(&context.plane).await?;
                return Ok(Outcome::Done);
            }
            Chore::Resume => {
                self.resume_marked(&context.plane).await?;
                return Ok(Outcome::Done);
            }
        };
        let found = self.store.get(&context.plane, resource, &ObjectName::cluster(name.clone())).await;
        let found = found.map_err(|error| read_failed(&context.plane, error))?;
        if found.is_none_or(|stored| !is_marked(&stored.record)) {
            return Ok(Outcome::Done);
        }
        match chore {
            Chore::Namespace { name } => self.empty_namespace(&context, name).await,
            _ => self.empty_custom(&context, name).await,
        }
    }

    async fn empty_namespace(&self, context: &RequestContext, name: &SmolStr) -> Result<Outcome, Status> {
        let catalog = self.catalog(&context.plane).await?;
        let mut definitions: Vec<_> = catalog
            .definitions()
            .filter(|definition| definition.namespaced)
            .filter(|definition| definition.versions.iter().any(|version| version.allows("deletecollection")))
            .cloned()
            .collect();
        let is_pods =
            |target: &Target| target.definition.group.is_empty() && target.definition.plural == "pods";
        definitions.sort_by_key(|definition| !(definition.group.is_empty() && definition.plural == "pods"));
        let (mut left, mut pods_left) = (None, false);
        for definition in definitions {
            let (version, namespace) = (0, name.clone());
            let (none, subresource) = (SmolStr::default(), SmolStr::default());
            let target = Target { definition, version, namespace, name: none, subresource };
            let tally = Arc::default();
            match self.empty(context, &target, Some(name), &tally).await? {
                Outcome::Done => {}
                Outcome::Again | Outcome::Aside => return Ok(Outcome::Again),
                Outcome::Later | Outcome::Seldom | Outcome::After(_) => {
                    left.get_or_insert_with(Remains::default).add_all(std::mem::take(&mut *tally.lock()));
                    // What pods use must not vanish under them.
                    if is_pods(&target) {
                        pods_left = true;
                        break;
                    }
                }
            }
        }
        if !pods_left {
            let mut remote = Remains::default();
            self.empty_remote(&context.plane, name, &mut remote).await?;
            if !remote.is_empty() {
                left.get_or_insert_with(Remains::default).add_all(remote);
            }
        }
        let Some((definition, version)) = catalog.find("", "v1", "namespaces") else {
            return Ok(Outcome::Later);
        };
        let namespace = SmolStr::default();
        let subresource = SmolStr::new_static("finalize");
        let target = Target { definition, version, namespace, name: name.clone(), subresource };
        if let Some(remains) = left {
            self.tell(context, &target, &remains).await;
            return Ok(Outcome::Later);
        }
        for (unserved, _) in catalog.crds().filter(|(_, crd)| crd.definition().is_none()) {
            if self.remove_unserved(context, unserved, Some(name)).await? == Outcome::Again {
                return Ok(Outcome::Again);
            }
        }
        self.tell(context, &target, &Remains::default()).await;
        self.release(context, &target, NAMESPACE_HOLD).await
    }

    /// Says in the status of a namespace what it waits for. One that has no room for that goes without.
    async fn tell(&self, context: &RequestContext, target: &Target, remains: &Remains) {
        let now = self.now();
        let change = |namespace: &mut Value| {
            if namespace.at(&["metadata", "deletionTimestamp"]).is_some() {
                report(namespace, remains, &now);
            }
            Ok(())
        };
        let told = self.modify_with(context, target, &WriteOptions::default(), change).await;
        if let Err(error) = told {
            tracing::debug!(plane = %context.plane.name, namespace = %target.name, %error, "nothing is told");
        }
    }

    async fn empty_custom(&self, context: &RequestContext, crd: &SmolStr) -> Result<Outcome, Status> {
        let catalog = self.catalog(&context.plane).await?;
        let name = crd.split_once('.').map(|(plural, group)| GroupResource::new(group, plural));
        let emptied = match &name {
            None => Outcome::Done,
            Some(name) => match catalog.by_group_resource(name) {
                Some(definition) => {
                    let (definition, version) = (definition.clone(), 0);
                    let (namespace, none, subresource) = Default::default();
                    let target = Target { definition, version, namespace, name: none, subresource };
                    self.empty(context, &target, None, &Arc::default()).await?
                }
                None => self.remove_unserved(context, name, None).await?,
            },
        };
        if emptied != Outcome::Done {
            return Ok(emptied);
        }
        let found = catalog.find("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let Some((definition, version)) = found else { return Ok(Outcome::Later) };
        let (namespace, name, subresource) = (SmolStr::default(), crd.clone(), SmolStr::default());
        let target = Target { definition, version, namespace, name, subresource };
        self.release(context, &target, CRD_HOLD).await
    }

    /// Deletes what a target covers, at most so many objects. Later when all that is left waits for something; then
    /// the tally says what that is.
    async fn empty(
        &self,
        context: &RequestContext,
        target: &Target,
        namespace: Option<&SmolStr>,
        tally: &Arc<Mutex<Remains>>,
    ) -> Result<Outcome, Status> {
        let resource = target.definition.resource_id;
        let list = |limit: usize, filter: Option<Arc<Filter>>| {
            let namespace = namespace.cloned();
            let all = ListQuery::all(resource);
            let query = ListQuery { namespace, limit, bytes_max: TURN_BYTES_MAX, filter, ..all };
            async {
                let page = self.store.list(&context.plane, query).await;
                page.map_err(|error| read_failed(&context.plane, error))
            }
        };
        if list(1, None).await?.objects.is_empty() {
            return Ok(Outcome::Done);
        }
        // What was asked to go before waits for its finalizers.
        let (name, tally) = (target.definition.group_resource(), tally.clone());
        let unmarked: Arc<Filter> = Arc::new(move |stored: &StoredObject| {
            let waiting = marked(&stored.record);
            waiting.inspect(|object| tally.lock().add(&name, object)).is_none()
        });
        let page = list(TURN_LEN_MAX, Some(unmarked)).await?;
        if page.objects.is_empty() {
            return Ok(Outcome::Later);
        }
        // Whatever depends on them is in the same namespace, or has no owner but these.
        let options =
            DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        for some in page.objects.chunks(PARALLEL) {
            let deletes = some.iter().map(|stored| async {
                let one = target.with_name(&stored.name.namespace, &stored.name.name);
                self.delete_unchecked(context, &one, &options).await
            });
            for outcome in join_all(deletes).await {
                match outcome {
                    // Somebody else was faster, which is what was wanted.
                    Err(status) if status.code != 404 => return Err(status),
                    _ => {}
                }
            }
        }
        Ok(if list(1, None).await?.objects.is_empty() { Outcome::Done } else { Outcome::Again })
    }

    /// Removes the objects of a CRD none of whose versions is served, all or those of a namespace: nobody can reach
    /// them, so nobody is asked.
    async fn remove_unserved(
        &self,
        context: &RequestContext,
        name: &GroupResource,
        namespace: Option<&SmolStr>,
    ) -> Result<Outcome, Status> {
        let Some(resource) = self.store.known_resource(name) else { return Ok(Outcome::Done) };
        let plane = context.plane.id;
        let namespace = namespace.cloned();
        let query = ListQuery {
            namespace,
            limit: TURN_LEN_MAX,
            bytes_max: TURN_BYTES_MAX,
            ..everything(resource, None)
        };
        let page = self.store.list(&context.plane, query).await;
        let page = page.map_err(|error| read_failed(&context.plane, error))?;
        if page.objects.is_empty() {
            return Ok(Outcome::Done);
        }
        let writes = page.objects.iter().map(|stored| Write {
            key: Key { plane, resource, name: stored.name.clone() },
            record: None,
            expect: Expect::Anything,
        });
        let change = Change { writes: writes.collect(), ..Change::default() };
        let committed = self.store.commit(change).await;
        committed.map_err(|error| commit_failed(&context.plane, name, "", error))?;
        Ok(Outcome::Again)
    }

    /// Takes our finalizer away. An object that is gone already is what was wanted.
    async fn release(
        &self,
        context: &RequestContext,
        target: &Target,
        hold: Hold,
    ) -> Result<Outcome, Status> {
        // A CRD that goes frees its names, and whoever is made meanwhile must notice.
        let _turn = custom::turn(self, context, target).await;
        let change = |object: &mut Value| {
            if object.at(&["metadata", "deletionTimestamp"]).is_none() {
                return Ok(());
            }
            if let Some(Value::Array(finalizers)) = object.at_mut(&hold.path) {
                finalizers.retain(|own| own.as_str() != Some(hold.finalizer));
            }
            Ok(())
        };
        match self.modify_with(context, target, &WriteOptions::default(), change).await {
            Ok(_) => Ok(Outcome::Done),
            Err(status) if status.code == 404 => Ok(Outcome::Done),
            Err(status) => Err(status),
        }
    }
}

fn everything(resource: polder_store::ResourceId, filter: Option<Arc<Filter>>) -> ListQuery {
    ListQuery { filter, ..ListQuery::all(resource) }
}

/// Whether an object is on its way out.
pub(crate) fn is_marked(record: &Record) -> bool {
    marked(record).is_some()
}

/// An object that is on its way out. Asked often, so only a body that may say so is parsed.
fn marked(record: &Record) -> Option<Value> {
    const MEMBER: &[u8] = b"\"deletionTimestamp\"";
    let body = record.body();
    // Quotes are rare enough for the search to be quick, and the member comes early: metadata is first.
    memchr::memmem::find(body, MEMBER)?;
    Value::parse(body).ok().filter(|value| value.at(&["metadata", "deletionTimestamp"]).is_some())
}

/// Whether a change makes an object one that we have to see off: it is deleted, or gets our finalizer back after that.
pub(crate) fn begins_to_go(new: &Value, old: &Value) -> bool {
    let is_deleted = |object: &Value| object.at(&["metadata", "deletionTimestamp"]).is_some();
    let is_held = |object: &Value| carries(object, NAMESPACE_HOLD);
    is_deleted(new) && (!is_deleted(old) || (is_held(new) && !is_held(old)))
}

/// Whether an object has a finalizer of ours.
pub(crate) fn carries(object: &Value, hold: Hold) -> bool {
    object.array_at(&hold.path).iter().any(|own| own.as_str() == Some(hold.finalizer))
}
