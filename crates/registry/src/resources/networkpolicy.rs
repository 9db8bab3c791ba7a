//! Network policies: who may talk to the pods of a namespace, and to whom they may talk.

use polder_model::{FieldError, FieldPath, Value, json};

use super::addresses::cidr;
use super::cells;
use super::checks::{Errors, default_at, each, one_of, port_name, port_number, required, some, text};
use super::label_selector;
use crate::behavior::{Behavior, Column};

const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

pub(super) const NETWORK_POLICY: Behavior = Behavior {
    group: "networking.k8s.io",
    resource: "networkpolicies",
    generation: true,
    columns: &[Column::NAME, Column::text("Pod-Selector"), Column::AGE],
    cells: |object, print| {
        vec![
            cells::name(object),
            label_selector::cell(object.at(&["spec", "podSelector"])),
            cells::age(object, print),
        ]
    },
    default,
    validate: |new, _, errors| validate(new, errors),
    ..Behavior::PLAIN
};

fn default(object: &mut Value) {
    for direction in ["ingress", "egress"] {
        let rules = object.at_mut(&["spec", direction]).and_then(Value::as_array_mut);
        for rule in rules.into_iter().flatten() {
            for port in rule.at_mut(&["ports"]).and_then(Value::as_array_mut).into_iter().flatten() {
                default_at(port, &["protocol"], "TCP");
            }
        }
    }
    if object.array_at(&["spec", "policyTypes"]).is_empty() {
        let egress = !object.array_at(&["spec", "egress"]).is_empty();
        let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        object.set_at(&["spec", "policyTypes"], types);
    }
}

fn validate(policy: &Value, errors: &mut Errors) {
    let path = FieldPath::root("spec");
    let Some(spec) = some(policy, "spec") else { return };
    label_selector::validate(spec.get("podSelector"), &path.member("podSelector"), errors);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        each(spec, direction, &path, errors, |rule, path, errors| {
            each(rule, "ports", path, errors, validate_port);
            each(rule, peers, path, errors, validate_peer);
        });
    }
    let types = path.member("policyTypes");
    if spec.array_at(&["policyTypes"]).len() > 2 {
        let value = spec.get("policyTypes").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(types, value, "may not specify more than two policyTypes"));
        return;
    }
    each(spec, "policyTypes", &path, errors, |kind, path, errors| {
        let kind = kind.as_str().unwrap_or_default();
        if !["Ingress", "Egress"].contains(&kind) {
            errors.push(FieldError::not_supported(path, kind, ["Ingress", "Egress"]));
        }
    });
}

fn validate_port(port: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    one_of(port, "protocol", &PROTOCOLS, path, errors);
    let end = port.i64_at(&["endPort"]);
    let (port_path, end_path) = (path.member("port"), path.member("endPort"));
    let mut refuse_end = |why: &str| {
        if let Some(end) = end {
            errors.push(FieldError::invalid(end_path, end, why));
        }
    };
    match some(port, "port") {
        None => refuse_end("may not be specified when `port` is not specified"),
        Some(Value::Int(number)) => {
            port_number(*number, &port_path, errors);
            if let Some(end) = end {
                if end < *number {
                    let text = "must be greater than or equal to `port`";
                    errors.push(FieldError::invalid(end_path, *number, text));
                }
                port_number(end, &end_path, errors);
            }
        }
        Some(name) => {
            refuse_end("may not be specified when `port` is non-numeric");
            port_name(name.as_str().unwrap_or_default(), &port_path, errors);
        }
    }
}

fn validate_peer(peer: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let pods = some(peer, "podSelector");
    let namespaces = some(peer, "namespaceSelector");
    let block = some(peer, "ipBlock");
    label_selector::validate(pods, &path.member("podSelector"), errors);
    label_selector::validate(namespaces, &path.member("namespaceSelector"), errors);
    if let Some(block) = block {
        validate_block(block, &path.member("ipBlock"), errors);
    }
    let selectors = pods.is_some() || namespaces.is_some();
    match (selectors, block.is_some()) {
        (false, false) => errors.push(FieldError::required(path, "must specify a peer")),
        (true, true) => {
            errors.push(FieldError::forbidden(path, "may not specify both ipBlock and another peer"));
        }
        _ => {}
    }
}

fn validate_block(block: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if !required(block, "cidr", path, errors) {
        return;
    }
    let Some(outer) = cidr(text(block, "cidr"), &path.member("cidr"), errors) else { return };
    each(block, "except", path, errors, |except, path, errors| {
        let except = except.as_str().unwrap_or_default();
        let Some(inner) = cidr(except, path, errors) else { return };
        if !outer.contains_strictly(inner) {
            errors.push(FieldError::invalid(path, except, "must be a strict subset of `cidr`"));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_default};
    use super::*;

    #[test]
    fn ports_and_peers() {
        check(
            &NETWORK_POLICY,
            &[
                (
                    r#"{"spec":{"podSelector":{},"ingress":[{"ports":[{"port":80,"endPort":90,"protocol":"TCP"},{"port":"http"}],
                        "from":[{"podSelector":{}},{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}]}]}}"#,
                    &[],
                ),
                (
                    r#"{"spec":{"ingress":[{"ports":[{"port":80,"endPort":70,"protocol":"X"},{"endPort":1},{"port":"h","endPort":1}]}]}}"#,
                    &[
                        r#"spec.ingress[0].ports[0].protocol: Unsupported value: "X": supported values: "TCP", "UDP", "SCTP""#,
                        "spec.ingress[0].ports[0].endPort: Invalid value: 80: must be greater than or equal to `port`",
                        "spec.ingress[0].ports[1].endPort: Invalid value: 1: may not be specified when `port` is not specified",
                        "spec.ingress[0].ports[2].endPort: Invalid value: 1: may not be specified when `port` is non-numeric",
                    ],
                ),
                (
                    r#"{"spec":{"egress":[{"to":[{},{"ipBlock":{"cidr":"10.0.0.0/8","except":["11.0.0.0/16"]},"podSelector":{}},{"ipBlock":{"cidr":"x"}},{"ipBlock":{}}]}],
                        "policyTypes":["Sideways"]}}"#,
                    &[
                        "spec.egress[0].to[0]: Required value: must specify a peer",
                        r#"spec.egress[0].to[1].ipBlock.except[0]: Invalid value: "11.0.0.0/16": must be a strict subset of `cidr`"#,
                        "spec.egress[0].to[1]: Forbidden: may not specify both ipBlock and another peer",
                        r#"spec.egress[0].to[2].ipBlock.cidr: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"#,
                        "spec.egress[0].to[3].ipBlock.cidr: Required value",
                        r#"spec.policyTypes[0]: Unsupported value: "Sideways": supported values: "Ingress", "Egress""#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn defaults() {
        check_default(
            &NETWORK_POLICY,
            &[
                (r#"{"spec":{}}"#, r#"{"spec":{"policyTypes":["Ingress"]}}"#),
                (
                    r#"{"spec":{"egress":[{"ports":[{"port":1}]}]}}"#,
                    r#"{"spec":{"egress":[{"ports":[{"port":1,"protocol":"TCP"}]}],"policyTypes":["Ingress","Egress"]}}"#,
                ),
                (r#"{"spec":{"policyTypes":["Egress"]}}"#, r#"{"spec":{"policyTypes":["Egress"]}}"#),
            ],
        );
    }

    #[test]
    fn cells() {
        check_cells(
            &NETWORK_POLICY,
            &[(
                r#"{"metadata":{"name":"n"},"spec":{"podSelector":{"matchLabels":{"a":"b"}}}}"#,
                r#"["n","a=b","<unknown>"]"#,
            )],
        );
    }
}
