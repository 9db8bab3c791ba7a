//! Resource slices: the devices a driver offers somewhere.

use std::collections::HashSet;
use std::sync::LazyLock;

use polder_model::{FieldError, FieldPath, Object, Value};
use regex::Regex;

use super::cells;
use super::checks::{
    ERRORS_MAX, Errors, dns_label, dns_subdomain, driver_name, each, required, same, some, text,
};
use super::device_rules::{ATTRIBUTE_LEN_MAX, ATTRIBUTES_MAX, pool_name, qualified_name, shown_key};
use super::scheduling_rules::node_selector;
use crate::behavior::{Behavior, Column, Selectable};

const DEVICES_MAX: usize = 128;

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
        validate_device(device, path, errors);
        validate_device_place(device, spec, path, errors);
    });
    let Some(old) = old else { return };
    for keys in [["spec", "driver"].as_slice(), &["spec", "pool", "name"], &["spec", "nodeName"]] {
        if !same(new.at(keys), old.at(keys)) {
            let value = new.at(keys).cloned().unwrap_or_default();
            errors.push(FieldError::invalid(keys.join("."), value, "field is immutable"));
        }
    }
}

fn validate_device(device: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let entries = |key: &str| device.get(key).and_then(Value::as_object).into_iter().flat_map(Object::iter);
    let count = entries("attributes").count() + entries("capacity").count();
    if count > ATTRIBUTES_MAX {
        let why = format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}");
        errors.push(FieldError::invalid(path, i64::try_from(count).unwrap_or(i64::MAX), why));
    }
    for key in ["attributes", "capacity"] {
        let path = path.member(key);
        for (name, value) in entries(key) {
            if errors.len() >= ERRORS_MAX {
                return;
            }
            let shown = shown_key(name);
            let path = path.key(&shown);
            qualified_name(name, &path, errors);
            if key == "attributes" {
                validate_attribute(value, &path, errors);
            }
        }
    }
}

fn validate_attribute(attribute: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    const ONE_OF: &str = "exactly one value must be specified";
    for key in ["string", "version"] {
        let Some(value) = some(attribute, key).and_then(Value::as_str) else { continue };
        let path = path.member(key);
        if key == "version" && !SEMVER.is_match(value) {
            let why = "must be a string compatible with semver.org spec 2.0.0";
            errors.push(FieldError::invalid(path, value, why));
        }
        if value.len() > ATTRIBUTE_LEN_MAX {
            errors.push(FieldError::too_long(path, ATTRIBUTE_LEN_MAX));
        }
    }
    match ["bool", "int", "string", "version"].iter().filter(|key| some(attribute, key).is_some()).count() {
        0 => errors.push(FieldError::invalid(path, "", ONE_OF)),
        1 => {}
        _ => errors.push(FieldError::invalid(path, attribute.clone(), ONE_OF)),
    }
}

static SEMVER: LazyLock<Regex> = LazyLock::new(|| {
    const SEGMENT: &str = r"(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)";
    const NUMBER: &str = r"(0|[1-9][0-9]*)";
    let pattern = format!(
        r"^{NUMBER}\.{NUMBER}\.{NUMBER}(-{SEGMENT}(\.{SEGMENT})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$"
    );
    Regex::new(&pattern).expect("a constant pattern")
});

/// Where a device is, if that is for each to say.
fn validate_device_place(device: &Value, spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    const ONE_OF: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    const NONE_OF: &str = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let keys = ["nodeName", "nodeSelector", "allNodes"];
    if spec.get("perDeviceNodeSelection").and_then(Value::as_bool) != Some(true) {
        if keys.iter().any(|key| some(device, key).is_some()) {
            errors.push(FieldError::invalid(path, Value::Null, NONE_OF));
        }
        return;
    }
    let mut places = Vec::new();
    for key in keys {
        let Some(value) = some(device, key) else { continue };
        let path = path.member(key);
        match value {
            Value::Bool(false) => {
                errors.push(FieldError::invalid(path, false, "must be either unset or set to true"));
                continue;
            }
            Value::String(name) if name.is_empty() => {
                errors.push(FieldError::invalid(path, "", "must not be empty"));
                continue;
            }
            Value::String(name) => dns_subdomain(name, &path, errors),
            Value::Object(_) => node_selector(value, &path, errors),
            _ => {}
        }
        places.push(format!("`{key}`"));
    }
    match places.len() {
        0 => errors.push(FieldError::required(path, ONE_OF)),
        1 => {}
        _ => errors.push(FieldError::invalid(path, format!("{{{}}}", places.join(", ")), ONE_OF)),
    }
}

fn validate_pool(pool: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    pool_name(text(pool, "name"), &path.member("name"), errors);
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
    use super::super::rows::{check, check_cells, check_update, refuses};
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
        let devices = |device: &str| {
            format!(
                r#"{{"spec":{{"driver":"d.example","pool":{{"name":"p","resourceSliceCount":1}},"allNodes":true,"devices":[{device}]}}}}"#
            )
        };
        let wrong_name = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";
        let many: Vec<String> = (0..33).map(|index| format!(r#""a{index}":{{"int":1}}"#)).collect();
        let many = format!(r#"{{"name":"a","attributes":{{{}}}}}"#, many.join(","));
        let rows: [(&str, &[&str]); 5] = [
            (
                r#"{"name":"a","attributes":{"x.example/y_1":{"string":"s"},"_z":{"version":"1.0.0-rc.1+b"}},"capacity":{"m":{"value":"1Gi"}}}"#,
                &[],
            ),
            (
                r#"{"name":"a","attributes":{"1":{"int":1},"/a":{"bool":true}},"capacity":{"a/":{"value":"1"}}}"#,
                &[
                    r#"spec.devices[0].attributes[/a]: Invalid value: "": the domain must not be empty"#,
                    &format!(r#"spec.devices[0].attributes[1]: Invalid value: "1": {wrong_name}"#),
                    r#"spec.devices[0].capacity[a/]: Invalid value: "": the name must not be empty"#,
                ],
            ),
            (
                r#"{"name":"a","attributes":{"a":{},"b":{"int":1,"bool":true},"c":{"version":"1.0"}}}"#,
                &[
                    r#"spec.devices[0].attributes[a]: Invalid value: "": exactly one value must be specified"#,
                    r#"spec.devices[0].attributes[b]: Invalid value: {"bool":true,"int":1}: exactly one value must be specified"#,
                    r#"spec.devices[0].attributes[c].version: Invalid value: "1.0": must be a string compatible with semver.org spec 2.0.0"#,
                ],
            ),
            (
                &many,
                &[
                    "spec.devices[0]: Invalid value: 33: the total number of attributes and capacities must not exceed 32",
                ],
            ),
            (
                r#"{"name":"a","allNodes":true}"#,
                &[
                    "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
                ],
            ),
        ];
        for (device, expected) in rows {
            refuses(&RESOURCE_SLICE, &devices(device), None, expected);
        }
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
