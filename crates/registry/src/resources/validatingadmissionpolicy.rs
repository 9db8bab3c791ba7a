//! Validating admission policies: rules in CEL about what may be written.
//!
//! Shapes are checked here; expressions are compiled by whoever evaluates them.

use std::collections::HashSet;

use polder_model::names::dns_1035_label_problem;
use polder_model::{FieldError, FieldPath, Value, json};

use super::admission_rules::{
    FAILURE_POLICIES, default_rules, default_selectors, validate_match_conditions, validate_match_resources,
};
use super::blank_status;
use super::cells;
use super::checks::{
    Errors, default_at, dns_subdomain, each, one_of, problem, qualified_name, required, same, some, text,
};
use crate::behavior::{Behavior, Column, Print};

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const AUDIT_ANNOTATIONS_MAX: usize = 20;
const AUDIT_EXPRESSION_LEN_MAX: usize = 5 * 1024;

pub(super) const VALIDATING_ADMISSION_POLICY: Behavior = Behavior {
    group: "admissionregistration.k8s.io",
    resource: "validatingadmissionpolicies",
    generation: true,
    unconditional_update: false,
    columns: &[Column::NAME, Column::integer("Validations"), Column::text("ParamKind"), Column::AGE],
    cells,
    default,
    prepare_create: |object| blank_status::set(object, json!({})),
    validate,
    ..Behavior::PLAIN
};

fn cells(object: &Value, print: &Print) -> Vec<Value> {
    vec![
        cells::name(object),
        cells::len(object.at(&["spec", "validations"])).into(),
        param_kind_cell(object).into(),
        cells::age(object, print),
    ]
}

pub(super) fn param_kind_cell(object: &Value) -> String {
    match object.at(&["spec", "paramKind"]) {
        None | Some(Value::Null) => "<unset>".to_owned(),
        Some(param) => format!("{}/{}", text(param, "apiVersion"), text(param, "kind")),
    }
}

fn default(object: &mut Value) {
    default_at(object, &["spec", "failurePolicy"], "Fail");
    default_matcher(object, "matchConstraints");
}

pub(super) fn default_matcher(object: &mut Value, key: &str) {
    if let Some(matcher) = object.at_mut(&["spec", key]).filter(|matcher| !matcher.is_null()) {
        default_selectors(matcher);
        default_rules(matcher, "resourceRules");
        default_rules(matcher, "excludeResourceRules");
    }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = new.get("spec").unwrap_or(&empty);
    let path = FieldPath::root("spec");
    validate_policy(spec, old, &path, errors, |_, _, _| {});
    if spec.array_at(&["validations"]).is_empty() && spec.array_at(&["auditAnnotations"]).is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        errors.push(FieldError::required(path.member("validations"), why));
        errors.push(FieldError::required(path.member("auditAnnotations"), why));
        return;
    }
    each(spec, "validations", &path, errors, validate_validation);
    let name = new.str_at(&["metadata", "name"]).unwrap_or_default();
    validate_annotations(spec, name, &path, errors);
}

/// What policies of both kinds have in common. `more` is asked about the constraints.
pub(super) fn validate_policy(
    spec: &Value,
    old: Option<&Value>,
    path: &FieldPath<'_>,
    errors: &mut Errors,
    more: impl FnOnce(&Value, &FieldPath<'_>, &mut Errors),
) {
    if required(spec, "failurePolicy", path, errors) {
        one_of(spec, "failurePolicy", &FAILURE_POLICIES, path, errors);
    }
    if let Some(param) = some(spec, "paramKind") {
        validate_param_kind(param, &path.member("paramKind"), errors);
    }
    match some(spec, "matchConstraints") {
        None => errors.push(FieldError::required(path.member("matchConstraints"), "")),
        Some(constraints) => {
            let path = path.member("matchConstraints");
            validate_match_resources(constraints, &path, errors);
            if constraints.array_at(&["resourceRules"]).is_empty() {
                errors.push(FieldError::required(path.member("resourceRules"), ""));
            }
            more(constraints, &path, errors);
        }
    }
    let unchanged = |old: &Value, key: &str| same(old.at(&["spec", key]), spec.get(key));
    if !old.is_some_and(|old| unchanged(old, "paramKind") && unchanged(old, "matchConditions")) {
        validate_match_conditions(spec, path, errors);
    }
    each(spec, "variables", path, errors, validate_variable);
}

fn validate_param_kind(param: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let version_path = path.member("apiVersion");
    if required(param, "apiVersion", path, errors) {
        let api_version = text(param, "apiVersion");
        match api_version.split_once('/') {
            Some((_, version)) if version.contains('/') => {
                let why = format!("unexpected GroupVersion string: {api_version}");
                errors.push(FieldError::invalid(version_path, api_version, why));
            }
            parts => {
                let (group, version) = parts.unwrap_or(("", api_version));
                if !group.is_empty() {
                    dns_subdomain(group, &version_path, errors);
                }
                match version {
                    "" => problem(api_version, Some("version must be specified"), &version_path, errors),
                    version => problem(version, dns_1035_label_problem(version), &version_path, errors),
                }
            }
        }
    }
    if required(param, "kind", path, errors) {
        let kind = text(param, "kind");
        let wrong = dns_1035_label_problem(&kind.to_lowercase())
            .map(|problem| format!("may have mixed case, but should otherwise match: {problem}"));
        problem(kind, wrong, &path.member("kind"), errors);
    }
}

fn validate_variable(variable: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let name = text(variable, "name");
    let identifier = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.bytes().next().is_some_and(|byte| byte.is_ascii_digit());
    if name.trim().is_empty() {
        errors.push(FieldError::required(path.member("name"), "name is not specified"));
    } else if !identifier {
        errors.push(FieldError::invalid(path.member("name"), name, "must be a valid CEL identifier"));
    }
    if text(variable, "expression").trim().is_empty() {
        errors.push(FieldError::required(path.member("expression"), "expression is not specified"));
    }
}

fn validate_validation(validation: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if text(validation, "expression").trim().is_empty() {
        errors.push(FieldError::required(path.member("expression"), "expression is not specified"));
    }
    for key in ["messageExpression", "message"] {
        let text = text(validation, key);
        if !text.is_empty() && text.trim().is_empty() {
            errors.push(FieldError::invalid(path.member(key), text, "must be non-empty if specified"));
        }
    }
    let message = text(validation, "message");
    if message.trim().contains(['\n', '\r']) {
        errors.push(FieldError::invalid(path.member("message"), message, "must not contain line breaks"));
    }
    one_of(validation, "reason", &REASONS, path, errors);
}

fn validate_annotations(spec: &Value, policy: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    let list = spec.array_at(&["auditAnnotations"]);
    if list.len() > AUDIT_ANNOTATIONS_MAX {
        let why = format!("must not have more than {AUDIT_ANNOTATIONS_MAX} auditAnnotations");
        errors.push(FieldError::invalid(path.member("auditAnnotations"), Value::Array(list.to_vec()), why));
    }
    let mut keys = HashSet::new();
    each(spec, "auditAnnotations", path, errors, |annotation, path, errors| {
        let key = text(annotation, "key");
        if policy.is_empty() {
            let why = "requires metadata.name be non-empty";
            errors.push(FieldError::invalid(path.member("key"), key, why));
        } else {
            qualified_name(&format!("{policy}/{key}"), &path.member("key"), errors);
        }
        let expression_path = path.member("valueExpression");
        match text(annotation, "valueExpression").trim().len() {
            0 => errors.push(FieldError::required(expression_path, "valueExpression is not specified")),
            len if len > AUDIT_EXPRESSION_LEN_MAX => {
                let why = format!("must not exceed {AUDIT_EXPRESSION_LEN_MAX} bytes in length");
                errors.push(FieldError::required(expression_path, why));
            }
            _ => {}
        }
        if !keys.insert(key.to_owned()) {
            errors.push(FieldError::duplicate(path.member("key"), key));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_default};
    use super::*;

    const RULE: &str =
        r#"{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"scope":"*"}"#;

    #[test]
    fn shapes() {
        let good = format!(
            r#"{{"metadata":{{"name":"p"}},"spec":{{"failurePolicy":"Fail","paramKind":{{"apiVersion":"v1","kind":"ConfigMap"}},
                "matchConstraints":{{"matchPolicy":"Exact","namespaceSelector":{{}},"objectSelector":{{}},"resourceRules":[{RULE}]}},
                "validations":[{{"expression":"true","message":"m"}}],"auditAnnotations":[{{"key":"k","valueExpression":"'x'"}}]}}}}"#
        );
        check(
            &VALIDATING_ADMISSION_POLICY,
            &[
                (&good, &[]),
                (
                    r#"{"spec":{}}"#,
                    &[
                        "spec.matchConstraints: Required value",
                        "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
                        "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
                    ],
                ),
                (
                    r#"{"spec":{"failurePolicy":"Maybe","paramKind":{"apiVersion":"a/b/c"},"matchConstraints":{"matchPolicy":"Exact","namespaceSelector":{},"objectSelector":{}},
                        "matchConditions":[{"name":"a"},{"name":"a","expression":"true"}],"variables":[{"name":"1a"}],
                        "validations":[{"message":"a\nb","reason":"Because"}]}}"#,
                    &[
                        r#"spec.failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore""#,
                        r#"spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
                        "spec.paramKind.kind: Required value",
                        "spec.matchConstraints.resourceRules: Required value",
                        "spec.matchConditions[0].expression: Required value",
                        r#"spec.matchConditions[1].name: Duplicate value: "a""#,
                        r#"spec.variables[0].name: Invalid value: "1a": must be a valid CEL identifier"#,
                        "spec.variables[0].expression: Required value: expression is not specified",
                        "spec.validations[0].expression: Required value: expression is not specified",
                        "spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks",
                        r#"spec.validations[0].reason: Unsupported value: "Because": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge""#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn defaults_and_cells() {
        check_default(
            &VALIDATING_ADMISSION_POLICY,
            &[
                (r#"{"spec":{}}"#, r#"{"spec":{"failurePolicy":"Fail"}}"#),
                (
                    r#"{"spec":{"matchConstraints":{"resourceRules":[{}]}}}"#,
                    r#"{"spec":{"failurePolicy":"Fail","matchConstraints":{"matchPolicy":"Equivalent","namespaceSelector":{},"objectSelector":{},"resourceRules":[{"scope":"*"}]}}}"#,
                ),
            ],
        );
        check_cells(
            &VALIDATING_ADMISSION_POLICY,
            &[(
                r#"{"metadata":{"name":"p"},"spec":{"validations":[{}],"paramKind":{"apiVersion":"v1","kind":"K"}}}"#,
                r#"["p",1,"v1/K","<unknown>"]"#,
            )],
        );
    }
}
