//! Runtime classes: names for container runtimes.

use std::collections::HashSet;

use polder_model::{FieldError, FieldPath, Value};

use super::checks::{Errors, dns_label, immutable, labels, some, text};
use super::{cells, resource_amounts, resource_names, scheduling_rules};
use crate::behavior::{Behavior, Column};

pub(super) const RUNTIME_CLASS: Behavior = Behavior {
    group: "node.k8s.io",
    resource: "runtimeclasses",
    create_on_update: true,
    unconditional_update: false,
    columns: &[Column::NAME, Column::text("Handler"), Column::AGE],
    cells: |object, print| {
        vec![cells::name(object), cells::text(object, &["handler"]), cells::age(object, print)]
    },
    validate,
    ..Behavior::PLAIN
};

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    dns_label(text(new, "handler"), &FieldPath::root("handler"), errors);
    if let Some(scheduling) = some(new, "scheduling") {
        let path = FieldPath::root("scheduling");
        labels(scheduling.get("nodeSelector"), &path.member("nodeSelector"), errors);
        let path = path.member("tolerations");
        let mut seen = HashSet::new();
        for (index, toleration) in scheduling.array_at(&["tolerations"]).iter().enumerate() {
            if !seen.insert(toleration.to_string()) {
                errors.push(FieldError::duplicate(path.index(index), toleration.clone()));
            }
        }
        scheduling_rules::tolerations(scheduling, &path, errors);
    }
    for (name, amount) in
        new.at(&["overhead", "podFixed"]).and_then(Value::as_object).into_iter().flat_map(|all| all.iter())
    {
        let path = FieldPath::root("overhead");
        let path = path.member("limits");
        let path = path.key(name);
        resource_names::container(name, &path, errors);
        resource_amounts::validate_amount(name, amount, &path, errors);
    }
    if let Some(old) = old {
        immutable(new, old, "handler", &FieldPath::ROOT, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_update, errors};
    use super::*;

    #[test]
    fn handlers() {
        check(&RUNTIME_CLASS, &[(r#"{"handler":"runc"}"#, &[])]);
        assert!(
            errors(&RUNTIME_CLASS, r#"{"handler":"Run"}"#, None)[0]
                .starts_with("handler: Invalid value: \"Run\": a lowercase RFC 1123 label")
        );
        check_update(
            &RUNTIME_CLASS,
            &[(
                r#"{"handler":"a"}"#,
                r#"{"handler":"b"}"#,
                &[r#"handler: Invalid value: "b": field is immutable"#],
            )],
        );
    }

    #[test]
    fn cells() {
        check_cells(
            &RUNTIME_CLASS,
            &[(r#"{"metadata":{"name":"r"},"handler":"h"}"#, r#"["r","h","<unknown>"]"#)],
        );
    }

    #[test]
    fn overhead_and_scheduling() {
        check(
            &RUNTIME_CLASS,
            &[(
                r#"{"handler":"h","overhead":{"podFixed":{"cpu":"-1"}},"scheduling":{"tolerations":[{"key":"a","operator":"Exists"},{"key":"a","operator":"Exists"}]}}"#,
                &[
                    r#"scheduling.tolerations[1]: Duplicate value: {"key":"a","operator":"Exists"}"#,
                    r#"overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0"#,
                ],
            )],
        );
    }
}
