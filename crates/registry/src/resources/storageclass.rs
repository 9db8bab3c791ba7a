//! Storage classes: names for kinds of volumes. Volume attributes classes share two of the checks.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use polder_model::{FieldError, FieldPath, Value};

use super::cells;
use super::checks::{Errors, each, immutable, one_of, qualified_name, required, same, text};
use crate::behavior::{Behavior, Column, Print};

const PARAMETERS_MAX: usize = 512;
const PARAMETERS_BYTES_MAX: usize = 256 << 10;

pub(super) const STORAGE_CLASS: Behavior = Behavior {
    group: "storage.k8s.io",
    resource: "storageclasses",
    delete_returns_object: true,
    columns: &[
        Column::NAME,
        Column::text("Provisioner"),
        Column::text("ReclaimPolicy"),
        Column::text("VolumeBindingMode"),
        Column::text("AllowVolumeExpansion"),
        Column::AGE,
    ],
    cells,
    validate,
    ..Behavior::PLAIN
};

fn cells(object: &Value, print: &Print) -> Vec<Value> {
    let annotated = |domain: &str| {
        let key = format!("{domain}/is-default-class");
        object.str_at(&["metadata", "annotations", &key]) == Some("true")
    };
    let is_default = annotated("storageclass.kubernetes.io") || annotated("storageclass.beta.kubernetes.io");
    let mark = if is_default { " (default)" } else { "" };
    let name = object.str_at(&["metadata", "name"]).unwrap_or_default();
    vec![
        format!("{name}{mark}").into(),
        cells::text(object, &["provisioner"]),
        cells::text_or(object, &["reclaimPolicy"], "Delete").into(),
        cells::text_or(object, &["volumeBindingMode"], "Immediate").into(),
        cells::flag(object, &["allowVolumeExpansion"], false),
        cells::age(object, print),
    ]
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let root = FieldPath::ROOT;
    validate_provisioner(new, "provisioner", errors);
    validate_parameters(new, true, errors);
    one_of(new, "reclaimPolicy", &["Delete", "Retain"], &root, errors);
    if required(new, "volumeBindingMode", &root, errors) {
        one_of(new, "volumeBindingMode", &["Immediate", "WaitForFirstConsumer"], &root, errors);
    }
    validate_topologies(new, errors);
    if let Some(old) = old {
        validate_unchanged(new, old, &["parameters", "provisioner", "reclaimPolicy"], errors);
        immutable(new, old, "volumeBindingMode", &root, errors);
    }
}

/// Where volumes may be made: label keys with values, no place named twice.
fn validate_topologies(class: &Value, errors: &mut Errors) {
    let mut terms: HashSet<BTreeMap<String, BTreeSet<String>>> = HashSet::from([BTreeMap::new()]);
    each(class, "allowedTopologies", &FieldPath::ROOT, errors, |term, path, errors| {
        let mut own = BTreeMap::new();
        each(term, "matchLabelExpressions", path, errors, |expression, path, errors| {
            let mut values = BTreeSet::new();
            if expression.array_at(&["values"]).is_empty() {
                errors.push(FieldError::required(path.member("values"), ""));
            }
            each(expression, "values", path, errors, |value, path, errors| {
                let value = value.as_str().unwrap_or_default();
                if !values.insert(value.to_owned()) {
                    errors.push(FieldError::duplicate(path, value));
                }
            });
            let key = text(expression, "key");
            qualified_name(key, &path.member("key"), errors);
            if own.insert(key.to_owned(), values).is_some() {
                errors.push(FieldError::duplicate(path.member("key"), key));
            }
        });
        if !terms.insert(own) {
            errors.push(FieldError::duplicate(path.member("matchLabelExpressions"), ""));
        }
    });
}

/// Members that may not change, said as storage kinds say it.
pub(super) fn validate_unchanged(new: &Value, old: &Value, keys: &[&str], errors: &mut Errors) {
    for key in keys {
        if !same(new.get(key), old.get(key)) {
            errors.push(FieldError::forbidden(key, format!("updates to {key} are forbidden.")));
        }
    }
}

/// The name of a driver, upper case allowed.
pub(super) fn validate_provisioner(object: &Value, key: &str, errors: &mut Errors) {
    if required(object, key, &FieldPath::ROOT, errors) {
        let name = text(object, key).to_lowercase();
        qualified_name(&name, &FieldPath::root(key), errors);
    }
}

pub(super) fn validate_parameters(object: &Value, may_be_empty: bool, errors: &mut Errors) {
    let path = FieldPath::root("parameters");
    let entries = object.get("parameters").and_then(Value::as_object);
    let count = entries.map_or(0, polder_model::Object::len);
    if count > PARAMETERS_MAX {
        errors.push(FieldError::too_long(path, PARAMETERS_MAX));
        return;
    }
    let mut bytes = 0;
    for (key, value) in entries.into_iter().flat_map(polder_model::Object::iter) {
        if key.is_empty() {
            errors.push(FieldError::invalid(path, "", "field can not be empty."));
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > PARAMETERS_BYTES_MAX {
        errors.push(FieldError::too_long(path, PARAMETERS_BYTES_MAX));
    }
    if !may_be_empty && count == 0 {
        errors.push(FieldError::required(path, "must contain at least one key/value pair"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_update};
    use super::*;

    const GOOD: &str = r#"{"provisioner":"p.example/x","volumeBindingMode":"Immediate"}"#;

    #[test]
    fn fields() {
        check(
            &STORAGE_CLASS,
            &[
                (GOOD, &[]),
                (
                    r#"{"reclaimPolicy":"Recycle","volumeBindingMode":"Late","parameters":{"":"x"}}"#,
                    &[
                        "provisioner: Required value",
                        r#"parameters: Invalid value: "": field can not be empty."#,
                        r#"reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain""#,
                        r#"volumeBindingMode: Unsupported value: "Late": supported values: "Immediate", "WaitForFirstConsumer""#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn what_stays() {
        check_update(
            &STORAGE_CLASS,
            &[
                (
                    GOOD,
                    r#"{"provisioner":"p.example/x","volumeBindingMode":"Immediate","allowVolumeExpansion":true}"#,
                    &[],
                ),
                (
                    GOOD,
                    r#"{"provisioner":"p.example/y","volumeBindingMode":"WaitForFirstConsumer","parameters":{"a":"b"}}"#,
                    &[
                        "parameters: Forbidden: updates to parameters are forbidden.",
                        "provisioner: Forbidden: updates to provisioner are forbidden.",
                        r#"volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable"#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn cells() {
        check_cells(
            &STORAGE_CLASS,
            &[(
                r#"{"metadata":{"name":"s","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"p"}"#,
                r#"["s (default)","p","Delete","Immediate",false,"<unknown>"]"#,
            )],
        );
    }

    #[test]
    fn topologies() {
        let class = |terms: &str| {
            format!(r#"{{"provisioner":"p","volumeBindingMode":"Immediate","allowedTopologies":[{terms}]}}"#)
        };
        let rows: &[(&str, &[&str])] = &[
            (r#"{"matchLabelExpressions":[{"key":"a","values":["b"]}]}"#, &[]),
            (r#"{}"#, &[r#"allowedTopologies[0].matchLabelExpressions: Duplicate value: """#]),
            (
                r#"{"matchLabelExpressions":[{"key":"a","values":["b","b"]},{"key":"a"}]}"#,
                &[
                    r#"allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "b""#,
                    "allowedTopologies[0].matchLabelExpressions[1].values: Required value",
                    r#"allowedTopologies[0].matchLabelExpressions[1].key: Duplicate value: "a""#,
                ],
            ),
        ];
        for (terms, expected) in rows {
            check(&STORAGE_CLASS, &[(&class(terms), expected)]);
        }
    }
}
