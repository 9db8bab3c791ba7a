//! Jobs: pods that run to their end.

use super::*;

const JOBS: &str = "batch/v1 jobs";
const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

fn job(spec: Value) -> Value {
    let mut template = template("work");
    template["spec"]["restartPolicy"] = json!("Never");
    let mut job = json!({"metadata": {"name": "work"}, "spec": spec});
    job["spec"]["template"] = template;
    job
}

fn succeed(world: &World, pod: &Value) {
    world.report(pod, &json!({"phase": "Succeeded"}));
}

/// The pod fails, some time ago, so that the next comes at once.
fn fail(world: &World, pod: &Value, code: i64) {
    let terminated = json!({"exitCode": code, "finishedAt": "2026-01-01T00:00:00Z"});
    world.report(pod, &json!({"phase": "Failed", "containerStatuses": [
        {"name": "main", "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": {"terminated": terminated}}
    ]}));
}

fn live(pods: &[Value]) -> Vec<Value> {
    pods.iter().filter(|pod| pod["status"]["phase"] == "Pending").cloned().collect()
}

fn is_true(job: &Value, kind: &str) -> bool {
    condition(job, kind)["status"] == "True"
}

#[test]
fn a_job_runs_to_its_end() {
    let world = World::start();
    world.create(JOBS, &job(json!({"parallelism": 2, "completions": 3})));
    let pods = world.until_pods(|pods| pods.len() == 2);
    assert_eq!(pods[0]["metadata"]["finalizers"], json!([FINALIZER]));
    world.until(JOBS, "work", |job| job["status"]["active"] == 2 && job["status"]["ready"] == 0);
    succeed(&world, &pods[0]);
    world.until(JOBS, "work", |job| job["status"]["succeeded"] == 1 && job["status"]["active"] == 2);
    // One fails and is replaced.
    fail(&world, &pods[1], 1);
    world.until(JOBS, "work", |job| job["status"]["failed"] == 1);
    let pods = world.until_pods(|pods| live(pods).len() == 2);
    live(&pods).iter().for_each(|pod| succeed(&world, pod));
    let done = world.until(JOBS, "work", |job| is_true(job, "Complete"));
    assert_eq!(done["status"]["succeeded"], 3);
    assert!(is_true(&done, "SuccessCriteriaMet"));
    assert!(done["status"]["completionTime"].is_string() && done["status"]["active"].is_null());
    assert_eq!(condition(&done, "Complete")["reason"], "CompletionsReached");
    let kept = world.list("v1 pods");
    assert_eq!(kept.len(), 4);
    assert!(kept.iter().all(|pod| pod["metadata"]["finalizers"].is_null()));
}

#[test]
fn a_job_fails_after_too_many_failures() {
    let world = World::start();
    world.create(JOBS, &job(json!({"parallelism": 2, "completions": 2, "backoffLimit": 0})));
    let pods = world.until_pods(|pods| pods.len() == 2);
    fail(&world, &pods[0], 1);
    let failed = world.until(JOBS, "work", |job| is_true(job, "Failed"));
    assert_eq!(condition(&failed, "Failed")["reason"], "BackoffLimitExceeded");
    assert!(is_true(&failed, "FailureTarget"));
    assert!(failed["status"]["active"].is_null());
    world.until_pods(|pods| pods.len() == 1);
}

#[test]
fn indexes_fail_and_succeed_on_their_own() {
    let world = World::start();
    let spec = json!({
        "parallelism": 3, "completions": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 1,
        "podFailurePolicy": {"rules": [
            {"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}},
        ]},
    });
    world.create(JOBS, &job(spec));
    let pods = world.until_pods(|pods| pods.len() == 3);
    let index =
        |pod: &Value| pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].clone();
    let of = |pods: &[Value], number: &str| live(pods).into_iter().find(|pod| index(pod) == number);
    let first = of(&pods, "0").unwrap();
    assert_eq!(first["spec"]["hostname"], "work-0");
    assert_eq!(first["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
    assert!(name(&first).starts_with("work-0-"));
    // The first succeeds, the second fails for good, the third fails and is tried again.
    succeed(&world, &first);
    fail(&world, &of(&pods, "1").unwrap(), 42);
    let third = of(&pods, "2").unwrap();
    fail(&world, &third, 1);
    let pods = world.until_pods(|pods| of(pods, "2").is_some_and(|pod| name(&pod) != name(&third)));
    let again = of(&pods, "2").unwrap();
    assert_eq!(again["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"], "1");
    succeed(&world, &again);
    let done = world.until(JOBS, "work", |job| is_true(job, "Failed"));
    assert_eq!(done["status"]["completedIndexes"], "0,2");
    assert_eq!(done["status"]["failedIndexes"], "1");
    assert_eq!(condition(&done, "Failed")["reason"], "FailedIndexes");
}

#[test]
fn a_suspended_job_has_no_pods() {
    let world = World::start();
    world.create(JOBS, &job(json!({"parallelism": 2, "suspend": true})));
    world.until(JOBS, "work", |job| is_true(job, "Suspended") && job["status"]["startTime"].is_null());
    assert!(world.pods().is_empty());
    world.merge(JOBS, "work", &json!({"spec": {"suspend": false}}));
    world.until_pods(|pods| pods.len() == 2);
    world.until(JOBS, "work", |job| {
        condition(job, "Suspended")["status"] == "False" && job["status"]["startTime"].is_string()
    });
    world.merge(JOBS, "work", &json!({"spec": {"suspend": true}}));
    world.until_pods(|pods| pods.is_empty());
    let job = world.until(JOBS, "work", |job| is_true(job, "Suspended") && job["status"]["active"].is_null());
    assert!(job["status"]["failed"].is_null());
}

#[test]
fn a_job_has_only_so_much_time() {
    let world = World::start();
    world.create(JOBS, &job(json!({"activeDeadlineSeconds": 3})));
    world.until_pods(|pods| pods.len() == 1);
    let failed = world.until(JOBS, "work", |job| is_true(job, "Failed"));
    assert_eq!(condition(&failed, "Failed")["reason"], "DeadlineExceeded");
    world.until_pods(|pods| pods.is_empty());
}

#[test]
fn jobs_of_others_and_pods_of_none() {
    let world = World::start();
    let mut foreign = job(json!({"managedBy": "example.test/other"}));
    foreign["metadata"]["name"] = json!("foreign");
    world.create(JOBS, &foreign);
    world.create(JOBS, &job(json!({})));
    let pods = world.until_pods(|pods| pods.len() == 1);
    assert!(world.get(JOBS, "foreign")["status"]["startTime"].is_null());
    // A pod that is let go is taken back.
    let uid = world.get(JOBS, "work")["metadata"]["uid"].clone();
    world.merge("v1 pods", &name(&pods[0]), &json!({"metadata": {"ownerReferences": null}}));
    world.until("v1 pods", &name(&pods[0]), |pod| {
        pod["metadata"]["ownerReferences"][0]["uid"] == uid
            && pod["metadata"]["finalizers"] == json!([FINALIZER])
    });
    // Without its job a pod can go.
    world.plane.delete_with(&path(JOBS, "work"), &json!({"propagationPolicy": "Background"})).expect(200);
    world.plane.delete(&path("v1 pods", &name(&pods[0]))).expect(200);
    assert!(within(|| world.list("v1 pods").is_empty()));
}

/// What is enough is enough: the others are stopped, and have not failed.
#[test]
fn a_job_succeeds_by_its_own_rules() {
    let world = World::start();
    world.create(
        JOBS,
        &job(json!({
            "parallelism": 3, "completions": 3, "completionMode": "Indexed",
            "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
        })),
    );
    let pods = world.until_pods(|pods| pods.len() == 3);
    let leader = pods.iter().find(|pod| name(pod).starts_with("work-0-")).unwrap();
    succeed(&world, leader);
    let done = world.until(JOBS, "work", |job| is_true(job, "Complete"));
    assert_eq!(condition(&done, "SuccessCriteriaMet")["reason"], "SuccessPolicy");
    assert_eq!((&done["status"]["succeeded"], &done["status"]["completedIndexes"]), (&json!(1), &json!("0")));
    assert!(done["status"]["failed"].is_null() && done["status"]["active"].is_null());
    world.until_pods(|pods| pods.len() == 1);
}
