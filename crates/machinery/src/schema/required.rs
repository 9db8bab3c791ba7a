//! Two checks that built-in kinds share: members that must be there, and values out of a fixed set.
//!
//! Which members those are is data of the schema. Errors are bounded.

use polder_model::{FieldError, FieldPath, Value};

use super::NodeRef;
use super::validate::{ERRORS_MAX, shown};

/// Reports members that are required and missing; an empty string counts as missing.
pub fn check_required(node: NodeRef<'_>, value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    walk(node, value, path, errors, &|node, value, path, errors| {
        let Some(object) = value.as_object() else { return };
        for name in &node.get().required {
            let is_missing = match object.get(name) {
                None | Some(Value::Null) => true,
                Some(Value::String(text)) => text.is_empty(),
                Some(_) => false,
            };
            if is_missing && errors.len() < ERRORS_MAX {
                errors.push(FieldError::required(path.member(name), ""));
            }
        }
    });
}

/// Reports strings outside their enumeration; an empty one counts as not set.
pub fn check_allowed(node: NodeRef<'_>, value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    walk(node, value, path, errors, &|node, value, path, errors| {
        let allowed = &node.get().allowed;
        let is_set = value.as_str().is_none_or(|text| !text.is_empty()) && !value.is_null();
        if !allowed.is_empty() && is_set && !allowed.contains(value) {
            let texts = allowed.iter().map(|allowed| match allowed {
                Value::String(text) => text.to_string(),
                other => other.to_string(),
            });
            errors.push(FieldError::not_supported(path, shown(value), texts));
        }
    });
}

type Check<'c> = &'c dyn Fn(NodeRef<'_>, &Value, &FieldPath<'_>, &mut Vec<FieldError>);

fn walk(
    node: NodeRef<'_>,
    value: &Value,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
    check: Check<'_>,
) {
    if errors.len() >= ERRORS_MAX {
        return;
    }
    check(node, value, path, errors);
    match value {
        Value::Object(object) => {
            for (key, value) in object.iter() {
                if let Some(member) = node.property(key) {
                    walk(member, value, &path.member(key), errors, check);
                } else if let Some(id) = node.get().additional {
                    walk(node.at(id), value, &path.key(key), errors, check);
                }
            }
        }
        Value::Array(items) => {
            if let Some(item_node) = node.items() {
                for (index, item) in items.iter().enumerate() {
                    walk(item_node, item, &path.index(index), errors, check);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::structural::tests::compiled;

    #[test]
    fn missing_and_unsupported() {
        let schema = compiled(
            r#"{"type":"object","properties":{"l":{"type":"array","items":{"type":"object","required":["a","b"],
                "properties":{"a":{"type":"string"},"b":{"type":"string","enum":["X","Y"]}}}}}}"#,
        );
        let value = Value::parse(br#"{"l":[{"a":"","b":"Z"},{"a":"1"},{"a":"1","b":""}]}"#).unwrap();
        let mut errors = Vec::new();
        check_required(schema.node(), &value, &FieldPath::ROOT, &mut errors);
        check_allowed(schema.node(), &value, &FieldPath::ROOT, &mut errors);
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "l[0].a: Required value",
                "l[1].b: Required value",
                "l[2].b: Required value",
                r#"l[0].b: Unsupported value: "Z": supported values: "X", "Y""#,
            ]
        );
    }
}
