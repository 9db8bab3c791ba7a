//! API services: which group versions are served here and which by another server.

use polder_model::names::{dns_1035_label_problem, dns_subdomain_problem};
use polder_model::{FieldError, FieldPath, Value, json};

use super::blank_status;
use super::cells;
use super::checks::{Errors, port_problem, problem, required, some, text};
use crate::behavior::{Behavior, Column, NameRule, Print};

const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1000;

pub(super) const API_SERVICE: Behavior = Behavior {
    group: "apiregistration.k8s.io",
    resource: "apiservices",
    names: NameRule::PathSegment,
    unconditional_update: false,
    columns: &[Column::NAME, Column::text("Service"), Column::text("Available"), Column::AGE],
    cells,
    default: |object| {
        if object.at(&["spec", "service"]).is_some_and(|service| !service.is_null()) {
            super::checks::default_at(object, &["spec", "service", "port"], 443);
        }
    },
    prepare_create,
    validate: |new, _, errors| validate(new, errors),
    ..Behavior::PLAIN
};

/// What is served here is available from the start.
fn prepare_create(object: &mut Value) {
    let status = match some(object.get("spec").unwrap_or(&Value::Null), "service") {
        Some(_) => json!({}),
        None => {
            let now = object.str_at(&["metadata", "creationTimestamp"]).unwrap_or_default();
            json!({"conditions": [(local_condition(now))]})
        }
    };
    blank_status::set(object, status);
}

/// Why a group version that is served here is available.
pub(crate) fn local_condition(now: &str) -> Value {
    json!({
        "type": "Available", "status": "True", "lastTransitionTime": now,
        "reason": "Local", "message": "Local APIServices are always available",
    })
}

fn cells(object: &Value, print: &Print) -> Vec<Value> {
    let service = match object.at(&["spec", "service"]) {
        None | Some(Value::Null) => "Local".to_owned(),
        Some(service) => format!("{}/{}", text(service, "namespace"), text(service, "name")),
    };
    let conditions = object.array_at(&["status", "conditions"]);
    let available = conditions.iter().find(|condition| text(condition, "type") == "Available");
    let available = match available.map(|condition| (text(condition, "status"), text(condition, "reason"))) {
        None => "Unknown".to_owned(),
        Some((status @ "True", _) | (status, "")) => status.to_owned(),
        Some((status, reason)) => format!("{status} ({reason})"),
    };
    vec![cells::name(object), service.into(), available.into(), cells::age(object, print)]
}

fn validate(object: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = object.get("spec").unwrap_or(&empty);
    let path = FieldPath::root("spec");
    let (group, version) = (text(spec, "group"), text(spec, "version"));
    let name = object.str_at(&["metadata", "name"]).unwrap_or_default();
    let expected = format!("{version}.{group}");
    if name != expected {
        let why = format!("must be `spec.version+\".\"+spec.group`: {expected:?}");
        errors.push(FieldError::invalid("metadata.name", name, why));
    }
    if group.is_empty() && version != "v1" {
        let why = "only v1 may have an empty group and it better be legacy kube";
        errors.push(FieldError::required(path.member("group"), why));
    }
    if !group.is_empty() {
        problem(group, dns_subdomain_problem(group), &path.member("group"), errors);
    }
    problem(version, dns_1035_label_problem(version), &path.member("version"), errors);
    for (key, number_max) in
        [("groupPriorityMinimum", GROUP_PRIORITY_MAX), ("versionPriority", VERSION_PRIORITY_MAX)]
    {
        let number = spec.i64_at(&[key]).unwrap_or(0);
        if !(1..=number_max).contains(&number) {
            let why = format!("must be positive and less than {number_max}");
            errors.push(FieldError::invalid(path.member(key), number, why));
        }
    }
    validate_service(spec, &path, errors);
}

fn validate_service(spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let insecure = spec.get("insecureSkipTLSVerify").and_then(Value::as_bool) == Some(true);
    let bundle = text(spec, "caBundle");
    let insecure_path = path.member("insecureSkipTLSVerify");
    let Some(service) = some(spec, "service") else {
        if !bundle.is_empty() {
            let bytes = format!("{} bytes", bundle.trim_end_matches('=').len() * 3 / 4);
            let why = "local APIServices may not have a caBundle";
            errors.push(FieldError::invalid(path.member("caBundle"), bytes, why));
        }
        if insecure {
            let why = "local APIServices may not have insecureSkipTLSVerify";
            errors.push(FieldError::invalid(insecure_path, true, why));
        }
        return;
    };
    let service_path = path.member("service");
    required(service, "namespace", &service_path, errors);
    required(service, "name", &service_path, errors);
    let port = service.i64_at(&["port"]).unwrap_or(0);
    if let Some(problem) = port_problem(port) {
        let why = format!("port is not valid: {problem}");
        errors.push(FieldError::invalid(service_path.member("port"), port, why));
    }
    if insecure && !bundle.is_empty() {
        errors.push(FieldError::invalid(insecure_path, true, "may not be true if caBundle is present"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_default};
    use super::*;

    #[test]
    fn services() {
        check(
            &API_SERVICE,
            &[
                (
                    r#"{"metadata":{"name":"v1.a.example"},"spec":{"group":"a.example","version":"v1","groupPriorityMinimum":1,"versionPriority":1}}"#,
                    &[],
                ),
                (
                    r#"{"metadata":{"name":"x"},"spec":{"version":"v1","insecureSkipTLSVerify":true,"caBundle":"AAAA","groupPriorityMinimum":20001}}"#,
                    &[
                        r#"metadata.name: Invalid value: "x": must be `spec.version+"."+spec.group`: "v1.""#,
                        "spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000",
                        "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
                        r#"spec.caBundle: Invalid value: "3 bytes": local APIServices may not have a caBundle"#,
                        "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
                    ],
                ),
            ],
        );
    }

    #[test]
    fn local_ones_are_available() {
        let mut object =
            json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"group": "a"}});
        (API_SERVICE.prepare_create)(&mut object);
        let condition = &object.array_at(&["status", "conditions"])[0];
        assert_eq!(condition, &local_condition("2026-01-01T00:00:00Z"));
        let mut object = json!({"spec": {"service": {"name": "s"}}});
        (API_SERVICE.prepare_create)(&mut object);
        assert_eq!(object.get("status"), Some(&json!({})));
    }

    #[test]
    fn defaults_and_cells() {
        check_default(
            &API_SERVICE,
            &[
                (r#"{"spec":{}}"#, r#"{"spec":{}}"#),
                (r#"{"spec":{"service":{}}}"#, r#"{"spec":{"service":{"port":443}}}"#),
            ],
        );
        check_cells(
            &API_SERVICE,
            &[
                (
                    r#"{"metadata":{"name":"v1."},"status":{"conditions":[{"type":"Available","status":"True","reason":"Local"}]}}"#,
                    r#"["v1.","Local","True","<unknown>"]"#,
                ),
                (
                    r#"{"metadata":{"name":"x"},"spec":{"service":{"namespace":"n","name":"s"}},"status":{"conditions":[{"type":"Available","status":"False","reason":"Gone"}]}}"#,
                    r#"["x","n/s","False (Gone)","<unknown>"]"#,
                ),
                (r#"{"metadata":{"name":"x"}}"#, r#"["x","Local","Unknown","<unknown>"]"#),
            ],
        );
    }
}
