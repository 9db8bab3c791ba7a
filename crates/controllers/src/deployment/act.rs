//! One look at a deployment: what is there, what should be, and the writes in between.

use std::sync::Arc;
use std::time::Duration;

use polder_client::resource::{DEPLOYMENTS, PODS, REPLICA_SETS};
use polder_client::{Delete, InPlane, Next};
use polder_model::{SmolStr, Status, Value};

use super::plan::{Plan, World, cannot_make, plan};
use super::set::{Set, same_template};
use crate::recorder::Recorder;
use crate::workload::claim::Claimant;
use crate::workload::kind::DEPLOYMENT;
use crate::workload::{Meta as _, meta, pod};

pub(super) async fn reconcile(
    plane: &InPlane,
    recorder: &Recorder,
    deployment: &Value,
) -> Result<Next, Status> {
    let selector = meta::selector_of(deployment);
    let found = plane.list_selected(&REPLICA_SETS, deployment.namespace(), selector.clone()).await?;
    let claimant = Claimant { kind: &DEPLOYMENT, object: deployment, selector: &selector, finalizer: None };
    let sets = claimant.claim(plane, &REPLICA_SETS, found).await?;
    let running = match deployment.str_at(&["spec", "strategy", "type"]) {
        Some("Recreate") => running(plane, deployment, &sets).await?,
        _ => Vec::new(),
    };
    let plan = plan(World { deployment, sets, running, now: plane.client.now() });
    carry_out(plane, recorder, deployment, plan).await
}

/// Whose pods run, or may still do so.
async fn running(plane: &InPlane, deployment: &Value, sets: &[Arc<Value>]) -> Result<Vec<SmolStr>, Status> {
    let pods = plane.list_selected(&PODS, deployment.namespace(), meta::selector_of(deployment)).await?;
    let mut owners: Vec<SmolStr> = (pods.iter().filter(|pod| !pod::is_finished(pod)))
        .filter_map(|pod| pod.controller_uid().map(SmolStr::new))
        .filter(|uid| sets.iter().any(|set| set.uid() == uid.as_str()))
        .collect();
    owners.sort_unstable();
    owners.dedup();
    Ok(owners)
}

async fn carry_out(
    plane: &InPlane,
    recorder: &Recorder,
    deployment: &Value,
    plan: Plan,
) -> Result<Next, Status> {
    for set in &plan.sets {
        if set.old.is_some() {
            plane.update(&REPLICA_SETS, set.new.clone()).await?;
        } else if let Err(refusal) = plane.create(&REPLICA_SETS, set.new.namespace(), set.new.clone()).await {
            return cannot_create(plane, recorder, deployment, set, refusal).await;
        }
        tell(plane, recorder, deployment, set).await;
    }
    if let Some(deployment) = plan.deployment {
        plane.update_status(&DEPLOYMENTS, deployment).await?;
    }
    for set in &plan.forgotten {
        let only = Delete { uid: Some(SmolStr::new(set.uid())), ..Delete::default() };
        plane.delete(&REPLICA_SETS, set.namespace(), set.name(), only).await?;
    }
    Ok(plan.check_in.map_or(Next::Done, |seconds| Next::After(Duration::from_secs(seconds.unsigned_abs()))))
}

async fn tell(plane: &InPlane, recorder: &Recorder, deployment: &Value, set: &Set) {
    let (before, after) = (set.size_before(), set.size());
    if before == after {
        return;
    }
    let direction = if before < after { "up" } else { "down" };
    let message = format!("Scaled {direction} replica set {} from {before} to {after}", set.new.name());
    recorder.normal(plane, deployment, "ScalingReplicaSet", &message).await;
}

/// The newest set could not be made: its name is taken, or somebody refuses it.
async fn cannot_create(
    plane: &InPlane,
    recorder: &Recorder,
    deployment: &Value,
    set: &Set,
    refusal: Status,
) -> Result<Next, Status> {
    let name = set.new.name();
    if refusal.code == 409 {
        let other = plane.get(&REPLICA_SETS, deployment.namespace(), name).await?;
        let template = |one: &Value| one.at(&["spec", "template"]).cloned().unwrap_or_default();
        let is_ours = |other: &Arc<Value>| {
            other.is_controlled_by(deployment) && same_template(&template(other), &template(deployment))
        };
        if other.is_some_and(|other| !is_ours(&other)) {
            let mut deployment = deployment.clone();
            let count = deployment.count_at(&["status", "collisionCount"]) + 1;
            deployment.set_at(&["status", "collisionCount"], count);
            plane.update_status(&DEPLOYMENTS, deployment).await?;
        }
        return Ok(Next::Again);
    }
    if crate::meta::is_terminating(&refusal) {
        return Ok(Next::Done);
    }
    let message = format!("Failed to create new replica set {name:?}: {}", refusal.message);
    recorder.warning(plane, deployment, "ReplicaSetCreateError", &message).await;
    if let Some(failed) = cannot_make(deployment, name, &refusal.message, plane.client.now()) {
        plane.update_status(&DEPLOYMENTS, failed).await?;
    }
    Ok(Next::Later)
}
