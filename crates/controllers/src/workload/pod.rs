//! What the status of a pod means, and how a template becomes one.

use polder_model::{Value, json};

use super::{Kind, Meta as _, condition};
use crate::timestamp;

/// Names may be this long.
const NAME_LEN_MAX: usize = 253;

pub(crate) fn phase(pod: &Value) -> &str {
    pod.str_at(&["status", "phase"]).unwrap_or_default()
}

/// It has ended, well or badly.
pub(crate) fn is_finished(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// It runs, or will.
pub(crate) fn is_active(pod: &Value) -> bool {
    !is_finished(pod) && !pod.is_terminating()
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    condition::holds(condition::of(pod), "Ready")
}

/// Since when it is ready, if that is known.
pub(crate) fn ready_since(pod: &Value) -> Option<i64> {
    let ready = condition::find(condition::of(pod), "Ready")?;
    timestamp::seconds(ready.str_at(&["lastTransitionTime"])?)
}

/// It has been ready for some time.
pub(crate) fn is_available(pod: &Value, ready_seconds_min: i64, now: i64) -> bool {
    is_ready(pod)
        && (ready_seconds_min == 0
            || ready_since(pod).is_some_and(|since| since.saturating_add(ready_seconds_min) <= now))
}

/// In how many seconds the next of some pods has been ready for long enough.
pub(crate) fn available_in<'a>(
    pods: impl Iterator<Item = &'a Value>,
    ready_seconds_min: i64,
    now: i64,
) -> Option<i64> {
    let ready = pods.filter(|pod| ready_seconds_min > 0 && is_ready(pod));
    let due = ready.filter_map(ready_since).map(|since| since + ready_seconds_min - now);
    due.filter(|wait| *wait > 0).min()
}

pub(crate) fn node(pod: &Value) -> &str {
    pod.str_at(&["spec", "nodeName"]).unwrap_or_default()
}

/// A pod as a template has it, controlled by an object, with a name made for it.
pub(crate) fn from_template(template: &Value, kind: &Kind, owner: &Value) -> Value {
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": (prefix(owner.name()))}});
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template.at(&["metadata", field]) {
            pod.set_at(&["metadata", field], value.clone());
        }
    }
    pod.set_at(&["metadata", "namespace"], owner.namespace());
    pod.set_at(&["metadata", "ownerReferences"], vec![kind.controller_reference(owner)]);
    pod.set_at(&["spec"], template.get("spec").cloned().unwrap_or_default());
    pod
}

/// What names of pods begin with.
pub(crate) fn prefix(owner: &str) -> String {
    if owner.len() < NAME_LEN_MAX { format!("{owner}-") } else { owner.to_string() }
}
