//! Checks of pods beyond their spec: creation, and the few fields that may change later.

use std::collections::{HashMap, HashSet};

use polder_model::{FieldError, FieldPath, Value};

use super::checks;
use super::pod_spec_rules::{self, Surroundings};

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Checks that always apply.
pub(super) fn validate(pod: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let Some(spec) = pod.get("spec") else {
        errors.push(FieldError::required(path.member("containers"), ""));
        return;
    };
    pod_spec_rules::validate(spec, Surroundings { is_pod: true, ..Surroundings::default() }, &path, errors);
    tokens(spec, &path.member("volumes"), errors);
    for list in ["containers", "initContainers"] {
        let list_path = path.member(list);
        for (index, container) in spec.array_at(&[list]).iter().enumerate() {
            let image = checks::text(container, "image");
            if image.trim() != image {
                let text = "must not have leading or trailing whitespace";
                errors.push(FieldError::invalid(list_path.index(index).member("image"), image, text));
            }
        }
    }
}

/// Tokens are those of the pod's service account, so there must be one.
fn tokens(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if !checks::text(spec, "serviceAccountName").is_empty() {
        return;
    }
    for (index, volume) in spec.array_at(&["volumes"]).iter().enumerate() {
        let path = path.index(index);
        let path = path.member("projected");
        let path = path.member("sources");
        for (index, source) in volume.array_at(&["projected", "sources"]).iter().enumerate() {
            if checks::some(source, "serviceAccountToken").is_some() {
                let path = path.index(index);
                let text = "must not be specified when serviceAccountName is not set";
                errors.push(FieldError::forbidden(path.member("serviceAccountToken"), text));
            }
        }
    }
}

/// Checks of a new pod.
pub(super) fn validate_create(pod: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if !pod.array_at(&["spec", "ephemeralContainers"]).is_empty() {
        errors.push(FieldError::forbidden(path.member("ephemeralContainers"), "cannot be set on create"));
    }
    if pod.str_at(&["spec", "nodeName"]).is_some_and(|name| !name.is_empty())
        && !pod.array_at(&["spec", "schedulingGates"]).is_empty()
    {
        let text = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden(path.member("nodeName"), text));
    }
}

/// Checks what changed. Ephemeral containers and resources have subresources of their own, whose callers pass them
/// as they were.
pub(super) fn validate_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let (Some(new), Some(old)) = (new.get("spec"), old.get("spec")) else { return };
    for list in ["containers", "initContainers"] {
        if new.array_at(&[list]).len() != old.array_at(&[list]).len() {
            errors.push(FieldError::forbidden(
                path.member(list),
                "pod updates may not add or remove containers",
            ));
            return;
        }
    }
    let deadline_path = path.member("activeDeadlineSeconds");
    let deadline = |spec: &Value| spec.get("activeDeadlineSeconds").and_then(Value::as_i64);
    match (deadline(new), deadline(old)) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.push(FieldError::invalid(
                deadline_path,
                new,
                "must be between 0 and 2147483647, inclusive",
            ));
            return;
        }
        (Some(new), Some(old)) if old < new => {
            errors.push(FieldError::invalid(
                deadline_path,
                new,
                "must be less than or equal to previous value",
            ));
            return;
        }
        (None, Some(_)) => errors.push(FieldError::invalid(
            deadline_path,
            Value::Null,
            "must not update from a positive integer to nil value",
        )),
        _ => {}
    }
    only_added_tolerations(new, old, &path, errors);
    only_removed_gates(new, old, &path, errors);
    if new == old {
        return;
    }
    let rest = with_updatable_fields_of(new, old);
    let changed = changed_members(&rest, old);
    if !changed.is_empty() {
        let text = format!("pod updates may not change fields other than {UPDATABLE}\n{changed}");
        errors.push(FieldError::forbidden(path, text));
    }
}

/// Whoever came to debug a pod stays as they came; others may come.
pub(super) fn validate_ephemeral(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let path = path.member("ephemeralContainers");
    let list = ["spec", "ephemeralContainers"];
    let named: HashMap<&str, &Value> =
        new.array_at(&list).iter().map(|container| (checks::text(container, "name"), container)).collect();
    for container in old.array_at(&list) {
        let name = checks::text(container, "name");
        let text = match named.get(name) {
            None => format!("existing ephemeral containers {name:?} may not be removed\n"),
            Some(now) if !checks::same(Some(now), Some(container)) => {
                let changed = changed_members(now, container);
                format!("existing ephemeral containers {name:?} may not be changed\n{changed}")
            }
            Some(_) => continue,
        };
        errors.push(FieldError::forbidden(path, text));
    }
}

fn only_added_tolerations(new: &Value, old: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    // Compared without their seconds, as text, so that long lists cost no square.
    let key = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.remove_at(&["tolerationSeconds"]);
        toleration.to_string()
    };
    let kept: HashSet<String> = new.array_at(&["tolerations"]).iter().map(key).collect();
    if old.array_at(&["tolerations"]).iter().any(|toleration| !kept.contains(&key(toleration))) {
        let text = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden(path.member("tolerations"), text));
    }
}

fn only_removed_gates(new: &Value, old: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let path = path.member("schedulingGates");
    let name = |gate: &'_ Value| checks::text(gate, "name").to_owned();
    let known: HashSet<String> = old.array_at(&["schedulingGates"]).iter().map(name).collect();
    for (index, gate) in new.array_at(&["schedulingGates"]).iter().enumerate() {
        let gate = name(gate);
        if !known.contains(&gate) {
            let text = format!("only deletion is allowed, but found new scheduling gate '{gate}'");
            errors.push(FieldError::forbidden(path.index(index).member("name"), text));
        }
    }
}

/// The new spec with everything that may change as it was, so that the rest can be compared.
fn with_updatable_fields_of(new: &Value, old: &Value) -> Value {
    let mut spec = new.clone();
    let mut copy = |path: &[&str]| match old.at(path) {
        Some(value) => spec.set_at(path, value.clone()),
        None => {
            spec.remove_at(path);
        }
    };
    copy(&["activeDeadlineSeconds"]);
    copy(&["schedulingGates"]);
    copy(&["tolerations"]);
    let grace = |spec: &Value| spec.i64_at(&["terminationGracePeriodSeconds"]);
    if grace(old).is_some_and(|grace| grace < 0) && grace(new) == Some(1) {
        copy(&["terminationGracePeriodSeconds"]);
    }
    if !old.array_at(&["schedulingGates"]).is_empty() {
        // Pods that are not yet to be scheduled may be pinned down further.
        let kept = old.get("nodeSelector").and_then(Value::as_object).is_none_or(|selector| {
            selector.iter().all(|(key, value)| new.at(&["nodeSelector", key]) == Some(value))
        });
        if kept {
            copy(&["nodeSelector"]);
        }
        copy(&["affinity", "nodeAffinity"]);
    }
    for list in ["containers", "initContainers"] {
        let old_items = old.array_at(&[list]);
        let items = spec.at_mut(&[list]).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, old) in items.zip(old_items) {
            match old.get("image") {
                Some(image) => container.set_at(&["image"], image.clone()),
                None => {
                    container.remove_at(&["image"]);
                }
            }
        }
    }
    if checks::same(spec.get("affinity"), None) && old.get("affinity").is_none() {
        spec.remove_at(&["affinity"]);
    }
    spec
}

/// A line for each member that differs, long values cut.
pub(super) fn changed_members(new: &Value, old: &Value) -> String {
    let shown = |value: Option<&Value>| {
        let text = value.map_or_else(|| "unset".into(), ToString::to_string);
        match text.char_indices().nth(200) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    };
    let members = |value: &'_ Value| -> Vec<String> {
        value.as_object().into_iter().flat_map(|object| object.keys().map(ToString::to_string)).collect()
    };
    let mut names = members(new);
    names.extend(members(old));
    names.sort_unstable();
    names.dedup();
    let mut lines = Vec::new();
    for name in names {
        let (new, old) = (new.get(&name), old.get(&name));
        if !checks::same(new, old) {
            lines.push(format!("-{name}: {}\n+{name}: {}", shown(old), shown(new)));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::pod::PODS;
    use super::super::rows::refuses;

    #[test]
    fn who_came_to_debug_stays() {
        let pod = |guests: &str| {
            let text = pod("", &format!(r#","ephemeralContainers":[{guests}]"#));
            let mut pod = super::super::rows::parse(&text);
            (PODS.default)(&mut pod);
            pod
        };
        let one = |name: &str, image: &str| {
            format!(r#"{{"name":"{name}","image":"{image}","terminationMessagePolicy":"File"}}"#)
        };
        let errors = |new: &str, old: &str| -> Vec<String> {
            let mut errors = Vec::new();
            (PODS.validate_part)("ephemeralcontainers", &pod(new), &pod(old), &mut errors);
            errors.iter().map(ToString::to_string).collect()
        };
        let (d, e) = (one("d", "i"), one("e", "i"));
        assert_eq!(errors(&format!("{e},{d}"), &d), [""; 0], "another one may come");
        assert_eq!(
            errors(&e, &d),
            ["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be removed\n"]
        );
        let changed = errors(&one("d", "other"), &d);
        let text =
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be changed\n";
        assert!(changed.len() == 1 && changed[0].starts_with(text), "{changed:?}");
        assert!(!errors(&one("", "i"), "").is_empty(), "who comes is looked at");
    }

    fn pod(container: &str, more: &str) -> String {
        format!(r#"{{"spec":{{"containers":[{{"name":"a","image":"i"{container}}}]{more}}}}}"#)
    }

    #[test]
    fn checks() {
        let rows: &[(String, &[&str])] = &[
            (pod("", ""), &[]),
            ("{}".into(), &["spec.containers: Required value"]),
            (r#"{"spec":{"containers":[{}]}}"#.into(), &[
                "spec.containers[0].name: Required value",
                "spec.containers[0].image: Required value",
            ]),
            (
                r#"{"spec":{"containers":[{"name":"a","image":"i"},{"name":"a","image":" i"}],"initContainers":[{"name":"a","image":"i","livenessProbe":{}}]}}"#
                    .into(),
                &[
                    r#"spec.containers[1].name: Duplicate value: "a""#,
                    r#"spec.initContainers[0].name: Duplicate value: "a""#,
                    "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
                    r#"spec.containers[1].image: Invalid value: " i": must not have leading or trailing whitespace"#,
                ],
            ),
            (
                pod(r#","volumeMounts":[{"name":"v","mountPath":"/a"},{"name":"w","mountPath":"/a","subPath":"../x"}]"#, r#","volumes":[{"name":"v"}]"#),
                &[
                    r#"spec.containers[0].volumeMounts[1].name: Not found: "w""#,
                    r#"spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique"#,
                    r#"spec.containers[0].volumeMounts.subPath: Invalid value: "../x": must not contain '..'"#,
                ],
            ),
            (
                pod("", r#","volumes":[{"name":"v","secret":{},"emptyDir":{}},{"name":"v","configMap":{}},{"name":"x"},{"name":"x"}]"#),
                &[
                    "spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type",
                    "spec.volumes[1].configMap.name: Required value",
                    r#"spec.volumes[3].name: Duplicate value: "x""#,
                ],
            ),
            (
                pod(r#","ports":[{"containerPort":70000},{"name":"A--","containerPort":1,"protocol":"X"},{}]"#, ""),
                &[
                    "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                    r#"spec.containers[0].ports[1].name: Invalid value: "A--": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"#,
                    r#"spec.containers[0].ports[1].name: Invalid value: "A--": must contain at least one letter (a-z)"#,
                    r#"spec.containers[0].ports[1].name: Invalid value: "A--": must not contain consecutive hyphens"#,
                    r#"spec.containers[0].ports[1].name: Invalid value: "A--": must not begin or end with a hyphen"#,
                    r#"spec.containers[0].ports[1].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP""#,
                    "spec.containers[0].ports[2].containerPort: Required value",
                ],
            ),
            (
                pod(r#","env":[{"name":"a=b"},{"name":"x","valueFrom":{}}],"resources":{"limits":{"gpu":"1"},"requests":{"example.com/gpu":"1"}}"#, r#","restartPolicy":"Sometimes""#),
                &[
                    r#"spec.containers[0].env[0].name: Invalid value: "a=b": a valid environment variable name must consist only of printable ASCII characters other than '='"#,
                    r#"spec.containers[0].env[1].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"#,
                    r#"spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified"#,
                    r#"spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource for containers"#,
                    "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
                    r#"spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified"#,
                    r#"spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource for containers"#,
                    r#"spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never""#,
                ],
            ),
            (
                pod(r#","livenessProbe":{"successThreshold":2,"periodSeconds":-1}"#, r#","tolerations":[{"operator":"Equal"}],"nodeName":"n","schedulingGates":[{"name":"g"}]"#),
                &[
                    "spec.containers[0].livenessProbe: Required value: must specify a handler type",
                    "spec.containers[0].livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
                    "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
                    r#"spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys""#,
                    "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
                ],
            ),
        ];
        for (pod, expected) in rows {
            refuses(&PODS, pod, None, expected);
        }
    }

    #[test]
    fn changes() {
        let old = pod("", r#","tolerations":[{"key":"k","operator":"Exists"}],"activeDeadlineSeconds":5"#);
        let update = |new: &str, expected: &[&str]| refuses(&PODS, new, Some(&old), expected);
        update(&old, &[]);
        update(
            r#"{"spec":{"containers":[{"name":"a","image":"other","imagePullPolicy":"Always"}],"activeDeadlineSeconds":4,
                "tolerations":[{"key":"k","operator":"Exists"},{"key":"l","operator":"Exists"}]}}"#,
            &[],
        );
        update(
            &pod("", r#","activeDeadlineSeconds":6,"tolerations":[]"#),
            &["spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous value"],
        );
        update(
            &pod("", ""),
            &[
                "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value",
                "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
            ],
        );
        update(
            &pod(
                "",
                r#","tolerations":[{"key":"k","operator":"Exists"}],"activeDeadlineSeconds":5,"nodeName":"x""#,
            ),
            &["spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
             tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n\
             -nodeName: unset\n+nodeName: \"x\""],
        );
        update(
            r#"{"spec":{"containers":[]}}"#,
            &[
                "spec.containers: Required value",
                "spec.containers: Forbidden: pod updates may not add or remove containers",
            ],
        );
    }
}
