//! Which pods of a job come or go next. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use polder_model::{Value, json};

use super::facts::{
    Facts, INDEX, INDEX_FAILURES, INDEX_IGNORED, completions, count, failures, finished_at, index, is_failed,
};
use super::failure_policy::{Effect, effect};
use super::{FINALIZER, index_limit, is_indexed, is_suspended, replaces_only_failed};
use crate::replicaset::ranking;
use crate::workload::kind::JOB;
use crate::workload::{Meta as _, batch, pod};

/// Waits after failures, in seconds: the first, and the longest.
const BACKOFF_MIN: i64 = 10;
const BACKOFF_MAX: i64 = 600;
/// The beginning of a made-up name may be this long.
const PREFIX_LEN_MAX: usize = 58;

#[derive(Debug)]
pub(super) enum Step {
    Rest,
    /// These go and are not counted.
    Delete(Vec<Arc<Value>>),
    Create(Vec<Value>),
    /// Seconds until pods may come again after a failure.
    Wait(i64),
}

pub(super) fn manage(job: &Value, facts: &Facts) -> Step {
    let active = count(facts.active.len());
    if is_suspended(job) {
        return if active > 0 { Step::Delete(facts.active.clone()) } else { Step::Rest };
    }
    let parallelism = job.value().i64_at(&["spec", "parallelism"]).unwrap_or(1);
    let wanted = match completions(job) {
        Some(completions) => (completions - facts.succeeded).clamp(0, parallelism.max(0)),
        // Nobody is started once one has succeeded.
        None if facts.succeeded > 0 => active,
        None => parallelism,
    };
    let surplus = surplus(job, facts, usize::try_from(active - wanted).unwrap_or_default());
    if !surplus.is_empty() {
        return Step::Delete(surplus);
    }
    let leaving = if replaces_only_failed(job) { facts.terminating } else { 0 };
    let lacking = usize::try_from(wanted - leaving - active).unwrap_or_default();
    if lacking == 0 {
        return Step::Rest;
    }
    if index_limit(job).is_none() {
        let wait = wait(job, facts);
        if wait > 0 {
            return Step::Wait(wait);
        }
    }
    let lacking = lacking.min(batch::copies_max(job));
    if !is_indexed(job) {
        let pod = pod_for(job, facts, None);
        return Step::Create(vec![pod; lacking]);
    }
    create_indexes(job, facts, lacking)
}

fn create_indexes(job: &Value, facts: &Facts, lacking: usize) -> Step {
    let mut taken = facts.indexes.with(facts.active.iter().filter_map(|one| index(one)));
    if replaces_only_failed(job) {
        let leaving = facts.pods.iter().filter(|one| one.is_terminating() && !pod::is_finished(one));
        taken = taken.with(leaving.filter_map(|one| index(one)));
    }
    if let Some(failed) = &facts.failed_indexes {
        taken = taken.join(failed);
    }
    let missing = taken.missing(completions(job).unwrap_or_default(), lacking);
    let waits: Vec<i64> = missing.iter().map(|index| index_wait(facts, *index)).collect();
    let due: Vec<i64> =
        missing.iter().zip(&waits).filter(|(_, wait)| **wait <= 0).map(|(index, _)| *index).collect();
    if due.is_empty() {
        return waits.into_iter().min().map_or(Step::Rest, Step::Wait);
    }
    Step::Create(due.into_iter().map(|index| pod_for(job, facts, Some(index))).collect())
}

/// Pods that are too many: those that share an index or have none that counts, then those that are least missed.
fn surplus(job: &Value, facts: &Facts, at_least: usize) -> Vec<Arc<Value>> {
    let nowhere = HashMap::new();
    let (mut surplus, mut rest) = (Vec::new(), facts.active.clone());
    if is_indexed(job) {
        let completions = completions(job).unwrap_or_default();
        let mut by_index: BTreeMap<i64, Vec<Arc<Value>>> = BTreeMap::new();
        for one in rest.drain(..) {
            match index(&one).filter(|index| *index < completions) {
                Some(index) => by_index.entry(index).or_default().push(one),
                None => surplus.push(one),
            }
        }
        for same in by_index.into_values() {
            let extra = ranking::first_to_go(same.clone(), same.len() - 1, &nowhere, facts.now);
            let stays = |one: &Arc<Value>| !extra.iter().any(|other| other.uid() == one.uid());
            rest.extend(same.iter().filter(|one| stays(one)).cloned());
            surplus.extend(extra);
        }
    }
    if surplus.len() < at_least {
        surplus.extend(ranking::first_to_go(rest, at_least - surplus.len(), &nowhere, facts.now));
    }
    surplus.truncate(batch::TURN_LEN_MAX);
    surplus
}

/// Seconds until the next pod, after failures in a row.
fn wait(job: &Value, facts: &Facts) -> i64 {
    let succeeded = facts.pods.iter().filter(|one| pod::phase(one) == "Succeeded");
    let last_success = succeeded.map(|one| finished_at(one)).max();
    let failed = facts.pods.iter().filter(|one| is_failed(job, one)).map(|one| finished_at(one));
    let failed: Vec<i64> = failed.filter(|time| last_success.is_none_or(|last| *time > last)).collect();
    failed.iter().max().map_or(0, |last| remaining(count(failed.len()), *last, facts.now))
}

fn index_wait(facts: &Facts, index: i64) -> i64 {
    facts.delayed.get(&index).map_or(0, |one| {
        let count = failures(one, INDEX_FAILURES) + failures(one, INDEX_IGNORED) + 1;
        remaining(count, finished_at(one), facts.now)
    })
}

/// Each failure in a row doubles the wait.
fn remaining(failures: i64, last: i64, now: i64) -> i64 {
    let doublings = u32::try_from(failures - 1).unwrap_or_default().min(16);
    let wait = (BACKOFF_MIN << doublings).min(BACKOFF_MAX);
    (last.saturating_add(wait) - now).max(0)
}

/// A pod of a job, for an index or for none.
fn pod_for(job: &Value, facts: &Facts, index: Option<i64>) -> Value {
    let mut template = job.at(&["spec", "template"]).cloned().unwrap_or_default();
    if !template.has_finalizer(FINALIZER) {
        let mut finalizers = template.array_at(&["metadata", "finalizers"]).to_vec();
        finalizers.push(Value::from(FINALIZER));
        template.set_at(&["metadata", "finalizers"], finalizers);
    }
    let Some(index) = index else { return pod::from_template(&template, &JOB, job) };
    for list in ["initContainers", "containers"] {
        if let Some(Value::Array(containers)) = template.at_mut(&["spec", list]) {
            containers.iter_mut().for_each(name_index);
        }
    }
    let mut one = pod::from_template(&template, &JOB, job);
    one.set_at(&["metadata", "annotations", INDEX], index.to_string());
    one.set_at(&["metadata", "labels", INDEX], index.to_string());
    one.set_at(&["spec", "hostname"], format!("{}-{index}", job.name()));
    let suffix = format!("-{index}-");
    let name = job.name();
    let name = &name[..name.floor_char_boundary(PREFIX_LEN_MAX.saturating_sub(suffix.len()))];
    one.set_at(&["metadata", "generateName"], format!("{name}{suffix}"));
    if index_limit(job).is_some() {
        let last = facts.delayed.get(&index);
        let ignored = last.is_some_and(|last| effect(job, last) == Effect::Ignore);
        let before = |annotation| last.map_or(0, |last| failures(last, annotation));
        let failed = before(INDEX_FAILURES) + i64::from(last.is_some() && !ignored);
        let skipped = before(INDEX_IGNORED) + i64::from(ignored);
        one.set_at(&["metadata", "annotations", INDEX_FAILURES], failed.to_string());
        if skipped > 0 {
            one.set_at(&["metadata", "annotations", INDEX_IGNORED], skipped.to_string());
        }
    }
    one
}

/// Tells a container its index.
fn name_index(container: &mut Value) {
    let mut env = container.array_at(&["env"]).to_vec();
    if env.iter().any(|one| one.str_at(&["name"]) == Some("JOB_COMPLETION_INDEX")) {
        return;
    }
    let path = format!("metadata.labels['{INDEX}']");
    env.push(json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}}));
    container.set_at(&["env"], env);
}
