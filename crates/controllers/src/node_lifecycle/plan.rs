//! What is known of a node's health, and the taints that follow from it: pure.

use polder_model::{Value, json};

use crate::{meta, timestamp};

/// A node that is silent for longer than this is not known to be well.
pub(super) const GRACE_SECONDS: i64 = 50;
/// One that has never been heard of gets a little more.
const START_SECONDS: i64 = 60;

/// What a node tells in its conditions, and the taint that keeps pods away meanwhile: condition, status, taint.
const TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", "node.kubernetes.io/not-ready"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// In how many seconds a node that stays silent counts as lost; zero or less when it does.
pub(super) fn patience(node: &Value, renewed: Option<i64>, now: i64) -> i64 {
    let ready = meta::find_condition(node, "Ready");
    let heard = ready.and_then(|ready| timestamp::seconds(ready.str_at(&["lastHeartbeatTime"])?));
    let heard =
        heard.into_iter().chain(renewed).filter(|time| *time <= now.saturating_add(GRACE_SECONDS)).max();
    let (since, grace) = match heard {
        Some(heard) => (heard, GRACE_SECONDS),
        None => {
            let created = node.str_at(&["metadata", "creationTimestamp"]).and_then(timestamp::seconds);
            (created.unwrap_or_default(), START_SECONDS)
        }
    };
    since.saturating_add(grace).saturating_sub(now)
}

/// The node with nothing known of it.
pub(super) fn lost(node: &Value, now: i64) -> Value {
    let mut new = node.clone();
    let time = timestamp::text(now);
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        let old = meta::find_condition(node, kind);
        if old.is_some_and(|old| old.str_at(&["status"]) == Some("Unknown")) {
            continue;
        }
        let (reason, message) = match old {
            Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
        };
        let heard = old.and_then(|old| old.str_at(&["lastHeartbeatTime"])).unwrap_or(&time);
        let condition = json!({
            "type": kind, "status": "Unknown", "reason": reason, "message": message, "lastHeartbeatTime": heard,
        });
        meta::set_condition(&mut new, condition, now);
    }
    new
}

/// The node with the taints its conditions ask for, and none of those they do not. Others are left alone.
pub(super) fn tainted(node: &Value, now: i64) -> Value {
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for (kind, status, taint) in TAINTS {
        if meta::condition(node, kind) == Some(status) {
            wanted.push((taint, "NoSchedule"));
            if kind == "Ready" {
                wanted.push((taint, "NoExecute"));
            }
        }
    }
    if node.at(&["spec", "unschedulable"]).and_then(Value::as_bool) == Some(true) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let told = |taint: &Value| {
        (
            taint.str_at(&["key"]).unwrap_or_default().to_owned(),
            taint.str_at(&["effect"]).unwrap_or_default().to_owned(),
        )
    };
    let is_ours = |key: &str, effect: &str| {
        let of_condition = TAINTS.iter().find(|(_, _, taint)| *taint == key);
        match effect {
            "NoSchedule" => of_condition.is_some() || key == UNSCHEDULABLE,
            "NoExecute" => of_condition.is_some_and(|(kind, _, _)| *kind == "Ready"),
            _ => false,
        }
    };
    let old = node.array_at(&["spec", "taints"]);
    let mut taints: Vec<Value> = old.to_vec();
    taints.retain(|taint| {
        let (key, effect) = told(taint);
        !is_ours(&key, &effect) || wanted.contains(&(key.as_str(), effect.as_str()))
    });
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| told(taint) == (key.to_owned(), effect.to_owned())) {
            taints.push(json!({"key": key, "effect": effect, "timeAdded": (timestamp::text(now))}));
        }
    }
    let mut new = node.clone();
    if taints.is_empty() && !old.is_empty() {
        new.remove_at(&["spec", "taints"]);
    } else if taints != old {
        new.set_at(&["spec", "taints"], taints);
    }
    new
}
