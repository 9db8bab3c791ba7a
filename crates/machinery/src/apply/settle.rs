//! Bringing sets in line with a schema.
//!
//! A custom resource's schema may change under the sets that were made with it: where something is owned as one now, an
//! owner of parts becomes an owner of the whole.

use polder_model::{Object, SmolStr, Value};

use super::path::Step;
use super::place::{LeafKind, Place, Shape};
use super::set::{FieldSet, below, children, is_member, place};

/// The set as the schema has it now; `None` when it is as it should be, which it nearly always is.
pub(super) fn settled(root: Place<'_>, set: &FieldSet) -> Option<FieldSet> {
    settled_below(root, set.tree()).map(FieldSet::from_tree)
}

fn settled_below(here: Place<'_>, tree: &Object) -> Option<Object> {
    let mut changed: Vec<(SmolStr, Value)> = Vec::new();
    for (text, node) in children(tree) {
        let Ok(step) = Step::parse(text) else { continue };
        let (Some(there), node) = (leads_to(here, &step), below(node)) else { continue };
        if children(node).next().is_none() {
            continue;
        }
        if is_owned_as_one(there) {
            changed.push((text.clone(), Value::Object(Object::new())));
        } else if let Some(new) = settled_below(there, node) {
            changed.extend(place(is_member(node), new).map(|node| (text.clone(), node)));
        }
    }
    if changed.is_empty() {
        return None;
    }
    let rest = children(tree).map(|(step, node)| (step.clone(), node.clone()));
    // The last of equal steps counts.
    Some(rest.chain(changed).collect())
}

/// The set with all structs that hold something of it: to remove what is only there because of it.
pub(super) fn with_structs(root: Place<'_>, set: &FieldSet) -> FieldSet {
    FieldSet::from_tree(with_structs_below(Some(root), set.tree()))
}

fn with_structs_below(here: Option<Place<'_>>, tree: &Object) -> Object {
    children(tree)
        .filter_map(|(text, node)| {
            let node = below(node);
            let step = Step::parse(text).ok()?;
            let named = match (&step, here) {
                (Step::Field(name), Some(here)) => here.named(name).is_some(),
                _ => false,
            };
            let there = here.and_then(|here| leads_to(here, &step));
            Some((text.clone(), place(named || is_member(node), with_structs_below(there, node))?))
        })
        .collect()
}

fn leads_to<'a>(here: Place<'a>, step: &Step<'_>) -> Option<Place<'a>> {
    match step {
        Step::Field(name) => here.named(name).or_else(|| here.unnamed()),
        Step::Keys(_) | Step::Item(_) => match here.shape(&Value::Array(Vec::new())) {
            Shape::List(items) => Some(items.element),
            _ => None,
        },
        Step::Index(_) => None,
    }
}

/// Whether the schema says that ownership cannot be divided here. Types that are deduced say nothing.
fn is_owned_as_one(here: Place<'_>) -> bool {
    match here.shape(&Value::Object(Object::new())) {
        Shape::Leaf(LeafKind::List) => true,
        Shape::Leaf(LeafKind::Map) => !here.is_deduced(),
        _ => false,
    }
}
