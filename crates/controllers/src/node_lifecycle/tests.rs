use polder_model::{Value, json};

use super::plan;
use super::taint_eviction::{Fate, fate};
use crate::timestamp;

fn node(ready: &str, heard: i64) -> Value {
    let condition = json!({"type": "Ready", "status": ready, "lastHeartbeatTime": (timestamp::text(heard))});
    json!({
        "metadata": {"name": "n", "creationTimestamp": (timestamp::text(900))},
        "status": {"conditions": [condition]},
    })
}

#[test]
fn silence_counts_from_the_last_word() {
    assert_eq!(plan::patience(&node("True", 990), None, 1000), 40);
    assert_eq!(plan::patience(&node("True", 900), Some(990), 1000), 40, "the lease counts too");
    assert_eq!(plan::patience(&node("True", 900), Some(900), 1000), -50);
    assert_eq!(
        plan::patience(&node("True", 900), Some(1_000_000), 1000),
        -50,
        "nobody speaks from the future"
    );
    let new = json!({"metadata": {"creationTimestamp": (timestamp::text(990))}});
    assert_eq!(plan::patience(&new, None, 1000), 50, "a new node has a little more time");
}

/// The taints of a node, as `key:effect` without what they have in common.
fn taints(node: &Value) -> Vec<String> {
    let shown = node.array_at(&["spec", "taints"]).iter().map(|taint| {
        let key = taint.str_at(&["key"]).unwrap_or_default();
        let key = key.trim_start_matches("node.kubernetes.io/");
        format!("{key}:{}", taint.str_at(&["effect"]).unwrap_or_default())
    });
    shown.collect()
}

#[test]
fn conditions_become_taints() {
    let ready = plan::tainted(&node("True", 990), 1000);
    assert_eq!(taints(&ready), Vec::<String>::new());
    let lost = plan::lost(&node("True", 900), 1000);
    let lost = plan::tainted(&lost, 1000);
    assert_eq!(taints(&lost), ["unreachable:NoSchedule", "unreachable:NoExecute"]);
    assert_eq!(plan::tainted(&lost, 2000), lost, "what has not changed is not written");
    let conditions = lost.array_at(&["status", "conditions"]);
    let reasons: Vec<_> = conditions.iter().map(|one| one.str_at(&["reason"]).unwrap_or_default()).collect();
    assert_eq!(reasons[..2], ["NodeStatusUnknown", "NodeStatusNeverUpdated"]);
    let mut back = lost.clone();
    back.set_at(&["status"], node("False", 1000).get("status").cloned().unwrap());
    let mut own = back.array_at(&["spec", "taints"]).to_vec();
    own.push(json!({"key": "mine", "effect": "NoExecute"}));
    back.set_at(&["spec", "taints"], own);
    back.set_at(&["spec", "unschedulable"], true);
    let back = plan::tainted(&back, 1000);
    let expected =
        ["mine:NoExecute", "not-ready:NoSchedule", "not-ready:NoExecute", "unschedulable:NoSchedule"];
    assert_eq!(taints(&back), expected);
}

#[track_caller]
fn check(tolerations: Value, expected: Fate) {
    let taint = |key: &str| json!({"key": key, "value": "v", "effect": "NoExecute"});
    let pod = json!({"spec": {"tolerations": tolerations}});
    assert_eq!(fate(&pod, &[(taint("a"), 1000), (taint("b"), 900)]), expected);
}

#[test]
fn pods_tolerate_for_a_while() {
    check(json!([]), Fate::Goes(0));
    check(json!([{"key": "a", "operator": "Exists"}]), Fate::Goes(0));
    check(json!([{"operator": "Exists"}]), Fate::Stays);
    check(json!([{"operator": "Exists", "tolerationSeconds": 30}]), Fate::Goes(1030));
    let both = json!([
        {"key": "a", "value": "v", "tolerationSeconds": 60},
        {"key": "b", "value": "v", "effect": "NoExecute", "tolerationSeconds": 20},
    ]);
    check(both, Fate::Goes(1020));
    check(json!([{"operator": "Exists", "effect": "NoSchedule"}]), Fate::Goes(0));
    check(json!([{"key": "a", "value": "v"}, {"key": "b", "value": "x"}]), Fate::Goes(0));
}
