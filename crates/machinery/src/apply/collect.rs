//! From a value to the set of its fields.
//!
//! Two sets are of interest. [`applied`] has what an applier says: leaves, entries of maps and elements of lists, but
//! not the structs around them. [`everything`] has those too: what appears or vanishes as a whole.

use std::collections::BTreeMap;

use polder_model::{Object, SmolStr, Value};

use super::path::write_field;
use super::place::{Items, Place, Shape};
use super::set::{FieldSet, member_with, place};

/// The fields that an applier of this object owns.
pub(super) fn applied(root: Place<'_>, object: &Value) -> FieldSet {
    FieldSet::from_tree(applied_below(root, object).1)
}

/// All places below a value that appears or vanishes as a whole; the value's own place goes without saying.
pub(super) fn everything(here: Place<'_>, value: &Value) -> Object {
    let with_itself = |here, value: &Value| Value::Object(member_with(everything(here, value)));
    match (here.shape(value), value) {
        (Shape::Map(here), Value::Object(object)) => object
            .iter()
            .map(|(name, value)| (write_field(name), with_itself(here.member(name), value)))
            .collect(),
        (Shape::List(items), Value::Array(elements)) => {
            each_once(items, elements, |value| with_itself(items.element, value))
        }
        _ => Object::new(),
    }
}

/// Whether the place is a field itself, and what is below it.
fn applied_below(here: Place<'_>, value: &Value) -> (bool, Object) {
    match (here.shape(value), value) {
        (Shape::Leaf(_), _) => (true, Object::new()),
        (Shape::Map(here), Value::Object(object)) => {
            let members = object.iter().filter_map(|(name, value)| {
                let named = here.named(name);
                let member = named.or_else(|| here.unnamed()).unwrap_or(Place::Deduced);
                let (is_member, below) = applied_below(member, value);
                let is_empty = value.is_null() || value.as_object().is_some_and(Object::is_empty);
                Some((write_field(name), place(is_member || is_empty || named.is_none(), below)?))
            });
            (false, members.collect())
        }
        (Shape::List(items), Value::Array(elements)) => {
            let element = |value: &Value| Value::Object(member_with(applied_below(items.element, value).1));
            (false, each_once(items, elements, element))
        }
        _ => (false, Object::new()),
    }
}

/// The elements by their steps. One that stands twice is owned as one; what has no identity is left out.
fn each_once(items: Items<'_>, elements: &[Value], node: impl Fn(&Value) -> Value) -> Object {
    let mut seen: BTreeMap<SmolStr, Option<&Value>> = BTreeMap::new();
    for element in elements {
        if let Ok(step) = items.step(element) {
            seen.entry(step).and_modify(|twice| *twice = None).or_insert(Some(element));
        }
    }
    let nodes = seen
        .into_iter()
        .map(|(step, element)| (step, element.map_or_else(|| Value::Object(Object::new()), &node)));
    nodes.collect()
}
