//! Who has to go so that a more important pod finds a place. Pure.

use std::sync::Arc;

use polder_model::{SmolStr, Value};

use super::filter::may_be_on;
use super::picture::{Budget, NodeView, Picture, priority};
use crate::meta::Meta as _;

/// The node on which the fewest protected and the least important pods have to go, and these pods.
pub(super) fn find(
    picture: &Picture,
    volumes: &[Arc<Value>],
    pod: &Value,
) -> Option<(SmolStr, Vec<Arc<Value>>)> {
    let choices = picture.nodes.iter().filter_map(|view| {
        let (protected, victims) = victims(picture, view, volumes, pod)?;
        let highest = victims.iter().map(|victim| priority(victim)).max().unwrap_or(i64::MIN);
        let sum: i64 = victims.iter().map(|victim| priority(victim)).sum();
        Some(((protected, highest, sum, victims.len(), view.name.clone()), victims))
    });
    let ((.., node), victims) = choices.min_by(|(one, _), (other, _)| one.cmp(other))?;
    Some((node, victims))
}

/// The pods that have to go from a node: none of those less important that can stay. And how many of them a disruption
/// budget protects.
fn victims(
    picture: &Picture,
    view: &NodeView,
    volumes: &[Arc<Value>],
    pod: &Value,
) -> Option<(usize, Vec<Arc<Value>>)> {
    let mut lesser: Vec<Arc<Value>> =
        view.pods.iter().filter(|own| priority(own) < priority(pod)).cloned().collect();
    if lesser.is_empty() || !may_be_on(picture, &view.without(&lesser), volumes, pod) {
        return None;
    }
    lesser.sort_by_key(|own| std::cmp::Reverse(priority(own)));
    // Those that budgets protect are the first to stay, then the most important ones.
    let (protected, free) = divided(&picture.budgets, lesser);
    let mut victims: Vec<Arc<Value>> = protected.iter().chain(&free).cloned().collect();
    let mut violations = protected.len();
    for (number, one) in protected.iter().chain(&free).enumerate() {
        let is_one = |own: &Arc<Value>| Arc::ptr_eq(own, one);
        let without: Vec<_> = victims.iter().filter(|own| !is_one(own)).cloned().collect();
        if may_be_on(picture, &view.without(&without), volumes, pod) {
            victims = without;
            violations -= usize::from(number < protected.len());
        }
    }
    Some((violations, victims))
}

/// Pods whose end a budget does not allow, and the others.
fn divided(budgets: &[Budget], pods: Vec<Arc<Value>>) -> (Vec<Arc<Value>>, Vec<Arc<Value>>) {
    let mut allowed: Vec<i64> = budgets.iter().map(|budget| budget.allowed).collect();
    pods.into_iter().partition(|pod| {
        let mut is_protected = false;
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            let namespace = pod.str_at(&["metadata", "namespace"]).unwrap_or_default();
            if budget.namespace == namespace && pod.is_selected(&budget.selector) {
                *allowed -= 1;
                is_protected |= *allowed < 0;
            }
        }
        is_protected
    })
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[test]
    fn budgets_protect_while_others_can_go() {
        let node = Arc::new(
            json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "pods": "10"}}}),
        );
        let pod = |name: &str, priority: i64| {
            Arc::new(json!({
                "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": name}},
                "spec": {"nodeName": "n", "priority": priority,
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            }))
        };
        let (a, b) = (pod("a", 0), pod("b", 0));
        let budget = |name: &str, allowed: i64| {
            Budget::of(&json!({
                "metadata": {"namespace": "default"},
                "spec": {"selector": {"matchLabels": {"app": name}}},
                "status": {"disruptionsAllowed": allowed},
            }))
        };
        let chosen = |protected: &[&str], allowed: i64| -> Vec<String> {
            let mut picture = Picture::new(vec![node.clone()], &[a.clone(), b.clone()], &[]);
            picture.budgets = protected.iter().map(|name| budget(name, allowed)).collect();
            let (_, victims) = find(&picture, &[], &pod("high", 9)).unwrap();
            victims.iter().map(|one| one.str_at(&["metadata", "name"]).unwrap().to_string()).collect()
        };
        assert_eq!(chosen(&["a"], 0), ["b"]);
        assert_eq!(chosen(&["b"], 0), ["a"]);
        assert_eq!(chosen(&["a", "b"], 0).len(), 1, "somebody has to go");
        assert_eq!(chosen(&["b"], 1), chosen(&[], 0), "a budget that allows it protects nobody");
    }

    /// What keeps a pod away may be the one that has to go.
    #[test]
    fn victims_keep_nobody_away() {
        let node = |name: &str| {
            Arc::new(json!({
                "metadata": {"name": name, "labels": {"host": name}},
                "status": {"allocatable": {"cpu": "2", "pods": "10"}},
            }))
        };
        let far = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "hi"}}, "topologyKey": "host"}]}});
        let pod = |name: &str, on: &str, priority: i64, spec: Value| {
            let mut pod = json!({
                "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": name}}, "spec": spec,
            });
            pod.set_at(&["spec", "nodeName"], on);
            pod.set_at(&["spec", "priority"], priority);
            Arc::new(pod)
        };
        let lesser = pod("low", "a", 0, json!({"affinity": (far.clone())}));
        let picture = Picture::new(vec![node("a")], std::slice::from_ref(&lesser), &[]);
        let found = find(&picture, &[], &pod("hi", "", 9, json!({})));
        assert_eq!(found.map(|(node, victims)| (node, victims.len())), Some(("a".into(), 1)));

        // Two on one node and none on the other, which is closed: for an even spread both have to go.
        let even = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "host",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}]});
        let mut closed = Value::clone(&node("b"));
        closed.set_at(&["spec", "unschedulable"], true);
        let pods = [pod("x", "a", 0, json!({})), pod("y", "a", 0, json!({}))];
        let picture = Picture::new(vec![node("a"), Arc::new(closed)], &pods, &[]);
        let found = find(&picture, &[], &pod("z", "", 9, even));
        assert_eq!(found.map(|(node, victims)| (node, victims.len())), Some(("a".into(), 2)));
    }

    #[test]
    fn volumes_are_where_they_are() {
        let node = Arc::new(json!({"metadata": {"name": "a", "labels": {"host": "a"}},
            "status": {"allocatable": {"pods": "10"}}}));
        let picture = Picture::new(vec![node], &[], &[]);
        let volume = |host: &str| {
            vec![Arc::new(json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "host", "operator": "In", "values": [host]}]}]}}}}))]
        };
        let pod = json!({"metadata": {"name": "p"}, "spec": {}});
        let nodes = |host: &str| super::super::filter::nodes(&picture, &volume(host), &pod);
        assert_eq!(nodes("a").0, ["a"]);
        let (fitting, why) = nodes("elsewhere");
        assert!(fitting.is_empty());
        assert_eq!(why, "0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity.");
    }
}
