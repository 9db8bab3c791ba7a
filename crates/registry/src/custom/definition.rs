//! From a CRD to a [`ResourceDefinition`] like any other.

use std::sync::Arc;

use polder_admission::Plugins;
use polder_machinery::jsonpath::JsonPath;
use polder_machinery::schema::openapi::custom_type_name;
use polder_machinery::schema::table::builtin;
use polder_machinery::schema::{Schema, openapi};
use polder_model::{GroupResource, GroupVersion, GroupVersionKind, SmolStr, Value, format_smolstr};
use polder_store::Store;

use super::conversion::Conversion;
use super::form::StoredForm;
use super::names::Names;
use super::{is_terminating, schemas::Compiled};
use crate::behavior::Behavior;
use crate::catalog::version_priority;
use crate::definition::{
    Origin, PathColumn, ResourceDefinition, Scale, ServedVersion, Subresource, type_meta,
};

const SCALE_TYPE: &str = "io.k8s.api.autoscaling.v1.Scale";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

pub(super) static CUSTOM: Behavior =
    Behavior { unconditional_update: false, generation: true, ..Behavior::PLAIN };

/// The metadata every custom object has.
pub(super) fn object_meta() -> Schema {
    builtin().schema(OBJECT_META).expect("the table has ObjectMeta")
}

pub(super) fn storage_version(crd: &Value) -> Option<&str> {
    let versions = crd.array_at(&["spec", "versions"]);
    let storage = versions.iter().find(|one| one.get("storage").and_then(Value::as_bool) == Some(true));
    storage?.str_at(&["name"])
}

fn is_served(version: &Value) -> bool {
    version.get("served").and_then(Value::as_bool) == Some(true)
}

/// Makes or finds the compiled schema of a version.
pub(super) type Compile<'c> = &'c dyn Fn(&Value) -> Option<Arc<Compiled>>;

/// A definition from a CRD's spec and the names it was accepted with. Our own kinds are written the same way.
pub(super) fn definition(
    store: &Store,
    plugins: &Plugins,
    crd: &Value,
    names: &Names,
    behavior: &'static Behavior,
    compile: Compile<'_>,
) -> Option<ResourceDefinition> {
    let spec = crd.get("spec")?;
    let text = |path: &[&str]| SmolStr::new(spec.str_at(path).unwrap_or_default());
    let (group, plural, kind) = (text(&["group"]), text(&["names", "plural"]), names.kind.clone());
    let storage = GroupVersion::new(group.clone(), storage_version(crd)?);
    // Each version once: whoever counts what was compiled must not count it twice.
    let schema = |version: &Value| compile(version.at(&["schema", "openAPIV3Schema"])?);
    let all = crd.array_at(&["spec", "versions"]).iter();
    let all: Vec<(&Value, Arc<Compiled>)> =
        all.filter_map(|version| Some((version, schema(version)?))).collect();
    let form = |(version, compiled): &(&Value, Arc<Compiled>)| {
        let name = SmolStr::new(version.str_at(&["name"])?);
        Some(StoredForm::new(name, compiled.schema.clone(), compiled.digests))
    };
    let forms = all.iter().filter_map(form).collect();
    let served = all.iter().filter(|(version, _)| is_served(version));
    let mut versions: Vec<ServedVersion> = served
        .filter_map(|(version, compiled)| served_version(&group, &kind, version, compiled, crd))
        .collect();
    versions.sort_by_key(|version| version_priority(&version.name));
    if versions.is_empty() {
        return None;
    }
    let resource = GroupResource::new(group.clone(), plural.clone());
    let namespaced = spec.str_at(&["scope"]) == Some("Namespaced");
    Some(ResourceDefinition {
        singular: names.singular.clone(),
        list_kind: match &names.list_kind {
            own if own.is_empty() => format_smolstr!("{kind}List"),
            own => own.clone(),
        },
        short_names: names.short_names.clone(),
        categories: names.categories.clone(),
        namespaced,
        admission: crate::admission::chain(plugins, &resource, namespaced),
        resource_id: store.resource_id(&resource),
        group,
        plural,
        kind,
        versions,
        storage,
        forms,
        conversion: Conversion::of(crd),
        behavior,
        origin: Origin::Custom,
        ledger: None,
        terminating: is_terminating(crd),
    })
}

fn served_version(
    group: &SmolStr,
    kind: &SmolStr,
    version: &Value,
    compiled: &Compiled,
    crd: &Value,
) -> Option<ServedVersion> {
    let name = SmolStr::new(version.str_at(&["name"])?);
    let group_version = GroupVersion::new(group.clone(), name.clone());
    let group_version_kind = group_version.kind(kind.clone());
    let verbs =
        |verbs: &[&'static str]| verbs.iter().map(|verb| SmolStr::new_static(verb)).collect::<Vec<_>>();
    let own_kind = |kind: GroupVersionKind, name: &'static str, type_name: SmolStr| Subresource {
        name: SmolStr::new_static(name),
        kind,
        verbs: verbs(&["get", "patch", "update"]),
        type_name: Some(type_name),
    };
    let type_name = custom_type_name(&group_version_kind);
    let mut subresources = Vec::new();
    if version.at(&["subresources", "status"]).is_some() {
        subresources.push(own_kind(group_version_kind.clone(), "status", type_name.clone()));
    }
    let scale = version.at(&["subresources", "scale"]).map(|scale| {
        let path = |field: &str| -> Vec<SmolStr> {
            let path = scale.str_at(&[field]).and_then(|path| path.strip_prefix('.'));
            path.into_iter().flat_map(|path| path.split('.')).map(SmolStr::new).collect()
        };
        Scale {
            spec_replicas: path("specReplicasPath"),
            status_replicas: path("statusReplicasPath"),
            selector: path("labelSelectorPath"),
        }
    });
    if scale.is_some() {
        let kind = GroupVersion::new("autoscaling", "v1").kind("Scale");
        subresources.push(own_kind(kind, "scale", SmolStr::new_static(SCALE_TYPE)));
    }
    let deprecated = version.get("deprecated").and_then(Value::as_bool) == Some(true);
    let own_warning = version.str_at(&["deprecationWarning"]).map(str::to_string);
    Some(ServedVersion {
        type_name,
        schema: compiled.schema.clone(),
        verbs: verbs(&["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]),
        subresources,
        columns: columns(version),
        selectable: selectable(version),
        scale,
        deprecation: deprecated
            .then(|| own_warning.unwrap_or_else(|| deprecation(&group_version, kind, crd))),
        type_meta: type_meta(kind, &group_version),
        name,
        published: Some(openapi::PublishedSchema::Written(compiled.written.clone())),
    })
}

/// What users of a deprecated version are told: also what to use instead, if something newer is served.
fn deprecation(version: &GroupVersion, kind: &str, crd: &Value) -> String {
    let own = version_priority(&version.version);
    let is_better = |other: &&Value| {
        let name = other.str_at(&["name"]).unwrap_or_default();
        let deprecated = other.get("deprecated").and_then(Value::as_bool) == Some(true);
        is_served(other) && !deprecated && version_priority(name) < own
    };
    let better = crd.array_at(&["spec", "versions"]).iter().filter(is_better);
    let names = better.filter_map(|other| other.str_at(&["name"]));
    match names.min_by_key(|name| version_priority(name)) {
        Some(name) => format!("{version} {kind} is deprecated; use {}/{name} {kind}", version.group),
        None => format!("{version} {kind} is deprecated"),
    }
}

fn columns(version: &Value) -> Vec<PathColumn> {
    let columns = version.array_at(&["additionalPrinterColumns"]).iter().filter_map(|column| {
        Some(PathColumn {
            name: SmolStr::new(column.str_at(&["name"])?),
            kind: SmolStr::new(column.str_at(&["type"])?),
            format: SmolStr::new(column.str_at(&["format"]).unwrap_or_default()),
            description: match column.str_at(&["description"]).unwrap_or_default() {
                "" => format!(
                    "Custom resource definition column (in JSONPath format): {}",
                    column.str_at(&["jsonPath"])?
                ),
                own => own.to_string(),
            },
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
