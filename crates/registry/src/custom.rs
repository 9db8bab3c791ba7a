//! Custom resources: a CRD becomes a [`ResourceDefinition`] like any other, shared by every plane that has the same.
//!
//! A CRD's conditions are decided when it is written, so it is served in the answer to its own create. A plane's
//! catalog is made when somebody needs it, forgotten when one of its CRDs changes, and shared by content.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use polder_machinery::crd::{crd_problems, set_crd_defaults};
use polder_machinery::jsonpath::JsonPath;
use polder_machinery::schema::openapi::custom_type_name;
use polder_machinery::schema::structural;
use polder_machinery::schema::table::builtin;
use polder_machinery::schema::{Schema, openapi};
use polder_model::{
    FieldError, GroupVersion, GroupVersionKind, Object, PlaneId, SmolStr, Status, Value, format_smolstr, json,
};
use polder_store::{ListQuery, Plane, Store};
use sha2::{Digest, Sha256};

use crate::behavior::Behavior;
use crate::catalog::{Catalog, version_priority};
use crate::context::RequestContext;
use crate::definition::{
    Origin, PathColumn, ResourceDefinition, Scale, ServedVersion, Subresource, Target, type_meta,
};
use crate::finalize::Chore;
use crate::registry::Registry;
use crate::status::read_failed;

/// Planes whose catalog is kept.
const CATALOGS_LEN_MAX: usize = 20_000;
const EPOCHS: usize = 256;
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

static CUSTOM: Behavior = Behavior { unconditional_update: false, generation: true, ..Behavior::PLAIN };

/// Compiled CRDs and the catalogs made of them.
pub(crate) struct Customs {
    /// Counts CRD changes, by plane modulo a few: a catalog read before a change is not kept after it.
    epochs: [AtomicU64; EPOCHS],
    planes: Mutex<HashMap<PlaneId, Arc<Catalog>>>,
    catalogs: Mutex<HashMap<SmolStr, Weak<Catalog>>>,
    definitions: Mutex<HashMap<[u8; 32], Weak<ResourceDefinition>>>,
}

impl Default for Customs {
    fn default() -> Customs {
        Customs {
            epochs: std::array::from_fn(|_| AtomicU64::new(0)),
            planes: Mutex::default(),
            catalogs: Mutex::default(),
            definitions: Mutex::default(),
        }
    }
}

impl Customs {
    fn epoch(&self, plane: PlaneId) -> &AtomicU64 {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits choose")]
        &self.epochs[plane.0 as usize % EPOCHS]
    }

    pub(crate) fn forget(&self, plane: PlaneId) {
        self.epoch(plane).fetch_add(1, Ordering::AcqRel);
        self.planes.lock().remove(&plane);
    }
}

impl Registry {
    /// Everything a plane serves.
    pub async fn catalog(&self, plane: &Arc<Plane>) -> Result<Arc<Catalog>, Status> {
        if let Some(catalog) = self.customs.planes.lock().get(&plane.id) {
            return Ok(catalog.clone());
        }
        let epoch = self.customs.epoch(plane.id).load(Ordering::Acquire);
        let page = self
            .store
            .list(plane, ListQuery::all(self.crds))
            .await
            .map_err(|error| read_failed(plane, error))?;
        let base = if plane.id == PlaneId::CORE { &self.core } else { &self.builtin };
        let mut definitions = Vec::new();
        for stored in &page.objects {
            let crd = Value::parse(stored.record.body()).unwrap_or_default();
            if shadows(base, &crd) {
                continue;
            }
            let digest = definition_digest(&crd);
            let known = self.customs.definitions.lock().get(&digest).and_then(Weak::upgrade);
            let definition = match known {
                Some(definition) => definition,
                None => {
                    let Some(definition) = served_definition(&self.store, &crd) else { continue };
                    let definition = Arc::new(definition);
                    let mut known = self.customs.definitions.lock();
                    known.retain(|_, weak| weak.strong_count() > 0);
                    known.insert(digest, Arc::downgrade(&definition));
                    definition
                }
            };
            definitions.push((digest, definition));
        }
        let catalog =
            if definitions.is_empty() { base.clone() } else { self.shared_catalog(base, definitions) };
        let mut planes = self.customs.planes.lock();
        if self.customs.epoch(plane.id).load(Ordering::Acquire) == epoch {
            if planes.len() >= CATALOGS_LEN_MAX {
                planes.clear();
            }
            planes.insert(plane.id, catalog.clone());
        }
        Ok(catalog)
    }

    fn shared_catalog(
        &self,
        base: &Arc<Catalog>,
        mut definitions: Vec<([u8; 32], Arc<ResourceDefinition>)>,
    ) -> Arc<Catalog> {
        definitions
            .sort_by(|(_, left), (_, right)| (&left.group, &left.plural).cmp(&(&right.group, &right.plural)));
        let mut hash = Sha256::new();
        hash.update(base.digest.as_bytes());
        for (digest, _) in &definitions {
            hash.update(digest);
        }
        let digest = SmolStr::from(hex(&hash.finalize()));
        let mut catalogs = self.customs.catalogs.lock();
        if let Some(catalog) = catalogs.get(&digest).and_then(Weak::upgrade) {
            return catalog;
        }
        let own = definitions.into_iter().map(|(_, definition)| definition);
        let all = base.definitions.iter().cloned().chain(own).collect();
        let catalog = Arc::new(Catalog::new(all, digest.clone()));
        catalogs.retain(|_, weak| weak.strong_count() > 0);
        catalogs.insert(digest, Arc::downgrade(&catalog));
        catalog
    }
}

/// What a definition is made of: planes with equal CRDs share it, whoever made them and when.
fn definition_digest(crd: &Value) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(crd.get("spec").cloned().unwrap_or_default().to_vec());
    hash.update([u8::from(is_established(crd)), u8::from(is_terminating(crd))]);
    hash.finalize().into()
}

/// Whether a CRD names a resource that is served anyway: it would have that one's objects.
fn shadows(base: &Catalog, crd: &Value) -> bool {
    let group = crd.str_at(&["spec", "group"]).unwrap_or_default();
    let plural = crd.str_at(&["spec", "names", "plural"]).unwrap_or_default();
    base.by_group_resource(&polder_model::GroupResource::new(group, plural)).is_some()
}

fn is_terminating(crd: &Value) -> bool {
    crd.at(&["metadata", "deletionTimestamp"]).is_some()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        text.push_str(&format!("{byte:02x}"));
        text
    })
}

fn is_crd(target: &Target) -> bool {
    target.definition.plural == "customresourcedefinitions"
        && target.definition.group == "apiextensions.k8s.io"
}

/// Decides what becomes of a CRD while it is written: defaults, checks, names, conditions.
pub(crate) async fn prepare(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
    crd: &mut Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    if !is_crd(target) || target.subresource == "status" {
        return Ok(());
    }
    set_crd_defaults(crd);
    let problems = crd_problems(crd, old);
    if !problems.is_empty() {
        return Err(Status::invalid(&target.definition.group_kind(), &target.name, &problems));
    }
    let base = if context.plane.id == PlaneId::CORE { &registry.core } else { &registry.builtin };
    if old.is_none() && shadows(base, crd) {
        let why = "this resource is built in: a CustomResourceDefinition cannot take its name";
        return Err(Status::forbidden(&target.definition.group_resource(), &target.name, why));
    }
    if old.is_some_and(|old| old.get("spec") == crd.get("spec")) {
        return Ok(());
    }
    let problems = compile_problems(crd);
    if !problems.is_empty() {
        return Err(Status::invalid(&target.definition.group_kind(), &target.name, &problems));
    }
    if old.is_none() {
        let mut finalizers = crd.array_at(&["metadata", "finalizers"]).to_vec();
        if !finalizers.contains(&CLEANUP_FINALIZER.into()) {
            finalizers.push(CLEANUP_FINALIZER.into());
            crd.set_at(&["metadata", "finalizers"], finalizers);
        }
    }
    let catalog = registry.catalog(&context.plane).await?;
    set_status(crd, old, &catalog, &registry.now());
    Ok(())
}

/// A CRD was written: what the plane serves may have changed.
pub(crate) fn committed(registry: &Registry, context: &RequestContext, target: &Target) {
    if is_crd(target) {
        registry.customs.forget(context.plane.id);
        // Whoever watches its objects must notice that they look different now, or are gone.
        if let Some((plural, group)) = target.name.split_once('.') {
            let resource = polder_model::GroupResource::new(group, plural);
            registry.store.end_watches(context.plane.id, registry.store.resource_id(&resource));
        }
    }
}

/// Something was marked for deletion that holds others: its contents go first.
pub(crate) fn deleted(registry: &Registry, context: &RequestContext, target: &Target) {
    let plane = context.plane.id;
    if is_crd(target) {
        committed(registry, context, target);
        registry.chores.add(Chore::CustomResources { plane, crd: target.name.clone() });
    } else if target.definition.resource_id == registry.namespaces {
        registry.chores.add(Chore::Namespace { plane, name: target.name.clone() });
    }
}

fn set_status(crd: &mut Value, old: Option<&Value>, catalog: &Catalog, now: &str) {
    let conflict = name_conflict(crd, catalog);
    let condition = |kind: &str, ok: bool, reason: &str, message: &str| {
        let mut condition = json!({
            "type": kind, "status": (if ok { "True" } else { "False" }),
            "reason": reason, "message": message, "lastTransitionTime": now,
        });
        let earlier = old.and_then(|old| {
            let conditions = old.array_at(&["status", "conditions"]);
            conditions.iter().find(|one| one.str_at(&["type"]) == Some(kind))
        });
        if let Some(earlier) = earlier
            && earlier.get("status") == condition.get("status")
            && let Some(since) = earlier.get("lastTransitionTime")
        {
            condition.set_at(&["lastTransitionTime"], since.clone());
        }
        condition
    };
    let mut status = Object::new();
    let conditions = match &conflict {
        None => {
            status.insert("acceptedNames", crd.at(&["spec", "names"]).cloned().unwrap_or_default());
            vec![
                condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
                condition(
                    "Established",
                    true,
                    "InitialNamesAccepted",
                    "the initial names have been accepted",
                ),
            ]
        }
        Some((reason, message)) => {
            let accepted = old.and_then(|old| old.at(&["status", "acceptedNames"]).cloned());
            status.insert("acceptedNames", accepted.unwrap_or_else(|| json!({"plural": "", "kind": ""})));
            vec![
                condition("NamesAccepted", false, reason, message),
                condition("Established", false, "NotAccepted", "not all names are accepted"),
            ]
        }
    };
    let others = old.map(|old| old.array_at(&["status", "conditions"]).to_vec()).unwrap_or_default();
    let kept = others
        .into_iter()
        .filter(|one| !matches!(one.str_at(&["type"]), Some("NamesAccepted" | "Established")));
    status.insert("conditions", conditions.into_iter().chain(kept).collect::<Vec<_>>());
    let mut stored = old.map(|old| old.array_at(&["status", "storedVersions"]).to_vec()).unwrap_or_default();
    if let Some(version) = storage_version(crd)
        && !stored.contains(&Value::from(version))
    {
        stored.push(Value::from(version));
    }
    status.insert("storedVersions", stored);
    crd.set_at(&["status"], status);
}

/// Another kind of the group that already has one of the names.
fn name_conflict(crd: &Value, catalog: &Catalog) -> Option<(&'static str, String)> {
    let group = crd.str_at(&["spec", "group"])?;
    let text = |field: &str| crd.str_at(&["spec", "names", field]).unwrap_or_default();
    let plural = text("plural");
    for other in catalog.definitions.iter().filter(|other| other.group == group && other.plural != plural) {
        let names: Vec<&str> = std::iter::once(other.plural.as_str())
            .chain(std::iter::once(other.singular.as_str()))
            .chain(other.short_names.iter().map(SmolStr::as_str))
            .collect();
        let in_use = |name: &str| format!("{name:?} is already in use");
        if names.contains(&plural) {
            return Some(("PluralConflict", in_use(plural)));
        }
        if names.contains(&text("singular")) {
            return Some(("SingularConflict", in_use(text("singular"))));
        }
        for short in crd.array_at(&["spec", "names", "shortNames"]).iter().filter_map(Value::as_str) {
            if names.contains(&short) {
                return Some(("ShortNamesConflict", in_use(short)));
            }
        }
        if other.kind == text("kind") || other.list_kind == text("kind") {
            return Some(("KindConflict", in_use(text("kind"))));
        }
        if other.kind == text("listKind") || other.list_kind == text("listKind") {
            return Some(("ListKindConflict", in_use(text("listKind"))));
        }
    }
    None
}

fn storage_version(crd: &Value) -> Option<&str> {
    let versions = crd.array_at(&["spec", "versions"]);
    let storage = versions.iter().find(|one| one.get("storage").and_then(Value::as_bool) == Some(true));
    storage?.str_at(&["name"])
}

fn compile_problems(crd: &Value) -> Vec<FieldError> {
    let mut problems = Vec::new();
    for (index, version) in crd.array_at(&["spec", "versions"]).iter().enumerate() {
        if let Some(schema) = version.at(&["schema", "openAPIV3Schema"])
            && let Err(found) = structural::compile(schema, &object_meta())
        {
            let prefix = format!("spec.versions[{index}].schema.openAPIV3Schema");
            problems.extend(found.into_iter().map(|mut error| {
                error.path = match error.path.as_str() {
                    "" => prefix.clone(),
                    path if path.starts_with("spec.") => path.to_string(),
                    path => format!("{prefix}.{path}"),
                };
                error
            }));
        }
    }
    problems
}

fn object_meta() -> Schema {
    builtin().schema(OBJECT_META).expect("the table has ObjectMeta")
}

/// The definition of a CRD that is served: its names are accepted. `None` for others.
pub(crate) fn served_definition(store: &Store, crd: &Value) -> Option<ResourceDefinition> {
    if is_established(crd) { definition(store, crd, &CUSTOM) } else { None }
}

/// Whether a CRD's names have been accepted.
pub(crate) fn is_established(crd: &Value) -> bool {
    crd.array_at(&["status", "conditions"]).iter().any(|condition| {
        condition.str_at(&["type"]) == Some("Established") && condition.str_at(&["status"]) == Some("True")
    })
}

/// A definition from a CRD's spec. Our own kinds are written the same way.
pub(crate) fn definition(
    store: &Store,
    crd: &Value,
    behavior: &'static Behavior,
) -> Option<ResourceDefinition> {
    let spec = crd.get("spec")?;
    let text = |path: &[&str]| SmolStr::new(spec.str_at(path).unwrap_or_default());
    let list = |path: &[&str]| -> Vec<SmolStr> {
        spec.array_at(path).iter().filter_map(Value::as_str).map(SmolStr::new).collect()
    };
    let (group, plural, kind) = (text(&["group"]), text(&["names", "plural"]), text(&["names", "kind"]));
    let storage = GroupVersion::new(group.clone(), storage_version(crd)?);
    let mut versions: Vec<ServedVersion> = spec
        .array_at(&["versions"])
        .iter()
        .filter(|version| version.get("served").and_then(Value::as_bool) == Some(true))
        .filter_map(|version| served_version(&group, &kind, version))
        .collect();
    versions.sort_by_key(|version| version_priority(&version.name));
    if versions.is_empty() {
        return None;
    }
    let resource = polder_model::GroupResource::new(group.clone(), plural.clone());
    Some(ResourceDefinition {
        singular: text(&["names", "singular"]),
        list_kind: match text(&["names", "listKind"]) {
            own if own.is_empty() => format_smolstr!("{kind}List"),
            own => own,
        },
        short_names: list(&["names", "shortNames"]),
        categories: list(&["names", "categories"]),
        namespaced: spec.str_at(&["scope"]) == Some("Namespaced"),
        resource_id: store.resource_id(&resource),
        group,
        plural,
        kind,
        versions,
        storage,
        behavior,
        origin: Origin::Custom,
        terminating: is_terminating(crd),
    })
}

fn served_version(group: &SmolStr, kind: &SmolStr, version: &Value) -> Option<ServedVersion> {
    let name = SmolStr::new(version.str_at(&["name"])?);
    let group_version = GroupVersion::new(group.clone(), name.clone());
    let group_version_kind = group_version.kind(kind.clone());
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let written = version.at(&["schema", "openAPIV3Schema"]).unwrap_or(&anything);
    let schema = structural::compile(written, &object_meta()).ok()?;
    let verbs =
        |verbs: &[&'static str]| verbs.iter().map(|verb| SmolStr::new_static(verb)).collect::<Vec<_>>();
    let own_kind = |kind: GroupVersionKind, name: &'static str| Subresource {
        name: SmolStr::new_static(name),
        kind,
        verbs: verbs(&["get", "patch", "update"]),
        type_name: None,
    };
    let mut subresources = Vec::new();
    if version.at(&["subresources", "status"]).is_some() {
        subresources.push(own_kind(group_version_kind.clone(), "status"));
    }
    let scale = version.at(&["subresources", "scale"]).map(|scale| {
        let path = |field: &str| -> Vec<SmolStr> {
            let path = scale.str_at(&[field]).and_then(|path| JsonPath::parse(path).ok());
            let members = path.as_ref().and_then(JsonPath::simple_members).unwrap_or_default();
            members.into_iter().map(SmolStr::new).collect()
        };
        Scale {
            spec_replicas: path("specReplicasPath"),
            status_replicas: path("statusReplicasPath"),
            selector: path("labelSelectorPath"),
        }
    });
    if scale.is_some() {
        subresources.push(own_kind(GroupVersion::new("autoscaling", "v1").kind("Scale"), "scale"));
    }
    let deprecated = version.get("deprecated").and_then(Value::as_bool) == Some(true);
    let own_warning = version.str_at(&["deprecationWarning"]).map(str::to_string);
    Some(ServedVersion {
        type_name: custom_type_name(&group_version_kind),
        schema,
        verbs: verbs(&["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]),
        subresources,
        columns: columns(version),
        selectable: selectable(version),
        scale,
        deprecation: deprecated
            .then(|| own_warning.unwrap_or(format!("{group_version} {kind} is deprecated"))),
        type_meta: type_meta(kind, &group_version),
        name,
        published: Some(openapi::PublishedSchema::Written(Arc::new(written.clone()))),
    })
}

fn columns(version: &Value) -> Vec<PathColumn> {
    let columns = version.array_at(&["additionalPrinterColumns"]).iter().filter_map(|column| {
        Some(PathColumn {
            name: SmolStr::new(column.str_at(&["name"])?),
            kind: SmolStr::new(column.str_at(&["type"])?),
            format: SmolStr::new(column.str_at(&["format"]).unwrap_or_default()),
            description: column.str_at(&["description"]).unwrap_or_default().to_string(),
            priority: column.i64_at(&["priority"]).unwrap_or(0),
            path: JsonPath::parse(column.str_at(&["jsonPath"])?).ok()?,
        })
    });
    let columns: Vec<PathColumn> = columns.collect();
    if !columns.is_empty() {
        return columns;
    }
    let age = JsonPath::parse(".metadata.creationTimestamp").expect("a path of our own");
    vec![PathColumn {
        name: SmolStr::new_static("Age"),
        kind: SmolStr::new_static("date"),
        format: SmolStr::default(),
        description: String::new(),
        priority: 0,
        path: age,
    }]
}

fn selectable(version: &Value) -> Vec<(SmolStr, JsonPath)> {
    let fields = version.array_at(&["selectableFields"]).iter().filter_map(|field| {
        let path = field.str_at(&["jsonPath"])?;
        Some((SmolStr::new(path.trim_start_matches('.')), JsonPath::parse(path).ok()?))
    });
    fields.collect()
}
