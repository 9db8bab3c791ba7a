//! Endpoint slices: some of the addresses behind a service.

use std::collections::HashSet;

use polder_model::names::{dns_label_problem, dns_subdomain_problem, label_value_problems};
use polder_model::{FieldError, FieldPath, Value};

use super::addresses::{canonical_ip, endpoint_ip, ip, spare_api};
use super::cells;
use super::checks::{
    Errors, default_at, dns_label, dns_subdomain, each, immutable, one_of, problem, qualified_name, required,
    same, some, text,
};
use crate::behavior::{Behavior, Column, Print};

const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const HINTS_MAX: usize = 8;

pub(super) const ENDPOINT_SLICE: Behavior = Behavior {
    group: "discovery.k8s.io",
    resource: "endpointslices",
    generation: true,
    columns: &[
        Column::NAME,
        Column::text("AddressType"),
        Column::text("Ports"),
        Column::text("Endpoints"),
        Column::AGE,
    ],
    cells,
    default,
    prepare_create: drop_topology,
    prepare_update: |new, old| {
        if !same(new.get("endpoints"), old.get("endpoints")) {
            drop_topology(new);
        }
    },
    validate,
    warnings,
    ..Behavior::PLAIN
};

fn cells(object: &Value, print: &Print) -> Vec<Value> {
    let ports = object.array_at(&["ports"]).iter().map(|port| match port.i64_at(&["port"]) {
        Some(number) => number.to_string(),
        None => port.str_at(&["name"]).unwrap_or("*").to_owned(),
    });
    let addresses =
        object.array_at(&["endpoints"]).iter().flat_map(|endpoint| endpoint.array_at(&["addresses"]));
    let addresses = addresses.filter_map(Value::as_str).map(str::to_owned);
    vec![
        cells::name(object),
        cells::text(object, &["addressType"]),
        cells::first_three(ports).into(),
        cells::first_three(addresses).into(),
        cells::age(object, print),
    ]
}

fn default(object: &mut Value) {
    for port in object.at_mut(&["ports"]).and_then(Value::as_array_mut).into_iter().flatten() {
        default_at(port, &["name"], "");
        default_at(port, &["protocol"], "TCP");
    }
}

/// The old topology map is read from v1beta1 only.
fn drop_topology(object: &mut Value) {
    for endpoint in object.at_mut(&["endpoints"]).and_then(Value::as_array_mut).into_iter().flatten() {
        endpoint.remove_at(&["deprecatedTopology"]);
    }
}

fn warnings(object: &Value) -> Vec<String> {
    match text(object, "addressType") {
        "FQDN" => vec!["spec.addressType: FQDN endpoints are deprecated".into()],
        _ => Vec::new(),
    }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    if required(new, "addressType", &FieldPath::ROOT, errors) {
        one_of(new, "addressType", &ADDRESS_TYPES, &FieldPath::ROOT, errors);
    }
    validate_ports(new, errors);
    if old.is_none_or(|old| !same(old.get("endpoints"), new.get("endpoints"))) {
        validate_endpoints(new, errors);
        spare_api(new, errors);
    }
    if let Some(old) = old {
        immutable(new, old, "addressType", &FieldPath::ROOT, errors);
    }
}

fn validate_ports(slice: &Value, errors: &mut Errors) {
    let count = slice.array_at(&["ports"]).len();
    if count > PORTS_MAX {
        errors.push(FieldError::too_many("ports", count, PORTS_MAX));
        return;
    }
    let mut names = HashSet::new();
    each(slice, "ports", &FieldPath::ROOT, errors, |port, path, errors| {
        let name = text(port, "name");
        if !name.is_empty() {
            dns_label(name, &path.member("name"), errors);
        }
        if !names.insert(name.to_owned()) {
            errors.push(FieldError::duplicate(path.member("name"), name));
        }
        if required(port, "protocol", path, errors) {
            one_of(port, "protocol", &PROTOCOLS, path, errors);
        }
        if let Some(protocol) = some(port, "appProtocol").and_then(Value::as_str) {
            qualified_name(protocol, &path.member("appProtocol"), errors);
        }
    });
}

fn validate_endpoints(slice: &Value, errors: &mut Errors) {
    let count = slice.array_at(&["endpoints"]).len();
    if count > ENDPOINTS_MAX {
        errors.push(FieldError::too_many("endpoints", count, ENDPOINTS_MAX));
        return;
    }
    let kind = text(slice, "addressType");
    each(slice, "endpoints", &FieldPath::ROOT, errors, |endpoint, path, errors| {
        let addresses = path.member("addresses");
        match endpoint.array_at(&["addresses"]).len() {
            0 => errors.push(FieldError::required(addresses, "must contain at least 1 address")),
            count if count > ADDRESSES_MAX => {
                errors.push(FieldError::too_many(addresses, count, ADDRESSES_MAX));
            }
            _ => {}
        }
        each(endpoint, "addresses", path, errors, |address, path, errors| {
            let address = address.as_str().unwrap_or_default();
            validate_address(kind, address, path, &addresses, errors);
        });
        if let Some(node) = some(endpoint, "nodeName").and_then(Value::as_str) {
            dns_subdomain(node, &path.member("nodeName"), errors);
        }
        if let Some(host) = some(endpoint, "hostname").and_then(Value::as_str) {
            dns_label(host, &path.member("hostname"), errors);
        }
        if let Some(hints) = some(endpoint, "hints") {
            let path = path.member("hints");
            validate_hints(hints, "forZones", |zone| label_value_problems(zone).next(), &path, errors);
            validate_hints(hints, "forNodes", dns_subdomain_problem, &path, errors);
        }
    });
}

fn validate_address(
    kind: &str,
    address: &str,
    path: &FieldPath<'_>,
    list: &FieldPath<'_>,
    errors: &mut Errors,
) {
    match kind {
        "IPv4" => {
            let Some(parsed) = ip(address, path, errors) else { return };
            problem(address, (!parsed.is_ipv4()).then_some("must be an IPv4 address"), list, errors);
            endpoint_ip(address, path, errors);
        }
        "IPv6" => {
            let Some(parsed) = canonical_ip(address, path, errors) else { return };
            problem(address, (!parsed.is_ipv6()).then_some("must be an IPv6 address"), list, errors);
            endpoint_ip(address, path, errors);
        }
        "FQDN" => validate_domain(address, path, errors),
        _ => {}
    }
}

fn validate_domain(domain: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    if domain.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let domain = domain.strip_suffix('.').unwrap_or(domain);
    let text = dns_subdomain_problem(domain).or_else(|| {
        let short = "should be a domain with at least two segments separated by dots";
        (!domain.contains('.')).then_some(short)
    });
    if text.is_some() {
        problem(domain, text, path, errors);
    } else if let Some(label) = domain.split('.').find(|label| dns_label_problem(label).is_some()) {
        dns_label(label, path, errors);
    }
}

fn validate_hints(
    hints: &Value,
    key: &str,
    wrong: fn(&str) -> Option<&'static str>,
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    let count = hints.array_at(&[key]).len();
    if count > HINTS_MAX {
        errors.push(FieldError::too_many(path.member(key), count, HINTS_MAX));
        return;
    }
    let mut seen = HashSet::new();
    each(hints, key, path, errors, |hint, path, errors| {
        let name = text(hint, "name");
        if !seen.insert(name.to_owned()) {
            errors.push(FieldError::duplicate(path.member("name"), name));
        }
        problem(name, wrong(name), &path.member("name"), errors);
    });
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_default, check_update};
    use super::*;

    #[test]
    fn addresses_and_ports() {
        check(
            &ENDPOINT_SLICE,
            &[
                (
                    r#"{"addressType":"IPv4","ports":[{"name":"a","protocol":"TCP","port":1}],"endpoints":[{"addresses":["10.0.0.1"]}]}"#,
                    &[],
                ),
                (r#"{"addressType":"FQDN","endpoints":[{"addresses":["a.example."]}]}"#, &[]),
                ("{}", &["addressType: Required value"]),
                (
                    r#"{"addressType":"IPv5"}"#,
                    &[r#"addressType: Unsupported value: "IPv5": supported values: "FQDN", "IPv4", "IPv6""#],
                ),
                (
                    r#"{"addressType":"IPv4","endpoints":[{},{"addresses":["fd00::1","127.0.0.1","x"]}]}"#,
                    &[
                        "endpoints[0].addresses: Required value: must contain at least 1 address",
                        r#"endpoints[1].addresses: Invalid value: "fd00::1": must be an IPv4 address"#,
                        r#"endpoints[1].addresses[1]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)"#,
                        r#"endpoints[1].addresses[2]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
                    ],
                ),
                (
                    r#"{"addressType":"FQDN","ports":[{"name":"a"},{"name":"a","protocol":"X"}],"endpoints":[{"addresses":["host"]}]}"#,
                    &[
                        r#"ports[1].name: Duplicate value: "a""#,
                        r#"ports[1].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP""#,
                        r#"endpoints[0].addresses[0]: Invalid value: "host": should be a domain with at least two segments separated by dots"#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn the_type_stays() {
        check_update(
            &ENDPOINT_SLICE,
            &[(
                r#"{"addressType":"IPv4"}"#,
                r#"{"addressType":"IPv6"}"#,
                &[r#"addressType: Invalid value: "IPv6": field is immutable"#],
            )],
        );
    }

    #[test]
    fn defaults_and_cells() {
        check_default(
            &ENDPOINT_SLICE,
            &[(r#"{"ports":[{}]}"#, r#"{"ports":[{"name":"","protocol":"TCP"}]}"#)],
        );
        check_cells(
            &ENDPOINT_SLICE,
            &[
                (
                    r#"{"metadata":{"name":"e"},"addressType":"IPv4","ports":[{"port":80},{"name":"x"}],
                        "endpoints":[{"addresses":["1","2"]},{"addresses":["3","4"]}]}"#,
                    r#"["e","IPv4","80,x","1,2,3 + 1 more...","<unknown>"]"#,
                ),
                (
                    r#"{"metadata":{"name":"e"},"addressType":"IPv4"}"#,
                    r#"["e","IPv4","<unset>","<unset>","<unknown>"]"#,
                ),
            ],
        );
    }
}
