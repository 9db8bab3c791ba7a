//! Services. Addresses and node ports are allotted elsewhere; here they are kept, aligned and let go.

use std::collections::{BTreeSet, HashSet};

use polder_model::{FieldError, Value, json};

use super::blank_status;
use super::status_rules;
use super::{cells, checks, deprecations, service_rules};
use crate::behavior::{Behavior, Column, NameRule, Print, Selectable};

pub(super) const SERVICES: Behavior = Behavior {
    resource: "services",
    names: NameRule::Dns1035Label,
    create_on_update: true,
    delete_returns_object: true,
    selectable: &[
        Selectable { label: "spec.clusterIP", paths: &[&["spec", "clusterIP"]], missing: "" },
        Selectable { label: "spec.type", paths: &[&["spec", "type"]], missing: "" },
    ],
    columns: &[
        Column::NAME,
        Column::text("Type"),
        Column::text("Cluster-IP"),
        Column::text("External-IP"),
        Column::text("Port(s)"),
        Column::AGE,
        Column::text("Selector").wide(),
    ],
    cells,
    default,
    prepare_create,
    prepare_update,
    validate_status,
    validate: service_rules::validate,
    warnings: deprecations::service,
    ..Behavior::PLAIN
};

fn cells(service: &Value, print: &Print) -> Vec<Value> {
    let ip = service.array_at(&["spec", "clusterIPs"]).first().and_then(Value::as_str).unwrap_or("<none>");
    vec![
        cells::name(service),
        cells::text(service, &["spec", "type"]),
        ip.into(),
        external_ip(service).into(),
        ports(service).into(),
        cells::age(service, print),
        cells::labels(service.at(&["spec", "selector"])),
    ]
}

fn external_ip(service: &Value) -> String {
    let own: Vec<&str> =
        service.array_at(&["spec", "externalIPs"]).iter().filter_map(Value::as_str).collect();
    match service.str_at(&["spec", "type"]).unwrap_or_default() {
        "ClusterIP" | "NodePort" if own.is_empty() => "<none>".into(),
        "ClusterIP" | "NodePort" => own.join(","),
        "LoadBalancer" => {
            let balanced: BTreeSet<&str> = service
                .array_at(&["status", "loadBalancer", "ingress"])
                .iter()
                .map(|ingress| cells::text_or(ingress, &["ip"], checks::text(ingress, "hostname")))
                .filter(|address| !address.is_empty())
                .collect();
            let all: Vec<&str> = balanced.into_iter().chain(own).collect();
            if all.is_empty() { "<pending>".into() } else { all.join(",") }
        }
        "ExternalName" => service.str_at(&["spec", "externalName"]).unwrap_or_default().into(),
        _ => "<unknown>".into(),
    }
}

fn ports(service: &Value) -> String {
    let ports: Vec<String> = service
        .array_at(&["spec", "ports"])
        .iter()
        .map(|port| {
            let (number, protocol) = (cells::count(port, &["port"]), checks::text(port, "protocol"));
            match cells::count(port, &["nodePort"]) {
                node_port if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
                _ => format!("{number}/{protocol}"),
            }
        })
        .collect();
    if ports.is_empty() { "<none>".into() } else { ports.join(",") }
}

/// The type; unset is `ClusterIP`.
pub(crate) fn kind(service: &Value) -> &str {
    cells::text_or(service, &["spec", "type"], "ClusterIP")
}

pub(crate) fn is_headless(service: &Value) -> bool {
    service.array_at(&["spec", "clusterIPs"]) == ["None".into()]
}

/// Whether traffic from outside can reach it.
pub(super) fn is_external(service: &Value) -> bool {
    match kind(service) {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => !service.array_at(&["spec", "externalIPs"]).is_empty(),
        _ => false,
    }
}

/// Whether the balancer asks nodes for their health.
pub(crate) fn needs_health_port(service: &Value) -> bool {
    kind(service) == "LoadBalancer" && service.str_at(&["spec", "externalTrafficPolicy"]) == Some("Local")
}

fn needs_node_ports(service: &Value) -> bool {
    matches!(kind(service), "LoadBalancer" | "NodePort")
}

fn needs_cluster_ip(service: &Value) -> bool {
    kind(service) != "ExternalName"
}

fn default(service: &mut Value) {
    if service.get("spec").and_then(Value::as_object).is_none() {
        return;
    }
    match service.str_at(&["spec", "sessionAffinity"]).unwrap_or_default() {
        "" | "None" => {
            service.remove_at(&["spec", "sessionAffinityConfig"]);
        }
        "ClientIP" => {
            let timeout = ["spec", "sessionAffinityConfig", "clientIP", "timeoutSeconds"];
            if service.i64_at(&timeout).is_none() {
                service.set_at(&timeout, 10_800);
            }
        }
        _ => {}
    }
    for port in service.at_mut(&["spec", "ports"]).and_then(Value::as_array_mut).into_iter().flatten() {
        let target = port.get("targetPort").cloned().unwrap_or_default();
        let unset = target.is_null() || target.as_i64() == Some(0) || target.as_str() == Some("");
        if let Some(number) = port.get("port").cloned().filter(|_| unset) {
            port.set_at(&["targetPort"], number);
        }
    }
    if is_external(service)
        && service.str_at(&["spec", "externalTrafficPolicy"]).unwrap_or_default().is_empty()
    {
        service.set_at(&["spec", "externalTrafficPolicy"], "Cluster");
    }
    if needs_cluster_ip(service) && service.at(&["spec", "internalTrafficPolicy"]).is_none_or(Value::is_null)
    {
        service.set_at(&["spec", "internalTrafficPolicy"], "Cluster");
    }
    if kind(service) != "LoadBalancer" {
        return;
    }
    if service.at(&["spec", "allocateLoadBalancerNodePorts"]).is_none_or(Value::is_null) {
        service.set_at(&["spec", "allocateLoadBalancerNodePorts"], true);
    }
    let ingress = service.at_mut(&["status", "loadBalancer", "ingress"]).and_then(Value::as_array_mut);
    for address in ingress.into_iter().flatten() {
        if !checks::text(address, "ip").is_empty() && address.get("ipMode").is_none() {
            address.set_at(&["ipMode"], "VIP");
        }
    }
}

fn prepare_create(service: &mut Value) {
    let ip = service.str_at(&["spec", "clusterIP"]).unwrap_or_default().to_owned();
    if !ip.is_empty() && service.array_at(&["spec", "clusterIPs"]).is_empty() {
        service.set_at(&["spec", "clusterIPs"], vec![Value::from(ip)]);
    }
    default_families(service, None);
    blank_status::set(service, json!({"loadBalancer": {}}));
}

/// Families follow from addresses; without addresses they are for whoever allots them to choose.
fn default_families(service: &mut Value, old: Option<&Value>) {
    if service.get("spec").and_then(Value::as_object).is_none() || !needs_cluster_ip(service) {
        return;
    }
    let policy = ["spec", "ipFamilyPolicy"];
    if service.at(&policy).is_none_or(Value::is_null) {
        let no_selector = checks::same(service.at(&["spec", "selector"]), None);
        let old_policy = old.and_then(|old| old.str_at(&policy)).map(str::to_owned);
        let inferred = if is_headless(service) && no_selector { "RequireDualStack" } else { "SingleStack" };
        service.set_at(&policy, old_policy.unwrap_or_else(|| inferred.to_owned()));
    }
    let mut families = service.array_at(&["spec", "ipFamilies"]).to_vec();
    let addresses: Vec<bool> = service
        .array_at(&["spec", "clusterIPs"])
        .iter()
        .filter_map(|ip| ip.as_str()?.parse::<std::net::IpAddr>().ok())
        .map(|ip| ip.is_ipv6())
        .collect();
    for is_ipv6 in addresses.iter().take(2).skip(families.len()) {
        families.push(if *is_ipv6 { "IPv6" } else { "IPv4" }.into());
    }
    if !families.is_empty() {
        service.set_at(&["spec", "ipFamilies"], families);
    }
}

fn prepare_update(new: &mut Value, old: &Value) {
    if new.get("spec").and_then(Value::as_object).is_none() {
        return;
    }
    keep_allotted(new, old);
    align_cluster_ips(new, old);
    default_families(new, Some(old));
    drop_for_type(new, old);
}

fn copy(new: &mut Value, old: &Value, path: &[&str]) {
    if let Some(value) = old.at(path) {
        new.set_at(path, value.clone());
    }
}

/// Whoever leaves out what the server allotted does not want to lose it.
fn keep_allotted(new: &mut Value, old: &Value) {
    if needs_cluster_ip(old) && needs_cluster_ip(new) {
        if new.str_at(&["spec", "clusterIP"]).unwrap_or_default().is_empty() {
            copy(new, old, &["spec", "clusterIP"]);
        }
        for list in [["spec", "clusterIPs"], ["spec", "ipFamilies"]] {
            if new.array_at(&list).is_empty() {
                copy(new, old, &list);
            }
        }
    }
    if needs_node_ports(old) && needs_node_ports(new) {
        let node_ports = |service: &Value| -> HashSet<i64> {
            let ports = service.array_at(&["spec", "ports"]).iter();
            ports.map(|port| cells::count(port, &["nodePort"])).filter(|port| *port != 0).collect()
        };
        let (old_used, new_used) = (node_ports(old), node_ports(new));
        let by_name: std::collections::HashMap<&str, i64> = old
            .array_at(&["spec", "ports"])
            .iter()
            .map(|port| (checks::text(port, "name"), cells::count(port, &["nodePort"])))
            .collect();
        for port in new.at_mut(&["spec", "ports"]).and_then(Value::as_array_mut).into_iter().flatten() {
            let before = by_name.get(checks::text(port, "name")).copied().unwrap_or_default();
            let taken = old_used.contains(&before) && new_used.contains(&before);
            if cells::count(port, &["nodePort"]) == 0 && before != 0 && !taken && port.as_object().is_some() {
                port.set_at(&["nodePort"], before);
            }
        }
    }
    let health = ["spec", "healthCheckNodePort"];
    if needs_health_port(old) && needs_health_port(new) && cells::count(new, &health) == 0 {
        copy(new, old, &health);
    }
}

/// `clusterIP` and `clusterIPs[0]` are one thing; clients that know only the former change only that.
fn align_cluster_ips(new: &mut Value, old: &Value) {
    let single = |service: &Value| service.str_at(&["spec", "clusterIP"]).unwrap_or_default().to_owned();
    let same_list = new.array_at(&["spec", "clusterIPs"]) == old.array_at(&["spec", "clusterIPs"]);
    let (new_ip, old_ip) = (single(new), single(old));
    if new_ip != old_ip && same_list {
        if new_ip.is_empty() {
            new.remove_at(&["spec", "clusterIPs"]);
        } else {
            new.set_at(&["spec", "clusterIPs"], vec![Value::from(new_ip)]);
        }
    }
}

/// Lets go what the new type has no use for, unless the client changed it, which is then an error.
fn drop_for_type(new: &mut Value, old: &Value) {
    if needs_cluster_ip(old) && !needs_cluster_ip(new) {
        remove_if_same(new, old, &["clusterIP", "clusterIPs"]);
        remove_if_same(new, old, &["ipFamilies"]);
        remove_if_same(new, old, &["ipFamilyPolicy"]);
    }
    if needs_node_ports(old) && !needs_node_ports(new) {
        let known: HashSet<i64> =
            old.array_at(&["spec", "ports"]).iter().map(|port| cells::count(port, &["nodePort"])).collect();
        let ports = new.array_at(&["spec", "ports"]).iter();
        let mut set = ports.map(|port| cells::count(port, &["nodePort"])).filter(|port| *port != 0);
        if set.all(|port| known.contains(&port)) {
            for port in new.at_mut(&["spec", "ports"]).and_then(Value::as_array_mut).into_iter().flatten() {
                port.remove_at(&["nodePort"]);
            }
        }
    }
    if needs_health_port(old) && !needs_health_port(new) {
        remove_if_same(new, old, &["healthCheckNodePort"]);
    }
    if kind(old) == "LoadBalancer" && kind(new) != "LoadBalancer" {
        remove_if_same(new, old, &["allocateLoadBalancerNodePorts"]);
        remove_if_same(new, old, &["loadBalancerClass"]);
    }
    if is_external(old) && !is_external(new) {
        remove_if_same(new, old, &["externalTrafficPolicy"]);
    }
    if kind(new) != "LoadBalancer" && new.at(&["status", "loadBalancer"]).is_some() {
        new.set_at(&["status", "loadBalancer"], json!({}));
    }
}

fn remove_if_same(new: &mut Value, old: &Value, keys: &[&str]) {
    if keys.iter().all(|key| new.at(&["spec", key]) == old.at(&["spec", key])) {
        for key in keys {
            new.remove_at(&["spec", key]);
        }
    }
}

fn validate_status(new: &Value, _: &Value, errors: &mut Vec<FieldError>) {
    let ingress = new.array_at(&["status", "loadBalancer", "ingress"]);
    if kind(new) != "LoadBalancer" && !ingress.is_empty() {
        let text = "may only be used when `spec.type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden("status.loadBalancer.ingress", text));
    } else {
        status_rules::load_balancer(new, errors);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{creates, defaults, prints, updates};
    use super::SERVICES;

    #[test]
    fn cells() {
        let rows = [
            (
                r#""type":"ClusterIP","clusterIPs":["10.0.0.1"],"ports":[{"port":80,"protocol":"TCP"}],"selector":{"a":"b"}"#,
                "",
                "ClusterIP|10.0.0.1|<none>|80/TCP|<unknown>|a=b",
            ),
            (
                r#""type":"NodePort","externalIPs":["1.1.1.1","2.2.2.2"],"ports":[{"port":80,"nodePort":30000,"protocol":"UDP"},{"port":81,"protocol":"TCP"}]"#,
                "",
                "NodePort|<none>|1.1.1.1,2.2.2.2|80:30000/UDP,81/TCP|<unknown>|<none>",
            ),
            (r#""type":"LoadBalancer""#, "", "LoadBalancer|<none>|<pending>|<none>|<unknown>|<none>"),
            (
                r#""type":"LoadBalancer","externalIPs":["9.9.9.9"]"#,
                r#"{"ip":"2.2.2.2"},{"hostname":"a.very.long.host.example"}"#,
                "LoadBalancer|<none>|2.2.2.2,a.very.long.host.example,9.9.9.9|<none>|<unknown>|<none>",
            ),
            (
                r#""type":"ExternalName","externalName":"x.example""#,
                "",
                "ExternalName|<none>|x.example|<none>|<unknown>|<none>",
            ),
        ];
        for (spec, ingress, expected) in rows {
            let object = format!(
                r#"{{"metadata":{{"name":"s"}},"spec":{{{spec}}},"status":{{"loadBalancer":{{"ingress":[{ingress}]}}}}}}"#
            );
            prints(&SERVICES, &object, &format!("s|{expected}"));
        }
    }

    #[test]
    fn default() {
        defaults(
            &SERVICES,
            r#"{"spec":{"type":"ClusterIP","sessionAffinity":"None","sessionAffinityConfig":{},"ports":[{"port":80},{"port":81,"targetPort":"web"}]}}"#,
            r#"{"spec":{"type":"ClusterIP","sessionAffinity":"None","internalTrafficPolicy":"Cluster","ports":[{"port":80,"targetPort":80},{"port":81,"targetPort":"web"}]}}"#,
        );
        defaults(
            &SERVICES,
            r#"{"spec":{"type":"LoadBalancer","sessionAffinity":"ClientIP"},"status":{"loadBalancer":{"ingress":[{"ip":"1.1.1.1"}]}}}"#,
            r#"{"spec":{"type":"LoadBalancer","sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":10800}},
                "internalTrafficPolicy":"Cluster","externalTrafficPolicy":"Cluster","allocateLoadBalancerNodePorts":true},
                "status":{"loadBalancer":{"ingress":[{"ip":"1.1.1.1","ipMode":"VIP"}]}}}"#,
        );
        let external = r#"{"spec":{"type":"ExternalName","externalName":"x"}}"#;
        defaults(&SERVICES, external, external);
    }

    #[test]
    fn addresses_on_create() {
        creates(
            &SERVICES,
            r#"{"spec":{"clusterIP":"10.0.0.1"}}"#,
            r#"{"spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack"},"status":{"loadBalancer":{}}}"#,
        );
        creates(
            &SERVICES,
            r#"{"spec":{"clusterIP":"None"}}"#,
            r#"{"spec":{"clusterIP":"None","clusterIPs":["None"],"ipFamilyPolicy":"RequireDualStack"},"status":{"loadBalancer":{}}}"#,
        );
        creates(
            &SERVICES,
            r#"{"spec":{"type":"ExternalName"}}"#,
            r#"{"spec":{"type":"ExternalName"},"status":{"loadBalancer":{}}}"#,
        );
    }

    #[test]
    fn allotted_values_stay() {
        let old = r#"{"spec":{"type":"NodePort","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","externalTrafficPolicy":"Cluster","ports":[{"port":80,"nodePort":30000}]}}"#;
        updates(
            &SERVICES,
            r#"{"spec":{"type":"NodePort","externalTrafficPolicy":"Cluster","ports":[{"port":80}]}}"#,
            old,
            old,
        );
        updates(
            &SERVICES,
            r#"{"spec":{"type":"ClusterIP","externalTrafficPolicy":"Cluster","ports":[{"port":80,"nodePort":30000}]}}"#,
            old,
            r#"{"spec":{"type":"ClusterIP","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","ports":[{"port":80}]}}"#,
        );
        updates(
            &SERVICES,
            r#"{"spec":{"type":"ExternalName","externalName":"x","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack"}}"#,
            old,
            r#"{"spec":{"type":"ExternalName","externalName":"x"}}"#,
        );
        updates(
            &SERVICES,
            r#"{"spec":{"clusterIP":"10.0.0.2"}}"#,
            r#"{"spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"]}}"#,
            r#"{"spec":{"clusterIP":"10.0.0.2","clusterIPs":["10.0.0.2"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack"}}"#,
        );
    }
}
