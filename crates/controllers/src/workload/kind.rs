//! The kinds that own pods, or own those who do.

use polder_client::resource;
use polder_model::{GroupVersionResource, Value, json};

use super::Meta as _;

/// How a kind is named: where its objects are, and how owner references call it.
pub(crate) struct Kind {
    pub(crate) resource: GroupVersionResource,
    pub(crate) group: &'static str,
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
}

pub(crate) static REPLICA_SET: Kind = apps(resource::REPLICA_SETS, "ReplicaSet");
pub(crate) static DEPLOYMENT: Kind = apps(resource::DEPLOYMENTS, "Deployment");
pub(crate) static STATEFUL_SET: Kind = apps(resource::STATEFUL_SETS, "StatefulSet");
pub(crate) static DAEMON_SET: Kind = apps(resource::DAEMON_SETS, "DaemonSet");
pub(crate) static REPLICATION_CONTROLLER: Kind = Kind {
    resource: resource::REPLICATION_CONTROLLERS,
    group: "",
    api_version: "v1",
    kind: "ReplicationController",
};
pub(crate) static JOB: Kind = batch(resource::JOBS, "Job");
pub(crate) static CRON_JOB: Kind = batch(resource::CRON_JOBS, "CronJob");

const fn apps(resource: GroupVersionResource, kind: &'static str) -> Kind {
    Kind { resource, group: "apps", api_version: "apps/v1", kind }
}

const fn batch(resource: GroupVersionResource, kind: &'static str) -> Kind {
    Kind { resource, group: "batch", api_version: "batch/v1", kind }
}

impl Kind {
    /// The reference by which an object of this kind controls others.
    pub(crate) fn controller_reference(&self, owner: &Value) -> Value {
        json!({
            "apiVersion": (self.api_version),
            "kind": (self.kind),
            "name": (owner.name()),
            "uid": (owner.uid()),
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }
}
