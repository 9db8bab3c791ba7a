//! Validating admission policy bindings: where a policy applies, with which parameters, and what follows.

use std::collections::HashSet;

use polder_model::{FieldError, FieldPath, Value};

use super::admission_rules::validate_match_resources;
use super::cells;
use super::checks::{Errors, dns_subdomain, each, path_segment, required, some, text};
use super::label_selector;
use super::validatingadmissionpolicy::default_matcher;
use crate::behavior::{Behavior, Column};

const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];

pub(super) const VALIDATING_ADMISSION_POLICY_BINDING: Behavior = Behavior {
    group: "admissionregistration.k8s.io",
    resource: "validatingadmissionpolicybindings",
    generation: true,
    unconditional_update: false,
    columns: &[Column::NAME, Column::text("PolicyName"), Column::text("ParamRef"), Column::AGE],
    cells: |object, print| {
        vec![
            cells::name(object),
            cells::text(object, &["spec", "policyName"]),
            param_cell(object.at(&["spec", "paramRef"])).into(),
            cells::age(object, print),
        ]
    },
    default: |object| default_matcher(object, "matchResources"),
    validate: |new, _, errors| validate(new, errors),
    ..Behavior::PLAIN
};

fn param_cell(param: Option<&Value>) -> String {
    let Some(param) = param.filter(|param| !param.is_null()) else { return "<unset>".into() };
    match (text(param, "name"), text(param, "namespace"), some(param, "selector")) {
        ("", _, Some(selector)) => selector_cell(selector),
        ("", _, None) => "<unset>".into(),
        (name, "", _) => format!("*/{name}"),
        (name, namespace, _) => format!("{namespace}/{name}"),
    }
}

/// A selector as Go's generated `String()` writes it.
fn selector_cell(selector: &Value) -> String {
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    let labels: String = labels
        .into_iter()
        .flat_map(polder_model::Object::iter)
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()))
        .collect();
    let expressions: String = selector
        .array_at(&["matchExpressions"])
        .iter()
        .map(|expression| {
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                text(expression, "key"),
                text(expression, "operator"),
                cells::joined(expression, &["values"], " "),
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

fn validate(binding: &Value, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = binding.get("spec").unwrap_or(&empty);
    let path = FieldPath::root("spec");
    validate_reference(spec, &path, errors);
    validate_actions(spec, &path, errors);
}

/// Which policy, with which parameters, and where.
pub(super) fn validate_reference(spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if required(spec, "policyName", path, errors) {
        dns_subdomain(text(spec, "policyName"), &path.member("policyName"), errors);
    }
    if let Some(param) = some(spec, "paramRef") {
        validate_param(param, &path.member("paramRef"), errors);
    }
    if let Some(matcher) = some(spec, "matchResources") {
        validate_match_resources(matcher, &path.member("matchResources"), errors);
    }
}

fn validate_param(param: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    const BOTH: &str = "name and selector are mutually exclusive";
    let name = text(param, "name");
    let selector = some(param, "selector");
    if !name.is_empty() {
        path_segment(name, &path.member("name"), errors);
        if selector.is_some() {
            errors.push(FieldError::forbidden(path.member("name"), BOTH));
        }
    }
    label_selector::validate(selector, &path.member("selector"), errors);
    if selector.is_some() && !name.is_empty() {
        errors.push(FieldError::forbidden(path.member("selector"), BOTH));
    }
    if selector.is_none() && name.is_empty() {
        errors.push(FieldError::required(path, "one of name or selector must be specified"));
    }
    if required(param, "parameterNotFoundAction", path, errors) {
        let action = text(param, "parameterNotFoundAction");
        if !["Deny", "Allow"].contains(&action) {
            let path = path.member("parameterNotFoundAction");
            errors.push(FieldError::not_supported(path, action, ["Deny", "Allow"]));
        }
    }
}

fn validate_actions(spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let mut actions = HashSet::new();
    each(spec, "validationActions", path, errors, |action, path, errors| {
        let action = action.as_str().unwrap_or_default();
        if !ACTIONS.contains(&action) {
            errors.push(FieldError::not_supported(path, action, ACTIONS));
        }
        if !actions.insert(action.to_owned()) {
            errors.push(FieldError::duplicate(path, action));
        }
    });
    let path = path.member("validationActions");
    if actions.contains("Deny") && actions.contains("Warn") {
        errors.push(FieldError::invalid(
            path,
            spec.get("validationActions").cloned().unwrap_or_default(),
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response \
             and headers serves no purpose)",
        ));
    }
    if actions.is_empty() {
        errors.push(FieldError::required(path, "at least one validation action is required"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells};
    use super::*;

    #[test]
    fn shapes() {
        check(
            &VALIDATING_ADMISSION_POLICY_BINDING,
            &[
                (
                    r#"{"spec":{"policyName":"p","validationActions":["Deny"],"paramRef":{"name":"n","parameterNotFoundAction":"Deny"}}}"#,
                    &[],
                ),
                (
                    "{}",
                    &[
                        "spec.policyName: Required value",
                        "spec.validationActions: Required value: at least one validation action is required",
                    ],
                ),
                (
                    r#"{"spec":{"policyName":"p","validationActions":["Deny","Warn","Warn","Shout"],"paramRef":{"name":"n","selector":{}}}}"#,
                    &[
                        "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
                        "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
                        "spec.paramRef.parameterNotFoundAction: Required value",
                        r#"spec.validationActions[2]: Duplicate value: "Warn""#,
                        r#"spec.validationActions[3]: Unsupported value: "Shout": supported values: "Audit", "Deny", "Warn""#,
                        r#"spec.validationActions: Invalid value: ["Deny","Warn","Warn","Shout"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn cells() {
        check_cells(
            &VALIDATING_ADMISSION_POLICY_BINDING,
            &[
                (
                    r#"{"metadata":{"name":"b"},"spec":{"policyName":"p"}}"#,
                    r#"["b","p","<unset>","<unknown>"]"#,
                ),
                (
                    r#"{"metadata":{"name":"b"},"spec":{"policyName":"p","paramRef":{"name":"n"}}}"#,
                    r#"["b","p","*/n","<unknown>"]"#,
                ),
                (
                    r#"{"metadata":{"name":"b"},"spec":{"policyName":"p","paramRef":{"selector":{"matchLabels":{"a":"b"}}}}}"#,
                    r#"["b","p","&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},}","<unknown>"]"#,
                ),
            ],
        );
    }
}
