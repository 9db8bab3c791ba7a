//! One look at a stateful set: its revisions and pods, the steps they call for, and its status.

use std::sync::Arc;
use std::time::Duration;

use polder_client::resource::{PODS, STATEFUL_SETS};
use polder_client::{Delete, InPlane, Next};
use polder_model::{SmolStr, Status, Value};

use super::claims;
use super::plan::{Step, World, identify, ordinal, plan, range, ready_seconds_min, status};
use crate::recorder::Recorder;
use crate::workload::claim::Claimant;
use crate::workload::kind::STATEFUL_SET;
use crate::workload::revision::{self, Found, REVISION_LABEL};
use crate::workload::{Meta as _, batch, meta, pod};

/// Where a revision notes its hash; pods have its name instead.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";

pub(super) async fn reconcile(plane: &InPlane, recorder: &Recorder, set: &Value) -> Result<Next, Status> {
    let selector = meta::selector_of(set);
    let claimant = Claimant { kind: &STATEFUL_SET, object: set, selector: &selector, finalizer: None };
    let history = match revision::history(plane, &claimant, HASH_LABEL).await? {
        Found::History(history) => history,
        Found::Collision => {
            let mut set = set.clone();
            let count = set.count_at(&["status", "collisionCount"]) + 1;
            set.set_at(&["status", "collisionCount"], count);
            plane.update_status(&STATEFUL_SETS, set).await?;
            return Ok(Next::Again);
        }
    };
    let known = set.str_at(&["status", "currentRevision"]).unwrap_or_default();
    let current = history.old.iter().find(|one| one.name() == known).unwrap_or(&history.current);
    let mut found = plane.list_selected(&PODS, set.namespace(), selector.clone()).await?;
    found.retain(|pod| ordinal(set, pod).is_some());
    let pods = claimant.claim(plane, &PODS, found).await?;
    let mut world = World { set, pods, current, update: &history.current, now: plane.client.now() };
    let steps = plan(&world);
    let copies_max = batch::copies_max(set);
    let is_long = steps.len() > copies_max;
    let outcome = carry_out(plane, recorder, &mut world, &steps).await;
    keep_claims(plane, &world).await?;

    let new_status = status(&world);
    if set.get("status") != Some(&new_status) {
        let mut set = set.clone();
        set.set_at(&["status"], new_status);
        plane.update_status(&STATEFUL_SETS, set).await?;
    }
    let is_live = |revision: &Value| {
        revision.name() == world.current.name()
            || world.pods.iter().any(|pod| pod.label(REVISION_LABEL) == Some(revision.name()))
    };
    revision::forget(plane, &revision::surplus(set, &history.old, is_live)).await?;
    match outcome {
        Ok(()) if is_long => return Ok(Next::Again),
        Ok(()) => {}
        Err(refusal) if crate::meta::is_terminating(&refusal) => return Ok(Next::Done),
        // An event tells of it.
        Err(refusal) => {
            tracing::debug!(plane = %plane.plane, set = set.name(), %refusal, "waits");
            return Ok(Next::Later);
        }
    }
    let due = pod::available_in(world.pods.iter().map(|pod| &**pod), ready_seconds_min(set), world.now);
    Ok(due.map_or(Next::Done, |seconds| Next::After(Duration::from_secs(seconds.unsigned_abs()))))
}

/// Takes the steps; those of one kind go together, so that they share commits.
async fn carry_out(
    plane: &InPlane,
    recorder: &Recorder,
    world: &mut World<'_>,
    steps: &[Step],
) -> Result<(), Status> {
    let set = world.set;
    let steps = &steps[..steps.len().min(batch::copies_max(set))];
    let done =
        batch::slow_start(steps.len(), async |place| take(plane, recorder, set, &steps[place]).await).await;
    world.pods.extend(done.made.into_iter().flatten());
    // Those that have been deleted are counted until they are gone, as they are when they are looked at again.
    done.failure.map_or(Ok(()), Err)
}

/// Takes one step; the pod that was made, if any.
async fn take(
    plane: &InPlane,
    recorder: &Recorder,
    set: &Value,
    step: &Step,
) -> Result<Option<Arc<Value>>, Status> {
    match step {
        Step::Create(new, number) => {
            if claims::are_stale(plane, set, *number).await? {
                return Err(Status::untyped(500, "a claim belongs to the pod before"));
            }
            let made = match claims::ensure(plane, recorder, set, *number).await {
                Ok(()) => plane.create(&PODS, set.namespace(), new.clone()).await,
                Err(status) => Err(status),
            };
            if made.as_ref().is_err_and(|status| status.code == 409) {
                // Somebody has a pod of this name. It is waited for.
                return Err(Status::untyped(409, "a pod has this name"));
            }
            tell(plane, recorder, set, "Create", new.name(), made.as_ref().err()).await;
            made.map(|pod| Some(Arc::new(pod)))
        }
        Step::Delete(pod) => {
            let only = Delete { uid: Some(SmolStr::new(pod.uid())), ..Delete::default() };
            let gone = plane.delete(&PODS, pod.namespace(), pod.name(), only).await;
            tell(plane, recorder, set, "Delete", pod.name(), gone.as_ref().err()).await;
            gone.map(|()| None)
        }
        Step::Claims(pod) => {
            let number = ordinal(set, pod).unwrap_or_default();
            claims::ensure(plane, recorder, set, number).await.map(|()| None)
        }
        Step::Mend(pod) => {
            let number = ordinal(set, pod).unwrap_or_default();
            claims::ensure(plane, recorder, set, number).await?;
            let mut mended = Value::clone(pod);
            identify(&mut mended, pod.name(), number);
            claims::mount(set, &mut mended, number);
            let outcome = plane.update(&PODS, mended).await;
            tell(plane, recorder, set, "Update", pod.name(), outcome.as_ref().err()).await;
            outcome.map(|_| None)
        }
    }
}

async fn tell(
    plane: &InPlane,
    recorder: &Recorder,
    set: &Value,
    verb: &str,
    pod: &str,
    failure: Option<&Status>,
) {
    let what = format!("{verb} Pod {pod} in StatefulSet {}", set.name());
    match failure {
        None => {
            let message = format!("{what} successful");
            recorder.normal(plane, set, &format!("Successful{verb}"), &message).await;
        }
        Some(failure) if crate::meta::is_terminating(failure) => {}
        Some(failure) => {
            let message = format!("{what} failed error: {}", failure.message);
            recorder.warning(plane, set, &format!("Failed{verb}"), &message).await;
        }
    }
}

/// The claims of all pods have the owners that the set's policy asks for.
async fn keep_claims(plane: &InPlane, world: &World<'_>) -> Result<(), Status> {
    let set = world.set;
    if set.is_terminating() || set.array_at(&["spec", "volumeClaimTemplates"]).is_empty() {
        return Ok(());
    }
    for pod in &world.pods {
        if let Some(number) = ordinal(set, pod) {
            let is_extra = !range(set).contains(&number);
            if !is_extra || !pod.uid().is_empty() {
                claims::retain(plane, set, pod, number).await?;
            }
        }
    }
    Ok(())
}
