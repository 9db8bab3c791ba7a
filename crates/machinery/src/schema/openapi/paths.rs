//! Paths and operations of a resource.
//!
//! kubectl finds an operation by its `x-kubernetes-group-version-kind` and looks whether its query parameters
//! include `dryRun` and `fieldValidation`, so these stand with each operation and not behind a reference.

use polder_model::{GroupVersion, Object, SmolStr, Value, format_smolstr, json};

use super::definitions::{Definitions, kind_value};
use super::{Dialect, PublishedResource, PublishedSchema, Subresource};

const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

/// Query parameters and their types.
type Parameters = &'static [(&'static str, &'static str)];

const LIST_PARAMETERS: Parameters = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const WRITE_PARAMETERS: Parameters =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
const PATCH_PARAMETERS: Parameters =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];
const DELETE_PARAMETERS: Parameters = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const DELETE_COLLECTION_PARAMETERS: Parameters = &[
    ("continue", "string"),
    ("dryRun", "string"),
    ("fieldSelector", "string"),
    ("gracePeriodSeconds", "integer"),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
];

/// How a verb looks from outside.
struct Shape {
    method: &'static str,
    action: &'static str,
    /// First word of the operation id.
    word: &'static str,
    parameters: Parameters,
    codes: &'static [(&'static str, &'static str)],
}

const OK: &[(&str, &str)] = &[("200", "OK")];
const OK_CREATED: &[(&str, &str)] = &[("200", "OK"), ("201", "Created")];
const OK_CREATED_ACCEPTED: &[(&str, &str)] = &[("200", "OK"), ("201", "Created"), ("202", "Accepted")];
const OK_ACCEPTED: &[(&str, &str)] = &[("200", "OK"), ("202", "Accepted")];

fn shape(verb: &str) -> Option<Shape> {
    let (method, action, word, parameters, codes) = match verb {
        "list" => ("get", "list", "list", LIST_PARAMETERS, OK),
        "create" => ("post", "post", "create", WRITE_PARAMETERS, OK_CREATED_ACCEPTED),
        "deletecollection" => ("delete", "deletecollection", "delete", DELETE_COLLECTION_PARAMETERS, OK),
        "get" => ("get", "get", "read", &[] as Parameters, OK),
        "update" => ("put", "put", "replace", WRITE_PARAMETERS, OK_CREATED),
        "patch" => ("patch", "patch", "patch", PATCH_PARAMETERS, OK_CREATED),
        "delete" => ("delete", "delete", "delete", DELETE_PARAMETERS, OK_ACCEPTED),
        // A watch is a list with a parameter.
        _ => return None,
    };
    Some(Shape { method, action, word, parameters, codes })
}

/// Adds the paths of a resource and its subresources.
pub(super) fn resource_paths(
    resource: &PublishedResource,
    definitions: &mut Definitions<'_>,
    paths: &mut Vec<(SmolStr, Value)>,
) {
    let mut writer = Writer { resource, definitions };
    let base = match resource.group_version.group.as_str() {
        "" => format!("/api/{}", resource.group_version.version),
        group => format!("/apis/{group}/{}", resource.group_version.version),
    };
    let plural = &resource.plural;
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let (collection, item): (Vec<_>, Vec<_>) = resource
        .verbs
        .iter()
        .map(SmolStr::as_str)
        .partition(|verb| matches!(*verb, "list" | "create" | "deletecollection"));

    if resource.namespaced && collection.contains(&"list") {
        let operations = writer.operations(&["list"], Place::AllNamespaces);
        paths.push((format_smolstr!("{base}/{plural}"), writer.path_item(operations, &[])));
    }
    let namespace: &[&str] = if resource.namespaced { &["namespace"] } else { &[] };
    let operations = writer.operations(&collection, Place::Collection);
    if !operations.is_empty() {
        paths.push((format_smolstr!("{base}{scope}/{plural}"), writer.path_item(operations, namespace)));
    }

    let name_and_namespace: &[&str] = if resource.namespaced { &["name", "namespace"] } else { &["name"] };
    let operations = writer.operations(&item, Place::Item);
    if !operations.is_empty() {
        let path = format_smolstr!("{base}{scope}/{plural}/{{name}}");
        paths.push((path, writer.path_item(operations, name_and_namespace)));
    }
    for subresource in &resource.subresources {
        let verbs: Vec<_> = subresource.verbs.iter().map(SmolStr::as_str).collect();
        let operations = writer.operations(&verbs, Place::Subresource(subresource));
        let path = format_smolstr!("{base}{scope}/{plural}/{{name}}/{}", subresource.name);
        paths.push((path, writer.path_item(operations, name_and_namespace)));
    }
}

/// Where an operation stands.
#[derive(Clone, Copy)]
enum Place<'a> {
    AllNamespaces,
    Collection,
    Item,
    Subresource(&'a Subresource),
}

struct Writer<'r, 'd, 't> {
    resource: &'r PublishedResource,
    definitions: &'d mut Definitions<'t>,
}

impl Writer<'_, '_, '_> {
    fn path_item(&self, operations: Vec<(SmolStr, Value)>, path_parameters: &[&str]) -> Value {
        let mut parameters: Vec<Value> =
            path_parameters.iter().map(|name| self.parameter("path", name, "string")).collect();
        parameters.push(self.parameter("query", "pretty", "string"));
        let mut item: Object = operations.into_iter().collect();
        item.insert("parameters", parameters);
        item.into()
    }

    fn operations(&mut self, verbs: &[&str], place: Place<'_>) -> Vec<(SmolStr, Value)> {
        let shapes = verbs.iter().filter_map(|verb| shape(verb));
        shapes.map(|shape| (shape.method.into(), self.operation(&shape, place))).collect()
    }

    fn operation(&mut self, shape: &Shape, place: Place<'_>) -> Value {
        let resource = self.resource;
        let own_kind = resource.group_version_kind();
        let (kind, body, stream) = match place {
            Place::Subresource(own) => (&own.kind, own.type_name.clone(), own.type_name.is_none()),
            _ => (&own_kind, Some(resource.type_name.clone()), false),
        };
        let answer = match shape.action {
            "list" => Some(resource.list_type_name()),
            "delete" | "deletecollection" if !stream => Some(STATUS.into()),
            // The log is text, whatever its kind says.
            _ if matches!(place, Place::Subresource(own) if own.name == "log") => None,
            _ => body.clone(),
        };
        let request = match shape.action {
            _ if stream => None,
            "post" | "put" => body,
            "patch" => Some(PATCH.into()),
            "delete" | "deletecollection" => Some(DELETE_OPTIONS.into()),
            _ => None,
        };
        let mut operation = Object::new();
        operation.insert("operationId", operation_id(resource, shape, place));
        operation.insert("tags", vec![tag(&resource.group_version).into()]);
        operation.insert("x-kubernetes-action", if stream { "connect" } else { shape.action });
        operation.insert("x-kubernetes-group-version-kind", kind_value(kind));

        let parameters = if stream { &[] } else { shape.parameters };
        let mut parameters: Vec<Value> =
            parameters.iter().map(|(name, own_type)| self.parameter("query", name, own_type)).collect();
        if let Some(request) = request {
            self.request_add(&request, shape.action, &mut operation, &mut parameters);
        } else if self.definitions.dialect == Dialect::V2 {
            operation.insert("consumes", json!(["*/*"]));
        }
        if !parameters.is_empty() {
            operation.insert("parameters", parameters);
        }
        let codes = if stream { OK } else { shape.codes };
        let responses = self.responses(codes, answer.as_deref(), &mut operation);
        operation.insert("responses", responses.into_iter().collect::<Object>());
        operation.into()
    }

    fn request_add(
        &mut self,
        type_name: &str,
        action: &str,
        operation: &mut Object,
        parameters: &mut Vec<Value>,
    ) {
        let schema = self.definitions.reference(type_name);
        let required = matches!(action, "post" | "put" | "patch");
        let media_types = match (action, &self.resource.schema) {
            ("patch", PublishedSchema::Builtin) => &[
                "application/apply-patch+yaml",
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
            ][..],
            ("patch", _) => &[
                "application/apply-patch+yaml",
                "application/json-patch+json",
                "application/merge-patch+json",
            ],
            _ => &["*/*"],
        };
        match self.definitions.dialect {
            Dialect::V2 => {
                let mut body = json!({"in": "body", "name": "body", "schema": schema});
                if required {
                    body.set_at(&["required"], true);
                }
                parameters.insert(0, body);
                operation
                    .insert("consumes", media_types.iter().map(|own| Value::from(*own)).collect::<Vec<_>>());
            }
            Dialect::V3 => {
                let content = content(media_types, schema.into());
                let mut body = json!({"content": content});
                if required {
                    body.set_at(&["required"], true);
                }
                operation.insert("requestBody", body);
            }
        }
    }

    fn responses(
        &mut self,
        codes: &[(&str, &str)],
        answer: Option<&str>,
        operation: &mut Object,
    ) -> Vec<(SmolStr, Value)> {
        let media_types = match (answer, &self.resource.schema) {
            (None, _) => &["*/*"][..],
            (_, PublishedSchema::Builtin) => {
                &["application/json", "application/vnd.kubernetes.protobuf", "application/yaml"]
            }
            _ => &["application/json", "application/yaml"],
        };
        let schema = match answer {
            Some(type_name) => Value::Object(self.definitions.reference(type_name)),
            None => json!({"type": "string"}),
        };
        if self.definitions.dialect == Dialect::V2 {
            operation.insert("produces", media_types.iter().map(|own| Value::from(*own)).collect::<Vec<_>>());
            operation.insert("schemes", json!(["https"]));
        }
        let mut responses: Vec<(SmolStr, Value)> = Vec::with_capacity(codes.len() + 1);
        for (code, description) in codes {
            let response = match self.definitions.dialect {
                Dialect::V2 => json!({"description": (*description), "schema": (schema.clone())}),
                Dialect::V3 => {
                    json!({"description": (*description), "content": (content(media_types, schema.clone()))})
                }
            };
            responses.push(((*code).into(), response));
        }
        responses.push(("401".into(), json!({"description": "Unauthorized"})));
        responses
    }

    fn parameter(&self, place: &str, name: &str, own_type: &str) -> Value {
        let mut parameter = match self.definitions.dialect {
            Dialect::V2 => json!({"in": place, "name": name, "type": own_type, "uniqueItems": true}),
            Dialect::V3 => {
                json!({"in": place, "name": name, "schema": {"type": own_type, "uniqueItems": true}})
            }
        };
        if place == "path" {
            parameter.set_at(&["required"], true);
        }
        parameter
    }
}

fn content(media_types: &[&str], schema: Value) -> Object {
    media_types.iter().map(|own| (SmolStr::new(own), json!({"schema": (schema.clone())}))).collect()
}

/// `listAppsV1NamespacedDeployment`: verb, group, version, scope, kind and subresource; unique in a document.
fn operation_id(resource: &PublishedResource, shape: &Shape, place: Place<'_>) -> SmolStr {
    let group: String = group_words(&resource.group_version).map(title).collect();
    let version = title(&resource.group_version.version);
    let namespaced = if resource.namespaced { "Namespaced" } else { "" };
    let own = &resource.kind;
    let (word, middle, subresource) = match place {
        Place::AllNamespaces => {
            return format_smolstr!("{}{group}{version}{own}ForAllNamespaces", shape.word);
        }
        Place::Collection if shape.action == "deletecollection" => (shape.word, "Collection".into(), None),
        Place::Collection | Place::Item => (shape.word, String::new(), None),
        Place::Subresource(sub) if sub.type_name.is_none() => {
            ("connect", title(shape.method), Some(&sub.name))
        }
        Place::Subresource(sub) => (shape.word, String::new(), Some(&sub.name)),
    };
    // `pods/ephemeralcontainers` and friends: the subresource is one lower-case word.
    let subresource = subresource.map(|name| title(name)).unwrap_or_default();
    format_smolstr!("{word}{group}{version}{middle}{namespaced}{own}{subresource}")
}

/// `apps_v1`, `rbacAuthorization_v1`.
fn tag(group_version: &GroupVersion) -> String {
    let mut words = group_words(group_version);
    let first = words.next().unwrap_or_default().to_owned();
    let rest: String = words.map(title).collect();
    format!("{first}{rest}_{}", group_version.version)
}

fn group_words(group_version: &GroupVersion) -> impl Iterator<Item = &str> {
    let group = match group_version.group.as_str() {
        "" => "core",
        group => group.strip_suffix(".k8s.io").unwrap_or(group),
    };
    group.split(['.', '-'])
}

fn title(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
