//! Dropping what the schema does not know, and saying where it stood.
//!
//! One walk over the value; every lookup is a binary search. Reports use the notation of strict decoding
//! (`spec.containers[0].bar`); their number and length are bounded. Nothing is ever added or reordered.

use polder_model::field::bounded;
use polder_model::{FieldPath, Object, Value};

use super::{Kind, NodeRef};

/// More unknown members than this are dropped silently.
const UNKNOWN_MAX: usize = 64;

/// What a whole object has whatever its schema says.
const META_MEMBERS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops members that the schema does not know and reports their paths.
pub fn prune(node: NodeRef<'_>, value: &mut Value, unknown: &mut Vec<String>) {
    prune_below(node, value, FieldPath::ROOT, unknown);
}

fn keeps_unknown(node: NodeRef<'_>) -> bool {
    let node = node.get();
    node.preserve_unknown || (node.kind == Kind::Any && !node.opaque)
}

fn prune_below(node: NodeRef<'_>, value: &mut Value, path: FieldPath<'_>, unknown: &mut Vec<String>) {
    if keeps_unknown(node) {
        prune_known(node, value, path, unknown);
    } else {
        prune_at(node, value, path, unknown);
    }
}

fn prune_at(node: NodeRef<'_>, value: &mut Value, path: FieldPath<'_>, unknown: &mut Vec<String>) {
    if node.get().opaque {
        return empty(value, path, unknown);
    }
    // A value of the wrong type is pruned all the same, as if nothing were known about what is inside.
    match value {
        Value::Object(object) => prune_members(node, object, path, unknown),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                match node.items() {
                    Some(item_node) => prune_below(item_node, item, path.index(index), unknown),
                    None => empty(item, path.index(index), unknown),
                }
            }
        }
        _ => {}
    }
}

fn prune_members(node: NodeRef<'_>, object: &mut Object, path: FieldPath<'_>, unknown: &mut Vec<String>) {
    let is_resource = node.get().embedded_resource;
    object.retain(|key, value| {
        if let Some(member) = node.member(key) {
            prune_below(member, value, path.member(key), unknown);
            true
        } else if is_resource && META_MEMBERS.contains(&key.as_str()) {
            true
        } else {
            report(path.member(key), unknown);
            false
        }
    });
}

/// Below a node that preserves unknown members, only what it names itself is pruned. The elements of a list there
/// inherit the preservation.
fn prune_known(node: NodeRef<'_>, value: &mut Value, path: FieldPath<'_>, unknown: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            if node.get().properties.is_empty() && node.get().additional.is_none() {
                return;
            }
            for (key, value) in object.iter_mut() {
                if let Some(member) = node.member(key) {
                    prune_below(member, value, path.member(key), unknown);
                }
            }
        }
        Value::Array(items) => {
            if let Some(item_node) = node.items() {
                for (index, item) in items.iter_mut().enumerate() {
                    prune_known(item_node, item, path.index(index), unknown);
                }
            }
        }
        _ => {}
    }
}

/// Without any schema every object loses its members; lists and scalars stay.
fn empty(value: &mut Value, path: FieldPath<'_>, unknown: &mut Vec<String>) {
    match value {
        Value::Object(object) => object.retain(|key, _| {
            report(path.member(key), unknown);
            false
        }),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                empty(item, path.index(index), unknown);
            }
        }
        _ => {}
    }
}

fn report(path: FieldPath<'_>, unknown: &mut Vec<String>) {
    if unknown.len() < UNKNOWN_MAX {
        unknown.push(bounded(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::structural::tests::compiled;

    #[track_caller]
    fn check(schema: &str, input: &str, pruned: &str, paths: &[&str]) {
        let schema = compiled(schema);
        let mut value = Value::parse(input.as_bytes()).unwrap();
        let mut unknown = Vec::new();
        prune(schema.node(), &mut value, &mut unknown);
        assert_eq!(value.to_string(), pruned);
        assert_eq!(unknown, paths);
    }

    #[test]
    fn unknown_members_go() {
        check(
            r#"{"type":"object","properties":{"spec":{"type":"object","properties":{"l":{"type":"array","items":
                {"type":"object","properties":{"a":{"type":"string"}}}}}}}}"#,
            r#"{"apiVersion":"v1","kind":"K","metadata":{"name":"n","x":1},"spec":{"l":[{"a":"1","b":2}],"m":{}},"z":0}"#,
            r#"{"apiVersion":"v1","kind":"K","metadata":{"name":"n"},"spec":{"l":[{"a":"1"}]}}"#,
            &["metadata.x", "spec.l[0].b", "spec.m", "z"],
        );
    }

    #[test]
    fn preserved_members_stay_and_named_ones_inside_are_pruned() {
        check(
            r#"{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true,
                "properties":{"known":{"type":"object","properties":{"a":{"type":"integer"}}},
                "list":{"type":"array","items":{"type":"object"}}}}}}"#,
            r#"{"spec":{"any":{"x":[{"y":1}]},"known":{"a":1,"b":2},"list":[{"gone":1}]}}"#,
            r#"{"spec":{"any":{"x":[{"y":1}]},"known":{"a":1},"list":[{}]}}"#,
            &["spec.known.b", "spec.list[0].gone"],
        );
        // A preserving list hands its preservation to its elements.
        check(
            r#"{"type":"object","properties":{"l":{"type":"array","x-kubernetes-preserve-unknown-fields":true,
                "items":{"type":"object"}}}}"#,
            r#"{"l":[{"kept":1}]}"#,
            r#"{"l":[{"kept":1}]}"#,
            &[],
        );
    }

    #[test]
    fn maps_keep_their_keys() {
        check(
            r#"{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"object",
                "properties":{"a":{"type":"string"}}}},"t":{"type":"object","additionalProperties":true}}}"#,
            r#"{"m":{"k.x":{"a":"1","b":"2"}},"t":{"s":1,"o":{"x":1},"l":[{"y":1}]}}"#,
            r#"{"m":{"k.x":{"a":"1"}},"t":{"l":[{}],"o":{},"s":1}}"#,
            &["m.k.x.b", "t.l[0].y", "t.o.x"],
        );
    }

    #[test]
    fn embedded_resources_keep_their_type() {
        check(
            r#"{"type":"object","properties":{"e":{"type":"object","x-kubernetes-embedded-resource":true,
                "properties":{"spec":{"type":"object"}}}}}"#,
            r#"{"e":{"apiVersion":"v1","kind":"K","metadata":{"name":"n","bad":1},"spec":{"x":1},"other":1}}"#,
            r#"{"e":{"apiVersion":"v1","kind":"K","metadata":{"name":"n"},"spec":{}}}"#,
            &["e.metadata.bad", "e.other", "e.spec.x"],
        );
    }

    #[test]
    fn reports_are_bounded() {
        let schema = compiled(r#"{"type":"object"}"#);
        let mut value = Value::Object((0..1000).map(|n| (format!("k{n}").into(), Value::Null)).collect());
        let mut unknown = Vec::new();
        prune(schema.node(), &mut value, &mut unknown);
        assert_eq!((value.to_string().as_str(), unknown.len()), ("{}", UNKNOWN_MAX));

        let schema = compiled(
            r#"{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"object",
                "additionalProperties":{"type":"object"}}}}}"#,
        );
        let key = "k".repeat(1 << 16);
        let inner = Value::Object((0..1000).map(|n| (format!("u{n}").into(), Value::Null)).collect());
        let map = |value: Value| Value::Object([(key.as_str().into(), value)].into_iter().collect());
        let mut value = Value::Object([("m".into(), map(map(inner)))].into_iter().collect());
        let mut unknown = Vec::new();
        prune(schema.node(), &mut value, &mut unknown);
        assert_eq!(unknown.len(), UNKNOWN_MAX);
        assert!(unknown.iter().map(String::len).sum::<usize>() < 100_000);
    }
}
