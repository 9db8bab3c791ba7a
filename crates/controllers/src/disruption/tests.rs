use polder_model::{Object, Value, json};

use super::plan::{self, Expected};

#[track_caller]
fn check_expected(spec: Value, pods: i64, expected: Option<(i64, i64)>) {
    let found = plan::expected(&json!({"spec": spec}), pods).ok();
    assert_eq!(found, expected.map(|(pods, healthy)| Expected { pods, healthy }));
}

#[test]
fn expected_pods() {
    check_expected(json!({"minAvailable": 2}), 5, Some((5, 2)));
    check_expected(json!({"minAvailable": "28%"}), 7, Some((7, 2)));
    check_expected(json!({"minAvailable": "30%"}), 7, Some((7, 3)));
    check_expected(json!({"maxUnavailable": 1}), 5, Some((5, 4)));
    check_expected(json!({"maxUnavailable": 9}), 5, Some((5, 0)));
    check_expected(json!({"maxUnavailable": "30%"}), 10, Some((10, 7)));
    check_expected(json!({"maxUnavailable": "100%"}), 0, Some((0, 0)));
    check_expected(json!({"maxUnavailable": "x"}), 5, None);
    check_expected(json!({"maxUnavailable": "9223372036854775807%"}), i64::MAX, None);
    check_expected(json!({}), 5, Some((5, 0)));
}

fn pod(name: &str, ready: bool) -> Box<Value> {
    let status = if ready { "True" } else { "False" };
    Box::new(json!({
        "metadata": {"name": name},
        "status": {"conditions": [{"type": "Ready", "status": status}]},
    }))
}

#[test]
fn evicted_pods_do_not_count_until_it_is_clear_that_they_stay() {
    let now = 1000;
    let time = |seconds| crate::timestamp::text(seconds);
    let disrupted = json!({"a": (time(950)), "b": (time(800)), "gone": (time(999))});
    let budget = json!({"status": {"disruptedPods": disrupted}});
    let pods = [pod("a", true), pod("b", true), pod("c", true), pod("d", false)];
    let found = plan::disrupted(&budget, &pods, now);
    assert_eq!(found.kept.keys().collect::<Vec<_>>(), ["a"]);
    assert_eq!((found.stayed, found.due), (vec!["b".into()], Some(70)));
    assert_eq!(plan::healthy(&pods, &found.kept), 2);
}

#[track_caller]
fn check_allowed(expected: (i64, i64), healthy: i64, allowed: i64, reason: &str) {
    let budget = json!({"metadata": {"generation": 3}});
    let expected = Expected { pods: expected.0, healthy: expected.1 };
    let new = plan::counted(&budget, expected, healthy, Object::new(), 1000);
    assert_eq!(new.i64_at(&["status", "disruptionsAllowed"]), Some(allowed));
    assert_eq!(new.array_at(&["status", "conditions"])[0].str_at(&["reason"]), Some(reason));
    assert_eq!(new.i64_at(&["status", "observedGeneration"]), Some(3));
    let again = plan::counted(&new, expected, healthy, Object::new(), 2000);
    assert_eq!(again, new, "what has not changed is not written");
}

#[test]
fn what_is_allowed() {
    check_allowed((3, 2), 3, 1, "SufficientPods");
    check_allowed((3, 2), 2, 0, "InsufficientPods");
    check_allowed((3, 2), 1, 0, "InsufficientPods");
    check_allowed((0, 0), 0, 0, "InsufficientPods");
    let failed = plan::failed(&json!({}), "why", 1000);
    assert_eq!(failed.array_at(&["status", "conditions"])[0].str_at(&["reason"]), Some("SyncFailed"));
    assert_eq!(failed.i64_at(&["status", "disruptionsAllowed"]), Some(0));
}

#[track_caller]
fn check_stays(status: &str, since: i64, more: &str, expected: Option<i64>) {
    let time = crate::timestamp::text(since);
    let condition = json!({"type": "DisruptionTarget", "status": status, "lastTransitionTime": time});
    let mut pod = json!({"metadata": {"name": "a"}, "status": {"conditions": [condition]}});
    match more {
        "going" => pod.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z"),
        phase => pod.set_at(&["status", "phase"], phase),
    }
    assert_eq!(plan::stays_after(&pod, 1000), expected);
}

#[test]
fn pods_that_were_to_go_and_stay() {
    check_stays("True", 990, "Running", Some(110));
    check_stays("True", 800, "Running", Some(-80));
    check_stays("True", 999_999, "Running", Some(120));
    check_stays("False", 800, "Running", None);
    check_stays("True", 800, "Failed", None);
    check_stays("True", 800, "going", None);
}
