//! Controller revisions: history of daemon sets and stateful sets.

use polder_model::{FieldError, FieldPath, GroupVersion, Value};

use super::{cells, checks};
use crate::behavior::{Behavior, Column, Print};

pub(super) const CONTROLLERREVISIONS: Behavior = Behavior {
    group: "apps",
    resource: "controllerrevisions",
    columns: &[Column::NAME, Column::text("Controller"), Column::text("Revision"), Column::AGE],
    cells,
    validate,
    ..Behavior::PLAIN
};

fn cells(revision: &Value, print: &Print) -> Vec<Value> {
    vec![
        cells::name(revision),
        controller(revision).into(),
        cells::count(revision, &["revision"]).into(),
        cells::age(revision, print),
    ]
}

/// `statefulset.apps/web`.
fn controller(revision: &Value) -> String {
    let owner = revision
        .array_at(&["metadata", "ownerReferences"])
        .iter()
        .find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true));
    let Some(owner) = owner else { return "<none>".into() };
    let group = GroupVersion::parse(checks::text(owner, "apiVersion"))
        .map(|version| version.group)
        .unwrap_or_default();
    let kind = checks::text(owner, "kind").to_lowercase();
    let dot = if group.is_empty() { "" } else { "." };
    format!("{kind}{dot}{group}/{}", checks::text(owner, "name"))
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    checks::not_negative(new, &["revision"], &FieldPath::ROOT, errors);
    match (old, checks::some(new, "data")) {
        (Some(old), _) => checks::immutable(new, old, "data", &FieldPath::ROOT, errors),
        (None, Some(Value::Object(_))) => {}
        (None, Some(_)) => errors.push(FieldError::required("data", "data must be a valid JSON object")),
        (None, None) => errors.push(FieldError::required("data", "data is mandatory")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{prints, refuses};
    use super::CONTROLLERREVISIONS;

    #[test]
    fn cells() {
        prints(
            &CONTROLLERREVISIONS,
            r#"{"metadata":{"name":"r","ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"web","controller":true}]},"revision":2}"#,
            "r|statefulset.apps/web|2|<unknown>",
        );
        prints(&CONTROLLERREVISIONS, "{}", "|<none>|0|<unknown>");
    }

    #[test]
    fn checks() {
        refuses(
            &CONTROLLERREVISIONS,
            r#"{"revision":-1}"#,
            None,
            &[
                "revision: Invalid value: -1: must be greater than or equal to 0",
                "data: Required value: data is mandatory",
            ],
        );
        refuses(
            &CONTROLLERREVISIONS,
            r#"{"data":{"a":1}}"#,
            Some(r#"{"data":{"a":2}}"#),
            &[r#"data: Invalid value: {"a":1}: field is immutable"#],
        );
    }
}
