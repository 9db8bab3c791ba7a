//! The status of disruption budgets: how many of their pods are healthy, and how many may be evicted now.
//!
//! Keys are namespaces; what changed in one is noted in [`Marks`]. Evictions themselves are the registry's: it takes
//! from `disruptionsAllowed` and notes the pod, and here it is counted anew. Keys `namespace/name` are pods that were to
//! go: after a while, one that stayed is told so.

mod plan;
mod scale;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use polder_client::resource::{DISRUPTION_BUDGETS, PODS};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake};
use polder_model::selector::LabelSelector;
use polder_model::{Object, PlaneId, SmolStr, Status, Value, json};

use self::scale::Scale;
use crate::marks::{Marks, labels_of};
use crate::meta;
use crate::recorder::Recorder;

pub(crate) struct Disruption {
    marks: Marks,
    recorder: Recorder,
}

impl Disruption {
    pub(crate) fn new() -> Disruption {
        Disruption { marks: Marks::default(), recorder: Recorder::new("controllermanager") }
    }
}

/// What budgets need to know of a pod.
#[derive(PartialEq)]
struct PodView {
    labels: Object,
    ready: bool,
    deleting: bool,
    owner: SmolStr,
}

impl PodView {
    fn of(pod: &Arc<Value>) -> PodView {
        PodView {
            labels: labels_of(pod).cloned().unwrap_or_default(),
            ready: meta::condition(pod, "Ready") == Some("True"),
            deleting: meta::is_deleting(pod),
            owner: meta::controller(pod).and_then(|owner| owner.str_at(&["uid"])).unwrap_or_default().into(),
        }
    }
}

impl Controller for Disruption {
    fn name(&self) -> &'static str {
        "disruption-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&DISRUPTION_BUDGETS, &PODS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        let (plane, namespace) = (change.plane, &change.namespace);
        if change.is(&DISRUPTION_BUDGETS) {
            if change.new.is_none() {
                return;
            }
            self.marks.name(plane, namespace, &change.name);
        } else {
            if change.new.as_ref().is_some_and(|pod| pod.may_contain(plan::TARGET)) {
                wake(change.key());
            }
            let [old, new] =
                [&change.old, &change.new].map(|pod| pod.as_ref().map(|pod| PodView::of(pod.value())));
            if old == new {
                return;
            }
            for view in [old, new].into_iter().flatten() {
                self.marks.labels(plane, namespace, &view.labels);
            }
        }
        wake(namespace.clone());
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            if let Some((namespace, name)) = key.split_once('/') {
                return stay(plane, namespace, name).await;
            }
            let taken = self.marks.take(plane.plane, key);
            let mut due: Option<i64> = None;
            let mut outcome = Ok(());
            for budget in plane.list(&DISRUPTION_BUDGETS, key).await? {
                let selector = budget.at(&["spec", "selector"]).unwrap_or(&Value::Null);
                let selector = LabelSelector::from_value(selector).unwrap_or(LabelSelector::nothing());
                // One that waits for a pod to go is looked at when its time has come.
                let waits = budget.at(&["status", "disruptedPods"]).is_some();
                if meta::is_deleting(&budget)
                    || !(waits || taken.concerns(meta::name(&budget), Some(&selector)))
                {
                    continue;
                }
                match self.count(plane, &budget, selector).await {
                    Ok(next) => due = [due, next].into_iter().flatten().min(),
                    Err(status) => outcome = Err(status),
                }
            }
            outcome?;
            taken.done();
            Ok(due.map_or(Next::Done, |due| Next::After(Duration::from_secs(due.unsigned_abs()))))
        })
    }

    fn forget(&self, is_gone: &dyn Fn(PlaneId) -> bool) {
        self.marks.forget(is_gone);
    }
}

impl Disruption {
    /// Counts a budget's pods. Tells in how many seconds it is to be looked at again, if ever.
    async fn count(
        &self,
        plane: &InPlane,
        budget: &Arc<Value>,
        selector: LabelSelector,
    ) -> Result<Option<i64>, Status> {
        let now = plane.client.now();
        let shown = selector.to_string();
        let pods = plane.list_selected(&PODS, meta::namespace(budget), selector).await?;
        let disrupted = plan::disrupted(budget, &pods, now);
        for pod in pods.iter().filter(|pod| disrupted.stayed.iter().any(|name| name == meta::name(pod))) {
            let message = format!(
                "Pod was expected by PDB {}/{} to be deleted but it wasn't",
                meta::namespace(budget),
                meta::name(budget)
            );
            self.recorder.warning(plane, pod, "NotDeleted", &message).await;
        }
        let there = pods.len().try_into().unwrap_or(i64::MAX);
        let total = if plan::needs_scale(budget) {
            match scale::scale(plane, &pods).await? {
                Scale::Of { pods, unmanaged } => {
                    if unmanaged {
                        self.recorder.warning(plane, budget, "UnmanagedPods", &unmanaged_pods(&shown)).await;
                    }
                    Ok(pods)
                }
                Scale::Unknown(why) => Err(why),
            }
        } else {
            Ok(there)
        };
        let new = match total.and_then(|total| plan::expected(budget, total)) {
            Ok(expected) => {
                let healthy = plan::healthy(&pods, &disrupted.kept);
                plan::counted(budget, expected, healthy, disrupted.kept, now)
            }
            Err(why) => {
                let message = format!("Failed to calculate the number of expected pods: {why}");
                self.recorder.warning(plane, budget, "CalculateExpectedPodCountFailed", &message).await;
                plan::failed(budget, &why, now)
            }
        };
        if new != **budget {
            if pods.is_empty() {
                self.recorder.normal(plane, budget, "NoPods", "No matching pods found").await;
            }
            plane.update_status(&DISRUPTION_BUDGETS, new).await?;
        }
        Ok(disrupted.due)
    }
}

/// Takes back what a pod's status says about its end, when that did not come.
async fn stay(plane: &InPlane, namespace: &str, name: &str) -> Result<Next, Status> {
    let now = plane.client.now();
    let Some(pod) = plane.get(&PODS, namespace, name).await? else { return Ok(Next::Done) };
    match plan::stays_after(&pod, now) {
        None => Ok(Next::Done),
        Some(left) if left > 0 => Ok(Next::After(Duration::from_secs(left.unsigned_abs()))),
        Some(_) => {
            let mut new = Value::clone(&pod);
            meta::set_condition(&mut new, json!({"type": (plan::TARGET), "status": "False"}), now);
            plane.update_status(&PODS, new).await?;
            Ok(Next::Done)
        }
    }
}

fn unmanaged_pods(selector: &str) -> String {
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the \
         status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these \
         pods please set \".spec.minAvailable\" field of the PDB to an integer value."
    )
}
