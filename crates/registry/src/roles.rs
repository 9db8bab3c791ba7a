//! Who may do what in each plane by its roles and bindings: read when somebody first asks, kept until one of them is
//! written. A role that is written is then put into the bindings to it; a binding of a plane that has many is read by itself; for
//! anything else all are read anew.
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
use polder_auth::UserInfo;
use polder_auth::authz::rbac::{Binding, Bound, Index, Role, RoleKind, RoleSet};
use polder_auth::authz::{Attributes, Authorizer, Decision, DecisionFuture};
use polder_model::{GroupResource, PlaneId, SmolStr, Status, Value, format_smolstr};
use polder_store::{ListQuery, ObjectName, Plane, ResourceId, Revision, SpaceId, Store, StoredObject};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::custom::{Interned, Turns};
use crate::memo::{Epoch, Memo};
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
/// Bindings to a role that was written, and their subjects: where there are more, all are read again.
const REBOUND_LEN_MAX: usize = 512;
/// Of roles that are not there, so many are named.
const MISSING_MAX: usize = 16;
/// What takes more bytes is not read on a thread that others wait for.
const QUICK_BYTES_MAX: usize = 256 << 10;
/// Planes whose bindings are read at a time.
const BUILDERS: usize = 4;
/// The same for guests, who may have nothing to do with the plane, and for strangers, who may be very many.
const GUESTS: usize = 1;
const STRANGERS: usize = 2;

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
    /// What was written since.
    changed: Mutex<Vec<Written>>,
    is_stale: AtomicBool,
}

/// A role or binding that was written, or removed: of a namespace, or of none.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Written {
    Role(ObjectName),
    Binding(ObjectName),
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
    /// Notes that something was written, if it can be read by itself.
    fn note(&self, written: Written) -> bool {
        let mut changed = self.changed.lock();
        let is_lost = self.own.is_none() && matches!(written, Written::Binding(_));
        if is_lost || self.problem.is_some() || changed.len() >= CHANGED_LEN_MAX {
            return false;
        }
        if !changed.contains(&written) {
            changed.push(written);
        }
        self.is_stale.store(true, Ordering::Release);
        true
    }

    /// Whether nothing was written since it was made.
    fn is_fresh(&self) -> bool {
        !self.is_stale.load(Ordering::Acquire)
    }

    /// The indexes that may be other planes' too.
    fn lower(&self) -> impl Iterator<Item = &Arc<Index>> {
        let own = self.own.map(|own| own.place);
        self.indexes.iter().enumerate().filter(move |(place, _)| Some(*place) != own).map(|(_, index)| index)
    }

    pub(crate) fn decide(&self, attributes: &Attributes<'_>) -> Decision {
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
    pub(crate) fn knows(&self, user: &UserInfo) -> bool {
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
    pub(crate) guests: Semaphore,
    pub(crate) strangers: Semaphore,
    pub(crate) stranger_turns: Turns,
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
            strangers: Semaphore::new(STRANGERS),
            stranger_turns: Turns::default(),
            known: Arc::new(known),
        }
    }

    /// A role or binding was written or removed.
    pub(crate) fn changed(&self, plane: PlaneId, plural: &str, name: ObjectName) {
        let written = match plural {
            "roles" | "clusterroles" => Written::Role(name),
            _ => Written::Binding(name),
        };
        self.lighten(self.planes.tell(plane, |book| book.note(written)));
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

    /// The bindings of a plane as they are, if nothing has to be read for that.
    pub(crate) fn at_hand(&self, plane: PlaneId) -> Option<Arc<Book>> {
        self.planes.get(plane).filter(|book| book.is_fresh())
    }

    /// The bindings of a plane, or why nobody can look at them.
    pub(crate) async fn book(&self, plane: &Arc<Plane>) -> Result<Arc<Book>, Status> {
        let book = match self.at_hand(plane.id) {
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

    /// The same book with what was written since. Nothing if it takes more than to read that.
    async fn follow(&self, plane: &Arc<Plane>, book: &Book) -> Result<Option<Book>, Status> {
        let changed = book.changed.lock().clone();
        let (mut roles, mut bindings) = (HashSet::new(), Vec::new());
        for written in &changed {
            match written {
                Written::Role(ObjectName { namespace, name }) => {
                    roles.insert((namespace.as_str(), name.as_str()));
                }
                Written::Binding(name) => bindings.push(name),
            }
        }
        // Roles first: what was written of a binding itself comes after what its role says in the binding as it was.
        let Some(mut rebound) = self.with_roles(plane, book, &roles).await? else { return Ok(None) };
        for name in bindings {
            let Some(bound) = self.written_binding(plane, book, name).await? else { return Ok(None) };
            rebound.push((name.clone(), bound.map(Arc::new)));
        }
        let (indexes, bytes) = (book.indexes.clone(), book.bytes);
        let Some(own) = book.own.filter(|_| !rebound.is_empty()) else {
            // Nobody is bound to what was written.
            return Ok(Some(Book { indexes, bytes, own: book.own, ..Book::default() }));
        };
        let mut index = Index::clone(&indexes[own.place]);
        let followed = own.followed + rebound.len();
        if followed > FOLLOWED_LEN_MIN.max(index.len() / 2) {
            return Ok(None);
        }
        for (name, bound) in rebound {
            index = index.with((&name.namespace, &name.name), bound, |roles| self.known.set(roles));
            // What is not needed any more is still weighed: now and then it must be known. And heavy sets of roles are not
            // made again and again here.
            if index.bytes() > own.bytes.saturating_mul(2) || index.bytes() > own.bytes + QUICK_BYTES_MAX {
                return Ok(None);
            }
        }
        let mut indexes = indexes;
        let bytes = (bytes + index.bytes()).saturating_sub(indexes[own.place].bytes());
        indexes[own.place] = Arc::new(index);
        Ok(Some(Book { indexes, bytes, own: Some(Own { followed, ..own }), ..Book::default() }))
    }

    /// A binding of the plane's own that was written, with its role; nothing inside if it is gone.
    async fn written_binding(
        &self,
        plane: &Arc<Plane>,
        book: &Book,
        name: &ObjectName,
    ) -> Result<Option<Option<Bound>>, Status> {
        let Some(own) = book.own else { return Ok(None) };
        // What a lower layer has, and this plane hides or shows again, is in an index of others.
        if book.lower().any(|index| index.bound(&name.namespace, &name.name).is_some()) {
            return Ok(None);
        }
        let plural = if name.namespace.is_empty() { "clusterrolebindings" } else { "rolebindings" };
        let resource = self.store.resource_id(&GroupResource::new(GROUP, plural));
        let Some(found) = self.get(plane, resource, name).await? else { return Ok(Some(None)) };
        // What is large is made where it keeps nobody waiting.
        if found.space != own.space || found.record.len() > FOLLOWED_BYTES_MAX {
            return Ok(None);
        }
        self.bound(plane, resource, &found).await.map(Some)
    }

    /// The bindings to roles that were written, with what those say by now.
    async fn with_roles(
        &self,
        plane: &Arc<Plane>,
        book: &Book,
        roles: &HashSet<(&str, &str)>,
    ) -> Result<Option<Vec<(ObjectName, Option<Arc<Bound>>)>>, Status> {
        let is_to = |bound: &&Arc<Bound>| roles.contains(&bound.role_name());
        // Bindings of a lower layer are in an index of others.
        if roles.is_empty() || book.lower().any(|index| index.bounds().any(|bound| is_to(&bound))) {
            return Ok(roles.is_empty().then(Vec::new));
        }
        let own = book.own.iter().flat_map(|own| book.indexes[own.place].bounds());
        let bounds: Vec<&Arc<Bound>> = own.filter(is_to).take(REBOUND_LEN_MAX + 1).collect();
        let subjects: usize = bounds.iter().map(|bound| bound.binding.subjects.len()).sum();
        if bounds.len().max(subjects) > REBOUND_LEN_MAX {
            return Ok(None);
        }
        let mut rebound = Vec::new();
        for bound in bounds {
            let (namespace, name) = bound.role_name();
            let plural = if namespace.is_empty() { "clusterroles" } else { "roles" };
            let resource = self.store.resource_id(&GroupResource::new(GROUP, plural));
            let found = self.get(plane, resource, &ObjectName::new(namespace, name)).await?;
            if found.as_ref().is_some_and(|found| found.record.len() > FOLLOWED_BYTES_MAX) {
                return Ok(None);
            }
            let role = found.and_then(|found| self.known.role(resource, &found));
            let name = ObjectName::new(bound.namespace.clone(), bound.name.clone());
            rebound.push((name, Some(Arc::new(Bound { role, ..Bound::clone(bound) }))));
        }
        Ok(Some(rebound))
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

impl Authorizer for Roles {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> DecisionFuture<'a> {
        Box::pin(async move {
            let known = self.at_hand(attributes.plane);
            if let Some(book) = known.filter(|book| book.problem.is_none()) {
                return Ok(book.decide(attributes));
            }
            let Some(plane) = self.store.plane_by_id(attributes.plane) else {
                return Ok(Decision::NO_OPINION);
            };
            Ok(self.book(&plane).await?.decide(attributes))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_auth::authz::{Selectors, Target};
    use polder_model::json;
    use polder_store::memory::MemoryEngine;
    use polder_store::{Change, Expect, Key, Limits, PlaneChange, Profile, Record, StoreOptions, Write};
    use std::sync::mpsc;
    use std::time::Duration;
    use tokio_util::task::TaskTracker;

    const SUBJECTS: usize = 30_000;

    struct World {
        store: Arc<Store>,
        roles: Arc<Roles>,
        plane: Arc<Plane>,
    }

    impl World {
        /// A plane with a role and a binding of very many subjects to it.
        async fn new() -> World {
            let engine = Box::new(MemoryEngine::default());
            let store = Store::open(engine, StoreOptions::default(), "d", |_, _| Vec::new()).unwrap();
            let plane = store.plane_by_id(PlaneId::CORE).unwrap();
            let world = World { roles: Arc::new(Roles::new(store.clone())), store, plane };
            let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
            world.write("clusterroles", "reader", json!({"rules": rules})).await;
            world.bind("many", (0..SUBJECTS).map(|number| format!("u{number}"))).await;
            world
        }

        /// Writes an object, as whoever answers the write does it.
        async fn write(&self, plural: &'static str, name: &str, value: Value) {
            let resource = self.store.resource_id(&GroupResource::new(GROUP, plural));
            let name = ObjectName::cluster(name);
            let key = Key { plane: self.plane.id, resource, name: name.clone() };
            let writes = vec![Write { key, record: Some(Record::encode(&value)), expect: Expect::Anything }];
            self.store.commit(Change { writes, ..Change::default() }).await.unwrap();
            self.roles.changed(self.plane.id, plural, name);
        }

        async fn bind(&self, name: &str, users: impl Iterator<Item = String>) {
            let subjects: Vec<Value> = users.map(|user| json!({"kind": "User", "name": user})).collect();
            let role = json!({"kind": "ClusterRole", "name": "reader"});
            let binding = json!({"roleRef": role, "subjects": subjects});
            self.write("clusterrolebindings", name, binding).await;
        }

        async fn may(&self, user: &str) -> bool {
            let (user, pods) = (UserInfo::authenticated(user, []), GroupResource::new("", "pods"));
            let target = Target::Resource {
                resource: &pods,
                version: "v1",
                subresource: "",
                namespace: "n",
                name: "x",
            };
            let (plane, selectors) = (self.plane.id, Selectors::default());
            let attributes = Attributes { user: &user, plane, verb: "get", target, selectors };
            self.roles.authorize(&attributes).await.ok().unwrap().is_allow()
        }

        /// Somebody asks, whose index cannot be made before the sender is dropped, or a test takes too long: then it cannot be sent to.
        async fn asks(&self) -> (tokio::task::JoinHandle<Arc<Book>>, mpsc::Sender<()>) {
            let (release, released) = mpsc::channel::<()>();
            let (held, is_held) = tokio::sync::oneshot::channel();
            let known = self.roles.known.clone();
            std::thread::spawn(move || {
                let _guard = known.parts.lock();
                held.send(()).ok();
                released.recv_timeout(Duration::from_secs(20)).ok();
            });
            is_held.await.unwrap();
            let (roles, plane) = (self.roles.clone(), self.plane.clone());
            let asking = TaskTracker::new().spawn(async move { roles.book(&plane).await.unwrap() });
            // All was read when a place to make the index is taken, and nothing is being read.
            while self.roles.builders.available_permits() == BUILDERS {
                tokio::task::yield_now().await;
            }
            (asking, release)
        }
    }

    /// The index of a binding with very many subjects is made where nobody waits for it.
    #[tokio::test]
    async fn many_subjects_hold_nobody_up() {
        let world = World::new().await;
        let create = PlaneChange::Create {
            name: "other".parse().unwrap(),
            limits: Limits::default(),
            profile: Profile::default(),
        };
        world.store.commit(Change { plane: Some(create), ..Change::default() }).await.unwrap();
        let other = world.store.plane("other").unwrap();
        world.roles.book(&other).await.unwrap();
        let (asking, release) = world.asks().await;
        // Until the one who asks can do no more.
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
            world.roles.book(&other).await.unwrap();
        }
        assert!(!asking.is_finished());
        release.send(()).expect("others go on meanwhile");
        asking.await.unwrap();
        assert!(world.may("u29999").await && !world.may("ann").await);
    }

    /// A binding that is written while the index is made, of what was read before, is in force as soon as its write is answered.
    #[tokio::test]
    async fn what_is_written_meanwhile_is_in_force() {
        let world = World::new().await;
        let (asking, release) = world.asks().await;
        // What is asked for is read before it is written, or else this says nothing.
        tokio::time::sleep(Duration::from_millis(500)).await;
        world.bind("late", std::iter::once("ann".to_owned())).await;
        release.send(()).unwrap();
        asking.await.unwrap();
        assert!(world.may("ann").await && world.may("u0").await);
    }
}
