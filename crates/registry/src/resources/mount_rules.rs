//! Checks of the volumes a container mounts or sees as block devices.
//!
//! Paths are upstream's, also where those lack the index.

use std::collections::HashSet;

use polder_model::{FieldError, FieldPath, Value};

use super::checks::{Errors, some, text};
use super::volume_rules::{Volumes, descending_path};

/// Checks `volumeMounts` and `volumeDevices`.
pub(super) fn validate(container: &Value, volumes: &Volumes<'_>, path: &FieldPath<'_>, errors: &mut Errors) {
    mounts(container, volumes, &path.member("volumeMounts"), errors);
    devices(container, volumes, &path.member("volumeDevices"), errors);
}

fn members<'a>(container: &'a Value, list: &str, key: &str) -> HashSet<&'a str> {
    container.array_at(&[list]).iter().map(|item| text(item, key)).collect()
}

fn mounts(container: &Value, volumes: &Volumes<'_>, path: &FieldPath<'_>, errors: &mut Errors) {
    let device_names = members(container, "volumeDevices", "name");
    let device_paths = members(container, "volumeDevices", "devicePath");
    let privileged = container.at(&["securityContext", "privileged"]).and_then(Value::as_bool) == Some(true);
    let mut taken = HashSet::new();
    for (index, mount) in container.array_at(&["volumeMounts"]).iter().enumerate() {
        let item = path.index(index);
        let (name, target) = (text(mount, "name"), text(mount, "mountPath"));
        let (name_path, target_path) = (item.member("name"), item.member("mountPath"));
        if name.is_empty() {
            errors.push(FieldError::required(name_path, ""));
        }
        if !volumes.contains_key(name) {
            errors.push(FieldError::not_found(name_path, name));
        }
        if target.is_empty() {
            errors.push(FieldError::required(target_path, ""));
        }
        if !taken.insert(target) {
            errors.push(FieldError::invalid(target_path, target, "must be unique"));
        }
        if device_names.contains(name) {
            errors.push(FieldError::invalid(name_path, name, "must not already exist in volumeDevices"));
        }
        if device_paths.contains(target) {
            let text = "must not already exist as a path in volumeDevices";
            errors.push(FieldError::invalid(target_path, target, text));
        }
        let (below, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
        descending_path(below, &path.member("subPath"), errors);
        if !below.is_empty() && !expression.is_empty() {
            let text = "subPathExpr and subPath are mutually exclusive";
            errors.push(FieldError::invalid(item.member("subPathExpr"), expression, text));
        }
        descending_path(expression, &path.member("subPathExpr"), errors);
        propagation(mount, privileged, &path.member("mountPropagation"), errors);
        recursion(mount, &path.member("recursiveReadOnly"), errors);
    }
}

fn propagation(mount: &Value, privileged: bool, path: &FieldPath<'_>, errors: &mut Errors) {
    let Some(mode) = some(mount, "mountPropagation").and_then(Value::as_str) else { return };
    let modes = ["Bidirectional", "HostToContainer", "None"];
    if !modes.contains(&mode) {
        errors.push(FieldError::not_supported(path, mode, modes));
    }
    if mode == "Bidirectional" && !privileged {
        let text = "Bidirectional mount propagation is available only to privileged containers";
        errors.push(FieldError::forbidden(path, text));
    }
}

fn recursion(mount: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    match some(mount, "recursiveReadOnly").and_then(Value::as_str) {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount.get("readOnly").and_then(Value::as_bool) != Some(true) {
                errors.push(FieldError::forbidden(path, "may only be specified when readOnly is true"));
            }
            if !["", "None"].contains(&text(mount, "mountPropagation")) {
                let text = "may only be specified when mountPropagation is None or not specified";
                errors.push(FieldError::forbidden(path, text));
            }
        }
        Some(other) => {
            errors.push(FieldError::not_supported(path, other, ["Disabled", "Enabled", "IfPossible"]));
        }
    }
}

fn devices(container: &Value, volumes: &Volumes<'_>, path: &FieldPath<'_>, errors: &mut Errors) {
    let mount_names = members(container, "volumeMounts", "name");
    let mount_paths = members(container, "volumeMounts", "mountPath");
    let (mut names, mut targets) = (HashSet::new(), HashSet::new());
    for (index, device) in container.array_at(&["volumeDevices"]).iter().enumerate() {
        let path = path.index(index);
        let (name_path, target_path) = (path.member("name"), path.member("devicePath"));
        let (name, target) = (text(device, "name"), text(device, "devicePath"));
        if name.is_empty() {
            errors.push(FieldError::required(name_path, ""));
        } else if !names.insert(name) {
            errors.push(FieldError::invalid(name_path, name, "must be unique"));
        }
        match volumes.get(name) {
            Some(true) => {}
            Some(false) => {
                let text =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(FieldError::invalid(name_path, name, text));
            }
            None => errors.push(FieldError::not_found(name_path, name)),
        }
        if target.is_empty() {
            errors.push(FieldError::required(target_path, ""));
        }
        if targets.contains(target) {
            errors.push(FieldError::invalid(target_path, target, "must be unique"));
        }
        if target.split('/').any(|part| part == "..") {
            errors.push(FieldError::invalid(target_path, target, "can not contain backsteps ('..')"));
        } else {
            targets.insert(target);
        }
        if mount_names.contains(name) {
            errors.push(FieldError::invalid(name_path, name, "must not already exist in volumeMounts"));
        }
        if mount_paths.contains(target) {
            let text = "must not already exist as a path in volumeMounts";
            errors.push(FieldError::invalid(target_path, target, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::parse;
    use super::*;

    #[test]
    fn mounts_and_devices() {
        let rows: &[(&str, &[&str])] = &[
            (
                r#"{"volumeMounts":[{"name":"v","mountPath":"/a"}],"volumeDevices":[{"name":"b","devicePath":"/b"}]}"#,
                &[],
            ),
            (
                r#"{"volumeMounts":[{"name":"v","mountPath":"/a","mountPropagation":"Bidirectional","recursiveReadOnly":"Enabled"}]}"#,
                &[
                    "c.volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
                    "c.volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
                    "c.volumeMounts.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified",
                ],
            ),
            (
                r#"{"volumeDevices":[{"name":"v","devicePath":"../a"},{"name":"b","devicePath":"/b"},{"name":"b","devicePath":"/b"}]}"#,
                &[
                    r#"c.volumeDevices[0].name: Invalid value: "v": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"#,
                    r#"c.volumeDevices[0].devicePath: Invalid value: "../a": can not contain backsteps ('..')"#,
                    r#"c.volumeDevices[2].name: Invalid value: "b": must be unique"#,
                    r#"c.volumeDevices[2].devicePath: Invalid value: "/b": must be unique"#,
                ],
            ),
            (
                r#"{"volumeDevices":[{"name":"b","devicePath":"/a"}],"volumeMounts":[{"name":"b","mountPath":"/a"}]}"#,
                &[
                    r#"c.volumeMounts[0].name: Invalid value: "b": must not already exist in volumeDevices"#,
                    r#"c.volumeMounts[0].mountPath: Invalid value: "/a": must not already exist as a path in volumeDevices"#,
                    r#"c.volumeDevices[0].name: Invalid value: "b": must not already exist in volumeMounts"#,
                    r#"c.volumeDevices[0].devicePath: Invalid value: "/a": must not already exist as a path in volumeMounts"#,
                ],
            ),
        ];
        let volumes = Volumes::from([("v", false), ("b", true)]);
        for (container, expected) in rows {
            let mut errors = Errors::new();
            validate(&parse(container), &volumes, &FieldPath::root("c"), &mut errors);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, *expected, "{container}");
        }
    }
}
