//! Cron jobs: a job at each time of a schedule.

mod act;
mod plan;
mod schedule;

use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake};

use crate::recorder::Recorder;
use crate::workload;
use crate::workload::kind::{CRON_JOB, JOB};

pub(crate) struct CronJobs {
    recorder: Recorder,
}

impl CronJobs {
    pub(crate) fn new() -> CronJobs {
        CronJobs { recorder: Recorder::new("cronjob-controller") }
    }
}

impl Controller for CronJobs {
    fn name(&self) -> &'static str {
        "cronjob-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&CRON_JOB.resource, &JOB.resource])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&CRON_JOB.resource) {
            wake(change.key());
        } else {
            workload::wake_owners(change, &CRON_JOB, wake);
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let (namespace, name) = workload::parts(key);
            match plane.get(&CRON_JOB.resource, namespace, name).await? {
                Some(cron_job) => {
                    workload::soon_after_conflict(act::reconcile(plane, &self.recorder, &cron_job).await)
                }
                None => Ok(Next::Done),
            }
        })
    }
}
