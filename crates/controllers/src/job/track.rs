//! What is counted, in which order, and what the status says. Pure.

use std::collections::HashSet;
use std::sync::Arc;

use polder_model::{SmolStr, Value, json};

use super::facts::{Facts, completions, count, index, is_failed};
use super::failure_policy::{Effect, effect};
use super::verdict::End;
use super::{FINALIZER, is_indexed};
use crate::workload::{Meta as _, condition, meta, pod};

/// So many pods are written down at a time.
const NOTED_MAX: usize = 500;

/// Pods whose finalizer can go once the status is written.
pub(super) struct Tracked {
    pub(super) free: Vec<Arc<Value>>,
    /// There are more than fit into one status.
    pub(super) is_cut: bool,
}

/// Writes down what has ended.
pub(super) fn note(job: &Value, facts: &Facts, end: Option<&End>, status: &mut Value) -> Tracked {
    let mut pods: Vec<&Arc<Value>> = facts.pods.iter().filter(|one| one.has_finalizer(FINALIZER)).collect();
    pods.sort_by_key(|one| index(one));
    let limit = completions(job).unwrap_or_default();
    let noted = |field| status.array_at(&["uncountedTerminatedPods", field]).to_vec();
    let (mut succeeded, mut failed) = (noted("succeeded"), noted("failed"));
    let mut new_indexes = Vec::new();
    let mut tracked = Tracked { free: Vec::new(), is_cut: false };
    for one in pods {
        let has_failed = is_failed(job, one);
        if !may_be_freed(job, facts, end, one, has_failed) {
            continue;
        }
        tracked.free.push(one.clone());
        let uid = one.uid();
        let valid = index(one).filter(|index| *index < limit);
        if pod::phase(one) == "Succeeded" && !facts.noted_failed.contains(uid) {
            match valid {
                Some(index) if is_indexed(job) && !facts.known_indexes.has(index) => new_indexes.push(index),
                None if !is_indexed(job) && !facts.noted_succeeded.contains(uid) => {
                    succeeded.push(Value::from(uid));
                }
                _ => {}
            }
        } else if (has_failed || end.is_some_and(|end| !end.is_success))
            && !facts.noted_failed.contains(uid)
            && (!is_indexed(job) || valid.is_some())
            && effect(job, one) != Effect::Ignore
        {
            failed.push(Value::from(uid));
        }
        if new_indexes.len() + succeeded.len() + failed.len() >= NOTED_MAX {
            tracked.is_cut = true;
            break;
        }
    }
    put_noted(status, succeeded, failed);
    if is_indexed(job) {
        let indexes = facts.indexes.with(new_indexes);
        put_count(status, "succeeded", indexes.len());
        match indexes.to_string() {
            text if text.is_empty() => drop(status.remove_at(&["completedIndexes"])),
            text => status.set_at(&["completedIndexes"], text),
        }
        if let Some(failed) = &facts.failed_indexes {
            status.set_at(&["failedIndexes"], failed.to_string());
        }
    }
    tracked
}

fn may_be_freed(job: &Value, facts: &Facts, end: Option<&End>, one: &Value, has_failed: bool) -> bool {
    if job.is_terminating() || end.is_some() || pod::phase(one) == "Succeeded" {
        return true;
    }
    let is_kept = index(one)
        .and_then(|index| facts.delayed.get(&index))
        .is_some_and(|delayed| delayed.uid() == one.uid());
    has_failed && !is_kept
}

fn put_noted(status: &mut Value, succeeded: Vec<Value>, failed: Vec<Value>) {
    let mut noted = json!({});
    for (field, list) in [("succeeded", succeeded), ("failed", failed)] {
        if !list.is_empty() {
            noted.set_at(&[field], list);
        }
    }
    status.set_at(&["uncountedTerminatedPods"], noted);
}

/// Counts those that are written down and have no finalizer any longer.
pub(super) fn count_noted(status: &mut Value, with_finalizer: &HashSet<SmolStr>) {
    let mut kept = Vec::new();
    for field in ["succeeded", "failed"] {
        let noted = status.array_at(&["uncountedTerminatedPods", field]).to_vec();
        let is_open = |uid: &&Value| uid.as_str().is_some_and(|uid| with_finalizer.contains(uid));
        let open: Vec<Value> = noted.iter().filter(is_open).cloned().collect();
        let counted = count(noted.len() - open.len());
        let total = status.count_at(&[field]).saturating_add(counted);
        put_count(status, field, total);
        kept.push(open);
    }
    let failed = kept.pop().unwrap_or_default();
    put_noted(status, kept.pop().unwrap_or_default(), failed);
}

/// Zero is left out, as upstream does.
pub(super) fn put_count(status: &mut Value, field: &str, count: i64) {
    if count == 0 {
        status.remove_at(&[field]);
    } else {
        status.set_at(&[field], count);
    }
}

/// Sets a condition, unless it is there as it should be.
pub(super) fn put_condition(
    status: &mut Value,
    kind: &str,
    is_true: bool,
    reason: &str,
    message: &str,
    now: i64,
) -> bool {
    let mut conditions = status.array_at(&["conditions"]).to_vec();
    let value = if is_true { "True" } else { "False" };
    let old = condition::find(&conditions, kind);
    let is =
        |field: &str, text: &str| old.is_some_and(|old| old.str_at(&[field]).unwrap_or_default() == text);
    if (old.is_none() && !is_true) || (is("status", value) && is("reason", reason) && is("message", message))
    {
        return false;
    }
    let new = json!({
        "type": kind, "status": value, "reason": reason, "message": message,
        "lastProbeTime": (meta::time(now)), "lastTransitionTime": (meta::time(now)),
    });
    match conditions.iter_mut().find(|one| one.str_at(&["type"]) == Some(kind)) {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
    status.set_at(&["conditions"], conditions);
    true
}

/// The end is known, but pods are not gone or not counted yet.
pub(super) fn tell_end(status: &mut Value, end: &End, now: i64) {
    if !end.is_told {
        let kind = if end.is_success { "SuccessCriteriaMet" } else { "FailureTarget" };
        put_condition(status, kind, true, &end.reason, &end.message, now);
    }
}

/// The job is over, if no pod is left to count or to wait for.
pub(super) fn finish(status: &mut Value, end: &End, terminating: i64, now: i64) -> bool {
    let open = ["succeeded", "failed"]
        .iter()
        .any(|field| !status.array_at(&["uncountedTerminatedPods", field]).is_empty());
    if open || terminating > 0 {
        return false;
    }
    let kind = if end.is_success { "Complete" } else { "Failed" };
    put_condition(status, kind, true, &end.reason, &end.message, now);
    if end.is_success {
        status.set_at(&["completionTime"], meta::time(now));
    }
    true
}
