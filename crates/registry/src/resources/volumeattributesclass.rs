//! Volume attributes classes: names for how a volume performs.

use polder_model::Value;

use super::cells;
use super::checks::Errors;
use super::storageclass::{validate_parameters, validate_provisioner, validate_unchanged};
use crate::behavior::{Behavior, Column};

pub(super) const VOLUME_ATTRIBUTES_CLASS: Behavior = Behavior {
    group: "storage.k8s.io",
    resource: "volumeattributesclasses",
    delete_returns_object: true,
    columns: &[Column::NAME, Column::text("DriverName"), Column::AGE],
    cells: |object, print| {
        vec![cells::name(object), cells::text(object, &["driverName"]), cells::age(object, print)]
    },
    validate,
    ..Behavior::PLAIN
};

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        validate_unchanged(new, old, &["driverName", "parameters"], errors);
    }
    validate_provisioner(new, "driverName", errors);
    validate_parameters(new, false, errors);
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_update};
    use super::*;

    #[test]
    fn fields() {
        let good = r#"{"driverName":"d.example","parameters":{"a":"b"}}"#;
        check(
            &VOLUME_ATTRIBUTES_CLASS,
            &[
                (good, &[]),
                (
                    "{}",
                    &[
                        "driverName: Required value",
                        "parameters: Required value: must contain at least one key/value pair",
                    ],
                ),
            ],
        );
        check_update(
            &VOLUME_ATTRIBUTES_CLASS,
            &[(
                good,
                r#"{"driverName":"e.example","parameters":{"a":"c"}}"#,
                &[
                    "driverName: Forbidden: updates to driverName are forbidden.",
                    "parameters: Forbidden: updates to parameters are forbidden.",
                ],
            )],
        );
        check_cells(&VOLUME_ATTRIBUTES_CLASS, &[(good, r#"["","d.example","<unknown>"]"#)]);
    }
}
