//! Persistent volume claims.

use polder_model::names::dns_subdomain_problem;
use polder_model::{FieldError, FieldPath, Object, Value, json};

use super::persistentvolume::{CLASS_ANNOTATION, class, phase};
use super::resource_amounts;
use super::{cells, checks, label_selector, pod_rules};
use crate::behavior::{Behavior, Column, Print};

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

pub(super) const PERSISTENTVOLUMECLAIMS: Behavior = Behavior {
    resource: "persistentvolumeclaims",
    delete_returns_object: true,
    columns: &[
        Column::NAME,
        Column::text("Status"),
        Column::text("Volume"),
        Column::text("Capacity"),
        Column::text("Access Modes"),
        Column::text("StorageClass"),
        Column::text("VolumeAttributesClass"),
        Column::AGE,
        Column::text("VolumeMode").wide(),
    ],
    cells,
    prepare_create,
    prepare_update,
    validate_status,
    validate,
    ..Behavior::PLAIN
};

fn cells(claim: &Value, print: &Print) -> Vec<Value> {
    let volume = claim.str_at(&["spec", "volumeName"]).unwrap_or_default();
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        (
            cells::quantity(claim.at(&["status", "capacity", "storage"])),
            cells::access_modes(claim.array_at(&["status", "accessModes"])),
        )
    };
    let set = |key: &str| claim.str_at(&["spec", key]).unwrap_or("<unset>").into();
    vec![
        cells::name(claim),
        phase(claim).into(),
        volume.into(),
        capacity.into(),
        modes.into(),
        class(claim).into(),
        set("volumeAttributesClassName"),
        cells::age(claim, print),
        set("volumeMode"),
    ]
}

fn prepare_create(claim: &mut Value) {
    if claim.as_object().is_none() {
        return;
    }
    claim.set_at(&["status"], json!({"phase": "Pending"}));
    drop_unknown_source(claim);
    align_sources(claim);
}

fn prepare_update(new: &mut Value, old: &Value) {
    if old.at(&["spec", "dataSource"]).is_none() && old.at(&["spec", "dataSourceRef"]).is_none() {
        drop_unknown_source(new);
    }
    align_sources(new);
}

/// Old clients expect that sources other than claims and snapshots are ignored.
fn drop_unknown_source(claim: &mut Value) {
    let Some(source) = claim.at(&["spec", "dataSource"]) else { return };
    let known = [("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")];
    let given = (checks::text(source, "apiGroup"), checks::text(source, "kind"));
    if !known.contains(&given) && claim.at(&["spec", "dataSourceRef"]).is_none() {
        claim.remove_at(&["spec", "dataSource"]);
    }
}

/// `dataSource` and `dataSourceRef` say the same thing; who sets one gets both.
fn align_sources(claim: &mut Value) {
    let some = |key: &str| claim.at(&["spec", key]).filter(|source| source.as_object().is_some()).cloned();
    match (some("dataSource"), some("dataSourceRef")) {
        (Some(source), None) => claim.set_at(&["spec", "dataSourceRef"], source),
        (None, Some(mut reference)) if checks::text(&reference, "namespace").is_empty() => {
            reference.remove_at(&["namespace"]);
            claim.set_at(&["spec", "dataSource"], reference);
        }
        _ => {}
    }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    validate_spec(spec, &path, errors);
    if let Some(old) = old {
        validate_update(new, old, &path, errors);
    }
}

/// Checks a claim's spec, also in templates of other kinds.
pub(super) fn validate_spec(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let modes_path = path.member("accessModes");
    if spec.array_at(&["accessModes"]).is_empty() {
        errors.push(FieldError::required(modes_path, "at least 1 access mode is required"));
    }
    label_selector::validate(checks::some(spec, "selector"), &path.member("selector"), errors);
    validate_access_modes(spec, &modes_path, errors);
    if spec.at(&["resources", "requests", "storage"]).is_none_or(Value::is_null) {
        errors.push(FieldError::required(path.member("resources").key("storage"), ""));
    }
    let wanted = spec.at(&["resources", "requests", "storage"]);
    resource_amounts::positive(wanted, &path.member("resources").key("storage"), errors);
    validate_class_and_mode(spec, path, errors);
    if let (Some(source), Some(reference)) =
        (checks::some(spec, "dataSource"), checks::some(spec, "dataSourceRef"))
        && source != reference
    {
        errors.push(FieldError::invalid(path, Object::new(), "must match dataSourceRef"));
    }
    for key in ["dataSource", "dataSourceRef"] {
        let Some(source) = checks::some(spec, key) else { continue };
        let path = path.member(key);
        for required in ["name", "kind"] {
            if checks::text(source, required).is_empty() {
                errors.push(FieldError::required(path.member(required), ""));
            }
        }
        let kind = checks::text(source, "kind");
        if checks::text(source, "apiGroup").is_empty() && kind != "PersistentVolumeClaim" {
            let text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.push(FieldError::invalid(path, kind, text));
        }
    }
}

pub(super) fn validate_access_modes(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let modes = spec.array_at(&["accessModes"]);
    for mode in modes.iter().filter_map(Value::as_str) {
        if !MODES.contains(&mode) {
            errors.push(FieldError::not_supported(path, mode, MODES));
        }
    }
    let single = |mode: &&Value| mode.as_str() == Some("ReadWriteOncePod");
    let known = modes.iter().filter(|mode| mode.as_str().is_some_and(|mode| MODES.contains(&mode)));
    let singles = modes.iter().filter(single).count();
    if singles > 0 && known.count() > singles {
        errors.push(FieldError::forbidden(path, "may not use ReadWriteOncePod with other access modes"));
    }
}

pub(super) fn validate_class_and_mode(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for key in ["storageClassName", "volumeAttributesClassName"] {
        let name = checks::text(spec, key);
        if let Some(problem) = dns_subdomain_problem(name).filter(|_| !name.is_empty()) {
            errors.push(FieldError::invalid(path.member(key), name, problem));
        }
    }
    if let Some(mode) = spec.str_at(&["volumeMode"]).filter(|mode| !["Block", "Filesystem"].contains(mode)) {
        errors.push(FieldError::not_supported(path.member("volumeMode"), mode, ["Block", "Filesystem"]));
    }
}

fn validate_update(new: &Value, old: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let annotation =
        |claim: &'_ Value| claim.str_at(&["metadata", "annotations", CLASS_ANNOTATION]).map(str::to_owned);
    let (Some(new_spec), Some(old_spec)) = (new.get("spec"), old.get("spec")) else { return };
    let mut rest = new_spec.clone();
    let mut keep = |path: &[&str]| match old_spec.at(path) {
        Some(value) => rest.set_at(path, value.clone()),
        None => {
            rest.remove_at(path);
        }
    };
    if checks::text(old_spec, "volumeName").is_empty() {
        keep(&["volumeName"]);
    }
    // A class may be filled in once, and must be the one the annotation named.
    if old_spec.get("storageClassName").is_none_or(Value::is_null)
        && let Some(class) = new_spec.str_at(&["storageClassName"])
        && annotation(old).is_none_or(|old| old == class)
    {
        keep(&["storageClassName"]);
    } else if annotation(new) != annotation(old) {
        let value = annotation(new).unwrap_or_default();
        let path = format!("metadata.annotations.{CLASS_ANNOTATION}");
        errors.push(FieldError::invalid(path, value, checks::IMMUTABLE));
    }
    if new.str_at(&["status", "phase"]) == Some("Bound") {
        keep(&["resources", "requests", "storage"]);
        keep(&["volumeAttributesClassName"]);
    }
    let changed = pod_rules::changed_members(&rest, old_spec);
    if !changed.is_empty() {
        let text = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
             claims\n{changed}"
        );
        errors.push(FieldError::forbidden(path, text));
    }
    let size = |value: &Value, path: &[&str]| resource_amounts::amount(value.at(path));
    let requested = ["resources", "requests", "storage"];
    let (wanted, had) = (size(new_spec, &requested), size(old_spec, &requested));
    let capacity = size(old, &["status", "capacity", "storage"]);
    // Less may be asked for after an expansion that failed, but not less than there is.
    if wanted < had && capacity.is_some() && wanted <= capacity {
        let path = path.member("resources");
        let path = path.member("requests");
        let text = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden(path.member("storage"), text));
    }
    checks::immutable(new_spec, old_spec, "volumeMode", &FieldPath::ROOT, errors);
}

fn validate_status(new: &Value, _: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("status");
    for list in ["capacity", "allocatedResources"] {
        let path = path.member(list);
        let amounts = new.at(&["status", list]).and_then(Value::as_object);
        for (name, amount) in amounts.into_iter().flat_map(|amounts| amounts.iter()) {
            if let Some(amount) = resource_amounts::amount(Some(amount)).filter(|amount| amount.as_i64() < 0)
            {
                let text = "must be a valid resource quantity";
                errors.push(FieldError::invalid(path.key(name), amount.as_i64(), text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{creates, prints, refuses, updates};
    use super::PERSISTENTVOLUMECLAIMS;

    #[test]
    fn cells() {
        prints(
            &PERSISTENTVOLUMECLAIMS,
            r#"{"metadata":{"name":"c"},"spec":{"volumeName":"v","storageClassName":"s","accessModes":["ReadWriteOnce"]},
                "status":{"phase":"Bound","capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"]}}"#,
            "c|Bound|v|1Gi|RWO|s|<unset>|<unknown>|<unset>",
        );
        prints(
            &PERSISTENTVOLUMECLAIMS,
            r#"{"metadata":{"name":"c"},"status":{"phase":"Pending"}}"#,
            "c|Pending|||||<unset>|<unknown>|<unset>",
        );
    }

    #[test]
    fn claims_do_not_shrink_below_what_they_have() {
        let claim = |size: &str| {
            format!(
                r#"{{"spec":{{"accessModes":["ReadWriteOnce"],"volumeName":"v","resources":{{"requests":{{"storage":"{size}"}}}}}},
                    "status":{{"phase":"Bound","capacity":{{"storage":"5Gi"}}}}}}"#
            )
        };
        let refused =
            "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity";
        refuses(&PERSISTENTVOLUMECLAIMS, &claim("12Gi"), Some(&claim("10Gi")), &[]);
        refuses(&PERSISTENTVOLUMECLAIMS, &claim("6Gi"), Some(&claim("10Gi")), &[]);
        refuses(&PERSISTENTVOLUMECLAIMS, &claim("5Gi"), Some(&claim("10Gi")), &[refused]);
        refuses(&PERSISTENTVOLUMECLAIMS, &claim("1Gi"), Some(&claim("5Gi")), &[refused]);
    }

    #[test]
    fn sources() {
        creates(
            &PERSISTENTVOLUMECLAIMS,
            r#"{"spec":{"dataSource":{"kind":"PersistentVolumeClaim","name":"x"}}}"#,
            r#"{"spec":{"dataSource":{"kind":"PersistentVolumeClaim","name":"x"},"dataSourceRef":{"kind":"PersistentVolumeClaim","name":"x"}},"status":{"phase":"Pending"}}"#,
        );
        creates(
            &PERSISTENTVOLUMECLAIMS,
            r#"{"spec":{"dataSource":{"kind":"Pod"}}}"#,
            r#"{"spec":{},"status":{"phase":"Pending"}}"#,
        );
        updates(
            &PERSISTENTVOLUMECLAIMS,
            r#"{"spec":{"dataSourceRef":{"kind":"Any","apiGroup":"g","name":"x"}}}"#,
            "{}",
            r#"{"spec":{"dataSource":{"kind":"Any","apiGroup":"g","name":"x"},"dataSourceRef":{"kind":"Any","apiGroup":"g","name":"x"}}}"#,
        );
    }

    #[test]
    fn checks() {
        refuses(
            &PERSISTENTVOLUMECLAIMS,
            r#"{"spec":{"accessModes":["ReadWriteOncePod","ReadWriteOnce","X"]}}"#,
            None,
            &[
                r#"spec.accessModes: Unsupported value: "X": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod""#,
                "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
                "spec.resources[storage]: Required value",
            ],
        );
        let claim = |phase: &str, size: &str, more: &str| {
            format!(
                r#"{{"spec":{{"accessModes":["ReadWriteOnce"],"resources":{{"requests":{{"storage":"{size}"}}}}{more}}},"status":{{"phase":"{phase}"}}}}"#
            )
        };
        let update = |new: &str, old: &str, expected: &[&str]| {
            refuses(&PERSISTENTVOLUMECLAIMS, new, Some(old), expected);
        };
        update(&claim("Bound", "2Gi", ""), &claim("Bound", "1Gi", ""), &[]);
        update(
            &claim("Pending", "1Gi", r#","volumeName":"v","storageClassName":"s""#),
            &claim("Pending", "1Gi", ""),
            &[],
        );
        update(
            &claim("Pending", "2Gi", ""),
            &claim("Pending", "1Gi", ""),
            &[
                "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName \
             for bound claims\n-resources: {\"requests\":{\"storage\":\"1Gi\"}}\n+resources: {\"requests\":{\"storage\":\"2Gi\"}}",
            ],
        );
        update(
            &claim("Bound", "1Gi", r#","volumeName":"w""#),
            &claim("Bound", "1Gi", r#","volumeName":"v""#),
            &[
                "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName \
             for bound claims\n-volumeName: \"v\"\n+volumeName: \"w\"",
            ],
        );
    }

    #[test]
    fn amounts() {
        refuses(
            &PERSISTENTVOLUMECLAIMS,
            r#"{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"0"}}}}"#,
            None,
            &[r#"spec.resources[storage]: Invalid value: "0": must be greater than zero"#],
        );
        refuses(
            &PERSISTENTVOLUMECLAIMS,
            r#"{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1"}},
                "dataSource":{"kind":"PersistentVolumeClaim","name":"a"},"dataSourceRef":{"kind":"PersistentVolumeClaim","name":"b"}}}"#,
            None,
            &["spec: Invalid value: {}: must match dataSourceRef"],
        );
    }
}
