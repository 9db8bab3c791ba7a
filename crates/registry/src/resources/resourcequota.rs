//! Resource quotas.

use std::collections::BTreeSet;

use polder_model::{FieldError, FieldPath, Value, json};

use super::blank_status;
use super::status_rules;
use super::{cells, checks, resource_amounts, resource_names};
use crate::behavior::{Behavior, Column, Print};

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
const OPPOSITES: [[&str; 2]; 2] = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
const POD_COMPUTE: [&str; 6] =
    ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];

pub(super) const RESOURCEQUOTAS: Behavior = Behavior {
    resource: "resourcequotas",
    delete_returns_object: true,
    columns: &[Column::NAME, Column::text("Request"), Column::text("Limit"), Column::AGE],
    cells,
    prepare_create: |object| blank_status::set(object, json!({})),
    validate_status: |new, _, errors| {
        status_rules::amounts(new, &["hard", "used"], resource_names::quota, errors)
    },
    validate,
    ..Behavior::PLAIN
};

fn cells(quota: &Value, print: &Print) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let hard = quota.at(&["status", "hard"]).and_then(Value::as_object);
    for (name, hard) in hard.into_iter().flat_map(|hard| hard.iter()) {
        let used = cells::quantity(quota.at(&["status", "used", name]));
        let text = format!("{name}: {used}/{}", cells::quantity(Some(hard)));
        if name.starts_with("limits.") { limits.push(text) } else { requests.push(text) }
    }
    vec![cells::name(quota), requests.join(", ").into(), limits.join(", ").into(), cells::age(quota, print)]
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let names: Vec<&str> = spec
        .get("hard")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|hard| hard.keys().map(|name| name.as_str()))
        .collect();
    for name in &names {
        resource_names::quota(name, &path.member("hard").key(name), errors);
        let amount = spec.at(&["hard", name]).unwrap_or(&Value::Null);
        resource_amounts::validate_amount(name, amount, &path.member("hard").key(name), errors);
    }
    validate_scopes(spec, &names, &path.member("scopes"), errors);
    validate_selector(spec, &names, &path.member("scopeSelector").member("matchExpressions"), errors);
    let scopes = |quota: &'_ Value| -> BTreeSet<String> {
        let scopes = quota.array_at(&["spec", "scopes"]).iter();
        scopes.map(|scope| scope.as_str().unwrap_or_default().to_owned()).collect()
    };
    if old.is_some_and(|old| scopes(old) != scopes(new)) {
        let value = spec.get("scopes").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(path.member("scopes"), value, checks::IMMUTABLE));
    }
}

/// Whether a scope makes sense for a resource.
fn applies(scope: &str, resource: &str) -> bool {
    let pods = resource == "pods";
    let compute = POD_COMPUTE.contains(&resource);
    match scope {
        "BestEffort" => pods,
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        scope if SCOPES.contains(&scope) => pods || compute,
        _ => true,
    }
}

fn applies_to_all(scope: &str, names: &[&str]) -> bool {
    !SCOPES.contains(&scope)
        || names.iter().all(|name| !resource_names::is_standard_quota(name) || applies(scope, name))
}

fn validate_scopes(spec: &Value, names: &[&str], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let scopes: BTreeSet<&str> = spec.array_at(&["scopes"]).iter().filter_map(Value::as_str).collect();
    // Every text shows all scopes, so each is said once, however many scopes there are.
    let mut problem = |text: &str| {
        let value = spec.get("scopes").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(path, value, text));
    };
    if scopes.iter().any(|scope| !SCOPES.contains(scope)) {
        problem("unsupported scope");
    }
    if scopes.iter().any(|scope| !applies_to_all(scope, names)) {
        problem("unsupported scope applied to resource");
    }
    if OPPOSITES.iter().any(|pair| pair.iter().all(|scope| scopes.contains(scope))) {
        problem("conflicting scopes");
    }
}

fn validate_selector(spec: &Value, names: &[&str], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut scopes = BTreeSet::new();
    let mut misapplied = false;
    for requirement in spec.array_at(&["scopeSelector", "matchExpressions"]) {
        let (scope, operator) =
            (checks::text(requirement, "scopeName"), checks::text(requirement, "operator"));
        let values = requirement.array_at(&["values"]);
        if !SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(path.member("scopeName"), scope, "unsupported scope"));
        }
        if !misapplied && !applies_to_all(scope, names) {
            misapplied = true;
            let value = spec.get("scopeSelector").cloned().unwrap_or_default();
            errors.push(FieldError::invalid(path, value, "unsupported scope applied to resource"));
        }
        if !["PriorityClass", "VolumeAttributesClass"].contains(&scope)
            && SCOPES.contains(&scope)
            && operator != "Exists"
        {
            errors.push(FieldError::invalid(
                path.member("operator"),
                operator,
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                 ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                 ResourceQuotaScopeCrossNamespacePodAffinity",
            ));
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
                path.member("values"),
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::invalid(
                path.member("values"),
                values.to_vec(),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => {
                let text = "not a valid selector operator";
                errors.push(FieldError::invalid(path.member("operator"), operator, text));
            }
        }
        scopes.insert(scope);
    }
    if OPPOSITES.iter().any(|pair| pair.iter().all(|scope| scopes.contains(scope))) {
        let value = spec.get("scopes").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(path, value, "conflicting scopes"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{prints, refuses};
    use super::RESOURCEQUOTAS;

    #[test]
    fn cells() {
        prints(
            &RESOURCEQUOTAS,
            r#"{"metadata":{"name":"q"},"status":{"hard":{"pods":"5","limits.cpu":"2","cpu":"1"},"used":{"pods":"3"}}}"#,
            "q|cpu: 0/1, pods: 3/5|limits.cpu: 0/2|<unknown>",
        );
    }

    #[test]
    fn checks() {
        refuses(
            &RESOURCEQUOTAS,
            r#"{"spec":{"hard":{"pods":"1","count/pods":"2","example.com/x":"1"}}}"#,
            None,
            &[],
        );
        refuses(
            &RESOURCEQUOTAS,
            r#"{"spec":{"hard":{"storage":"1","what":"1"},"scopes":["BestEffort","NotBestEffort"]}}"#,
            Some(r#"{"spec":{"scopes":["BestEffort"]}}"#),
            &[
                r#"spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota"#,
                r#"spec.hard[what]: Invalid value: "what": must be a standard resource type or fully qualified"#,
                r#"spec.hard[what]: Invalid value: "what": must be a standard resource for quota"#,
                r#"spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes"#,
                r#"spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: field is immutable"#,
            ],
        );
        refuses(
            &RESOURCEQUOTAS,
            r#"{"spec":{"hard":{"cpu":"1"},"scopes":["BestEffort"],"scopeSelector":{"matchExpressions":[{"scopeName":"PriorityClass","operator":"In"}]}}}"#,
            None,
            &[
                r#"spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource"#,
                "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            ],
        );
    }

    #[test]
    fn amounts() {
        refuses(
            &RESOURCEQUOTAS,
            r#"{"spec":{"hard":{"pods":"1.5","secrets":"-1"}}}"#,
            None,
            &[
                r#"spec.hard[pods]: Invalid value: "1500m": must be an integer"#,
                r#"spec.hard[secrets]: Invalid value: "-1": must be greater than or equal to 0"#,
            ],
        );
    }
}
