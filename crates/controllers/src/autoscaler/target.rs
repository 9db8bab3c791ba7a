//! What an autoscaler scales: the `scale` of any kind that has one.

use polder_client::resource::{DEPLOYMENTS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS};
use polder_client::{At, InPlane};
use polder_model::{GroupVersionResource, Status, Value};

use crate::meta;

/// A target and its scale, as it was read.
pub(super) struct Scale {
    at: At,
    value: Value,
}

impl Scale {
    /// How many it is asked for.
    pub(super) fn replicas(&self) -> i64 {
        self.value.i64_at(&["spec", "replicas"]).unwrap_or_default()
    }

    /// How many there are.
    pub(super) fn existing(&self) -> i64 {
        self.value.i64_at(&["status", "replicas"]).unwrap_or_default()
    }

    pub(super) fn selector(&self) -> &str {
        self.value.str_at(&["status", "selector"]).unwrap_or_default()
    }

    pub(super) async fn set(&self, plane: &InPlane, replicas: i64) -> Result<(), Status> {
        let mut scale = self.value.clone();
        scale.set_at(&["spec", "replicas"], replicas);
        plane.client.update(&self.at, scale).await.map(drop)
    }
}

/// The target of an autoscaler, or why there is none.
pub(super) async fn find(plane: &InPlane, autoscaler: &Value) -> Result<Result<Scale, String>, Status> {
    let text = |field| autoscaler.str_at(&["spec", "scaleTargetRef", field]).unwrap_or_default();
    let (version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let Some(resource) = resource_of(plane, group, kind).await? else {
        let place = if group.is_empty() { "group \"\"".to_string() } else { format!("group {group:?}") };
        return Ok(Err(format!("no matches for kind {kind:?} in {place}")));
    };
    let at = At { subresource: "scale", ..plane.at(&resource, meta::namespace(autoscaler), name) };
    Ok(match plane.client.get(&at).await {
        Ok(Some(scale)) => Ok(Scale { at, value: Value::clone(&scale) }),
        Ok(None) => Err(format!("{} {name:?} not found", resource.group_resource())),
        Err(status) if status.code < 500 => Err(status.message.to_string()),
        Err(status) => return Err(status),
    })
}

async fn resource_of(
    plane: &InPlane,
    group: &str,
    kind: &str,
) -> Result<Option<GroupVersionResource>, Status> {
    Ok(match (group, kind) {
        ("apps", "Deployment") => Some(DEPLOYMENTS),
        ("apps", "ReplicaSet") => Some(REPLICA_SETS),
        ("apps", "StatefulSet") => Some(STATEFUL_SETS),
        ("", "ReplicationController") => Some(REPLICATION_CONTROLLERS),
        _ => {
            let served = plane.client.resources(plane.plane).await?;
            let found = served.into_iter().find(|facts| facts.name.group == group && facts.kind == kind);
            found.map(|facts| facts.name)
        }
    })
}
