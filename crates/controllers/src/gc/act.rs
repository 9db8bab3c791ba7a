//! The I/O of the garbage collector: looks at objects and their owners, and does what the plan says.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use parking_lot::Mutex;
use polder_client::{Delete, InPlane, Next, Query, ResourceFacts};
use polder_model::{GroupResource, GroupVersionResource, SmolStr, Status, Value, json};

use super::index::{ObjectRef, owners};
use super::plan::{self, Action, FOREGROUND, ORPHAN, Owner, finalizers_without};
use super::{GarbageCollector, Task, Tended, remote, sweep};
use crate::meta::{has_finalizer, is_deleting};
use crate::recorder::Recorder;

/// Objects looked at in one turn, and at a time.
const TURN_LEN_MAX: usize = 512;
const PARALLEL: usize = 64;
const PAGE_LEN: usize = 500;
/// Owners of one object that are looked for in other namespaces.
const MISPLACED_LEN_MAX: usize = 8;
/// What an object has in it that may concern us. In quotes: lists of managed fields name them otherwise.
const SIGNS: &[&str] = &["\"ownerReferences\"", "\"foregroundDeletion\"", "\"orphan\""];

/// One turn in one plane: what it serves, and what has been found out about owners.
pub(super) struct Turn<'a> {
    pub(super) plane: &'a InPlane,
    pub(super) tended: &'a Tended,
    resources: Vec<ResourceFacts>,
    owners: Mutex<HashMap<SmolStr, Owner>>,
    /// Those of them that extension servers keep.
    pub(super) elsewhere: Mutex<HashSet<SmolStr>>,
    /// Who tells people of owners in the wrong place: of those that somebody has just named.
    recorder: Option<&'a Recorder>,
}

impl GarbageCollector {
    pub(super) async fn act(&self, plane: &InPlane, task: Task) -> Result<Next, Status> {
        let resources = plane.client.resources(plane.plane).await?;
        let tended = self.tend(plane.plane);
        let (owners, elsewhere) = (Mutex::default(), Mutex::default());
        let recorder = matches!(task, Task::Object(_)).then_some(&self.recorder);
        let turn = Turn { plane, tended: &tended, resources, owners, elsewhere, recorder };
        match task {
            Task::Object(object) => turn.look_at(&object).await,
            Task::Owner { group, kind, namespace, name } => {
                let Some(facts) = turn.kind(&group, &kind) else { return Ok(Next::Done) };
                let namespace = if facts.namespaced { namespace } else { SmolStr::default() };
                let resource = facts.name.group_resource();
                let owner = ObjectRef { resource, namespace, name };
                let found = turn.get(&owner).await?;
                match found.is_some_and(|found| is_deleting(&found) && has_finalizer(&found, FOREGROUND)) {
                    true => turn.look_at(&owner).await,
                    false => Ok(Next::Done),
                }
            }
            Task::Gone(uid) => {
                turn.build().await?;
                turn.owners.lock().insert(uid.clone(), Owner::Gone);
                let dependents = tended.index.lock().dependents(&uid, usize::MAX);
                let mut failed = None;
                // Those that fail keep nobody else from being looked at.
                let mut looked = 0;
                for some in dependents.chunks(TURN_LEN_MAX) {
                    let outcome = turn.look_at_all(some, Some(&uid)).await;
                    looked += some.len();
                    match outcome {
                        Ok(_) if looked < dependents.len() => return Ok(Next::Again),
                        Ok(_) => {}
                        Err(error) => failed = Some(error),
                    }
                }
                failed.map_or(Ok(Next::Done), Err)
            }
            Task::Sweep => turn.tend_elsewhere().await,
            Task::Scan => {
                turn.build().await?;
                if !tended.scanned.swap(true, Ordering::AcqRel) {
                    let mut unseen = tended.unseen.lock();
                    unseen.extend(tended.index.lock().objects());
                }
                let some: Vec<ObjectRef> = {
                    let mut unseen = tended.unseen.lock();
                    let from = unseen.len().saturating_sub(TURN_LEN_MAX);
                    unseen.drain(from..).collect()
                };
                let again = match turn.look_at_all(&some, None).await {
                    Ok(again) => again,
                    Err(error) => {
                        tended.unseen.lock().extend(some);
                        return Err(error);
                    }
                };
                tended.later.lock().extend(again);
                if !tended.unseen.lock().is_empty() {
                    return Ok(Next::Again);
                }
                let later = std::mem::take(&mut *tended.later.lock());
                let next = if later.is_empty() { Next::Done } else { Next::After(remote::AGAIN_AFTER) };
                tended.unseen.lock().extend(later);
                Ok(next)
            }
        }
    }
}

impl Turn<'_> {
    /// Looks at the whole plane once, for all who need to know.
    pub(super) async fn build(&self) -> Result<(), Status> {
        let build = async {
            for facts in self.resources.iter().filter(|facts| facts.deletable) {
                self.build_from(facts).await?;
            }
            self.tended.index.lock().set_complete();
            Ok(())
        };
        self.tended.built.get_or_try_init(|| build).await.map(drop)
    }

    async fn build_from(&self, facts: &ResourceFacts) -> Result<(), Status> {
        let resource = facts.name.group_resource();
        let mut after = None;
        loop {
            let query = Query { containing: SIGNS, after, limit: PAGE_LEN, ..Query::default() };
            let page = match self.plane.client.list(self.plane.plane, &facts.name, query).await {
                // A custom resource that has just gone.
                Err(status) if status.code == 404 => return Ok(()),
                page => page?,
            };
            if page.is_empty() {
                return Ok(());
            }
            after = None;
            for value in page {
                let text = |field| SmolStr::new(value.str_at(&["metadata", field]).unwrap_or_default());
                let (resource, namespace, name) = (resource.clone(), text("namespace"), text("name"));
                after = Some((namespace.clone(), name.clone()));
                let object = ObjectRef { resource, namespace, name };
                let version = text("resourceVersion").parse().unwrap_or_default();
                self.tended.index.lock().put(&object, version, owners(&value));
                if is_deleting(&value) && [FOREGROUND, ORPHAN].iter().any(|own| has_finalizer(&value, own)) {
                    self.tended.unseen.lock().push(object);
                }
            }
        }
    }

    /// Looks at objects that depend on `owner`, who is gone: each of them once, whatever becomes of it. Those that must be
    /// looked at again later are returned.
    pub(super) async fn look_at_all(
        &self,
        objects: &[ObjectRef],
        owner: Option<&SmolStr>,
    ) -> Result<Vec<ObjectRef>, Status> {
        let (mut failed, mut again) = (None, Vec::new());
        for some in objects.chunks(PARALLEL) {
            let looks = some.iter().map(|object| async move { (object, self.look_at(object).await) });
            for (object, outcome) in join_all(looks).await {
                if let Ok(Next::After(_)) = outcome {
                    again.push(object.clone());
                }
                match (outcome, owner) {
                    (Ok(_), Some(uid)) => self.tended.index.lock().detach(object, uid),
                    (Ok(_), None) => {}
                    (Err(error), _) => failed = Some(error),
                }
            }
        }
        failed.map_or(Ok(again), Err)
    }

    async fn look_at(&self, object: &ObjectRef) -> Result<Next, Status> {
        let Some(value) = self.get(object).await? else { return Ok(Next::Done) };
        if is_deleting(&value) && has_finalizer(&value, ORPHAN) {
            return self.leave_orphans(object, &value).await;
        }
        if is_deleting(&value) && has_finalizer(&value, FOREGROUND) {
            return self.await_dependents(object, &value).await;
        }
        let mut found = Vec::new();
        // Each may cost a list, and whoever reads of some has read enough.
        let mut looks_left = MISPLACED_LEN_MAX;
        for reference in super::references(&value) {
            let uid = SmolStr::new(reference.str_at(&["uid"]).unwrap_or_default());
            let owner = self.owner(object, reference, &uid).await?;
            let is_lost = matches!(owner, Owner::Gone | Owner::Unclear) && looks_left > 0;
            looks_left -= usize::from(is_lost);
            if let Some(recorder) = self.recorder.filter(|_| is_lost)
                && self.is_misplaced(object, reference, &uid).await?
            {
                let message = plan::misplaced(&object.namespace, reference);
                recorder.warning(self.plane, &value, "OwnerRefInvalidNamespace", &message).await;
            }
            found.push((uid, owner));
        }
        let waits = found.iter().any(|(_, owner)| *owner == Owner::Waiting);
        let uid = value.str_at(&["metadata", "uid"]).unwrap_or_default();
        let mut has_dependents = false;
        if waits {
            self.build().await?;
            has_dependents = !self.tended.index.lock().is_free(uid);
        }
        match plan::plan(&value, &found, has_dependents) {
            Action::Nothing => {
                let elsewhere = self.elsewhere.lock();
                if found.iter().any(|(uid, _)| elsewhere.contains(uid)) {
                    return Ok(Next::After(remote::AGAIN_AFTER));
                }
            }
            Action::Release(uids) => self.release(object, &value, &uids).await?,
            Action::Delete(propagation) => {
                let version = value.str_at(&["metadata", "resourceVersion"]).map(SmolStr::new);
                let options = Delete {
                    uid: Some(SmolStr::new(uid)),
                    resource_version: version,
                    propagation: Some(propagation),
                    grace_period_seconds: None,
                };
                if waits && has_dependents {
                    self.break_circle(object, &value, uid).await?;
                }
                self.delete(object, options).await?;
            }
        }
        Ok(Next::Done)
    }

    /// What an owner is, for an object that names it.
    pub(super) async fn owner(
        &self,
        object: &ObjectRef,
        reference: &Value,
        uid: &SmolStr,
    ) -> Result<Owner, Status> {
        if let Some(known) = self.owners.lock().get(uid) {
            return Ok(*known);
        }
        let api_version = reference.str_at(&["apiVersion"]).unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let kind = reference.str_at(&["kind"]).unwrap_or_default();
        let Some(facts) = self.kind(group, kind) else {
            let owner = self.remote_owner(object, reference, uid).await?;
            if owner == Owner::Solid {
                self.owners.lock().insert(uid.clone(), owner);
            }
            return Ok(owner);
        };
        if facts.namespaced && object.namespace.is_empty() {
            return Ok(Owner::Unclear);
        }
        let namespace = if facts.namespaced { object.namespace.clone() } else { SmolStr::default() };
        let name = SmolStr::new(reference.str_at(&["name"]).unwrap_or_default());
        let resource = facts.name.group_resource();
        let found = self.get(&ObjectRef { resource, namespace: namespace.clone(), name }).await?;
        let owner = match found.filter(|found| found.str_at(&["metadata", "uid"]) == Some(uid)) {
            None => Owner::Gone,
            Some(found) if is_deleting(&found) && has_finalizer(&found, FOREGROUND) => Owner::Waiting,
            Some(_) => Owner::Solid,
        };
        // An owner in a namespace is one thing to objects there and another to those elsewhere, who only guess its UID.
        if owner != Owner::Gone || namespace == object.namespace {
            self.owners.lock().insert(uid.clone(), owner);
        }
        Ok(owner)
    }

    /// Whether an owner is in a namespace where it cannot own an object: looked for among the first of its kind.
    async fn is_misplaced(&self, object: &ObjectRef, reference: &Value, uid: &str) -> Result<bool, Status> {
        let api_version = reference.str_at(&["apiVersion"]).unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let kind = reference.str_at(&["kind"]).unwrap_or_default();
        let Some(facts) = self.kind(group, kind).filter(|facts| facts.namespaced && facts.deletable) else {
            return Ok(false);
        };
        if object.namespace.is_empty() {
            return Ok(true);
        }
        let query = Query { limit: PAGE_LEN, ..Query::default() };
        let some = match self.plane.client.list(self.plane.plane, &facts.name, query).await {
            Err(status) if status.code == 404 => return Ok(false),
            some => some?,
        };
        Ok(some.iter().any(|one| one.str_at(&["metadata", "uid"]) == Some(uid)))
    }

    /// An owner that goes after its dependents: asks those it waits for to go, or goes.
    async fn await_dependents(&self, object: &ObjectRef, value: &Value) -> Result<Next, Status> {
        self.build().await?;
        if let Some(next) = self.hear_of_dependents(value).await? {
            return Ok(next);
        }
        let uid = value.str_at(&["metadata", "uid"]).unwrap_or_default();
        let awaited = self.tended.index.lock().awaited(uid, usize::MAX);
        if awaited.is_empty() {
            self.drop_finalizer(object, value, FOREGROUND).await?;
            return Ok(Next::Done);
        }
        let (mut failed, mut asked) = (None, 0);
        for some in awaited.chunks(PARALLEL) {
            if asked >= TURN_LEN_MAX {
                return failed.map_or(Ok(Next::Again), Err);
            }
            // Not through `look_at_all`: that an owner waits is no reason to forget who it waits for.
            let looks = some.iter().map(|dependent| async move {
                match self.get(dependent).await? {
                    Some(found) if !is_deleting(&found) => Box::pin(self.look_at(dependent)).await.map(|_| 1),
                    // No feed tells of its end.
                    None if self.is_elsewhere(dependent) => {
                        self.tended.index.lock().detach(dependent, uid);
                        Ok(0)
                    }
                    _ => Ok(0),
                }
            });
            for outcome in join_all(looks).await {
                match outcome {
                    Ok(one) => asked += one,
                    Err(error) => failed = Some(error),
                }
            }
        }
        let next = match awaited.iter().any(|dependent| self.is_elsewhere(dependent)) {
            true => Next::After(sweep::WAIT),
            false => Next::Done,
        };
        failed.map_or(Ok(next), Err)
    }

    /// An owner that leaves its dependents behind: they lose their reference to it, then it goes.
    async fn leave_orphans(&self, object: &ObjectRef, value: &Value) -> Result<Next, Status> {
        self.build().await?;
        if let Some(next) = self.hear_of_dependents(value).await? {
            return Ok(next);
        }
        let uid = SmolStr::new(value.str_at(&["metadata", "uid"]).unwrap_or_default());
        let dependents = self.tended.index.lock().dependents(&uid, TURN_LEN_MAX);
        if dependents.is_empty() {
            self.drop_finalizer(object, value, ORPHAN).await?;
            return Ok(Next::Done);
        }
        let uids = [uid];
        for some in dependents.chunks(PARALLEL) {
            let releases = some.iter().map(|dependent| async {
                if let Some(found) = self.get(dependent).await? {
                    self.release(dependent, &found, &uids).await?;
                }
                self.tended.index.lock().detach(dependent, &uids[0]);
                Ok::<(), Status>(())
            });
            for outcome in join_all(releases).await {
                outcome?;
            }
        }
        Ok(Next::Again)
    }

    /// When a dependent of this object waits for its own dependents, it may be this object it waits for. This object
    /// holds nobody up any longer, so that one of the two can go.
    async fn break_circle(&self, object: &ObjectRef, value: &Value, uid: &str) -> Result<(), Status> {
        let dependents = self.tended.index.lock().dependents(uid, TURN_LEN_MAX);
        for dependent in dependents {
            let found = self.get(&dependent).await?;
            if found.is_none_or(|found| !is_deleting(&found) || !has_finalizer(&found, FOREGROUND)) {
                continue;
            }
            let mut references = super::references(value).to_vec();
            for reference in &mut references {
                reference.set_at(&["blockOwnerDeletion"], false);
            }
            let uid = value.str_at(&["metadata", "uid"]).unwrap_or_default();
            return self
                .patch(object, json!({"metadata": {"uid": uid, "ownerReferences": references}}))
                .await;
        }
        Ok(())
    }

    async fn release(&self, object: &ObjectRef, value: &Value, uids: &[SmolStr]) -> Result<(), Status> {
        let left = plan::references_without(value, uids);
        if left.len() == super::references(value).len() {
            return Ok(());
        }
        let (uid, version) = identity(value);
        let left = if left.is_empty() { Value::Null } else { Value::from(left) };
        let patch = json!({"metadata": {"uid": uid, "resourceVersion": version, "ownerReferences": left}});
        self.patch(object, patch).await
    }

    async fn drop_finalizer(&self, object: &ObjectRef, value: &Value, finalizer: &str) -> Result<(), Status> {
        let (uid, version) = identity(value);
        let left = finalizers_without(value, finalizer);
        let left = if left.is_empty() { Value::Null } else { Value::from(left) };
        let patch = json!({"metadata": {"uid": uid, "resourceVersion": version, "finalizers": left}});
        self.patch(object, patch).await
    }

    async fn patch(&self, object: &ObjectRef, patch: Value) -> Result<(), Status> {
        let Some(resource) = self.version_of(&object.resource) else {
            return self.patch_elsewhere(object, patch).await;
        };
        match self.plane.merge(&resource, &object.namespace, &object.name, patch).await {
            Err(status) if status.code == 404 => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    async fn get(&self, object: &ObjectRef) -> Result<Option<Arc<Value>>, Status> {
        let Some(resource) = self.version_of(&object.resource) else {
            return self.get_elsewhere(object).await;
        };
        self.plane.get(&resource, &object.namespace, &object.name).await
    }

    async fn delete(&self, object: &ObjectRef, options: Delete) -> Result<(), Status> {
        let Some(resource) = self.version_of(&object.resource) else {
            return self.delete_elsewhere(object, options).await;
        };
        self.plane.delete(&resource, &object.namespace, &object.name, options).await
    }

    /// Whether it is an extension server's, of whose changes nobody tells.
    fn is_elsewhere(&self, object: &ObjectRef) -> bool {
        self.version_of(&object.resource).is_none()
    }

    pub(super) fn version_of(&self, resource: &GroupResource) -> Option<GroupVersionResource> {
        let is = |facts: &&ResourceFacts| {
            facts.name.group == resource.group && facts.name.resource == resource.resource
        };
        self.resources.iter().find(is).map(|facts| facts.name.clone())
    }

    fn kind(&self, group: &str, kind: &str) -> Option<&ResourceFacts> {
        self.resources.iter().find(|facts| facts.name.group == group && facts.kind == kind)
    }
}

fn identity(value: &Value) -> (&str, &str) {
    let text = |field| value.str_at(&["metadata", field]).unwrap_or_default();
    (text("uid"), text("resourceVersion"))
}
