//! What must happen after a request was answered: a namespace's and a CRD's contents go first, then they themselves;
//! CRDs that wait for names are looked at again.
//!
//! Chores are done by a few workers, planes taking turns, a bounded piece of work each turn. Which planes have any is
//! stored with the write that makes them (a *mark* in the core plane), so that after a crash they go on without a look
//! at every plane. A mark goes only when a look at its plane, made after the mark was read, finds nothing.

use std::sync::Arc;

use futures_util::future::join_all;
use polder_auth::UserInfo;
use polder_model::{GroupResource, PlaneId, SmolStr, Status, Value, json};
use polder_store::{Change, Expect, Filter, Key, ListQuery, ObjectName, Plane, Record, StoredObject, Write};

use crate::context::{RequestContext, WriteOptions};
use crate::custom::{self, CLEANUP_FINALIZER};
use crate::definition::Target;
use crate::delete::DeleteOptions;
use crate::fair_queue::{FairQueue, Outcome};
use crate::registry::Registry;
use crate::status::{commit_failed, read_failed};

const WORKERS: usize = 4;
/// Chores of one plane that are remembered one by one.
const PLANE_LEN_MAX: usize = 1_000;
/// Objects removed in one turn.
const TURN_LEN_MAX: usize = 512;
const TURN_BYTES_MAX: usize = 1 << 20;
/// Deletes under way at a time: they share a commit group.
const PARALLEL: usize = 64;
/// The finalizer every namespace has in its spec.
const NAMESPACE_FINALIZER: &str = "kubernetes";
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
}

pub(crate) struct Chores {
    queue: FairQueue<Chore>,
}

impl Default for Chores {
    fn default() -> Chores {
        Chores { queue: FairQueue::new(PLANE_LEN_MAX, Chore::Look) }
    }
}

impl Chores {
    pub(crate) fn add(&self, plane: PlaneId, chore: Chore) {
        self.queue.add(plane, chore);
    }
}

impl Registry {
    /// Takes up what a plane was deleting when it was forked. Called once, when a plane is first used. A plane that
    /// stands on nothing but the base has a mark for whatever it has to do.
    pub async fn resume_chores(&self, plane: PlaneId) {
        let Some(plane) = self.store.plane_by_id(plane) else { return };
        if plane.stack.len() > 2
            && let Err(status) = self.look(&plane).await
        {
            tracing::warn!(plane = %plane.name, error = %status, "cannot look for unfinished deletions");
        }
    }

    /// Does chores until the server stops. Whoever runs the server owns the workers.
    pub async fn run_chores(self: Arc<Self>) {
        self.resume_marked().await;
        let worker = |registry: Arc<Registry>| async move {
            loop {
                registry.take_turn().await;
            }
        };
        let workers: Vec<_> = (0..WORKERS).map(|_| self.tasks.spawn(worker(self.clone()))).collect();
        join_all(workers).await;
    }

    async fn take_turn(self: &Arc<Self>) {
        let turn = self.chores.queue.take().await;
        // In a task of its own: whatever goes wrong in one plane's chore, the others' go on.
        let (registry, plane, chore) = (self.clone(), turn.plane, turn.item.clone());
        let task = self.tasks.spawn(async move { registry.do_chore(plane, &chore).await });
        let (plane, chore) = (turn.plane, turn.item.clone());
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
        turn.finish(outcome);
        if self.chores.queue.is_idle(plane)
            && let Err(status) = self.unmark(plane).await
        {
            tracing::warn!(%plane, error = %status, "cannot note that a plane's chores are done");
        }
    }

    /// Something that held others up is gone: who waits for that may go on.
    pub(crate) fn nudge_holder(&self, context: &RequestContext, target: &Target) {
        let plane = context.plane.id;
        if target.definition.namespaced {
            self.chores.queue.nudge(plane, &Chore::Namespace { name: target.namespace.clone() });
        }
        if target.definition.is_custom() {
            let crd = SmolStr::from(format!("{}.{}", target.definition.plural, target.definition.group));
            self.chores.queue.nudge(plane, &Chore::CustomResources { crd });
        }
    }

    /// Goes on with what was under way when the server last stopped.
    async fn resume_marked(&self) {
        let Some(core) = self.store.plane_by_id(PlaneId::CORE) else { return };
        let marks = match self.store.list(&core, everything(self.marks(), None)).await {
            Ok(page) => page.objects,
            Err(error) => {
                tracing::error!(%error, "cannot read which planes have unfinished deletions");
                return;
            }
        };
        for mark in marks {
            match self.store.plane(&mark.name.name) {
                Some(plane) => self.chores.add(plane.id, Chore::Look),
                None => {
                    let key = Key { plane: core.id, resource: self.marks(), name: mark.name.clone() };
                    self.store.commit(Change::delete(key, Expect::At(mark.revision))).await.ok();
                }
            }
        }
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
        if self.look(&plane).await? {
            return Ok(());
        }
        let key = Key { plane: PlaneId::CORE, resource: self.marks(), name };
        // If it was marked again meanwhile, it stays.
        self.store.commit(Change::delete(key, Expect::At(mark.revision))).await.ok();
        Ok(())
    }

    /// Finds what a plane is deleting; true when there is any.
    async fn look(&self, plane: &Arc<Plane>) -> Result<bool, Status> {
        let deleted: Arc<Filter> = Arc::new(|stored: &StoredObject| is_marked(&stored.record));
        let page = self.store.list(plane, everything(self.namespaces, Some(deleted))).await;
        let page = page.map_err(|error| read_failed(plane, error))?;
        let mut any = !page.objects.is_empty();
        for stored in page.objects {
            self.chores.add(plane.id, Chore::Namespace { name: stored.name.name.clone() });
        }
        let catalog = self.catalog(plane).await?;
        for (name, _) in catalog.crds().filter(|(_, crd)| crd.terminating) {
            any = true;
            let crd = SmolStr::from(format!("{}.{}", name.resource, name.group));
            self.chores.add(plane.id, Chore::CustomResources { crd });
        }
        Ok(any)
    }

    async fn do_chore(&self, plane: PlaneId, chore: &Chore) -> Result<Outcome, Status> {
        let Some(plane) = self.store.plane_by_id(plane) else { return Ok(Outcome::Done) };
        let context = RequestContext::new(plane, UserInfo::system());
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
                let catalog = self.catalog(&context.plane).await?;
                for (name, _) in catalog.crds().filter(|(_, crd)| crd.waiting) {
                    self.chores.add(context.plane.id, Chore::Names { group: name.group.clone() });
                }
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
        let mut left = false;
        for definition in definitions {
            let (version, namespace) = (0, name.clone());
            let (none, subresource) = (SmolStr::default(), SmolStr::default());
            let target = Target { definition, version, namespace, name: none, subresource };
            match self.empty(context, &target, Some(name)).await? {
                Outcome::Done => {}
                Outcome::Again => return Ok(Outcome::Again),
                // What pods use must not vanish under them.
                Outcome::Later if is_pods(&target) => return Ok(Outcome::Later),
                Outcome::Later => left = true,
            }
        }
        if left {
            return Ok(Outcome::Later);
        }
        let Some((definition, version)) = catalog.find("", "v1", "namespaces") else {
            return Ok(Outcome::Done);
        };
        let (namespace, name) = (SmolStr::default(), name.clone());
        let subresource = SmolStr::new_static("finalize");
        let target = Target { definition, version, namespace, name, subresource };
        self.release(context, &target, &["spec", "finalizers"], NAMESPACE_FINALIZER).await
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
                    self.empty(context, &target, None).await?
                }
                None => self.remove_unserved(context, name).await?,
            },
        };
        if emptied != Outcome::Done {
            return Ok(emptied);
        }
        let found = catalog.find("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let Some((definition, version)) = found else { return Ok(Outcome::Done) };
        let (namespace, name, subresource) = (SmolStr::default(), crd.clone(), SmolStr::default());
        let target = Target { definition, version, namespace, name, subresource };
        self.release(context, &target, &["metadata", "finalizers"], CLEANUP_FINALIZER).await
    }

    /// Deletes what a target covers, at most so many objects. Later when all that is left waits for something.
    async fn empty(
        &self,
        context: &RequestContext,
        target: &Target,
        namespace: Option<&SmolStr>,
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
        let unmarked: Arc<Filter> = Arc::new(|stored: &StoredObject| !is_marked(&stored.record));
        let page = list(TURN_LEN_MAX, Some(unmarked)).await?;
        if page.objects.is_empty() {
            return Ok(Outcome::Later);
        }
        for some in page.objects.chunks(PARALLEL) {
            let deletes = some.iter().map(|stored| async {
                let one = target.with_name(&stored.name.namespace, &stored.name.name);
                self.delete_unchecked(context, &one, &DeleteOptions::default()).await
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

    /// Removes the objects of a CRD none of whose versions is served: nobody can reach them, so nobody is asked.
    async fn remove_unserved(
        &self,
        context: &RequestContext,
        name: &GroupResource,
    ) -> Result<Outcome, Status> {
        let Some(resource) = self.store.known_resource(name) else { return Ok(Outcome::Done) };
        let plane = context.plane.id;
        let query = ListQuery { limit: TURN_LEN_MAX, ..everything(resource, None) };
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
        path: &[&str],
        finalizer: &str,
    ) -> Result<Outcome, Status> {
        let change = |object: &mut Value| {
            if object.at(&["metadata", "deletionTimestamp"]).is_none() {
                return Ok(());
            }
            if let Some(Value::Array(finalizers)) = object.at_mut(path) {
                finalizers.retain(|own| own.as_str() != Some(finalizer));
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

/// Whether an object is on its way out. Asked often, so only a body that may say so is parsed.
pub(crate) fn is_marked(record: &Record) -> bool {
    const MEMBER: &[u8] = b"\"deletionTimestamp\"";
    let body = record.body();
    // Quotes are rare enough for the search to be quick, and the member comes early: metadata is first.
    memchr::memmem::find(body, MEMBER).is_some()
        && Value::parse(body).is_ok_and(|value| value.at(&["metadata", "deletionTimestamp"]).is_some())
}
