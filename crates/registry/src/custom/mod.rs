//! Custom resources: a CRD becomes a [`ResourceDefinition`] like any other, shared by every plane that has the same.
//!
//! A CRD's conditions are decided when it is written, so it is served in the answer to its own create. Custom objects
//! are stored only while their CRD is as the writer saw it ([`guard`]): none outlives it.

mod conversion;
mod definition;
mod form;
mod fresh;
mod intern;
mod kinds;
mod names;
mod schemas;
mod turns;
mod warnings;

use std::collections::BTreeSet;
use std::sync::Arc;

use polder_admission::Plugins;
use polder_cel::re2::Effort;
use polder_machinery::crd::{
    approval_condition, crd_problems_with, crd_status_problems, note_storage_version, set_crd_defaults,
};
use polder_machinery::schema::structural;
use polder_model::{FieldError, FieldPath, GroupResource, PlaneId, SmolStr, Status, Value};
use polder_store::{Expect, Key, ObjectName, Revision, Store};
use tokio::sync::OwnedMutexGuard;

pub(crate) use self::conversion::Conversion;
use self::definition::object_meta;
pub(crate) use self::form::{StoredForm, is_unchanged};
pub(crate) use self::intern::Interned;
use self::kinds::resource_of;
pub(crate) use self::kinds::{Crd, Customs};
use self::names::Names;
pub(crate) use self::names::set_condition;
use self::schemas::Compiled;
pub(crate) use self::turns::Turns;
pub(crate) use self::warnings::warnings;
use crate::behavior::Behavior;
use crate::catalog::Catalog;
use crate::context::{RequestContext, WriteOptions};
use crate::definition::{ResourceDefinition, Target};
use crate::finalize::{Chore, is_marked};
use crate::registry::Registry;
use crate::status::read_failed;
use crate::written::{self, Written};

pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        text.push_str(&format!("{byte:02x}"));
        text
    })
}

pub(crate) fn is_crd(target: &Target) -> bool {
    target.definition.plural == PLURAL && target.definition.group == GROUP
}

/// Whether a kind comes from a plane's own CRD; ours are built the same way, but come with the server.
pub(crate) fn is_from_crd(target: &Target) -> bool {
    std::ptr::eq(target.definition.behavior, &raw const definition::CUSTOM)
}

fn is_terminating(crd: &Value) -> bool {
    crd.at(&["metadata", "deletionTimestamp"]).is_some()
}

/// Whether a CRD's names have been accepted.
pub(crate) fn is_established(crd: &Value) -> bool {
    names::is_true(crd, "Established")
}

/// The definition of a CRD that is served: its names are accepted. `None` for others.
pub(crate) fn served_definition(registry: &Registry, crd: &Value) -> Option<Arc<ResourceDefinition>> {
    registry.customs.read(&registry.store, crd, Revision::default()).definition().cloned()
}

/// A definition of one of our own kinds, written as a CRD is.
pub(crate) fn own_definition(
    store: &Store,
    plugins: &Plugins,
    crd: &Value,
    behavior: &'static Behavior,
) -> Option<ResourceDefinition> {
    let compile = |written: &Value| {
        let schema = structural::compile(written, &object_meta()).ok()?;
        Some(Arc::new(Compiled::new(schema, written, 0)))
    };
    let names = Names::read(crd.at(&["spec", "names"]));
    definition::definition(store, plugins, crd, &names, behavior, &compile)
}

/// Waits until nobody else writes CRDs of the plane, if this is about one.
pub(crate) async fn turn(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
) -> Option<OwnedMutexGuard<()>> {
    if is_crd(target) { Some(registry.customs.turns.take(context.plane.id).await) } else { None }
}

/// Decides what becomes of a CRD while it is written: defaults, checks, names, conditions.
pub(crate) async fn prepare(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
    crd: &mut Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    if !is_crd(target) {
        return Ok(());
    }
    let refuse = |problems: &[FieldError]| match problems {
        [] => Ok(()),
        _ => Err(Status::invalid(&target.definition.error_kind(), &target.name, problems)),
    };
    if target.subresource == "status" {
        // Which names a CRD has is decided by what it wants and what others have, and not by whoever writes its status.
        if let Some(accepted) = old.and_then(|old| old.at(&["status", "acceptedNames"])) {
            crd.set_at(&["status", "acceptedNames"], accepted.clone());
        }
        return refuse(&crd_status_problems(crd));
    }
    set_crd_defaults(crd);
    if old.is_some() {
        note_storage_version(crd);
    }
    let checked = check(registry, crd, old).await?;
    refuse(&checked.problems)?;
    let resource = resource(crd);
    // Built in for some planes, taken in all.
    let is_base = registry.builtin.is_base(&resource) || registry.base(&context.plane).is_base(&resource);
    if old.is_none() && is_base {
        let why = "this resource is built in: a CustomResourceDefinition cannot take its name";
        return Err(Status::forbidden(&target.definition.group_resource(), &target.name, why));
    }
    if is_other(crd, old) {
        let catalog = registry.catalog(&context.plane).await?;
        settle(crd, &resource, &catalog, &registry.now());
        if !fits(&catalog, &resource, old.is_some(), checked.bytes, registry.customs.plane_bytes_max) {
            let why = "the schemas of this plane's CustomResourceDefinitions are too large together";
            return Err(Status::forbidden(&target.definition.group_resource(), &target.name, why));
        }
    }
    if let Some((status, reason, message)) = approval_condition(crd) {
        let kind = "KubernetesAPIApprovalPolicyConformant";
        names::set_condition(crd, kind, status, reason, &message, &registry.now());
    }
    let now = (registry.options.clock)();
    if registry.store.known_resource(&resource).is_none()
        && !registry.customs.fresh.take(context.plane.id, now)
    {
        let why = "this plane has brought too many new resource names; use earlier ones or wait";
        return Err(Status::too_many_requests(why, 60));
    }
    Ok(())
}

/// Whether a CRD says something else than before.
fn is_other(crd: &Value, old: Option<&Value>) -> bool {
    old.is_none_or(|old| old.get("spec") != crd.get("spec"))
}

/// Whether a plane has room for the schemas of a CRD beside those of its others. What does not grow always fits.
fn fits(catalog: &Catalog, name: &GroupResource, known: bool, bytes: usize, bytes_max: usize) -> bool {
    let before = catalog.crd(name).filter(|_| known).map_or(0, |crd| crd.bytes);
    let others = catalog.crds().filter(|(own, _)| *own != name).map(|(_, crd)| crd.bytes).sum::<usize>();
    (known && bytes <= before) || others.saturating_add(bytes) <= bytes_max
}

/// Decides about a CRD's names, given the others of its plane. What the catalog says of the CRD itself does not count:
/// it may be about one of that name that was deleted a moment ago.
fn settle(crd: &mut Value, resource: &GroupResource, catalog: &Catalog, now: &str) {
    let others = catalog.crds_of(&resource.group).filter(|(name, _)| *name != resource);
    names::settle(crd, others.map(|(_, crd)| &crd.names), now);
}

fn resource(crd: &Value) -> GroupResource {
    let text = |path: &[&str]| SmolStr::new(crd.str_at(path).unwrap_or_default());
    GroupResource::new(text(&["spec", "group"]), text(&["spec", "names", "plural"]))
}

/// What a look at a CRD's schemas says.
struct Checked {
    problems: Vec<FieldError>,
    /// About what they take; nothing when the CRD says what it did before.
    bytes: usize,
}

/// Everything that is wrong with a CRD. Schemas that must be compiled are compiled where that holds up nobody.
async fn check(registry: &Registry, crd: &mut Value, old: Option<&Value>) -> Result<Checked, Status> {
    let customs = registry.customs.clone();
    let check = |customs: &Customs, crd: &Value, old: Option<&Value>| {
        let effort = Effort::default();
        let problems = crd_problems_with(crd, old, &|schema: &Value, path: &FieldPath<'_>| {
            customs.schemas.compile(schema, path, &effort).err().unwrap_or_default()
        });
        let bytes = if problems.is_empty() && is_other(crd, old) { customs.schema_bytes(crd) } else { 0 };
        Checked { problems, bytes }
    };
    let mut schemas =
        crd.array_at(&["spec", "versions"]).iter().filter_map(|one| one.at(&["schema", "openAPIV3Schema"]));
    if schemas.all(|schema| customs.schemas.knows(schema)) {
        return Ok(check(&customs, crd, old));
    }
    let (own, old) = (std::mem::take(crd), old.cloned());
    let work = move || {
        let checked = check(&customs, &own, old.as_ref());
        (own, checked)
    };
    let (own, checked) = tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Status::internal("the definition cannot be checked"))?;
    *crd = own;
    Ok(checked)
}

/// A custom object may be stored only while its CRD is as it is now.
pub(crate) async fn guard(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
) -> Result<Option<(Key, Expect)>, Status> {
    let name = target.definition.group_resource();
    if !target.definition.is_custom() || registry.base(&context.plane).is_base(&name) {
        return Ok(None);
    }
    let mut catalog = registry.catalog(&context.plane).await?;
    if catalog.crd(&name).is_some_and(|crd| crd.terminating) {
        refuse_terminating(registry, context, target).await?;
        catalog = registry.catalog(&context.plane).await?;
    }
    let Some(crd) = catalog.crd(&name).filter(|crd| crd.definition().is_some()) else {
        return Err(Status::path_not_found());
    };
    if crd.terminating {
        return Err(terminating(target));
    }
    let name = ObjectName::cluster(format!("{}.{}", name.resource, name.group));
    let key = Key { plane: context.plane.id, resource: registry.crds, name };
    Ok(Some((key, Expect::At(crd.revision))))
}

fn terminating(target: &Target) -> Status {
    let why = "create not allowed while custom resource definition is terminating";
    Status::forbidden(&target.definition.group_resource(), &target.name, why)
}

/// A CRD that is on its way out takes no new objects; one that is gone serves nothing. What the plane serves is noted
/// a moment after a CRD has gone, so the store is asked which of the two it is. It may even be there anew: then what was
/// known of the plane's CRDs is forgotten, and the caller goes on.
pub(crate) async fn refuse_terminating(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
) -> Result<(), Status> {
    let name = target.definition.group_resource();
    let crd = ObjectName::cluster(format!("{}.{}", name.resource, name.group));
    let found = registry.store.get(&context.plane, registry.crds, &crd).await;
    match found.map_err(|error| read_failed(&context.plane, error))? {
        None => Err(Status::path_not_found()),
        Some(stored) if is_marked(&stored.record) => Err(terminating(target)),
        Some(_) => {
            registry.customs.forget(context.plane.id);
            Ok(())
        }
    }
}

/// Something was written or, without a value, removed: what the plane serves may have changed.
pub(crate) fn committed(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
    revision: Revision,
    value: Option<&Value>,
) {
    let name = ObjectName::new(target.namespace.clone(), target.name.clone());
    let resource = &target.definition.group_resource();
    written::committed(
        registry,
        &Written { plane: context.plane.id, resource, name: &name, is_there: value.is_some() },
    );
    if !is_crd(target) {
        return;
    }
    let (plane, customs) = (context.plane.id, &registry.customs);
    let base = registry.base(&context.plane);
    let Some(name) = resource_of(&target.name).filter(|name| !base.is_base(name)) else {
        return;
    };
    let crd = value.map(|value| customs.read(&registry.store, value, revision));
    let catalog = customs.changed(plane, &name, revision, crd);
    // Names may have become free: for others, or for this one since it was decided that it waits.
    if catalog.is_none_or(|catalog| catalog.crds_of(&name.group).any(|(_, crd)| crd.waiting)) {
        registry.add_chore(plane, Chore::Names { group: name.group.clone() });
    }
    end_watches(registry, plane, &name);
}

/// The same when another replica has written a CRD.
pub(crate) fn written_elsewhere(registry: &Registry, plane: PlaneId, name: &ObjectName) {
    registry.customs.forget(plane);
    if let Some(name) = resource_of(&name.name) {
        registry.add_chore(plane, Chore::Names { group: name.group.clone() });
        end_watches(registry, plane, &name);
    }
}

/// Whoever watches objects of a CRD must notice that they look different now, or are gone.
fn end_watches(registry: &Registry, plane: PlaneId, name: &GroupResource) {
    if let Some(resource) = registry.store.known_resource(name) {
        registry.store.end_watches(plane, resource);
    }
}

/// Whether a change of a CRD, or without one its removal, may free names that another one waits for. Then the plane
/// has a chore, which must not be lost in a crash.
pub(crate) async fn frees_names(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
    change: Option<(&Value, &Value)>,
) -> Result<bool, Status> {
    let same = |(old, new): (&Value, &Value)| {
        let rows: [&[&str]; 2] = [&["spec", "names"], &["status", "acceptedNames"]];
        rows.iter().all(|path| old.at(path) == new.at(path))
    };
    if !is_crd(target) || change.is_some_and(same) {
        return Ok(false);
    }
    let Some(name) = resource_of(&target.name) else { return Ok(false) };
    let catalog = registry.catalog(&context.plane).await?;
    Ok(catalog.crds_of(&name.group).any(|(own, crd)| crd.waiting && *own != name))
}

/// A CRD that is to be deleted waits until its objects are gone.
pub(crate) fn hold(target: &Target, crd: &mut Value, now: &str) {
    if !is_crd(target) {
        return;
    }
    let mut finalizers = crd.array_at(&["metadata", "finalizers"]).to_vec();
    if !is_terminating(crd) && !finalizers.contains(&CLEANUP_FINALIZER.into()) {
        finalizers.push(CLEANUP_FINALIZER.into());
        crd.set_at(&["metadata", "finalizers"], finalizers);
        let message = "CustomResource deletion is in progress";
        names::set_condition(crd, "Terminating", "True", "InstanceDeletionInProgress", message, now);
    }
}

/// Something was marked for deletion that holds others: its contents go first.
pub(crate) fn deleted(registry: &Registry, context: &RequestContext, target: &Target) {
    if let Some(chore) = chore(registry, target) {
        registry.add_chore(context.plane.id, chore);
    }
}

/// What must be done before an object that is being deleted can go.
pub(crate) fn chore(registry: &Registry, target: &Target) -> Option<Chore> {
    if is_crd(target) {
        Some(Chore::CustomResources { crd: target.name.clone() })
    } else if target.definition.resource_id == registry.namespaces {
        Some(Chore::Namespace { name: target.name.clone() })
    } else {
        None
    }
}

/// Looks again at all CRDs of a plane that wait for names.
pub(crate) async fn settle_all_names(registry: &Registry, context: &RequestContext) -> Result<(), Status> {
    let catalog = registry.catalog(&context.plane).await?;
    let groups = catalog.crds().filter(|(_, crd)| crd.waiting).map(|(name, _)| &name.group);
    for group in groups.collect::<BTreeSet<_>>() {
        settle_names(registry, context, group).await?;
    }
    Ok(())
}

/// Looks again at the CRDs of a group that wait for names.
pub(crate) async fn settle_names(
    registry: &Registry,
    context: &RequestContext,
    group: &str,
) -> Result<(), Status> {
    let plane: PlaneId = context.plane.id;
    let _turn = registry.customs.turns.take(plane).await;
    let waiting: Vec<GroupResource> = {
        let catalog = registry.catalog(&context.plane).await?;
        catalog.crds_of(group).filter(|(_, crd)| crd.waiting).map(|(name, _)| name.clone()).collect()
    };
    let found = registry.builtin.find(GROUP, "v1", PLURAL);
    let Some((definition, version)) = found else { return Ok(()) };
    for name in waiting {
        let target = Target {
            definition: definition.clone(),
            version,
            namespace: SmolStr::default(),
            name: SmolStr::from(format!("{}.{}", name.resource, name.group)),
            subresource: SmolStr::new_static("status"),
        };
        let catalog = registry.catalog(&context.plane).await?;
        let now = registry.now();
        let settle = |crd: &mut Value| {
            if !is_terminating(crd) {
                settle(crd, &name, &catalog, &now);
            }
            Ok(())
        };
        match registry.modify_with(context, &target, &WriteOptions::default(), settle).await {
            Err(status) if status.code != 404 => return Err(status),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
