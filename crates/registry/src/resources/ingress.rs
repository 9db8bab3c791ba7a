//! Ingresses: which services outside requests reach.

use polder_model::names::dns_1035_label_problem;
use polder_model::{FieldError, FieldPath, Value, json};

use super::blank_status;
use super::cells;
use super::checks::{
    Errors, dns_subdomain, each, host_pattern, not_an_ip, path_segment, port_name, port_number, problem,
    required, some, text,
};
use super::status_rules;
use crate::behavior::{Behavior, Column, Print};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];

pub(super) const INGRESS: Behavior = Behavior {
    group: "networking.k8s.io",
    resource: "ingresses",
    generation: true,
    columns: &[
        Column::NAME,
        Column::text("Class"),
        Column::text("Hosts"),
        Column::text("Address"),
        Column::text("Ports"),
        Column::AGE,
    ],
    cells,
    prepare_create: |object| blank_status::set(object, json!({"loadBalancer": {}})),
    validate_status: |new, _, errors| status_rules::load_balancer(new, errors),
    validate,
    warnings,
    ..Behavior::PLAIN
};

fn cells(object: &Value, print: &Print) -> Vec<Value> {
    let addresses = object.array_at(&["status", "loadBalancer", "ingress"]).iter();
    let mut addresses: Vec<&str> = addresses
        .map(|point| match text(point, "ip") {
            "" => text(point, "hostname"),
            ip => ip,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let secure = !object.array_at(&["spec", "tls"]).is_empty();
    vec![
        cells::name(object),
        cells::text_or(object, &["spec", "ingressClassName"], "<none>").into(),
        hosts(object.array_at(&["spec", "rules"])).into(),
        addresses.join(",").into(),
        if secure { "80, 443" } else { "80" }.into(),
        cells::age(object, print),
    ]
}

/// The first three hosts. The rest counts rules, also those without a host, as upstream does.
fn hosts(rules: &[Value]) -> String {
    let mut shown: Vec<&str> = Vec::new();
    for rule in rules {
        if shown.len() == 3 {
            return format!("{} + {} more...", shown.join(","), rules.len() - 3);
        }
        if !text(rule, "host").is_empty() {
            shown.push(text(rule, "host"));
        }
    }
    if shown.is_empty() { "*".into() } else { shown.join(",") }
}

fn class_annotation(object: &Value) -> Option<&str> {
    object.str_at(&["metadata", "annotations", CLASS_ANNOTATION])
}

fn warnings(object: &Value) -> Vec<String> {
    match (class_annotation(object), object.str_at(&["spec", "ingressClassName"])) {
        (Some(_), None) => vec![format!(
            "annotation {CLASS_ANNOTATION:?} is deprecated, please use 'spec.ingressClassName' instead"
        )],
        _ => Vec::new(),
    }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = FieldPath::root("spec");
    let empty = Value::Null;
    let spec = new.get("spec").unwrap_or(&empty);
    if spec.array_at(&["rules"]).is_empty() && some(spec, "defaultBackend").is_none() {
        errors.push(FieldError::invalid(
            path,
            Value::Null,
            "either `defaultBackend` or `rules` must be specified",
        ));
    }
    if let Some(backend) = some(spec, "defaultBackend") {
        validate_backend(backend, &path.member("defaultBackend"), errors);
    }
    each(spec, "rules", &path, errors, validate_rule);
    each(spec, "tls", &path, errors, |tls, path, errors| {
        each(tls, "hosts", path, errors, |host, path, errors| {
            host_pattern(host.as_str().unwrap_or_default(), path, errors);
        });
        match text(tls, "secretName") {
            "" => {}
            secret => dns_subdomain(secret, &path.member("secretName"), errors),
        }
    });
    let class = spec.str_at(&["ingressClassName"]);
    if let Some(class) = class {
        dns_subdomain(class, &path.member("ingressClassName"), errors);
    }
    if let (None, Some(class), Some(annotated)) = (old, class, class_annotation(new))
        && class != annotated
    {
        let path = FieldPath::root("annotations");
        errors.push(FieldError::invalid(
            path.member(CLASS_ANNOTATION),
            annotated,
            "must match `ingressClassName` when both are specified",
        ));
    }
}

fn validate_rule(rule: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let host = text(rule, "host");
    if !host.is_empty() {
        not_an_ip(host, &path.member("host"), errors);
        host_pattern(host, &path.member("host"), errors);
    }
    let Some(http) = some(rule, "http") else { return };
    let path = path.member("http");
    if http.array_at(&["paths"]).is_empty() {
        errors.push(FieldError::required(path.member("paths"), ""));
    }
    each(http, "paths", &path, errors, validate_path);
}

fn validate_path(http_path: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let route = text(http_path, "path");
    let mut refuse = |why: String| errors.push(FieldError::invalid(path.member("path"), route, why));
    match some(http_path, "pathType").map(|kind| kind.as_str().unwrap_or_default()) {
        None => {
            errors.push(FieldError::required(path.member("pathType"), "pathType must be specified"));
            return;
        }
        Some("Exact" | "Prefix") => {
            if !route.starts_with('/') {
                refuse("must be an absolute path".into());
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                if route.contains(sequence) {
                    refuse(format!("must not contain '{sequence}'"));
                }
            }
            for suffix in ["/..", "/."] {
                if route.ends_with(suffix) {
                    refuse(format!("cannot end with '{suffix}'"));
                }
            }
        }
        Some("ImplementationSpecific") => {
            if !route.is_empty() && !route.starts_with('/') {
                refuse("must be an absolute path".into());
            }
        }
        Some(kind) => errors.push(FieldError::not_supported(path.member("pathType"), kind, PATH_TYPES)),
    }
    let empty = Value::Null;
    validate_backend(http_path.get("backend").unwrap_or(&empty), &path.member("backend"), errors);
}

fn validate_backend(backend: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    match (some(backend, "resource"), some(backend, "service")) {
        (Some(_), Some(_)) => {
            errors.push(FieldError::invalid(path, "", "cannot set both resource and service backends"));
        }
        (Some(resource), None) => validate_reference(resource, &path.member("resource"), errors),
        (None, Some(service)) => validate_service(service, path, errors),
        (None, None) => errors.push(FieldError::invalid(path, "", "resource or service backend is required")),
    }
}

fn validate_service(service: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let service_path = path.member("service");
    if required(service, "name", &service_path, errors) {
        let name = text(service, "name");
        problem(name, dns_1035_label_problem(name), &service_path.member("name"), errors);
    }
    let port_path = service_path.member("port");
    let name = service.str_at(&["port", "name"]).unwrap_or_default();
    let number = service.i64_at(&["port", "number"]).unwrap_or(0);
    match (name, number) {
        ("", 0) => errors.push(FieldError::required(path, "port name or number is required")),
        ("", number) => port_number(number, &port_path.member("number"), errors),
        (name, 0) => port_name(name, &port_path.member("name"), errors),
        _ => errors.push(FieldError::invalid(path, "", "cannot set both port name & port number")),
    }
}

/// A reference to an object of the same namespace, whatever its kind.
pub(super) fn validate_reference(reference: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if let Some(group) = some(reference, "apiGroup").and_then(Value::as_str) {
        dns_subdomain(group, &path.member("apiGroup"), errors);
    }
    for key in ["kind", "name"] {
        if required(reference, key, path, errors) {
            path_segment(text(reference, key), &path.member(key), errors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, parse};
    use super::*;

    #[test]
    fn rules_and_backends() {
        check(
            &INGRESS,
            &[
                (
                    r#"{"spec":{"rules":[{"host":"*.example.com","http":{"paths":[{"path":"/a","pathType":"Prefix","backend":{"service":{"name":"s","port":{"number":80}}}}]}}]}}"#,
                    &[],
                ),
                (r#"{"spec":{"defaultBackend":{"resource":{"kind":"K","name":"n"}}}}"#, &[]),
                (
                    r#"{"spec":{}}"#,
                    &["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"],
                ),
                (
                    r#"{"spec":{"rules":[{"http":{"paths":[{"path":"/a"}]}},{"http":{}}]}}"#,
                    &[
                        "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified",
                        "spec.rules[1].http.paths: Required value",
                    ],
                ),
                (
                    r#"{"spec":{"rules":[{"host":"10.0.0.1","http":{"paths":[{"path":"a//b/..","pathType":"Exact","backend":{}},
                        {"pathType":"What","backend":{"service":{"port":{"name":"x","number":1}}}}]}}]}}"#,
                    &[
                        r#"spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address"#,
                        r#"spec.rules[0].http.paths[0].path: Invalid value: "a//b/..": must be an absolute path"#,
                        r#"spec.rules[0].http.paths[0].path: Invalid value: "a//b/..": must not contain '//'"#,
                        r#"spec.rules[0].http.paths[0].path: Invalid value: "a//b/..": cannot end with '/..'"#,
                        r#"spec.rules[0].http.paths[0].backend: Invalid value: "": resource or service backend is required"#,
                        r#"spec.rules[0].http.paths[1].pathType: Unsupported value: "What": supported values: "Exact", "ImplementationSpecific", "Prefix""#,
                        "spec.rules[0].http.paths[1].backend.service.name: Required value",
                        r#"spec.rules[0].http.paths[1].backend: Invalid value: "": cannot set both port name & port number"#,
                    ],
                ),
                (
                    r#"{"metadata":{"annotations":{"kubernetes.io/ingress.class":"a"}},
                        "spec":{"ingressClassName":"b","defaultBackend":{"service":{"name":"s","port":{}}}}}"#,
                    &[
                        "spec.defaultBackend: Required value: port name or number is required",
                        r#"annotations.kubernetes.io/ingress.class: Invalid value: "a": must match `ingressClassName` when both are specified"#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn cells() {
        check_cells(
            &INGRESS,
            &[
                (r#"{"metadata":{"name":"i"}}"#, r#"["i","<none>","*","","80","<unknown>"]"#),
                (
                    r#"{"metadata":{"name":"i"},"spec":{"ingressClassName":"c","tls":[{}],"rules":[{"host":"a"},{},{"host":"b"},{"host":"c"},{"host":"d"}]},
                        "status":{"loadBalancer":{"ingress":[{"ip":"2"},{"hostname":"1"},{"ip":"2"}]}}}"#,
                    r#"["i","c","a,b,c + 2 more...","1,2","80, 443","<unknown>"]"#,
                ),
            ],
        );
    }

    #[test]
    fn the_old_annotation_warns() {
        let object = parse(r#"{"metadata":{"annotations":{"kubernetes.io/ingress.class":"a"}}}"#);
        assert_eq!(
            warnings(&object),
            [
                r#"annotation "kubernetes.io/ingress.class" is deprecated, please use 'spec.ingressClassName' instead"#
            ]
        );
    }
}
