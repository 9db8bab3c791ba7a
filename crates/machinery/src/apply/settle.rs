//! Bringing sets in line with a schema.
//!
//! A custom resource's schema may change under the sets that were made with it: where something is owned as one now, an
//! owner of parts becomes an owner of the whole.

use polder_model::{Object, SmolStr, Value};

use super::path::FIELD;
use super::place::{LeafKind, Place, Shape};
use super::set::{FieldSet, below, children, is_member, member_with, place};

/// The set as the schema has it now; `None` when it is as it should be, which it nearly always is.
pub(super) fn settled(root: Place<'_>, set: &FieldSet) -> Option<FieldSet> {
    settled_below(root, set.tree()).map(FieldSet::from_tree)
}

fn settled_below(here: Place<'_>, tree: &Object) -> Option<Object> {
    let mut changed: Vec<(SmolStr, Value)> = Vec::new();
    for (step, node) in children(tree) {
        let (Some(there), node) = (leads_to(here, step), below(node)) else { continue };
        if children(node).next().is_none() {
            continue;
        }
        if is_owned_as_one(there) {
            changed.push((step.clone(), Value::Object(Object::new())));
        } else if let Some(new) = settled_below(there, node) {
            changed.extend(place(is_member(node), new).map(|node| (step.clone(), node)));
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
pub(super) fn with_structs(root: Place<'_>, set: FieldSet) -> FieldSet {
    let mut tree = set.into_tree();
    add_structs(Some(root), &mut tree);
    FieldSet::from_tree(tree)
}

fn add_structs(here: Option<Place<'_>>, tree: &mut Object) {
    for (step, node) in tree.iter_mut() {
        let Value::Object(node) = node else { continue };
        // What is a field without others below it needs no mark.
        if node.is_empty() {
            continue;
        }
        add_structs(here.and_then(|here| leads_to(here, step)), node);
        let is_struct = match (step.strip_prefix(FIELD), here) {
            (Some(name), Some(here)) => here.named(name).is_some(),
            _ => false,
        };
        if is_struct && !is_member(node) {
            *node = member_with(std::mem::take(node));
        }
    }
}

/// Where a step leads. Only its kind counts, so it is not taken apart.
fn leads_to<'a>(here: Place<'a>, step: &str) -> Option<Place<'a>> {
    if let Some(name) = step.strip_prefix(FIELD) {
        return here.named(name).or_else(|| here.unnamed());
    }
    match here.shape(&Value::Array(Vec::new())) {
        Shape::List(items) if !step.starts_with("i:") => Some(items.element),
        _ => None,
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
