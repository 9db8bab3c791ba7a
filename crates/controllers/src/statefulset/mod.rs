//! Stateful sets: numbered pods, each with its own name and its own volumes, that come and go in order.
//!
//! `plan` says which pods come, go or are mended; `claims` looks after their volumes; `act` writes.

mod act;
mod claims;
mod plan;
#[cfg(test)]
mod tests;

use polder_client::resource::PODS;
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake};

use crate::recorder::Recorder;
use crate::workload;
use crate::workload::kind::STATEFUL_SET;

pub(crate) struct StatefulSets {
    recorder: Recorder,
}

impl StatefulSets {
    pub(crate) fn new() -> StatefulSets {
        StatefulSets { recorder: Recorder::new("statefulset-controller") }
    }
}

impl Controller for StatefulSets {
    fn name(&self) -> &'static str {
        "statefulset-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&STATEFUL_SET.resource, &PODS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&STATEFUL_SET.resource) {
            wake(change.key());
        } else {
            workload::wake_owners(change, &STATEFUL_SET, wake);
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let (namespace, name) = workload::parts(key);
            match plane.get(&STATEFUL_SET.resource, namespace, name).await? {
                Some(set) => act::reconcile(plane, &self.recorder, &set).await,
                None => Ok(Next::Done),
            }
        })
    }
}
