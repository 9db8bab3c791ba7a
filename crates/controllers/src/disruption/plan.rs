//! What a budget's status should say, from the budget, its pods and the scale of those who made them.

use polder_model::{Object, SmolStr, Value, json};

use crate::{meta, timestamp};

/// An eviction that did not lead to a deletion within this time did not happen.
const DELETION_SECONDS: i64 = 120;
/// The condition of pods that are about to be disrupted.
pub(super) const TARGET: &str = "DisruptionTarget";

/// What pods are expected, and how many of them have to be healthy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) pods: i64,
    pub(super) healthy: i64,
}

/// Whether the number of expected pods is that of the controllers that made them, not that of the pods there are.
pub(super) fn needs_scale(budget: &Value) -> bool {
    let unavailable = budget.at(&["spec", "maxUnavailable"]).is_some_and(|limit| !limit.is_null());
    unavailable || matches!(budget.at(&["spec", "minAvailable"]), Some(Value::String(_)))
}

/// `pods` is the number of pods there are, or the scale where it is needed.
pub(super) fn expected(budget: &Value, pods: i64) -> Result<Expected, String> {
    let limit = |field| budget.at(&["spec", field]).filter(|limit| !limit.is_null());
    if let Some(limit) = limit("maxUnavailable") {
        let unavailable = scaled(limit, pods)?;
        return Ok(Expected { pods, healthy: (pods - unavailable).max(0) });
    }
    match limit("minAvailable") {
        Some(limit) => Ok(Expected { pods, healthy: scaled(limit, pods)? }),
        None => Ok(Expected { pods, healthy: 0 }),
    }
}

/// A number, or a percentage of a total, rounded up.
fn scaled(limit: &Value, total: i64) -> Result<i64, String> {
    match limit {
        Value::Int(number) => Ok(*number),
        Value::String(text) => {
            let percent = text.strip_suffix('%').and_then(|number| number.parse::<i64>().ok());
            let percent =
                percent.ok_or("invalid value for IntOrString: invalid type: string is not a percentage")?;
            let parts = i128::from(percent) * i128::from(total);
            i64::try_from((parts + 99).div_euclid(100)).map_err(|_| "the percentage is too large".to_owned())
        }
        _ => Err("invalid value for IntOrString: invalid type: neither int nor percentage".to_owned()),
    }
}

/// Evictions that may still become deletions: by the pod's name, when each was allowed.
pub(super) struct Disrupted {
    pub(super) kept: Object,
    /// Names of pods that were to go and stayed.
    pub(super) stayed: Vec<SmolStr>,
    /// In so many seconds the next of them is over.
    pub(super) due: Option<i64>,
}

pub(super) fn disrupted(budget: &Value, pods: &[impl AsRef<Value>], now: i64) -> Disrupted {
    let mut disrupted = Disrupted { kept: Object::new(), stayed: Vec::new(), due: None };
    let noted = budget.at(&["status", "disruptedPods"]).and_then(Value::as_object);
    for pod in pods.iter().map(AsRef::as_ref).filter(|pod| !meta::is_deleting(pod)) {
        let name = meta::name(pod);
        let Some(time) = noted.and_then(|noted| noted.get(name)) else { continue };
        let since = time.as_str().and_then(timestamp::seconds).unwrap_or_default();
        let left = since.saturating_add(DELETION_SECONDS).saturating_sub(now);
        if left > 0 {
            disrupted.kept.insert(name, time.clone());
            disrupted.due = Some(disrupted.due.map_or(left, |due| due.min(left)));
        } else {
            disrupted.stayed.push(name.into());
        }
    }
    disrupted
}

/// In how many seconds it is clear that a pod which was to be disrupted stays; nothing if it was not, or goes.
pub(super) fn stays_after(pod: &Value, now: i64) -> Option<i64> {
    let condition = meta::find_condition(pod, TARGET)?;
    let over = matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
    if condition.str_at(&["status"]) != Some("True") || over || meta::is_deleting(pod) {
        return None;
    }
    let since = condition.str_at(&["lastTransitionTime"]).and_then(timestamp::seconds).unwrap_or_default();
    Some(since.saturating_add(DELETION_SECONDS).saturating_sub(now).min(DELETION_SECONDS))
}

/// Pods that count: ready, not going away, not about to be evicted.
pub(super) fn healthy(pods: &[impl AsRef<Value>], disrupted: &Object) -> i64 {
    let counts = |pod: &Value| {
        !meta::is_deleting(pod)
            && !disrupted.contains_key(meta::name(pod))
            && meta::condition(pod, "Ready") == Some("True")
    };
    pods.iter().filter(|pod| counts(pod.as_ref())).count().try_into().unwrap_or(i64::MAX)
}

/// The budget with the status it should have; the same if that is what it has.
pub(super) fn counted(
    budget: &Value,
    expected: Expected,
    healthy: i64,
    disrupted: Object,
    now: i64,
) -> Value {
    let allowed = if expected.pods <= 0 { 0 } else { (healthy - expected.healthy).max(0) };
    let mut new = budget.clone();
    new.set_at(&["status", "currentHealthy"], healthy);
    new.set_at(&["status", "desiredHealthy"], expected.healthy);
    new.set_at(&["status", "expectedPods"], expected.pods);
    new.set_at(&["status", "disruptionsAllowed"], allowed);
    if disrupted.is_empty() {
        new.remove_at(&["status", "disruptedPods"]);
    } else {
        new.set_at(&["status", "disruptedPods"], disrupted);
    }
    let (status, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    conclude(&mut new, status, reason, "", now);
    new
}

/// The budget when nobody can tell how many pods it should have: nothing may be disrupted.
pub(super) fn failed(budget: &Value, why: &str, now: i64) -> Value {
    let mut new = budget.clone();
    for field in ["currentHealthy", "desiredHealthy", "expectedPods"] {
        if new.i64_at(&["status", field]).is_none() {
            new.set_at(&["status", field], 0);
        }
    }
    new.set_at(&["status", "disruptionsAllowed"], 0);
    conclude(&mut new, "False", "SyncFailed", why, now);
    new
}

fn conclude(budget: &mut Value, status: &str, reason: &str, message: &str, now: i64) {
    let generation = budget.i64_at(&["metadata", "generation"]).unwrap_or_default();
    budget.set_at(&["status", "observedGeneration"], generation);
    let condition = json!({
        "type": "DisruptionAllowed", "status": status, "reason": reason, "message": message,
        "observedGeneration": generation,
    });
    meta::set_condition(budget, condition, now);
}
