//! Which of the nodes a pod may be on is best for it: where it prefers to be, is not crowded, and finds most left. Pure.

use std::cmp::Reverse;

use polder_model::{SmolStr, Value};

use super::filter::{crowds, prefers};
use super::picture::{NodeView, Picture};
use crate::workload::placement::{term_fits, tolerates};

pub(super) fn best(picture: &Picture, pod: &Value, fitting: &[SmolStr]) -> Option<SmolStr> {
    let nominated = pod.str_at(&["status", "nominatedNodeName"]).unwrap_or_default();
    if let Some(own) = fitting.iter().find(|name| *name == nominated) {
        return Some(own.clone());
    }
    let candidates: Vec<&NodeView> =
        picture.nodes.iter().filter(|view| fitting.contains(&view.name)).collect();
    let each =
        |score: &dyn Fn(&NodeView) -> i64| candidates.iter().map(|view| score(view)).collect::<Vec<i64>>();
    let tolerations = pod.array_at(&["spec", "tolerations"]);
    // With upstream's weights.
    let parts = [
        (3, each(&|view| if tolerates(tolerations, &view.node, &["PreferNoSchedule"]) { FULL } else { 0 })),
        (2, of_most(&each(&|view| preference(view, pod)))),
        (2, between(&each(&|view| prefers(picture, view, pod)))),
        (2, least_crowded(&crowds(&candidates, &picture.nodes, pod))),
        (1, each(&|view| i64::try_from(free(view) * i128::from(FULL) / 1_000).unwrap_or(0))),
    ];
    let total = |index: usize| parts.iter().map(|(weight, scores)| weight * scores[index]).sum::<i64>();
    let best = candidates
        .iter()
        .enumerate()
        .max_by_key(|(index, view)| (total(*index), free(view), Reverse(&view.name)));
    best.map(|(_, view)| view.name.clone())
}

/// What the best node gets in each respect.
const FULL: i64 = 100;

/// In proportion to the most.
fn of_most(scores: &[i64]) -> Vec<i64> {
    let most = scores.iter().copied().max().unwrap_or(0);
    scores.iter().map(|score| if most > 0 { score * FULL / most } else { 0 }).collect()
}

/// From nothing for the least to all for the most.
fn between(scores: &[i64]) -> Vec<i64> {
    let (least, most) =
        (scores.iter().copied().min().unwrap_or(0), scores.iter().copied().max().unwrap_or(0));
    scores
        .iter()
        .map(|score| if most > least { (score - least) * FULL / (most - least) } else { 0 })
        .collect()
}

/// The less crowded the better; nothing for a node that is no place at all.
fn least_crowded(crowds: &[Option<i64>]) -> Vec<i64> {
    let known = || crowds.iter().flatten().copied();
    let (least, most) = (known().min().unwrap_or(0), known().max().unwrap_or(0));
    let score = |crowd: &Option<i64>| match crowd {
        Some(_) if most == 0 => FULL,
        Some(crowd) => (most + least - crowd) * FULL / most,
        None => 0,
    };
    crowds.iter().map(score).collect()
}

/// The weight of what a pod prefers of a node.
fn preference(view: &NodeView, pod: &Value) -> i64 {
    let path = ["spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"];
    let terms = pod.array_at(&path).iter();
    let holds = |term: &&Value| term.get("preference").is_some_and(|wanted| term_fits(wanted, &view.node));
    terms.filter(holds).map(|term| term.i64_at(&["weight"]).unwrap_or(0)).sum()
}

/// How much is left, in thousandths of what there is, of what is most in use.
fn free(view: &NodeView) -> i128 {
    let left = |(resource, offered): (&SmolStr, &i128)| {
        let asked = view.asked.get(resource).copied().unwrap_or(0);
        (*offered > 0).then(|| (offered - asked) * 1_000 / offered)
    };
    view.offers.iter().filter_map(left).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polder_model::json;

    use super::*;

    /// Pods that would like to be spread, and a little rather on one of two nodes: on which each goes.
    #[test]
    fn wishes_are_weighed_against_each_other() {
        let node = |name: &str| {
            Arc::new(json!({"metadata": {"name": name, "labels": {"host": name}},
                "status": {"allocatable": {"cpu": "100", "pods": "110"}}}))
        };
        let pod = |number: usize| {
            Arc::new(json!({
                "metadata": {"name": (format!("p{number}")), "uid": (format!("{number}")), "namespace": "default",
                    "labels": {"app": "x"}},
                "spec": {
                    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": {"matchExpressions": [
                            {"key": "host", "operator": "In", "values": ["a"]}]}}]}},
                    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "host",
                        "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "x"}}}]},
            }))
        };
        let mut picture = Picture::new(vec![node("a"), node("b")], &[], &[]);
        let fitting = ["a".into(), "b".into()];
        let mut placed = Vec::new();
        for number in 0..6 {
            let pod = pod(number);
            let found = best(&picture, &pod, &fitting).unwrap();
            picture.put(&found, &pod);
            placed.push(found);
        }
        // What is preferred counts for as much as having nobody there, and for more than having fewer.
        assert_eq!(placed, ["a", "b", "a", "a", "a", "a"]);
        let mut wish = Value::clone(&pod(9));
        wish.remove_at(&["spec", "affinity"]);
        assert_eq!(best(&picture, &wish, &fitting), Some("b".into()));
    }
}
