//! Nodes.

use std::collections::{BTreeSet, HashSet};

use polder_model::{FieldError, FieldErrorKind, FieldPath, Value, json};

use super::blank_status;
use super::resource_amounts;
use super::{addresses, cells, checks, scheduling_rules};
use crate::behavior::{Behavior, Column, Print, Selectable};

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE_LABEL: &str = "kubernetes.io/role";

pub(super) const NODES: Behavior = Behavior {
    resource: "nodes",
    status_on_create: true,
    selectable: &[Selectable {
        label: "spec.unschedulable",
        paths: &[&["spec", "unschedulable"]],
        missing: "false",
    }],
    columns: &[
        Column::NAME,
        Column::text("Status"),
        Column::text("Roles"),
        Column::AGE,
        Column::text("Version"),
        Column::text("Internal-IP").wide(),
        Column::text("External-IP").wide(),
        Column::text("OS-Image").wide(),
        Column::text("Kernel-Version").wide(),
        Column::text("Container-Runtime").wide(),
    ],
    cells,
    default,
    prepare_create,
    validate_status,
    validate,
    ..Behavior::PLAIN
};

fn cells(node: &Value, print: &Print) -> Vec<Value> {
    let mut status = match cells::condition(node, "Ready") {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node.at(&["spec", "unschedulable"]).and_then(Value::as_bool) == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    let known = |key: &str| cells::text_or(node, &["status", "nodeInfo", key], "<unknown>").into();
    vec![
        cells::name(node),
        status.into(),
        roles(node).into(),
        cells::age(node, print),
        cells::text(node, &["status", "nodeInfo", "kubeletVersion"]),
        address(node, "InternalIP").into(),
        address(node, "ExternalIP").into(),
        known("osImage"),
        known("kernelVersion"),
        known("containerRuntimeVersion"),
    ]
}

fn roles(node: &Value) -> String {
    let labels = node.at(&["metadata", "labels"]).and_then(Value::as_object);
    let roles: BTreeSet<&str> = labels
        .into_iter()
        .flat_map(|labels| labels.iter())
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => Some(role),
            None if key == ROLE_LABEL => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() { "<none>".into() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    node.array_at(&["status", "addresses"])
        .iter()
        .find(|address| checks::text(address, "type") == kind)
        .map_or("<none>", |address| checks::text(address, "address"))
}

fn default(node: &mut Value) {
    if let Some(capacity) = node.at(&["status", "capacity"]).cloned()
        && node.at(&["status", "allocatable"]).is_none_or(Value::is_null)
    {
        node.set_at(&["status", "allocatable"], capacity);
    }
    // The single range and the first of the list are the same thing.
    let first = node.array_at(&["spec", "podCIDRs"]).first().cloned();
    match (node.at(&["spec", "podCIDR"]).filter(|cidr| cidr.as_str() != Some("")).cloned(), first) {
        (Some(cidr), first) if first.as_ref() != Some(&cidr) => {
            node.set_at(&["spec", "podCIDRs"], vec![cidr]);
        }
        (None, Some(first)) => node.set_at(&["spec", "podCIDR"], first),
        _ => {}
    }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    taints(new, errors);
    if old.is_none() {
        amounts(new, errors);
    }
    let path = FieldPath::root("spec");
    for (index, cidr) in new.array_at(&["spec", "podCIDRs"]).iter().enumerate() {
        addresses::cidr(cidr.as_str().unwrap_or_default(), &path.member("podCIDRs").index(index), errors);
    }
    let cidrs = new.array_at(&["spec", "podCIDRs"]);
    if cidrs.len() > 1 {
        let families: HashSet<bool> =
            cidrs.iter().filter_map(Value::as_str).map(|cidr| cidr.contains(':')).collect();
        if cidrs.len() > 2 || families.len() < 2 {
            let text = "may specify no more than one CIDR for each IP family";
            errors.push(FieldError::invalid(path.member("podCIDRs"), cidrs.to_vec(), text));
        }
    }
    let Some(old) = old else { return };
    unique_addresses(new, errors);
    let old_cidrs = old.array_at(&["spec", "podCIDRs"]);
    if !old_cidrs.is_empty() && old_cidrs != new.array_at(&["spec", "podCIDRs"]) {
        let text = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(FieldError::forbidden(path.member("podCIDRs"), text));
    }
    let provider = |node: &'_ Value| node.str_at(&["spec", "providerID"]).unwrap_or_default().to_owned();
    if !provider(old).is_empty() && provider(old) != provider(new) {
        let text = "node updates may not change providerID except from \"\" to valid";
        errors.push(FieldError::forbidden(path.member("providerID"), text));
    }
}

fn taints(node: &Value, errors: &mut Vec<FieldError>) {
    // Upstream reports taints below metadata.
    let path = FieldPath::root("metadata");
    let path = path.member("taints");
    let mut seen = HashSet::new();
    for (index, taint) in node.array_at(&["spec", "taints"]).iter().enumerate() {
        let path = path.index(index);
        let [key, value, effect] = ["key", "value", "effect"].map(|member| checks::text(taint, member));
        checks::qualified_name(key, &path.member("key"), errors);
        checks::label_value(value, &path.member("value"), errors);
        scheduling_rules::taint_effect(effect, &path.member("effect"), errors);
        if !seen.insert((key, effect)) {
            errors.push(FieldError {
                kind: FieldErrorKind::Duplicate,
                path: path.to_string(),
                value: Some(taint.clone()),
                detail: "taints must be unique by key and effect pair".into(),
            });
        }
    }
}

fn validate_status(new: &Value, _: &Value, errors: &mut Vec<FieldError>) {
    amounts(new, errors);
    unique_addresses(new, errors);
}

fn amounts(node: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("status");
    for list in ["capacity", "allocatable"] {
        let path = path.member(list);
        let amounts = node.at(&["status", list]).and_then(Value::as_object);
        for (name, amount) in amounts.into_iter().flat_map(|amounts| amounts.iter()) {
            resource_amounts::validate_amount(name, amount, &path.member(name), errors);
        }
    }
}

fn unique_addresses(node: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("status");
    let path = path.member("addresses");
    let mut seen = HashSet::new();
    for (index, address) in node.array_at(&["status", "addresses"]).iter().enumerate() {
        if !seen.insert(address.to_string()) {
            errors.push(FieldError::duplicate(path.index(index), address.clone()));
        }
    }
}

/// Fills in what a node does not say about itself.
fn prepare_create(node: &mut Value) {
    const UNKNOWN: [&str; 10] = [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ];
    blank_status::set(node, json!({}));
    let Some(status) = node.at_mut(&["status"]).filter(|status| status.as_object().is_some()) else { return };
    let ports = ["daemonEndpoints", "kubeletEndpoint", "Port"];
    for (path, blank) in UNKNOWN
        .map(|key| (vec!["nodeInfo", key], Value::from("")))
        .into_iter()
        .chain([(ports.to_vec(), Value::from(0))])
    {
        if status.at(&path).is_none_or(Value::is_null) {
            status.set_at(&path, blank);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{creates, defaults, prints, refuses};
    use super::NODES;

    #[test]
    fn cells() {
        prints(
            &NODES,
            r#"{"metadata":{"name":"n"}}"#,
            "n|Unknown|<none>|<unknown>||<none>|<none>|<unknown>|<unknown>|<unknown>",
        );
        prints(
            &NODES,
            r#"{"metadata":{"name":"n","labels":{"node-role.kubernetes.io/worker":"","node-role.kubernetes.io/control-plane":"","kubernetes.io/role":"x"}},
                "spec":{"unschedulable":true},"status":{"conditions":[{"type":"Ready","status":"False"}],
                "addresses":[{"type":"InternalIP","address":"1.1.1.1"},{"type":"ExternalIP","address":"2.2.2.2"}],
                "nodeInfo":{"kubeletVersion":"v1","osImage":"o","kernelVersion":"k","containerRuntimeVersion":"c"}}}"#,
            "n|NotReady,SchedulingDisabled|control-plane,worker,x|<unknown>|v1|1.1.1.1|2.2.2.2|o|k|c",
        );
    }

    #[test]
    fn default() {
        defaults(
            &NODES,
            r#"{"spec":{"podCIDR":"10.0.0.0/24"},"status":{"capacity":{"cpu":"1"}}}"#,
            r#"{"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"]},"status":{"capacity":{"cpu":"1"},"allocatable":{"cpu":"1"}}}"#,
        );
    }

    #[test]
    fn checks() {
        refuses(
            &NODES,
            r#"{"spec":{"podCIDR":"x","providerID":"b","taints":[{"key":"k","effect":"NoSchedule"},{"key":"k","effect":"NoSchedule"},{"key":"k","effect":"No"}]}}"#,
            Some(r#"{"spec":{"podCIDR":"10.0.0.0/24","providerID":"a"}}"#),
            &[
                r#"metadata.taints[1]: Duplicate value: {"effect":"NoSchedule","key":"k"}: taints must be unique by key and effect pair"#,
                r#"metadata.taints[2].effect: Unsupported value: "No": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#,
                r#"spec.podCIDRs[0]: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"#,
                r#"spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid"#,
                r#"spec.providerID: Forbidden: node updates may not change providerID except from "" to valid"#,
            ],
        );
    }

    /// A kubelet registers its node with what it has.
    #[test]
    fn a_new_node_keeps_its_status() {
        let blank = |known: &str| {
            format!(
                r#"{{"status":{{"daemonEndpoints":{{"kubeletEndpoint":{{"Port":0}}}},{known}"nodeInfo":{{"machineID":"","systemUUID":"",
                    "bootID":"","kernelVersion":"","osImage":"","containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"",
                    "operatingSystem":"","architecture":""}}}}}}"#
            )
        };
        creates(&NODES, "{}", &blank(""));
        let capacity = r#""capacity":{"cpu":"4"},"allocatable":{"cpu":"4"},"#;
        creates(&NODES, r#"{"status":{"capacity":{"cpu":"4"},"allocatable":{"cpu":"4"}}}"#, &blank(capacity));
        creates(
            &NODES,
            r#"{"status":{"nodeInfo":{"osImage":"o"},"daemonEndpoints":{"kubeletEndpoint":{"Port":10250}}}}"#,
            &blank("").replace(r#""osImage":"""#, r#""osImage":"o""#).replace(":0}", ":10250}"),
        );
        refuses(
            &NODES,
            r#"{"status":{"capacity":{"cpu":"-1"}}}"#,
            None,
            &[
                r#"status.capacity.cpu: Invalid value: "-1": must be greater than or equal to 0"#,
                r#"status.allocatable.cpu: Invalid value: "-1": must be greater than or equal to 0"#,
            ],
        );
    }

    #[test]
    fn one_block_a_family() {
        refuses(&NODES, r#"{"spec":{"podCIDRs":["10.0.0.0/24","fd00::/64"]}}"#, None, &[]);
        refuses(
            &NODES,
            r#"{"spec":{"podCIDRs":["10.0.0.0/24","10.1.0.0/24"]}}"#,
            None,
            &[
                r#"spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: may specify no more than one CIDR for each IP family"#,
            ],
        );
    }
}
