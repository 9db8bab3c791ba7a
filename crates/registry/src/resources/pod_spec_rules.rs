//! Checks of pod specs, shared by pods and every kind with a pod template.

use std::collections::HashSet;

use polder_model::names::{dns_subdomain_problem, label_value_problem};
use polder_model::{FieldError, FieldPath, Value};

use super::{addresses, checks, container_rules, label_selector};

/// What surrounds the pod spec.
#[derive(Clone, Copy, Default)]
pub(super) struct Surroundings<'a> {
    /// A pod, not a template.
    pub(super) is_pod: bool,
    /// Claim templates whose names are volumes too; they hide volumes of the same name.
    pub(super) claim_templates: &'a [Value],
    /// Host names are somebody else's to set.
    pub(super) names_hosts: bool,
}

/// Checks a template: labels and spec.
pub(super) fn validate_template(
    template: &Value,
    around: Surroundings<'_>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    checks::labels(template.at(&["metadata", "labels"]), &path.member("labels"), errors);
    let Some(spec) = template.get("spec") else {
        errors.push(FieldError::required(path.member("spec").member("containers"), ""));
        return;
    };
    validate(spec, around, &path.member("spec"), errors);
    if !spec.array_at(&["ephemeralContainers"]).is_empty() {
        let text = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(path.member("spec").member("ephemeralContainers"), text));
    }
}

/// A template of a controller that keeps pods running: restarts always, has no deadline.
pub(super) fn validate_running(
    template: &Value,
    kind: &str,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let path = path.member("spec");
    if let Some(policy) = template.str_at(&["spec", "restartPolicy"]).filter(|policy| *policy != "Always") {
        errors.push(FieldError::not_supported(path.member("restartPolicy"), policy, ["Always"]));
    }
    if template.at(&["spec", "activeDeadlineSeconds"]).is_some_and(|seconds| !seconds.is_null()) {
        let text = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden(path.member("activeDeadlineSeconds"), text));
    }
}

/// Checks a pod spec.
pub(super) fn validate(
    spec: &Value,
    around: Surroundings<'_>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let volumes = volumes(spec, around, &path.member("volumes"), errors);
    containers(spec, &volumes, path, errors);
    host_network_ports(spec, around.is_pod, path, errors);
    checks::one_of_required(spec, "restartPolicy", &["Always", "OnFailure", "Never"], path, errors);
    let dns_policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    checks::one_of_required(spec, "dnsPolicy", &dns_policies, path, errors);
    checks::labels(spec.get("nodeSelector"), &path.member("nodeSelector"), errors);
    for (index, gate) in spec.array_at(&["readinessGates"]).iter().enumerate() {
        let gate_path = path.member("readinessGates");
        let condition = checks::text(gate, "conditionType");
        checks::qualified_name(condition, &gate_path.index(index).member("conditionType"), errors);
    }
    scheduling_gates(spec, &path.member("schedulingGates"), errors);
    spread_constraints(spec, &path.member("topologySpreadConstraints"), errors);
    for key in ["serviceAccountName", "nodeName"] {
        subdomain(spec, key, path, errors);
    }
    if let Some(seconds) = spec.get("activeDeadlineSeconds").and_then(Value::as_i64)
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        let text = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(path.member("activeDeadlineSeconds"), seconds, text));
    }
    if !around.names_hosts {
        for key in ["hostname", "subdomain"] {
            if let Some(value) = spec.get(key).and_then(Value::as_str).filter(|value| !value.is_empty()) {
                checks::dns_label(value, &path.member(key), errors);
            }
        }
    }
    tolerations(spec, &path.member("tolerations"), errors);
    host_aliases(spec, &path.member("hostAliases"), errors);
    subdomain(spec, "priorityClassName", path, errors);
    subdomain(spec, "runtimeClassName", path, errors);
    checks::one_of_required(spec, "preemptionPolicy", &["PreemptLowerPriority", "Never"], path, errors);
}

fn subdomain(spec: &Value, key: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if let Some(value) = spec.get(key).and_then(Value::as_str).filter(|value| !value.is_empty())
        && let Some(problem) = dns_subdomain_problem(value)
    {
        errors.push(FieldError::invalid(path.member(key), value, problem));
    }
}

/// Sources in the order in which the first one counts.
const VOLUME_SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Checks volumes; the names of good ones come back.
fn volumes<'a>(
    spec: &'a Value,
    around: Surroundings<'a>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) -> HashSet<&'a str> {
    let mut names: HashSet<&str> =
        around.claim_templates.iter().filter_map(|template| template.str_at(&["metadata", "name"])).collect();
    let templates = names.clone();
    for (index, volume) in spec.array_at(&["volumes"]).iter().enumerate() {
        let path = path.index(index);
        let name = checks::text(volume, "name");
        if templates.contains(name) {
            continue;
        }
        let before = errors.len();
        volume_source(volume, &path, errors);
        checks::name_label(volume, &path, errors);
        if names.contains(name) {
            errors.push(FieldError::duplicate(path.member("name"), name));
        }
        if errors.len() == before {
            names.insert(name);
        }
    }
    names
}

fn volume_source(volume: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut found = false;
    for kind in VOLUME_SOURCES {
        let Some(source) = checks::some(volume, kind) else { continue };
        let path = path.member(kind);
        if found {
            errors.push(FieldError::forbidden(path, "may not specify more than 1 volume type"));
            continue;
        }
        found = true;
        let required = match kind {
            "secret" => "secretName",
            "configMap" => "name",
            "persistentVolumeClaim" => "claimName",
            "hostPath" => "path",
            "csi" => "driver",
            "nfs" => "server",
            _ => continue,
        };
        let value = checks::text(source, required);
        if value.is_empty() {
            errors.push(FieldError::required(path.member(required), ""));
        } else if kind == "hostPath" && value.split('/').any(|part| part == "..") {
            errors.push(FieldError::invalid(path.member("path"), value, "must not contain '..'"));
        }
    }
}

fn containers(spec: &Value, volumes: &HashSet<&str>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let ordinary_path = path.member("containers");
    let ordinary = spec.array_at(&["containers"]);
    if ordinary.is_empty() {
        errors.push(FieldError::required(ordinary_path, ""));
    }
    let mut names = HashSet::new();
    let mut host_ports = HashSet::new();
    for (index, container) in ordinary.iter().enumerate() {
        let path = ordinary_path.index(index);
        container_rules::validate(container, volumes, &path, errors);
        unique_name(container, &mut names, &path, errors);
        container_rules::validate_handlers(container, &path, errors);
    }
    for (index, container) in ordinary.iter().enumerate() {
        unique_host_ports(container, &mut host_ports, &ordinary_path.index(index), errors);
    }
    let init_path = path.member("initContainers");
    for (index, container) in spec.array_at(&["initContainers"]).iter().enumerate() {
        let path = init_path.index(index);
        container_rules::validate(container, volumes, &path, errors);
        unique_name(container, &mut names, &path, errors);
        unique_host_ports(container, &mut HashSet::new(), &path, errors);
        if checks::text(container, "restartPolicy") == "Always" {
            container_rules::validate_handlers(container, &path, errors);
            continue;
        }
        for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if checks::some(container, key).is_some() {
                let text = "may not be set for init containers without restartPolicy=Always";
                errors.push(FieldError::forbidden(path.member(key), text));
            }
        }
    }
    let others = names.clone();
    let ephemeral_path = path.member("ephemeralContainers");
    for (index, container) in spec.array_at(&["ephemeralContainers"]).iter().enumerate() {
        let path = ephemeral_path.index(index);
        container_rules::validate(container, volumes, &path, errors);
        unique_name(container, &mut names, &path, errors);
        let target = checks::text(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.push(FieldError::not_found(path.member("targetContainerName"), target));
        }
        for key in ["ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources"] {
            let set = !checks::same(container.get(key), None);
            if set {
                errors.push(FieldError::forbidden(
                    path.member(key),
                    "cannot be set for an Ephemeral Container",
                ));
            }
        }
    }
}

fn unique_name<'a>(
    container: &'a Value,
    names: &mut HashSet<&'a str>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let name = checks::text(container, "name");
    if !names.insert(name) {
        errors.push(FieldError::duplicate(path.member("name"), name));
    }
}

fn unique_host_ports(
    container: &Value,
    seen: &mut HashSet<String>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let ports_path = path.member("ports");
    for (index, port) in container.array_at(&["ports"]).iter().enumerate() {
        let host_port = port.get("hostPort").and_then(Value::as_i64).unwrap_or_default();
        if host_port == 0 {
            continue;
        }
        let key = format!("{}/{}/{host_port}", checks::text(port, "protocol"), checks::text(port, "hostIP"));
        if seen.contains(&key) {
            errors.push(FieldError::duplicate(ports_path.index(index).member("hostPort"), key));
        } else {
            seen.insert(key);
        }
    }
}

fn host_network_ports(spec: &Value, is_pod: bool, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if spec.get("hostNetwork").and_then(Value::as_bool) != Some(true) {
        return;
    }
    let path = path.member("containers");
    for (index, container) in spec.array_at(&["containers"]).iter().enumerate() {
        let path = path.index(index);
        let path = path.member("ports");
        for (index, port) in container.array_at(&["ports"]).iter().enumerate() {
            let number = |key: &str| port.get(key).and_then(Value::as_i64).unwrap_or_default();
            let (host, own) = (number("hostPort"), number("containerPort"));
            if (is_pod || host != 0) && host != own {
                let text = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(path.index(index).member("hostPort"), host, text));
            }
        }
    }
}

fn scheduling_gates(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    for (index, gate) in spec.array_at(&["schedulingGates"]).iter().enumerate() {
        let name = checks::text(gate, "name");
        checks::qualified_name(name, &path.index(index), errors);
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(path.index(index), name));
        }
    }
}

fn spread_constraints(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for (index, constraint) in spec.array_at(&["topologySpreadConstraints"]).iter().enumerate() {
        let path = path.index(index);
        let skew = constraint.get("maxSkew").and_then(Value::as_i64).unwrap_or_default();
        if skew <= 0 {
            errors.push(FieldError::invalid(path.member("maxSkew"), skew, "must be greater than zero"));
        }
        if checks::text(constraint, "topologyKey").is_empty() {
            errors.push(FieldError::required(path.member("topologyKey"), "can not be empty"));
        }
        let action = checks::text(constraint, "whenUnsatisfiable");
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&action) {
            errors.push(FieldError::not_supported(path.member("whenUnsatisfiable"), action, actions));
        }
        label_selector::validate(constraint.get("labelSelector"), &path.member("labelSelector"), errors);
    }
}

/// Checks tolerations, of pods and of templates.
pub(super) fn tolerations(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for (index, toleration) in spec.array_at(&["tolerations"]).iter().enumerate() {
        let path = path.index(index);
        let [key, operator, value, effect] =
            ["key", "operator", "value", "effect"].map(|member| checks::text(toleration, member));
        if !key.is_empty() {
            checks::qualified_name(key, &path.member("key"), errors);
        } else if operator != "Exists" {
            let text =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(path.member("operator"), operator, text));
        }
        if checks::some(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            let text = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(path.member("effect"), effect, text));
        }
        match operator {
            "" | "Equal" => {
                if let Some(problem) = label_value_problem(value) {
                    errors.push(FieldError::invalid(path.member("operator"), value, problem));
                }
            }
            "Exists" if value.is_empty() => {}
            "Exists" => {
                let text = "value must be empty when `operator` is 'Exists'";
                errors.push(FieldError::invalid(path.member("operator"), value, text));
            }
            _ => {
                errors.push(FieldError::not_supported(path.member("operator"), operator, ["Equal", "Exists"]))
            }
        }
        if !effect.is_empty() {
            taint_effect(effect, &path.member("effect"), errors);
        }
    }
}

/// What a taint does, or a toleration tolerates.
pub(super) fn taint_effect(effect: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if effect.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !effects.contains(&effect) {
        errors.push(FieldError::not_supported(path, effect, effects));
    }
}

fn host_aliases(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for (index, alias) in spec.array_at(&["hostAliases"]).iter().enumerate() {
        let path = path.index(index);
        addresses::ip(checks::text(alias, "ip"), &path.member("ip"), errors);
        for (index, name) in alias.array_at(&["hostnames"]).iter().enumerate() {
            let names_path = path.member("hostnames");
            checks::dns_subdomain(name.as_str().unwrap_or_default(), &names_path.index(index), errors);
        }
    }
}
