//! Makes pods on simulated nodes run, and stop when they are deleted. One key a plane: all its pods that need something
//! get it in one turn. A pod that runs and is changed has a key of its own, `<namespace>/<name>`: nothing in its text tells it
//! from those that are as they were.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use polder_client::resource::PODS;
use polder_client::{Answer, At, Change, Controller, Delete, InPlane, Interest, Next, Query, Wake};
use polder_model::{PlaneId, SmolStr, Status, Value, format_smolstr};

use super::pod_status;
use crate::batch;
use crate::recorder::Recorder;
use crate::timestamp;

const KEY: SmolStr = SmolStr::new_static("pods");
/// Pods that may need something: those that do not run yet, and those that are to stop.
const SIGNS: &[&str] =
    &["\"phase\":\"Pending\"", "\"deletionTimestamp\"", "\"readinessGates\"", "\"activeDeadlineSeconds\""];

pub(crate) struct Kubelet {
    recorder: Recorder,
}

impl Default for Kubelet {
    fn default() -> Kubelet {
        Kubelet { recorder: Recorder::new("kubelet") }
    }
}

impl Controller for Kubelet {
    fn name(&self) -> &'static str {
        "simulated-kubelet"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&PODS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        let Some(new) = &change.new else { return };
        if !new.may_contain("\"nodeName\":\"simulated-") {
            return;
        }
        if SIGNS.iter().any(|sign| new.may_contain(sign)) {
            wake(KEY);
        } else if !is_told(new.value()) {
            wake(format_smolstr!("{}/{}", change.namespace, change.name));
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let nodes: HashMap<SmolStr, SmolStr> = addresses(&super::simulated(plane).await?);
            if nodes.is_empty() {
                return Ok(Next::Done);
            }
            let pods = match key.split_once('/') {
                Some((namespace, name)) => plane.get(&PODS, namespace, name).await?.into_iter().collect(),
                None => {
                    let query = Query { containing: SIGNS, ..Query::default() };
                    plane.client.list(plane.plane, &PODS, query).await?
                }
            };
            let seconds = plane.client.now();
            let now = timestamp::text(seconds);
            let here = |pod: &&Arc<Value>| {
                pod.str_at(&["spec", "nodeName"]).is_some_and(|node| nodes.contains_key(node))
            };
            let due = pods.iter().filter(here).filter_map(|pod| pod_status::seconds_left(pod, seconds));
            // What is due now ends in this turn.
            let wait = due.filter(|left| *left > 0).min();
            let steps: Vec<Step> =
                pods.iter().filter_map(|pod| step(plane.plane, pod, &nodes, &now)).collect();
            let more = steps.len() > batch::TURN_LEN_MAX;
            batch::all(
                steps.into_iter().take(batch::TURN_LEN_MAX).map(|step| act(plane, &self.recorder, step)),
            )
            .await?;
            let wait = wait.and_then(|left| u64::try_from(left).ok()).map(Duration::from_secs);
            Ok(if more { Next::Again } else { wait.map_or(Next::Done, Next::After) })
        })
    }

    fn look(&self, _: PlaneId, wake: Wake<'_>) {
        wake(KEY);
    }
}

/// What a pod needs.
enum Step {
    /// Another status.
    Tell(Value),
    /// Its end, after its last status if it has none yet.
    End(Arc<Value>, Option<Value>),
}

fn step(plane: PlaneId, pod: &Arc<Value>, nodes: &HashMap<SmolStr, SmolStr>, now: &str) -> Option<Step> {
    let node = nodes.get(pod.str_at(&["spec", "nodeName"])?)?;
    let with_status = |status: Value| {
        let mut told = Value::clone(pod);
        told.set_at(&["status"], status);
        (told != **pod).then_some(told)
    };
    if pod.at(&["metadata", "deletionTimestamp"]).is_some() {
        let is_over = matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
        let last = if is_over { None } else { with_status(pod_status::stopped(pod, now)) };
        return Some(Step::End(pod.clone(), last));
    }
    if matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed")) {
        return None;
    }
    let seconds = timestamp::seconds(now).unwrap_or_default();
    if pod_status::seconds_left(pod, seconds).is_some_and(|left| left <= 0) {
        return with_status(pod_status::overdue(pod, now)).map(Step::Tell);
    }
    if is_told(pod) {
        return None;
    }
    let since = pod.str_at(&["status", "startTime"]).unwrap_or(now);
    let address = pod.str_at(&["status", "podIP"]).filter(|own| !own.is_empty());
    let address = match address {
        Some(address) => address.to_string(),
        None if pod.at(&["spec", "hostNetwork"]).and_then(Value::as_bool) == Some(true) => node.to_string(),
        None => pod_address(plane, pod),
    };
    with_status(pod_status::running(pod, node, &address, since)).map(Step::Tell)
}

/// Whether a pod's status says what there is to say. What gates its readiness may have changed since.
fn is_told(pod: &Value) -> bool {
    !pod.array_at(&["status", "containerStatuses"]).is_empty()
        && pod.array_at(&["spec", "readinessGates"]).is_empty()
        && pod.i64_at(&["status", "observedGeneration"]) == pod.i64_at(&["metadata", "generation"])
}

async fn act(plane: &InPlane, recorder: &Recorder, step: Step) -> Result<(), Status> {
    let told = |pod: Value| async move {
        match plane.update_status(&PODS, pod).await {
            // Whoever changed or deleted it meanwhile has woken us again.
            Err(status) if matches!(status.code, 404 | 409) => Ok(()),
            outcome => outcome.map(drop),
        }
    };
    match step {
        Step::Tell(pod) => {
            let missing = pod_status::missing_images(&pod);
            let about = (!missing.is_empty()).then(|| pod.clone());
            told(pod).await?;
            if let Some(pod) = about {
                for why in missing {
                    recorder.warning(plane, &pod, "Failed", &format!("Failed to pull image: {why}")).await;
                }
            }
            Ok(())
        }
        Step::End(pod, last) => {
            if let Some(last) = last {
                told(last).await?;
            }
            let text = |field| SmolStr::new(pod.str_at(&["metadata", field]).unwrap_or_default());
            let at = At {
                plane: plane.plane,
                resource: PODS,
                namespace: text("namespace"),
                name: text("name"),
                subresource: "",
            };
            let options =
                Delete { uid: Some(text("uid")), grace_period_seconds: Some(0), ..Delete::default() };
            match plane.client.delete(&at, options).await {
                Err(status) if matches!(status.code, 404 | 409) => Ok(()),
                outcome => outcome,
            }
        }
    }
}

fn addresses(nodes: &[Arc<Value>]) -> HashMap<SmolStr, SmolStr> {
    let one = |node: &Arc<Value>| {
        let addresses = node.array_at(&["status", "addresses"]).iter();
        let address = addresses.into_iter().find(|own| own.str_at(&["type"]) == Some("InternalIP"));
        let address = address.and_then(|own| own.str_at(&["address"])).unwrap_or("10.0.0.1");
        (SmolStr::new(node.str_at(&["metadata", "name"]).unwrap_or_default()), SmolStr::new(address))
    };
    nodes.iter().map(one).collect()
}

/// Where a pod would be. Nobody goes there, so it is enough that hardly ever two have the same.
fn pod_address(plane: PlaneId, pod: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    (plane.0, pod.str_at(&["metadata", "uid"])).hash(&mut hasher);
    let [.., a, b, c] = hasher.finish().to_be_bytes();
    format!("10.{}.{b}.{}", 128 | a, c.clamp(1, 254))
}
