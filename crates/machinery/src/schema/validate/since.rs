//! Updates: what they leave as it was is not held against them, even if it became wrong since, because the schema did.

use std::collections::HashMap;

use polder_model::{FieldError, FieldPath, Value};

use super::super::{ListType, NodeRef, embedded, rules, unique};
use super::Validator;

/// Checks a custom resource that is there already: what an update leaves as it was is not held against it, even if it
/// became wrong since, because the schema did.
pub fn validate_update(node: NodeRef<'_>, value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::ROOT;
    Validator::new(&path).validate_since(node, value, Some(Before { node, value: old }), errors);
    embedded::validate_embedded(node, value, &path, errors);
    validate_lists_since(node, value, old, errors);
    rules::validate_rules(node, value, Some(old), errors);
}

/// The same for an update of nothing but the status: the rest is not looked at.
pub fn validate_status(node: NodeRef<'_>, value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if let (Some(status), Some(new)) = (node.property("status"), value.get("status")) {
        let before = old.get("status").map(|old| Before { node: status, value: old });
        Validator::new(&FieldPath::root("status")).validate_since(status, new, before, errors);
    }
    validate_lists_since(node, value, old, errors);
    rules::validate_rules(node, value, Some(old), errors);
}

/// Lists whose elements were not unique before need not become so now.
fn validate_lists_since(node: NodeRef<'_>, value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::ROOT;
    let (mut found, mut known) = (Vec::new(), Vec::new());
    unique::validate_lists(node, value, &path, &mut found);
    if !found.is_empty() {
        unique::validate_lists(node, old, &path, &mut known);
    }
    if known.is_empty() {
        errors.append(&mut found);
    }
}

/// What stood at a place before an update, and the schema of that place: what is unchanged is excused.
#[derive(Clone, Copy)]
pub(super) struct Before<'a> {
    pub(super) node: NodeRef<'a>,
    pub(super) value: &'a Value,
}

impl<'a> Before<'a> {
    pub(super) fn member(self, key: &str) -> Option<Before<'a>> {
        Some(Before { node: self.node.member(key)?, value: self.value.get(key)? })
    }

    /// The elements by the members that identify them; only of lists that have such.
    pub(super) fn elements(self) -> HashMap<String, Before<'a>> {
        let (Some(node), Value::Array(items)) = (self.node.items(), self.value) else {
            return HashMap::new();
        };
        let items = items.iter().filter_map(|value| Some((self.key(value)?, Before { node, value })));
        items.collect()
    }

    pub(super) fn key(self, item: &Value) -> Option<String> {
        let own = self.node.get();
        let is_map = own.list_type == ListType::Map && matches!(item, Value::Object(_));
        is_map.then(|| {
            let members = own.list_map_keys.iter().map(|key| item.get(key).map(Value::to_string));
            members.map(|text| text.unwrap_or_default() + "\n").collect()
        })
    }
}
