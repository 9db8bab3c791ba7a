//! Defaults in a schema must be valid there, and must not bring members that would be pruned at once.

use polder_model::{FieldError, FieldPath, Value};

use super::super::validate::{ERRORS_MAX, Validator, shown};
use super::super::{NodeRef, embedded, prune};
use super::source::Source;

pub(super) fn check(
    source: Source<'_>,
    node: NodeRef<'_>,
    path: &FieldPath<'_>,
    problems: &mut Vec<FieldError>,
) {
    visit(source, node, path, &mut Validator::new(path), problems);
}

fn visit(
    source: Source<'_>,
    node: NodeRef<'_>,
    path: &FieldPath<'_>,
    validator: &mut Validator,
    problems: &mut Vec<FieldError>,
) {
    if problems.len() >= ERRORS_MAX {
        return;
    }
    if let Some(default) = source.get("default") {
        check_default(node, default, &path.member("default"), validator, problems);
    }
    if let (Some(items), Some(item_node)) = (source.schema("items"), node.items()) {
        visit(items, item_node, &path.member("items"), validator, problems);
    }
    let properties = path.member("properties");
    for (name, property) in source.properties() {
        if let Some(member) = node.property(name) {
            visit(property, member, &properties.key(name), validator, problems);
        }
    }
}

fn check_default(
    node: NodeRef<'_>,
    default: &Value,
    path: &FieldPath<'_>,
    validator: &mut Validator,
    problems: &mut Vec<FieldError>,
) {
    let mut pruned = default.clone();
    prune::prune(node, &mut pruned, &mut Vec::new());
    if pruned != *default {
        problems.push(FieldError::invalid(path, shown(default), "must not have unknown fields"));
    }
    if let Err(problem) = embedded::coerce_embedded(node, &mut pruned, path) {
        problems.push(problem);
        return;
    }
    let before = problems.len();
    embedded::validate_embedded_at(node, default, path, problems);
    if problems.len() == before {
        validator.rebase(path);
        validator.validate(node, default, problems);
    }
}
