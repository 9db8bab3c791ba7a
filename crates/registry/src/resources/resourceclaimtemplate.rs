//! Resource claim templates: a claim for each pod that names the template.

use polder_model::{FieldPath, Value};

use super::cells;
use super::checks::{Errors, immutable, labels};
use super::device_claim;
use crate::behavior::{Behavior, Column};

pub(super) const RESOURCE_CLAIM_TEMPLATE: Behavior = Behavior {
    group: "resource.k8s.io",
    resource: "resourceclaimtemplates",
    delete_returns_object: true,
    columns: &[Column::NAME, Column::AGE],
    cells: |object, print| vec![cells::name(object), cells::age(object, print)],
    default: |object| {
        if let Some(spec) = object.at_mut(&["spec", "spec"]) {
            device_claim::default(spec);
        }
    },
    validate,
    ..Behavior::PLAIN
};

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let empty = Value::Null;
    let path = FieldPath::root("spec");
    let metadata = path.member("metadata");
    labels(new.at(&["spec", "metadata", "labels"]), &metadata.member("labels"), errors);
    match old {
        // What was accepted stays so.
        Some(old) => immutable(new, old, "spec", &FieldPath::ROOT, errors),
        None => {
            device_claim::validate(new.at(&["spec", "spec"]).unwrap_or(&empty), &path.member("spec"), errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_update};
    use super::*;

    #[test]
    fn the_claim_inside() {
        check(
            &RESOURCE_CLAIM_TEMPLATE,
            &[
                ("{}", &[]),
                (
                    r#"{"spec":{"spec":{"devices":{"requests":[{"name":"r"}]}}}}"#,
                    &[
                        "spec.spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
                    ],
                ),
            ],
        );
        check_update(
            &RESOURCE_CLAIM_TEMPLATE,
            &[(
                r#"{"spec":{"spec":{"devices":{}}}}"#,
                r#"{"spec":{"spec":{}}}"#,
                &[r#"spec: Invalid value: {"spec":{}}: field is immutable"#],
            )],
        );
    }

    #[test]
    fn labels_of_claims() {
        let claim = r#"{"spec":{"metadata":{"labels":{"a":"-"}},"spec":{}}}"#;
        let found = super::super::rows::errors(&RESOURCE_CLAIM_TEMPLATE, claim, None);
        assert!(
            found[0].starts_with(r#"spec.metadata.labels: Invalid value: "-": a valid label"#),
            "{found:?}"
        );
    }
}
