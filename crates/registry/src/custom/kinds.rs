//! What each plane's CRDs come to: made when somebody needs it, then kept up to date CRD by CRD.
//!
//! Everything is shared by content: a schema and a definition by what is written in the CRD, a stored version of a
//! CRD by where and when it was stored, so that forks share it without parsing. What is kept is bounded by weight;
//! the planes that were not used for longest are let go first and cost one look at their CRDs when they come back.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use imbl::OrdMap;
use parking_lot::Mutex;
use polder_admission::Plugins;
use polder_model::{GroupResource, PlaneId, SmolStr, Status, Value};
use polder_store::{ListQuery, Plane, Revision, SpaceId, Store, StoredObject};
use sha2::{Digest, Sha256};

use super::definition::{self, CUSTOM};
use super::fresh::FreshNames;
use super::intern::Interned;
use super::names::{self, Names};
use super::schemas::{Compiled, Schemas};
use super::turns::Turns;
use super::{is_established, is_terminating};
use crate::catalog::Catalog;
use crate::definition::ResourceDefinition;
use crate::finalize::{CRD_HOLD, carries};
use crate::registry::Registry;
use crate::status::read_failed;

const EPOCHS: usize = 256;
/// Planes whose catalog is kept.
const PLANES_LEN_MAX: usize = 20_000;
/// What the compiled schemas of one plane may take: far less than all planes together, or it would be compiled again
/// and again.
const PLANE_BYTES_MAX: usize = 128 << 20;
/// What compiled schemas may take together, and what is made of them.
const SCHEMAS_BYTES_MAX: usize = 384 << 20;
const DEFINITIONS_BYTES_MAX: usize = 64 << 20;
const VERSIONS_BYTES_MAX: usize = 64 << 20;
const CATALOGS_BYTES_MAX: usize = 64 << 20;
/// Catalogs whose discovery and OpenAPI documents are kept: some megabytes each.
const DOCUMENTS_LEN_MAX: usize = 128;
/// What a definition, a version of a CRD, a catalog entry take beside what is counted elsewhere.
const DEFINITION_BYTES: usize = 4 << 10;
const VERSION_BYTES: usize = 512;
const ENTRY_BYTES: usize = 96;

/// One stored version of a CRD.
#[derive(Debug)]
pub(crate) struct Crd {
    pub(crate) revision: Revision,
    /// Content address of what is served.
    pub(crate) digest: [u8; 32],
    /// The names nobody else of the group gets.
    pub(crate) names: Names,
    /// It wants names that others have.
    pub(crate) waiting: bool,
    pub(crate) terminating: bool,
    /// It cannot go before we let it.
    pub(crate) held: bool,
    /// About what the schemas of its versions take, or will when it gets its names.
    pub(crate) bytes: usize,
    made: Option<Arc<Made>>,
}

impl Crd {
    /// What is served of it.
    pub(crate) fn definition(&self) -> Option<&Arc<ResourceDefinition>> {
        self.made.as_ref().map(|made| &made.definition)
    }
}

/// A definition, and the schemas it is made of.
#[derive(Debug)]
struct Made {
    definition: Arc<ResourceDefinition>,
    /// Held so that they count as used.
    schemas: Vec<Arc<Compiled>>,
}

/// A plane's catalog as of a revision.
struct Slot {
    catalog: Arc<Catalog>,
    /// Every change up to this revision is in it.
    complete: Revision,
    /// The newest change that is in it.
    newest: Revision,
    used: u64,
}

pub(crate) struct Customs {
    /// Who has a say in writes of custom objects.
    plugins: Plugins,
    /// Counts CRD changes, by plane modulo a few: a catalog read before a change is not kept after it.
    epochs: [AtomicU64; EPOCHS],
    clock: AtomicU64,
    planes: Mutex<HashMap<PlaneId, Slot>>,
    pub(super) schemas: Schemas,
    pub(super) plane_bytes_max: usize,
    definitions: Mutex<Interned<[u8; 32], Made>>,
    versions: Mutex<Interned<(SpaceId, Revision, SmolStr), Crd>>,
    catalogs: Mutex<Interned<[u8; 32], Catalog>>,
    pub(crate) turns: Turns,
    pub(crate) fresh: FreshNames,
}

impl Customs {
    pub(crate) fn new(plugins: Plugins) -> Customs {
        Customs {
            plugins,
            epochs: std::array::from_fn(|_| AtomicU64::new(0)),
            clock: AtomicU64::new(0),
            planes: Mutex::default(),
            schemas: Schemas::new(SCHEMAS_BYTES_MAX),
            plane_bytes_max: PLANE_BYTES_MAX,
            definitions: Mutex::new(Interned::new(DEFINITIONS_BYTES_MAX)),
            versions: Mutex::new(Interned::new(VERSIONS_BYTES_MAX)),
            catalogs: Mutex::new(Interned::new(CATALOGS_BYTES_MAX)),
            turns: Turns::default(),
            fresh: FreshNames::default(),
        }
    }

    fn epoch(&self, plane: PlaneId) -> &AtomicU64 {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits choose")]
        &self.epochs[plane.0 as usize % EPOCHS]
    }

    /// What is known of a plane's CRDs may be wrong.
    pub(crate) fn forget(&self, plane: PlaneId) {
        self.epoch(plane).fetch_add(1, Ordering::AcqRel);
        self.planes.lock().remove(&plane);
    }

    fn known(&self, plane: PlaneId) -> Option<Arc<Catalog>> {
        let mut planes = self.planes.lock();
        let slot = planes.get_mut(&plane)?;
        slot.used = self.clock.fetch_add(1, Ordering::Relaxed);
        Some(slot.catalog.clone())
    }

    /// A CRD was written, or is gone. Gives the catalog that has the change, if the plane's is kept.
    pub(super) fn changed(
        &self,
        plane: PlaneId,
        name: &GroupResource,
        revision: Revision,
        crd: Option<Crd>,
    ) -> Option<Arc<Catalog>> {
        self.epoch(plane).fetch_add(1, Ordering::AcqRel);
        let mut planes = self.planes.lock();
        let slot = planes.get_mut(&plane)?;
        if revision <= slot.complete {
            return Some(slot.catalog.clone());
        }
        if revision <= slot.newest {
            // A later change came first. Which of the two counts is for the store to say.
            planes.remove(&plane);
            return None;
        }
        slot.catalog = Arc::new(slot.catalog.with(name, crd.map(Arc::new)));
        slot.newest = revision;
        Some(slot.catalog.clone())
    }

    fn keep(&self, plane: PlaneId, catalog: &Arc<Catalog>, complete: Revision, epoch: u64) {
        let used = self.clock.fetch_add(1, Ordering::Relaxed);
        {
            let mut planes = self.planes.lock();
            if self.epoch(plane).load(Ordering::Acquire) != epoch {
                return;
            }
            let slot = Slot { catalog: catalog.clone(), complete, newest: complete, used };
            planes.insert(plane, slot);
        }
        self.trim(catalog);
    }

    /// Lets planes go until what is kept weighs little enough.
    fn trim(&self, any: &Catalog) {
        let heavy = self.planes.lock().len() > PLANES_LEN_MAX
            || self.schemas.is_heavy()
            || self.definitions.lock().is_heavy()
            || self.versions.lock().is_heavy()
            || self.catalogs.lock().is_heavy()
            || any.documents_len() > DOCUMENTS_LEN_MAX;
        if !heavy {
            return;
        }
        loop {
            // Outer things first: they hold the inner ones.
            self.catalogs.lock().sweep();
            self.versions.lock().sweep();
            self.definitions.lock().sweep();
            self.schemas.sweep();
            let mut planes = self.planes.lock();
            let light = planes.len() <= PLANES_LEN_MAX / 4 * 3
                && self.schemas.is_light()
                && self.definitions.lock().is_light()
                && self.versions.lock().is_light()
                && self.catalogs.lock().is_light()
                && any.documents_len() <= DOCUMENTS_LEN_MAX / 4 * 3;
            if light || planes.is_empty() {
                return;
            }
            let mut order: Vec<(u64, PlaneId)> =
                planes.iter().map(|(plane, slot)| (slot.used, *plane)).collect();
            order.sort_unstable();
            for (_, plane) in order.iter().take(order.len().div_ceil(4)) {
                planes.remove(plane);
            }
        }
    }

    /// A CRD as it is stored under a revision, and what is served of it.
    pub(super) fn read(&self, store: &Store, crd: &Value, revision: Revision) -> Crd {
        let wanted = Names::read(crd.at(&["spec", "names"]));
        let mut names = Names::read(crd.at(&["status", "acceptedNames"]));
        let established = is_established(crd);
        let waiting = !names::is_true(crd, "NamesAccepted");
        if established && names.kind.is_empty() {
            names = wanted;
        }
        let mut hash = Sha256::new();
        hash.update(crd.get("spec").map(Value::to_vec).unwrap_or_default());
        hash.update(crd.at(&["status", "acceptedNames"]).map(Value::to_vec).unwrap_or_default());
        hash.update([u8::from(established), u8::from(is_terminating(crd))]);
        let digest: [u8; 32] = hash.finalize().into();
        let made = if established { self.made(store, crd, &names, digest) } else { None };
        let bytes = match &made {
            Some(made) => made.schemas.iter().map(|schema| schema.bytes).sum(),
            None => self.schema_bytes(crd),
        };
        let (terminating, held) = (is_terminating(crd), carries(crd, CRD_HOLD));
        Crd { revision, digest, names, waiting, terminating, held, bytes, made }
    }

    /// About what the schemas of a CRD's versions take. Compiles what is not known yet.
    pub(super) fn schema_bytes(&self, crd: &Value) -> usize {
        let versions = crd.array_at(&["spec", "versions"]).iter();
        let schemas = versions.filter_map(|version| version.at(&["schema", "openAPIV3Schema"]));
        let compile = |schema| self.schemas.compile_stored(schema);
        schemas.filter_map(compile).map(|compiled| compiled.bytes).sum()
    }

    fn made(&self, store: &Store, crd: &Value, names: &Names, digest: [u8; 32]) -> Option<Arc<Made>> {
        if let Some(known) = self.definitions.lock().get(&digest) {
            return Some(known);
        }
        let schemas = RefCell::new(Vec::new());
        let compile = |written: &Value| {
            let compiled = self.schemas.compile_stored(written)?;
            schemas.borrow_mut().push(compiled.clone());
            Some(compiled)
        };
        let definition =
            Arc::new(definition::definition(store, &self.plugins, crd, names, &CUSTOM, &compile)?);
        let made = Made { definition, schemas: schemas.into_inner() };
        Some(self.definitions.lock().insert(digest, made, DEFINITION_BYTES))
    }

    /// The catalog of a plane with these CRDs. Long when they have never been seen: not for an async thread.
    fn build(&self, store: &Store, base: &Catalog, stored: &[Arc<StoredObject>]) -> Arc<Catalog> {
        let mut hash = Sha256::new();
        let mut own = OrdMap::new();
        for object in stored {
            let Some(name) = resource_of(&object.name.name).filter(|name| !base.is_base(name)) else {
                continue;
            };
            let key = (object.space, object.revision, object.name.name.clone());
            hash.update(object.space.0.to_le_bytes());
            hash.update(object.revision.0.to_le_bytes());
            hash.update(object.name.name.as_bytes());
            hash.update([0]);
            let known = self.versions.lock().get(&key);
            let crd = known.unwrap_or_else(|| {
                let value = Value::parse_own(object.record.body()).unwrap_or_default();
                let crd = self.read(store, &value, object.revision);
                self.versions.lock().insert(key, crd, VERSION_BYTES)
            });
            own.insert(name, crd);
        }
        hash.update(base.digest().as_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        if let Some(known) = self.catalogs.lock().get(&digest) {
            return known;
        }
        let bytes = VERSION_BYTES + ENTRY_BYTES * own.len();
        self.catalogs.lock().insert(digest, base.with_all(own), bytes)
    }
}

impl Registry {
    /// Everything a plane serves.
    pub async fn catalog(&self, plane: &Arc<Plane>) -> Result<Arc<Catalog>, Status> {
        if let Some(catalog) = self.customs.known(plane.id) {
            return Ok(catalog);
        }
        let epoch = self.customs.epoch(plane.id).load(Ordering::Acquire);
        let query = ListQuery::all(self.crds);
        let page = self.store.list(plane, query).await.map_err(|error| read_failed(plane, error))?;
        let base = self.base(plane).clone();
        let catalog = if page.objects.is_empty() {
            base
        } else {
            let (customs, store) = (self.customs.clone(), self.store.clone());
            let build = move || customs.build(&store, &base, &page.objects);
            let built = tokio::task::spawn_blocking(build).await;
            built.map_err(|_| Status::internal("the plane's definitions cannot be read"))?
        };
        self.customs.keep(plane.id, &catalog, page.revision, epoch);
        Ok(catalog)
    }
}

/// `widgets.shop.example`: the resource a CRD of that name defines.
pub(super) fn resource_of(crd: &str) -> Option<GroupResource> {
    crd.split_once('.').map(|(plural, group)| GroupResource::new(group, plural))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(revision: u64) -> Crd {
        Crd {
            revision: Revision(revision),
            digest: [0; 32],
            names: Names::default(),
            waiting: false,
            terminating: false,
            held: false,
            bytes: 0,
            made: None,
        }
    }

    #[test]
    fn changes_that_come_late_are_not_believed() {
        let customs = Customs::new(Plugins::default());
        let (plane, name) = (PlaneId(9), GroupResource::new("shop.example", "widgets"));
        let catalog = Arc::new(Catalog::base(Vec::new(), "test"));
        assert!(customs.changed(plane, &name, Revision(3), Some(crd(3))).is_none(), "nothing is kept yet");
        let epoch = customs.epoch(plane).load(Ordering::Acquire);
        customs.keep(plane, &catalog, Revision(5), epoch);
        // In the catalog already, whatever it was.
        assert!(customs.changed(plane, &name, Revision(4), Some(crd(4))).unwrap().crd(&name).is_none());
        assert!(customs.changed(plane, &name, Revision(8), Some(crd(8))).unwrap().crd(&name).is_some());
        assert!(customs.changed(plane, &name, Revision(9), None).unwrap().crd(&name).is_none());
        assert!(customs.changed(plane, &name, Revision(7), Some(crd(7))).is_none());
        assert!(customs.known(plane).is_none(), "it will be read again");
        // A catalog read before a change is not kept after it.
        customs.keep(plane, &catalog, Revision(5), epoch);
        assert!(customs.known(plane).is_none());
    }

    #[test]
    fn planes_not_used_for_long_are_let_go() {
        let customs = Customs::new(Plugins::default());
        let catalog = Arc::new(Catalog::base(Vec::new(), "test"));
        for plane in 0..=PLANES_LEN_MAX as u64 {
            let epoch = customs.epoch(PlaneId(plane)).load(Ordering::Acquire);
            customs.keep(PlaneId(plane), &catalog, Revision(1), epoch);
            customs.known(PlaneId(0));
        }
        assert!(customs.planes.lock().len() <= PLANES_LEN_MAX / 4 * 3 + 1);
        assert!(customs.known(PlaneId(0)).is_some(), "used all the time");
        assert!(customs.known(PlaneId(1)).is_none());
    }
}
