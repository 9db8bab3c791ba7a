//! Jobs as rows: pods before, what comes of them.

use std::sync::Arc;

use polder_model::{Value, json};

use super::facts::Facts;
use super::failure_policy::{Effect, effect};
use super::manage::{Step, manage};
use super::verdict::verdict;
use super::{FINALIZER, track};
use crate::timestamp;
use crate::workload::Meta as _;

const NOW: &str = "2026-01-01T12:00:00Z";

fn job(spec: Value, status: Value) -> Value {
    let mut job =
        json!({"metadata": {"name": "j", "namespace": "n", "uid": "j"}, "spec": spec, "status": status});
    if job.at(&["spec", "template"]).is_none() {
        job.set_at(&["spec", "template", "spec", "containers"], json!([{"name": "c"}]));
    }
    job
}

/// Pods like `a Succeeded` or `b Failed 3 1`: name, phase, index, failures before. They ended an hour ago.
fn pods(rows: &[&str]) -> Vec<Arc<Value>> {
    let pod = |row: &&str| {
        let words: Vec<&str> = row.split(' ').collect();
        let mut pod = json!({
            "metadata": {"name": (words[0]), "namespace": "n", "uid": (words[0]), "finalizers": [FINALIZER]},
            "status": {"phase": (words[1]), "containerStatuses": [
                {"name": "c", "state": {"terminated": {"exitCode": 7, "finishedAt": "2026-01-01T11:00:00Z"}}}
            ]},
        });
        for (word, key) in words[2..].iter().zip(["job-completion-index", "job-index-failure-count"]) {
            pod.set_at(&["metadata", "annotations", &format!("batch.kubernetes.io/{key}")], *word);
        }
        Arc::new(pod)
    };
    rows.iter().map(pod).collect()
}

fn facts(job: &Value, rows: &[&str]) -> Facts {
    Facts::gather(job, pods(rows), timestamp::seconds(NOW).unwrap())
}

#[test]
fn pods_come_and_go() {
    let check = |spec: Value, status: Value, rows: &[&str], expected: &str| {
        let job = job(spec, status);
        let step = match manage(&job, &facts(&job, rows)) {
            Step::Rest => "rest".to_string(),
            Step::Wait(seconds) => format!("wait {seconds}"),
            Step::Create(pods) => {
                let index = |pod: &Value| {
                    pod.annotation("batch.kubernetes.io/job-completion-index").unwrap_or("-").to_string()
                };
                format!("create {}", pods.iter().map(index).collect::<Vec<_>>().join(","))
            }
            Step::Delete(pods) => {
                let mut names: Vec<&str> = pods.iter().map(|pod| pod.name()).collect();
                names.sort_unstable();
                format!("delete {}", names.join(","))
            }
        };
        assert_eq!(step, expected, "{rows:?}");
    };
    let none = || json!({});
    check(json!({"parallelism": 2, "completions": 5}), none(), &[], "create -,-");
    check(json!({"parallelism": 2, "completions": 5}), none(), &["a Running"], "create -");
    check(json!({"parallelism": 3, "completions": 5}), json!({"succeeded": 4}), &[], "create -");
    check(json!({"parallelism": 3, "completions": 5}), json!({"succeeded": 4}), &["a Running"], "rest");
    check(json!({"parallelism": 1, "completions": 5}), none(), &["a Running", "b Pending"], "delete b");
    check(json!({"parallelism": 2}), none(), &["a Running"], "create -");
    check(json!({"parallelism": 2}), none(), &["a Running", "b Succeeded"], "rest");
    check(json!({"parallelism": 2, "suspend": true}), none(), &["a Running"], "delete a");
    // After failures the next one waits, longer each time.
    let recent = json!({"metadata": {"name": "f", "uid": "f", "finalizers": [FINALIZER]}, "status": {"phase": "Failed",
        "containerStatuses": [{"name": "c", "state": {"terminated": {"finishedAt": "2026-01-01T11:59:57Z"}}}]}});
    let one = job(json!({"parallelism": 1, "completions": 1}), none());
    let facts = Facts::gather(&one, vec![Arc::new(recent)], timestamp::seconds(NOW).unwrap());
    assert!(matches!(manage(&one, &facts), Step::Wait(7)));
    // Indexes.
    let indexed = |more: &[(&str, i64)]| {
        let mut spec = json!({"parallelism": 2, "completions": 4, "completionMode": "Indexed"});
        more.iter().for_each(|(field, value)| spec.set_at(&[field], *value));
        spec
    };
    check(indexed(&[]), none(), &[], "create 0,1");
    check(indexed(&[]), json!({"completedIndexes": "0,2"}), &["a Running 1"], "create 3");
    check(indexed(&[]), none(), &["a Running 1", "b Pending 1"], "delete b");
    check(indexed(&[]), none(), &["a Running 1", "b Running 9"], "delete b");
    check(indexed(&[("backoffLimitPerIndex", 1)]), none(), &["a Failed 0 0"], "create 0,1");
    check(indexed(&[("backoffLimitPerIndex", 1)]), none(), &["a Failed 0 1"], "create 1,2");
}

#[test]
fn ends() {
    let check = |spec: Value, status: Value, rows: &[&str], expected: Option<&str>| {
        let job = job(spec, status);
        let end = verdict(&job, &facts(&job, rows));
        assert_eq!(end.as_ref().map(|end| end.reason.as_str()), expected, "{rows:?}");
    };
    let none = || json!({});
    check(json!({"backoffLimit": 1}), none(), &["a Failed"], None);
    check(json!({"backoffLimit": 1}), none(), &["a Failed", "b Failed"], Some("BackoffLimitExceeded"));
    check(json!({"backoffLimit": 1}), json!({"failed": 1}), &["a Failed"], Some("BackoffLimitExceeded"));
    let started = || json!({"startTime": "2026-01-01T11:59:00Z"});
    check(json!({"activeDeadlineSeconds": 60}), started(), &[], Some("DeadlineExceeded"));
    check(json!({"activeDeadlineSeconds": 61}), started(), &[], None);
    check(json!({"activeDeadlineSeconds": 60, "suspend": true}), started(), &[], None);
    let policy = |action: &str| {
        json!({"backoffLimit": 0, "podFailurePolicy": {"rules": [
            {"action": action, "onExitCodes": {"operator": "In", "values": [7]}}
        ]}})
    };
    check(policy("FailJob"), none(), &["a Failed"], Some("PodFailurePolicy"));
    check(policy("Ignore"), none(), &["a Failed"], None);
    check(policy("Count"), none(), &["a Failed"], Some("BackoffLimitExceeded"));
    let indexed = |more: Value| {
        let mut spec = json!({"completions": 3, "completionMode": "Indexed", "backoffLimit": 99});
        more.as_object().unwrap().iter().for_each(|(key, value)| spec.set_at(&[key], value.clone()));
        spec
    };
    let fail_fast = || indexed(json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 1}));
    check(fail_fast(), none(), &["a Failed 0"], None);
    check(fail_fast(), none(), &["a Failed 0", "b Failed 1"], Some("MaxFailedIndexesExceeded"));
    let per_index = || indexed(json!({"backoffLimitPerIndex": 0}));
    check(per_index(), json!({"completedIndexes": "1,2"}), &["a Failed 0"], Some("FailedIndexes"));
    let success = |rule: Value| indexed(json!({"successPolicy": {"rules": [rule]}}));
    check(success(json!({"succeededIndexes": "0,2"})), none(), &["a Succeeded 0"], None);
    check(
        success(json!({"succeededIndexes": "0,2"})),
        none(),
        &["a Succeeded 0", "b Succeeded 2"],
        Some("SuccessPolicy"),
    );
    check(
        success(json!({"succeededIndexes": "0,2", "succeededCount": 1})),
        none(),
        &["a Succeeded 0"],
        Some("SuccessPolicy"),
    );
    check(
        success(json!({"succeededCount": 2})),
        none(),
        &["a Succeeded 0", "b Succeeded 2"],
        Some("SuccessPolicy"),
    );
    let told = json!({"conditions": [{"type": "FailureTarget", "status": "True", "reason": "Told"}]});
    check(json!({}), told, &[], Some("Told"));
}

#[test]
fn conditions_of_pods_decide_too() {
    let check = |action: &str, condition: &str, expected: Effect| {
        let job = job(
            json!({"podFailurePolicy": {"rules": [
                {"action": action, "onPodConditions": [{"type": "DisruptionTarget"}]}
            ]}}),
            json!({}),
        );
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "status": {"phase": "Failed", "conditions": [
            {"type": "DisruptionTarget", "status": condition}
        ]}});
        assert_eq!(effect(&job, &pod), expected, "{action} {condition}");
    };
    check("Ignore", "True", Effect::Ignore);
    check("Ignore", "False", Effect::Count);
    check("FailIndex", "True", Effect::FailIndex);
    let message = "Pod n/p has condition DisruptionTarget matching FailJob rule at index 0";
    check("FailJob", "True", Effect::FailJob(message.to_string()));
}

/// Each pod is counted once: written down, freed, counted.
#[test]
fn pods_are_counted_once() {
    let job = job(
        json!({"completions": 5, "backoffLimit": 9}),
        json!({"succeeded": 1, "uncountedTerminatedPods": {"failed": ["b"]}}),
    );
    let facts = facts(&job, &["a Succeeded", "b Failed", "c Failed", "d Running"]);
    assert_eq!((facts.succeeded, facts.failed), (2, 2));
    let mut status = job.get("status").cloned().unwrap();
    let tracked = track::note(&job, &facts, None, &mut status);
    let freed: Vec<&str> = tracked.free.iter().map(|pod| pod.name()).collect();
    assert_eq!(freed, ["a", "b", "c"]);
    assert_eq!(
        status.get("uncountedTerminatedPods"),
        Some(&json!({"succeeded": ["a"], "failed": ["b", "c"]}))
    );
    let open = std::collections::HashSet::from(["c".into(), "d".into()]);
    track::count_noted(&mut status, &open);
    assert_eq!(status, json!({"succeeded": 2, "failed": 1, "uncountedTerminatedPods": {"failed": ["c"]}}));
}
