//! Config maps.

use polder_model::{FieldError, FieldPath, Value};

use super::{cells, checks};
use crate::behavior::{Behavior, Column, Print};

/// Also for secrets.
pub(super) const BYTES_MAX: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";

pub(super) const CONFIGMAPS: Behavior = Behavior {
    resource: "configmaps",
    columns: &[Column::NAME, Column::text("Data"), Column::AGE],
    cells,
    validate,
    ..Behavior::PLAIN
};

fn cells(map: &Value, print: &Print) -> Vec<Value> {
    let entries = cells::len(map.get("data")) + cells::len(map.get("binaryData"));
    vec![cells::name(map), entries.into(), cells::age(map, print)]
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if let Some(old) = old {
        validate_frozen(new, old, &["data", "binaryData"], errors);
    }
    let mut bytes = 0;
    for key in ["data", "binaryData"] {
        let path = FieldPath::root(key);
        for (name, value) in new.get(key).and_then(Value::as_object).into_iter().flat_map(|all| all.iter()) {
            checks::config_key(name, &path.key(name), errors);
            if key == "data" && new.at(&["binaryData", name]).is_some() {
                let text = "duplicate of key present in binaryData";
                errors.push(FieldError::invalid(path.key(name), name, text));
            }
            let text = value.as_str().unwrap_or_default();
            bytes += if key == "data" { text.len() } else { decoded_len(text) };
        }
    }
    if bytes > BYTES_MAX {
        // The whole object has a path of its own in upstream's texts.
        errors.push(FieldError::too_long("[]", BYTES_MAX));
    }
}

/// How many bytes base64 text stands for.
pub(super) fn decoded_len(base64: &str) -> usize {
    let text = base64.trim_end_matches('=');
    text.len() * 3 / 4
}

/// Once `immutable` is set, it and the contents stay.
pub(super) fn validate_frozen(new: &Value, old: &Value, contents: &[&str], errors: &mut Vec<FieldError>) {
    let frozen = |object: &Value| object.get("immutable").and_then(Value::as_bool) == Some(true);
    if !frozen(old) {
        return;
    }
    if !frozen(new) {
        errors.push(FieldError::forbidden("immutable", FROZEN));
    }
    for key in contents {
        if !checks::same(new.get(key), old.get(key)) {
            errors.push(FieldError::forbidden(key, FROZEN));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{prints, refuses};
    use super::*;

    #[test]
    fn cells() {
        prints(
            &CONFIGMAPS,
            r#"{"metadata":{"name":"c","creationTimestamp":"2025-12-31T23:59:58Z"},"data":{"a":"","b":""},"binaryData":{"c":""}}"#,
            "c|3|2s",
        );
    }

    #[test]
    fn checks() {
        refuses(&CONFIGMAPS, r#"{"data":{"a":"1"}}"#, Some(r#"{"data":{"a":"2"}}"#), &[]);
        refuses(
            &CONFIGMAPS,
            r#"{"data":{"a/b":"","..x":"","d":""},"binaryData":{"d":""}}"#,
            None,
            &[
                r#"data[..x]: Invalid value: "..x": must not start with '..'"#,
                r#"data[a/b]: Invalid value: "a/b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"#,
                r#"data[d]: Invalid value: "d": duplicate of key present in binaryData"#,
            ],
        );
        refuses(
            &CONFIGMAPS,
            r#"{"data":{"a":"1"}}"#,
            Some(r#"{"immutable":true,"binaryData":{"a":""}}"#),
            &[
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set",
                "binaryData: Forbidden: field is immutable when `immutable` is set",
            ],
        );
        let large = format!(r#"{{"data":{{"a":"{}"}}}}"#, "x".repeat(BYTES_MAX + 1));
        refuses(&CONFIGMAPS, &large, None, &["[]: Too long: may not be more than 1048576 bytes"]);
        assert_eq!(
            [decoded_len("YQ=="), decoded_len("YWI="), decoded_len("YWJj"), decoded_len("")],
            [1, 2, 3, 0]
        );
    }
}
