//! Defaults of pod specs that depend on other fields, shared by pods and every kind with a pod template.
//!
//! What does not depend on anything (restart policy, DNS policy, ...) is in the schema. Defaults that only a pod gets
//! and its template does not are in [`default_pod`].

use polder_model::quantity::Quantity;
use polder_model::{Object, Value, json};

const CONTAINER_LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Fills in a pod spec, of a pod or of a template.
pub(super) fn default_pod_spec(spec: &mut Value) {
    let Some(spec) = spec.as_object_mut() else { return };
    default_service_account(spec);
    for list in CONTAINER_LISTS {
        each(spec.get_mut(list), default_container);
    }
    each(spec.get_mut("volumes"), default_volume);
}

/// Fills in the pod spec at a path, if there is one.
pub(super) fn default_template(object: &mut Value, path: &[&str]) {
    if let Some(spec) = object.at_mut(path) {
        default_pod_spec(spec);
    }
}

/// What a pod gets beyond its template: requests from limits, host ports.
pub(super) fn default_pod(pod: &mut Value) {
    let Some(spec) = pod.at_mut(&["spec"]) else { return };
    default_pod_spec(spec);
    if spec.i64_at(&["terminationGracePeriodSeconds"]).is_some_and(|seconds| seconds < 0) {
        spec.set_at(&["terminationGracePeriodSeconds"], 1);
    }
    let host_network = spec.get("hostNetwork").and_then(Value::as_bool) == Some(true);
    let Some(spec) = spec.as_object_mut() else { return };
    for list in ["containers", "initContainers"] {
        each(spec.get_mut(list), |container| {
            if let Some(resources) = container.get_mut("resources") {
                default_requests(resources);
            }
            if host_network {
                each(container.get_mut("ports"), default_host_port);
            }
        });
    }
    if let Some(resources) = spec.get_mut("resources") {
        default_requests(resources);
    }
}

/// `serviceAccount` is the old name of `serviceAccountName`; both are always shown.
fn default_service_account(spec: &mut Object) {
    let new = spec.str("serviceAccountName").filter(|name| !name.is_empty());
    let name = new.or_else(|| spec.str("serviceAccount").filter(|name| !name.is_empty())).map(str::to_owned);
    match name {
        Some(name) => {
            spec.insert("serviceAccountName", name.as_str());
            spec.insert("serviceAccount", name);
        }
        None => {
            spec.remove("serviceAccount");
        }
    }
}

fn default_container(container: &mut Object) {
    if is_unset(container.get("imagePullPolicy")) {
        let policy = pull_policy(container.str("image").unwrap_or_default());
        container.insert("imagePullPolicy", policy);
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            default_http_get(probe);
            default_zeros(probe);
        }
    }
    each(container.get_mut("env"), |variable| {
        if let Some(source) = variable.get_mut("valueFrom").and_then(Value::as_object_mut) {
            default_divisor(source);
        }
    });
    if let Some(resources) = container.get_mut("resources") {
        round_amounts(resources);
    }
    for hook in ["postStart", "preStop"] {
        if let Some(hook) = container.get_mut("lifecycle").and_then(|lifecycle| lifecycle.at_mut(&[hook])) {
            default_http_get(hook);
        }
    }
}

/// A reference to a resource always shows its divisor; zero means one.
fn default_divisor(holder: &mut Object) {
    if let Some(reference) = holder.get_mut("resourceFieldRef").and_then(Value::as_object_mut)
        && is_unset(reference.get("divisor"))
    {
        reference.insert("divisor", "0");
    }
}

/// Amounts finer than a thousandth are rounded up to one.
fn round_amounts(resources: &mut Value) {
    for list in ["limits", "requests"] {
        let Some(amounts) = resources.at_mut(&[list]).and_then(Value::as_object_mut) else { continue };
        for (_, amount) in amounts.iter_mut() {
            if let Ok(exact) = Quantity::from_value(amount) {
                let rounded = Quantity::from_milli(exact.as_milli());
                if exact.as_milli() != i64::MAX && rounded != exact {
                    *amount = rounded.to_string().into();
                }
            }
        }
    }
}

/// Numbers of a probe for which zero means the default.
fn default_zeros(probe: &mut Value) {
    for (key, default) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if probe.i64_at(&[key]) == Some(0) {
            probe.set_at(&[key], default);
        }
    }
}

fn default_http_get(handler: &mut Value) {
    let Some(get) = handler.at_mut(&["httpGet"]).and_then(Value::as_object_mut) else { return };
    for (key, value) in [("path", "/"), ("scheme", "HTTP")] {
        if is_unset(get.get(key)) {
            get.insert(key, value);
        }
    }
}

fn default_volume(volume: &mut Object) {
    let has_source = volume.iter().any(|(key, value)| key != "name" && !value.is_null());
    if !has_source {
        volume.insert("emptyDir", json!({}));
    }
    if let Some(files) = volume.get_mut("downwardAPI").and_then(Value::as_object_mut) {
        each(files.get_mut("items"), default_divisor);
    }
    if let Some(projected) = volume.get_mut("projected").and_then(Value::as_object_mut) {
        each(projected.get_mut("sources"), |source| {
            if let Some(files) = source.get_mut("downwardAPI").and_then(Value::as_object_mut) {
                each(files.get_mut("items"), default_divisor);
            }
        });
    }
    if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut)
        && is_unset(image.get("pullPolicy"))
    {
        let policy = pull_policy(image.str("reference").unwrap_or_default());
        image.insert("pullPolicy", policy);
    }
}

/// A resource with a limit and no request requests its limit.
fn default_requests(resources: &mut Value) {
    let Some(resources) = resources.as_object_mut() else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object) else { return };
    let limits = limits.clone();
    let requests = resources.get_or_insert("requests");
    if requests.is_null() {
        *requests = Value::Object(Object::new());
    }
    let Some(requests) = requests.as_object_mut() else { return };
    for (name, limit) in limits {
        if !requests.contains_key(&name) {
            requests.insert(name, limit);
        }
    }
}

fn default_host_port(port: &mut Object) {
    if port.get("hostPort").and_then(Value::as_i64).unwrap_or_default() == 0
        && let Some(container_port) = port.get("containerPort").cloned()
    {
        port.insert("hostPort", container_port);
    }
}

/// `Always` for `latest`, said or meant; `IfNotPresent` for all else, also for what is no image name.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let path_start = name.rfind('/').map_or(0, |slash| slash + 1);
    let (repository, tag) = match name[path_start..].split_once(':') {
        Some((last, tag)) => (&name[..path_start + last.len()], Some(tag)),
        None => (name, None),
    };
    let latest = match (tag, digest) {
        (Some(tag), _) => tag == "latest",
        (None, digest) => digest.is_none(),
    };
    if latest && is_repository(repository) { "Always" } else { "IfNotPresent" }
}

fn is_repository(repository: &str) -> bool {
    let path = match repository.split_once('/') {
        Some((domain, path))
            if domain.contains(['.', ':']) || domain == "localhost" || domain.to_lowercase() != domain =>
        {
            path
        }
        _ => repository,
    };
    let is_component = |component: &str| {
        let edge =
            |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let inner = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-')
        };
        edge(component.bytes().next()) && edge(component.bytes().last()) && component.bytes().all(inner)
    };
    let is_identifier = repository.len() == 64 && repository.bytes().all(|byte| byte.is_ascii_hexdigit());
    path.split('/').all(is_component) && !is_identifier
}

fn is_unset(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(value) => value.as_str() == Some(""),
    }
}

fn each(list: Option<&mut Value>, mut change: impl FnMut(&mut Object)) {
    for item in list.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(item) = item.as_object_mut() {
            change(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_policies() {
        let rows = [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1", "IfNotPresent"),
            ("host:5000/nginx", "Always"),
            ("host:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:aa", "IfNotPresent"),
            ("nginx:latest@sha256:aa", "Always"),
            ("Host.example/nginx", "Always"),
            ("", "IfNotPresent"),
            ("Nginx", "IfNotPresent"),
            ("a/", "IfNotPresent"),
        ];
        for (image, policy) in rows {
            assert_eq!(pull_policy(image), policy, "{image:?}");
        }
    }
}
