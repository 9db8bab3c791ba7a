//! Resource claims: devices that pods want.

use polder_model::{FieldPath, Value, json};

use super::blank_status;
use super::cells;
use super::checks::{Errors, immutable};
use super::device_claim;
use crate::behavior::{Behavior, Column};

pub(super) const RESOURCE_CLAIM: Behavior = Behavior {
    group: "resource.k8s.io",
    resource: "resourceclaims",
    delete_returns_object: true,
    columns: &[Column::NAME, Column::text("State"), Column::AGE],
    cells: |object, print| vec![cells::name(object), state(object).into(), cells::age(object, print)],
    default: |object| {
        if let Some(spec) = object.at_mut(&["spec"]) {
            device_claim::default(spec);
        }
    },
    prepare_create: |object| blank_status::set(object, json!({})),
    validate,
    ..Behavior::PLAIN
};

fn state(object: &Value) -> &'static str {
    let deleted = object.at(&["metadata", "deletionTimestamp"]).is_some();
    let allocated = object.at(&["status", "allocation"]).is_some_and(|allocation| !allocation.is_null());
    let reserved = !object.array_at(&["status", "reservedFor"]).is_empty();
    match (deleted, allocated, reserved) {
        (false, false, _) => "pending",
        (true, false, _) => "deleted",
        (false, true, false) => "allocated",
        (false, true, true) => "allocated,reserved",
        (true, true, false) => "deleted,allocated",
        (true, true, true) => "deleted,allocated,reserved",
    }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    match old {
        Some(old) => immutable(new, old, "spec", &FieldPath::ROOT, errors),
        None => {
            let empty = Value::Null;
            device_claim::validate(new.get("spec").unwrap_or(&empty), &FieldPath::root("spec"), errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_default, check_update};
    use super::*;

    const GOOD: &str = r#"{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","allocationMode":"ExactCount","count":1}}],
        "constraints":[{"requests":["r"],"matchAttribute":"a/b"}]}}}"#;

    #[test]
    fn claims() {
        check(
            &RESOURCE_CLAIM,
            &[
                (GOOD, &[]),
                (
                    r#"{"spec":{"devices":{"requests":[{"name":"r"},{"name":"r","exactly":{"allocationMode":"All","count":2}}],
                        "constraints":[{"requests":["x"]}],"config":[{}]}}}"#,
                    &[
                        "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
                        r#"spec.devices.requests[1]: Duplicate value: "r""#,
                        "spec.devices.requests[1].exactly.deviceClassName: Required value",
                        "spec.devices.requests[1].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'",
                        r#"spec.devices.constraints[0].requests[0]: Invalid value: "x": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"#,
                        "spec.devices.constraints[0].matchAttribute: Required value",
                        "spec.devices.config[0].opaque: Required value",
                    ],
                ),
            ],
        );
        check_update(
            &RESOURCE_CLAIM,
            &[
                (GOOD, GOOD, &[]),
                (
                    GOOD,
                    r#"{"spec":{"devices":{}}}"#,
                    &[r#"spec: Invalid value: {"devices":{}}: field is immutable"#],
                ),
            ],
        );
    }

    #[test]
    fn one_device_unless_said_otherwise() {
        check_default(
            &RESOURCE_CLAIM,
            &[(
                r#"{"spec":{"devices":{"requests":[{"exactly":{}},{"firstAvailable":[{"allocationMode":"All"}]}]}}}"#,
                r#"{"spec":{"devices":{"requests":[{"exactly":{"allocationMode":"ExactCount","count":1}},{"firstAvailable":[{"allocationMode":"All"}]}]}}}"#,
            )],
        );
    }

    #[test]
    fn states() {
        check_cells(
            &RESOURCE_CLAIM,
            &[
                (r#"{"metadata":{"name":"r"}}"#, r#"["r","pending","<unknown>"]"#),
                (
                    r#"{"metadata":{"name":"r"},"status":{"allocation":{},"reservedFor":[{}]}}"#,
                    r#"["r","allocated,reserved","<unknown>"]"#,
                ),
            ],
        );
    }
}
