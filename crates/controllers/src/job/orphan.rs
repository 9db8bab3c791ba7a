//! Pods that wait for a job to count them when there is no such job.

use polder_client::resource::{JOBS, PODS};
use polder_client::{InPlane, Next, Patch};
use polder_model::{SmolStr, Status, Value, json};

use super::{FINALIZER, is_finished, is_ours};
use crate::workload::Meta as _;

/// Lets a pod go that has the finalizer and no job that would count it.
pub(super) async fn free(plane: &InPlane, namespace: &str, name: &str) -> Result<Next, Status> {
    let Some(pod) = plane.get(&PODS, namespace, name).await?.filter(|pod| pod.has_finalizer(FINALIZER))
    else {
        return Ok(Next::Done);
    };
    if let Some(owner) = pod.controller() {
        let text = |field: &str| owner.str_at(&[field]).unwrap_or_default();
        if text("kind") == "Job" && text("apiVersion").starts_with("batch/") {
            let job = plane.get(&JOBS, namespace, text("name")).await?;
            let counts = |job: &Value| job.uid() == text("uid") && (!is_ours(job) || !is_finished(job));
            if job.is_some_and(|job| counts(&job)) {
                return Ok(Next::Done);
            }
        }
    }
    // Only as it was seen: a job may just be adopting it.
    let version = pod.str_at(&["metadata", "resourceVersion"]).unwrap_or_default();
    let patch = json!({"metadata": {
        "resourceVersion": version,
        "$deleteFromPrimitiveList/finalizers": [FINALIZER],
    }});
    let at = plane.at(&PODS, namespace, name);
    plane.client.patch(&at, Patch::Strategic(patch)).await?;
    Ok(Next::Done)
}

/// Takes the finalizer off this very pod, whatever else has changed in it. One that is gone needs nothing.
pub(super) async fn remove_finalizer(plane: &InPlane, pod: &Value) -> Result<SmolStr, Status> {
    let patch = json!({"metadata": {
        "uid": (pod.uid()),
        "$deleteFromPrimitiveList/finalizers": [FINALIZER],
    }});
    let at = plane.at(&PODS, pod.namespace(), pod.name());
    match plane.client.patch(&at, Patch::Strategic(patch)).await {
        Err(status) if status.code != 404 => Err(status),
        _ => Ok(SmolStr::new(pod.uid())),
    }
}
