//! Horizontal pod autoscalers: as many replicas of their target as its metrics ask for, within bounds and not too fast.
//!
//! An autoscaler is looked at every fifteen seconds. What it asked for lately is remembered while it is there; a restart
//! forgets it, as upstream's does.

mod behavior;
mod metric;
mod metrics;
mod replicas;
mod samples;
mod target;

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use polder_client::resource::{AUTOSCALERS, PODS};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake};
use polder_model::selector::LabelSelector;
use polder_model::{PlaneId, SmolStr, Status, Value, json};

use self::behavior::{History, Wanted, decide};
use self::metric::{Asking, Outcome};
use self::target::Scale;
use crate::recorder::Recorder;
use crate::{meta, timestamp};

const PERIOD: Duration = Duration::from_secs(15);

pub(crate) struct Autoscaler {
    recorder: Recorder,
    /// By plane and key, of autoscalers that are there.
    histories: Mutex<HashMap<(PlaneId, SmolStr), History>>,
}

impl Autoscaler {
    pub(crate) fn new() -> Autoscaler {
        Autoscaler { recorder: Recorder::new("horizontal-pod-autoscaler"), histories: Mutex::default() }
    }
}

impl Controller for Autoscaler {
    fn name(&self) -> &'static str {
        "horizontal-pod-autoscaler-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&AUTOSCALERS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        // What we write ourselves says nothing new.
        let spec = |side: &Option<polder_client::Snapshot>| {
            side.as_ref().map(|snapshot| snapshot.value().get("spec").cloned())
        };
        if change.old.is_none() || spec(&change.old) != spec(&change.new) {
            wake(change.key());
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let (namespace, name) = meta::split(key);
            let place = (plane.plane, SmolStr::new(key));
            let Some(autoscaler) = plane.get(&AUTOSCALERS, namespace, name).await? else {
                self.histories.lock().remove(&place);
                return Ok(Next::Done);
            };
            let mut history = self.histories.lock().get(&place).cloned().unwrap_or_default();
            let mut turn = Turn {
                plane,
                recorder: &self.recorder,
                new: Value::clone(&autoscaler),
                now: plane.client.now(),
            };
            turn.run(&mut history).await?;
            self.histories.lock().insert(place, history);
            if turn.new != *autoscaler {
                plane.update_status(&AUTOSCALERS, turn.new).await?;
            }
            Ok(Next::After(PERIOD))
        })
    }

    fn forget(&self, is_gone: &dyn Fn(PlaneId) -> bool) {
        self.histories.lock().retain(|(plane, _), _| !is_gone(*plane));
    }
}

/// One look at one autoscaler.
struct Turn<'a> {
    plane: &'a InPlane,
    recorder: &'a Recorder,
    /// The autoscaler, as it is to be written.
    new: Value,
    now: i64,
}

impl Turn<'_> {
    async fn run(&mut self, history: &mut History) -> Result<(), Status> {
        let scale = match target::find(self.plane, &self.new).await? {
            Ok(scale) => scale,
            Err(why) => {
                self.warn("FailedGetScale", &why).await;
                let message =
                    format!("the HPA controller was unable to get the target's current scale: {why}");
                self.set("AbleToScale", false, "FailedGetScale", &message);
                return Ok(());
            }
        };
        let able = "the HPA controller was able to get the target's current scale";
        self.set("AbleToScale", true, "SucceededGetScale", able);
        let current = scale.replicas();
        history.begin(current, self.now);
        let min = self.new.i64_at(&["spec", "minReplicas"]).unwrap_or(1);
        let max = self.new.i64_at(&["spec", "maxReplicas"]).unwrap_or(1);
        let (desired, reason) = if current == 0 && min != 0 {
            let disabled = "scaling is disabled since the replica count of the target is zero";
            self.set("ScalingActive", false, "ScalingDisabled", disabled);
            self.clear_metrics();
            self.finish(current, 0, false);
            return Ok(());
        } else if current > max {
            self.clear_metrics();
            (max, "Current number of replicas above Spec.MaxReplicas".to_string())
        } else if current < min {
            self.clear_metrics();
            (min, "Current number of replicas below Spec.MinReplicas".to_string())
        } else {
            let outcome = self.ask(&scale, current).await?;
            self.set_metrics(&outcome);
            let Some((desired, metric)) = outcome.desired else {
                let desired = self.new.i64_at(&["status", "desiredReplicas"]).unwrap_or_default();
                self.finish(current, desired, false);
                self.warn("FailedComputeMetricsReplicas", &outcome.error).await;
                return Ok(());
            };
            let reason = match desired {
                desired if desired > current => format!("{metric} above target"),
                _ => "All metrics below target".to_string(),
            };
            let behavior = self.new.at(&["spec", "behavior"]).filter(|own| !own.is_null()).cloned();
            let wanted = Wanted { current, desired, min, max };
            let decided = decide(history, wanted, behavior.as_ref(), self.now);
            self.set("AbleToScale", true, decided.able.0, decided.able.1);
            self.set("ScalingLimited", decided.limited, decided.limit.0, decided.limit.1);
            (decided.replicas, reason)
        };
        if desired == current {
            self.finish(current, current, false);
            return Ok(());
        }
        match scale.set(self.plane, desired).await {
            Ok(()) => {
                let message = format!("the HPA controller was able to update the target scale to {desired}");
                self.set("AbleToScale", true, "SucceededRescale", &message);
                let message = format!("New size: {desired}; reason: {reason}");
                self.recorder.normal(self.plane, &self.new, "SuccessfulRescale", &message).await;
                history.note_scaled(current, desired, self.now);
                self.finish(current, desired, true);
            }
            // Somebody else changed it meanwhile: look again.
            Err(status) if status.code == 409 => return Err(status),
            Err(status) => {
                let message = format!("New size: {desired}; reason: {reason}; error: {}", status.message);
                self.warn("FailedRescale", &message).await;
                let message =
                    format!("the HPA controller was unable to update the target scale: {}", status.message);
                self.set("AbleToScale", false, "FailedUpdateScale", &message);
                let desired = self.new.i64_at(&["status", "desiredReplicas"]).unwrap_or_default();
                self.finish(current, desired, false);
            }
        }
        Ok(())
    }

    /// Asks all metrics.
    async fn ask(&mut self, scale: &Scale, current: i64) -> Result<Outcome, Status> {
        let namespace = SmolStr::new(meta::namespace(&self.new));
        let text = scale.selector();
        if text.is_empty() {
            self.warn("SelectorRequired", "selector is required").await;
            let message = "the HPA target's scale is missing a selector";
            self.set("ScalingActive", false, "InvalidSelector", message);
            return Ok(Outcome::failed("selector is required".into()));
        }
        let selector = match LabelSelector::parse(text) {
            Ok(selector) => selector,
            Err(error) => {
                let message = format!(
                    "couldn't convert selector into a corresponding internal selector object: {error}"
                );
                self.warn("InvalidSelector", &message).await;
                self.set("ScalingActive", false, "InvalidSelector", &message);
                return Ok(Outcome::failed(message));
            }
        };
        if let Some(message) = self.rivals(&namespace, text).await? {
            self.warn("AmbiguousSelector", &message).await;
            self.set("ScalingActive", false, "AmbiguousSelector", &message);
            return Ok(Outcome::failed(message));
        }
        let pods = self.plane.list_selected(&PODS, &namespace, selector.clone()).await?;
        let asking = Asking {
            plane: self.plane,
            namespace: &namespace,
            selector: &selector,
            pods: &pods,
            current,
            existing: scale.existing(),
            tolerance: metric::tolerance(&self.new),
            now: self.now,
        };
        let outcome = asking.all(self.new.array_at(&["spec", "metrics"])).await;
        for failure in &outcome.failures {
            self.warn(failure.reason, &failure.message).await;
        }
        match (&outcome.desired, outcome.failures.first()) {
            (Some((_, metric)), _) => {
                let message =
                    format!("the HPA was able to successfully calculate a replica count from {metric}");
                self.set("ScalingActive", true, "ValidMetricFound", &message);
            }
            (None, Some(failure)) => {
                let message = format!("the HPA was unable to compute the replica count: {}", failure.message);
                self.set("ScalingActive", false, failure.reason, &message);
            }
            (None, None) => {}
        }
        Ok(outcome)
    }

    /// Why this is not the only autoscaler of its target.
    async fn rivals(&self, namespace: &str, selector: &str) -> Result<Option<String>, Status> {
        let reference = |autoscaler: &Value| {
            let text = |field| {
                SmolStr::new(autoscaler.str_at(&["spec", "scaleTargetRef", field]).unwrap_or_default())
            };
            let group = text("apiVersion").split_once('/').map(|(group, _)| SmolStr::new(group));
            (group, text("kind"), text("name"))
        };
        let own = reference(&self.new);
        let all = self.plane.list(&AUTOSCALERS, namespace).await?;
        let rivals: Vec<String> = all
            .iter()
            .filter(|other| reference(other) == own)
            .map(|other| format!("{{{} {namespace}}}", meta::name(other)))
            .collect();
        Ok((rivals.len() > 1).then(|| {
            format!("pods by selector {selector} are controlled by multiple HPAs: [{}]", rivals.join(" "))
        }))
    }

    async fn warn(&self, reason: &str, message: &str) {
        self.recorder.warning(self.plane, &self.new, reason, message).await;
    }

    fn set(&mut self, kind: &str, is_true: bool, reason: &str, message: &str) {
        let status = if is_true { "True" } else { "False" };
        let condition = json!({"type": kind, "status": status, "reason": reason, "message": message});
        meta::set_condition(&mut self.new, condition, self.now);
    }

    fn set_metrics(&mut self, outcome: &Outcome) {
        match outcome.statuses.is_empty() {
            true => self.clear_metrics(),
            false => self.new.set_at(&["status", "currentMetrics"], outcome.statuses.clone()),
        }
    }

    fn clear_metrics(&mut self) {
        self.new.remove_at(&["status", "currentMetrics"]);
    }

    fn finish(&mut self, current: i64, desired: i64, scaled: bool) {
        self.new.set_at(&["status", "currentReplicas"], current);
        self.new.set_at(&["status", "desiredReplicas"], desired);
        if scaled {
            self.new.set_at(&["status", "lastScaleTime"], timestamp::text(self.now));
        }
    }
}
