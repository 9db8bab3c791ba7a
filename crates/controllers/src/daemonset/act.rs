//! One look at a daemon set: its revisions, its nodes, its pods, and the writes they call for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use polder_client::resource::{DAEMON_SETS, NODES, PODS};
use polder_client::slice::may_make;
use polder_client::{Delete, InPlane, Next};
use polder_model::{SmolStr, Status, Value};

use super::plan::{Plan, World, plan, status, target, template};
use super::{DaemonSets, rollout};
use crate::workload::claim::Claimant;
use crate::workload::kind::DAEMON_SET;
use crate::workload::revision::{self, Found, REVISION_LABEL};
use crate::workload::{Meta as _, batch, events, meta, pod};

pub(super) async fn reconcile(plane: &InPlane, controller: &DaemonSets, set: &Value) -> Result<Next, Status> {
    let selector = meta::selector_of(set);
    if set.is_terminating() || selector.is_nothing() {
        return Ok(Next::Done);
    }
    let claimant = Claimant { kind: &DAEMON_SET, object: set, selector: &selector, finalizer: None };
    let history = match revision::history(plane, &claimant, REVISION_LABEL).await? {
        Found::History(history) => history,
        Found::Collision => {
            let mut set = set.clone();
            let count = set.count_at(&["status", "collisionCount"]) + 1;
            set.set_at(&["status", "collisionCount"], count);
            plane.update_status(&DAEMON_SETS, set).await?;
            return Ok(Next::Again);
        }
    };
    let nodes = plane.list(&NODES, "").await?;
    let found = plane.list_selected(&PODS, set.namespace(), selector.clone()).await?;
    let mut pods: BTreeMap<SmolStr, Vec<Arc<Value>>> = BTreeMap::new();
    for pod in claimant.claim(plane, &PODS, found).await? {
        if let Some(node) = target(&pod).map(SmolStr::new) {
            pods.entry(node).or_default().push(pod);
        }
    }
    let hash = SmolStr::new(history.current.label(REVISION_LABEL).unwrap_or_default());
    let mut world = World { set, nodes, pods, hash, now: plane.client.now() };
    let plan = plan(&world);
    let outcome = carry_out(plane, controller, &mut world, plan).await?;

    let new_status = status(&world);
    if set.get("status") != Some(&new_status) {
        let mut set = set.clone();
        set.set_at(&["status"], new_status);
        plane.update_status(&DAEMON_SETS, set).await?;
    }
    let is_live = |revision: &Value| {
        let hash = revision.label(REVISION_LABEL);
        world.pods.values().flatten().any(|pod| pod.label(REVISION_LABEL) == hash)
    };
    revision::forget(plane, &revision::surplus(set, &history.old, is_live)).await?;
    if outcome != Next::Done {
        return Ok(outcome);
    }
    let pods = world.pods.values().flatten().map(|pod| &**pod);
    let due = pod::available_in(pods, rollout::ready_seconds_min(set), world.now);
    Ok(due.map_or(Next::Done, |seconds| Next::After(Duration::from_secs(seconds.unsigned_abs()))))
}

/// Makes and deletes pods, and notes in the world what came of it.
async fn carry_out(
    plane: &InPlane,
    controller: &DaemonSets,
    world: &mut World<'_>,
    plan: Plan,
) -> Result<Next, Status> {
    let (set, recorder) = (world.set, &controller.recorder);
    let mut next = Next::Done;
    let mut doomed = plan.delete;
    for (node, one) in plan.failed {
        let what = (plane.plane.0, set.uid(), set.generation(), node.as_str());
        match controller.failures.try_now(what, world.now) {
            Ok(()) => {
                let (namespace, name) = (one.namespace(), one.name());
                let message =
                    format!("Found failed daemon pod {namespace}/{name} on node {node}, will try to kill it");
                recorder.warning(plane, set, "FailedDaemonPod", &message).await;
                doomed.push(one);
            }
            Err(seconds) => {
                next = super::sooner(next, Next::After(Duration::from_secs(seconds.unsigned_abs())))
            }
        }
    }
    if plan.create.len().max(doomed.len()) > batch::TURN_LEN_MAX {
        next = Next::Again;
    }
    let creates = &plan.create[..plan.create.len().min(batch::copies_max(set))];
    let room = may_make(creates.len());
    if room.is_none_or(|room| room < creates.len()) {
        next = super::sooner(next, if room.is_none() { Next::Aside } else { Next::Again });
    }
    let creates = &creates[..room.unwrap_or_default()];
    let made = batch::slow_start(creates.len(), async |number| {
        let template = template(set, &world.hash, &creates[number]);
        plane.create(&PODS, set.namespace(), pod::from_template(&template, &DAEMON_SET, set)).await
    })
    .await;
    let names = made.made.iter().map(|pod| pod.name());
    events::created(plane, recorder, set, names, made.failure.as_ref()).await;
    for pod in made.made {
        if let Some(node) = target(&pod).map(SmolStr::new) {
            world.pods.entry(node).or_default().push(Arc::new(pod));
        }
    }
    let doomed = &doomed[..doomed.len().min(batch::TURN_LEN_MAX)];
    let gone = batch::each(doomed, async |number| {
        let pod = &doomed[number];
        let only = Delete { uid: Some(SmolStr::new(pod.uid())), ..Delete::default() };
        plane.delete(&PODS, pod.namespace(), pod.name(), only).await?;
        Ok(SmolStr::new(pod.name()))
    })
    .await;
    let names = gone.made.iter().map(SmolStr::as_str);
    events::deleted(plane, recorder, set, names, gone.failure.as_ref()).await;
    match made.failure.or(gone.failure) {
        Some(failure) if crate::meta::is_terminating(&failure) => Ok(Next::Done),
        // An event tells of it.
        Some(_) => Ok(Next::Later),
        None => Ok(next),
    }
}
