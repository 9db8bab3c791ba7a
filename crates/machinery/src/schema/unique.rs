//! Uniqueness in lists: elements of a set, keys of a list map.
//!
//! Elements are compared by their canonical JSON in a hash table, so the time is linear in the size of the list.

use std::collections::HashMap;

use polder_model::{FieldError, FieldPath, Object, Value};

use super::validate::{ERRORS_MAX, shown};
use super::{ListType, Node, NodeRef};

/// Reports elements that stand twice in sets and list maps, anywhere in the value.
pub fn validate_lists(node: NodeRef<'_>, value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if errors.len() >= ERRORS_MAX {
        return;
    }
    match value {
        Value::Object(object) => {
            for (key, value) in object.iter() {
                if let Some(member) = node.property(key) {
                    validate_lists(member, value, &path.member(key), errors);
                } else if let Some(additional) = node.get().additional {
                    validate_lists(node.at(additional), value, &path.key(key), errors);
                }
            }
        }
        Value::Array(items) => {
            match node.get().list_type {
                ListType::Atomic => {}
                ListType::Set => report_repeated(items, path, Clone::clone, errors),
                ListType::Map => validate_list_map(node.get(), items, path, errors),
            }
            if let Some(item_node) = node.items() {
                for (index, item) in items.iter().enumerate() {
                    validate_lists(item_node, item, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

/// Whether any element stands twice.
pub fn has_repeated(items: &[Value]) -> bool {
    let mut seen = std::collections::HashSet::with_capacity(items.len());
    items.iter().any(|item| !seen.insert(item.to_vec()))
}

fn validate_list_map(node: &Node, items: &[Value], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let misfit = items.iter().position(|item| !item.is_null() && item.as_object().is_none());
    if let Some(index) = misfit {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(path.index(index), shown(&items[index]), detail));
        return;
    }
    let key_of = |item: &Value| {
        let members = node.list_map_keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        Value::Object(members.collect::<Object>())
    };
    report_repeated(items, path, key_of, errors);
}

/// Reports the second appearance of each identity; further ones of the same identity are silent.
fn report_repeated(
    items: &[Value],
    path: &FieldPath<'_>,
    identity: impl Fn(&Value) -> Value,
    errors: &mut Vec<FieldError>,
) {
    if items.len() < 2 {
        return;
    }
    let mut seen: HashMap<Vec<u8>, bool> = HashMap::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let identity = identity(item);
        match seen.entry(identity.to_vec()) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(false);
            }
            std::collections::hash_map::Entry::Occupied(mut entry) => {
                if !entry.insert(true) && errors.len() < ERRORS_MAX {
                    errors.push(FieldError::duplicate(path.index(index), shown(&identity)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::structural::tests::compiled;

    #[track_caller]
    fn check(list: &str, input: &str, expected: &[&str]) {
        let schema = compiled(&format!(r#"{{"type":"object","properties":{{"l":{list}}}}}"#));
        let value = Value::parse(format!(r#"{{"l":{input}}}"#).as_bytes()).unwrap();
        let mut errors = Vec::new();
        validate_lists(schema.node(), &value, &FieldPath::ROOT, &mut errors);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn sets() {
        let set = r#"{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}"#;
        check(set, r#"["a","b"]"#, &[]);
        check(set, r#"["a","b","a","a"]"#, &[r#"l[2]: Duplicate value: "a""#]);
    }

    #[test]
    fn list_maps() {
        let map = r#"{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["p","q"],
            "items":{"type":"object","required":["p"],"properties":{"p":{"type":"integer"},"q":{"type":"string",
            "default":"T"},"v":{"type":"string"}}}}"#;
        check(map, r#"[{"p":1,"v":"x"},{"p":1,"q":"U"}]"#, &[]);
        check(map, r#"[{"p":1,"v":"x"},{"p":1,"v":"y"}]"#, &[r#"l[1]: Duplicate value: {"p":1}"#]);
        check(map, r#"[1]"#, &["l[0]: Invalid value: 1: must be an object for an array of list-type map"]);
    }

    #[test]
    fn large_lists_are_quick() {
        let items: Vec<Value> = (0..100_000).map(Value::Int).collect();
        assert!(!has_repeated(&items));
    }
}
