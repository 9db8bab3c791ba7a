//! Who may do what in each plane by its roles and bindings: read when somebody first asks, kept until one of them is
//! written.
//!
//! What is read is shared. Planes that stand on the same layer and have the same bindings in it have one index of them,
//! and roles that say the same are one set, whoever has them. What is kept is bounded: planes not used for long are let
//! go, and cost one look at their bindings when they come back.
//!
//! **Invariant.** A change is in force in the next request after its write was answered.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use polder_auth::authz::rbac::{Binding, Bound, Index, Role, RoleKind, RoleSet, Rule};
use polder_auth::authz::{Attributes, Authorizer, Decision, DecisionFuture};
use polder_auth::{MASTERS, UserInfo};
use polder_model::{GroupResource, PlaneId, SmolStr, Status, Value, format_smolstr};
use polder_store::{ListQuery, ObjectName, Plane, ResourceId, Revision, SpaceId, Store, StoredObject};
use sha2::{Digest as _, Sha256};

use crate::custom::{Interned, Turns};
use crate::memo::{Epoch, Memo};
use crate::registry::Registry;
use crate::status::read_failed;

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// Planes whose bindings are kept.
const PLANES_LEN_MAX: usize = 100_000;
/// What the indexes of all planes may take.
const INDEXES_BYTES_MAX: usize = 128 << 20;
/// What the sets of roles may take.
const SETS_BYTES_MAX: usize = 64 << 20;
/// What is kept of roles and bindings as they were read.
const PARTS_BYTES_MAX: usize = 32 << 20;
/// What one plane may have of each kind. Nobody is allowed anything by the rules of a plane with more, but those who are
/// allowed everything can still mend it.
const PLANE_BYTES_MAX: usize = 32 << 20;
/// Of roles that are not there, so many are named.
const MISSING_MAX: usize = 16;
/// More objects are not looked through on a thread that others wait for.
const QUICK_LEN_MAX: usize = 512;

/// One version of one object: it says the same for ever.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Version {
    space: SpaceId,
    revision: Revision,
    resource: ResourceId,
    name: ObjectName,
}

/// An object that was read.
enum Part {
    Role(Arc<Role>),
    /// Nothing for one that binds to no role there could be.
    Binding(Option<Arc<Binding>>),
}

/// The bindings of a plane: an index for each layer it stands on.
#[derive(Default)]
pub(crate) struct Book {
    indexes: Vec<Arc<Index>>,
}

impl Book {
    fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let Attributes { user, verb, target, .. } = attributes;
        if let Some(reason) = self.indexes.iter().find_map(|index| index.allows(user, verb, target)) {
            return Decision::Allow { reason: reason.clone() };
        }
        let missing = self.missing(user, target.namespace());
        match missing.is_empty() {
            true => Decision::NO_OPINION,
            false => Decision::NoOpinion { reason: format_smolstr!("RBAC: {missing}") },
        }
    }

    /// Roles that somebody is bound to and that are not there, as upstream lists mistakes: each once, in brackets if there
    /// are several.
    pub(crate) fn missing(&self, user: &UserInfo, namespace: &str) -> SmolStr {
        let mut all: Vec<&str> = Vec::new();
        for text in self.indexes.iter().flat_map(|index| index.missing(user, namespace)) {
            if !all.contains(&text.as_str()) && all.len() < MISSING_MAX {
                all.push(text);
            }
        }
        match all[..] {
            [] => SmolStr::default(),
            [one] => SmolStr::new(one),
            ref all => format_smolstr!("[{}]", all.join(", ")),
        }
    }

    /// Whether one of the plane's bindings is about somebody.
    fn knows(&self, user: &UserInfo) -> bool {
        self.indexes.iter().any(|index| index.knows(user))
    }

    pub(crate) fn rules<'a>(
        &'a self,
        user: &'a UserInfo,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Rule> {
        self.indexes.iter().flat_map(move |index| index.rules(user, namespace))
    }
}

pub(crate) struct Roles {
    store: Arc<Store>,
    planes: Memo<Arc<Book>>,
    turns: Turns,
    known: Arc<Known>,
}

/// What was read of roles and bindings, of whichever plane.
struct Known {
    parts: Mutex<Interned<Version, Part>>,
    sets: Mutex<Interned<[u8; 32], RoleSet>>,
    indexes: Mutex<Interned<[u8; 32], Index>>,
}

impl Default for Known {
    fn default() -> Known {
        Known {
            parts: Mutex::new(Interned::new(PARTS_BYTES_MAX)),
            sets: Mutex::new(Interned::new(SETS_BYTES_MAX)),
            indexes: Mutex::new(Interned::new(INDEXES_BYTES_MAX)),
        }
    }
}

/// The roles and bindings of a plane, as they are kept.
struct Stored {
    roles: Vec<Arc<StoredObject>>,
    cluster_roles: Vec<Arc<StoredObject>>,
    bindings: Vec<Arc<StoredObject>>,
    cluster_bindings: Vec<Arc<StoredObject>>,
    resources: Resources,
}

#[derive(Clone, Copy)]
struct Resources {
    roles: ResourceId,
    cluster_roles: ResourceId,
    bindings: ResourceId,
    cluster_bindings: ResourceId,
}

impl Roles {
    pub(crate) fn new(store: Arc<Store>) -> Roles {
        Roles { store, planes: Memo::default(), turns: Turns::default(), known: Arc::default() }
    }

    /// What is known of a plane's bindings may be wrong.
    pub(crate) fn forget(&self, plane: PlaneId) {
        self.planes.forget(plane);
    }

    pub(crate) async fn book(&self, plane: &Arc<Plane>) -> Result<Arc<Book>, Status> {
        if let Some(book) = self.planes.get(plane.id) {
            return Ok(book);
        }
        // Whoever comes while they are read waits for what is being made.
        let _turn = self.turns.take(plane.id).await;
        if let Some(book) = self.planes.get(plane.id) {
            return Ok(book);
        }
        let epoch = self.planes.epoch(plane.id);
        let stored = self.stored(plane).await?;
        let Stored { roles, cluster_roles, bindings, cluster_bindings, .. } = &stored;
        let len: usize = [roles, cluster_roles, bindings, cluster_bindings].map(Vec::len).iter().sum();
        let book = if len <= QUICK_LEN_MAX {
            self.known.book(&stored)
        } else {
            let known = self.known.clone();
            let built = tokio::task::spawn_blocking(move || known.book(&stored)).await;
            built.map_err(|_| Status::internal("the roles of the plane cannot be read"))?
        };
        let book = Arc::new(book);
        self.keep(plane.id, &book, epoch);
        Ok(book)
    }

    fn keep(&self, plane: PlaneId, book: &Arc<Book>, epoch: Epoch) {
        self.planes.keep(plane, book.clone(), epoch);
        if self.planes.len() > PLANES_LEN_MAX {
            self.planes.let_go(|_| true);
        }
        let Known { indexes, sets, .. } = &*self.known;
        let is_heavy = || indexes.lock().is_heavy() || sets.lock().is_heavy();
        while is_heavy() && !self.planes.let_go(|_| true).is_empty() {
            indexes.lock().sweep();
            sets.lock().sweep();
        }
    }

    /// Read past the cache: what is made of them is kept.
    async fn stored(&self, plane: &Arc<Plane>) -> Result<Stored, Status> {
        let at = Some(self.store.current());
        let list = async |plural: &'static str| {
            let resource = self.store.resource_id(&GroupResource::new(GROUP, plural));
            let query = ListQuery { at, bytes_max: PLANE_BYTES_MAX, ..ListQuery::all(resource) };
            let page = self.store.list(plane, query).await.map_err(|error| read_failed(plane, error))?;
            if page.more {
                let text = format!("the plane has more {plural} than the server can weigh: remove some");
                return Err(Status::forbidden(&GroupResource::new(GROUP, plural), "", &text));
            }
            Ok((resource, page.objects))
        };
        let (roles, cluster_roles) = (list("roles").await?, list("clusterroles").await?);
        let (bindings, cluster_bindings) = (list("rolebindings").await?, list("clusterrolebindings").await?);
        let resources = Resources {
            roles: roles.0,
            cluster_roles: cluster_roles.0,
            bindings: bindings.0,
            cluster_bindings: cluster_bindings.0,
        };
        Ok(Stored {
            roles: roles.1,
            cluster_roles: cluster_roles.1,
            bindings: bindings.1,
            cluster_bindings: cluster_bindings.1,
            resources,
        })
    }
}

impl Known {
    fn book(&self, stored: &Stored) -> Book {
        let Resources { roles, cluster_roles, bindings, cluster_bindings } = stored.resources;
        let own = |resource, kind, all: &[Arc<StoredObject>]| {
            let named =
                |stored: &Arc<StoredObject>| ((kind, stored.name.clone()), (resource, stored.clone()));
            all.iter().map(named).collect::<Vec<_>>()
        };
        let named: HashMap<(RoleKind, ObjectName), (ResourceId, Arc<StoredObject>)> =
            own(roles, RoleKind::Role, &stored.roles)
                .into_iter()
                .chain(own(cluster_roles, RoleKind::ClusterRole, &stored.cluster_roles))
                .collect();
        let all = stored.cluster_bindings.iter().map(|stored| (cluster_bindings, stored));
        let all = all.chain(stored.bindings.iter().map(|stored| (bindings, stored)));
        let mut layers: BTreeMap<SpaceId, (Sha256, Vec<Bound>)> = BTreeMap::new();
        for (resource, stored) in all {
            let part = self.part(resource, stored, |value| {
                let binding = Binding::read(value).map(Arc::new);
                let bytes = binding.as_ref().map_or(64, |binding| binding.bytes());
                (Part::Binding(binding), bytes)
            });
            let Part::Binding(Some(binding)) = &*part else { continue };
            let namespace = match binding.kind {
                RoleKind::Role => stored.name.namespace.clone(),
                RoleKind::ClusterRole => SmolStr::default(),
            };
            let wanted = (binding.kind, ObjectName::new(namespace, binding.role.clone()));
            let role = named.get(&wanted).and_then(|(resource, stored)| {
                let part = self.part(*resource, stored, |value| {
                    let role = Role::read(value);
                    let bytes = role.bytes();
                    (Part::Role(Arc::new(role)), bytes)
                });
                if let Part::Role(role) = &*part { Some(role.clone()) } else { None }
            });
            let (hash, bounds) = layers.entry(stored.space).or_default();
            digest(hash, stored, role.as_deref());
            let ObjectName { namespace, name } = stored.name.clone();
            bounds.push(Bound { namespace, name, binding: binding.clone(), role });
        }
        let indexes = layers.into_values().map(|(hash, bounds)| self.index(hash, &bounds));
        Book { indexes: indexes.collect() }
    }

    fn index(&self, hash: Sha256, bounds: &[Bound]) -> Arc<Index> {
        let digest: [u8; 32] = hash.finalize().into();
        if let Some(known) = self.indexes.lock().get(&digest) {
            return known;
        }
        let index = Index::new(bounds, |roles| {
            let digest = RoleSet::digest(&roles);
            if let Some(known) = self.sets.lock().get(&digest) {
                return known;
            }
            let set = RoleSet::new(roles);
            let bytes = set.bytes();
            self.sets.lock().insert(digest, set, bytes)
        });
        let bytes = index.bytes();
        self.indexes.lock().insert(digest, index, bytes)
    }

    fn part(
        &self,
        resource: ResourceId,
        stored: &StoredObject,
        read: impl FnOnce(&Value) -> (Part, usize),
    ) -> Arc<Part> {
        let StoredObject { name, revision, space, .. } = stored;
        let version = Version { space: *space, revision: *revision, resource, name: name.clone() };
        if let Some(known) = self.parts.lock().get(&version) {
            return known;
        }
        let value = Value::parse_own(stored.record.body()).unwrap_or_default();
        let (part, bytes) = read(&value);
        let bytes = bytes + size_of::<Version>() + name.name.len() + name.namespace.len();
        self.parts.lock().insert(version, part, bytes)
    }
}

/// Which version of a binding it is, and what the role says that it binds to, which may be of another layer.
fn digest(hash: &mut Sha256, binding: &StoredObject, role: Option<&Role>) {
    hash.update(binding.space.0.to_le_bytes());
    hash.update(binding.revision.0.to_le_bytes());
    for text in [&binding.name.namespace, &binding.name.name] {
        hash.update(text.len().to_le_bytes());
        hash.update(text.as_bytes());
    }
    hash.update([u8::from(role.is_some())]);
    hash.update(role.map(|role| role.digest).unwrap_or_default());
}

impl Registry {
    /// Whether somebody has anything to do with a plane. Those who are of this plane have, and those who may do everything;
    /// others only if one of its bindings is about them: that they are somebody is not enough.
    pub async fn knows(&self, plane: &Arc<Plane>, user: &UserInfo) -> Result<bool, Status> {
        let known = plane.id == PlaneId::CORE || user.home == Some(plane.id) || user.in_group(MASTERS);
        Ok(known || self.roles.book(plane).await?.knows(user))
    }
}

impl Authorizer for Roles {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> DecisionFuture<'a> {
        Box::pin(async move {
            let book = match self.planes.get(attributes.plane) {
                Some(book) => book,
                None => {
                    let plane = self.store.plane_by_id(attributes.plane);
                    let Some(plane) = plane else { return Ok(Decision::NO_OPINION) };
                    self.book(&plane).await?
                }
            };
            // Elsewhere somebody of no plane is one of everybody only if the plane knows them.
            let is_guest = attributes.user.home.is_none() && attributes.plane != PlaneId::CORE;
            if is_guest && !book.knows(attributes.user) {
                return Ok(Decision::NO_OPINION);
            }
            Ok(book.decide(attributes))
        })
    }
}
