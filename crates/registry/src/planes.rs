//! `Plane` and `Layer`: objects of the core plane whose writes make, fork, limit and delete planes in the same commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use polder_admission::Plugins;
use polder_auth::authz;
use polder_model::{GroupResource, GroupVersion, PlaneId, SmolStr, Status, Value, json};
use polder_store::{ForkSource, Limits, Plane, PlaneChange, Profile, Renewal, Store};

use crate::bootstrap;
use crate::context::RequestContext;
use crate::custom;
use crate::definition::{ResourceDefinition, Subresource, Target};
use crate::registry::{Registry, timestamp};
use crate::resources::{layer, plane, schema_json};
use crate::status::plane_not_found;
use crate::transfer;

pub const GROUP: &str = "polder.dev";
const VERSION: &str = "v1alpha1";

/// The definitions of our own kinds, written as CRDs are.
pub(crate) fn definitions(store: &Store, plugins: &Plugins) -> Vec<Arc<ResourceDefinition>> {
    let make = |kind: &str, plural: &str, short: &[&str], behavior| {
        let short: Vec<Value> = short.iter().map(|name| Value::from(*name)).collect();
        let crd = json!({"spec": {
            "group": GROUP, "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": (kind.to_lowercase()), "shortNames": short},
            "versions": [{
                "name": VERSION, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": (schema_json(kind).unwrap_or_default())},
            }],
        }});
        let definition = custom::own_definition(store, plugins, &crd, behavior);
        let mut definition = definition.expect("our own kinds are well-formed");
        if kind == "Plane" {
            let own = [
                ("export", transfer::HEADER_KIND, "get"),
                ("import", transfer::IMPORT_KIND, "create"),
                ("kubeconfig", "Kubeconfig", "create"),
            ];
            definition.versions[0].subresources.extend(own.map(|(name, kind, verb)| Subresource {
                name: SmolStr::new_static(name),
                kind: GroupVersion::new(GROUP, VERSION).kind(kind),
                verbs: vec![SmolStr::new_static(verb)],
                type_name: None,
            }));
        }
        Arc::new(definition)
    };
    vec![make("Plane", "planes", &["pl"], &plane::PLANE), make("Layer", "layers", &[], &layer::LAYER)]
}

/// Whether a target is one of our own kinds. A tenant may have a CRD of the same name: in its plane it is nothing special.
pub(crate) fn is_own(context: &RequestContext, target: &Target, plural: &str) -> bool {
    context.plane.id == PlaneId::CORE
        && target.definition.group == GROUP
        && target.definition.plural == plural
}

/// What the server says about a new plane or layer.
pub(crate) fn prepare(registry: &Registry, context: &RequestContext, target: &Target, object: &mut Value) {
    let now = registry.now();
    let ready = |reason: &str| json!([{"type": "Ready", "status": "True", "reason": reason, "message": "", "lastTransitionTime": (now.as_str())}]);
    if is_own(context, target, "planes") {
        let url = plane_url(registry, &target.name);
        object.set_at(&["status"], json!({"phase": "Ready", "url": url, "conditions": (ready("Created"))}));
    } else if is_own(context, target, "layers") {
        let source = object.str_at(&["spec", "plane"]).and_then(|name| registry.store.plane(name));
        let (objects, bytes) = source.map_or((0, 0), |plane| (plane.usage.objects(), plane.usage.bytes()));
        object.set_at(
            &["status"],
            json!({
                "phase": "Sealed", "sealedAt": (now.as_str()), "conditions": (ready("Sealed")),
                "objectCount": (integer(objects)), "storedBytes": (integer(bytes)),
            }),
        );
    }
}

/// Where clients reach a plane.
pub fn plane_url(registry: &Registry, name: &str) -> String {
    format!("{}/clusters/{name}", registry.options.base_url)
}

/// What a write of a `Plane` or `Layer` does to the plane or layer itself.
pub(crate) fn change(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<Option<PlaneChange>, Status> {
    let own = ["planes", "layers"].iter().any(|plural| is_own(context, target, plural));
    if !own || !target.subresource.is_empty() {
        return Ok(None);
    }
    let store = &registry.store;
    let id = |name: &str| store.plane(name).map(|plane| plane.id).ok_or_else(|| plane_not_found(name));
    let change = match (target.definition.plural.as_str(), new, old) {
        ("planes", Some(new), None) => {
            let name = target.name.parse().map_err(|error| Status::bad_request(format!("{error}")))?;
            let limits = limits(registry, new);
            match new.str_at(&["spec", "forkFrom"]).filter(|source| !source.is_empty()) {
                None => {
                    let profile = new.str_at(&["spec", "profile"]).and_then(Profile::of_name);
                    PlaneChange::Create { name, limits, profile: profile.unwrap_or_default() }
                }
                Some(source) => {
                    let source = match plane::origin(source) {
                        plane::Origin::Layer(layer) => ForkSource::Layer(SmolStr::new(layer)),
                        plane::Origin::Plane(source) => ForkSource::Plane(id(source)?),
                    };
                    PlaneChange::Fork { name, source, limits }
                }
            }
        }
        ("planes", Some(new), Some(old)) => {
            if new.at(&["spec", "limits"]) == old.at(&["spec", "limits"]) {
                return Ok(None);
            }
            PlaneChange::SetLimits { plane: id(&target.name)?, limits: limits(registry, new) }
        }
        ("planes", None, Some(_)) => PlaneChange::Delete { plane: id(&target.name)? },
        ("layers", Some(new), None) => {
            let source = new.str_at(&["spec", "plane"]).unwrap_or_default();
            PlaneChange::Seal { layer: target.name.clone(), plane: id(source)? }
        }
        ("layers", None, Some(_)) => PlaneChange::Unseal { layer: target.name.clone() },
        _ => return Ok(None),
    };
    Ok(Some(change))
}

/// Whoever makes a plane from another, or a layer, gets all that is in it: they must be allowed to have it.
pub(crate) async fn check_source(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
    new: &Value,
) -> Result<(), Status> {
    let text = |path: &[&str]| new.str_at(path).filter(|source| !source.is_empty());
    let source = if is_own(context, target, "planes") {
        text(&["spec", "forkFrom"]).map(plane::origin)
    } else if is_own(context, target, "layers") {
        text(&["spec", "plane"]).map(plane::Origin::Plane)
    } else {
        None
    };
    let (plural, subresource, name) = match source {
        None => return Ok(()),
        Some(plane::Origin::Plane(name)) => ("planes", "export", name),
        Some(plane::Origin::Layer(name)) => ("layers", "", name),
    };
    let resource = &GroupResource::new(target.definition.group.clone(), plural);
    let (version, namespace) = (target.served().name.as_str(), "");
    let target = authz::Target::Resource { resource, version, subresource, namespace, name };
    registry.authorize_target(context, "get", target).await
}

/// A fork of a plane has what its source may use, its simulated nodes and what is noted of it, unless it says otherwise: so nobody gets
/// more by forking. Who may come in is said anew.
pub(crate) async fn inherit(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
    new: &mut Value,
) -> Result<(), Status> {
    if !is_own(context, target, "planes") {
        return Ok(());
    }
    let source = new.str_at(&["spec", "forkFrom"]).filter(|source| !source.is_empty());
    let Some(plane::Origin::Plane(source)) = source.map(plane::origin) else { return Ok(()) };
    let resource = target.definition.group_resource();
    let Some(source) = registry.named(&context.plane, &resource, "", source).await? else { return Ok(()) };
    for key in ["auditPolicy", "simulatedNodes"] {
        if let Some(value) = source.at(&["spec", key]).filter(|_| new.at(&["spec", key]).is_none()) {
            new.set_at(&["spec", key], value.clone());
        }
    }
    for key in plane::LIMITS {
        let limit = |plane: &Value| plane.i64_at(&["spec", "limits", key]).filter(|number| *number > 0);
        if let Some(number) = limit(&source).filter(|_| limit(new).is_none()) {
            new.set_at(&["spec", "limits", key], number);
        }
    }
    Ok(())
}

/// What a new plane has of its own from the start, so that it is not taken for another: also a fork.
pub(crate) fn renewal(registry: &Registry, change: Option<&PlaneChange>) -> Option<Renewal> {
    let created = match change? {
        PlaneChange::Create { .. } => Some(registry.now()),
        // A fork is as old as what it was forked from.
        PlaneChange::Fork { .. } => None,
        _ => return None,
    };
    let uid = uuid::Uuid::new_v4();
    Some(Renewal {
        resource: registry.namespaces,
        name: bootstrap::own_namespace(),
        make: Arc::new(move |record| bootstrap::renewed(record, uid, created.as_deref())),
    })
}

/// Tells when a plane is left with as much as it may hold, or more: it begins with what its source has, and a lower limit takes
/// nothing away. Nothing is wrong with that, but nothing can be added either.
pub(crate) fn warn_if_full(context: &RequestContext, plane: Option<&Plane>) {
    let Some(Plane { name, limits, usage, .. }) = plane else { return };
    for (what, used, limit) in
        [("objects", usage.objects(), limits.objects), ("stored bytes", usage.bytes(), limits.bytes)]
    {
        if limit > 0 && used >= limit {
            context.warn(format!(
                "plane {name} holds {used} {what} and its limit is {limit}: nothing can be added until it holds less or the limit is \
                 raised"
            ));
        }
    }
}

/// The core plane cannot be deleted; everything else can.
pub(crate) fn check_delete(context: &RequestContext, target: &Target) -> Result<(), Status> {
    if is_own(context, target, "planes") && target.name == "core" {
        let planes = target.definition.group_resource();
        return Err(Status::forbidden(&planes, "core", "the core plane cannot be deleted"));
    }
    Ok(())
}

fn limits(registry: &Registry, object: &Value) -> Limits {
    let default = registry.options.default_limits;
    let own = |field: &str, default: u64| {
        let given = object.i64_at(&["spec", "limits", field]).and_then(|number| u64::try_from(number).ok());
        given.filter(|number| *number > 0).unwrap_or(default)
    };
    Limits {
        objects: own("objects", default.objects),
        bytes: own("storedBytes", default.bytes),
        object_bytes: own("objectBytes", default.object_bytes),
        watches: own("watches", default.watches),
        requests_in_flight: own("requestsInFlight", default.requests_in_flight),
        requests_per_second: own("requestsPerSecond", default.requests_per_second),
        weight: own("weight", default.weight),
    }
}

/// Whether reads of a kind show numbers that are not stored.
pub(crate) fn has_live_status(context: &RequestContext, target: &Target) -> bool {
    is_own(context, target, "planes")
}

/// Fills in how much a plane holds now and when it was last used.
pub(crate) fn live_status(registry: &Registry, object: &mut Value) {
    let name = object.str_at(&["metadata", "name"]).unwrap_or_default();
    let Some(plane) = registry.store.plane(name) else { return };
    if object.at(&["metadata", "deletionTimestamp"]).is_some() {
        object.set_at(&["status", "phase"], "Deleting");
    }
    // Where the server is reached may have changed since.
    object.set_at(&["status", "url"], plane_url(registry, plane.name.as_str()));
    object.set_at(&["status", "number"], integer(plane.id.0));
    object.set_at(&["status", "profile"], plane.profile.name());
    object.set_at(&["status", "objectCount"], integer(plane.usage.objects()));
    object.set_at(&["status", "storedBytes"], integer(plane.usage.bytes()));
    let (limits, defaults) = told_limits(registry, &plane, object);
    object.set_at(&["status", "limits"], limits);
    object.set_at(&["status", "defaultLimits"], defaults);
    let last = plane.usage.last_activity.load(Ordering::Relaxed);
    if last > 0 {
        object.set_at(&["status", "lastActivity"], timestamp(i64::try_from(last).unwrap_or_default()));
    }
}

/// What a plane may use, and what of that its spec does not say.
fn told_limits(registry: &Registry, plane: &Plane, object: &Value) -> (Value, Vec<Value>) {
    let (own, default) = (&plane.limits, &registry.options.default_limits);
    let or = |own: u64, default: u64| if own > 0 { own } else { default };
    // In the order of their names.
    let numbers = [
        own.objects,
        own.bytes,
        own.object_bytes,
        or(own.watches, default.watches),
        or(own.requests_in_flight, default.requests_in_flight),
        or(own.requests_per_second, default.requests_per_second),
        or(own.weight, Limits::WEIGHT_DEFAULT),
    ];
    let mut limits = Value::default();
    for (name, number) in plane::LIMITS.into_iter().zip(numbers) {
        limits.set_at(&[name], integer(number));
    }
    let is_default = |name: &&str| object.i64_at(&["spec", "limits", *name]).unwrap_or_default() == 0;
    (limits, plane::LIMITS.into_iter().filter(is_default).map(Value::from).collect())
}

/// Takes those numbers out again before an object is stored.
pub(crate) fn strip_live(context: &RequestContext, target: &Target, object: &mut Value) {
    if has_live_status(context, target) {
        for field in
            ["number", "profile", "objectCount", "storedBytes", "limits", "defaultLimits", "lastActivity"]
        {
            object.remove_at(&["status", field]);
        }
    }
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
