//! Turns parsed lines into an arena whose nodes know each other.
//!
//! Types may be recursive, so every type gets its node first and its fields second. A field whose place has
//! attributes of its own (a default, a merge key) cannot share the node of its type: it gets a copy of that node,
//! made last, when all types are complete. Copies share the nodes of their members.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use polder_model::SmolStr;

use super::lines::{Attributes, FieldLine, Lines, PlaceDefault, TypeLines, broken, comma_split};
use super::{BuiltinResource, BuiltinType, BuiltinTypes, Subresource, TableError, TypeKind};
use crate::apply::blank::blank;
use crate::protobuf::Presence;
use crate::schema::{Arena, Kind, Node, NodeId};

/// Builds types and resources.
pub(super) fn build(lines: &Lines<'_>) -> Result<BuiltinTypes, TableError> {
    let mut builder = Builder::default();
    for own in &lines.types {
        builder.type_add(own)?;
    }
    for own in &lines.types {
        builder.fields_add(own)?;
    }
    builder.copies_fill();
    for default in &lines.place_defaults {
        builder.place_default_set(default)?;
    }

    let layout = super::messages::build(lines)?;
    let mut types = HashMap::new();
    let mut names = HashMap::new();
    for own in &lines.types {
        let mut blank_object = None;
        if let TypeKind::One(kind) = &own.kind {
            names.insert(kind.clone(), SmolStr::new(own.name));
            blank_object = layout.by_type.get(own.name).map(|message| blank(&layout, *message));
        }
        let root = builder.roots[own.name];
        let own_type = BuiltinType { root, kind: own.kind.clone(), blank: blank_object };
        types.insert(SmolStr::new(own.name), own_type);
    }
    let mut resources = Vec::with_capacity(lines.resources.len());
    for own in &lines.resources {
        let kind = own.group_version.kind(own.kind);
        let type_name = names.get(&kind).ok_or_else(|| broken(own.line, "the kind has no type"))?;
        resources.push(BuiltinResource {
            group: own.group_version.group.clone(),
            version: own.group_version.version.clone(),
            plural: own.plural.into(),
            singular: own.singular.into(),
            kind: own.kind.into(),
            namespaced: own.namespaced,
            verbs: comma_split(own.verbs),
            short_names: comma_split(own.short_names),
            categories: comma_split(own.categories),
            subresources: own
                .subresources
                .iter()
                .map(|(name, verbs, kind)| Subresource {
                    name: SmolStr::new(name),
                    kind: kind.clone(),
                    verbs: comma_split(verbs),
                    type_name: names.get(kind).cloned(),
                })
                .collect(),
            type_name: type_name.clone(),
        });
    }
    let node_types = builder.node_types;
    for (id, name) in &node_types {
        builder.arena.nodes[id.0 as usize].type_name = Some(name.clone());
    }
    builder.arena.index();
    Ok(BuiltinTypes { arena: Arc::new(builder.arena), resources, types, names, node_types, layout })
}

#[derive(Default)]
struct Builder<'a> {
    arena: Arena,
    roots: HashMap<&'a str, NodeId>,
    /// The type a scalar keyword stands for: `time` is `io.k8s.apimachinery.pkg.apis.meta.v1.Time`.
    scalars: HashMap<&'a str, &'a str>,
    node_types: HashMap<NodeId, SmolStr>,
    /// Scalars without attributes, one node for all places.
    plain: HashMap<(&'a str, Option<SmolStr>, bool), NodeId>,
    copies: Vec<Copy<'a>>,
    /// Types of which there are copies.
    copied: HashSet<NodeId>,
}

/// A node to be made from the node of a type.
struct Copy<'a> {
    node: NodeId,
    original: NodeId,
    attributes: &'a Attributes,
}

impl<'a> Builder<'a> {
    fn type_add(&mut self, own: &TypeLines<'a>) -> Result<(), TableError> {
        let kind = match own.scalar {
            None => Kind::Object,
            Some("quantity") => Kind::Quantity,
            Some("int-or-string") => Kind::IntOrString,
            Some("time") => Kind::Time,
            Some("micro-time") => Kind::MicroTime,
            Some("any" | "raw") => Kind::Any,
            Some(other) => return Err(broken(own.line, format!("unknown scalar {other}"))),
        };
        let raw = own.scalar == Some("raw");
        let node = Node { kind, preserve_unknown: raw, map_atomic: own.atomic, ..Node::default() };
        let root = self.arena.add(node);
        if self.roots.insert(own.name, root).is_some() {
            return Err(broken(own.line, "a type stands twice"));
        }
        self.node_types.insert(root, own.name.into());
        if let Some(keyword) = own.scalar {
            self.scalars.insert(keyword, own.name);
        }
        Ok(())
    }

    fn fields_add(&mut self, own: &'a TypeLines<'a>) -> Result<(), TableError> {
        let package = own.name.rsplit_once('.').map_or("", |(package, _)| package);
        let mut properties = Vec::with_capacity(own.fields.len());
        let mut required = Vec::new();
        for field in &own.fields {
            let node = self.place_add(field, field.expression, package, Some(&field.attributes))?;
            properties.push((SmolStr::new(field.name), node));
            if field.required {
                required.push(SmolStr::new(field.name));
            }
        }
        if !properties.is_sorted_by(|(left, _), (right, _)| left < right) {
            return Err(broken(own.line, "fields are not sorted"));
        }
        let root = self.roots[own.name];
        let node = &mut self.arena.nodes[root.0 as usize];
        node.properties = properties;
        node.required = required;
        Ok(())
    }

    /// Makes or finds the node of a type expression. Elements of lists and maps have no attributes.
    fn place_add(
        &mut self,
        field: &'a FieldLine<'a>,
        expression: &'a str,
        package: &str,
        attributes: Option<&'a Attributes>,
    ) -> Result<NodeId, TableError> {
        let presence = field.placing.as_ref().map(|placing| placing.presence);
        let omits_zero = attributes.is_some() && presence == Some(Presence::OmitEmpty);
        let attributes = attributes.filter(|attributes| **attributes != Attributes::default());
        let mut node = Node::default();
        if let Some(element) = inside(expression, '[', ']') {
            node.kind = Kind::Array;
            node.items = Some(self.place_add(field, element, package, None)?);
        } else if let Some(element) = inside(expression, '{', '}') {
            node.kind = Kind::Object;
            node.additional = Some(self.place_add(field, element, package, None)?);
        } else if let Some(kind) = scalar_kind(expression) {
            let plain = (expression, field.format.clone(), omits_zero);
            let shareable = attributes.is_none() && field.allowed.is_empty();
            if let Some(shared) = self.plain.get(&plain).filter(|_| shareable) {
                return Ok(*shared);
            }
            node.kind = kind;
            node.omits_zero = omits_zero;
            node.format.clone_from(&field.format);
            node.allowed.clone_from(&field.allowed);
            if shareable {
                let shared = self.arena.add(node);
                self.plain.insert(plain, shared);
                return Ok(shared);
            }
        } else {
            let original = self.type_find(expression, package).ok_or_else(|| {
                broken(field.line, format!("no type {expression} in {package} or elsewhere"))
            })?;
            let Some(attributes) = attributes else { return Ok(original) };
            let copy = self.arena.add(Node::default());
            self.node_types.insert(copy, self.node_types[&original].clone());
            self.copies.push(Copy { node: copy, original, attributes });
            return Ok(copy);
        }
        if let Some(attributes) = attributes {
            attributes_set(&mut node, attributes);
        }
        Ok(self.arena.add(node))
    }

    fn type_find(&self, expression: &str, package: &str) -> Option<NodeId> {
        let name = self.scalars.get(expression).copied().unwrap_or(expression);
        self.roots.get(name).or_else(|| self.roots.get(format!("{package}.{name}").as_str())).copied()
    }

    fn copies_fill(&mut self) {
        for copy in std::mem::take(&mut self.copies) {
            let mut node = self.arena.nodes[copy.original.0 as usize].clone();
            attributes_set(&mut node, copy.attributes);
            self.arena.nodes[copy.node.0 as usize] = node;
            self.copied.insert(copy.original);
        }
    }

    /// Gives the place at the end of a path a node of its own, and all places on the way, so that other places
    /// of the same types stay as they are.
    fn place_default_set(&mut self, default: &PlaceDefault<'_>) -> Result<(), TableError> {
        let mut here = self.roots[default.type_name];
        if self.copied.contains(&here) {
            return Err(broken(default.line, "defaults: copies of this type would not have it"));
        }
        for step in default.path.split('.') {
            let properties = &self.arena.nodes[here.0 as usize].properties;
            let index = properties
                .binary_search_by(|(name, _)| name.as_str().cmp(step))
                .map_err(|_| broken(default.line, format!("defaults: no field {step}")))?;
            let shared = properties[index].1;
            let own = self.arena.add(self.arena.nodes[shared.0 as usize].clone());
            if let Some(name) = self.node_types.get(&shared) {
                self.node_types.insert(own, name.clone());
            }
            self.arena.nodes[here.0 as usize].properties[index].1 = own;
            here = own;
        }
        self.arena.nodes[here.0 as usize].default = Some(default.value.clone());
        Ok(())
    }
}

fn inside(expression: &str, open: char, close: char) -> Option<&str> {
    expression.strip_prefix(open)?.strip_suffix(close)
}

fn scalar_kind(expression: &str) -> Option<Kind> {
    Some(match expression {
        "string" => Kind::String,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        "boolean" => Kind::Boolean,
        "bytes" => Kind::Bytes,
        _ => return None,
    })
}

fn attributes_set(node: &mut Node, attributes: &Attributes) {
    node.list_type = attributes.list_type;
    node.list_map_keys.clone_from(&attributes.list_map_keys);
    node.map_atomic = attributes.atomic.unwrap_or(node.map_atomic);
    node.patch = attributes.patch;
    node.patch_merge_key.clone_from(&attributes.patch_merge_key);
    node.default.clone_from(&attributes.default);
}
