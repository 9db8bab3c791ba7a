//! Who may do what in each plane by its roles and bindings: read when somebody first asks, kept until one of them is
//! written. A binding of a plane that has many is then read by itself; for anything else all are read anew.
//!
//! What is read is shared. Planes that stand on the same layer and have the same bindings in it have one index of them,
//! and roles that say the same are one set, whoever has them. What is kept is bounded: planes not used for long are let
//! go, those with much first, and cost one look at their bindings when they come back.
//!
//! **Invariant.** A change is in force in the next request after its write was answered.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use polder_auth::authz::rbac::{Binding, Bound, Index, Role, RoleKind, RoleSet};
use polder_auth::authz::{Attributes, Authorizer, Decision, DecisionFuture};
use polder_auth::{MASTERS, UserInfo};
use polder_model::{GroupResource, PlaneId, SmolStr, Status, Value, format_smolstr};
use polder_store::{ListQuery, ObjectName, Plane, ResourceId, Revision, SpaceId, Store, StoredObject};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::custom::{Interned, Turns};
use crate::memo::{Epoch, Memo};
use crate::registry::Registry;
use crate::status::read_failed;

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// Planes whose bindings are kept.
const PLANES_LEN_MAX: usize = 100_000;
/// What the indexes that planes share may take.
const INDEXES_BYTES_MAX: usize = 64 << 20;
/// What the indexes of single planes may take together.
const BOOKS_BYTES_MAX: usize = 128 << 20;
/// Books that take more than this go first when there is no room.
const HEAVY_BYTES: usize = 1 << 20;
/// An index of more bindings, or a heavier one, is not looked for among those of others: each change of a binding would
/// leave a whole index behind that nobody needs any more.
const SHARED_LEN_MAX: usize = 256;
const SHARED_BYTES_MAX: usize = 512 << 10;
/// What the sets of roles may take that different people have in common.
const SETS_BYTES_MAX: usize = 64 << 20;
/// What is kept of roles and bindings as they were read.
const PARTS_BYTES_MAX: usize = 32 << 20;
/// What one plane may have of each kind. Nobody is allowed anything by the rules of a plane with more, but those who are
/// allowed everything can still mend it.
const PLANE_BYTES_MAX: usize = 16 << 20;
/// Bindings that are read by themselves before all are read again, at least; and written ones that are noted.
const FOLLOWED_LEN_MIN: usize = 1024;
const CHANGED_LEN_MAX: usize = 64;
const FOLLOWED_BYTES_MAX: usize = 64 << 10;
/// Of roles that are not there, so many are named.
const MISSING_MAX: usize = 16;
/// What takes more bytes is not read on a thread that others wait for.
const QUICK_BYTES_MAX: usize = 256 << 10;
/// Planes whose bindings are read at a time.
const BUILDERS: usize = 4;
/// The same for somebody who may have nothing to do with the plane.
const GUESTS: usize = 1;

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
    /// What those take that no other plane has.
    bytes: usize,
    /// Why nobody can look at them.
    problem: Option<Status>,
    own: Option<Own>,
    /// Bindings that were written since.
    changed: Mutex<Vec<ObjectName>>,
    is_stale: AtomicBool,
}

/// The index of the bindings in the plane's own space, if there are so many that no other plane has the same.
#[derive(Clone, Copy)]
struct Own {
    place: usize,
    space: SpaceId,
    /// What it took when it was made of all bindings, and how many were read by themselves since.
    bytes: usize,
    followed: usize,
}

impl Book {
    /// Notes that a binding was written, if it can be read by itself.
    fn note(&self, name: ObjectName) -> bool {
        let mut changed = self.changed.lock();
        if self.own.is_none() || changed.len() >= CHANGED_LEN_MAX {
            return false;
        }
        if !changed.contains(&name) {
            changed.push(name);
        }
        self.is_stale.store(true, Ordering::Release);
        true
    }

    /// Whether nothing was written since it was made.
    fn is_fresh(&self) -> bool {
        !self.is_stale.load(Ordering::Acquire)
    }

    fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let Attributes { user, verb, target, .. } = attributes;
        if let Some(grant) = self.indexes.iter().find_map(|index| index.allows(user, verb, target)) {
            return Decision::Allow { reason: grant.clone().into() };
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
        let mut all: Vec<SmolStr> = Vec::new();
        let missing = self.indexes.iter().flat_map(|index| index.missing(user, namespace));
        for text in missing.take(MISSING_MAX) {
            if !all.contains(&text) {
                all.push(text);
            }
        }
        match &all[..] {
            [] => SmolStr::default(),
            [one] => one.clone(),
            all => format_smolstr!("[{}]", all.join(", ")),
        }
    }

    /// Whether one of the plane's bindings is about somebody.
    fn knows(&self, user: &UserInfo) -> bool {
        self.indexes.iter().any(|index| index.knows(user))
    }

    /// What somebody has in a namespace, each set once.
    pub(crate) fn sets<'a>(&'a self, user: &'a UserInfo, namespace: &'a str) -> Vec<&'a Arc<RoleSet>> {
        let mut seen = HashSet::new();
        let sets = self.indexes.iter().flat_map(|index| index.sets(user, namespace));
        sets.filter(|set| seen.insert(Arc::as_ptr(set))).collect()
    }
}

pub(crate) struct Roles {
    store: Arc<Store>,
    planes: Memo<Arc<Book>>,
    /// What the books of `planes` take beside what they share.
    bytes: AtomicUsize,
    turns: Turns,
    builders: Semaphore,
    guests: Semaphore,
    known: Arc<Known>,
}

/// What was read of roles and bindings, of whichever plane.
struct Known {
    parts: Mutex<Interned<Version, Part>>,
    sets: Mutex<Interned<[u8; 32], RoleSet>>,
    indexes: Mutex<Interned<[u8; 32], Index>>,
}

/// The roles and bindings of a plane, as they are kept.
struct Stored {
    roles: Objects,
    cluster_roles: Objects,
    bindings: Objects,
    cluster_bindings: Objects,
}

/// Those of one kind.
struct Objects {
    resource: ResourceId,
    all: Vec<Arc<StoredObject>>,
    /// There are more than can be weighed.
    more: bool,
}

impl Stored {
    fn kinds(&self) -> [&Objects; 4] {
        [&self.roles, &self.cluster_roles, &self.bindings, &self.cluster_bindings]
    }

    fn bytes(&self) -> usize {
        self.kinds().into_iter().flat_map(|kind| &kind.all).map(|stored| stored.record.len()).sum()
    }
}

impl Roles {
    pub(crate) fn new(store: Arc<Store>) -> Roles {
        let known = Known {
            parts: Mutex::new(Interned::new(PARTS_BYTES_MAX)),
            sets: Mutex::new(Interned::new(SETS_BYTES_MAX)),
            indexes: Mutex::new(Interned::new(INDEXES_BYTES_MAX)),
        };
        Roles {
            store,
            planes: Memo::default(),
            bytes: AtomicUsize::new(0),
            turns: Turns::default(),
            builders: Semaphore::new(BUILDERS),
            guests: Semaphore::new(GUESTS),
            known: Arc::new(known),
        }
    }

    /// A role or binding was written or removed.
    pub(crate) fn changed(&self, plane: PlaneId, plural: &str, name: ObjectName) {
        let is_binding = matches!(plural, "rolebindings" | "clusterrolebindings");
        self.lighten(self.planes.tell(plane, |book| is_binding && book.note(name)));
    }

    /// What is known of a plane's bindings may be wrong.
    pub(crate) fn forget(&self, plane: PlaneId) {
        self.lighten(self.planes.forget(plane));
    }

    /// Books that are not kept any more.
    fn lighten(&self, gone: impl IntoIterator<Item = Arc<Book>>) {
        let bytes = gone.into_iter().map(|book| book.bytes).sum();
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The bindings of a plane, or why nobody can look at them.
    pub(crate) async fn book(&self, plane: &Arc<Plane>) -> Result<Arc<Book>, Status> {
        let book = match self.planes.get(plane.id).filter(|book| book.is_fresh()) {
            Some(book) => book,
            None => self.read(plane).await?,
        };
        match &book.problem {
            Some(problem) => Err(problem.clone()),
            None => Ok(book),
        }
    }

    async fn read(&self, plane: &Arc<Plane>) -> Result<Arc<Book>, Status> {
        // Whoever comes while they are read waits for what is being made.
        let _turn = self.turns.take(plane.id).await;
        let epoch = self.planes.epoch(plane.id);
        if let Some(book) = self.planes.get(plane.id) {
            if book.is_fresh() {
                return Ok(book);
            }
            if let Some(book) = self.follow(plane, &book).await? {
                let book = Arc::new(book);
                self.keep(plane.id, &book, epoch);
                return Ok(book);
            }
        }
        let _place = self.builders.acquire().await;
        let epoch = self.planes.epoch(plane.id);
        let stored = self.stored(plane).await?;
        let book = if stored.kinds().iter().any(|kind| kind.more) {
            let text = "the plane has more roles and bindings than the server can weigh: remove some";
            let problem = Status::forbidden(&GroupResource::new(GROUP, "roles"), "", text);
            Book { problem: Some(problem), ..Book::default() }
        } else if stored.bytes() <= QUICK_BYTES_MAX {
            self.known.book(&stored, plane.overlay())
        } else {
            let (known, overlay) = (self.known.clone(), plane.overlay());
            let built = tokio::task::spawn_blocking(move || known.book(&stored, overlay)).await;
            built.map_err(|_| Status::internal("the roles of the plane cannot be read"))?
        };
        let book = Arc::new(book);
        self.keep(plane.id, &book, epoch);
        Ok(book)
    }

    /// The same book with the bindings that were written since. Nothing if it takes more than to read those.
    async fn follow(&self, plane: &Arc<Plane>, book: &Book) -> Result<Option<Book>, Status> {
        let Some(own) = book.own else { return Ok(None) };
        let changed = book.changed.lock().clone();
        let followed = own.followed + changed.len();
        let mut index = Index::clone(&book.indexes[own.place]);
        if followed > FOLLOWED_LEN_MIN.max(index.len() / 2) {
            return Ok(None);
        }
        let lower = || book.indexes.iter().enumerate().filter(|(place, _)| *place != own.place);
        for name in &changed {
            // What a lower layer has, and this plane hides or shows again, is in an index of others.
            if lower().any(|(_, index)| index.bound(&name.namespace, &name.name).is_some()) {
                return Ok(None);
            }
            let plural = if name.namespace.is_empty() { "clusterrolebindings" } else { "rolebindings" };
            let resource = self.store.resource_id(&GroupResource::new(GROUP, plural));
            let found = self.get(plane, resource, name).await?;
            if found.as_ref().is_some_and(|found| found.space != own.space) {
                return Ok(None);
            }
            // What is large is made where it keeps nobody waiting.
            if found.as_ref().is_some_and(|found| found.record.len() > FOLLOWED_BYTES_MAX) {
                return Ok(None);
            }
            let bound = match found {
                Some(found) => self.bound(plane, resource, &found).await?,
                None => None,
            };
            index =
                index.with((&name.namespace, &name.name), bound.map(Arc::new), |roles| self.known.set(roles));
            // What is not needed any more is still weighed: now and then it must be known. And heavy sets of roles are not
            // made again and again here.
            if index.bytes() > own.bytes.saturating_mul(2) || index.bytes() > own.bytes + QUICK_BYTES_MAX {
                return Ok(None);
            }
        }
        let mut indexes = book.indexes.clone();
        let bytes = (book.bytes + index.bytes()).saturating_sub(indexes[own.place].bytes());
        indexes[own.place] = Arc::new(index);
        Ok(Some(Book { indexes, bytes, own: Some(Own { followed, ..own }), ..Book::default() }))
    }

    /// A binding with the role it binds to, if it can bind to one.
    async fn bound(
        &self,
        plane: &Arc<Plane>,
        resource: ResourceId,
        stored: &StoredObject,
    ) -> Result<Option<Bound>, Status> {
        let Some((binding, wanted)) = self.known.binding(resource, stored) else { return Ok(None) };
        let plural = match binding.kind {
            RoleKind::Role => "roles",
            RoleKind::ClusterRole => "clusterroles",
        };
        let resource = self.store.resource_id(&GroupResource::new(GROUP, plural));
        let role = self.get(plane, resource, &wanted).await?;
        let role = role.and_then(|role| self.known.role(resource, &role));
        let ObjectName { namespace, name } = stored.name.clone();
        Ok(Some(Bound { namespace, name, binding, role }))
    }

    async fn get(
        &self,
        plane: &Arc<Plane>,
        resource: ResourceId,
        name: &ObjectName,
    ) -> Result<Option<Arc<StoredObject>>, Status> {
        self.store.get(plane, resource, name).await.map_err(|error| read_failed(plane, error))
    }

    fn keep(&self, plane: PlaneId, book: &Arc<Book>, epoch: Epoch) {
        let (is_kept, before) = self.planes.keep(plane, book.clone(), epoch);
        if is_kept {
            self.bytes.fetch_add(book.bytes, Ordering::Relaxed);
        }
        self.lighten(before);
        if self.planes.len() > PLANES_LEN_MAX {
            self.lighten(self.planes.let_go(|_| true));
        }
        // Whoever has much makes room first. Planes with nothing of their own weigh nothing.
        for least in [HEAVY_BYTES, 1] {
            while self.bytes.load(Ordering::Relaxed) > BOOKS_BYTES_MAX {
                let gone = self.planes.let_go(|book| book.bytes >= least);
                if gone.is_empty() {
                    break;
                }
                self.lighten(gone);
            }
        }
    }

    /// Read past the cache: what is made of them is kept.
    async fn stored(&self, plane: &Arc<Plane>) -> Result<Stored, Status> {
        let at = Some(self.store.current());
        let list = async |plural: &'static str| {
            let resource = self.store.resource_id(&GroupResource::new(GROUP, plural));
            let query = ListQuery { at, bytes_max: PLANE_BYTES_MAX, ..ListQuery::all(resource) };
            let page = self.store.list(plane, query).await.map_err(|error| read_failed(plane, error));
            page.map(|page| Objects { resource, all: page.objects, more: page.more })
        };
        Ok(Stored {
            roles: list("roles").await?,
            cluster_roles: list("clusterroles").await?,
            bindings: list("rolebindings").await?,
            cluster_bindings: list("clusterrolebindings").await?,
        })
    }
}

impl Known {
    fn book(&self, stored: &Stored, overlay: SpaceId) -> Book {
        let mut roles: HashMap<(RoleKind, &ObjectName), (ResourceId, &StoredObject)> = HashMap::new();
        for (kind, objects) in
            [(RoleKind::Role, &stored.roles), (RoleKind::ClusterRole, &stored.cluster_roles)]
        {
            let named = objects.all.iter().map(|role| ((kind, &role.name), (objects.resource, &**role)));
            roles.extend(named);
        }
        let mut layers: BTreeMap<SpaceId, (Sha256, Vec<Arc<Bound>>)> = BTreeMap::new();
        for objects in [&stored.cluster_bindings, &stored.bindings] {
            for stored in &objects.all {
                let Some((binding, wanted)) = self.binding(objects.resource, stored) else { continue };
                let found = roles.get(&(binding.kind, &wanted));
                let role = found.and_then(|(resource, stored)| self.role(*resource, stored));
                let (hash, bounds) = layers.entry(stored.space).or_default();
                digest(hash, stored, role.as_deref());
                let ObjectName { namespace, name } = stored.name.clone();
                bounds.push(Arc::new(Bound { namespace, name, binding, role }));
            }
        }
        let mut book = Book::default();
        for (space, (hash, bounds)) in layers {
            let digest: [u8; 32] = hash.finalize().into();
            let known = self.indexes.lock().get(&digest);
            let index = known.unwrap_or_else(|| {
                let index = self.index(&bounds);
                let bytes = index.bytes();
                let (index, is_shared) = match bounds.len() <= SHARED_LEN_MAX && bytes <= SHARED_BYTES_MAX {
                    true => self.indexes.lock().offer(digest, index, bytes),
                    false => (Arc::new(index), false),
                };
                book.bytes += if is_shared { 0 } else { bytes };
                if !is_shared && space == overlay {
                    book.own = Some(Own { place: book.indexes.len(), space, bytes, followed: 0 });
                }
                index
            });
            book.indexes.push(index);
        }
        book
    }

    /// What a binding says, and the name of the role it is to.
    fn binding(&self, resource: ResourceId, stored: &StoredObject) -> Option<(Arc<Binding>, ObjectName)> {
        let part = self.part(resource, stored, |value| {
            let binding = Binding::read(value).map(Arc::new);
            let bytes = binding.as_ref().map_or(64, |binding| binding.bytes());
            (Part::Binding(binding), bytes)
        });
        let Part::Binding(Some(binding)) = &*part else { return None };
        let namespace = match binding.kind {
            RoleKind::Role => stored.name.namespace.clone(),
            RoleKind::ClusterRole => SmolStr::default(),
        };
        Some((binding.clone(), ObjectName::new(namespace, binding.role.clone())))
    }

    fn role(&self, resource: ResourceId, stored: &StoredObject) -> Option<Arc<Role>> {
        let part = self.part(resource, stored, |value| {
            let role = Role::read(value);
            let bytes = role.bytes();
            (Part::Role(Arc::new(role)), bytes)
        });
        if let Part::Role(role) = &*part { Some(role.clone()) } else { None }
    }

    fn index(&self, bounds: &[Arc<Bound>]) -> Index {
        Index::new(bounds, |roles| self.set(roles))
    }

    /// Roles as a set, the one that others have if there is one.
    fn set(&self, roles: Vec<Arc<Role>>) -> Arc<RoleSet> {
        let digest = RoleSet::digest(&roles);
        if let Some(known) = self.sets.lock().get(&digest) {
            return known;
        }
        let set = RoleSet::new(roles);
        let bytes = set.bytes();
        match bytes <= SHARED_BYTES_MAX {
            true => self.sets.lock().offer(digest, set, bytes).0,
            false => Arc::new(set),
        }
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
        let bytes = bytes + 2 * size_of::<Version>() + name.name.len() + name.namespace.len();
        self.parts.lock().offer(version, part, bytes).0
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
    /// Somebody as a plane sees them, if it does. Those who are of this plane, and those who may do everything, are who they
    /// are. Others are guests, and must be named by one of its bindings: that they are somebody is not enough.
    pub async fn seen(&self, plane: &Arc<Plane>, user: UserInfo) -> Option<UserInfo> {
        if plane.id == PlaneId::CORE || user.in_group(MASTERS) || user.home.is_some() {
            return user.home.is_none_or(|home| home == plane.id).then_some(user);
        }
        let guest = user.guest_of(plane.id);
        let book = match self.roles.planes.get(plane.id).filter(|book| book.is_fresh()) {
            Some(book) => book,
            None => {
                let _place = self.roles.guests.acquire().await;
                // Whether a plane can be read is no guest's business.
                self.roles.book(plane).await.ok()?
            }
        };
        book.knows(&guest).then_some(guest)
    }
}

impl Authorizer for Roles {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> DecisionFuture<'a> {
        Box::pin(async move {
            let known = self.planes.get(attributes.plane);
            let known = known.filter(|book| book.problem.is_none() && book.is_fresh());
            if let Some(book) = known {
                return Ok(book.decide(attributes));
            }
            let Some(plane) = self.store.plane_by_id(attributes.plane) else {
                return Ok(Decision::NO_OPINION);
            };
            Ok(self.book(&plane).await?.decide(attributes))
        })
    }
}
