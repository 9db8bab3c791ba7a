//! Checks of where a pod may run: affinity, spreading, tolerations, gates.

use std::collections::HashSet;

use polder_model::names::dns_subdomain_problems;
use polder_model::{FieldError, FieldPath, Value};

use super::checks::{self, Errors, each, one_of, qualified_name, some, text};
use super::label_selector;

/// Checks `affinity`.
pub(super) fn affinity(affinity: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if let Some(node) = some(affinity, "nodeAffinity") {
        let path = path.member("nodeAffinity");
        if let Some(selector) = some(node, REQUIRED) {
            node_selector(selector, &path.member(REQUIRED), errors);
        }
        each(node, PREFERRED, &path, errors, |term, path, errors| {
            weight(term, path, errors);
            let preference = term.get("preference").unwrap_or(&Value::Null);
            node_term(preference, false, &path.member("preference"), errors);
        });
    }
    for key in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = some(affinity, key) else { continue };
        let path = path.member(key);
        each(pods, REQUIRED, &path, errors, pod_term);
        each(pods, PREFERRED, &path, errors, |term, path, errors| {
            weight(term, path, errors);
            let own = term.get("podAffinityTerm").unwrap_or(&Value::Null);
            pod_term(own, &path.member("podAffinityTerm"), errors);
        });
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn weight(term: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let weight = term.i64_at(&["weight"]).unwrap_or_default();
    if !(1..=100).contains(&weight) {
        errors.push(FieldError::invalid(path.member("weight"), weight, "must be in the range 1-100"));
    }
}

/// Checks a node selector, of a pod or of a volume.
pub(super) fn node_selector(selector: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if selector.array_at(&["nodeSelectorTerms"]).is_empty() {
        let text = "must have at least one node selector term";
        errors.push(FieldError::required(path.member("nodeSelectorTerms"), text));
    }
    each(selector, "nodeSelectorTerms", path, errors, |term, path, errors| {
        node_term(term, true, path, errors);
    });
}

fn node_term(term: &Value, check_values: bool, path: &FieldPath<'_>, errors: &mut Errors) {
    each(term, "matchExpressions", path, errors, |requirement, path, errors| {
        let count = requirement.array_at(&["values"]).len();
        let values = path.member("values");
        match (text(requirement, "operator"), count) {
            ("In" | "NotIn", 0) => errors
                .push(FieldError::required(values, "must be specified when `operator` is 'In' or 'NotIn'")),
            ("Exists" | "DoesNotExist", 1..) => errors.push(FieldError::forbidden(
                values,
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            ("Gt" | "Lt", 0 | 2..) => errors.push(FieldError::required(
                values,
                "must be specified single value when `operator` is 'Lt' or 'Gt'",
            )),
            ("In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt", _) => {}
            (unknown, _) => errors.push(FieldError::invalid(
                path.member("operator"),
                unknown,
                "not a valid selector operator",
            )),
        }
        qualified_name(text(requirement, "key"), &path.member("key"), errors);
        if check_values {
            each(requirement, "values", path, errors, |value, path, errors| {
                checks::label_value(value.as_str().unwrap_or_default(), path, errors);
            });
        }
    });
    each(term, "matchFields", path, errors, |requirement, path, errors| {
        let operator = text(requirement, "operator");
        if !["In", "NotIn"].contains(&operator) {
            let text = "not a valid selector operator";
            errors.push(FieldError::invalid(path.member("operator"), operator, text));
        } else if requirement.array_at(&["values"]).len() != 1 {
            let text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(FieldError::required(path.member("values"), text));
        }
        let key = text(requirement, "key");
        if key != "metadata.name" {
            let text = "not a valid field selector key";
            errors.push(FieldError::invalid(path.member("key"), key, text));
            return;
        }
        each(requirement, "values", path, errors, |value, path, errors| {
            let value = value.as_str().unwrap_or_default();
            checks::problem(value, dns_subdomain_problems(value), path, errors);
        });
    });
}

fn pod_term(term: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    for key in ["labelSelector", "namespaceSelector"] {
        label_selector::validate(some(term, key), &path.member(key), errors);
    }
    for namespace in term.array_at(&["namespaces"]).iter().take(checks::ERRORS_MAX) {
        checks::dns_label(namespace.as_str().unwrap_or_default(), &path.member("namespace"), errors);
    }
    label_keys(term, path, errors);
    let topology = text(term, "topologyKey");
    let topology_path = path.member("topologyKey");
    if topology.is_empty() {
        errors.push(FieldError::required(topology_path, "can not be empty"));
    }
    qualified_name(topology, &topology_path, errors);
}

/// Keys whose values the selector takes from the pod itself: label names, each in one place only.
fn label_keys(term: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let selector = some(term, "labelSelector");
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        if term.array_at(&[list]).is_empty() {
            continue;
        }
        if selector.is_none() {
            let text = "must not be specified when labelSelector is not set";
            errors.push(FieldError::forbidden(path.member(list), text));
            continue;
        }
        each(term, list, path, errors, |key, path, errors| {
            qualified_name(key.as_str().unwrap_or_default(), path, errors);
        });
    }
    // The pod's own values have been merged in as expressions by now: a key that stands twice was the user's, too.
    let keys: Vec<&str> = term.array_at(&["matchLabelKeys"]).iter().filter_map(Value::as_str).collect();
    let labels = selector.and_then(|selector| selector.get("matchLabels"));
    let mut seen: HashSet<&str> = HashSet::new();
    for expression in selector.map(|selector| selector.array_at(&["matchExpressions"])).unwrap_or_default() {
        let key = text(expression, "key");
        let again = !seen.insert(key) || labels.is_some_and(|labels| labels.get(key).is_some());
        if again && let Some(index) = keys.iter().position(|own| *own == key) {
            let text = "exists in both matchLabelKeys and labelSelector";
            errors.push(FieldError::invalid(path.index(index), key, text));
        }
    }
    let mismatched: HashSet<&str> =
        term.array_at(&["mismatchLabelKeys"]).iter().filter_map(Value::as_str).collect();
    for (index, key) in keys.iter().enumerate().filter(|(_, key)| mismatched.contains(*key)) {
        let text = "exists in both matchLabelKeys and mismatchLabelKeys";
        errors.push(FieldError::invalid(path.member("matchLabelKeys").index(index), *key, text));
    }
}

/// Checks `topologySpreadConstraints`.
pub(super) fn spread(spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let kind = |constraint: &Value| {
        (text(constraint, "topologyKey").to_owned(), text(constraint, "whenUnsatisfiable").to_owned())
    };
    // A constraint is a repetition if a later one is of its kind.
    let mut later = HashSet::new();
    let mut repeated = HashSet::new();
    let constraints = spec.array_at(&["topologySpreadConstraints"]);
    for (index, constraint) in constraints.iter().enumerate().rev() {
        if !later.insert(kind(constraint)) {
            repeated.insert(index);
        }
    }
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        let skew = constraint.i64_at(&["maxSkew"]).unwrap_or_default();
        if skew <= 0 {
            errors.push(FieldError::invalid(path.member("maxSkew"), skew, "must be greater than zero"));
        }
        if text(constraint, "topologyKey").is_empty() {
            errors.push(FieldError::required(path.member("topologyKey"), "can not be empty"));
        }
        let action = text(constraint, "whenUnsatisfiable");
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&action) {
            errors.push(FieldError::not_supported(path.member("whenUnsatisfiable"), action, actions));
        }
        if repeated.contains(&index) {
            let (key, action) = kind(constraint);
            let path = path.member("{topologyKey, whenUnsatisfiable}");
            errors.push(FieldError::duplicate(path, format!("{{{key}, {action}}}")));
        }
        if let Some(domains) = constraint.i64_at(&["minDomains"]) {
            let path = path.member("minDomains");
            if domains <= 0 {
                errors.push(FieldError::invalid(path, domains, "must be greater than zero"));
            }
            if action != "DoNotSchedule" {
                let text =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.push(FieldError::invalid(path, domains, text));
            }
        }
        for key in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            one_of(constraint, key, &["Honor", "Ignore"], &path, errors);
        }
        label_keys(constraint, &path, errors);
        label_selector::validate(some(constraint, "labelSelector"), &path.member("labelSelector"), errors);
    }
}

/// Checks `schedulingGates`.
pub(super) fn gates(spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (index, gate) in spec.array_at(&["schedulingGates"]).iter().enumerate() {
        let name = text(gate, "name");
        qualified_name(name, &path.index(index), errors);
        if !seen.insert(name) {
            errors.push(FieldError::duplicate(path.index(index), name));
        }
    }
}

const OPERATORS: [&str; 2] = ["Equal", "Exists"];
/// What is said to those who try operators that are known and not yet served.
const FUTURE_OPERATORS: [&str; 4] = ["Equal", "Exists", "Lt", "Gt"];

/// Checks tolerations, of pods and of templates.
pub(super) fn tolerations(spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    for (index, toleration) in spec.array_at(&["tolerations"]).iter().enumerate() {
        let path = path.index(index);
        let [key, operator, value, effect] =
            ["key", "operator", "value", "effect"].map(|member| text(toleration, member));
        if !key.is_empty() {
            qualified_name(key, &path.member("key"), errors);
        } else if operator != "Exists" {
            let text =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(path.member("operator"), operator, text));
        }
        if some(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            let text = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(path.member("effect"), effect, text));
        }
        match operator {
            "" | "Equal" => checks::label_value(value, &path.member("operator"), errors),
            "Exists" if value.is_empty() => {}
            "Exists" => {
                let text = "value must be empty when `operator` is 'Exists'";
                errors.push(FieldError::invalid(path.member("operator"), value, text));
            }
            "Lt" | "Gt" => {
                errors.push(FieldError::not_supported(path.member("operator"), operator, FUTURE_OPERATORS));
            }
            _ => errors.push(FieldError::not_supported(path.member("operator"), operator, OPERATORS)),
        }
        if !effect.is_empty() {
            taint_effect(effect, &path.member("effect"), errors);
        }
    }
}

/// What a taint does, or a toleration tolerates.
pub(super) fn taint_effect(effect: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if effect.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !effects.contains(&effect) {
        errors.push(FieldError::not_supported(path, effect, effects));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::parse;
    use super::*;

    #[track_caller]
    fn check(rows: &[(&str, &[&str])], validate: impl Fn(&Value, &mut Errors)) {
        for (object, expected) in rows {
            let mut errors = Errors::new();
            validate(&parse(object), &mut errors);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, *expected, "{object}");
        }
    }

    #[test]
    fn affinities() {
        let node = |term: &str| {
            format!(
                r#"{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":[{term}]}}}}}}"#
            )
        };
        let terms = "a.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
        let rows = [
            (r#"{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}"#, ""),
            (
                r#"{"matchExpressions":[{"key":"a","operator":"In"}]}"#,
                "[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ),
            (
                r#"{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}"#,
                "[0].matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            (
                r#"{"matchExpressions":[{"key":"a","operator":"Gt","values":["1","2"]}]}"#,
                "[0].matchExpressions[0].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
            ),
            (
                r#"{"matchExpressions":[{"key":"a","operator":"x"}]}"#,
                r#"[0].matchExpressions[0].operator: Invalid value: "x": not a valid selector operator"#,
            ),
            (
                r#"{"matchFields":[{"key":"x","operator":"In","values":["b"]}]}"#,
                r#"[0].matchFields[0].key: Invalid value: "x": not a valid field selector key"#,
            ),
            (
                r#"{"matchFields":[{"key":"metadata.name","operator":"In"}]}"#,
                "[0].matchFields[0].values: Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            ),
        ];
        for (term, expected) in rows {
            let expected = format!("{terms}{expected}");
            let expected: &[&str] = if expected == terms { &[] } else { &[&expected] };
            check(&[(&node(term), expected)], |object, errors| {
                affinity(object, &FieldPath::root("a"), errors);
            });
        }
        check(
            &[
                (
                    r#"{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{},"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":101}]}}"#,
                    &[
                        "a.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term",
                        "a.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100",
                    ],
                ),
                (
                    r#"{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"k","matchLabelKeys":["a"]},
                        {"topologyKey":"k","matchLabelKeys":["a"],"mismatchLabelKeys":["a"],"labelSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"Exists"}]}}]}}"#,
                    &[
                        "a.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
                        r#"a.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[1][0]: Invalid value: "a": exists in both matchLabelKeys and labelSelector"#,
                        r#"a.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[1].matchLabelKeys[0]: Invalid value: "a": exists in both matchLabelKeys and mismatchLabelKeys"#,
                    ],
                ),
            ],
            |object, errors| affinity(object, &FieldPath::root("a"), errors),
        );
    }

    #[test]
    fn spreading() {
        check(
            &[
                (
                    r#"{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"k","whenUnsatisfiable":"DoNotSchedule"},
                        {"maxSkew":0,"topologyKey":"k","whenUnsatisfiable":"DoNotSchedule","minDomains":0,"nodeTaintsPolicy":"x"}]}"#,
                    &[
                        r#"t[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{k, DoNotSchedule}""#,
                        "t[1].maxSkew: Invalid value: 0: must be greater than zero",
                        "t[1].minDomains: Invalid value: 0: must be greater than zero",
                        r#"t[1].nodeTaintsPolicy: Unsupported value: "x": supported values: "Honor", "Ignore""#,
                    ],
                ),
                (
                    r#"{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"k","whenUnsatisfiable":"ScheduleAnyway","minDomains":2}]}"#,
                    &[
                        "t[0].minDomains: Invalid value: 2: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
                    ],
                ),
            ],
            |spec, errors| spread(spec, &FieldPath::root("t"), errors),
        );
    }
}
