//! Checks of what controllers and kubelets report through the `status` subresource.

use std::collections::HashSet;

use polder_model::names::dns_subdomain_problem;
use polder_model::{FieldError, FieldPath, Value};

use super::checks::{self, Errors, each, one_of, qualified_name, some, text};
use super::{addresses, resource_amounts};

/// Counters of a status: none negative, none larger than another one.
pub(super) struct Counters {
    pub(super) not_negative: &'static [&'static str],
    /// A counter, the one it may not exceed, and that one's name in the text.
    pub(super) at_most: &'static [(&'static str, &'static str, &'static str)],
}

impl Counters {
    pub(super) fn validate(&self, new: &Value, errors: &mut Errors) {
        let status = new.get("status").unwrap_or(&Value::Null);
        let path = FieldPath::root("status");
        checks::not_negative(status, self.not_negative, &path, errors);
        let count = |key: &str| status.get(key).and_then(Value::as_i64).unwrap_or_default();
        for (key, limit, name) in self.at_most {
            if count(key) > count(limit) {
                let text = format!("cannot be greater than {name}");
                errors.push(FieldError::invalid(path.member(key), count(key), text));
            }
        }
    }
}

/// What load balancers report: `status.loadBalancer.ingress` of services and ingresses.
pub(super) fn load_balancer(new: &Value, errors: &mut Errors) {
    let path = FieldPath::root("status");
    let path = path.member("loadBalancer");
    let status = new.at(&["status", "loadBalancer"]).unwrap_or(&Value::Null);
    each(status, "ingress", &path, errors, |ingress, path, errors| {
        let (address, host) = (text(ingress, "ip"), text(ingress, "hostname"));
        if !address.is_empty() {
            addresses::ip(address, &path.member("ip"), errors);
        }
        if address.is_empty() && some(ingress, "ipMode").is_some() {
            let text = "may not be specified when `ip` is not set";
            errors.push(FieldError::forbidden(path.member("ipMode"), text));
        } else {
            one_of(ingress, "ipMode", &["Proxy", "VIP"], path, errors);
        }
        if !host.is_empty() {
            checks::problem(host, dns_subdomain_problem(host), &path.member("hostname"), errors);
            checks::not_an_ip(host, &path.member("hostname"), errors);
        }
    });
}

/// Amounts by resource name, none negative.
pub(super) fn amounts(
    new: &Value,
    keys: &[&str],
    check_name: impl Fn(&str, &FieldPath<'_>, &mut Errors),
    errors: &mut Errors,
) {
    let path = FieldPath::root("status");
    for key in keys {
        let path = path.member(key);
        let named = new.at(&["status", key]).and_then(Value::as_object);
        for (name, amount) in named.into_iter().flat_map(|named| named.iter()) {
            check_name(name, &path.key(name), errors);
            resource_amounts::validate_amount(name, amount, &path.key(name), errors);
        }
    }
}

/// What a kubelet reports about a pod.
pub(super) fn pod(new: &Value, old: &Value, errors: &mut Errors) {
    let path = FieldPath::root("status");
    let status = new.get("status").unwrap_or(&Value::Null);
    let old_status = old.get("status").unwrap_or(&Value::Null);
    each(status, "conditions", &path, errors, |condition, path, errors| {
        let kind = text(condition, "type");
        if !["PodScheduled", "Ready", "Initialized"].contains(&kind) {
            qualified_name(kind, &path.member("Type"), errors);
        }
    });
    let nominated = text(status, "nominatedNodeName");
    if nominated != text(old_status, "nominatedNodeName") && !nominated.is_empty() {
        checks::dns_subdomain(nominated, &path.member("nominatedNodeName"), errors);
        if !old.str_at(&["spec", "nodeName"]).unwrap_or_default().is_empty() {
            let text = "may not be set on pods that are already bound to a node";
            errors.push(FieldError::forbidden(path.member("nominatedNodeName"), text));
        }
    }
    if let Some(generation) = status.i64_at(&["observedGeneration"]).filter(|generation| *generation < 0) {
        let text = "must be a non-negative integer";
        errors.push(FieldError::invalid(path.member("observedGeneration"), generation, text));
    }
    checks::immutable(status, old_status, "qosClass", &path, errors);
    let policy = old.str_at(&["spec", "restartPolicy"]).unwrap_or("Always");
    if policy != "Always" {
        stays_ended(status, old_status, policy, &path.member("containerStatuses"), errors);
    }
    for key in ["podIPs", "hostIPs"] {
        pod_addresses(status, old_status, key, &path.member(key), errors);
    }
}

/// A container that has ended and is not to be restarted does not run again.
fn stays_ended(status: &Value, old: &Value, policy: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    let ended: HashSet<&str> = old
        .array_at(&["containerStatuses"])
        .iter()
        .filter(|container| match container.at(&["state", "terminated"]) {
            None | Some(Value::Null) => false,
            Some(ended) => policy == "Never" || ended.i64_at(&["exitCode"]).unwrap_or_default() == 0,
        })
        .map(|container| text(container, "name"))
        .collect();
    for (index, container) in status.array_at(&["containerStatuses"]).iter().enumerate() {
        let again = container.at(&["state", "terminated"]).is_none_or(Value::is_null);
        if again && ended.contains(text(container, "name")) {
            let path = path.index(index);
            let text = "may not be transitioned to non-terminated state";
            errors.push(FieldError::forbidden(path.member("state"), text));
        }
    }
}

fn pod_addresses(status: &Value, old: &Value, key: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    let kept: HashSet<&str> = old.array_at(&[key]).iter().map(|ip| text(ip, "ip")).collect();
    let list = status.array_at(&[key]);
    for (index, address) in list.iter().enumerate() {
        let address = text(address, "ip");
        if !kept.contains(address) {
            addresses::ip(address, &path.index(index), errors);
        }
    }
    let families: HashSet<bool> = list.iter().map(|ip| text(ip, "ip").contains(':')).collect();
    if list.len() > 1 && (list.len() > 2 || families.len() < 2) {
        let text = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(path, list.to_vec(), text));
    }
}

#[cfg(test)]
mod tests {
    use super::super::ALL;
    use super::super::rows::parse;
    use super::Errors;

    #[test]
    fn reports_are_checked() {
        let rows: &[(&str, &str, &[&str])] = &[
            ("deployments", r#"{"replicas":2,"readyReplicas":2,"availableReplicas":1}"#, &[]),
            (
                "deployments",
                r#"{"replicas":1,"availableReplicas":2,"collisionCount":-1}"#,
                &[
                    "status.collisionCount: Invalid value: -1: must be greater than or equal to 0",
                    "status.availableReplicas: Invalid value: 2: cannot be greater than status.replicas",
                    "status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas",
                ],
            ),
            (
                "statefulsets",
                r#"{"replicas":1,"readyReplicas":2}"#,
                &["status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"],
            ),
            (
                "daemonsets",
                r#"{"numberReady":-1}"#,
                &["status.numberReady: Invalid value: -1: must be greater than or equal to 0"],
            ),
            (
                "replicasets",
                r#"{"replicas":1,"fullyLabeledReplicas":2}"#,
                &["status.fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas"],
            ),
            (
                "services",
                r#"{"loadBalancer":{"ingress":[{"ip":"1.1.1.1"}]}}"#,
                &[
                    "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'",
                ],
            ),
            (
                "ingresses",
                r#"{"loadBalancer":{"ingress":[{"ip":"x"},{"hostname":"1.1.1.1"}]}}"#,
                &[
                    r#"status.loadBalancer.ingress[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
                    r#"status.loadBalancer.ingress[1].hostname: Invalid value: "1.1.1.1": must be a DNS name, not an IP address"#,
                ],
            ),
            (
                "resourcequotas",
                r#"{"used":{"pods":"-1"}}"#,
                &[r#"status.used[pods]: Invalid value: "-1": must be greater than or equal to 0"#],
            ),
            (
                "namespaces",
                r#"{"phase":"Terminating"}"#,
                &[
                    r#"status.Phase: Invalid value: "Terminating": may only be 'Active' if `deletionTimestamp` is empty"#,
                ],
            ),
            (
                "pods",
                r#"{"podIPs":[{"ip":"1.1.1.1"},{"ip":"1.1.1.2"}],"qosClass":"Guaranteed","observedGeneration":-1,
                    "containerStatuses":[{"name":"c","state":{"running":{}}}]}"#,
                &[
                    "status.observedGeneration: Invalid value: -1: must be a non-negative integer",
                    r#"status.qosClass: Invalid value: "Guaranteed": field is immutable"#,
                    "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
                    r#"status.podIPs: Invalid value: [{"ip":"1.1.1.1"},{"ip":"1.1.1.2"}]: may specify no more than one IP for each IP family"#,
                ],
            ),
        ];
        let old = parse(
            r#"{"spec":{"restartPolicy":"Never"},"status":{"qosClass":"BestEffort","containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":1}}}]}}"#,
        );
        for (resource, status, expected) in rows {
            let behavior = ALL.iter().find(|behavior| behavior.resource == *resource).unwrap();
            let mut new = old.clone();
            new.set_at(&["status"], parse(status));
            let mut errors = Errors::new();
            (behavior.validate_status)(&new, &old, &mut errors);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, *expected, "{resource} {status}");
        }
    }
}
