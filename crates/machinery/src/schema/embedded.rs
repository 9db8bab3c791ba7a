//! Whole objects inside objects: `x-kubernetes-embedded-resource`.
//!
//! They carry a type and metadata of their own, which must be as well-formed as at the root. What the metadata says
//! (names, labels) is checked where metadata is checked, not here.

use polder_model::{FieldError, FieldPath, GroupVersion, Value, names};

use super::validate::{ERRORS_MAX, shown};
use super::{NodeRef, coerce};

/// Checks apiVersion and kind of the resources embedded below the root.
pub fn validate_embedded(
    node: NodeRef<'_>,
    value: &Value,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    each_child(node, value, path, &mut |child, value, path| {
        validate_embedded_at(child, value, path, errors);
    });
}

/// The same, counting the place itself.
pub(crate) fn validate_embedded_at(
    node: NodeRef<'_>,
    value: &Value,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    if errors.len() >= ERRORS_MAX {
        return;
    }
    if node.get().embedded_resource && value.as_object().is_some() {
        type_problems(value, path, errors);
    }
    validate_embedded(node, value, path, errors);
}

/// Checks the JSON types of apiVersion, kind and metadata at the root and in embedded resources, and normalizes
/// metadata as a built-in type.
pub fn coerce_embedded(node: NodeRef<'_>, value: &mut Value, path: &FieldPath<'_>) -> Result<(), FieldError> {
    match value {
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                if node.get().embedded_resource {
                    coerce_member(node, key, value, path)?;
                }
                if let Some(member) = node.property(key) {
                    coerce_embedded(member, value, &path.member(key))?;
                } else if let Some(id) = node.get().additional {
                    coerce_embedded(node.at(id), value, &path.key(key))?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(item_node) = node.items() {
                for (index, item) in items.iter_mut().enumerate() {
                    coerce_embedded(item_node, item, &path.index(index))?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_member(
    node: NodeRef<'_>,
    key: &str,
    value: &mut Value,
    path: &FieldPath<'_>,
) -> Result<(), FieldError> {
    match key {
        "apiVersion" | "kind" if value.as_str().is_none() => {
            Err(FieldError::invalid(path.member(key), shown(value), "must be a string"))
        }
        "metadata" => match node.property("metadata") {
            Some(metadata) => coerce::coerce(metadata, value)
                .map_err(|error| FieldError::invalid(path.member(key), shown(value), error.to_string())),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn each_child(
    node: NodeRef<'_>,
    value: &Value,
    path: &FieldPath<'_>,
    visit: &mut dyn FnMut(NodeRef<'_>, &Value, &FieldPath<'_>),
) {
    match value {
        Value::Object(object) => {
            for (key, value) in object.iter() {
                if let Some(member) = node.property(key) {
                    visit(member, value, &path.member(key));
                } else if let Some(id) = node.get().additional {
                    visit(node.at(id), value, &path.key(key));
                }
            }
        }
        Value::Array(items) => {
            if let Some(item_node) = node.items() {
                for (index, item) in items.iter().enumerate() {
                    visit(item_node, item, &path.index(index));
                }
            }
        }
        _ => {}
    }
}

fn type_problems(value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut check = |key: &str, problem: fn(&str) -> Option<String>| {
        let at = path.member(key);
        match value.get(key) {
            None => errors.push(FieldError::required(at, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(at, "", "must not be empty"));
            }
            Some(Value::String(text)) => {
                if let Some(problem) = problem(text) {
                    errors.push(FieldError::invalid(at, shown(&Value::from(text)), problem));
                }
            }
            Some(other) => errors.push(FieldError::invalid(at, shown(other), "must be a string")),
        }
    };
    check("apiVersion", |text| match GroupVersion::parse(text) {
        None => Some(format!("unexpected GroupVersion string: {text}")),
        Some(_) => None,
    });
    check("kind", |text| {
        let problem = names::dns_1035_label_problem(&text.to_lowercase())?;
        Some(format!("may have mixed case, but should otherwise match: {problem}"))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::structural::tests::compiled;

    const SCHEMA: &str = r#"{"type":"object","properties":{"l":{"type":"array","items":{"type":"object",
        "x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true}}}}"#;

    #[track_caller]
    fn check(input: &str, expected: &[&str]) {
        let schema = compiled(SCHEMA);
        let value = Value::parse(input.as_bytes()).unwrap();
        let mut errors = Vec::new();
        validate_embedded(schema.node(), &value, &FieldPath::ROOT, &mut errors);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn embedded_types() {
        check(r#"{"l":[{"apiVersion":"apps/v1","kind":"Foo"}]}"#, &[]);
        check(r#"{"l":[{}]}"#, &["l[0].apiVersion: Required value", "l[0].kind: Required value"]);
        check(
            r#"{"l":[{"apiVersion":"a/b/c","kind":""}]}"#,
            &[
                r#"l[0].apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
                r#"l[0].kind: Invalid value: "": must not be empty"#,
            ],
        );
    }

    #[test]
    fn metadata_is_coerced() {
        let schema = compiled(SCHEMA);
        let mut value = Value::parse(
            br#"{"metadata":{"labels":null,"creationTimestamp":null},"l":[{"metadata":{"name":"x","labels":{"a":null}}}]}"#,
        )
        .unwrap();
        coerce_embedded(schema.node(), &mut value, &FieldPath::ROOT).unwrap();
        assert_eq!(value.to_string(), r#"{"l":[{"metadata":{"labels":{"a":""},"name":"x"}}],"metadata":{}}"#);
        let mut value = Value::parse(br#"{"l":[{"metadata":{"labels":{"a":1}}}]}"#).unwrap();
        let error = coerce_embedded(schema.node(), &mut value, &FieldPath::ROOT).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"l[0].metadata: Invalid value: {"labels":{"a":1}}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"#
        );
    }
}
