//! Checks of one container: name, image, ports, environment, mounts, resources, probes.

use std::collections::HashSet;

use polder_model::{FieldError, FieldPath, Value};

use super::{checks, resource_names};

/// Checks a container of any list. `volumes` are the pod's volume names.
pub(super) fn validate(
    container: &Value,
    volumes: &HashSet<&str>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    checks::name_label(container, path, errors);
    if checks::text(container, "image").is_empty() {
        errors.push(FieldError::required(path.member("image"), ""));
    }
    let termination = ["File", "FallbackToLogsOnError"];
    checks::one_of_required(container, "terminationMessagePolicy", &termination, path, errors);
    ports(container, &path.member("ports"), errors);
    env(container, &path.member("env"), errors);
    env_from(container, &path.member("envFrom"), errors);
    mounts(container, volumes, &path.member("volumeMounts"), errors);
    checks::one_of_required(container, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], path, errors);
    if let Some(resources) = container.get("resources") {
        resource_names::requirements(resources, &path.member("resources"), errors);
    }
    if let Some(policy) = container.get("restartPolicy").and_then(Value::as_str) {
        let supported = ["Always", "Never", "OnFailure"];
        if !supported.contains(&policy) {
            errors.push(FieldError::not_supported(path.member("restartPolicy"), policy, supported));
        }
    }
}

/// Checks probes and hooks, which ordinary containers and sidecars may have.
pub(super) fn validate_handlers(container: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for hook in ["postStart", "preStop"] {
        if let Some(handler) = container.at(&["lifecycle", hook]).filter(|handler| !handler.is_null()) {
            handler_rules(handler, &path.member("lifecycle").member(hook), errors);
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = checks::some(container, key) else { continue };
        let path = path.member(key);
        handler_rules(probe, &path, errors);
        let numbers = [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ];
        checks::not_negative(probe, &numbers, &path, errors);
        let grace = probe.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
        let grace_path = path.member("terminationGracePeriodSeconds");
        if let Some(grace) = grace.filter(|grace| *grace <= 0) {
            errors.push(FieldError::invalid(grace_path, grace, "must be greater than 0"));
        }
        if key == "readinessProbe" {
            if let Some(grace) = grace {
                let text = "must not be set for readinessProbes";
                errors.push(FieldError::invalid(grace_path, grace, text));
            }
        } else if let Some(threshold) =
            probe.get("successThreshold").and_then(Value::as_i64).filter(|threshold| *threshold > 1)
        {
            errors.push(FieldError::invalid(path.member("successThreshold"), threshold, "must be 1"));
        }
    }
}

fn handler_rules(handler: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut found = false;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let Some(action) = checks::some(handler, kind) else { continue };
        let path = path.member(kind);
        if found {
            errors.push(FieldError::forbidden(path, "may not specify more than 1 handler type"));
            continue;
        }
        found = true;
        match kind {
            "exec" if action.array_at(&["command"]).is_empty() => {
                errors.push(FieldError::required(path.member("command"), ""));
            }
            "httpGet" => {
                checks::port_or_name(action.get("port"), &path.member("port"), errors);
                checks::one_of_required(action, "scheme", &["HTTP", "HTTPS"], &path, errors);
            }
            "tcpSocket" | "grpc" => checks::port_or_name(action.get("port"), &path.member("port"), errors),
            _ => {}
        }
    }
    if !found {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}

fn ports(container: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for (index, port) in container.array_at(&["ports"]).iter().enumerate() {
        let path = path.index(index);
        let name = checks::text(port, "name");
        if !name.is_empty() {
            let before = errors.len();
            checks::port_name(name, &path.member("name"), errors);
            if errors.len() == before && !names.insert(name) {
                errors.push(FieldError::duplicate(path.member("name"), name));
            }
        }
        match port.get("containerPort").and_then(Value::as_i64).unwrap_or_default() {
            0 => errors.push(FieldError::required(path.member("containerPort"), "")),
            number => checks::port_number(number, &path.member("containerPort"), errors),
        }
        match port.get("hostPort").and_then(Value::as_i64).unwrap_or_default() {
            0 => {}
            number => checks::port_number(number, &path.member("hostPort"), errors),
        }
        checks::one_of_required(port, "protocol", &checks::PROTOCOLS, &path, errors);
    }
}

fn env_name(name: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let allowed = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b'=';
    if !name.bytes().all(allowed) {
        let text = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        errors.push(FieldError::invalid(path, name, text));
    }
}

fn env(container: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for (index, variable) in container.array_at(&["env"]).iter().enumerate() {
        let path = path.index(index);
        match checks::text(variable, "name") {
            "" => errors.push(FieldError::required(path.member("name"), "")),
            name => env_name(name, &path.member("name"), errors),
        }
        let Some(from) = checks::some(variable, "valueFrom") else { continue };
        let sources = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
        let from_path = path.member("valueFrom");
        for key in ["configMapKeyRef", "secretKeyRef"] {
            if let Some(reference) = checks::some(from, key)
                && checks::text(reference, "key").is_empty()
            {
                errors.push(FieldError::required(from_path.member(key).member("key"), ""));
            }
        }
        let found = sources.iter().filter(|source| checks::some(from, source).is_some()).count();
        let text = match found {
            0 => {
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
            }
            _ if !checks::text(variable, "value").is_empty() => {
                "may not be specified when `value` is not empty"
            }
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        errors.push(FieldError::invalid(from_path, "", text));
    }
}

fn env_from(container: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for (index, source) in container.array_at(&["envFrom"]).iter().enumerate() {
        env_name(checks::text(source, "prefix"), &path.index(index).member("prefix"), errors);
        let found =
            ["configMapRef", "secretRef"].iter().filter(|key| checks::some(source, key).is_some()).count();
        match found {
            0 => errors.push(FieldError::invalid(
                path,
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            )),
            1 => {}
            _ => errors.push(FieldError::invalid(
                path,
                "",
                "may not have more than one field specified at a time",
            )),
        }
    }
}

fn mounts(container: &Value, volumes: &HashSet<&str>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut mount_paths = HashSet::new();
    for (index, mount) in container.array_at(&["volumeMounts"]).iter().enumerate() {
        let item = path.index(index);
        let name = checks::text(mount, "name");
        if name.is_empty() {
            errors.push(FieldError::required(item.member("name"), ""));
        }
        if !volumes.contains(name) {
            errors.push(FieldError::not_found(item.member("name"), name));
        }
        let mount_path = checks::text(mount, "mountPath");
        if mount_path.is_empty() {
            errors.push(FieldError::required(item.member("mountPath"), ""));
        }
        if !mount_paths.insert(mount_path) {
            errors.push(FieldError::invalid(item.member("mountPath"), mount_path, "must be unique"));
        }
        for key in ["subPath", "subPathExpr"] {
            descending_path(checks::text(mount, key), &path.member(key), errors);
        }
        if !checks::text(mount, "subPath").is_empty() && !checks::text(mount, "subPathExpr").is_empty() {
            errors.push(FieldError::invalid(
                item.member("subPathExpr"),
                checks::text(mount, "subPathExpr"),
                "subPathExpr and subPath are mutually exclusive",
            ));
        }
    }
}

/// A path below another one: relative, never upwards.
pub(super) fn descending_path(target: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if target.starts_with('/') {
        errors.push(FieldError::invalid(path, target, "must be a relative path"));
    }
    if target.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(path, target, "must not contain '..'"));
    }
}
