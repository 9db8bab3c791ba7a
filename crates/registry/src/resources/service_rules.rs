//! Checks of services: ports, addresses, what each type may have.

use std::collections::HashSet;

use polder_model::{FieldError, FieldErrorKind, FieldPath, Value};

use super::service::{is_external, is_headless, kind, needs_health_port};
use super::{addresses, cells, checks};

const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";
const CHANGED: &str = "may not change once set";

pub(super) fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    if let Some(old) = old {
        validate_update(new, old, &path, errors);
    }
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let headless = is_headless(new);
    let ports = spec.array_at(&["ports"]);
    if ports.is_empty() && !headless && kind(new) != "ExternalName" {
        errors.push(FieldError::required(path.member("ports"), ""));
    }
    match kind(new) {
        kind @ ("LoadBalancer" | "NodePort") if headless => {
            let text = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid(path.member("clusterIPs").index(0), "None", text));
        }
        "ExternalName" => external_name(spec, &path, errors),
        _ => {}
    }
    validate_ports(ports, &path.member("ports"), errors);
    checks::labels(spec.get("selector"), &path.member("selector"), errors);
    checks::one_of_required(spec, "sessionAffinity", &["ClientIP", "None"], &path, errors);
    session_timeout(spec, &path, errors);
    if kind(new) != "ExternalName" {
        addresses(spec, &path, errors);
    }
    let external_path = path.member("externalIPs");
    for (index, ip) in spec.array_at(&["externalIPs"]).iter().enumerate() {
        let ip = ip.as_str().unwrap_or_default();
        if addresses::ip(ip, &external_path.index(index), errors).is_some() {
            addresses::endpoint_ip(ip, &external_path.index(index), errors);
        }
    }
    let types = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    checks::one_of_required(spec, "type", &types, &path, errors);
    unique_ports(new, ports, &path.member("ports"), errors);
    balancer(new, spec, &path, errors);
    traffic(new, spec, &path, errors);
}

fn external_name(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !checks::same(spec.get(key), None) {
            errors.push(FieldError::forbidden(path.member(key), "may not be set for ExternalName services"));
        }
    }
    let name = checks::text(spec, "externalName");
    match name.strip_suffix('.').unwrap_or(name) {
        "" => errors.push(FieldError::required(path.member("externalName"), "")),
        name => checks::dns_subdomain(name, &path.member("externalName"), errors),
    }
}

fn validate_ports(ports: &[Value], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut names = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        match checks::text(port, "name") {
            "" if ports.len() > 1 => errors.push(FieldError::required(path.member("name"), "")),
            "" => {}
            name => {
                checks::dns_label(name, &path.member("name"), errors);
                if !names.insert(name) {
                    errors.push(FieldError::duplicate(path.member("name"), name));
                }
            }
        }
        checks::port_number(cells::count(port, &["port"]), &path.member("port"), errors);
        checks::one_of_required(port, "protocol", &checks::PROTOCOLS, &path, errors);
        checks::port_or_name(port.get("targetPort"), &path.member("targetPort"), errors);
        if let Some(protocol) = port.str_at(&["appProtocol"]) {
            checks::qualified_name(protocol, &path.member("appProtocol"), errors);
        }
    }
}

fn unique_ports(service: &Value, ports: &[Value], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let node_port = |port: &Value| cells::count(port, &["nodePort"]);
    if kind(service) == "ClusterIP" {
        for (index, port) in ports.iter().enumerate() {
            if node_port(port) != 0 {
                let text = "may not be used when `type` is 'ClusterIP'";
                errors.push(FieldError::forbidden(path.index(index).member("nodePort"), text));
            }
        }
    }
    let mut node_ports = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let key = (checks::text(port, "protocol"), node_port(port));
        if key.1 != 0 && !node_ports.insert(key) {
            errors.push(FieldError::duplicate(path.index(index).member("nodePort"), key.1));
        }
    }
    let mut seen = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let (protocol, number) = (checks::text(port, "protocol"), cells::count(port, &["port"]));
        if !seen.insert((protocol, number)) {
            // The text shows the fields in the order of upstream's struct, which our objects do not keep.
            let shown = format!(
                r#"{{"Name":"","Protocol":{protocol:?},"AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0}}"#
            );
            errors.push(FieldError {
                kind: FieldErrorKind::Duplicate,
                path: path.index(index).to_string(),
                value: None,
                detail: shown,
            });
        }
    }
}

fn session_timeout(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let config_path = path.member("sessionAffinityConfig");
    let config = checks::some(spec, "sessionAffinityConfig");
    match checks::text(spec, "sessionAffinity") {
        "ClientIP" => {
            let timeout = config.and_then(|config| config.i64_at(&["clientIP", "timeoutSeconds"]));
            if let Some(timeout) = timeout.filter(|timeout| !(1..=86_400).contains(timeout)) {
                errors.push(FieldError::invalid(
                    config_path.member("clientIP").member("timeoutSeconds"),
                    timeout,
                    "must be greater than 0 and less than 86400",
                ));
            }
        }
        "None" if config.is_some() => {
            let text = "must not be set when session affinity is None";
            errors.push(FieldError::forbidden(config_path, text));
        }
        _ => {}
    }
}

fn addresses(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let ips = spec.array_at(&["clusterIPs"]);
    let ips_path = path.member("clusterIPs");
    let listed = || Value::Array(ips.to_vec());
    match (checks::text(spec, "clusterIP"), ips.first().and_then(Value::as_str)) {
        ("", None) => {}
        ("", Some(_)) => {
            let text = "must be empty when `clusterIP` is not specified";
            errors.push(FieldError::invalid(ips_path, listed(), text));
        }
        (_, None) => errors.push(FieldError::required(ips_path, "")),
        (ip, Some(first)) if ip != first => {
            errors.push(FieldError::invalid(ips_path, listed(), "first value must match `clusterIP`"));
        }
        _ => {}
    }
    let families = spec.array_at(&["ipFamilies"]);
    let mut seen = HashSet::new();
    for (index, family) in families.iter().enumerate() {
        let path = path.member("ipFamilies");
        let family = family.as_str().unwrap_or_default();
        if !["IPv4", "IPv6"].contains(&family) {
            errors.push(FieldError::not_supported(path.index(index), family, ["IPv4", "IPv6"]));
        }
        if !seen.insert(family) {
            errors.push(FieldError::duplicate(path.index(index), family));
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if let Some(policy) = spec.str_at(&["ipFamilyPolicy"]).filter(|policy| !policies.contains(policy)) {
        errors.push(FieldError::not_supported(path.member("ipFamilyPolicy"), policy, policies));
    }
    let mut is_ipv6 = Vec::new();
    let mut bad = false;
    for (index, ip) in ips.iter().enumerate() {
        let ip = ip.as_str().unwrap_or_default();
        if index == 0 && ip == "None" {
            if ips.len() > 1 {
                bad = true;
                errors.push(FieldError::invalid(
                    ips_path,
                    listed(),
                    "'None' must be the first and only value",
                ));
            }
            continue;
        }
        match addresses::ip(ip, &ips_path.index(index), errors) {
            Some(ip) => is_ipv6.push(ip.is_ipv6()),
            None => bad = true,
        }
    }
    if ips.len() > 2 {
        errors.push(FieldError::invalid(ips_path, listed(), "may only hold up to 2 values"));
    }
    if bad {
        return;
    }
    if ips.len() > 1 && is_ipv6.iter().all(|one| *one == is_ipv6[0]) {
        let text = "may specify no more than one IP for each IP family";
        errors.push(FieldError::invalid(ips_path, listed(), text));
    }
    for (index, (is_ipv6, family)) in is_ipv6.iter().zip(families).enumerate() {
        let expected = match family.as_str() {
            Some("IPv4") if *is_ipv6 => "IPv4",
            Some("IPv6") if !is_ipv6 => "IPv6",
            _ => continue,
        };
        let text = format!("expected an {expected} value as indicated by `ipFamilies[{index}]`");
        errors.push(FieldError::invalid(ips_path.index(index), ips[index].clone(), text));
    }
}

/// The old place for source ranges.
const RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

fn balancer(service: &Value, spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let balanced = kind(service) == "LoadBalancer";
    // Upstream spells this path as its Go field.
    let ranges_path = path.member("LoadBalancerSourceRanges");
    let ranges = spec.array_at(&["loadBalancerSourceRanges"]);
    if !ranges.is_empty() && !balanced {
        errors.push(FieldError::forbidden(ranges_path, ONLY_BALANCED));
    }
    for (index, range) in ranges.iter().enumerate() {
        addresses::cidr(range.as_str().unwrap_or_default().trim(), &ranges_path.index(index), errors);
    }
    if let Some(annotation) = service.str_at(&["metadata", "annotations", RANGES_ANNOTATION])
        && ranges.is_empty()
    {
        let path = FieldPath::root("metadata");
        let path = path.member("annotations");
        let path = path.key(RANGES_ANNOTATION);
        if !balanced {
            errors.push(FieldError::forbidden(path, ONLY_BALANCED));
        }
        let ranges = annotation.trim();
        for range in ranges.split(',').filter(|_| !ranges.is_empty()).take(checks::ERRORS_MAX) {
            addresses::cidr(range.trim(), &path, errors);
        }
    }
    if checks::some(spec, "allocateLoadBalancerNodePorts").is_some() && !balanced {
        errors.push(FieldError::forbidden(path.member("allocateLoadBalancerNodePorts"), ONLY_BALANCED));
    }
    match spec.str_at(&["loadBalancerClass"]) {
        Some(class) if balanced => checks::qualified_name(class, &path.member("loadBalancerClass"), errors),
        Some(_) => errors.push(FieldError::forbidden(path.member("loadBalancerClass"), ONLY_BALANCED)),
        None => {}
    }
}

fn traffic(service: &Value, spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let policies = ["Cluster", "Local"];
    let external = checks::text(spec, "externalTrafficPolicy");
    if !is_external(service) && !external.is_empty() {
        let text = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid(path.member("externalTrafficPolicy"), external, text));
    } else if !external.is_empty() && !policies.contains(&external) {
        errors.push(FieldError::not_supported(path.member("externalTrafficPolicy"), external, policies));
    }
    let health_path = path.member("healthCheckNodePort");
    match cells::count(spec, &["healthCheckNodePort"]) {
        0 => {}
        port if needs_health_port(service) => checks::port_number(port, &health_path, errors),
        port => {
            let text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.push(FieldError::invalid(health_path, port, text));
        }
    }
    for (key, supported) in [
        ("internalTrafficPolicy", &policies[..]),
        ("trafficDistribution", &["PreferClose", "PreferSameZone", "PreferSameNode"]),
    ] {
        if let Some(value) = spec.str_at(&[key]).filter(|value| !supported.contains(value)) {
            errors.push(FieldError::not_supported(path.member(key), value, supported));
        }
    }
}

fn validate_update(new: &Value, old: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if kind(new) != "ExternalName" && kind(old) != "ExternalName" && !(is_headless(new) && is_headless(old)) {
        for (key, unset) in [
            ("clusterIPs", "primary clusterIP can not be unset"),
            ("ipFamilies", "primary ipFamily can not be unset"),
        ] {
            if key == "ipFamilies" && is_headless(new) != is_headless(old) {
                continue;
            }
            let (old_list, new_list) = (old.array_at(&["spec", key]), new.array_at(&["spec", key]));
            let path = path.member(key);
            let mut problem = |index: usize, text: &str| {
                errors.push(FieldError::invalid(path.index(index), new_list.to_vec(), text))
            };
            if new_list.is_empty() && !old_list.is_empty() {
                problem(0, unset);
            }
            // More than two are refused anyway, and every text shows the whole list.
            let compared = if old_list.len() == new_list.len() { 2 } else { 1 };
            for (index, (before, after)) in old_list.iter().zip(new_list).take(compared).enumerate() {
                if before != after {
                    problem(if key == "ipFamilies" { 0 } else { index }, CHANGED);
                }
            }
            let released = old_list.len() > new_list.len() && new_list.len() == 1;
            let policy = new.at(&["spec", "ipFamilyPolicy"]);
            if released && policy.and_then(Value::as_str) != Some("SingleStack") {
                let what = if key == "clusterIPs" { "clusterIP" } else { "ipFamily" };
                let text = format!("must be set to 'SingleStack' when releasing the secondary {what}");
                errors.push(FieldError::invalid(
                    "spec.ipFamilyPolicy",
                    policy.cloned().unwrap_or_default(),
                    text,
                ));
            }
        }
    }
    let class = |service: &Value| service.at(&["spec", "loadBalancerClass"]).cloned();
    if kind(new) == "LoadBalancer" && kind(old) == "LoadBalancer" && class(new) != class(old) {
        let value = class(new).unwrap_or_default();
        errors.push(FieldError::invalid(path.member("loadBalancerClass"), value, CHANGED));
    }
    let health = ["spec", "healthCheckNodePort"];
    if needs_health_port(new)
        && needs_health_port(old)
        && cells::count(new, &health) != cells::count(old, &health)
    {
        errors.push(FieldError::forbidden(path.member("healthCheckNodePort"), checks::IMMUTABLE));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::refuses;
    use super::super::service::SERVICES;

    #[track_caller]
    fn check(spec: &str, old: Option<&str>, expected: &[&str]) {
        let object = |spec: &str| format!(r#"{{"spec":{{{spec}}}}}"#);
        refuses(&SERVICES, &object(spec), old.map(object).as_deref(), expected);
    }

    #[test]
    fn checks() {
        check(r#""ports":[{"port":80}]"#, None, &[]);
        check("", None, &["spec.ports: Required value"]);
        check(r#""clusterIP":"None","clusterIPs":["None"]"#, None, &[]);
        check(r#""type":"ExternalName","externalName":"""#, None, &["spec.externalName: Required value"]);
        check(
            r#""type":"X","ports":[{"port":80}]"#,
            None,
            &[
                r#"spec.type: Unsupported value: "X": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort""#,
            ],
        );
        check(
            r#""ports":[{"port":0,"protocol":"TCP"},{"port":80,"name":"a","targetPort":"X_","protocol":"TCP","nodePort":1},{"port":80,"name":"a","protocol":"TCP"}]"#,
            None,
            &[
                "spec.ports[0].name: Required value",
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
                r#"spec.ports[1].targetPort: Invalid value: "X_": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"#,
                r#"spec.ports[1].targetPort: Invalid value: "X_": must contain at least one letter (a-z)"#,
                r#"spec.ports[2].name: Duplicate value: "a""#,
                "spec.ports[1].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
                r#"spec.ports[2]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#,
            ],
        );
        check(
            r#""ports":[{"port":80}],"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1","10.0.0.2"],"loadBalancerClass":"x","externalTrafficPolicy":"Local","ipFamilies":["IPv6"]"#,
            None,
            &[
                r#"spec.clusterIPs: Invalid value: ["10.0.0.1","10.0.0.2"]: may specify no more than one IP for each IP family"#,
                r#"spec.clusterIPs[0]: Invalid value: "10.0.0.1": expected an IPv6 value as indicated by `ipFamilies[0]`"#,
                "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
                r#"spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services"#,
            ],
        );
        check(
            r#""type":"NodePort","ports":[{"port":80}],"clusterIP":"None","clusterIPs":["None"]"#,
            None,
            &[r#"spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services"#],
        );
    }

    #[test]
    fn changes() {
        let service =
            |ip: &str| format!(r#""ports":[{{"port":80}}],"clusterIP":"{ip}","clusterIPs":["{ip}"]"#);
        check(&service("10.0.0.1"), Some(&service("10.0.0.1")), &[]);
        check(
            &service("10.0.0.2"),
            Some(&service("10.0.0.1")),
            &[r#"spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set"#],
        );
        check(
            r#""ports":[{"port":80}]"#,
            Some(&service("10.0.0.1")),
            &["spec.clusterIPs[0]: Invalid value: []: primary clusterIP can not be unset"],
        );
        check(r#""type":"ExternalName","externalName":"x""#, Some(&service("10.0.0.1")), &[]);
    }

    #[test]
    fn ranges_in_an_annotation() {
        let service = |kind: &str, ranges: &str| {
            format!(
                r#"{{"metadata":{{"annotations":{{"service.beta.kubernetes.io/load-balancer-source-ranges":"{ranges}"}}}},"spec":{{"type":"{kind}","ports":[{{"port":80,"protocol":"TCP"}}]}}}}"#
            )
        };
        let found =
            |kind: &str, ranges: &str| super::super::rows::errors(&SERVICES, &service(kind, ranges), None);
        assert_eq!(found("LoadBalancer", "10.0.0.0/8, 11.0.0.0/8"), [""; 0]);
        let path = "metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]";
        assert_eq!(
            found("ClusterIP", "10.0.0.0/8"),
            [format!("{path}: Forbidden: may only be used when `type` is 'LoadBalancer'")]
        );
        assert_eq!(
            found("LoadBalancer", "x"),
            [format!(
                "{path}: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            )]
        );
    }
}
