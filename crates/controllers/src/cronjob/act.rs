//! One look at a cron job: old jobs go, and one comes if it is time.

use std::sync::Arc;
use std::time::Duration;

use polder_client::resource::{CRON_JOBS, JOBS};
use polder_client::{Delete, InPlane, Next, Propagation, Query};
use polder_model::{SmolStr, Status, Value};

use super::plan::{self, MISSED_MAX, due, ended, job_name, next_in, put_active, reference};
use super::schedule::Schedule;
use crate::recorder::Recorder;
use crate::workload::{Meta as _, meta};

pub(super) async fn reconcile(
    plane: &InPlane,
    recorder: &Recorder,
    cron_job: &Value,
) -> Result<Next, Status> {
    let namespace = SmolStr::new(cron_job.namespace());
    let query = Query { namespace, containing: &["CronJob"], ..Query::default() };
    let mut jobs = plane.client.list(plane.plane, &JOBS, query).await?;
    jobs.retain(|job| job.is_controlled_by(cron_job));
    let mut status = cron_job.get("status").cloned().unwrap_or_default();
    for (reason, message) in plan::settle(&mut status, &jobs) {
        recorder.normal(plane, cron_job, reason, &message).await;
    }
    for job in plan::surplus(cron_job, &jobs) {
        delete(plane, recorder, cron_job, &job).await?;
    }
    let outcome = if cron_job.is_terminating() {
        Ok(Next::Done)
    } else {
        run(plane, recorder, cron_job, &jobs, &mut status).await
    };
    if cron_job.get("status") != Some(&status) {
        let mut cron_job = cron_job.clone();
        cron_job.set_at(&["status"], status);
        plane.update_status(&CRON_JOBS, cron_job).await?;
    }
    outcome
}

/// Starts a job if one is due.
async fn run(
    plane: &InPlane,
    recorder: &Recorder,
    cron_job: &Value,
    jobs: &[Arc<Value>],
    status: &mut Value,
) -> Result<Next, Status> {
    if cron_job.at(&["spec", "suspend"]).and_then(Value::as_bool) == Some(true) {
        return Ok(Next::Done);
    }
    let text = cron_job.str_at(&["spec", "schedule"]).unwrap_or_default();
    let Some(schedule) = Schedule::parse(text, cron_job.str_at(&["spec", "timeZone"])) else {
        recorder
            .warning(plane, cron_job, "UnparseableSchedule", &format!("unparseable schedule: {text:?}"))
            .await;
        return Ok(Next::Done);
    };
    let now = plane.client.now();
    let next = next_in(&schedule, now)
        .map_or(Next::Done, |seconds| Next::After(Duration::from_secs(seconds.unsigned_abs())));
    let due = due(cron_job, &schedule, now);
    let Some(at) = due.at else { return Ok(next) };
    if due.missed > MISSED_MAX {
        let message =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        recorder.warning(plane, cron_job, "TooManyMissedTimes", message).await;
    }
    let name = job_name(cron_job, at);
    let active = status.array_at(&["active"]).to_vec();
    let is_served = active.iter().any(|one| one.str_at(&["name"]) == Some(&name))
        || status.seconds_at(&["lastScheduleTime"]) == Some(at);
    if is_served {
        return Ok(next);
    }
    match cron_job.str_at(&["spec", "concurrencyPolicy"]) {
        Some("Forbid") if !active.is_empty() => {
            let message =
                "Not starting job because prior execution is running and concurrency policy is Forbid";
            recorder.normal(plane, cron_job, "JobAlreadyActive", message).await;
            return Ok(next);
        }
        Some("Replace") => {
            for job in jobs.iter().filter(|job| ended(job).is_none()) {
                if active.iter().any(|one| one.str_at(&["uid"]) == Some(job.uid())) {
                    delete(plane, recorder, cron_job, job).await?;
                }
            }
            put_active(status, Vec::new());
        }
        _ => {}
    }
    match plane.create(&JOBS, cron_job.namespace(), plan::job(cron_job, at)).await {
        Ok(made) => {
            recorder.normal(plane, cron_job, "SuccessfulCreate", &format!("Created job {name}")).await;
            note(status, &made, at);
        }
        Err(refusal) if refusal.code == 409 => {
            // Made before, and not written down: it is if it is ours.
            let found = plane.get(&JOBS, cron_job.namespace(), &name).await?;
            if let Some(found) = found.filter(|found| found.is_controlled_by(cron_job)) {
                note(status, &found, at);
            }
        }
        Err(refusal) if crate::meta::is_terminating(&refusal) => return Ok(Next::Done),
        Err(refusal) => {
            let message = format!("Error creating job: {}", refusal.message);
            recorder.warning(plane, cron_job, "FailedCreate", &message).await;
            return Ok(Next::Later);
        }
    }
    Ok(next)
}

fn note(status: &mut Value, job: &Value, at: i64) {
    let mut active = status.array_at(&["active"]).to_vec();
    if ended(job).is_none() {
        active.push(reference(job));
    }
    put_active(status, active);
    status.set_at(&["lastScheduleTime"], meta::time(at));
}

async fn delete(plane: &InPlane, recorder: &Recorder, cron_job: &Value, job: &Value) -> Result<(), Status> {
    let uid = Some(SmolStr::new(job.uid()));
    let options = Delete { uid, propagation: Some(Propagation::Background), ..Delete::default() };
    plane.delete(&JOBS, job.namespace(), job.name(), options).await?;
    recorder.normal(plane, cron_job, "SuccessfulDelete", &format!("Deleted job {}", job.name())).await;
    Ok(())
}
