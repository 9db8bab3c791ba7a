//! Definitions of types: built-in ones from their nodes, custom ones by way of [`super::custom`].
//!
//! Whatever a definition refers to is queued, so that a document holds what it needs and no more.

use std::collections::{BTreeSet, HashMap, HashSet};

use polder_model::{GroupVersionKind, Object, SmolStr, Value, format_smolstr, json};

use super::{Dialect, PublishedResource, PublishedSchema, custom};
use crate::schema::table::{BuiltinTypes, TypeKind};
use crate::schema::{Kind, ListType, Node, NodeRef, descriptions};

pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(super) const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

pub(super) struct Definitions<'a> {
    pub(super) types: &'a BuiltinTypes,
    pub(super) dialect: Dialect,
    done: HashMap<SmolStr, Value>,
    named: HashSet<SmolStr>,
    /// Built-in types that were referred to and are not written yet.
    open: Vec<SmolStr>,
}

impl<'a> Definitions<'a> {
    pub(super) fn new(types: &'a BuiltinTypes, dialect: Dialect) -> Definitions<'a> {
        Definitions { types, dialect, done: HashMap::new(), named: HashSet::new(), open: Vec::new() }
    }

    /// Defines the object and list type of a custom resource; built-in ones are defined when referred to.
    pub(super) fn resource_add(&mut self, resource: &PublishedResource) {
        let written = match &resource.schema {
            PublishedSchema::Builtin => return,
            PublishedSchema::Compiled(schema) => Some(custom::written(schema.node())),
            PublishedSchema::Written(value) => Some((**value).clone()),
            PublishedSchema::Unknown => None,
        };
        let own = custom::object_definition(written, &resource.group_version_kind(), self);
        self.done.insert(resource.type_name.clone(), own);
        let list = custom::list_definition(resource, self);
        self.done.insert(resource.list_type_name(), list);
    }

    /// A pointer to a definition.
    pub(super) fn reference(&mut self, type_name: &str) -> Object {
        let prefix = match self.dialect {
            Dialect::V2 => "#/definitions/",
            Dialect::V3 => "#/components/schemas/",
        };
        if !self.done.contains_key(type_name) && self.named.insert(type_name.into()) {
            self.open.push(type_name.into());
        }
        let mut object = Object::new();
        object.insert("$ref", format_smolstr!("{prefix}{type_name}"));
        object
    }

    /// A pointer with words of its own: version 3 ignores what stands beside `$ref`, so it goes around it.
    pub(super) fn reference_with(&mut self, type_name: &str, attributes: Object) -> Object {
        let reference = self.reference(type_name);
        if attributes.is_empty() {
            return reference;
        }
        let mut object = attributes;
        match self.dialect {
            Dialect::V2 => object.extend_with(reference),
            Dialect::V3 => {
                object.insert("allOf", vec![Value::Object(reference)]);
            }
        }
        object
    }

    /// All definitions, those referred to included.
    pub(super) fn finish(mut self) -> Object {
        while let Some(name) = self.open.pop() {
            if self.done.contains_key(&name) {
                continue;
            }
            if let Some(definition) = self.builtin(&name) {
                self.done.insert(name, definition.into());
            }
        }
        self.done.into_iter().collect()
    }

    fn builtin(&mut self, type_name: &str) -> Option<Object> {
        let types = self.types;
        let schema = types.schema(type_name)?;
        let node = types.arena.node(schema.root);
        let mut object = match node.get().kind {
            Kind::Object => self.structure(type_name, node),
            kind => scalar(kind, node.get(), self.dialect),
        };
        if let Some(text) = descriptions::builtin().type_text(type_name, types.kind(type_name)) {
            object.insert("description", text.as_ref());
        }
        let kinds = kinds(types, type_name);
        if !kinds.is_empty() {
            object.insert("x-kubernetes-group-version-kind", kinds);
        }
        Some(object)
    }

    fn structure(&mut self, type_name: &str, node: NodeRef<'_>) -> Object {
        let own = node.get();
        let kind = self.types.kind(type_name);
        let mut properties = Vec::with_capacity(own.properties.len());
        for (name, id) in &own.properties {
            let description = descriptions::builtin().field_text(type_name, kind, name);
            properties.push((name.clone(), self.place(node.at(*id), description).into()));
        }
        let mut object = Object::new();
        object.insert("type", "object");
        if !properties.is_empty() {
            object.insert("properties", properties.into_iter().collect::<Object>());
        }
        if !own.required.is_empty() {
            object.insert("required", strings(&own.required));
        }
        if own.map_atomic {
            object.insert("x-kubernetes-map-type", "atomic");
        }
        object
    }

    /// The schema of a place in a built-in type.
    fn place(&mut self, node: NodeRef<'_>, description: Option<&str>) -> Object {
        let own = node.get();
        let mut object = Object::new();
        if let Some(description) = description {
            object.insert("description", description);
        }
        attributes_add(own, self.dialect, &mut object);
        let types = self.types;
        if let Some(name) = types.name_of(node.id()) {
            let atomic = types.schema(name).is_some_and(|schema| schema.node().get().map_atomic);
            if own.map_atomic != atomic {
                object.insert("x-kubernetes-map-type", if own.map_atomic { "atomic" } else { "granular" });
            }
            return self.reference_with(name, object);
        }
        if own.map_atomic {
            object.insert("x-kubernetes-map-type", "atomic");
        }
        object.extend_with(scalar(own.kind, own, self.dialect));
        if let Some(items) = node.items() {
            object.insert("items", self.place(items, None));
        }
        if let Some(additional) = own.additional {
            object.insert("additionalProperties", self.place(node.at(additional), None));
        }
        object
    }
}

/// Type and format; the shapes of lists and maps are added by the caller.
fn scalar(kind: Kind, own: &Node, dialect: Dialect) -> Object {
    let (name, format) = match kind {
        Kind::Any if own.preserve_unknown => ("object", None),
        Kind::Any => ("", None),
        Kind::Object => ("object", None),
        Kind::Array => ("array", None),
        Kind::String => ("string", own.format.as_deref()),
        Kind::Integer => ("integer", own.format.as_deref()),
        Kind::Number => ("number", own.format.as_deref()),
        Kind::Boolean => ("boolean", None),
        Kind::Bytes => ("string", Some("byte")),
        Kind::Time | Kind::MicroTime => ("string", Some("date-time")),
        Kind::Quantity | Kind::IntOrString if dialect == Dialect::V2 => {
            ("string", (kind == Kind::IntOrString).then_some("int-or-string"))
        }
        Kind::Quantity => ("", None),
        Kind::IntOrString => ("", Some("int-or-string")),
    };
    let mut object = Object::new();
    if !name.is_empty() {
        object.insert("type", name);
    }
    if let Some(format) = format {
        object.insert("format", format);
    }
    match kind {
        Kind::Quantity if dialect == Dialect::V3 => {
            object.insert("oneOf", json!([{"type": "string"}, {"type": "number"}]));
        }
        Kind::IntOrString if dialect == Dialect::V3 => {
            object.insert("oneOf", json!([{"type": "integer"}, {"type": "string"}]));
        }
        _ => {}
    }
    if !own.allowed.is_empty() {
        object.insert("enum", own.allowed.clone());
    }
    object
}

/// What a place says beyond its type. Version 2 has never had defaults.
pub(super) fn attributes_add(own: &Node, dialect: Dialect, object: &mut Object) {
    if let (Some(default), Dialect::V3) = (&own.default, dialect) {
        object.insert("default", default.clone());
    }
    match own.list_type {
        ListType::Atomic => {}
        ListType::Set => {
            object.insert("x-kubernetes-list-type", "set");
        }
        ListType::Map => {
            object.insert("x-kubernetes-list-type", "map");
            object.insert("x-kubernetes-list-map-keys", strings(&own.list_map_keys));
        }
    }
    let flags =
        [(own.patch.merge, "merge"), (own.patch.retain_keys, "retainKeys"), (own.patch.replace, "replace")];
    let strategies: Vec<&str> = flags.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect();
    if !strategies.is_empty() {
        object.insert("x-kubernetes-patch-strategy", strategies.join(","));
    }
    if let Some(key) = &own.patch_merge_key {
        object.insert("x-kubernetes-patch-merge-key", key);
    }
}

/// The kinds a built-in type is registered as, sorted.
fn kinds(types: &BuiltinTypes, type_name: &str) -> Vec<Value> {
    match types.kind(type_name) {
        None | Some(TypeKind::None) => Vec::new(),
        Some(TypeKind::One(kind)) => vec![kind_value(kind)],
        Some(TypeKind::Every) => {
            let kind = type_name.rsplit('.').next().unwrap_or_default();
            let group_versions: BTreeSet<_> = types.resources.iter().map(|own| own.group_version()).collect();
            group_versions.iter().map(|own| kind_value(&own.kind(kind))).collect()
        }
    }
}

pub(super) fn kind_value(kind: &GroupVersionKind) -> Value {
    json!({"group": (&kind.group), "version": (&kind.version), "kind": (&kind.kind)})
}

pub(super) fn strings(texts: &[SmolStr]) -> Vec<Value> {
    texts.iter().map(Value::from).collect()
}

/// Merging sorted objects.
pub(super) trait Extend {
    fn extend_with(&mut self, other: Object);
}

impl Extend for Object {
    fn extend_with(&mut self, other: Object) {
        for (key, value) in other {
            self.insert(key, value);
        }
    }
}
