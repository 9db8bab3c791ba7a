//! What the nodes of each plane may see, by the pods that are bound to them: read when a node first asks, and then followed pod by
//! pod.
//!
//! A write of a pod only notes its name; the next question of a node reads it again. What is kept is bounded, and a plane without
//! nodes that ask has nothing here. What is said of a single object (a pod, a volume) is read when it is asked for.
//!
//! **Invariant.** A change is in force in the next request after its write was answered, unless there were more pods than can be kept.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use polder_auth::authz::node::{self, Graph, PlacedPod, Ruling, Thing};
use polder_auth::authz::rbac::RoleSet;
use polder_auth::authz::{Attributes, Authorizer, Decision, DecisionFuture};
use polder_model::pod::{self, Referent};
use polder_model::{GroupResource, PlaneId, Status, Value};
use polder_store::{ListQuery, ObjectName, Plane, ResourceId, Store, StoredObject};
use tokio::time::Instant;

use crate::bootstrap;
use crate::memo::Memo;
use crate::status::read_failed;

/// Planes whose pods are kept.
const PLANES_LEN_MAX: usize = 10_000;
/// What those may take together, and those of one plane: about half a million pods, and a hundred thousand.
const BYTES_MAX: usize = 256 << 20;
const PLANE_BYTES_MAX: usize = 64 << 20;
/// Planes that take more than this go first when there is no room.
const HEAVY_BYTES: usize = 1 << 20;
/// Pods that are read at once. Others get on between two pages.
const PAGE_BYTES_MAX: usize = 128 << 10;
/// When a plane has more, its pods are not read again for this long: each time would be much work for nothing.
const TOO_MANY_REST: Duration = Duration::from_secs(60);
/// When more pods than this have changed, all are read again.
const CHANGED_LEN_MAX: usize = 1024;
/// Claims of one node whose volumes are looked through for a secret.
const CLAIMS_LEN_MAX: usize = 1024;

pub(crate) struct Nodes {
    store: Arc<Store>,
    planes: Memo<Arc<View>>,
    /// What all graphs take.
    bytes: Arc<AtomicUsize>,
    /// What all nodes may do alike.
    role: RoleSet,
    pods: ResourceId,
    plane_bytes_max: usize,
}

/// The pods of one plane.
struct View {
    /// Held while pods are read: whoever has it has everything that was noted before.
    graph: tokio::sync::Mutex<Loaded>,
    changed: Mutex<Changed>,
    bytes: AtomicUsize,
    /// Of all views, this one among them.
    bytes_of_all: Arc<AtomicUsize>,
}

impl View {
    fn new(bytes_of_all: Arc<AtomicUsize>) -> View {
        View {
            graph: tokio::sync::Mutex::default(),
            changed: Mutex::default(),
            bytes: AtomicUsize::new(0),
            bytes_of_all,
        }
    }

    fn weighs(&self, bytes: usize) {
        self.bytes_of_all.fetch_add(bytes, Ordering::Relaxed);
        self.bytes_of_all.fetch_sub(self.bytes.swap(bytes, Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.weighs(0);
    }
}

#[derive(Default)]
struct Loaded {
    is_loaded: bool,
    graph: Graph,
    /// There were more pods than can be kept; when they are counted again.
    too_many_until: Option<Instant>,
}

/// Pods that were written since they were last read.
#[derive(Default)]
struct Changed {
    names: HashSet<ObjectName>,
    /// Too many to name them.
    all: bool,
}

impl Nodes {
    pub(crate) fn new(store: Arc<Store>) -> Nodes {
        let pods = store.resource_id(&GroupResource::new("", "pods"));
        let role = RoleSet::new(vec![Arc::new(bootstrap::node_role())]);
        let plane_bytes_max = PLANE_BYTES_MAX;
        Nodes { store, planes: Memo::default(), bytes: Arc::default(), role, pods, plane_bytes_max }
    }

    /// A pod was written or removed.
    pub(crate) fn changed(&self, plane: PlaneId, name: ObjectName) {
        // Whoever begins to look after this reads it.
        let Some(view) = self.planes.peek(plane) else { return };
        let mut changed = view.changed.lock();
        if changed.names.len() >= CHANGED_LEN_MAX {
            *changed = Changed { all: true, ..Changed::default() };
        }
        if !changed.all {
            changed.names.insert(name);
        }
    }

    /// What is known of a plane's pods may be wrong.
    pub(crate) fn forget(&self, plane: PlaneId) {
        self.planes.forget(plane);
    }

    /// The pods of a plane. It is there before anything is read for it, so that no write goes unnoted.
    fn view(&self, plane: PlaneId) -> Arc<View> {
        let (view, is_new) =
            self.planes.get_or_insert_with(plane, || Arc::new(View::new(self.bytes.clone())));
        if is_new && self.planes.len() > PLANES_LEN_MAX {
            self.planes.let_go(|_| true);
        }
        view
    }

    /// Whether a pod of a node refers to something.
    async fn refers(
        &self,
        plane: &Arc<Plane>,
        node: &str,
        (referent, namespace, name): (Referent, &str, &str),
    ) -> Result<bool, Status> {
        let view = self.view(plane.id);
        let claims = {
            let mut loaded = view.graph.lock().await;
            self.refresh(plane, &view, &mut loaded).await?;
            if loaded.graph.relates(node, referent, namespace, name) {
                return Ok(true);
            }
            if referent != Referent::Secret {
                return Ok(false);
            }
            loaded.graph.volume_claims(node)
        };
        // It may be a volume that needs the secret, which a claim of one of the pods is bound to.
        for (own, claim) in claims.into_iter().take(CLAIMS_LEN_MAX) {
            let Some(found) = self.get(plane, "persistentvolumeclaims", &own, &claim).await? else {
                continue;
            };
            let volume = found.str_at(&["spec", "volumeName"]).unwrap_or_default();
            let Some(volume) = self.get(plane, "persistentvolumes", "", volume).await? else { continue };
            let is_bound = claim_of(&volume) == Some((own.as_str(), claim.as_str()));
            let mut secrets = pod::volume_secrets(&volume).into_iter();
            if is_bound && secrets.any(|(place, secret)| (&*place, &*secret) == (namespace, name)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads what was noted, or everything.
    async fn refresh(&self, plane: &Arc<Plane>, view: &View, loaded: &mut Loaded) -> Result<(), Status> {
        if loaded.too_many_until.is_some_and(|until| Instant::now() < until) {
            return Err(too_many());
        }
        let changed = std::mem::take(&mut *view.changed.lock());
        // Whoever is cut off while reading leaves something that must be read anew.
        let was_loaded = std::mem::replace(&mut loaded.is_loaded, false);
        let read = match was_loaded && !changed.all {
            true => self.read(plane, &changed, &mut loaded.graph).await,
            false => {
                loaded.graph = Graph::default();
                self.read_all(plane, &mut loaded.graph).await
            }
        };
        let is_too_large = loaded.graph.bytes() > self.plane_bytes_max;
        loaded.too_many_until = is_too_large.then(|| Instant::now() + TOO_MANY_REST);
        loaded.is_loaded = read.is_ok();
        if !loaded.is_loaded {
            loaded.graph = Graph::default();
        }
        view.weighs(loaded.graph.bytes());
        for least in [HEAVY_BYTES, 1] {
            while self.bytes.load(Ordering::Relaxed) > BYTES_MAX
                && !self.planes.let_go(|view| view.bytes.load(Ordering::Relaxed) >= least).is_empty()
            {
            }
        }
        read
    }

    async fn read(&self, plane: &Arc<Plane>, changed: &Changed, graph: &mut Graph) -> Result<(), Status> {
        for name in &changed.names {
            let found = self.store.get(plane, self.pods, name).await;
            let found = found.map_err(|error| read_failed(plane, error))?;
            graph.set(&name.namespace, &name.name, found.and_then(|pod| placed(&pod)));
        }
        self.check_bytes(graph)
    }

    async fn read_all(&self, plane: &Arc<Plane>, graph: &mut Graph) -> Result<(), Status> {
        let mut query = ListQuery { bytes_max: PAGE_BYTES_MAX, ..ListQuery::all(self.pods) };
        loop {
            let page = self.store.list(plane, query.clone()).await;
            let page = page.map_err(|error| read_failed(plane, error))?;
            for pod in &page.objects {
                graph.set(&pod.name.namespace, &pod.name.name, placed(pod));
            }
            self.check_bytes(graph)?;
            let Some(last) = page.objects.last().filter(|_| page.more) else { return Ok(()) };
            query.after = Some(last.name.clone());
            query.at = Some(page.revision);
            tokio::task::yield_now().await;
        }
    }

    fn check_bytes(&self, graph: &Graph) -> Result<(), Status> {
        if graph.bytes() <= self.plane_bytes_max { Ok(()) } else { Err(too_many()) }
    }

    async fn get(
        &self,
        plane: &Arc<Plane>,
        plural: &'static str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, Status> {
        let group = match plural {
            "volumeattachments" => "storage.k8s.io",
            "resourceslices" => "resource.k8s.io",
            _ => "",
        };
        if name.is_empty() {
            return Ok(None);
        }
        let resource = self.store.resource_id(&GroupResource::new(group, plural));
        let found = self.store.get(plane, resource, &ObjectName::new(namespace, name)).await;
        let found = found.map_err(|error| read_failed(plane, error))?;
        Ok(found.and_then(|found| Value::parse_own(found.record.body()).ok()))
    }

    /// Whether a node has to do with something.
    async fn relates(
        &self,
        plane: &Arc<Plane>,
        node: &str,
        (thing, namespace, name): (Thing, &str, &str),
    ) -> Result<bool, Status> {
        let plural = match thing {
            Thing::Pod => "pods",
            Thing::Attachment => "volumeattachments",
            Thing::Slice => "resourceslices",
            Thing::Volume => {
                let Some(volume) = self.get(plane, "persistentvolumes", "", name).await? else {
                    return Ok(false);
                };
                let Some((own, claim)) = claim_of(&volume) else { return Ok(false) };
                return self.refers(plane, node, (Referent::VolumeClaim, own, claim)).await;
            }
            Thing::Needed(referent) => return self.refers(plane, node, (referent, namespace, name)).await,
        };
        let found = self.get(plane, plural, namespace, name).await?;
        Ok(found.is_some_and(|found| found.str_at(&["spec", "nodeName"]) == Some(node)))
    }
}

/// The claim a volume is bound to.
fn claim_of(volume: &Value) -> Option<(&str, &str)> {
    let text = |field: &str| volume.str_at(&["spec", "claimRef", field]);
    Some((text("namespace")?, text("name")?))
}

fn placed(pod: &StoredObject) -> Option<PlacedPod> {
    let value = Value::parse_own(pod.record.body()).ok()?;
    PlacedPod::read(&pod.name.name, &value)
}

fn too_many() -> Status {
    let why =
        "the plane has more pods than the server can keep for its nodes: remove some, and wait a minute";
    Status::forbidden(&GroupResource::new("", "pods"), "", why)
}

impl Authorizer for Nodes {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> DecisionFuture<'a> {
        Box::pin(async move {
            let Some(node) = node::node_name(attributes.user) else { return Ok(Decision::NO_OPINION) };
            let allowed = match node::rule(node, attributes) {
                Ruling::Allow => true,
                Ruling::Refuse(reason) => return Ok(Decision::NoOpinion { reason }),
                Ruling::ByRole => self.role.allows(attributes.verb, &attributes.target).is_some(),
                Ruling::IfRelated { thing, namespace, name } => {
                    let related = match self.store.plane_by_id(attributes.plane) {
                        Some(plane) => self.relates(&plane, node, (thing, namespace, name)).await?,
                        None => false,
                    };
                    if !related {
                        return Ok(Decision::NoOpinion { reason: node::unrelated(node) });
                    }
                    true
                }
            };
            Ok(if allowed { Decision::ALLOW } else { Decision::NO_OPINION })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_model::json;
    use polder_store::memory::MemoryEngine;
    use polder_store::{Change, Expect, Key, Record, StoreOptions, Write};

    /// The pods of a plane that has too many are not read for every question.
    #[tokio::test]
    async fn too_many_pods_are_counted_seldom() {
        let engine = Box::new(MemoryEngine::default());
        let store = Store::open(engine, StoreOptions::default(), "d", |_, _| Vec::new()).unwrap();
        let plane = store.plane_by_id(PlaneId::CORE).unwrap();
        let mut nodes = Nodes::new(store.clone());
        let write = async |nodes: &Nodes, number: usize, is_there: bool| {
            let pod = json!({"metadata": {"name": (format!("p{number}"))}, "spec": {
                "nodeName": "n", "volumes": [{"name": "v", "secret": {"secretName": (format!("s{number}"))}}]}});
            let name = ObjectName::new("default", format!("p{number}"));
            let key = Key { plane: plane.id, resource: nodes.pods, name: name.clone() };
            let record = is_there.then(|| Record::encode(&pod));
            let writes = vec![Write { key, record, expect: Expect::Anything }];
            store.commit(Change { writes, ..Change::default() }).await.unwrap();
            nodes.changed(plane.id, name);
        };
        let refers = async |nodes: &Nodes| {
            let found = nodes.refers(&plane, "n", (Referent::Secret, "default", "s0")).await;
            found.map_err(|status| status.code)
        };
        write(&nodes, 0, true).await;
        assert_eq!(refers(&nodes).await, Ok(true));
        nodes.plane_bytes_max = nodes.bytes.load(Ordering::Relaxed);
        write(&nodes, 1, true).await;
        assert_eq!(refers(&nodes).await, Err(403));
        assert_eq!(nodes.bytes.load(Ordering::Relaxed), 0, "nothing is kept of what is too much");
        // It would fit again, but nobody looks yet.
        write(&nodes, 1, false).await;
        assert_eq!(refers(&nodes).await, Err(403));
        tokio::time::pause();
        tokio::time::advance(TOO_MANY_REST).await;
        assert_eq!(refers(&nodes).await, Ok(true));
    }
}
