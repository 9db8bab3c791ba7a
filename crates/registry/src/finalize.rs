//! What must happen after a delete was answered: a namespace's and a CRD's contents go first, then they themselves.
//!
//! Chores are kept in a bounded queue and done a few at a time. One that cannot finish (contents held by finalizers)
//! is tried again a little later, until it can or its plane is gone.

use std::sync::Arc;
use std::time::Duration;

use polder_auth::UserInfo;
use polder_model::{GroupResource, PlaneId, SmolStr, Status, Value};
use polder_store::{Change, Expect, Key, ListQuery, ObjectName, StoredObject, Write};
use tokio::sync::mpsc;

use crate::context::{Query, RequestContext, WriteOptions};
use crate::custom::CLEANUP_FINALIZER;
use crate::definition::Target;
use crate::delete::DeleteOptions;
use crate::list::ListOptions;
use crate::registry::Registry;
use crate::status::{commit_failed, read_failed};

const QUEUE_LEN_MAX: usize = 4_096;
/// Objects removed at once from under a CRD that serves none.
const UNSERVED_PAGE_LEN: usize = 500;
const RETRY: Duration = Duration::from_secs(1);
/// The finalizer every namespace has in its spec.
const NAMESPACE_FINALIZER: &str = "kubernetes";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chore {
    Namespace { plane: PlaneId, name: SmolStr },
    CustomResources { plane: PlaneId, crd: SmolStr },
}

/// The queue's two ends; the worker takes the receiving one.
pub(crate) struct Chores {
    sender: mpsc::Sender<Chore>,
    receiver: parking_lot::Mutex<Option<mpsc::Receiver<Chore>>>,
}

impl Default for Chores {
    fn default() -> Chores {
        let (sender, receiver) = mpsc::channel(QUEUE_LEN_MAX);
        Chores { sender, receiver: parking_lot::Mutex::new(Some(receiver)) }
    }
}

impl Chores {
    pub(crate) fn add(&self, chore: Chore) {
        if self.sender.try_send(chore.clone()).is_err() {
            tracing::warn!(
                ?chore,
                "too much is being deleted at once; another delete of it takes this up again"
            );
        }
    }
}

impl Registry {
    /// Takes up what a plane was deleting when the server last stopped. Called once, when a plane is first used.
    pub async fn resume_chores(&self, plane: PlaneId) {
        let Some(plane) = self.store.plane_by_id(plane) else { return };
        let id = plane.id;
        let context = RequestContext::new(plane, UserInfo::system());
        let waiting = |stored: &StoredObject| {
            let value = Value::parse(stored.record.body()).unwrap_or_default();
            value.at(&["metadata", "deletionTimestamp"]).is_some()
        };
        for resource in [self.namespaces, self.crds] {
            let filter: Option<Arc<polder_store::Filter>> = Some(Arc::new(waiting));
            let query = ListQuery { filter, ..ListQuery::all(resource) };
            let Ok(page) = self.store.list(&context.plane, query).await else { continue };
            for stored in page.objects {
                let name = stored.name.name.clone();
                self.chores.add(if resource == self.namespaces {
                    Chore::Namespace { plane: id, name }
                } else {
                    Chore::CustomResources { plane: id, crd: name }
                });
            }
        }
    }

    /// Does chores until the server stops. One worker; whoever runs the server owns it.
    pub async fn run_chores(self: Arc<Self>) {
        let Some(mut queue) = self.chores.receiver.lock().take() else { return };
        while let Some(chore) = queue.recv().await {
            // In a task of its own: whatever goes wrong in one plane's chore, the others' go on.
            let (registry, own) = (self.clone(), chore.clone());
            let outcome = self.tasks.spawn(async move { registry.do_chore(&own).await }).await;
            match outcome {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => self.try_later(chore),
                Err(error) => tracing::error!(?chore, %error, "a deletion broke off"),
                Ok(Err(status)) => {
                    tracing::warn!(?chore, error = %status, "a deletion is not done yet");
                    if status.code != 404 {
                        self.try_later(chore);
                    }
                }
            }
        }
    }

    fn try_later(self: &Arc<Self>, chore: Chore) {
        let registry = Arc::downgrade(self);
        let later = async move {
            tokio::time::sleep(RETRY).await;
            if let Some(registry) = registry.upgrade() {
                registry.chores.add(chore);
            }
        };
        self.tasks.spawn(later);
    }

    /// True when nothing is left to do.
    async fn do_chore(&self, chore: &Chore) -> Result<bool, Status> {
        // What was queued may be over, or may have been made again since: only what is being deleted now counts.
        let (plane, resource, name) = match chore {
            Chore::Namespace { plane, name } => (*plane, self.namespaces, name),
            Chore::CustomResources { plane, crd } => (*plane, self.crds, crd),
        };
        let Some(holder) = self.store.plane_by_id(plane) else { return Ok(true) };
        let found = self.store.get(&holder, resource, &ObjectName::cluster(name.clone())).await;
        let found = found.map_err(|error| read_failed(&holder, error))?;
        let value = found.map(|stored| Value::parse(stored.record.body()).unwrap_or_default());
        if value.is_none_or(|value| value.at(&["metadata", "deletionTimestamp"]).is_none()) {
            return Ok(true);
        }
        match chore {
            Chore::Namespace { plane, name } => self.empty_namespace(*plane, name).await,
            Chore::CustomResources { plane, crd } => self.empty_custom(*plane, crd).await,
        }
    }

    async fn empty_namespace(&self, plane: PlaneId, name: &SmolStr) -> Result<bool, Status> {
        let Some(plane) = self.store.plane_by_id(plane) else { return Ok(true) };
        let context = RequestContext::new(plane, UserInfo::system());
        let catalog = self.catalog(&context.plane).await?;
        let mut left = false;
        // Pods first: what they use must not vanish under them.
        let mut definitions: Vec<_> = catalog
            .definitions
            .iter()
            .filter(|definition| definition.namespaced)
            .filter(|definition| definition.versions.iter().any(|version| version.allows("deletecollection")))
            .cloned()
            .collect();
        definitions.sort_by_key(|definition| !(definition.group.is_empty() && definition.plural == "pods"));
        for definition in definitions {
            let target = Target {
                definition,
                version: 0,
                namespace: name.clone(),
                name: SmolStr::default(),
                subresource: SmolStr::default(),
            };
            left |= self.delete_all(&context, &target).await?;
        }
        if left {
            return Ok(false);
        }
        let Some((definition, version)) = catalog.find("", "v1", "namespaces") else { return Ok(true) };
        let target = Target {
            definition,
            version,
            namespace: SmolStr::default(),
            name: name.clone(),
            subresource: SmolStr::new_static("finalize"),
        };
        self.release(&context, &target, &["spec", "finalizers"], NAMESPACE_FINALIZER).await
    }

    async fn empty_custom(&self, plane: PlaneId, crd: &SmolStr) -> Result<bool, Status> {
        let Some(plane) = self.store.plane_by_id(plane) else { return Ok(true) };
        let context = RequestContext::new(plane, UserInfo::system());
        let catalog = self.catalog(&context.plane).await?;
        if let Some((plural, group)) = crd.split_once('.')
            && let Some(definition) = catalog.by_group_resource(&GroupResource::new(group, plural))
        {
            let target = Target {
                definition: definition.clone(),
                version: 0,
                namespace: SmolStr::default(),
                name: SmolStr::default(),
                subresource: SmolStr::default(),
            };
            if self.delete_all(&context, &target).await? {
                return Ok(false);
            }
        } else if let Some((plural, group)) = crd.split_once('.') {
            self.remove_unserved(&context, &GroupResource::new(group, plural)).await?;
        }
        let found = catalog.find("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let Some((definition, version)) = found else { return Ok(true) };
        let target = Target {
            definition,
            version,
            namespace: SmolStr::default(),
            name: crd.clone(),
            subresource: SmolStr::default(),
        };
        let done = self.release(&context, &target, &["metadata", "finalizers"], CLEANUP_FINALIZER).await?;
        crate::custom::committed(self, &context, &target);
        Ok(done)
    }

    /// Removes the objects of a CRD none of whose versions is served: nobody can reach them, so nobody is asked.
    async fn remove_unserved(&self, context: &RequestContext, name: &GroupResource) -> Result<(), Status> {
        let (plane, resource) = (context.plane.id, self.store.resource_id(name));
        loop {
            let query = ListQuery { limit: UNSERVED_PAGE_LEN, ..ListQuery::all(resource) };
            let page = self.store.list(&context.plane, query).await;
            let page = page.map_err(|error| read_failed(&context.plane, error))?;
            if page.objects.is_empty() {
                return Ok(());
            }
            let writes = page.objects.iter().map(|stored| Write {
                key: Key { plane, resource, name: stored.name.clone() },
                record: None,
                expect: Expect::Anything,
            });
            let change = Change { writes: writes.collect(), ..Change::default() };
            self.store
                .commit(change)
                .await
                .map_err(|error| commit_failed(&context.plane, name, "", error))?;
        }
    }

    /// Deletes everything a target covers; true when something stays for now.
    async fn delete_all(&self, context: &RequestContext, target: &Target) -> Result<bool, Status> {
        let list = ListOptions::from_query(&Query::default(), target)?;
        self.delete_collection(context, target, &list, &DeleteOptions::default()).await?;
        let rest = self.list(context, target, &ListOptions { limit: 1, ..list }).await?;
        Ok(!rest.objects.is_empty())
    }

    /// Takes our finalizer away. An object that is gone already is what was wanted.
    async fn release(
        &self,
        context: &RequestContext,
        target: &Target,
        path: &[&str],
        finalizer: &str,
    ) -> Result<bool, Status> {
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
            Ok(_) => Ok(true),
            Err(status) if status.code == 404 => Ok(true),
            Err(status) => Err(status),
        }
    }
}
