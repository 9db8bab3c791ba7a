//! Jobs that are over and say for how long they are wanted are deleted after that, with what belongs to them.

use std::time::Duration;

use polder_client::resource::JOBS;
use polder_client::{Answer, Change, Controller, Delete, InPlane, Interest, Next, Propagation, Wake};
use polder_model::{SmolStr, Value};

use crate::timestamp;
use crate::workload::{self, Meta as _, condition};

pub(crate) struct JobTtl;

impl Controller for JobTtl {
    fn name(&self) -> &'static str {
        "ttl-after-finished-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&JOBS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.new.as_ref().is_some_and(|new| new.may_contain("ttlSecondsAfterFinished")) {
            wake(change.key());
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let (namespace, name) = workload::parts(key);
            let Some(job) = plane.get(&JOBS, namespace, name).await? else { return Ok(Next::Done) };
            let Some(left) = seconds_left(&job, plane.client.now()) else { return Ok(Next::Done) };
            if left > 0 {
                return Ok(Next::After(Duration::from_secs(left.unsigned_abs())));
            }
            let uid = Some(SmolStr::new(job.uid()));
            let options = Delete { uid, propagation: Some(Propagation::Foreground), ..Delete::default() };
            plane.delete(&JOBS, namespace, name, options).await?;
            Ok(Next::Done)
        })
    }
}

/// For how many seconds a job is still wanted; nothing if it is not over, or wanted for ever.
fn seconds_left(job: &Value, now: i64) -> Option<i64> {
    let wanted =
        job.value().i64_at(&["spec", "ttlSecondsAfterFinished"]).filter(|_| !job.is_terminating())?;
    let conditions = condition::of(job);
    let kind = ["Complete", "Failed"].into_iter().find(|kind| condition::holds(conditions, kind))?;
    let time = condition::find(conditions, kind)?.str_at(&["lastTransitionTime"])?;
    Some(timestamp::seconds(time)?.saturating_add(wanted) - now)
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[test]
    fn time_runs_from_the_end() {
        let now = timestamp::seconds("2026-01-01T00:01:00Z").unwrap();
        let check = |spec: Value, kind: &str, expected: Option<i64>| {
            let job = json!({"spec": spec, "status": {"conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:30Z"}
            ]}});
            assert_eq!(seconds_left(&job, now), expected, "{job}");
        };
        check(json!({"ttlSecondsAfterFinished": 40}), "Complete", Some(10));
        check(json!({"ttlSecondsAfterFinished": 0}), "Failed", Some(-30));
        check(json!({"ttlSecondsAfterFinished": 40}), "Suspended", None);
        check(json!({}), "Complete", None);
    }
}
