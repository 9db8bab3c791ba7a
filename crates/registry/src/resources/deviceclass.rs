//! Device classes: names for kinds of devices.

use polder_model::{FieldError, FieldPath, Value};

use super::cells;
use super::checks::{Errors, each};
use super::device_claim::{validate_opaque, validate_selector};
use crate::behavior::{Behavior, Column};

const ITEMS_MAX: usize = 32;

pub(super) const DEVICE_CLASS: Behavior = Behavior {
    group: "resource.k8s.io",
    resource: "deviceclasses",
    generation: true,
    delete_returns_object: true,
    columns: &[Column::NAME, Column::AGE],
    cells: |object, print| vec![cells::name(object), cells::age(object, print)],
    validate: |new, _, errors| validate(new, errors),
    ..Behavior::PLAIN
};

fn validate(class: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = class.get("spec").unwrap_or(&empty);
    let path = FieldPath::root("spec");
    for key in ["selectors", "config"] {
        let count = spec.array_at(&[key]).len();
        if count > ITEMS_MAX {
            errors.push(FieldError::too_many(path.member(key), count, ITEMS_MAX));
        }
    }
    each(spec, "selectors", &path, errors, validate_selector);
    each(spec, "config", &path, errors, validate_opaque);
}

#[cfg(test)]
mod tests {
    use super::super::rows::check;
    use super::*;

    #[test]
    fn selectors_and_configuration() {
        check(
            &DEVICE_CLASS,
            &[
                (r#"{"spec":{"selectors":[{"cel":{"expression":"true"}}]}}"#, &[]),
                (
                    r#"{"spec":{"selectors":[{}],"config":[{"opaque":{"driver":"d.example"}}]}}"#,
                    &[
                        "spec.selectors[0].cel: Required value",
                        "spec.config[0].opaque.parameters: Required value",
                    ],
                ),
            ],
        );
    }
}
