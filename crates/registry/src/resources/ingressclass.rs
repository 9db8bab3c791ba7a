//! Ingress classes: names for ingress controllers.

use polder_model::names::dns_subdomain_problem;
use polder_model::{FieldError, FieldPath, Value};

use super::cells;
use super::checks::{Errors, default_at, dns_label, immutable, problem, some, text};
use super::ingress::validate_reference;
use crate::behavior::{Behavior, Column, Print};

const CONTROLLER_LEN_MAX: usize = 250;

pub(super) const INGRESS_CLASS: Behavior = Behavior {
    group: "networking.k8s.io",
    resource: "ingressclasses",
    generation: true,
    columns: &[Column::NAME, Column::text("Controller"), Column::text("Parameters"), Column::AGE],
    cells,
    default: |object| {
        if object.at(&["spec", "parameters"]).is_some_and(|parameters| !parameters.is_null()) {
            default_at(object, &["spec", "parameters", "scope"], "Cluster");
        }
    },
    validate,
    ..Behavior::PLAIN
};

fn cells(object: &Value, print: &Print) -> Vec<Value> {
    let parameters = match object.at(&["spec", "parameters"]) {
        None | Some(Value::Null) => "<none>".to_owned(),
        Some(parameters) => {
            let group = match parameters.str_at(&["apiGroup"]) {
                Some(group) => format!(".{group}"),
                None => String::new(),
            };
            format!("{}{group}/{}", text(parameters, "kind"), text(parameters, "name"))
        }
    };
    vec![
        cells::name(object),
        cells::text(object, &["spec", "controller"]),
        parameters.into(),
        cells::age(object, print),
    ]
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let empty = Value::Null;
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&empty);
    if let Some(old) = old {
        immutable(spec, old.get("spec").unwrap_or(&empty), "controller", &path, errors);
    }
    validate_controller(text(spec, "controller"), &path.member("controller"), errors);
    if let Some(parameters) = some(spec, "parameters") {
        validate_parameters(parameters, &path.member("parameters"), errors);
    }
}

fn validate_controller(controller: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    if controller.len() > CONTROLLER_LEN_MAX {
        errors.push(FieldError::too_long(path, CONTROLLER_LEN_MAX));
    }
    if controller.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let Some((host, rest)) =
        controller.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        let text = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.push(FieldError::invalid(path, controller, text));
        return;
    };
    problem(host, dns_subdomain_problem(host), path, errors);
    if !rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte)) {
        let text = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.push(FieldError::invalid(path, rest, text));
    }
}

fn validate_parameters(parameters: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    validate_reference(parameters, path, errors);
    let namespace_path = path.member("namespace");
    let namespace = some(parameters, "namespace").and_then(Value::as_str);
    match (some(parameters, "scope").map(|scope| scope.as_str().unwrap_or_default()), namespace) {
        (None, _) => errors.push(FieldError::required(path.member("scope"), "")),
        (Some("Namespace"), None) => {
            errors.push(FieldError::required(namespace_path, "`parameters.scope` is set to 'Namespace'"))
        }
        (Some("Namespace"), Some(namespace)) => dns_label(namespace, &namespace_path, errors),
        (Some("Cluster"), Some(_)) => {
            errors.push(FieldError::forbidden(namespace_path, "`parameters.scope` is set to 'Cluster'"));
        }
        (Some("Cluster"), None) => {}
        (Some(scope), _) => {
            errors.push(FieldError::not_supported(path.member("scope"), scope, ["Cluster", "Namespace"]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_default, check_update};
    use super::*;

    #[test]
    fn controllers_and_parameters() {
        check(
            &INGRESS_CLASS,
            &[
                (r#"{"spec":{"controller":"example.com/c"}}"#, &[]),
                ("{}", &["spec.controller: Required value"]),
                (
                    r#"{"spec":{"controller":"c","parameters":{"kind":"K","scope":"Namespace"}}}"#,
                    &[
                        r#"spec.controller: Invalid value: "c": must be a domain-prefixed path (such as "acme.io/foo")"#,
                        "spec.parameters.name: Required value",
                        "spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'",
                    ],
                ),
            ],
        );
        check_update(
            &INGRESS_CLASS,
            &[(
                r#"{"spec":{"controller":"a.b/c"}}"#,
                r#"{"spec":{"controller":"a.b/d"}}"#,
                &[r#"spec.controller: Invalid value: "a.b/d": field is immutable"#],
            )],
        );
    }

    #[test]
    fn defaults_and_cells() {
        check_default(
            &INGRESS_CLASS,
            &[
                (r#"{"spec":{}}"#, r#"{"spec":{}}"#),
                (r#"{"spec":{"parameters":{}}}"#, r#"{"spec":{"parameters":{"scope":"Cluster"}}}"#),
            ],
        );
        check_cells(
            &INGRESS_CLASS,
            &[
                (
                    r#"{"metadata":{"name":"i"},"spec":{"controller":"c"}}"#,
                    r#"["i","c","<none>","<unknown>"]"#,
                ),
                (
                    r#"{"metadata":{"name":"i"},"spec":{"parameters":{"apiGroup":"g","kind":"K","name":"n"}}}"#,
                    r#"["i","","K.g/n","<unknown>"]"#,
                ),
            ],
        );
    }
}
