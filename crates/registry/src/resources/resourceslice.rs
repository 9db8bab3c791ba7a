//! Resource slices: the devices a driver offers somewhere.

use std::collections::HashSet;

use polder_model::{FieldError, FieldPath, Value};

use super::cells;
use super::checks::{
    ERRORS_MAX, Errors, dns_label, dns_subdomain, driver_name, each, required, same, some, text,
};
use crate::behavior::{Behavior, Column, Selectable};

const DEVICES_MAX: usize = 128;
const POOL_NAME_LEN_MAX: usize = 253;

pub(super) const RESOURCE_SLICE: Behavior = Behavior {
    group: "resource.k8s.io",
    resource: "resourceslices",
    generation: true,
    delete_returns_object: true,
    selectable: &[
        Selectable { label: "spec.nodeName", paths: &[&["spec", "nodeName"]], missing: "" },
        Selectable { label: "spec.driver", paths: &[&["spec", "driver"]], missing: "" },
    ],
    columns: &[Column::NAME, Column::text("Node"), Column::text("Driver"), Column::text("Pool"), Column::AGE],
    cells: |object, print| {
        vec![
            cells::name(object),
            cells::text(object, &["spec", "nodeName"]),
            cells::text(object, &["spec", "driver"]),
            cells::text(object, &["spec", "pool", "name"]),
            cells::age(object, print),
        ]
    },
    validate,
    warnings: |object| {
        let driver = object.str_at(&["spec", "driver"]).unwrap_or_default();
        match driver.to_lowercase() == driver {
            true => Vec::new(),
            false => vec![format!(
                "spec.driver: driver names should be lowercase; {driver:?} contains uppercase characters"
            )],
        }
    },
    ..Behavior::PLAIN
};

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = new.get("spec").unwrap_or(&empty);
    let path = FieldPath::root("spec");
    driver_name(text(spec, "driver"), &path.member("driver"), errors);
    validate_pool(spec.get("pool").unwrap_or(&empty), &path.member("pool"), errors);
    validate_place(spec, &path, errors);
    let count = spec.array_at(&["devices"]).len();
    if count > DEVICES_MAX {
        errors.push(FieldError::too_many(path.member("devices"), count, DEVICES_MAX));
        return;
    }
    let mut names = HashSet::new();
    each(spec, "devices", &path, errors, |device, path, errors| {
        let name = text(device, "name");
        if required(device, "name", path, errors) {
            dns_label(name, &path.member("name"), errors);
        }
        if !names.insert(name.to_owned()) {
            errors.push(FieldError::duplicate(path, name));
        }
    });
    let Some(old) = old else { return };
    for keys in [["spec", "driver"].as_slice(), &["spec", "pool", "name"], &["spec", "nodeName"]] {
        if !same(new.at(keys), old.at(keys)) {
            let value = new.at(keys).cloned().unwrap_or_default();
            errors.push(FieldError::invalid(keys.join("."), value, "field is immutable"));
        }
    }
}

fn validate_pool(pool: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if required(pool, "name", path, errors) {
        let name = text(pool, "name");
        let name_path = path.member("name");
        if name.len() > POOL_NAME_LEN_MAX {
            errors.push(FieldError::too_long(name_path, POOL_NAME_LEN_MAX));
        }
        for part in name.split('/').take(ERRORS_MAX) {
            dns_subdomain(part, &name_path, errors);
        }
    }
    let number = |key: &str| pool.i64_at(&[key]).unwrap_or(0);
    if number("resourceSliceCount") <= 0 {
        let why = "must be greater than zero";
        errors.push(FieldError::invalid(
            path.member("resourceSliceCount"),
            number("resourceSliceCount"),
            why,
        ));
    }
    if number("generation") < 0 {
        let why = "must be greater than or equal to zero";
        errors.push(FieldError::invalid(path.member("generation"), number("generation"), why));
    }
}

/// Devices are on one node, on selected ones, on all, or each says where it is.
fn validate_place(spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    const ONE_OF: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    if let Some(node) = some(spec, "nodeName").and_then(Value::as_str) {
        match node {
            "" => {
                let why = "must be either unset or set to a non-empty string";
                errors.push(FieldError::invalid(path.member("nodeName"), "", why));
            }
            node => dns_subdomain(node, &path.member("nodeName"), errors),
        }
    }
    let flag = |key: &str| spec.get(key).and_then(Value::as_bool) == Some(true);
    for key in ["allNodes", "perDeviceNodeSelection"] {
        if some(spec, key).is_some() && !flag(key) {
            let why = "must be either unset or set to true";
            errors.push(FieldError::invalid(path.member(key), false, why));
        }
    }
    let places: Vec<&str> = [
        ("`nodeName`", !text(spec, "nodeName").is_empty()),
        ("`nodeSelector`", some(spec, "nodeSelector").is_some()),
        ("`allNodes`", flag("allNodes")),
        ("`perDeviceNodeSelection`", flag("perDeviceNodeSelection")),
    ]
    .into_iter()
    .filter_map(|(name, set)| set.then_some(name))
    .collect();
    match places.len() {
        0 => errors.push(FieldError::required(path, ONE_OF)),
        1 => {}
        _ => {
            let value = format!("{{{}}}", places.join(", "));
            errors.push(FieldError::invalid(path, value, format!("{ONE_OF}, but multiple fields are set")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_update};
    use super::*;

    const GOOD: &str = r#"{"metadata":{"name":"s"},"spec":{"driver":"d.example","pool":{"name":"p","resourceSliceCount":1},"nodeName":"n","devices":[{"name":"a"}]}}"#;

    #[test]
    fn slices() {
        check(
            &RESOURCE_SLICE,
            &[
                (GOOD, &[]),
                (
                    r#"{"spec":{"pool":{},"allNodes":true,"nodeName":"n","devices":[{"name":"a"},{"name":"a"}]}}"#,
                    &[
                        "spec.driver: Required value",
                        "spec.pool.name: Required value",
                        "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
                        r#"spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set"#,
                        r#"spec.devices[1]: Duplicate value: "a""#,
                    ],
                ),
            ],
        );
        check_update(
            &RESOURCE_SLICE,
            &[(
                GOOD,
                r#"{"spec":{"driver":"e.example","pool":{"name":"p","resourceSliceCount":2},"nodeName":"n"}}"#,
                &[r#"spec.driver: Invalid value: "e.example": field is immutable"#],
            )],
        );
        check_cells(&RESOURCE_SLICE, &[(GOOD, r#"["s","n","d.example","p","<unknown>"]"#)]);
    }
}
