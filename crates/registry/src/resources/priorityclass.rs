//! Priority classes: names for how important pods are.

use polder_model::{FieldError, FieldPath, Value};

use super::cells;
use super::checks::{Errors, immutable, one_of};
use crate::behavior::{Behavior, Column};

const VALUE_MAX: i64 = 1_000_000_000;

/// The classes whose names start with `system-`, and their values.
pub(crate) const SYSTEM: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

pub(crate) fn is_system(name: &str) -> bool {
    SYSTEM.iter().any(|(system, _)| *system == name)
}

pub(super) const PRIORITY_CLASS: Behavior = Behavior {
    group: "scheduling.k8s.io",
    resource: "priorityclasses",
    columns: &[
        Column::NAME,
        Column::integer("Value"),
        Column::boolean("Global-Default"),
        Column::AGE,
        Column::text("PreemptionPolicy"),
    ],
    cells: |object, print| {
        vec![
            cells::name(object),
            object.i64_at(&["value"]).unwrap_or(0).into(),
            cells::flag(object, &["globalDefault"], false),
            cells::age(object, print),
            cells::text(object, &["preemptionPolicy"]),
        ]
    },
    // It has a generation that nothing counts.
    prepare_create: |object| {
        if object.as_object().is_some() {
            object.set_at(&["metadata", "generation"], 1);
        }
    },
    validate,
    ..Behavior::PLAIN
};

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let value = |object: &Value| object.i64_at(&["value"]).unwrap_or(0);
    if let Some(old) = old {
        if value(new) != value(old) {
            errors.push(FieldError::forbidden("value", "may not be changed in an update."));
        }
        immutable(new, old, "preemptionPolicy", &FieldPath::ROOT, errors);
        return;
    }
    let name = new.str_at(&["metadata", "name"]).unwrap_or_default();
    if name.starts_with("system-") {
        if let Some(problem) = system_problem(name, new) {
            errors.push(FieldError::forbidden(
                "metadata.name",
                format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {problem}"
                ),
            ));
        }
    } else if value(new) > VALUE_MAX {
        let text = format!("maximum allowed value of a user defined priority is {VALUE_MAX}");
        errors.push(FieldError::forbidden("value", text));
    }
    one_of(new, "preemptionPolicy", &["PreemptLowerPriority", "Never"], &FieldPath::ROOT, errors);
}

fn system_problem(name: &str, class: &Value) -> Option<String> {
    let Some((_, value)) = SYSTEM.iter().find(|(system, _)| *system == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if class.i64_at(&["value"]) != Some(*value) {
        Some(format!("value of {name} PriorityClass must be {value}"))
    } else if class.get("globalDefault").and_then(Value::as_bool) == Some(true) {
        Some(format!("globalDefault of {name} PriorityClass must be false"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_update, creates};
    use super::*;

    #[test]
    fn reserved_names_and_values() {
        check(
            &PRIORITY_CLASS,
            &[
                (r#"{"metadata":{"name":"a"},"value":1000000000}"#, &[]),
                (r#"{"metadata":{"name":"system-node-critical"},"value":2000001000}"#, &[]),
                (
                    r#"{"metadata":{"name":"system-x"},"value":1}"#,
                    &[
                        "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class",
                    ],
                ),
                (
                    r#"{"metadata":{"name":"system-node-critical"},"value":1}"#,
                    &[
                        "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: value of system-node-critical PriorityClass must be 2000001000",
                    ],
                ),
                (
                    r#"{"metadata":{"name":"a"},"value":1000000001,"preemptionPolicy":"x"}"#,
                    &[
                        "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
                        r#"preemptionPolicy: Unsupported value: "x": supported values: "PreemptLowerPriority", "Never""#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn the_generation_is_one() {
        creates(&PRIORITY_CLASS, r#"{"value":1}"#, r#"{"metadata":{"generation":1},"value":1}"#);
    }

    #[test]
    fn what_stays() {
        check_update(
            &PRIORITY_CLASS,
            &[
                (r#"{"value":1}"#, r#"{"value":1,"description":"d"}"#, &[]),
                (r#"{"value":1}"#, r#"{"value":2}"#, &["value: Forbidden: may not be changed in an update."]),
                (
                    r#"{"preemptionPolicy":"Never"}"#,
                    r#"{"preemptionPolicy":"PreemptLowerPriority"}"#,
                    &[r#"preemptionPolicy: Invalid value: "PreemptLowerPriority": field is immutable"#],
                ),
            ],
        );
    }

    #[test]
    fn cells() {
        check_cells(
            &PRIORITY_CLASS,
            &[(
                r#"{"metadata":{"name":"p"},"value":7,"preemptionPolicy":"Never"}"#,
                r#"["p",7,false,"<unknown>","Never"]"#,
            )],
        );
    }
}
