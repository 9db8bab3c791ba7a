//! What a set says about its pods. Pure.

use polder_model::selector::LabelSelector;
use polder_model::{Status, Value};

use crate::workload::condition::{self, Condition};
use crate::workload::{Kind, Meta as _, meta, pod};

use super::plan::wanted;

/// The pods of a set.
pub(super) struct Pods<'a> {
    pub(super) active: Vec<&'a Value>,
    /// On their way out, but not out yet.
    pub(super) terminating: usize,
}

pub(super) fn status(kind: &Kind, set: &Value, pods: &Pods<'_>, failure: Option<&Status>, now: i64) -> Value {
    let mut status = set.get("status").cloned().unwrap_or_default();
    let ready_seconds_min = ready_seconds_min(set);
    let labels = template_selector(set);
    let count = |is: &dyn Fn(&Value) -> bool| len(pods.active.iter().filter(|pod| is(pod)).count());
    status.set_at(&["replicas"], len(pods.active.len()));
    let counts = [
        ("fullyLabeledReplicas", count(&|pod| pod.is_selected(&labels))),
        ("readyReplicas", count(&pod::is_ready)),
        ("availableReplicas", count(&|pod| pod::is_available(pod, ready_seconds_min, now))),
        ("observedGeneration", set.generation()),
    ];
    for (field, count) in counts {
        put_count(&mut status, field, count);
    }
    if kind.kind == "ReplicaSet" {
        status.set_at(&["terminatingReplicas"], len(pods.terminating));
    }
    let mut conditions = condition::of(set).to_vec();
    match failure {
        Some(failure) if condition::find(&conditions, "ReplicaFailure").is_none() => {
            let lacks = len(pods.active.len()) < wanted(set);
            let reason = if lacks { "FailedCreate" } else { "FailedDelete" };
            let message = failure.message.clone();
            let failed = Condition { kind: "ReplicaFailure", status: "True", reason, message };
            condition::set(&mut conditions, &failed, now, &[]);
        }
        Some(_) => {}
        None => condition::remove(&mut conditions, "ReplicaFailure"),
    }
    put_list(&mut status, "conditions", conditions);
    status
}

pub(super) fn ready_seconds_min(set: &Value) -> i64 {
    set.count_at(&["spec", "minReadySeconds"])
}

/// Selects whatever has all labels of the template. A template without labels selects everything.
fn template_selector(set: &Value) -> LabelSelector {
    match set.at(&["spec", "template", "metadata", "labels"]) {
        Some(labels) => meta::selector_for(Some(labels)),
        None => LabelSelector::everything(),
    }
}

/// Zero is left out, as upstream does.
fn put_count(status: &mut Value, field: &str, count: i64) {
    if count == 0 {
        status.remove_at(&[field]);
    } else {
        status.set_at(&[field], count);
    }
}

fn put_list(status: &mut Value, field: &str, list: Vec<Value>) {
    if list.is_empty() {
        status.remove_at(&[field]);
    } else {
        status.set_at(&[field], list);
    }
}

fn len(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}
