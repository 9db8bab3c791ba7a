//! When a cron job is due, and which of its jobs are no longer wanted. Pure.

use std::sync::Arc;

use polder_model::{SmolStr, Value, json};

use super::schedule::Schedule;
use crate::timestamp;
use crate::workload::kind::CRON_JOB;
use crate::workload::{Meta as _, condition, meta};

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// More missed runs than these are told of.
pub(super) const MISSED_MAX: i64 = 100;

/// What the schedule says about now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// The last time that has come and was not served.
    pub(super) at: Option<i64>,
    pub(super) missed: i64,
}

/// Since when runs may be missing.
fn since(cron_job: &Value) -> i64 {
    cron_job.seconds_at(&["status", "lastScheduleTime"]).unwrap_or_else(|| cron_job.created())
}

/// The last time that has come. With very many missed ones, how many is estimated from the first two.
pub(super) fn due(cron_job: &Value, schedule: &Schedule, now: i64) -> Due {
    let mut earliest = since(cron_job);
    if let Some(deadline) = cron_job.value().i64_at(&["spec", "startingDeadlineSeconds"]) {
        earliest = earliest.max(now.saturating_sub(deadline));
    }
    let Some(first) = schedule.next(earliest).filter(|first| *first <= now) else { return Due::default() };
    let Some(second) = schedule.next(first).filter(|second| *second <= now) else {
        return Due { at: Some(first), missed: 0 };
    };
    let between = (second - first).max(1);
    let missed = (now - first) / between + 1;
    // Times need not be evenly spaced; the last ones are looked at one by one.
    let mut last = None;
    let mut time = schedule.next(first + (missed - 2) * between);
    for _ in 0..=MISSED_MAX {
        match time.filter(|time| *time <= now) {
            Some(found) => {
                last = Some(found);
                time = schedule.next(found);
            }
            None => break,
        }
    }
    Due { at: last.or(Some(second)), missed }
}

/// In how many seconds the next time comes.
pub(super) fn next_in(schedule: &Schedule, now: i64) -> Option<i64> {
    Some((schedule.next(now)? - now).max(1))
}

pub(super) fn job_name(cron_job: &Value, at: i64) -> String {
    format!("{}-{}", cron_job.name(), at.div_euclid(60))
}

/// The job of a time.
pub(super) fn job(cron_job: &Value, at: i64) -> Value {
    let template = cron_job.at(&["spec", "jobTemplate"]).cloned().unwrap_or_default();
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": (job_name(cron_job, at)),
            "namespace": (cron_job.namespace()),
            "ownerReferences": [(CRON_JOB.controller_reference(cron_job))],
        },
    });
    for field in ["labels", "annotations"] {
        if let Some(value) = template.at(&["metadata", field]) {
            job.set_at(&["metadata", field], value.clone());
        }
    }
    job.set_at(&["metadata", "annotations", SCHEDULED], local_time(cron_job, at));
    job.set_at(&["spec"], template.get("spec").cloned().unwrap_or_default());
    job
}

/// A time with the offset of the cron job's zone.
fn local_time(cron_job: &Value, at: i64) -> String {
    let zone = cron_job.str_at(&["spec", "timeZone"]).and_then(|name| jiff::tz::TimeZone::get(name).ok());
    match (zone, jiff::Timestamp::from_second(at)) {
        (Some(zone), Ok(time)) => {
            let zoned = time.to_zoned(zone);
            let text = zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
            if zoned.offset().is_zero() { text.replace("+00:00", "Z") } else { text }
        }
        _ => timestamp::text(at),
    }
}

/// How a status names a job.
pub(super) fn reference(job: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": (job.name()),
        "namespace": (job.namespace()),
        "uid": (job.uid()),
        "resourceVersion": (job.text("resourceVersion")),
    })
}

/// How a job ended, if it has.
pub(super) fn ended(job: &Value) -> Option<&'static str> {
    ["Complete", "Failed"].into_iter().find(|kind| condition::holds(condition::of(job), kind))
}

/// Jobs that are over and more than are to be kept, the oldest first.
pub(super) fn surplus(cron_job: &Value, jobs: &[Arc<Value>]) -> Vec<Arc<Value>> {
    let mut surplus = Vec::new();
    for (kind, limit) in [("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")] {
        let Some(limit) = cron_job.value().i64_at(&["spec", limit]) else { continue };
        let mut over: Vec<&Arc<Value>> = jobs.iter().filter(|job| ended(job) == Some(kind)).collect();
        let started = |job: &Value| job.seconds_at(&["status", "startTime"]).unwrap_or(i64::MAX);
        over.sort_by_key(|job| (started(job), SmolStr::new(job.name())));
        let count = over.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        surplus.extend(over[..count].iter().map(|job| Arc::clone(job)));
    }
    surplus
}

/// Takes what is over or gone out of the list of active jobs, and notes the last success. What people are told of it.
pub(super) fn settle(status: &mut Value, jobs: &[Arc<Value>]) -> Vec<(&'static str, String)> {
    let mut told = Vec::new();
    let mut active = status.array_at(&["active"]).to_vec();
    active.retain(|one| {
        let job = jobs.iter().find(|job| Some(job.uid()) == one.str_at(&["uid"]));
        match job.map(|job| (job.name(), ended(job))) {
            None => {
                let name = one.str_at(&["name"]).unwrap_or_default();
                told.push(("MissingJob", format!("Active job went missing: {name}")));
                false
            }
            Some((name, Some(kind))) => {
                told.push(("SawCompletedJob", format!("Saw completed job: {name}, condition: {kind}")));
                false
            }
            Some((_, None)) => true,
        }
    });
    put_active(status, active);
    let times = jobs.iter().filter(|job| ended(job) == Some("Complete"));
    let last = times.filter_map(|job| job.seconds_at(&["status", "completionTime"])).max();
    if let Some(last) =
        last.filter(|last| status.seconds_at(&["lastSuccessfulTime"]).is_none_or(|old| old < *last))
    {
        status.set_at(&["lastSuccessfulTime"], meta::time(last));
    }
    told
}

pub(super) fn put_active(status: &mut Value, active: Vec<Value>) {
    if active.is_empty() {
        status.remove_at(&["active"]);
    } else {
        status.set_at(&["active"], active);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cron_job(created: &str, last: Option<&str>, deadline: Option<i64>) -> Value {
        let mut one = json!({"metadata": {"name": "tick", "creationTimestamp": created}, "spec": {}});
        if let Some(last) = last {
            one.set_at(&["status", "lastScheduleTime"], last);
        }
        if let Some(deadline) = deadline {
            one.set_at(&["spec", "startingDeadlineSeconds"], deadline);
        }
        one
    }

    #[test]
    fn the_last_time_that_has_come_is_due() {
        let check = |schedule: &str, one: Value, now: &str, expected: Option<&str>, missed: i64| {
            let schedule = Schedule::parse(schedule, None).unwrap();
            let due = due(&one, &schedule, timestamp::seconds(now).unwrap());
            assert_eq!((due.at.map(timestamp::text).as_deref(), due.missed), (expected, missed), "{now}");
        };
        let made = "2026-01-01T10:00:00Z";
        check("0 * * * *", cron_job(made, None, None), "2026-01-01T10:59:59Z", None, 0);
        check(
            "0 * * * *",
            cron_job(made, None, None),
            "2026-01-01T11:00:00Z",
            Some("2026-01-01T11:00:00Z"),
            0,
        );
        let served = || cron_job(made, Some("2026-01-01T11:00:00Z"), None);
        check("0 * * * *", served(), "2026-01-01T11:30:00Z", None, 0);
        check("0 * * * *", served(), "2026-01-01T14:30:00Z", Some("2026-01-01T14:00:00Z"), 3);
        check("0 * * * *", cron_job(made, None, Some(600)), "2026-01-01T14:30:00Z", None, 0);
        check(
            "0 * * * *",
            cron_job(made, None, Some(1800)),
            "2026-01-01T14:20:00Z",
            Some("2026-01-01T14:00:00Z"),
            0,
        );
        check(
            "* * * * *",
            cron_job(made, None, None),
            "2026-01-11T10:00:30Z",
            Some("2026-01-11T10:00:00Z"),
            14400,
        );
        // Uneven: weekdays only.
        check(
            "0 9 * * 1-5",
            cron_job("2026-01-01T10:00:00Z", None, None),
            "2026-01-12T08:00:00Z",
            Some("2026-01-09T09:00:00Z"),
            4,
        );
    }

    #[test]
    fn jobs_carry_their_time() {
        let mut one = cron_job("2026-01-01T10:00:00Z", None, None);
        one.set_at(&["spec", "timeZone"], "Asia/Tokyo");
        one.set_at(
            &["spec", "jobTemplate"],
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"parallelism": 2}}),
        );
        let job = job(&one, timestamp::seconds("2026-01-01T11:00:00Z").unwrap());
        assert_eq!(job.annotation(SCHEDULED), Some("2026-01-01T20:00:00+09:00"));
        assert_eq!((job.name(), job.label("a")), ("tick-29454420", Some("b")));
        assert_eq!(job.i64_at(&["spec", "parallelism"]), Some(2));
    }

    #[test]
    fn jobs_that_are_over_leave() {
        let job = |name: &str, kind: &str| {
            Arc::new(json!({"metadata": {"name": name, "uid": name}, "status": {
                "startTime": (format!("2026-01-01T00:00:0{}Z", &name[1..])),
                "completionTime": (format!("2026-01-01T01:00:0{}Z", &name[1..])),
                "conditions": [{"type": kind, "status": "True"}],
            }}))
        };
        let jobs = [job("a3", "Complete"), job("b1", "Complete"), job("c2", "Failed"), job("d4", "Running")];
        let one = json!({"spec": {"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1}});
        let names: Vec<String> = surplus(&one, &jobs).iter().map(|job| job.name().to_string()).collect();
        assert_eq!(names, ["b1"]);
        let mut status = json!({"active": [{"uid": "a3"}, {"uid": "d4"}, {"uid": "gone", "name": "gone"}]});
        let told = settle(&mut status, &jobs);
        assert_eq!(
            told.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(),
            ["SawCompletedJob", "MissingJob"]
        );
        assert_eq!(status, json!({"active": [{"uid": "d4"}], "lastSuccessfulTime": "2026-01-01T01:00:03Z"}));
    }
}
