//! Scopes: which pods, or claims, a quota is about.

use polder_model::Value;

use super::usage::Counted;

/// One condition of a quota on the objects it is about.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    name: &'a str,
    operator: &'a str,
    values: &'a [Value],
}

/// All of them must hold.
pub fn of(quota: &Value) -> impl Iterator<Item = Scope<'_>> {
    let names = quota.array_at(&["spec", "scopes"]).iter().filter_map(Value::as_str);
    let plain = names.map(|name| Scope { name, operator: "Exists", values: &[] });
    let written = quota.array_at(&["spec", "scopeSelector", "matchExpressions"]).iter();
    plain.chain(written.map(|one| Scope {
        name: one.str_at(&["scopeName"]).unwrap_or_default(),
        operator: one.str_at(&["operator"]).unwrap_or_default(),
        values: one.array_at(&["values"]),
    }))
}

pub fn matches(scope: &Scope<'_>, counted: Counted<'_>, object: &Value) -> bool {
    match (counted.group, counted.resource) {
        ("", "pods") => pod(scope, object),
        ("", "persistentvolumeclaims") => claim(scope, object),
        // Nothing else is in any scope.
        _ => false,
    }
}

impl Scope<'_> {
    /// What the operator says about the names an object has.
    fn holds(&self, names: &[&str]) -> bool {
        let listed = |name: &&&str| self.values.iter().any(|value| value.as_str() == Some(**name));
        match self.operator {
            "Exists" => !names.is_empty(),
            "DoesNotExist" => names.is_empty(),
            "In" => names.iter().any(|name| listed(&name)),
            "NotIn" => names.is_empty() || names.iter().any(|name| !listed(&name)),
            _ => false,
        }
    }
}

fn pod(scope: &Scope<'_>, pod: &Value) -> bool {
    match scope.name {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = pod.str_at(&["spec", "priorityClassName"]).filter(|name| !name.is_empty());
            scope.holds(class.as_slice())
        }
        "CrossNamespacePodAffinity" => is_near_others(pod),
        _ => false,
    }
}

/// A pod that ends by itself.
pub fn is_terminating(pod: &Value) -> bool {
    pod.i64_at(&["spec", "activeDeadlineSeconds"]).is_some_and(|seconds| seconds >= 0)
}

fn is_best_effort(pod: &Value) -> bool {
    let asks = |part: &Value| {
        ["requests", "limits"].iter().any(|side| {
            let amounts = crate::amounts::read(part.at(&["resources", side]));
            ["cpu", "memory"].iter().any(|name| amounts.get(*name).is_some_and(|amount| !amount.is_zero()))
        })
    };
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let containers = ["containers", "initContainers"].into_iter().flat_map(|list| spec.array_at(&[list]));
    !asks(spec) && !containers.into_iter().any(asks)
}

/// Whether a pod's affinity looks at pods of other namespaces.
fn is_near_others(pod: &Value) -> bool {
    let crosses = |term: &Value| {
        !term.array_at(&["namespaces"]).is_empty()
            || term.get("namespaceSelector").is_some_and(|selector| !selector.is_null())
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|side| {
        let terms = |list: &str| pod.array_at(&["spec", "affinity", side, list]).iter();
        terms("requiredDuringSchedulingIgnoredDuringExecution").any(crosses)
            || terms("preferredDuringSchedulingIgnoredDuringExecution")
                .any(|term| term.get("podAffinityTerm").is_some_and(crosses))
    })
}

fn claim(scope: &Scope<'_>, claim: &Value) -> bool {
    scope.name == "VolumeAttributesClass" && scope.holds(&attributes_classes(claim))
}

/// The attribute classes a claim has, had, or is to have.
pub fn attributes_classes(claim: &Value) -> Vec<&str> {
    let paths: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    paths.iter().filter_map(|path| claim.str_at(path)).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::parse;
    use crate::quota;

    #[test]
    fn rows() {
        #[track_caller]
        fn check(spec: &str, resource: &str, object: &str, expected: bool) {
            let quota = parse(&format!(
                r#"{{"spec":{{"hard":{{"pods":"1","persistentvolumeclaims":"1"}},{spec}}}}}"#
            ));
            let counted = Counted { group: "", resource };
            assert_eq!(quota::matches(&quota, counted, &parse(object)), expected, "{spec} {object}");
        }
        let deadline = r#"{"spec":{"activeDeadlineSeconds":5}}"#;
        check(r#""scopes":["Terminating"]"#, "pods", deadline, true);
        check(r#""scopes":["Terminating"]"#, "pods", "{}", false);
        check(r#""scopes":["NotTerminating"]"#, "pods", "{}", true);
        check(r#""scopes":["Terminating","NotBestEffort"]"#, "pods", deadline, false);
        check(
            r#""scopes":["BestEffort"]"#,
            "pods",
            r#"{"spec":{"containers":[{"resources":{"limits":{"example.com/x":"1"}}}]}}"#,
            true,
        );
        check(
            r#""scopes":["BestEffort"]"#,
            "pods",
            r#"{"spec":{"containers":[{"resources":{"limits":{"cpu":"1"}}}]}}"#,
            false,
        );
        check(r#""scopes":["BestEffort"]"#, "persistentvolumeclaims", "{}", false);
        let class = |operator: &str, values: &str| {
            format!(
                r#""scopeSelector":{{"matchExpressions":[{{"scopeName":"PriorityClass","operator":"{operator}","values":{values}}}]}}"#
            )
        };
        let high = r#"{"spec":{"priorityClassName":"high"}}"#;
        check(&class("In", r#"["high"]"#), "pods", high, true);
        check(&class("In", r#"["low"]"#), "pods", high, false);
        check(&class("NotIn", r#"["low"]"#), "pods", high, true);
        check(&class("NotIn", r#"["low"]"#), "pods", "{}", true);
        check(&class("Exists", "[]"), "pods", "{}", false);
        check(&class("DoesNotExist", "[]"), "pods", "{}", true);
        let near = r#"{"spec":{"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"namespaceSelector":{}}]}}}}"#;
        check(r#""scopes":["CrossNamespacePodAffinity"]"#, "pods", near, true);
        check(r#""scopes":["CrossNamespacePodAffinity"]"#, "pods", "{}", false);
        let gold = r#"{"spec":{"volumeAttributesClassName":"gold"}}"#;
        check(r#""scopes":["VolumeAttributesClass"]"#, "persistentvolumeclaims", gold, true);
        check(r#""scopes":["VolumeAttributesClass"]"#, "pods", gold, false);
    }
}
