//! What our own kinds, planes and layers, have in common: columns, display names, schemas.

use polder_model::{FieldError, FieldPath, Value};

use super::cells;
use super::checks::{Errors, text};
use crate::behavior::{Column, Print};

pub(super) const GROUP: &str = "polder.dev";
const DISPLAY_NAME_LEN_MAX: usize = 256;

/// Columns of a kind; `link` is the one that is its own.
pub(super) const fn columns(link: &'static str) -> [Column; 7] {
    [
        Column::NAME,
        Column::text("Phase"),
        Column::integer("Objects"),
        Column::integer("Bytes"),
        Column::AGE,
        Column::text(link).wide(),
        Column::text("Display Name").wide(),
    ]
}

/// Cells of [`columns`]; `link` is where the kind's own cell comes from.
pub(super) fn cells(object: &Value, link: &[&str], print: &Print) -> Vec<Value> {
    vec![
        cells::name(object),
        cells::text(object, &["status", "phase"]),
        object.at(&["status", "objectCount"]).cloned().unwrap_or_default(),
        object.at(&["status", "storedBytes"]).cloned().unwrap_or_default(),
        cells::age(object, print),
        cells::text(object, link),
        cells::text(object, &["spec", "displayName"]),
    ]
}

pub(super) fn validate_display_name(spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if text(spec, "displayName").len() > DISPLAY_NAME_LEN_MAX {
        errors.push(FieldError::too_long(path.member("displayName"), DISPLAY_NAME_LEN_MAX));
    }
}

/// Reads a schema of ours; `CONDITIONS` stands for a list of conditions.
pub(super) fn parse_schema(text: &str) -> Value {
    const CONDITIONS: &str = r#"{"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        "description": "Aspects of its state, for kubectl wait and other programs.",
        "items": {"type": "object", "required": ["type", "status", "lastTransitionTime", "reason", "message"], "properties": {
            "type": {"type": "string", "description": "Which aspect this is about, such as Ready."},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "True, False or Unknown."},
            "lastTransitionTime": {"type": "string", "format": "date-time", "description": "When status last changed."},
            "reason": {"type": "string", "description": "Why it is so, as one CamelCase word."},
            "message": {"type": "string", "description": "Explanation for people; may be empty."},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0, "description": "The metadata.generation this was judged by."}}}}"#;
    let text = text.replace("CONDITIONS", CONDITIONS);
    Value::parse(text.as_bytes()).expect("our own schemas are JSON; a test parses each")
}

/// Every member that only this kind has says what it is for: `kubectl explain` shows it.
#[cfg(test)]
pub(super) fn check_described(schema: &Value, path: &str) {
    assert!(schema.str_at(&["description"]).is_some(), "nothing describes {path}");
    let places = [schema, schema.get("items").unwrap_or(&Value::Null)];
    let properties = places.iter().filter_map(|place| place.get("properties").and_then(Value::as_object));
    for (name, inner) in properties.flat_map(|properties| properties.iter()) {
        if !["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            check_described(inner, &format!("{path}.{name}"));
        }
    }
}
