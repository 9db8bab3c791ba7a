//! Deployments: a replica set for each template there has been, and a way from the old ones to the newest.
//!
//! `plan` turns a deployment and its sets into what they should be; `act` writes the difference. Sets wake their
//! deployment whenever they change, so a rollout goes on as its pods become available.

mod act;
mod annotations;
mod plan;
mod progress;
mod proportions;
mod set;
#[cfg(test)]
mod tests;

use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake};

use crate::recorder::Recorder;
use crate::workload;
use crate::workload::kind::{DEPLOYMENT, REPLICA_SET};

pub(crate) struct Deployments {
    recorder: Recorder,
}

impl Deployments {
    pub(crate) fn new() -> Deployments {
        Deployments { recorder: Recorder::new("deployment-controller") }
    }
}

impl Controller for Deployments {
    fn name(&self) -> &'static str {
        "deployment-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&DEPLOYMENT.resource, &REPLICA_SET.resource])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&DEPLOYMENT.resource) {
            wake(change.key());
        } else {
            workload::wake_owners(change, &DEPLOYMENT, wake);
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let (namespace, name) = workload::parts(key);
            match plane.get(&DEPLOYMENT.resource, namespace, name).await? {
                Some(deployment) => {
                    workload::soon_after_conflict(act::reconcile(plane, &self.recorder, &deployment).await)
                }
                None => Ok(Next::Done),
            }
        })
    }
}
