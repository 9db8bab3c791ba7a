//! Nodes and pods as rows: what comes, what goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use polder_model::{SmolStr, Value, json};

use super::plan::{World, judge, plan, status, target, template};
use crate::workload::Meta as _;

const NOW: i64 = 1_800_000_000;

fn node(name: &str) -> Arc<Value> {
    Arc::new(json!({"metadata": {"name": name, "labels": {"disk": "ssd"}}}))
}

fn set(strategy: Value) -> Value {
    json!({"metadata": {"name": "d", "generation": 2}, "spec": {"updateStrategy": strategy, "template": {"spec": {}}}})
}

/// A pod `node.number`, of a template, in a state.
fn pod(name: &str, hash: &str, state: &str) -> (SmolStr, Arc<Value>) {
    let node = name.split_once('.').unwrap().0;
    let ready = if state == "ready" { "True" } else { "False" };
    let phase = if state == "failed" { "Failed" } else { "Running" };
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"controller-revision-hash": hash}},
        "spec": {"nodeName": node},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    });
    if state == "leaving" {
        pod.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
    }
    (SmolStr::new(node), Arc::new(pod))
}

fn world<'a>(set: &'a Value, nodes: &[&str], pods: &[(SmolStr, Arc<Value>)]) -> World<'a> {
    let mut by_node: BTreeMap<SmolStr, Vec<Arc<Value>>> = BTreeMap::new();
    for (node, pod) in pods {
        by_node.entry(node.clone()).or_default().push(pod.clone());
    }
    World {
        set,
        nodes: nodes.iter().map(|name| node(name)).collect(),
        pods: by_node,
        hash: "new".into(),
        now: NOW,
    }
}

#[test]
fn pods_come_and_go() {
    let check = |strategy: Value,
                 nodes: &[&str],
                 pods: &[(SmolStr, Arc<Value>)],
                 create: &[&str],
                 delete: &[&str]| {
        let set = set(strategy);
        let plan = plan(&world(&set, nodes, pods));
        let deleted: Vec<&str> =
            plan.delete.iter().chain(plan.failed.iter().map(|(_, pod)| pod)).map(|pod| pod.name()).collect();
        assert_eq!(
            (&plan.create[..], &deleted[..]),
            (&create.iter().map(|name| SmolStr::new(*name)).collect::<Vec<_>>()[..], delete)
        );
    };
    let rolling = |unavailable: i64, surge: i64| json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}});
    let one = || rolling(1, 0);
    check(one(), &["a", "b"], &[], &["a", "b"], &[]);
    check(one(), &["a", "b"], &[pod("a.1", "new", "ready")], &["b"], &[]);
    // Too many, failed, on its way out, on a node that is gone.
    check(one(), &["a"], &[pod("a.1", "new", "ready"), pod("a.2", "new", "ready")], &[], &["a.2"]);
    check(one(), &["a"], &[pod("a.1", "new", "failed")], &[], &["a.1"]);
    check(one(), &["a"], &[pod("a.1", "new", "leaving")], &[], &[]);
    check(one(), &[], &[pod("a.1", "new", "ready")], &[], &[]);
    // A new template: one node at a time, those without a working pod at once.
    let old = [pod("a.1", "old", "ready"), pod("b.1", "old", "ready"), pod("c.1", "old", "ready")];
    check(one(), &["a", "b", "c"], &old, &[], &["a.1"]);
    check(rolling(2, 0), &["a", "b", "c"], &old, &[], &["a.1", "b.1"]);
    check(json!({"type": "OnDelete"}), &["a", "b", "c"], &old, &[], &[]);
    let half = [pod("a.1", "new", "starts"), pod("b.1", "old", "ready"), pod("c.1", "old", "sick")];
    check(one(), &["a", "b", "c"], &half, &[], &["c.1"]);
    check(rolling(3, 0), &["a", "b", "c"], &half, &[], &["c.1", "b.1"]);
    // With one more first.
    check(rolling(0, 1), &["a", "b", "c"], &old, &["a"], &[]);
    let both = [pod("a.1", "old", "ready"), pod("a.2", "new", "starts"), pod("b.1", "old", "ready")];
    check(rolling(0, 1), &["a", "b"], &both, &[], &[]);
    let both = [pod("a.1", "old", "ready"), pod("a.2", "new", "ready"), pod("b.1", "old", "ready")];
    check(rolling(0, 1), &["a", "b"], &both, &[], &["a.1"]);
}

#[test]
fn taints_and_selectors_decide() {
    let check = |spec: Value, taints: Value, may_run, may_stay| {
        let mut node = Value::clone(&node("a"));
        node.set_at(&["spec", "taints"], taints);
        let verdict = judge(&json!({"spec": {"template": {"spec": spec}}}), &node);
        assert_eq!((verdict.may_run, verdict.may_stay), (may_run, may_stay), "{node}");
    };
    let taint = |key: &str, effect: &str| json!([{"key": key, "effect": effect}]);
    check(json!({}), json!([]), true, true);
    check(json!({"nodeSelector": {"disk": "ssd"}}), json!([]), true, true);
    check(json!({"nodeSelector": {"disk": "tape"}}), json!([]), false, false);
    check(json!({"nodeName": "b"}), json!([]), false, false);
    check(json!({}), taint("mine", "NoSchedule"), false, true);
    check(json!({}), taint("mine", "NoExecute"), false, false);
    check(json!({}), taint("node.kubernetes.io/unschedulable", "NoSchedule"), true, true);
    check(json!({}), taint("node.kubernetes.io/not-ready", "NoExecute"), true, true);
    check(json!({}), taint("node.kubernetes.io/network-unavailable", "NoSchedule"), false, true);
    check(
        json!({"hostNetwork": true}),
        taint("node.kubernetes.io/network-unavailable", "NoSchedule"),
        true,
        true,
    );
}

#[test]
fn pods_are_meant_for_their_node() {
    let template = template(&set(json!({})), "new", "b");
    assert_eq!(target(&template), Some("b"));
    assert_eq!(template.label("controller-revision-hash"), Some("new"));
}

#[test]
fn counts() {
    let set = set(json!({}));
    let pods = [pod("a.1", "new", "ready"), pod("b.1", "old", "sick")];
    let status = status(&world(&set, &["a", "b", "c"], &pods));
    let expected = json!({
        "desiredNumberScheduled": 3, "currentNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": 1,
        "updatedNumberScheduled": 1, "numberAvailable": 1, "numberUnavailable": 2, "observedGeneration": 2,
    });
    assert_eq!(status, expected);
}
