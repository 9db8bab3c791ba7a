//! How many pods there should be: the sum of what those who control them are asked for.

use std::collections::HashMap;

use polder_client::resource::{DEPLOYMENTS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS};
use polder_client::{At, InPlane};
use polder_model::{GroupVersionResource, SmolStr, Status, Value};

use crate::meta;

/// What is known of the scale.
pub(super) enum Scale {
    Of {
        pods: i64,
        unmanaged: bool,
    },
    /// Nobody can tell, and why.
    Unknown(String),
}

pub(super) async fn scale(plane: &InPlane, pods: &[impl AsRef<Value>]) -> Result<Scale, Status> {
    let mut unmanaged = false;
    let mut controllers: HashMap<SmolStr, (&Value, &Value)> = HashMap::new();
    for pod in pods.iter().map(AsRef::as_ref) {
        match meta::controller(pod) {
            Some(owner) => {
                let uid = owner.str_at(&["uid"]).unwrap_or_default();
                controllers.entry(uid.into()).or_insert((owner, pod));
            }
            None => unmanaged = true,
        }
    }
    // Several owners may lead to one deployment.
    let mut scales: HashMap<SmolStr, i64> = HashMap::new();
    for (owner, pod) in controllers.values() {
        match of_owner(plane, meta::namespace(pod), owner).await? {
            Some((uid, replicas)) => {
                scales.insert(uid, replicas);
            }
            None => {
                return Ok(Scale::Unknown(format!("found no controllers for pod {:?}", meta::name(pod))));
            }
        }
    }
    Ok(Scale::Of { pods: scales.values().sum(), unmanaged })
}

/// Who decides about an owner's pods, and how many there should be.
async fn of_owner(plane: &InPlane, namespace: &str, owner: &Value) -> Result<Option<(SmolStr, i64)>, Status> {
    let version = owner.str_at(&["apiVersion"]).unwrap_or_default();
    let kind = owner.str_at(&["kind"]).unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let resource = match (group, kind) {
        ("apps", "ReplicaSet") => &REPLICA_SETS,
        ("apps", "Deployment") => &DEPLOYMENTS,
        ("apps", "StatefulSet") => &STATEFUL_SETS,
        ("", "ReplicationController") => &REPLICATION_CONTROLLERS,
        _ => return of_other(plane, namespace, owner, group, kind).await,
    };
    let Some(found) = found(plane, resource, namespace, owner).await? else { return Ok(None) };
    if resource == &REPLICA_SETS
        && let Some(above) = meta::controller(&found)
        && above.str_at(&["kind"]) == Some("Deployment")
        && let Some(deployment) = self::found(plane, &DEPLOYMENTS, namespace, above).await?
    {
        return Ok(Some(replicas(&deployment)));
    }
    Ok(Some(replicas(&found)))
}

async fn found(
    plane: &InPlane,
    resource: &GroupVersionResource,
    namespace: &str,
    owner: &Value,
) -> Result<Option<std::sync::Arc<Value>>, Status> {
    let found = plane.get(resource, namespace, owner.str_at(&["name"]).unwrap_or_default()).await?;
    Ok(found.filter(|found| Some(meta::uid(found)) == owner.str_at(&["uid"])))
}

fn replicas(object: &Value) -> (SmolStr, i64) {
    (meta::uid(object).into(), object.i64_at(&["spec", "replicas"]).unwrap_or(1))
}

/// An owner of any kind that can be scaled.
async fn of_other(
    plane: &InPlane,
    namespace: &str,
    owner: &Value,
    group: &str,
    kind: &str,
) -> Result<Option<(SmolStr, i64)>, Status> {
    let served = plane.client.resources(plane.plane).await?;
    let Some(facts) = served.into_iter().find(|facts| facts.name.group == group && facts.kind == kind) else {
        return Ok(None);
    };
    let name = owner.str_at(&["name"]).unwrap_or_default();
    let at = At { subresource: "scale", ..plane.at(&facts.name, namespace, name) };
    let scale = match plane.client.get(&at).await {
        Ok(scale) => scale,
        // It has no scale.
        Err(status) if matches!(status.code, 400 | 404 | 405) => None,
        Err(status) => return Err(status),
    };
    let scale = scale.filter(|scale| Some(meta::uid(scale)) == owner.str_at(&["uid"]));
    Ok(scale.map(|scale| (meta::uid(&scale).into(), scale.i64_at(&["spec", "replicas"]).unwrap_or_default())))
}
