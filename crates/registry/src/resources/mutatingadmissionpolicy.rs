//! Mutating admission policies: rules in CEL about how objects are changed before they are stored.
//!
//! Shapes are checked here; expressions are compiled by whoever evaluates them.

use polder_model::{FieldError, FieldPath, Value};

use super::cells;
use super::checks::{Errors, default_at, each, one_of, required, some, text, texts};
use super::validatingadmissionpolicy::{default_matcher, param_kind_cell, validate_policy};
use crate::behavior::{Behavior, Column, Print};

const PATCH_TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];
const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];
/// There is nothing to change when something is deleted.
const OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];

pub(super) const MUTATING_ADMISSION_POLICY: Behavior = Behavior {
    group: "admissionregistration.k8s.io",
    resource: "mutatingadmissionpolicies",
    generation: true,
    unconditional_update: false,
    columns: &[Column::NAME, Column::integer("Mutations"), Column::text("ParamKind"), Column::AGE],
    cells,
    default: |object| {
        default_at(object, &["spec", "failurePolicy"], "Fail");
        default_matcher(object, "matchConstraints");
    },
    validate,
    ..Behavior::PLAIN
};

fn cells(object: &Value, print: &Print) -> Vec<Value> {
    vec![
        cells::name(object),
        cells::len(object.at(&["spec", "mutations"])).into(),
        param_kind_cell(object).into(),
        cells::age(object, print),
    ]
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = new.get("spec").unwrap_or(&empty);
    let path = FieldPath::root("spec");
    validate_policy(spec, old, &path, errors, validate_operations);
    if spec.array_at(&["mutations"]).is_empty() {
        let why = "mutations must contain at least one item";
        errors.push(FieldError::required(path.member("mutations"), why));
    }
    each(spec, "mutations", &path, errors, validate_mutation);
    if required(spec, "reinvocationPolicy", &path, errors) {
        one_of(spec, "reinvocationPolicy", &REINVOCATION_POLICIES, &path, errors);
    }
}

/// Only what brings an object can be changed; said of the list, whichever rule it is.
pub(super) fn validate_operations(matcher: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let rules = path.member("resourceRules");
    for rule in matcher.array_at(&["resourceRules"]) {
        for operation in texts(rule, "operations") {
            if !OPERATIONS.contains(&operation) && errors.len() < super::checks::ERRORS_MAX {
                errors.push(FieldError::not_supported(rules.member("operations"), operation, OPERATIONS));
            }
        }
    }
}

fn validate_mutation(mutation: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if !required(mutation, "patchType", path, errors) {
        return;
    }
    let kind = text(mutation, "patchType");
    let (own, other) = match kind {
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        _ => return one_of(mutation, "patchType", &PATCH_TYPES, path, errors),
    };
    match some(mutation, own) {
        None => {
            let why = format!("must be specified when patchType is {kind}");
            errors.push(FieldError::required(path.member(own), why));
        }
        Some(patch) if text(patch, "expression").trim().is_empty() => {
            errors.push(FieldError::required(path.member(own).member("expression"), ""));
        }
        Some(_) => {}
    }
    if some(mutation, other).is_some() {
        let why = format!("must not be specified when patchType is {kind}");
        errors.push(FieldError::invalid(path.member(other), format!("{{{other}}}"), why));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_default};
    use super::*;

    const RULE: &str =
        r#"{"operations":["CREATE"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"scope":"*"}"#;

    #[test]
    fn shapes() {
        let good = format!(
            r#"{{"metadata":{{"name":"p"}},"spec":{{"failurePolicy":"Fail","reinvocationPolicy":"Never",
                "matchConstraints":{{"matchPolicy":"Exact","namespaceSelector":{{}},"objectSelector":{{}},"resourceRules":[{RULE}]}},
                "mutations":[{{"patchType":"ApplyConfiguration","applyConfiguration":{{"expression":"Object{{}}"}}}}]}}}}"#
        );
        check(
            &MUTATING_ADMISSION_POLICY,
            &[
                (&good, &[]),
                (
                    r#"{"spec":{}}"#,
                    &[
                        "spec.matchConstraints: Required value",
                        "spec.mutations: Required value: mutations must contain at least one item",
                        "spec.reinvocationPolicy: Required value",
                    ],
                ),
                (
                    r#"{"spec":{"failurePolicy":"Maybe","reinvocationPolicy":"Often","matchConstraints":{"matchPolicy":"Exact","namespaceSelector":{},"objectSelector":{},
                        "resourceRules":[{"operations":["DELETE"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"scope":"*"}]},
                        "mutations":[{},{"patchType":"Merge"},{"patchType":"JSONPatch","applyConfiguration":{"expression":"x"}},
                        {"patchType":"ApplyConfiguration","applyConfiguration":{"expression":" "},"jsonPatch":{"expression":"x"}}]}}"#,
                    &[
                        r#"spec.failurePolicy: Unsupported value: "Maybe": supported values: "Fail", "Ignore""#,
                        r#"spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE""#,
                        "spec.mutations[0].patchType: Required value",
                        r#"spec.mutations[1].patchType: Unsupported value: "Merge": supported values: "ApplyConfiguration", "JSONPatch""#,
                        "spec.mutations[2].jsonPatch: Required value: must be specified when patchType is JSONPatch",
                        r#"spec.mutations[2].applyConfiguration: Invalid value: "{applyConfiguration}": must not be specified when patchType is JSONPatch"#,
                        "spec.mutations[3].applyConfiguration.expression: Required value",
                        r#"spec.mutations[3].jsonPatch: Invalid value: "{jsonPatch}": must not be specified when patchType is ApplyConfiguration"#,
                        r#"spec.reinvocationPolicy: Unsupported value: "Often": supported values: "IfNeeded", "Never""#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn defaults_and_cells() {
        check_default(
            &MUTATING_ADMISSION_POLICY,
            &[(
                r#"{"spec":{"matchConstraints":{"resourceRules":[{}]}}}"#,
                r#"{"spec":{"failurePolicy":"Fail","matchConstraints":{"matchPolicy":"Equivalent","namespaceSelector":{},"objectSelector":{},"resourceRules":[{"scope":"*"}]}}}"#,
            )],
        );
        check_cells(
            &MUTATING_ADMISSION_POLICY,
            &[(r#"{"metadata":{"name":"p"},"spec":{"mutations":[{}]}}"#, r#"["p",1,"<unset>","<unknown>"]"#)],
        );
    }
}
