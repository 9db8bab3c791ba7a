//! Pods as rows: what comes, what goes, in which order.

use std::sync::Arc;

use polder_model::{Value, json};

use super::claims;
use super::plan::{Step, World, ordinal, plan, status};

const NOW: i64 = 1_800_000_000;

fn set(replicas: i64, more: &[(&str, Value)]) -> Value {
    let mut set = json!({
        "metadata": {"name": "db", "namespace": "n", "uid": "s", "generation": 1},
        "spec": {
            "replicas": replicas,
            "serviceName": "peers",
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        },
    });
    for (path, value) in more {
        let path: Vec<&str> = path.split('.').collect();
        set.set_at(&path, value.clone());
    }
    set
}

fn revision(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"spec": {"template": {"$patch": "replace", "spec": {"v": name}}}}})
}

/// Pods like `0 new ready`.
fn pods(rows: &[&str]) -> Vec<Arc<Value>> {
    let pod = |row: &&str| {
        let words: Vec<&str> = row.split(' ').collect();
        let name = format!("db-{}", words[0]);
        let phase = match words[2] {
            "ready" | "sick" | "leaving" => "Running",
            "failed" => "Failed",
            _ => "Pending",
        };
        let ready = if words[2] == "ready" { "True" } else { "False" };
        let mut pod = json!({
            "metadata": {"name": (name.as_str()), "uid": (name.as_str()), "labels": {
                "controller-revision-hash": (words[1]),
                "statefulset.kubernetes.io/pod-name": (name.as_str()),
            }},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
        });
        if words[2] == "leaving" {
            pod.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
        }
        Arc::new(pod)
    };
    rows.iter().map(pod).collect()
}

fn steps(set: &Value, rows: &[&str]) -> Vec<String> {
    let (current, update) = (revision("old"), revision("new"));
    let world = World { set, pods: pods(rows), current: &current, update: &update, now: NOW };
    let name = |step: &Step| match step {
        Step::Create(pod, _) => {
            let labels = pod.at(&["metadata", "labels", "controller-revision-hash"]);
            format!("+{} {}", pod.str_at(&["metadata", "name"]).unwrap(), labels.unwrap().as_str().unwrap())
        }
        Step::Delete(pod) => format!("-{}", pod.str_at(&["metadata", "name"]).unwrap()),
        Step::Mend(pod) => format!("~{}", pod.str_at(&["metadata", "name"]).unwrap()),
        Step::Claims(_) => "claims".to_string(),
    };
    plan(&world).iter().map(name).collect()
}

#[test]
fn pods_come_and_go_in_order() {
    let check =
        |set: &Value, rows: &[&str], expected: &[&str]| assert_eq!(steps(set, rows), expected, "{rows:?}");
    let three = set(3, &[]);
    check(&three, &[], &["+db-0 new"]);
    check(&three, &["0 new pending"], &[]);
    check(&three, &["0 new ready"], &["+db-1 new"]);
    check(&three, &["0 new ready", "1 new sick", "2 new ready"], &[]);
    check(&three, &["0 new ready", "1 new failed", "2 new ready"], &["-db-1"]);
    check(&three, &["0 new ready", "1 new ready", "2 new ready"], &[]);
    // Fewer: the last goes first, one at a time.
    let one = set(1, &[]);
    check(&one, &["0 new ready", "1 new ready", "2 new ready"], &["-db-2"]);
    check(&one, &["0 new ready", "1 new ready", "2 new leaving"], &[]);
    check(&one, &["0 new sick", "1 new ready"], &[]);
    check(&one, &["0 new ready", "1 new sick", "2 new ready"], &["-db-2"]);
    check(&one, &["0 new ready", "1 new sick", "2 new sick"], &[]);
    check(&one, &["0 new ready", "1 new sick"], &["-db-1"]);
    // All at once.
    let burst = set(3, &[("spec.podManagementPolicy", json!("Parallel"))]);
    check(
        &burst,
        &["1 new pending", "3 new ready", "4 new sick"],
        &["+db-0 new", "+db-2 new", "-db-4", "-db-3"],
    );
    // Numbers that do not begin at zero.
    let shifted = set(2, &[("spec.ordinals", json!({"start": 3}))]);
    check(&shifted, &[], &["+db-3 new"]);
    check(&shifted, &["0 new ready", "3 new ready", "4 new ready"], &["-db-0"]);
    let gone = set(3, &[("metadata.deletionTimestamp", json!("2026-01-01T00:00:00Z"))]);
    check(&gone, &[], &[]);
}

#[test]
fn updates_go_from_the_last_to_the_first() {
    let check =
        |set: &Value, rows: &[&str], expected: &[&str]| assert_eq!(steps(set, rows), expected, "{rows:?}");
    let three = set(3, &[]);
    check(&three, &["0 old ready", "1 old ready", "2 old ready"], &["-db-2"]);
    check(&three, &["0 old ready", "1 old ready", "2 new ready"], &["-db-1"]);
    check(&three, &["0 old ready", "1 old ready", "2 new sick"], &[]);
    check(&three, &["0 old ready", "1 old ready"], &["+db-2 new"]);
    let part = set(3, &[("spec.updateStrategy.rollingUpdate.partition", json!(2))]);
    check(&part, &["0 old ready", "1 old ready", "2 old ready"], &["-db-2"]);
    check(&part, &["0 old ready", "1 old ready", "2 new ready"], &[]);
    check(&part, &["0 old ready", "2 new ready"], &["+db-1 old"]);
    let manual = set(3, &[("spec.updateStrategy", json!({"type": "OnDelete"}))]);
    check(&manual, &["0 old ready", "1 old ready", "2 old ready"], &[]);
    check(&manual, &["0 old ready", "1 old ready"], &["+db-2 new"]);
}

#[test]
fn an_update_is_over_when_all_are_ready() {
    let check = |rows: &[&str], expected: (&str, Option<i64>, Option<i64>)| {
        let set = set(2, &[]);
        let (current, update) = (revision("old"), revision("new"));
        let status =
            status(&World { set: &set, pods: pods(rows), current: &current, update: &update, now: NOW });
        let number = |field: &str| status.i64_at(&[field]);
        let name = status.str_at(&["currentRevision"]).unwrap();
        assert_eq!((name, number("currentReplicas"), number("updatedReplicas")), expected);
    };
    check(&["0 old ready", "1 new ready"], ("old", Some(1), Some(1)));
    check(&["0 new ready", "1 new sick"], ("old", None, Some(2)));
    check(&["0 new ready", "1 new ready"], ("new", Some(2), Some(2)));
}

#[test]
fn names_have_numbers() {
    let check = |name: &str, expected| {
        let pod = json!({"metadata": {"name": name}});
        assert_eq!(ordinal(&set(1, &[]), &pod), expected, "{name}");
    };
    check("db-0", Some(0));
    check("db-17", Some(17));
    check("db-x", None);
    check("db-", None);
    check("db-+1", None);
    check("db-99999999999999", None);
    check("dbx-0", None);
    check("db-0-1", None);
}

#[test]
fn claims_end_with_whom_they_should() {
    let check = |deleted: &str, scaled: &str, number: i64, expected: &[&str]| {
        let policy = json!({"whenDeleted": deleted, "whenScaled": scaled});
        let set = set(1, &[("spec.persistentVolumeClaimRetentionPolicy", policy)]);
        let pod = json!({"metadata": {"name": (format!("db-{number}")), "uid": "p"}});
        let owners = claims::owners(&set, &pod, number, &[]);
        let kinds: Vec<&str> = owners.iter().filter_map(|one| one.str_at(&["kind"])).collect();
        assert_eq!(kinds, expected, "{deleted} {scaled} {number}");
        assert_eq!(claims::owners(&set, &pod, number, &owners), owners, "twice is once");
    };
    for number in [0, 1] {
        check("Retain", "Retain", number, &[]);
        check("Delete", "Retain", number, &["StatefulSet"]);
    }
    check("Retain", "Delete", 0, &[]);
    check("Retain", "Delete", 1, &["Pod"]);
    check("Delete", "Delete", 0, &["StatefulSet"]);
    check("Delete", "Delete", 1, &["Pod"]);
}

#[test]
fn claims_are_of_sets() {
    let check = |claim: &str, expected: &[&str]| {
        assert_eq!(super::owners(claim).collect::<Vec<_>>(), expected, "{claim}");
    };
    check("data-db-0", &["db"]);
    check("data-my-db-12", &["my-db", "db"]);
    check("data", &[]);
    check("data-db", &[]);
    check("data-0", &[]);
    assert_eq!(super::owners(&format!("{}0", "a-".repeat(100))).count(), 16);
}
