//! What webhooks and admission policies share: which requests they are about.

use std::collections::HashSet;

use polder_model::{FieldError, FieldPath, Value};

use super::checks::{
    Errors, default_at, each, one_of, path_segment, qualified_name, required, some, text, texts,
};
use super::label_selector;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
pub(super) const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
pub(super) const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
const CONDITIONS_MAX: usize = 64;

/// Selectors that select everything where none are given; `matchPolicy` too.
pub(super) fn default_selectors(matcher: &mut Value) {
    default_at(matcher, &["matchPolicy"], "Equivalent");
    for key in ["namespaceSelector", "objectSelector"] {
        default_at(matcher, &[key], polder_model::Object::new());
    }
}

pub(super) fn default_rules(owner: &mut Value, key: &str) {
    for rule in owner.at_mut(&[key]).and_then(Value::as_array_mut).into_iter().flatten() {
        default_at(rule, &["scope"], "*");
    }
}

/// A rule: operations on resources.
pub(super) fn validate_rule(rule: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let sole = |key: &str, what: &str, errors: &mut Errors| {
        let values = texts(rule, key);
        if values.is_empty() {
            errors.push(FieldError::required(path.member(key), ""));
        }
        if values.len() > 1 && values.contains(&"*") {
            let value = rule.get(key).cloned().unwrap_or_default();
            let text = format!("if '*' is present, must not specify other {what}");
            errors.push(FieldError::invalid(path.member(key), value, text));
        }
    };
    sole("operations", "operations", errors);
    each(rule, "operations", path, errors, |operation, path, errors| {
        let operation = operation.as_str().unwrap_or_default();
        if !OPERATIONS.contains(&operation) {
            errors.push(FieldError::not_supported(path, operation, OPERATIONS));
        }
    });
    sole("apiGroups", "API groups", errors);
    sole("apiVersions", "API versions", errors);
    each(rule, "apiVersions", path, errors, |version, path, errors| {
        if version.as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(path, ""));
        }
    });
    validate_resources(rule, path, errors);
    one_of(rule, "scope", &SCOPES, path, errors);
}

/// `pods`, `pods/status`, `pods/*`, `*/status`, `*`, `*/*`: none may be covered by another.
fn validate_resources(rule: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let resources = texts(rule, "resources");
    if resources.is_empty() {
        errors.push(FieldError::required(path.member("resources"), ""));
    }
    let mut all_of: HashSet<&str> = HashSet::new();
    let mut all_with: HashSet<&str> = HashSet::new();
    let mut plain = false;
    let list = path.member("resources");
    for (index, resource) in resources.iter().enumerate() {
        if errors.len() >= super::checks::ERRORS_MAX {
            return;
        }
        let at = list.index(index);
        let Some((parent, sub)) = resource.split_once('/') else {
            match *resource {
                "" => errors.push(FieldError::required(at, "")),
                name => plain = name != "*",
            }
            continue;
        };
        let mut refuse = |pattern: String| {
            let text = format!("if '{pattern}' is present, must not specify {resource}");
            errors.push(FieldError::invalid(at, *resource, text));
        };
        if all_of.contains(parent) {
            refuse(format!("{parent}/*"));
        }
        if all_with.contains(sub) {
            refuse(format!("*/{sub}"));
        }
        if sub == "*" {
            all_of.insert(parent);
        }
        if parent == "*" {
            all_with.insert(sub);
        }
    }
    let mut refuse = |text: &str| {
        errors.push(FieldError::invalid(list, rule.get("resources").cloned().unwrap_or_default(), text));
    };
    if resources.len() > 1 && resources.contains(&"*/*") {
        refuse("if '*/*' is present, must not specify other resources");
    }
    if resources.contains(&"*") && plain {
        refuse("if '*' is present, must not specify other resources without subresources");
    }
}

/// `matchConstraints` of a policy, `matchResources` of a binding.
pub(super) fn validate_match_resources(matcher: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if required(matcher, "matchPolicy", path, errors) {
        one_of(matcher, "matchPolicy", &MATCH_POLICIES, path, errors);
    }
    for key in ["namespaceSelector", "objectSelector"] {
        match some(matcher, key) {
            None => errors.push(FieldError::required(path.member(key), "")),
            selector => label_selector::validate(selector, &path.member(key), errors),
        }
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        each(matcher, key, path, errors, |rule, path, errors| {
            let mut names = HashSet::new();
            each(rule, "resourceNames", path, errors, |name, path, errors| {
                let name = name.as_str().unwrap_or_default();
                path_segment(name, path, errors);
                if !names.insert(name.to_owned()) {
                    errors.push(FieldError::duplicate(path, name));
                }
            });
            validate_rule(rule, path, errors);
        });
    }
}

/// Names and presence; the expressions themselves are compiled by whoever evaluates them.
pub(super) fn validate_match_conditions(owner: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let count = owner.array_at(&["matchConditions"]).len();
    if count > CONDITIONS_MAX {
        errors.push(FieldError::too_many(path.member("matchConditions"), count, CONDITIONS_MAX));
    }
    let mut names = HashSet::new();
    each(owner, "matchConditions", path, errors, |condition, path, errors| {
        if text(condition, "expression").trim().is_empty() {
            errors.push(FieldError::required(path.member("expression"), ""));
        }
        if required(condition, "name", path, errors) {
            let name = text(condition, "name");
            qualified_name(name, &path.member("name"), errors);
            if !names.insert(name.to_owned()) {
                errors.push(FieldError::duplicate(path.member("name"), name));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::rows::parse;
    use super::*;

    #[test]
    fn rules() {
        let rows: [(&str, &[&str]); 5] = [
            (
                r#"{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods","pods/status"],"scope":"*"}"#,
                &[],
            ),
            (
                "{}",
                &[
                    "r.operations: Required value",
                    "r.apiGroups: Required value",
                    "r.apiVersions: Required value",
                    "r.resources: Required value",
                ],
            ),
            (
                r#"{"operations":["*","READ"],"apiGroups":["*","a"],"apiVersions":[""],"resources":["*/*","pods"],"scope":"x"}"#,
                &[
                    r#"r.operations: Invalid value: ["*","READ"]: if '*' is present, must not specify other operations"#,
                    r#"r.operations[1]: Unsupported value: "READ": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE""#,
                    r#"r.apiGroups: Invalid value: ["*","a"]: if '*' is present, must not specify other API groups"#,
                    "r.apiVersions[0]: Required value",
                    r#"r.resources: Invalid value: ["*/*","pods"]: if '*/*' is present, must not specify other resources"#,
                    r#"r.scope: Unsupported value: "x": supported values: "*", "Cluster", "Namespaced""#,
                ],
            ),
            (
                r#"{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["pods/*","pods/log","*/scale","a/scale"]}"#,
                &[
                    r#"r.resources[1]: Invalid value: "pods/log": if 'pods/*' is present, must not specify pods/log"#,
                    r#"r.resources[3]: Invalid value: "a/scale": if '*/scale' is present, must not specify a/scale"#,
                ],
            ),
            (
                r#"{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*","pods"]}"#,
                &[
                    r#"r.resources: Invalid value: ["*","pods"]: if '*' is present, must not specify other resources without subresources"#,
                ],
            ),
        ];
        for (rule, expected) in rows {
            let mut errors = Errors::new();
            validate_rule(&parse(rule), &FieldPath::root("r"), &mut errors);
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(errors, expected, "{rule}");
        }
    }
}
