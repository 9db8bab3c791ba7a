//! Checks of pod specs, shared by pods and every kind with a pod template.

use std::collections::HashSet;

use polder_model::names::{dns_subdomain_problem, qualified_name_problems};
use polder_model::{FieldError, FieldPath, Value};

use super::container_rules::{self, Pod};
use super::{
    addresses, checks, operating_system, probe_rules, resource_amounts, resource_names, scheduling_rules,
    security_rules, volume_rules,
};

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
    annotations(template.at(&["metadata", "annotations"]), &path.member("annotations"), errors);
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

/// Annotation keys, which are qualified names in any case.
fn annotations(annotations: Option<&Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for key in annotations.and_then(Value::as_object).into_iter().flat_map(|all| all.keys()) {
        if errors.len() < checks::ERRORS_MAX {
            checks::problem(key, qualified_name_problems(&key.to_lowercase()), path, errors);
        }
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
    let volumes = volume_rules::validate(spec, around.claim_templates, &path.member("volumes"), errors);
    let pod = Pod {
        volumes,
        claims: spec.array_at(&["resourceClaims"]).iter().map(|claim| checks::text(claim, "name")).collect(),
        restart_policy: checks::text(spec, "restartPolicy"),
        host_users: security_rules::has_host_users(spec),
    };
    resource_claims(spec, &path.member("resourceClaims"), errors);
    containers(spec, &pod, path, errors);
    if let Some(resources) = checks::some(spec, "resources") {
        resource_amounts::validate_pod(resources, &path.member("resources"), errors);
    }
    host_network_ports(spec, around.is_pod, path, errors);
    checks::one_of_required(spec, "restartPolicy", &["Always", "OnFailure", "Never"], path, errors);
    let dns_policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    checks::one_of_required(spec, "dnsPolicy", &dns_policies, path, errors);
    checks::labels(spec.get("nodeSelector"), &path.member("nodeSelector"), errors);
    security_rules::validate_pod(spec, &path.member("securityContext"), errors);
    if let Some(affinity) = checks::some(spec, "affinity") {
        scheduling_rules::affinity(affinity, &path.member("affinity"), errors);
    }
    dns_config(spec, &path.member("dnsConfig"), errors);
    for (index, gate) in spec.array_at(&["readinessGates"]).iter().enumerate() {
        let gate_path = path.member("readinessGates");
        let condition = checks::text(gate, "conditionType");
        checks::qualified_name(condition, &gate_path.index(index).member("conditionType"), errors);
    }
    scheduling_rules::gates(spec, &path.member("schedulingGates"), errors);
    scheduling_rules::spread(spec, &path.member("topologySpreadConstraints"), errors);
    security_rules::validate_host_process(spec, path, errors);
    security_rules::validate_host_users(spec, path, errors);
    host_name_override(spec, path, errors);
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
    scheduling_rules::tolerations(spec, &path.member("tolerations"), errors);
    host_aliases(spec, &path.member("hostAliases"), errors);
    subdomain(spec, "priorityClassName", path, errors);
    subdomain(spec, "runtimeClassName", path, errors);
    checks::one_of_required(spec, "preemptionPolicy", &["PreemptLowerPriority", "Never"], path, errors);
    for (name, amount) in
        spec.get("overhead").and_then(Value::as_object).into_iter().flat_map(|all| all.iter())
    {
        let path = path.member("overhead");
        let path = path.member("limits");
        resource_names::container(name, &path.key(name), errors);
        resource_amounts::validate_amount(name, amount, &path.key(name), errors);
    }
    operating_system::validate(spec, path, errors);
}

/// Claims of devices: each from one place, under one name.
fn resource_claims(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for (index, claim) in spec.array_at(&["resourceClaims"]).iter().enumerate() {
        let path = path.index(index);
        match checks::text(claim, "name") {
            name if !name.is_empty() && !names.insert(name) => {
                errors.push(FieldError::duplicate(path.member("name"), name));
            }
            _ => checks::name_label(claim, &path, errors),
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let text = match sources.iter().filter(|key| checks::some(claim, key).is_some()).count() {
            0 => Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            1 => None,
            _ => Some("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"),
        };
        if let Some(text) = text {
            errors.push(FieldError::invalid(path, claim.clone(), text));
        }
        for key in sources {
            if let Some(name) = checks::some(claim, key).and_then(Value::as_str) {
                checks::dns_subdomain(name, &path.member(key), errors);
            }
        }
    }
}

fn dns_config(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let config = checks::some(spec, "dnsConfig");
    let servers = config.map(|config| config.array_at(&["nameservers"])).unwrap_or_default();
    if checks::text(spec, "dnsPolicy") == "None" && servers.is_empty() {
        let error = match config {
            None => FieldError::required(path, "must provide `dnsConfig` when `dnsPolicy` is None"),
            Some(_) => FieldError::required(
                path.member("nameservers"),
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            ),
        };
        errors.push(error);
        return;
    }
    let Some(config) = config else { return };
    if servers.len() > NAME_SERVERS_MAX {
        let text = format!("must not have more than {NAME_SERVERS_MAX} nameservers");
        errors.push(FieldError::invalid(path.member("nameservers"), servers.to_vec(), text));
    }
    checks::each(config, "nameservers", path, errors, |server, path, errors| {
        addresses::ip(server.as_str().unwrap_or_default(), path, errors);
    });
    let searches = checks::texts(config, "searches");
    let searches_len = searches.iter().map(|search| search.len() + 1).sum::<usize>().saturating_sub(1);
    let mut too_many = |max: usize, what: &str| {
        let text = format!("must not have more than {max} {what}");
        let shown = config.array_at(&["searches"]).to_vec();
        errors.push(FieldError::invalid(path.member("searches"), shown, text));
    };
    if searches.len() > SEARCHES_MAX {
        too_many(SEARCHES_MAX, "search paths");
    }
    if searches_len > SEARCHES_LEN_MAX {
        too_many(SEARCHES_LEN_MAX, "characters (including spaces) in the search list");
    }
    checks::each(config, "searches", path, errors, |search, path, errors| {
        let search = search.as_str().unwrap_or_default();
        if search != "." {
            let search = search.strip_suffix('.').unwrap_or(search);
            checks::problem(search, search_problem(search), path, errors);
        }
    });
    checks::each(config, "options", path, errors, |option, path, errors| {
        if checks::text(option, "name").is_empty() {
            errors.push(FieldError::required(path, "must not be empty"));
        }
    });
}

const NAME_SERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCHES_LEN_MAX: usize = 2048;

/// Search domains are subdomains whose labels may have underscores.
fn search_problem(search: &str) -> Option<&'static str> {
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        let inner = |byte: u8| edge(Some(byte)) || byte == b'-' || byte == b'_';
        edge(label.bytes().next()) && edge(label.bytes().last()) && label.bytes().all(inner)
    };
    if search.len() > 253 {
        return Some("must be no more than 253 characters");
    }
    (!search.split('.').all(is_label)).then_some(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must \
         start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
         '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')",
    )
}

fn host_name_override(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let Some(name) = checks::some(spec, "hostnameOverride").and_then(Value::as_str) else { return };
    let path = path.member("hostnameOverride");
    for key in ["setHostnameAsFQDN", "hostNetwork"] {
        if spec.get(key).and_then(Value::as_bool) == Some(true) {
            errors.push(FieldError::forbidden(path, format!("may not be specified when {key} is true")));
        }
    }
    if name.len() > 64 {
        errors.push(FieldError::invalid(path, name, "must be no more than 64 characters"));
    }
    checks::dns_subdomain(name, &path, errors);
}

fn subdomain(spec: &Value, key: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if let Some(value) = spec.get(key).and_then(Value::as_str).filter(|value| !value.is_empty())
        && let Some(problem) = dns_subdomain_problem(value)
    {
        errors.push(FieldError::invalid(path.member(key), value, problem));
    }
}

fn containers(spec: &Value, pod: &Pod<'_>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let grace = spec.i64_at(&["terminationGracePeriodSeconds"]);
    let ordinary_path = path.member("containers");
    let ordinary = spec.array_at(&["containers"]);
    if ordinary.is_empty() {
        errors.push(FieldError::required(ordinary_path, ""));
    }
    let mut names = HashSet::new();
    let mut host_ports = HashSet::new();
    for (index, container) in ordinary.iter().enumerate() {
        let path = ordinary_path.index(index);
        container_rules::validate(container, pod, &path, errors);
        unique_name(container, &mut names, &path, errors);
        probe_rules::validate(container, grace, &path, errors);
    }
    for (index, container) in ordinary.iter().enumerate() {
        unique_host_ports(container, &mut host_ports, &ordinary_path.index(index), errors);
    }
    let init_path = path.member("initContainers");
    for (index, container) in spec.array_at(&["initContainers"]).iter().enumerate() {
        let path = init_path.index(index);
        container_rules::validate(container, pod, &path, errors);
        unique_name(container, &mut names, &path, errors);
        unique_host_ports(container, &mut HashSet::new(), &path, errors);
        if checks::text(container, "restartPolicy") == "Always" {
            probe_rules::validate(container, grace, &path, errors);
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
        container_rules::validate(container, pod, &path, errors);
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
