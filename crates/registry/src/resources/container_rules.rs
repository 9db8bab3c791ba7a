//! Checks of one container: name, image, ports, resources, restarts. What it mounts, reads from its environment and is
//! probed with has files of its own.

use std::collections::{BTreeSet, HashSet};

use polder_model::{FieldError, FieldPath, Value};

use super::volume_rules::Volumes;
use super::{checks, env_rules, mount_rules, resource_amounts, security_rules};

/// More rules than this are refused.
const RESTART_RULES_MAX: usize = 20;

/// What a container may refer to in its pod.
pub(super) struct Pod<'a> {
    pub(super) volumes: Volumes<'a>,
    pub(super) claims: BTreeSet<&'a str>,
    pub(super) restart_policy: &'a str,
    /// The pod shares user names with its host.
    pub(super) host_users: bool,
}

/// Checks a container of any list.
pub(super) fn validate(container: &Value, pod: &Pod<'_>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    checks::name_label(container, path, errors);
    if checks::text(container, "image").is_empty() {
        errors.push(FieldError::required(path.member("image"), ""));
    }
    let termination = ["File", "FallbackToLogsOnError"];
    checks::one_of_required(container, "terminationMessagePolicy", &termination, path, errors);
    ports(container, &path.member("ports"), errors);
    env_rules::validate(container, path, errors);
    mount_rules::validate(container, &pod.volumes, path, errors);
    checks::one_of_required(container, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], path, errors);
    if let Some(resources) = container.get("resources") {
        resource_amounts::validate_container(resources, &pod.claims, &path.member("resources"), errors);
    }
    resize_policy(container, pod.restart_policy, &path.member("resizePolicy"), errors);
    if let Some(context) = checks::some(container, "securityContext") {
        let path = path.member("securityContext");
        security_rules::validate_container(context, pod.host_users, &path, errors);
    }
    restarts(container, path, errors);
}

/// How a container is restarted when its amounts change; upstream names the list, not the item.
fn resize_policy(
    container: &Value,
    restart_policy: &str,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let mut seen = HashSet::new();
    for (index, policy) in container.array_at(&["resizePolicy"]).iter().enumerate() {
        let resource = checks::text(policy, "resourceName");
        if !seen.insert(resource) {
            errors.push(FieldError::duplicate(path.index(index), resource));
        }
        let restart = checks::text(policy, "restartPolicy");
        for (value, supported) in
            [(resource, ["cpu", "memory"]), (restart, ["NotRequired", "RestartContainer"])]
        {
            if value.is_empty() {
                errors.push(FieldError::required(path, ""));
            } else if !supported.contains(&value) {
                errors.push(FieldError::not_supported(path, value, supported));
            }
        }
        if restart_policy == "Never" && restart != "NotRequired" {
            let text = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            errors.push(FieldError::invalid(path, restart, text));
        }
    }
}

fn restarts(container: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let rules = container.array_at(&["restartPolicyRules"]);
    match checks::some(container, "restartPolicy").and_then(Value::as_str) {
        None if !rules.is_empty() => {
            let text = "must specify restartPolicy when restart rules are used";
            errors.push(FieldError::required(path.member("restartPolicy"), text));
        }
        _ => checks::one_of(container, "restartPolicy", &["Always", "Never", "OnFailure"], path, errors),
    }
    let rules_path = path.member("restartPolicyRules");
    if rules.len() > RESTART_RULES_MAX {
        errors.push(FieldError::too_long(rules_path, RESTART_RULES_MAX));
    }
    for (index, rule) in rules.iter().enumerate().take(RESTART_RULES_MAX) {
        let path = rules_path.index(index);
        checks::one_of(rule, "action", &["Restart"], &path, errors);
        let codes = path.member("exitCodes");
        match checks::some(rule, "exitCodes") {
            Some(exit) => checks::one_of(exit, "operator", &["In", "NotIn"], &codes, errors),
            None => errors.push(FieldError::required(codes, "must be specified")),
        }
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
