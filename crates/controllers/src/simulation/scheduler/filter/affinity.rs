//! Pods that want to be near others, or far from them.

use polder_model::selector::LabelSelector;
use polder_model::{SmolStr, Value};

use super::super::picture::{NodeView, Picture};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn obstacle(picture: &Picture, view: &NodeView, pod: &Value) -> Option<&'static str> {
    let terms = |pod: &Value, kind: &str| pod.array_at(&["spec", "affinity", kind, REQUIRED]).to_vec();
    for term in terms(pod, "podAffinity") {
        if near(picture, view, pod, &term) {
            continue;
        }
        // The first of a group has nobody to be near to but itself.
        let is_first = matches(picture, pod, pod, &term) && !anywhere(picture, view, pod, &term);
        if !is_first || topology(&view.node, &term).is_none() {
            return Some("node(s) didn't match pod affinity rules");
        }
    }
    if terms(pod, "podAntiAffinity").iter().any(|term| near(picture, view, pod, term)) {
        return Some("node(s) didn't match pod anti-affinity rules");
    }
    // Those who are there may not want this pod near them.
    for other in picture.with(view) {
        for own in &other.pods {
            let repels = |term: &Value| {
                matches(picture, own, pod, term)
                    && topology(&other.node, term).is_some()
                    && topology(&other.node, term) == topology(&view.node, term)
            };
            if terms(own, "podAntiAffinity").iter().any(repels) {
                return Some("node(s) didn't satisfy existing pods anti-affinity rules");
            }
        }
    }
    None
}

/// How much a pod would like to be on a node for the company there.
pub(in super::super) fn prefers(picture: &Picture, view: &NodeView, pod: &Value) -> i64 {
    let sum = |kind: &str| -> i64 {
        let terms = pod.array_at(&["spec", "affinity", kind, PREFERRED]).iter();
        let weight = |term: &Value| {
            let wanted = term.get("podAffinityTerm").cloned().unwrap_or_default();
            if near(picture, view, pod, &wanted) { term.i64_at(&["weight"]).unwrap_or(0) } else { 0 }
        };
        terms.map(weight).sum()
    };
    sum("podAffinity") - sum("podAntiAffinity")
}

/// Whether a term of a pod holds on a node: somebody it selects is in the same place.
fn near(picture: &Picture, view: &NodeView, pod: &Value, term: &Value) -> bool {
    let Some(place) = topology(&view.node, term) else { return false };
    let mut others = picture.with(view).filter(|other| topology(&other.node, term) == Some(place));
    others.any(|other| other.pods.iter().any(|own| matches(picture, pod, own, term)))
}

fn anywhere(picture: &Picture, view: &NodeView, pod: &Value, term: &Value) -> bool {
    picture.with(view).any(|other| {
        topology(&other.node, term).is_some() && other.pods.iter().any(|own| matches(picture, pod, own, term))
    })
}

fn topology<'v>(node: &'v Value, term: &Value) -> Option<&'v str> {
    node.at(&["metadata", "labels"])?.str_at(&[term.str_at(&["topologyKey"])?])
}

/// Whether a term of `pod` selects `other`.
fn matches(picture: &Picture, pod: &Value, other: &Value, term: &Value) -> bool {
    let space = |pod: &Value| SmolStr::new(pod.str_at(&["metadata", "namespace"]).unwrap_or_default());
    let (own, theirs) = (space(pod), space(other));
    let named = term.array_at(&["namespaces"]);
    let by_label = term.get("namespaceSelector").filter(|selector| !selector.is_null());
    let in_space = match by_label {
        None if named.is_empty() => own == theirs,
        _ => {
            named.iter().any(|name| name.as_str() == Some(&theirs))
                || by_label.is_some_and(|selector| {
                    let labels = picture.namespaces.get(&theirs);
                    labels.is_some_and(|labels| selects(selector, labels))
                })
        }
    };
    let empty = Value::Null;
    let labels = other.at(&["metadata", "labels"]).unwrap_or(&empty);
    in_space && term.get("labelSelector").is_some_and(|selector| selects(selector, labels))
}

pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let selector = LabelSelector::from_value(selector);
    selector.is_ok_and(|selector| selector.matches(|key| labels.str_at(&[key])))
}
