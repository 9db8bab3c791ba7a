//! CSI nodes: which volume drivers a node has.

use std::collections::{HashMap, HashSet};

use polder_model::{FieldError, FieldPath, Value};

use super::cells;
use super::checks::{Errors, driver_name, each, qualified_name, required, text};
use crate::behavior::{Behavior, Column};

const NODE_ID_LEN_MAX: usize = 256;

pub(super) const CSI_NODE: Behavior = Behavior {
    group: "storage.k8s.io",
    resource: "csinodes",
    unconditional_update: false,
    delete_returns_object: true,
    columns: &[Column::NAME, Column::integer("Drivers"), Column::AGE],
    cells: |object, print| {
        vec![
            cells::name(object),
            cells::len(object.at(&["spec", "drivers"])).into(),
            cells::age(object, print),
        ]
    },
    validate,
    ..Behavior::PLAIN
};

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let empty = Value::Null;
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&empty);
    let mut names = HashSet::new();
    each(spec, "drivers", &path, errors, |driver, path, errors| {
        let name = text(driver, "name");
        driver_name(name, &path.member("name"), errors);
        let id = text(driver, "nodeID");
        if required(driver, "nodeID", path, errors) && id.len() > NODE_ID_LEN_MAX {
            let why = format!("must be {NODE_ID_LEN_MAX} characters or less");
            errors.push(FieldError::invalid(path.member("nodeID"), id, why));
        }
        if let Some(count) = driver.i64_at(&["allocatable", "count"]).filter(|count| *count < 0) {
            let path = path.member("allocatable");
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(path.member("count"), count, why));
        }
        if !names.insert(name.to_owned()) {
            errors.push(FieldError::duplicate(path.member("name"), name));
        }
        let mut keys = HashSet::new();
        each(driver, "topologyKeys", path, errors, |key, _, errors| {
            let key = key.as_str().unwrap_or_default();
            if !keys.insert(key.to_owned()) {
                errors.push(FieldError::duplicate(path, key));
            }
            qualified_name(key, path, errors);
        });
    });
    let Some(old) = old else { return };
    let old_drivers: HashMap<&str, &Value> =
        old.array_at(&["spec", "drivers"]).iter().map(|driver| (text(driver, "name"), driver)).collect();
    each(spec, "drivers", &path, errors, |driver, _, errors| {
        if old_drivers.get(text(driver, "name")).is_some_and(|old| but_count(old) != but_count(driver)) {
            errors.push(FieldError::invalid(path.member("drivers"), but_count(driver), "field is immutable"));
        }
    });
}

/// A driver without the one part that may change: how many volumes fit.
fn but_count(driver: &Value) -> Value {
    let mut driver = driver.clone();
    driver.remove_at(&["allocatable"]);
    driver
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_update};
    use super::*;

    const GOOD: &str =
        r#"{"spec":{"drivers":[{"name":"d.example","nodeID":"n","allocatable":{"count":1}}]}}"#;

    #[test]
    fn drivers() {
        check(
            &CSI_NODE,
            &[
                (GOOD, &[]),
                (
                    r#"{"spec":{"drivers":[{"name":"d","nodeID":"n","topologyKeys":["a","a"]},{"name":"d"}]}}"#,
                    &[
                        r#"spec.drivers[0]: Duplicate value: "a""#,
                        "spec.drivers[1].nodeID: Required value",
                        r#"spec.drivers[1].name: Duplicate value: "d""#,
                    ],
                ),
            ],
        );
        check_update(
            &CSI_NODE,
            &[
                (
                    GOOD,
                    r#"{"spec":{"drivers":[{"name":"d.example","nodeID":"n","allocatable":{"count":2}}]}}"#,
                    &[],
                ),
                (
                    GOOD,
                    r#"{"spec":{"drivers":[{"name":"d.example","nodeID":"m"}]}}"#,
                    &[
                        r#"spec.drivers: Invalid value: {"name":"d.example","nodeID":"m"}: field is immutable"#,
                    ],
                ),
            ],
        );
        check_cells(&CSI_NODE, &[(GOOD, r#"["",1,"<unknown>"]"#)]);
    }
}
