//! Whether a pod may be on a node: its node selector, its required node affinity, and the node's taints. Pure.

use polder_model::Value;

use super::Meta as _;

/// Whether the node selector and the required affinity of a pod let it be on a node.
pub(crate) fn fits(spec: &Value, node: &Value) -> bool {
    let selector = spec.get("nodeSelector").and_then(Value::as_object);
    let selected = selector.is_none_or(|labels| {
        labels.iter().all(|(key, value)| node.label(key).is_some_and(|label| Some(label) == value.as_str()))
    });
    let path = ["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    let required = spec.at(&path).filter(|required| !required.is_null());
    selected
        && required.is_none_or(|required| {
            required.array_at(&["nodeSelectorTerms"]).iter().any(|term| term_fits(term, node))
        })
}

/// A term without requirements fits no node.
pub(crate) fn term_fits(term: &Value, node: &Value) -> bool {
    let labels = term.array_at(&["matchExpressions"]);
    let fields = term.array_at(&["matchFields"]);
    if labels.is_empty() && fields.is_empty() {
        return false;
    }
    let name = |key: &str| (key == "metadata.name").then(|| node.name());
    labels.iter().all(|one| requirement_holds(one, |key| node.label(key)))
        && fields.iter().all(|one| requirement_holds(one, name))
}

fn requirement_holds<'v>(requirement: &Value, lookup: impl Fn(&str) -> Option<&'v str>) -> bool {
    let found = lookup(requirement.str_at(&["key"]).unwrap_or_default());
    let values = requirement.array_at(&["values"]);
    let listed = |text: &str| values.iter().any(|one| one.as_str() == Some(text));
    let bound = || values.first().and_then(Value::as_str).and_then(|text| text.parse::<i64>().ok());
    let number = found.and_then(|text| text.parse::<i64>().ok());
    match requirement.str_at(&["operator"]).unwrap_or_default() {
        "In" => found.is_some_and(listed),
        "NotIn" => !found.is_some_and(listed),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => number.zip(bound()).is_some_and(|(number, bound)| number > bound),
        "Lt" => number.zip(bound()).is_some_and(|(number, bound)| number < bound),
        _ => false,
    }
}

/// Whether a pod tolerates all taints of a node that have one of these effects.
pub(crate) fn tolerates(tolerations: &[Value], node: &Value, effects: &[&str]) -> bool {
    let taints = node.array_at(&["spec", "taints"]).iter();
    let mut relevant =
        taints.filter(|taint| effects.contains(&taint.str_at(&["effect"]).unwrap_or_default()));
    relevant.all(|taint| tolerations.iter().any(|one| is_tolerated(one, taint)))
}

fn is_tolerated(toleration: &Value, taint: &Value) -> bool {
    let text = |value: &Value, field: &str| value.str_at(&[field]).unwrap_or_default().to_string();
    let (effect, key) = (text(toleration, "effect"), text(toleration, "key"));
    if !effect.is_empty() && effect != text(taint, "effect") {
        return false;
    }
    if !key.is_empty() && key != text(taint, "key") {
        return false;
    }
    match text(toleration, "operator").as_str() {
        "Exists" => true,
        "" | "Equal" => !key.is_empty() && text(toleration, "value") == text(taint, "value"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    fn node() -> Value {
        json!({
            "metadata": {"name": "one", "labels": {"zone": "a", "cores": "8"}},
            "spec": {"taints": [
                {"key": "k", "value": "v", "effect": "NoSchedule"},
                {"key": "soft", "effect": "PreferNoSchedule"},
            ]},
        })
    }

    #[test]
    fn nodes_fit() {
        let check = |spec: Value, expected| assert_eq!(fits(&spec, &node()), expected, "{spec}");
        let term = |term: Value| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [term]
            }}}})
        };
        check(json!({}), true);
        check(json!({"nodeSelector": {"zone": "a"}}), true);
        check(json!({"nodeSelector": {"zone": "b"}}), false);
        check(term(json!({})), false);
        check(
            term(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["one"]}]})),
            true,
        );
        check(
            term(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["two"]}]})),
            false,
        );
        let label = |operator: &str, values: Value| {
            term(json!({"matchExpressions": [{"key": "cores", "operator": operator, "values": values}]}))
        };
        check(label("Gt", json!(["4"])), true);
        check(label("Lt", json!(["4"])), false);
        check(label("NotIn", json!(["8"])), false);
        check(label("Exists", json!([])), true);
        check(label("DoesNotExist", json!([])), false);
        check(label("Nonsense", json!([])), false);
    }

    #[test]
    fn taints_are_tolerated() {
        let check = |toleration: Value, expected| {
            assert_eq!(
                tolerates(std::slice::from_ref(&toleration), &node(), &["NoSchedule"]),
                expected,
                "{toleration}"
            );
        };
        check(json!({"operator": "Exists"}), true);
        check(json!({"key": "k", "operator": "Exists"}), true);
        check(json!({"key": "k", "value": "v"}), true);
        check(json!({"key": "k", "value": "w"}), false);
        check(json!({"key": "k", "value": "v", "effect": "NoExecute"}), false);
        check(json!({"value": "v"}), false);
        assert!(tolerates(&[], &node(), &["NoExecute"]));
        assert!(!tolerates(&[], &node(), &["NoExecute", "NoSchedule"]));
    }
}
