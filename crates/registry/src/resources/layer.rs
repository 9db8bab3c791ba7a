//! Layers: sealed states of planes that other planes can begin from.

use polder_model::{FieldError, FieldPath, PlaneName, Value};

use super::checks::{Errors, dns_label, immutable, required, text};
use super::own_kinds::{self, parse_schema, validate_display_name};
use super::plane::NO_COPY_OF_CORE;
use crate::behavior::{Behavior, NameRule};

pub(crate) const LAYER: Behavior = Behavior {
    group: own_kinds::GROUP,
    resource: "layers",
    names: NameRule::Label,
    generation: true,
    unconditional_update: false,
    columns: &own_kinds::columns("Plane"),
    cells: |object, print| own_kinds::cells(object, &["spec", "plane"], print),
    validate,
    ..Behavior::PLAIN
};

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = new.get("spec").unwrap_or(&empty);
    let path = FieldPath::root("spec");
    if required(spec, "plane", &path, errors) {
        dns_label(text(spec, "plane"), &path.member("plane"), errors);
        if text(spec, "plane") == PlaneName::CORE.as_str() {
            errors.push(FieldError::invalid(path.member("plane"), "core", NO_COPY_OF_CORE));
        }
    }
    validate_display_name(spec, &path, errors);
    if let Some(old) = old {
        immutable(spec, old.get("spec").unwrap_or(&empty), "plane", &path, errors);
    }
}

/// The structural schema, as a CRD of this kind would carry it.
pub(super) fn schema() -> Value {
    parse_schema(
        r#"{
        "type": "object", "description": "The state of a plane at one moment, kept as it was. Planes can begin from it: spec.forkFrom: layer/<name>.",
        "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
            "spec": {"type": "object", "required": ["plane"], "description": "Which plane was sealed, and what the layer is called.", "properties": {
                "plane": {"type": "string", "description": "The plane whose present state is sealed. Cannot be changed."},
                "displayName": {"type": "string", "maxLength": 256, "description": "What people call the layer."}
            }},
            "status": {"type": "object", "description": "What the layer holds. Written by the server.", "properties": {
                "phase": {"type": "string", "description": "Pending, Sealed or Deleting."},
                "conditions": CONDITIONS,
                "sealedAt": {"type": "string", "format": "date-time", "description": "When it was sealed."},
                "objectCount": {"type": "integer", "format": "int64", "description": "How many objects it holds."},
                "storedBytes": {"type": "integer", "format": "int64", "description": "How many bytes they take."}
            }}
        },
        "required": ["spec"]
    }"#,
    )
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_update};
    use super::*;

    #[test]
    fn specs() {
        check(
            &LAYER,
            &[
                (r#"{"metadata":{"name":"golden"},"spec":{"plane":"acme"}}"#, &[]),
                (r#"{"metadata":{"name":"golden"}}"#, &["spec.plane: Required value"]),
            ],
        );
        check_update(
            &LAYER,
            &[(
                r#"{"spec":{"plane":"a"}}"#,
                r#"{"spec":{"plane":"b"}}"#,
                &[r#"spec.plane: Invalid value: "b": field is immutable"#],
            )],
        );
    }

    #[test]
    fn every_field_is_described() {
        super::super::own_kinds::check_described(&schema(), "layer");
    }

    #[test]
    fn schema_and_cells() {
        let plane = ["properties", "spec", "properties", "plane", "type"];
        assert_eq!(schema().str_at(&plane), Some("string"));
        check_cells(
            &LAYER,
            &[(
                r#"{"metadata":{"name":"l"},"spec":{"plane":"p","displayName":"L"},"status":{"phase":"Sealed","objectCount":1,"storedBytes":2}}"#,
                r#"["l","Sealed",1,2,"<unknown>","p","L"]"#,
            )],
        );
    }
}
