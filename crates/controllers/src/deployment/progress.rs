//! How a deployment stands: its counts, and whether it is available and makes progress. Pure.

use polder_model::Value;

use super::plan::Bounds;
use super::set::{Set, sum};
use crate::timestamp;
use crate::workload::condition::{self, Condition};
use crate::workload::{Meta as _, meta};

const PROGRESSING: &str = "Progressing";
const AVAILABLE_REASON: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const STAMPS: &[&str] = &["lastUpdateTime"];

/// Whether lack of progress is a matter at all.
pub(super) fn has_deadline(deployment: &Value) -> bool {
    deadline(deployment).is_some()
}

fn deadline(deployment: &Value) -> Option<i64> {
    let seconds = deployment.value().i64_at(&["spec", "progressDeadlineSeconds"])?;
    (seconds != i64::from(i32::MAX)).then_some(seconds)
}

pub(super) fn set(
    conditions: &mut Vec<Value>,
    status: &'static str,
    reason: &'static str,
    message: String,
    now: i64,
) {
    condition::set(conditions, &Condition { kind: PROGRESSING, status, reason, message }, now, STAMPS);
}

/// Notes that a deployment is paused, or no longer: the time that takes is not held against it.
pub(super) fn pause(deployment: &Value, conditions: &mut Vec<Value>, paused: bool, now: i64) {
    let reason = condition::find(conditions, PROGRESSING).and_then(|one| one.str_at(&["reason"]));
    if !has_deadline(deployment) || reason == Some(TIMED_OUT) {
        return;
    }
    match (paused, reason == Some("DeploymentPaused")) {
        (true, false) => set(conditions, "Unknown", "DeploymentPaused", "Deployment is paused".into(), now),
        (false, true) => set(conditions, "Unknown", "DeploymentResumed", "Deployment is resumed".into(), now),
        _ => {}
    }
}

/// The numbers of a status, and whether enough pods are available.
pub(super) fn count(
    deployment: &Value,
    bounds: &Bounds,
    olds: &[Set],
    newest: Option<&Set>,
    status: &mut Value,
    conditions: &mut Vec<Value>,
    now: i64,
) {
    let all = || olds.iter().chain(newest);
    let available = sum(all(), Set::available);
    let counts = [
        ("observedGeneration", deployment.generation()),
        ("replicas", sum(all(), Set::pods)),
        ("updatedReplicas", newest.map_or(0, Set::pods)),
        ("readyReplicas", sum(all(), Set::ready)),
        ("availableReplicas", available),
        ("unavailableReplicas", (sum(all(), Set::size) - available).max(0)),
    ];
    for (field, count) in counts {
        if count == 0 {
            status.remove_at(&[field]);
        } else {
            status.set_at(&[field], count);
        }
    }
    match all().map(Set::terminating).try_fold(0, |sum, one| Some(sum + one?)) {
        Some(terminating) => status.set_at(&["terminatingReplicas"], terminating),
        None => drop(status.remove_at(&["terminatingReplicas"])),
    }
    let (status, reason, message) = if available >= bounds.desired - bounds.unavailable_max {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    let message = message.to_string();
    condition::set(conditions, &Condition { kind: "Available", status, reason, message }, now, STAMPS);
}

/// All pods are of the newest template, and available.
pub(super) fn is_complete(deployment: &Value, status: &Value) -> bool {
    let desired = deployment.value().i64_at(&["spec", "replicas"]).unwrap_or(1);
    ["updatedReplicas", "replicas", "availableReplicas"]
        .iter()
        .all(|field| status.count_at(&[field]) == desired)
        && status.count_at(&["observedGeneration"]) >= deployment.generation()
}

/// Sets the conditions of a rollout.
pub(super) fn judge(
    deployment: &Value,
    all: &[Set],
    newest: Option<&Set>,
    status: &Value,
    conditions: &mut Vec<Value>,
    now: i64,
) {
    let before = deployment.get("status").cloned().unwrap_or_default();
    let current = condition::find(conditions, PROGRESSING).cloned();
    let reason =
        condition::find(condition::of(deployment), PROGRESSING).and_then(|one| one.str_at(&["reason"]));
    let was_complete = status.count_at(&["replicas"]) == status.count_at(&["updatedReplicas"])
        && newest.is_none_or(|set| set.old.is_some())
        && reason == Some(AVAILABLE_REASON);
    let who = match newest {
        Some(set) => format!("ReplicaSet {:?}", set.new.name()),
        None => format!("Deployment {:?}", deployment.name()),
    };
    match deadline(deployment) {
        None => condition::remove(conditions, PROGRESSING),
        Some(_) if was_complete => {}
        Some(_) if is_complete(deployment, status) => {
            let message = format!("{who} has successfully progressed.");
            set(conditions, "True", AVAILABLE_REASON, message, now);
        }
        Some(_) if has_progressed(&before, status) => {
            // The time of the last update is the time of the last progress, so it is set even if nothing else differs.
            let reason = "ReplicaSetUpdated";
            let message = format!("{who} is progressing.");
            let kept = current.as_ref().filter(|one| one.str_at(&["status"]) == Some("True"));
            let transition = kept.and_then(|one| one.get("lastTransitionTime").cloned());
            let new = Condition { kind: PROGRESSING, status: "True", reason, message };
            condition::put(conditions, &new, transition.unwrap_or_else(|| meta::time(now)), now, STAMPS);
        }
        Some(seconds) if is_timed_out(current.as_ref(), seconds, now) => {
            set(conditions, "False", TIMED_OUT, format!("{who} has timed out progressing."), now);
        }
        Some(_) => {}
    }
    let failure = |set: &Set| condition::find(condition::of(&set.new), "ReplicaFailure").cloned();
    match newest.and_then(failure).or_else(|| all.iter().find_map(failure)) {
        Some(mut failure) => {
            let time = failure.get("lastTransitionTime").cloned().unwrap_or_default();
            failure.set_at(&["lastUpdateTime"], time);
            let same = |field: &str| {
                let old = condition::find(conditions, "ReplicaFailure").and_then(|old| old.get(field));
                old.is_some() && old == failure.get(field)
            };
            if !(same("status") && same("reason")) {
                condition::remove(conditions, "ReplicaFailure");
                conditions.push(failure);
            }
        }
        None => condition::remove(conditions, "ReplicaFailure"),
    }
}

fn has_progressed(before: &Value, after: &Value) -> bool {
    let old_pods = |status: &Value| status.count_at(&["replicas"]) - status.count_at(&["updatedReplicas"]);
    let more = |field: &str| after.count_at(&[field]) > before.count_at(&[field]);
    more("updatedReplicas")
        || more("readyReplicas")
        || more("availableReplicas")
        || old_pods(after) < old_pods(before)
}

fn is_timed_out(current: Option<&Value>, seconds: i64, now: i64) -> bool {
    let Some(current) = current else { return false };
    match current.str_at(&["reason"]) {
        Some(AVAILABLE_REASON) => false,
        Some(TIMED_OUT) => true,
        _ => updated(current).is_some_and(|then| then.saturating_add(seconds) < now),
    }
}

fn updated(condition: &Value) -> Option<i64> {
    timestamp::seconds(condition.str_at(&["lastUpdateTime"])?)
}

/// In how many seconds it will be known that there was no progress.
pub(super) fn check_in(deployment: &Value, status: &Value, conditions: &[Value], now: i64) -> Option<i64> {
    let seconds = deadline(deployment)?;
    let current = condition::find(conditions, PROGRESSING)?;
    let over = matches!(current.str_at(&["reason"]), Some(TIMED_OUT | AVAILABLE_REASON));
    if over || is_complete(deployment, status) {
        return None;
    }
    Some((updated(current)?.saturating_add(seconds) - now).max(0) + 1)
}
