//! Leases: who leads, and until when.

use polder_model::{FieldError, FieldPath, Value};

use super::cells;
use super::checks::{Errors, some};
use crate::behavior::{Behavior, Column};

pub(super) const LEASE: Behavior = Behavior {
    group: "coordination.k8s.io",
    resource: "leases",
    create_on_update: true,
    unconditional_update: false,
    columns: &[Column::NAME, Column::text("Holder"), Column::AGE],
    cells: |object, print| {
        vec![cells::name(object), cells::text(object, &["spec", "holderIdentity"]), cells::age(object, print)]
    },
    prepare_create: |object| drop_coordinated(object, None),
    prepare_update: |new, old| drop_coordinated(new, Some(old)),
    validate: |new, _, errors| validate(new, errors),
    ..Behavior::PLAIN
};

/// Coordinated leader election is off: its fields only stay where they already were.
fn drop_coordinated(new: &mut Value, old: Option<&Value>) {
    for key in ["strategy", "preferredHolder"] {
        if old.is_none_or(|old| old.at(&["spec", key]).is_none()) {
            new.remove_at(&["spec", key]);
        }
    }
}

fn validate(lease: &Value, errors: &mut Errors) {
    let path = FieldPath::root("spec");
    let Some(spec) = some(lease, "spec") else { return };
    let number = |key: &str| spec.i64_at(&[key]);
    if let Some(seconds) = number("leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.push(FieldError::invalid(
            path.member("leaseDurationSeconds"),
            seconds,
            "must be greater than 0",
        ));
    }
    if let Some(count) = number("leaseTransitions").filter(|count| *count < 0) {
        let text = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(path.member("leaseTransitions"), count, text));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, parse};
    use super::*;

    #[test]
    fn durations() {
        check(
            &LEASE,
            &[
                (r#"{"spec":{"leaseDurationSeconds":1,"leaseTransitions":0}}"#, &[]),
                (r#"{}"#, &[]),
                (
                    r#"{"spec":{"leaseDurationSeconds":0,"leaseTransitions":-1}}"#,
                    &[
                        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                        "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
                    ],
                ),
            ],
        );
    }

    #[test]
    fn coordination_is_off() {
        let mut lease = parse(r#"{"spec":{"strategy":"OldestEmulationVersion","holderIdentity":"h"}}"#);
        (LEASE.prepare_create)(&mut lease);
        assert_eq!(lease.to_string(), r#"{"spec":{"holderIdentity":"h"}}"#);
    }

    #[test]
    fn cells() {
        check_cells(
            &LEASE,
            &[(r#"{"metadata":{"name":"l"},"spec":{"holderIdentity":"h"}}"#, r#"["l","h","<unknown>"]"#)],
        );
    }
}
