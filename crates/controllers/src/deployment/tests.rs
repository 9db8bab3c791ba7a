//! Rollouts as rows: sizes of sets before, and after one step.

use std::sync::Arc;

use polder_model::{Value, json};

use super::plan::{Plan, World, plan};
use super::set::Set;
use crate::workload::{Meta as _, condition, meta};

const NOW: i64 = 1_800_000_000;

fn template(version: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": version}]}})
}

/// Of this size, with this strategy, at template `v2`.
fn deployment(size: i64, strategy: Value) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "n", "uid": "d", "generation": 1},
        "spec": {
            "replicas": size,
            "selector": {"matchLabels": {"app": "web"}},
            "template": (template("v2")),
            "strategy": strategy,
            "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 1,
        },
    })
}

fn rolling(surge: i64, unavailable: i64) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

/// A set with a template, of a size, with so many pods available of as many as there are.
fn set(version: &str, size: i64, available: i64, noted: (i64, i64)) -> Arc<Value> {
    let age: i64 = version.trim_start_matches('v').parse().unwrap();
    let (desired, max) = noted;
    let mut set = json!({
        "metadata": {
            "name": version,
            "uid": version,
            "generation": 1,
            "creationTimestamp": (meta::time(NOW - 1000 + age)),
        },
        "spec": {"replicas": size, "template": (template(version))},
        "status": {"replicas": size, "availableReplicas": available, "readyReplicas": available, "observedGeneration": 1},
    });
    let notes = [
        ("revision", age.to_string()),
        ("desired-replicas", desired.to_string()),
        ("max-replicas", max.to_string()),
    ];
    for (key, value) in notes {
        set.set_at(&["metadata", "annotations", &format!("deployment.kubernetes.io/{key}")], value);
    }
    Arc::new(set)
}

fn step(deployment: &Value, sets: &[Arc<Value>], running: &[&str]) -> Plan {
    let running = running.iter().map(|uid| (*uid).into()).collect();
    plan(World { deployment, sets: sets.to_vec(), running, now: NOW })
}

/// The sizes of sets that change, by template; one that is made is `new`.
fn sizes(plan: &Plan) -> Vec<(String, i64)> {
    let name = |set: &Set| if set.old.is_some() { set.new.name().to_string() } else { "new".to_string() };
    let changed = plan.sets.iter().filter(|set| set.old.is_none() || set.size() != set.size_before());
    changed.map(|set| (name(set), set.size())).collect()
}

#[test]
fn rollouts() {
    let check = |desired, strategy: Value, sets: &[Arc<Value>], expected: &[(&str, i64)]| {
        let plan = step(&deployment(desired, strategy), sets, &[]);
        let expected: Vec<(String, i64)> =
            expected.iter().map(|(name, size)| (name.to_string(), *size)).collect();
        assert_eq!(sizes(&plan), expected);
    };
    let at = |version, size, available| set(version, size, available, (10, 12));
    // The first set gets everything at once.
    check(10, rolling(2, 0), &[], &[("new", 10)]);
    // A new template: as many as may be too many, or as few as may be missing.
    check(10, rolling(2, 0), &[at("v1", 10, 10)], &[("new", 2)]);
    check(10, rolling(0, 2), &[at("v1", 10, 10)], &[("v1", 8), ("new", 0)]);
    // Nothing moves until pods are available.
    check(10, rolling(2, 0), &[at("v1", 10, 10), at("v2", 2, 0)], &[]);
    check(10, rolling(2, 0), &[at("v1", 10, 10), at("v2", 2, 2)], &[("v1", 8)]);
    check(10, rolling(2, 0), &[at("v1", 8, 8), at("v2", 2, 2)], &[("v2", 4)]);
    // Pods that are not available are no loss; the oldest go first.
    check(10, rolling(3, 2), &[at("v1", 8, 0), at("v2", 5, 5)], &[("v1", 3)]);
    check(10, rolling(0, 2), &[at("v0", 4, 4), at("v1", 6, 4), at("v2", 0, 0)], &[("v1", 4)]);
    // Pods of the newest that are not available count as a loss.
    check(10, rolling(3, 2), &[at("v1", 8, 8), at("v2", 5, 0)], &[]);
    // Back to an older template: what came between is shrunk.
    check(10, rolling(3, 2), &[at("v2", 8, 7), at("v3", 5, 0)], &[("v3", 1)]);
    // The newest is larger than wanted.
    check(10, rolling(0, 1), &[at("v2", 12, 12)], &[("v2", 10)]);
}

#[test]
fn recreation_waits_for_the_old_to_be_gone() {
    let deployment = deployment(3, json!({"type": "Recreate"}));
    let noted = (3, 3);
    let plan = step(&deployment, &[set("v1", 3, 3, noted)], &["v1"]);
    assert_eq!(sizes(&plan), [("v1".to_string(), 0)]);
    let mut gone = Value::clone(&set("v1", 0, 0, noted));
    gone.set_at(&["status"], json!({"replicas": 0, "observedGeneration": 1}));
    let gone = Arc::new(gone);
    assert_eq!(sizes(&step(&deployment, std::slice::from_ref(&gone), &["v1"])), []);
    assert_eq!(sizes(&step(&deployment, &[gone], &[])), [("new".to_string(), 3)]);
}

#[test]
fn sets_grow_and_shrink_by_their_shares() {
    let check = |desired, sets: &[(&str, i64)], noted, expected: &[i64]| {
        let sets: Vec<_> = sets.iter().map(|(version, size)| set(version, *size, *size, noted)).collect();
        let plan = step(&deployment(desired, rolling(0, 1)), &sets, &[]);
        let size = |set: &Arc<Value>| {
            let changed = plan.sets.iter().find(|one| one.new.name() == set.name());
            changed.map_or(set.count_at(&["spec", "replicas"]), Set::size)
        };
        assert_eq!(sets.iter().map(size).collect::<Vec<_>>(), expected);
    };
    // One set follows the deployment.
    check(12, &[("v2", 10)], (10, 10), &[12]);
    check(0, &[("v2", 10)], (10, 10), &[0]);
    check(12, &[("v1", 0), ("v2", 10)], (10, 10), &[0, 12]);
    // Several share: half each, the newest first when it grows, the oldest when it shrinks.
    check(12, &[("v1", 5), ("v2", 5)], (10, 10), &[6, 6]);
    check(11, &[("v1", 5), ("v2", 5)], (10, 10), &[5, 6]);
    check(9, &[("v1", 5), ("v2", 5)], (10, 10), &[4, 5]);
    check(20, &[("v1", 2), ("v2", 8)], (10, 10), &[4, 16]);
    check(0, &[("v1", 5), ("v2", 5)], (10, 10), &[0, 0]);
    check(25, &[("v1", 8), ("v2", 2)], (10, 10), &[20, 5]);
}

#[test]
fn paused_deployments_are_scaled_but_not_rolled_out() {
    let mut paused = deployment(5, rolling(1, 1));
    paused.set_at(&["spec", "paused"], true);
    let plan = step(&paused, &[set("v1", 3, 3, (3, 4))], &[]);
    assert_eq!(sizes(&plan), [("v1".to_string(), 5)]);
    let status = plan.deployment.unwrap();
    let progressing = condition::find(condition::of(&status), "Progressing").unwrap();
    assert_eq!(progressing.str_at(&["reason"]), Some("DeploymentPaused"));
}

#[test]
fn old_sets_are_forgotten_when_the_rollout_is_over() {
    let empty = |version| {
        let mut set = Value::clone(&set(version, 0, 0, (2, 3)));
        set.set_at(&["status"], json!({"replicas": 0, "observedGeneration": 1}));
        Arc::new(set)
    };
    let mut deployment = deployment(2, rolling(1, 0));
    deployment.set_at(&["spec", "template"], template("v9"));
    let sets = [empty("v1"), empty("v2"), empty("v3"), set("v9", 2, 2, (2, 3))];
    let plan = step(&deployment, &sets, &[]);
    let names: Vec<&str> = plan.forgotten.iter().map(|set| set.name()).collect();
    assert_eq!(names, ["v1", "v2"]);
    let half = step(&deployment, &[empty("v1"), empty("v2"), set("v9", 2, 1, (2, 3))], &[]);
    assert!(half.forgotten.is_empty());
}

#[test]
fn lack_of_progress_is_told() {
    let progressing = |seconds_ago: i64, reason: &str, available: i64| {
        let mut deployment = deployment(2, rolling(1, 0));
        let then = meta::time(NOW - seconds_ago);
        deployment.set_at(
            &["status"],
            json!({
                "replicas": 2, "updatedReplicas": 2, "observedGeneration": 1,
                "conditions": [{
                    "type": "Progressing", "status": "True", "reason": reason, "message": "",
                    "lastUpdateTime": (then.clone()), "lastTransitionTime": (then),
                }],
            }),
        );
        let plan = step(&deployment, &[set("v2", 2, available, (2, 3))], &[]);
        let status = plan.deployment.unwrap_or(deployment);
        let condition = condition::find(condition::of(&status), "Progressing").unwrap();
        (condition.str_at(&["reason"]).unwrap().to_string(), plan.check_in)
    };
    assert_eq!(progressing(100, "NewReplicaSetCreated", 0), ("NewReplicaSetCreated".into(), Some(501)));
    assert_eq!(progressing(601, "NewReplicaSetCreated", 0), ("ProgressDeadlineExceeded".into(), None));
    assert_eq!(progressing(601, "NewReplicaSetCreated", 1), ("ReplicaSetUpdated".into(), Some(601)));
    assert_eq!(progressing(100, "ReplicaSetUpdated", 2), ("NewReplicaSetAvailable".into(), None));
    assert_eq!(progressing(9999, "NewReplicaSetAvailable", 0), ("NewReplicaSetAvailable".into(), None));
}

#[test]
fn revisions_go_up_and_are_remembered() {
    let deployment = deployment(2, rolling(1, 0));
    // The third template is left for the second.
    let plan = step(&deployment, &[set("v2", 0, 0, (2, 3)), set("v3", 2, 2, (2, 3))], &[]);
    let back = plan.sets.iter().find(|set| set.new.name() == "v2").unwrap();
    assert_eq!(back.new.annotation("deployment.kubernetes.io/revision"), Some("4"));
    assert_eq!(back.new.annotation("deployment.kubernetes.io/revision-history"), Some("2"));
    let told = plan.deployment.unwrap();
    assert_eq!(told.annotation("deployment.kubernetes.io/revision"), Some("4"));
}
