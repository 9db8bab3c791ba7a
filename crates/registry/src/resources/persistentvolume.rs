//! Persistent volumes.

use polder_model::{FieldError, FieldPath, Object, Value};

use super::deprecations;
use super::{
    cells, checks, persistentvolumeclaim, pod_rules, resource_amounts, scheduling_rules, volume_rules,
};
use crate::behavior::{Behavior, Column, Print};

/// The annotation that named a class before the field did.
pub(super) const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Members of a spec that are no volume source; all others are.
const NO_SOURCE: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

pub(super) const PERSISTENTVOLUMES: Behavior = Behavior {
    resource: "persistentvolumes",
    delete_returns_object: true,
    columns: &[
        Column::NAME,
        Column::text("Capacity"),
        Column::text("Access Modes"),
        Column::text("Reclaim Policy"),
        Column::text("Status"),
        Column::text("Claim"),
        Column::text("StorageClass"),
        Column::text("VolumeAttributesClass"),
        Column::text("Reason"),
        Column::AGE,
        Column::text("VolumeMode").wide(),
    ],
    cells,
    prepare_create,
    validate,
    warnings: deprecations::volume,
    ..Behavior::PLAIN
};

fn cells(volume: &Value, print: &Print) -> Vec<Value> {
    let claim = volume.at(&["spec", "claimRef"]).filter(|claim| !claim.is_null());
    let claim =
        claim.map(|claim| format!("{}/{}", checks::text(claim, "namespace"), checks::text(claim, "name")));
    let set = |key: &str| volume.str_at(&["spec", key]).unwrap_or("<unset>").into();
    vec![
        cells::name(volume),
        cells::quantity(volume.at(&["spec", "capacity", "storage"])).into(),
        cells::access_modes(volume.array_at(&["spec", "accessModes"])).into(),
        cells::text(volume, &["spec", "persistentVolumeReclaimPolicy"]),
        phase(volume).into(),
        claim.unwrap_or_default().into(),
        class(volume).into(),
        set("volumeAttributesClassName"),
        cells::text(volume, &["status", "reason"]),
        cells::age(volume, print),
        set("volumeMode"),
    ]
}

/// The phase, or that deletion is under way.
pub(super) fn phase(object: &Value) -> &str {
    if cells::is_terminating(object) {
        return "Terminating";
    }
    object.str_at(&["status", "phase"]).unwrap_or_default()
}

/// The storage class, by annotation or field.
pub(super) fn class(object: &Value) -> &str {
    object
        .str_at(&["metadata", "annotations", CLASS_ANNOTATION])
        .or_else(|| object.str_at(&["spec", "storageClassName"]))
        .unwrap_or_default()
}

fn prepare_create(volume: &mut Value) {
    if volume.as_object().is_none() {
        return;
    }
    let mut status = Object::new();
    status.insert("phase", "Pending");
    if let Some(now) = volume.at(&["metadata", "creationTimestamp"]) {
        status.insert("lastPhaseTransitionTime", now.clone());
    }
    volume.set_at(&["status"], status);
}

fn sources(spec: &Value) -> Object {
    let members = spec.as_object().into_iter().flat_map(|spec| spec.iter());
    members
        .filter(|(key, value)| !NO_SOURCE.contains(&key.as_str()) && !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let modes_path = path.member("accessModes");
    if spec.array_at(&["accessModes"]).is_empty() {
        errors.push(FieldError::required(modes_path, ""));
    }
    persistentvolumeclaim::validate_access_modes(spec, &modes_path, errors);
    let capacity = spec.get("capacity").and_then(Value::as_object);
    if capacity.is_none_or(Object::is_empty) {
        errors.push(FieldError::required(path.member("capacity"), ""));
    }
    if capacity.is_none_or(|capacity| capacity.len() > 1 || !capacity.contains_key("storage")) {
        let value = spec.get("capacity").cloned().unwrap_or_default();
        errors.push(FieldError::not_supported(path.member("capacity"), value, ["storage"]));
    }
    for (name, amount) in capacity.into_iter().flat_map(Object::iter) {
        let path = path.member("capacity");
        let path = path.key(name);
        if let Some(amount) = resource_amounts::amount(Some(amount)).filter(|amount| amount.as_i64() < 0) {
            let text = "must be a valid resource quantity";
            errors.push(FieldError::invalid(path, amount.as_i64(), text));
        }
        resource_amounts::positive(Some(amount), &path, errors);
    }
    let policies = ["Delete", "Recycle", "Retain"];
    checks::one_of_required(spec, "persistentVolumeReclaimPolicy", &policies, &path, errors);
    let sources = sources(spec);
    for key in sources.keys().skip(1) {
        errors.push(FieldError::forbidden(path.member(key), "may not specify more than 1 volume type"));
    }
    if sources.is_empty() {
        errors.push(FieldError::required(path, "must specify a volume type"));
    }
    if let Some(affinity) = checks::some(spec, "nodeAffinity") {
        let path = path.member("nodeAffinity");
        match checks::some(affinity, "required") {
            Some(required) => scheduling_rules::node_selector(required, &path.member("required"), errors),
            None => {
                let text = "must specify required node constraints";
                errors.push(FieldError::required(path.member("required"), text));
            }
        }
    }
    for (kind, source) in sources.iter().take(1) {
        volume_rules::validate_persistent(kind, source, &path, errors);
    }
    if sources.get("hostPath").is_some_and(|source| checks::text(source, "path") == "/")
        && checks::text(spec, "persistentVolumeReclaimPolicy") == "Recycle"
    {
        let text = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(FieldError::forbidden(path.member("persistentVolumeReclaimPolicy"), text));
    }
    if sources.contains_key("local") && checks::some(spec, "nodeAffinity").is_none() {
        let text = "Local volume requires node affinity";
        errors.push(FieldError::required(path.member("nodeAffinity"), text));
    }
    persistentvolumeclaim::validate_class_and_mode(spec, &path, errors);
    if !checks::text(spec, "volumeAttributesClassName").is_empty() && !sources.contains_key("csi") {
        let text = "has to be specified when using volumeAttributesClassName";
        errors.push(FieldError::required(path.member("csi"), text));
    }
    if let Some(old) = old.and_then(|old| old.get("spec")) {
        validate_update(spec, old, errors);
    }
}

fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (mut new_sources, old_sources) = (Value::Object(sources(new)), Value::Object(sources(old)));
    // The secret for expansion may come later.
    let expand = ["csi", "controllerExpandSecretRef"];
    if old_sources.get("csi").is_some() && old_sources.at(&expand).is_none() {
        new_sources.remove_at(&expand);
    }
    if new_sources != old_sources {
        let changed = pod_rules::changed_members(&new_sources, &old_sources);
        let text = format!("spec.persistentvolumesource is immutable after creation\n{changed}");
        errors.push(FieldError::forbidden("spec.persistentvolumesource", text));
    }
    checks::immutable(new, old, "volumeMode", &FieldPath::ROOT, errors);
    if checks::some(old, "nodeAffinity").is_some() {
        checks::immutable(new, old, "nodeAffinity", &FieldPath::ROOT, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{creates, prints, refuses};
    use super::PERSISTENTVOLUMES;

    #[test]
    fn cells() {
        prints(
            &PERSISTENTVOLUMES,
            r#"{"metadata":{"name":"p"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteMany","ReadWriteOnce","ReadWriteOnce"],
                "persistentVolumeReclaimPolicy":"Retain","claimRef":{"namespace":"n","name":"c"},"storageClassName":"s","volumeMode":"Block"},
                "status":{"phase":"Bound","reason":"r"}}"#,
            "p|1Gi|RWO,RWX|Retain|Bound|n/c|s|<unset>|r|<unknown>|Block",
        );
        prints(
            &PERSISTENTVOLUMES,
            r#"{"metadata":{"deletionTimestamp":"x"}}"#,
            "|0|||Terminating|||<unset>||<unknown>|<unset>",
        );
    }

    #[test]
    fn new_ones_are_pending() {
        creates(
            &PERSISTENTVOLUMES,
            r#"{"metadata":{"creationTimestamp":"T"},"status":{"phase":"Bound"}}"#,
            r#"{"metadata":{"creationTimestamp":"T"},"status":{"phase":"Pending","lastPhaseTransitionTime":"T"}}"#,
        );
    }

    #[test]
    fn checks() {
        refuses(
            &PERSISTENTVOLUMES,
            "{}",
            None,
            &[
                "spec.accessModes: Required value",
                "spec.capacity: Required value",
                r#"spec.capacity: Unsupported value: null: supported values: "storage""#,
                "spec: Required value: must specify a volume type",
            ],
        );
        let volume = |more: &str| {
            format!(r#"{{"spec":{{"accessModes":["ReadWriteOnce"],"capacity":{{"storage":"1"}},{more}}}}}"#)
        };
        refuses(
            &PERSISTENTVOLUMES,
            r#"{"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"0"},"hostPath":{"path":"/"},"nodeAffinity":{},
                "persistentVolumeReclaimPolicy":"Recycle","volumeAttributesClassName":"v"}}"#,
            None,
            &[
                r#"spec.capacity[storage]: Invalid value: "0": must be greater than zero"#,
                "spec.nodeAffinity.required: Required value: must specify required node constraints",
                "spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'",
                "spec.csi: Required value: has to be specified when using volumeAttributesClassName",
            ],
        );
        refuses(
            &PERSISTENTVOLUMES,
            &volume(r#""local":{},"nfs":{},"volumeMode":"X""#),
            None,
            &[
                "spec.nfs: Forbidden: may not specify more than 1 volume type",
                "spec.nodeAffinity: Required value: Local volume requires node affinity",
                r#"spec.volumeMode: Unsupported value: "X": supported values: "Block", "Filesystem""#,
            ],
        );
        refuses(
            &PERSISTENTVOLUMES,
            &volume(r#""nfs":{"server":"s","path":"/b"}"#),
            Some(&volume(r#""nfs":{"server":"s","path":"/a"}"#)),
            &[
                "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n\
             -nfs: {\"path\":\"/a\",\"server\":\"s\"}\n+nfs: {\"path\":\"/b\",\"server\":\"s\"}",
            ],
        );
    }
}
