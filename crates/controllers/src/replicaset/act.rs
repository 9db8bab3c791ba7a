//! One look at a set: claim its pods, make or delete some, tell how it stands.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use polder_client::resource::{PODS, REPLICA_SETS};
use polder_client::slice::may_make;
use polder_client::{Delete, InPlane, Next};
use polder_model::{SmolStr, Status, Value};

use super::plan::{Step, plan};
use super::status::{Pods, ready_seconds_min, status};
use super::{ranking, selector};
use crate::meta;
use crate::recorder::Recorder;
use crate::workload::claim::Claimant;
use crate::workload::{Kind, Meta as _, batch, events, pod};

pub(super) async fn reconcile(
    plane: &InPlane,
    kind: &Kind,
    recorder: &Recorder,
    set: &Value,
) -> Result<Next, Status> {
    let now = plane.client.now();
    let selector = selector(kind, set);
    let pods = match kind.kind {
        // Its selector can be changed: pods that no longer match are found among all.
        "ReplicationController" if set.generation() != set.observed_generation() => {
            plane.list(&PODS, set.namespace()).await?
        }
        _ => plane.list_selected(&PODS, set.namespace(), selector.clone()).await?,
    };
    let (leaving, pods): (Vec<_>, Vec<_>) =
        pods.into_iter().filter(|pod| !pod::is_finished(pod)).partition(|pod| pod.is_terminating());
    let mut terminating =
        leaving.iter().filter(|pod| pod.is_controlled_by(set) && pod.is_selected(&selector)).count();
    let claimant = Claimant { kind, object: set, selector: &selector, finalizer: None };
    let mut active = claimant.claim(plane, &PODS, pods).await?;

    let (mut failure, mut more) = (None, false);
    match plan(set, active.len()) {
        Step::Rest => {}
        Step::Create(count) => {
            let Some(room) = may_make(count) else { return Ok(Next::Aside) };
            let room = room.min(batch::TURN_LEN_MAX);
            more = count > room;
            let made = create(plane, kind, set, room).await;
            let names = made.made.iter().map(|pod| pod.name());
            events::created(plane, recorder, set, names, made.failure.as_ref()).await;
            active.extend(made.made.into_iter().map(Arc::new));
            failure = made.failure;
        }
        Step::Delete(count) => {
            let Some(room) = may_make(count) else { return Ok(Next::Aside) };
            let room = room.min(batch::TURN_LEN_MAX);
            more = count > room;
            let on_node = crowds(plane, kind, set, &active, count).await?;
            let doomed = ranking::first_to_go(active.clone(), count, &on_node, now);
            let gone = delete(plane, &doomed[..doomed.len().min(room)]).await;
            let names = gone.made.iter().map(SmolStr::as_str);
            events::deleted(plane, recorder, set, names, gone.failure.as_ref()).await;
            let names: HashSet<&SmolStr> = gone.made.iter().collect();
            let (gone_pods, left): (Vec<_>, Vec<_>) =
                active.into_iter().partition(|pod| names.contains(&SmolStr::new(pod.name())));
            active = left;
            // What has a node or a finalizer takes its time.
            terminating += gone_pods.iter().filter(|pod| stays_for_now(pod)).count();
            failure = gone.failure;
        }
    }
    if let Some(status) = failure.take_if(|status| meta::is_terminating(status)) {
        tracing::debug!(plane = %plane.plane, set = set.name(), %status, "no pods in a namespace that ends");
        more = false;
    }

    let pods = Pods { active: active.iter().map(|pod| &**pod).collect(), terminating };
    let new_status = status(kind, set, &pods, failure.as_ref(), now);
    if set.get("status") != Some(&new_status) {
        let mut set = set.clone();
        set.set_at(&["status"], new_status);
        plane.update_status(&kind.resource, set).await?;
    }
    if failure.is_some() {
        // The status tells why. What refuses them may allow them some time.
        return Ok(Next::Later);
    }
    if more {
        return Ok(Next::Again);
    }
    let due = pod::available_in(pods.active.iter().copied(), ready_seconds_min(set), now);
    Ok(due.map_or(Next::Done, |seconds| Next::After(Duration::from_secs(seconds.unsigned_abs()))))
}

async fn create(plane: &InPlane, kind: &Kind, set: &Value, count: usize) -> batch::Batch<Value> {
    let template = set.at(&["spec", "template"]).cloned().unwrap_or_default();
    let pod = pod::from_template(&template, kind, set);
    batch::slow_start(count, async |_| plane.create(&PODS, set.namespace(), pod.clone()).await).await
}

/// Deletes pods; the names of those that are gone or going.
async fn delete(plane: &InPlane, pods: &[Arc<Value>]) -> batch::Batch<SmolStr> {
    batch::each(pods, async |number| {
        let pod = &pods[number];
        let only = Delete { uid: Some(SmolStr::new(pod.uid())), ..Delete::default() };
        plane.delete(&PODS, pod.namespace(), pod.name(), only).await?;
        Ok(SmolStr::new(pod.name()))
    })
    .await
}

/// Whether a pod that has been deleted is still there.
fn stays_for_now(pod: &Value) -> bool {
    !pod::node(pod).is_empty() || !pod.array_at(&["metadata", "finalizers"]).is_empty()
}

/// How many pods of all sets of the same owner are on each node.
async fn crowds(
    plane: &InPlane,
    kind: &Kind,
    set: &Value,
    active: &[Arc<Value>],
    count: usize,
) -> Result<HashMap<SmolStr, usize>, Status> {
    let mut on_node = HashMap::new();
    let Some(owner) = set.controller_uid().filter(|_| kind.kind == "ReplicaSet") else { return Ok(on_node) };
    if count >= active.len() || active.iter().all(|pod| pod::node(pod).is_empty()) {
        return Ok(on_node);
    }
    let sets = plane.list(&REPLICA_SETS, set.namespace()).await?;
    let siblings: HashSet<&str> =
        sets.iter().filter(|one| one.controller_uid() == Some(owner)).map(|one| one.uid()).collect();
    for one in plane.list(&PODS, set.namespace()).await? {
        if pod::is_active(&one) && one.controller_uid().is_some_and(|uid| siblings.contains(uid)) {
            *on_node.entry(SmolStr::new(pod::node(&one))).or_default() += 1;
        }
    }
    Ok(on_node)
}
