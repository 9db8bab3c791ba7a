//! Merging without ownership: what an admission policy says an object should have is put over what it has.
//!
//! Nothing is removed and nobody owns what was set. What has to be given as a whole (atomic lists, maps and structs)
//! may not be given at all: whoever sets a part of it would lose the rest without noticing.

use polder_model::Value;

use super::check::{Problems, check};
use super::merge::merge;
use super::path::Step;
use super::place::{LeafKind, Place, Shape};
use crate::schema::NodeRef;

/// More places than this are not named.
const ATOMICS_MAX: usize = 16;

/// Why nothing was merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverlayError {
    #[error("failed to convert patch object to typed object: {0}")]
    Unfit(Problems),
    /// Null is no way to leave something out.
    #[error(
        "failed to convert patch object to typed object: {path}: expected {expected}, got &{{NULL_VALUE}}"
    )]
    Null { path: String, expected: &'static str },
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}", .0.join(", "))]
    Atomic(Vec<String>),
}

/// The object with what a policy puts over it.
pub fn overlay(schema: NodeRef<'_>, object: Value, patch: &Value) -> Result<Value, OverlayError> {
    let root = Place::root(schema);
    check(root, patch).map_err(OverlayError::Unfit)?;
    if let Some(null) = find_null(root, patch, &mut String::new()) {
        return Err(null);
    }
    let mut atomics = Vec::new();
    find_atomics(root, patch, &mut String::new(), &mut atomics);
    if !atomics.is_empty() {
        return Err(OverlayError::Atomic(atomics));
    }
    Ok(merge(root, object, patch))
}

fn find_null(here: Place<'_>, value: &Value, path: &mut String) -> Option<OverlayError> {
    let above = path.len();
    match value {
        Value::Null => {
            let expected = match here.shape(value) {
                Shape::Map(_) | Shape::Leaf(LeafKind::Map) => "map",
                Shape::List(_) | Shape::Leaf(LeafKind::List) => "list",
                Shape::Leaf(LeafKind::Number) => "numeric (int or float)",
                Shape::Leaf(LeafKind::Text) => "string",
                Shape::Leaf(LeafKind::Boolean) => "boolean",
                Shape::Leaf(LeafKind::AnyScalar) => "any scalar",
            };
            return Some(OverlayError::Null { path: path.clone(), expected });
        }
        Value::Object(object) => {
            for (name, member) in object.iter() {
                path.push_str(&Step::Field(name).to_string());
                let found = find_null(here.member(name), member, path);
                path.truncate(above);
                if found.is_some() {
                    return found;
                }
            }
        }
        Value::Array(elements) => {
            for (at, element) in elements.iter().enumerate() {
                path.push_str(&format!("[{at}]"));
                let found = find_null(here.element(), element, path);
                path.truncate(above);
                if found.is_some() {
                    return found;
                }
            }
        }
        _ => {}
    }
    None
}

/// Members that no schema names are not looked into, as upstream does not.
fn find_atomics(here: Place<'_>, value: &Value, path: &mut String, found: &mut Vec<String>) {
    let is_atomic = matches!(
        (here.shape(value), value),
        (Shape::Leaf(LeafKind::Map), Value::Object(_)) | (Shape::Leaf(LeafKind::List), Value::Array(_))
    );
    if is_atomic && found.len() < ATOMICS_MAX {
        found.push(path.clone());
    }
    let above = path.len();
    match value {
        Value::Object(object) => {
            for (name, member) in object.iter() {
                if let Some(place) = here.named(name) {
                    path.push_str(&Step::Field(name).to_string());
                    find_atomics(place, member, path, found);
                    path.truncate(above);
                }
            }
        }
        Value::Array(elements) => {
            for (at, element) in elements.iter().enumerate() {
                path.push_str(&format!("[{at}]"));
                find_atomics(here.element(), element, path, found);
                path.truncate(above);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::table::builtin;

    #[track_caller]
    fn check(kind: &str, object: &str, patch: &str, expected: &str) {
        let table = builtin();
        let resource = table.resources.iter().find(|resource| resource.kind == kind).unwrap();
        let schema = table.schema(&resource.type_name).unwrap();
        let parse = |text: &str| Value::parse(text.as_bytes()).unwrap();
        let found = overlay(schema.node(), parse(object), &parse(patch));
        let found = found.map_or_else(|error| error.to_string(), |value| value.to_string());
        assert_eq!(found, expected, "{patch}");
    }

    const PODS: &str =
        r#"{"spec":{"template":{"spec":{"containers":[{"image":"x","name":"a"},{"name":"b"}]}}}}"#;

    #[test]
    fn what_is_said_is_put_over_what_is_there() {
        check(
            "Deployment",
            PODS,
            r#"{"spec":{"replicas":3}}"#,
            &PODS.replace("\"spec\":{\"template", "\"spec\":{\"replicas\":3,\"template"),
        );
        check(
            "Deployment",
            PODS,
            r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","imagePullPolicy":"Always"},{"name":"c"}]}}}}"#,
            r#"{"spec":{"template":{"spec":{"containers":[{"image":"x","imagePullPolicy":"Always","name":"a"},{"name":"b"},{"name":"c"}]}}}}"#,
        );
        check(
            "ConfigMap",
            r#"{"metadata":{"labels":{"a":"b"}},"data":{"k":"v"}}"#,
            r#"{"metadata":{"labels":{"c":"d"}},"data":{"k":"w"}}"#,
            r#"{"data":{"k":"w"},"metadata":{"labels":{"a":"b","c":"d"}}}"#,
        );
    }

    #[test]
    fn what_has_no_parts_is_refused() {
        let atomic = |paths: &str| {
            format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {paths}")
        };
        check(
            "Deployment",
            PODS,
            r#"{"spec":{"selector":{"matchLabels":{"a":"b"}}}}"#,
            &atomic(".spec.selector"),
        );
        check(
            "Deployment",
            PODS,
            r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","args":["x"]}],"nodeSelector":{"a":"b"}}}}}"#,
            &atomic(".spec.template.spec.containers[0].args, .spec.template.spec.nodeSelector"),
        );
        check(
            "Deployment",
            PODS,
            r#"{"spec":{"template":{"spec":null}}}"#,
            "failed to convert patch object to typed object: .spec.template.spec: expected map, got &{NULL_VALUE}",
        );
        check(
            "Deployment",
            PODS,
            r#"{"spec":{"none":1}}"#,
            "failed to convert patch object to typed object: .spec.none: field not declared in schema",
        );
        check(
            "Deployment",
            PODS,
            r#"{"spec":{"replicas":"x"}}"#,
            "failed to convert patch object to typed object: .spec.replicas: expected numeric (int or float), got string",
        );
    }
}
