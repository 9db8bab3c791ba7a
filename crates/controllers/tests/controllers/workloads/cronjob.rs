//! Cron jobs, jobs that are no longer wanted, and pods nobody else removes.

use super::*;

const CRON_JOBS: &str = "batch/v1 cronjobs";
const JOBS: &str = "batch/v1 jobs";

fn cron_job(schedule: &str, more: &[(&str, Value)]) -> Value {
    let mut template = template("tick");
    template["spec"]["restartPolicy"] = json!("Never");
    let mut one = json!({"metadata": {"name": "tick"}, "spec": {
        "schedule": schedule,
        "jobTemplate": {"metadata": {"labels": {"from": "tick"}}, "spec": {"template": template}},
    }});
    for (field, value) in more {
        one["spec"][field] = value.clone();
    }
    one
}

fn succeed_all(world: &World) {
    let pods = world.pods();
    let pending = pods.iter().filter(|pod| pod["status"]["phase"] == "Pending");
    pending.for_each(|pod| world.report(pod, &json!({"phase": "Succeeded"})));
}

#[test]
fn jobs_come_by_the_clock() {
    let world = World::start();
    world.create(CRON_JOBS, &cron_job("@every 1s", &[("successfulJobsHistoryLimit", json!(1))]));
    let seen = world.until(CRON_JOBS, "tick", |one| one["status"]["lastScheduleTime"].is_string());
    let reference = &seen["status"]["active"][0];
    assert_eq!((&reference["kind"], &reference["namespace"]), (&json!("Job"), &json!("default")));
    let first = reference["name"].as_str().unwrap().to_string();
    let job = world.get(JOBS, &first);
    assert_eq!(job["metadata"]["labels"]["from"], "tick");
    assert_eq!(job["metadata"]["ownerReferences"][0]["uid"], seen["metadata"]["uid"]);
    assert!(job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].is_string());
    // A job of one minute has one name, so there is one a minute; it ends and is taken off the list.
    world.until_pods(|pods| !pods.is_empty());
    succeed_all(&world);
    world.until(JOBS, &first, |job| condition(job, "Complete")["status"] == "True");
    world.until(CRON_JOBS, "tick", |one| one["status"]["lastSuccessfulTime"].is_string());
    world.merge(CRON_JOBS, "tick", &json!({"spec": {"successfulJobsHistoryLimit": 0, "suspend": true}}));
    assert!(within(|| world.plane.get(&path(JOBS, &first)).code == 404));
}

#[test]
fn a_suspended_cron_job_starts_nothing() {
    let world = World::start();
    world.create(CRON_JOBS, &cron_job("* * * * *", &[("suspend", json!(true))]));
    // Long ago it ran last, so it would be due at once.
    let status = json!({"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}});
    let status_path = format!("{}/status", path(CRON_JOBS, "tick"));
    world.plane.patch(&status_path, "merge", &status).expect(200);
    assert!(world.list(JOBS).is_empty());
    world.merge(CRON_JOBS, "tick", &json!({"spec": {"suspend": false}}));
    world.until(CRON_JOBS, "tick", |one| one["status"]["active"][0]["name"].is_string());
    assert_eq!(world.list(JOBS).len(), 1);
}

/// With one running and the next due, who wins depends on the policy.
#[test]
fn two_at_a_time_are_allowed_or_not() {
    for (policy, expected) in [("Allow", 2), ("Forbid", 1), ("Replace", 1)] {
        let world = World::start();
        world.create(
            CRON_JOBS,
            &cron_job("* * * * *", &[("concurrencyPolicy", json!(policy)), ("suspend", json!(true))]),
        );
        let uid = world.get(CRON_JOBS, "tick")["metadata"]["uid"].clone();
        let mut old = cron_job("", &[])["spec"]["jobTemplate"].clone();
        old["metadata"] = json!({"name": "tick-1", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "CronJob", "name": "tick", "uid": uid, "controller": true}
        ]});
        let old = world.create(JOBS, &old);
        let reference = json!({"kind": "Job", "apiVersion": "batch/v1", "name": "tick-1", "namespace": "default", "uid": (old["metadata"]["uid"])});
        let status = json!({"status": {"lastScheduleTime": "2026-01-01T00:00:00Z", "active": [reference]}});
        world.plane.patch(&format!("{}/status", path(CRON_JOBS, "tick")), "merge", &status).expect(200);
        world.merge(CRON_JOBS, "tick", &json!({"spec": {"suspend": false}}));
        match policy {
            "Forbid" => {
                let told = within(|| {
                    world.list("v1 events").iter().any(|event| event["reason"] == "JobAlreadyActive")
                });
                assert!(told, "no event tells that nothing was started");
            }
            _ => {
                let is_new = |one: &Value| one["status"]["lastScheduleTime"] != "2026-01-01T00:00:00Z";
                world.until(CRON_JOBS, "tick", is_new);
            }
        }
        assert!(within(|| world.list(JOBS).len() == expected), "{policy}: {:?}", world.list(JOBS).len());
        let has_old = world.list(JOBS).iter().any(|job| name(job) == "tick-1");
        assert_eq!(has_old, policy != "Replace");
    }
}

#[test]
fn a_finished_job_goes_when_its_time_is_over() {
    let world = World::start();
    let mut job = cron_job("", &[])["spec"]["jobTemplate"].clone();
    job["metadata"]["name"] = json!("short");
    job["spec"]["ttlSecondsAfterFinished"] = json!(0);
    world.create(JOBS, &job);
    world.until_pods(|pods| pods.len() == 1);
    succeed_all(&world);
    // Whoever collects garbage removes what belongs to it; without that the job waits for it.
    assert!(within(|| {
        let reply = world.plane.get(&path(JOBS, "short"));
        reply.code == 404 || !reply.json()["metadata"]["deletionTimestamp"].is_null()
    }));
}
