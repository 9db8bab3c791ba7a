//! Jobs: pods that run to their end, a number of times, or once for each index.
//!
//! A pod carries a finalizer until it has been counted: first its UID is written down in the status as not yet counted, then
//! the finalizer goes, then the count goes up. So each is counted once, whatever breaks off in between.
//!
//! `facts` says what there is, `verdict` whether that is the end, `manage` which pods come and go, `track` what is
//! counted; all four are pure. `act` writes.

mod act;
mod facts;
mod failure_policy;
mod indexes;
mod manage;
mod orphan;
#[cfg(test)]
mod tests;
mod track;
mod verdict;

use polder_client::resource::PODS;
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake};
use polder_model::{Value, format_smolstr};

use crate::recorder::Recorder;
use crate::workload::kind::JOB;
use crate::workload::{self, Meta as _, condition};

/// Keeps a pod until it has been counted.
pub(crate) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// Who looks after a job that names nobody else.
const OWN_NAME: &str = "kubernetes.io/job-controller";

pub(crate) struct Jobs {
    recorder: Recorder,
}

impl Jobs {
    pub(crate) fn new() -> Jobs {
        Jobs { recorder: Recorder::new("job-controller") }
    }
}

impl Controller for Jobs {
    fn name(&self) -> &'static str {
        "job-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&JOB.resource, &PODS])
    }

    /// Keys are jobs, or pods as `namespace/+name` that may have a finalizer and no job.
    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&JOB.resource) {
            return wake(change.key());
        }
        if let Some(new) = change.new.as_ref().filter(|new| new.may_contain(FINALIZER)) {
            let pod = new.value();
            if pod.has_finalizer(FINALIZER) && (pod.is_terminating() || pod.controller().is_none()) {
                wake(format_smolstr!("{}/+{}", change.namespace, change.name));
            }
        }
        workload::wake_owners(change, &JOB, wake);
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let (namespace, name) = workload::parts(key);
            if let Some(pod) = name.strip_prefix('+') {
                return orphan::free(plane, namespace, pod).await;
            }
            match plane.get(&JOB.resource, namespace, name).await? {
                Some(job) if is_ours(&job) && !is_finished(&job) => {
                    workload::soon_after_conflict(act::reconcile(plane, &self.recorder, &job).await)
                }
                _ => Ok(Next::Done),
            }
        })
    }
}

/// Whether a job is over, well or badly.
pub(crate) fn is_finished(job: &Value) -> bool {
    ["Complete", "Failed"].iter().any(|kind| condition::holds(condition::of(job), kind))
}

/// Whether nobody else looks after a job.
pub(crate) fn is_ours(job: &Value) -> bool {
    job.str_at(&["spec", "managedBy"]).is_none_or(|name| name == OWN_NAME)
}

fn is_suspended(job: &Value) -> bool {
    job.at(&["spec", "suspend"]).and_then(Value::as_bool) == Some(true)
}

fn is_indexed(job: &Value) -> bool {
    job.str_at(&["spec", "completionMode"]) == Some("Indexed")
}

/// The number of failures an index may have, if indexes fail on their own.
fn index_limit(job: &Value) -> Option<i64> {
    job.value().i64_at(&["spec", "backoffLimitPerIndex"]).filter(|_| is_indexed(job))
}

/// Whether a pod that goes away is replaced only when it is gone.
fn replaces_only_failed(job: &Value) -> bool {
    job.str_at(&["spec", "podReplacementPolicy"]) == Some("Failed")
        || job.at(&["spec", "podFailurePolicy"]).is_some_and(|policy| !policy.is_null())
}
