//! Schemas as rules see them: what has no type is not there.

use std::collections::HashMap;
use std::sync::Arc;

use polder_cel::{Field, ListKind, Shape};
use polder_model::{Value, format_smolstr};

use super::super::{Arena, Kind, ListType, Node, NodeId, Schema};

/// Makes shapes of one schema's nodes, each once.
pub(super) struct Shapes<'a> {
    arena: &'a Arena,
    made: HashMap<u32, Option<Arc<Shape>>>,
    /// All that objects have, also what rules of a definition do not see.
    whole: bool,
}

/// A whole object of a schema. What is made of itself is anything, where it comes again.
pub fn object_shape(schema: &Schema) -> Option<Arc<Shape>> {
    Shapes { arena: &schema.arena, made: HashMap::new(), whole: true }.of(schema.root)
}

impl<'a> Shapes<'a> {
    pub(super) fn new(arena: &'a Arena) -> Shapes<'a> {
        Shapes { arena, made: HashMap::new(), whole: false }
    }

    /// The shape of a place; `None` when rules cannot see it. Schemas are trees of bounded depth.
    pub(super) fn of(&mut self, id: NodeId) -> Option<Arc<Shape>> {
        if let Some(made) = self.made.get(&id.0) {
            return made.clone();
        }
        if self.whole {
            self.made.insert(id.0, Some(Arc::new(Shape::dynamic())));
        }
        let node = self.arena.node(id).get();
        let made = self.make(id, node).map(|shape| Arc::new(shape.nullable(node.nullable)));
        self.made.insert(id.0, made.clone());
        made
    }

    fn make(&mut self, id: NodeId, node: &Node) -> Option<Shape> {
        let checks = node.checks.as_deref();
        let length_max = checks.and_then(|checks| checks.max_length);
        Some(match node.kind {
            Kind::IntOrString => Shape::int_or_string(length_max),
            Kind::Boolean => Shape::boolean(),
            Kind::Integer => Shape::int(),
            Kind::Number => Shape::double(),
            Kind::String => match node.format.as_deref() {
                Some("byte") => Shape::bytes(length_max),
                Some("duration") => Shape::duration(),
                Some("date") => Shape::date(),
                Some("date-time") => Shape::timestamp(),
                _ if length_max.is_none() && !node.allowed.is_empty() => {
                    Shape::string_of(node.allowed.iter().filter_map(Value::as_str))
                }
                _ => Shape::string(length_max),
            },
            Kind::Array => {
                let items = self.of(node.items?)?;
                let list = match node.list_type {
                    ListType::Atomic => ListKind::Atomic,
                    ListType::Set => ListKind::Set,
                    ListType::Map => ListKind::Map(node.list_map_keys.clone()),
                };
                Shape::list(items, list, checks.and_then(|checks| checks.max_items))
            }
            Kind::Object => {
                let values = node.additional.filter(|id| !self.arena.node(*id).get().opaque);
                match values {
                    Some(values) => {
                        Shape::map(self.of(values)?, checks.and_then(|checks| checks.max_properties))
                    }
                    None => self.object(id, node),
                }
            }
            Kind::Quantity if self.whole => Shape::string(None),
            Kind::Time | Kind::MicroTime if self.whole => Shape::timestamp(),
            Kind::Bytes if self.whole => Shape::bytes(None),
            Kind::Any if self.whole => Shape::dynamic(),
            _ => return None,
        })
    }

    fn object(&mut self, id: NodeId, node: &Node) -> Shape {
        let mut fields = Vec::new();
        let mut bytes_min = 0;
        for (name, property) in &node.properties {
            let shape = match name.as_str() {
                "metadata" if node.embedded_resource && !self.whole => Some(Arc::new(metadata(id))),
                _ => self.of(*property),
            };
            let Some(shape) = shape else { continue };
            if node.required.contains(name) && self.arena.node(*property).get().default.is_none() {
                bytes_min += Shape::required_bytes(name, &shape);
            }
            fields.extend(Field::new(name.clone(), shape));
        }
        Shape::object(format_smolstr!("selfType{}", id.0), fields, bytes_min)
    }
}

/// Of a whole object's metadata rules see the name.
fn metadata(id: NodeId) -> Shape {
    let text = || Arc::new(Shape::string(None));
    let fields = ["name", "generateName"].into_iter().filter_map(|name| Field::new(name, text()));
    Shape::object(format_smolstr!("selfType{}.metadata", id.0), fields.collect(), 0)
}
