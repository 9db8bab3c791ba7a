//! Definitions of custom resources: the author's schema, completed with what every object has.
//!
//! Version 2 cannot say everything a structural schema can. What it cannot say is dropped, and places where kubectl
//! would then reject valid objects become untyped, as upstream does it.

use polder_model::{GroupVersionKind, Object, Value, json};

use super::definitions::{
    Definitions, Extend as _, LIST_META, OBJECT_META, attributes_add, kind_value, strings,
};
use super::{Dialect, PublishedResource};
use crate::schema::{Checks, Kind, NodeRef, descriptions};

/// Members of a schema that hold further schemas by name, as a list, and directly.
const SCHEMAS_BY_NAME: [&str; 1] = ["properties"];
const SCHEMA_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const SCHEMAS: [&str; 3] = ["items", "additionalProperties", "not"];

/// The definition of the objects of a custom resource; without a schema, of any object.
pub(super) fn object_definition(
    written: Option<Value>,
    kind: &GroupVersionKind,
    definitions: &mut Definitions<'_>,
) -> Value {
    let v2 = definitions.dialect == Dialect::V2;
    let mut object = match written {
        // Naming only some members would make kubectl reject all others.
        Some(Value::Object(root)) if !(v2 && is_true(&root, "x-kubernetes-preserve-unknown-fields")) => {
            let mut root = Value::Object(root);
            complete(&mut root, definitions);
            let mut root = match root {
                Value::Object(root) => root,
                _ => Object::new(),
            };
            object_members_add(&mut root, definitions);
            root
        }
        _ => [("type".into(), "object".into())].into_iter().collect(),
    };
    object.insert("x-kubernetes-group-version-kind", vec![kind_value(kind)]);
    object.into()
}

/// The definition of its list.
pub(super) fn list_definition(resource: &PublishedResource, definitions: &mut Definitions<'_>) -> Value {
    let items = definitions.reference(&resource.type_name);
    let description: Object =
        [("description".into(), descriptions::LIST_METADATA.into())].into_iter().collect();
    let metadata = definitions.reference_with(LIST_META, description);
    let kind = resource.group_version.kind(resource.list_kind.clone());
    json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": (descriptions::API_VERSION)},
            "kind": {"type": "string", "description": (descriptions::KIND)},
            "metadata": metadata,
            "items": {"type": "array", "items": items, "description": (descriptions::LIST_ITEMS)}
        },
        "x-kubernetes-group-version-kind": [(kind_value(&kind))]
    })
}

fn object_members_add(schema: &mut Object, definitions: &mut Definitions<'_>) {
    let description: Object = [("description".into(), descriptions::METADATA.into())].into_iter().collect();
    let metadata = definitions.reference_with(OBJECT_META, description);
    if !matches!(schema.get("properties"), Some(Value::Object(_))) {
        schema.insert("properties", Object::new());
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties
            .insert("apiVersion", json!({"type": "string", "description": (descriptions::API_VERSION)}));
        properties.insert("kind", json!({"type": "string", "description": (descriptions::KIND)}));
        properties.insert("metadata", metadata);
    }
}

/// Brings a written schema into the form of the dialect, all schemas inside it included.
fn complete(value: &mut Value, definitions: &mut Definitions<'_>) {
    let Value::Object(schema) = value else { return };
    for key in ["example", "externalDocs", "id", "$schema"] {
        schema.remove(key);
    }
    match definitions.dialect {
        Dialect::V2 => v2_reduce(schema),
        Dialect::V3 => int_or_string_unfold(schema),
    }
    for key in SCHEMAS_BY_NAME {
        if let Some(Value::Object(named)) = schema.get_mut(key) {
            named.iter_mut().for_each(|(_, inner)| complete(inner, definitions));
        }
    }
    for key in SCHEMA_LISTS {
        if let Some(Value::Array(list)) = schema.get_mut(key) {
            list.iter_mut().for_each(|inner| complete(inner, definitions));
        }
    }
    for key in SCHEMAS {
        if let Some(inner) = schema.get_mut(key) {
            complete(inner, definitions);
        }
    }
    let open = is_true(schema, "x-kubernetes-preserve-unknown-fields");
    if is_true(schema, "x-kubernetes-embedded-resource") && !(open && definitions.dialect == Dialect::V2) {
        object_members_add(schema, definitions);
        let mut required = match schema.remove("required") {
            Some(Value::Array(required)) => required,
            _ => Vec::new(),
        };
        for name in ["kind", "apiVersion"] {
            if required.iter().all(|own| own.as_str() != Some(name)) {
                required.push(name.into());
            }
        }
        schema.insert("required", required);
    }
}

/// Drops what version 2 does not know, and unties what kubectl would misread.
fn v2_reduce(schema: &mut Object) {
    for key in ["allOf", "anyOf", "oneOf", "not", "default"] {
        schema.remove(key);
    }
    let open = is_true(schema, "x-kubernetes-preserve-unknown-fields");
    // Members that may be null become untyped below; untyped members cannot be required.
    let nullable: Vec<_> = match schema.get("properties") {
        Some(Value::Object(properties)) => properties
            .iter()
            .filter(|(_, inner)| inner.as_object().is_some_and(|inner| is_true(inner, "nullable")))
            .map(|(name, _)| name.clone())
            .collect(),
        _ => Vec::new(),
    };
    if !nullable.is_empty()
        && let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut)
    {
        required.retain(|own| own.as_str().is_none_or(|own| nullable.iter().all(|name| name != own)));
        if required.is_empty() {
            schema.remove("required");
        }
    }
    if is_true(schema, "nullable") {
        schema.remove("type");
    }
    if is_true(schema, "nullable") || open {
        schema.remove("items");
        schema.remove("properties");
    }
    schema.remove("nullable");
    let own_type = schema.str("type").unwrap_or_default();
    if own_type == "array" && !schema.contains_key("items") || own_type == "object" && open {
        schema.remove("type");
    }
}

/// States what `x-kubernetes-int-or-string` means, unless the author already did.
fn int_or_string_unfold(schema: &mut Object) {
    if !is_true(schema, "x-kubernetes-int-or-string") {
        return;
    }
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    let opens_with_either = |value: Option<&Value>| {
        value.and_then(Value::as_array).is_some_and(|list| {
            let types: Vec<_> = list.iter().map(|inner| inner.str_at(&["type"])).collect();
            types == [Some("integer"), Some("string")]
        })
    };
    let all_of = schema.get("allOf").and_then(Value::as_array).unwrap_or_default();
    let stated = opens_with_either(schema.get("anyOf"))
        || all_of.first().is_some_and(|first| opens_with_either(first.get("anyOf")));
    if stated {
        return;
    }
    if schema.contains_key("anyOf") {
        let mut all_of = all_of.to_vec();
        all_of.insert(0, json!({"anyOf": either}));
        schema.insert("allOf", all_of);
    } else {
        schema.insert("anyOf", either);
    }
}

/// A compiled schema as its author might have written it. Custom schemas are trees, so this ends.
pub(super) fn written(node: NodeRef<'_>) -> Value {
    let own = node.get();
    let mut object = Object::new();
    let type_name = match own.kind {
        Kind::Any | Kind::IntOrString => None,
        Kind::Object => Some("object"),
        Kind::Array => Some("array"),
        Kind::Integer => Some("integer"),
        Kind::Number => Some("number"),
        Kind::Boolean => Some("boolean"),
        Kind::String | Kind::Quantity | Kind::Time | Kind::MicroTime | Kind::Bytes => Some("string"),
    };
    if let Some(type_name) = type_name {
        object.insert("type", type_name);
    }
    if own.kind == Kind::IntOrString {
        object.insert("x-kubernetes-int-or-string", true);
    }
    if !own.properties.is_empty() {
        let properties: Object =
            own.properties.iter().map(|(name, id)| (name.clone(), written(node.at(*id)))).collect();
        object.insert("properties", properties);
    }
    if let Some(additional) = own.additional {
        object.insert("additionalProperties", written(node.at(additional)));
    }
    if let Some(items) = node.items() {
        object.insert("items", written(items));
    }
    if !own.required.is_empty() {
        object.insert("required", strings(&own.required));
    }
    if !own.allowed.is_empty() {
        object.insert("enum", own.allowed.clone());
    }
    if let Some(format) = &own.format {
        object.insert("format", format);
    }
    for (set, key) in [
        (own.nullable, "nullable"),
        (own.preserve_unknown, "x-kubernetes-preserve-unknown-fields"),
        (own.embedded_resource, "x-kubernetes-embedded-resource"),
    ] {
        if set {
            object.insert(key, true);
        }
    }
    if own.map_atomic {
        object.insert("x-kubernetes-map-type", "atomic");
    }
    attributes_add(own, Dialect::V3, &mut object);
    if let Some(checks) = &own.checks {
        object.extend_with(checks_written(checks, node));
    }
    object.into()
}

fn checks_written(checks: &Checks, node: NodeRef<'_>) -> Object {
    let mut object = Object::new();
    for (key, bound) in
        [("minimum", checks.minimum), ("maximum", checks.maximum), ("multipleOf", checks.multiple_of)]
    {
        if let Some(bound) = bound {
            object.insert(key, Value::Float(bound));
        }
    }
    for (key, bound) in [
        ("minLength", checks.min_length),
        ("maxLength", checks.max_length),
        ("minItems", checks.min_items),
        ("maxItems", checks.max_items),
        ("minProperties", checks.min_properties),
        ("maxProperties", checks.max_properties),
    ] {
        if let Some(bound) = bound {
            object.insert(key, i64::try_from(bound).unwrap_or(i64::MAX));
        }
    }
    for (key, set) in [
        ("exclusiveMinimum", checks.exclusive_minimum),
        ("exclusiveMaximum", checks.exclusive_maximum),
        ("uniqueItems", checks.unique_items),
    ] {
        if set {
            object.insert(key, true);
        }
    }
    if let Some((pattern, _)) = &checks.pattern {
        object.insert("pattern", pattern);
    }
    for (key, list) in [("allOf", &checks.all_of), ("anyOf", &checks.any_of), ("oneOf", &checks.one_of)] {
        if !list.is_empty() {
            object.insert(key, list.iter().map(|id| written(node.at(*id))).collect::<Vec<_>>());
        }
    }
    if let Some(not) = checks.not {
        object.insert("not", written(node.at(not)));
    }
    if !checks.rules.is_empty() {
        object.insert("x-kubernetes-validations", checks.rules.clone());
    }
    object
}

fn is_true(schema: &Object, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}
