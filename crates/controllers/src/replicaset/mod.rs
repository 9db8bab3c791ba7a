//! Replica sets and replication controllers: so many pods of a template, no more and no fewer. One controller for both
//! kinds, since they differ in little but their names.
//!
//! Pods that are owned but no longer match are released by [`crate::adoption`]; here that is done only when the
//! selector may have changed.

mod act;
mod plan;
pub(crate) mod ranking;
mod status;

use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake, resource};
use polder_model::selector::LabelSelector;
use polder_model::{Status, Value};

use crate::recorder::Recorder;
use crate::workload::kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::workload::{self, Kind, meta};

pub(crate) struct Replicas {
    kind: &'static Kind,
    name: &'static str,
    recorder: Recorder,
}

impl Replicas {
    fn new(kind: &'static Kind, name: &'static str) -> Replicas {
        Replicas { kind, name, recorder: Recorder::new(name) }
    }

    pub(crate) fn of_sets() -> Replicas {
        Replicas::new(&REPLICA_SET, "replicaset-controller")
    }

    pub(crate) fn of_controllers() -> Replicas {
        Replicas::new(&REPLICATION_CONTROLLER, "replication-controller")
    }
}

impl Controller for Replicas {
    fn name(&self) -> &'static str {
        self.name
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&self.kind.resource, &resource::PODS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&self.kind.resource) {
            wake(change.key());
        } else {
            workload::wake_owners(change, self.kind, wake);
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async { workload::soon_after_conflict(self.look_after(plane, key).await) })
    }
}

impl Replicas {
    async fn look_after(&self, plane: &InPlane, key: &str) -> Result<Next, Status> {
        let (namespace, name) = workload::parts(key);
        match plane.get(&self.kind.resource, namespace, name).await? {
            Some(set) => act::reconcile(plane, self.kind, &self.recorder, &set).await,
            None => Ok(Next::Done),
        }
    }
}

/// The selector of a replica set or replication controller.
pub(crate) fn selector(kind: &Kind, set: &Value) -> LabelSelector {
    match kind.kind {
        "ReplicationController" => meta::selector_for(set.at(&["spec", "selector"])),
        _ => meta::selector_of(set),
    }
}
