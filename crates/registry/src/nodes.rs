//! What the nodes of each plane may see, by the pods that are bound to them: read when a node first asks, and then followed pod by
//! pod.
//!
//! A write of a pod only notes its name; the next question of a node reads it again. What is kept is bounded, and a plane without
//! nodes that ask has nothing here. What is said of a single object (a pod, a volume) is read when it is asked for.
//!
//! **Invariant.** A change is in force in the next request after its write was answered.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use polder_auth::authz::node::{self, Graph, PlacedPod, Ruling, Thing};
use polder_auth::authz::rbac::RoleSet;
use polder_auth::authz::{Attributes, Authorizer, Decision, DecisionFuture};
use polder_model::pod::{self, Referent};
use polder_model::{GroupResource, PlaneId, Status, Value};
use polder_store::{ListQuery, ObjectName, Plane, ResourceId, Store, StoredObject};

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
        Nodes { store, planes: Memo::default(), bytes: Arc::default(), role, pods }
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
        loaded.is_loaded = read.is_ok();
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
        check_bytes(graph)
    }

    async fn read_all(&self, plane: &Arc<Plane>, graph: &mut Graph) -> Result<(), Status> {
        let mut query = ListQuery { bytes_max: PAGE_BYTES_MAX, ..ListQuery::all(self.pods) };
        loop {
            let page = self.store.list(plane, query.clone()).await;
            let page = page.map_err(|error| read_failed(plane, error))?;
            for pod in &page.objects {
                graph.set(&pod.name.namespace, &pod.name.name, placed(pod));
            }
            check_bytes(graph)?;
            let Some(last) = page.objects.last().filter(|_| page.more) else { return Ok(()) };
            query.after = Some(last.name.clone());
            query.at = Some(page.revision);
            tokio::task::yield_now().await;
        }
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

fn check_bytes(graph: &Graph) -> Result<(), Status> {
    if graph.bytes() <= PLANE_BYTES_MAX {
        return Ok(());
    }
    let why = "the plane has more pods than the server can keep for its nodes: remove some";
    Err(Status::forbidden(&GroupResource::new("", "pods"), "", why))
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
