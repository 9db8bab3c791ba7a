//! Checks of what a pod may ask for on the operating system it names.

use polder_model::{FieldError, FieldPath, Value};

use super::checks::{Errors, same, some, text};

const SYSTEMS: [&str; 2] = ["linux", "windows"];

/// What Windows does not have, with whether it stands in the security context or beside it.
const LINUX_POD: [(&str, bool); 15] = [
    ("appArmorProfile", true),
    ("seLinuxOptions", true),
    ("hostUsers", false),
    ("hostPID", false),
    ("hostIPC", false),
    ("seccompProfile", true),
    ("fsGroup", true),
    ("fsGroupChangePolicy", true),
    ("sysctls", true),
    ("shareProcessNamespace", false),
    ("runAsUser", true),
    ("runAsGroup", true),
    ("supplementalGroups", true),
    ("supplementalGroupsPolicy", true),
    ("seLinuxChangePolicy", true),
];
const LINUX_CONTAINER: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// Checks `os` and, if it names a system, that nothing in the spec belongs to another.
pub(super) fn validate(spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let Some(os) = some(spec, "os") else { return };
    match text(os, "name") {
        "" => errors.push(FieldError::required(path.member("os").member("name"), "")),
        "linux" => {
            refuse(
                spec,
                &[("windowsOptions", true)],
                "windows options cannot be set for a linux pod",
                path,
                errors,
            );
            in_containers(
                spec,
                &["windowsOptions"],
                "windows options cannot be set for a linux pod",
                path,
                errors,
            );
        }
        "windows" => {
            refuse(spec, &LINUX_POD, "cannot be set for a windows pod", path, errors);
            in_containers(spec, &LINUX_CONTAINER, "cannot be set for a windows pod", path, errors);
        }
        other => errors.push(FieldError::not_supported(path.member("os"), other, SYSTEMS)),
    }
}

fn refuse(spec: &Value, fields: &[(&str, bool)], why: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    let context_path = path.member("securityContext");
    let context = some(spec, "securityContext").unwrap_or(&Value::Null);
    for (key, in_context) in fields {
        let (holder, holder_path) = if *in_context { (context, &context_path) } else { (spec, path) };
        // Whether the host's processes are shared is a plain flag: `false` is as good as nothing.
        let off =
            ["hostPID", "hostIPC"].contains(key) && holder.get(key).and_then(Value::as_bool) == Some(false);
        if !off && !same(holder.get(key), None) {
            errors.push(FieldError::forbidden(holder_path.member(key), why));
        }
    }
}

fn in_containers(spec: &Value, fields: &[&str], why: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let list_path = path.member(list);
        for (index, container) in spec.array_at(&[list]).iter().enumerate() {
            let path = list_path.index(index);
            let path = path.member("securityContext");
            let context = some(container, "securityContext").unwrap_or(&Value::Null);
            for key in fields.iter().filter(|key| some(context, key).is_some()) {
                errors.push(FieldError::forbidden(path.member(key), why));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::parse;
    use super::*;

    #[test]
    fn systems() {
        let rows: &[(&str, &[&str])] = &[
            (r#"{"os":{"name":"linux"},"securityContext":{"runAsUser":1}}"#, &[]),
            (r#"{"os":{}}"#, &["s.os.name: Required value"]),
            (
                r#"{"os":{"name":"mac"}}"#,
                &[r#"s.os: Unsupported value: "mac": supported values: "linux", "windows""#],
            ),
            (
                r#"{"os":{"name":"windows"},"hostPID":true,"hostIPC":false,"securityContext":{"runAsUser":1},"containers":[{"securityContext":{"privileged":false}}]}"#,
                &[
                    "s.hostPID: Forbidden: cannot be set for a windows pod",
                    "s.securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
                    "s.containers[0].securityContext.privileged: Forbidden: cannot be set for a windows pod",
                ],
            ),
            (
                r#"{"os":{"name":"linux"},"securityContext":{"windowsOptions":{"hostProcess":true}}}"#,
                &[
                    "s.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
                ],
            ),
        ];
        for (spec, expected) in rows {
            let mut errors = Errors::new();
            validate(&parse(spec), &FieldPath::root("s"), &mut errors);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, *expected, "{spec}");
        }
    }
}
