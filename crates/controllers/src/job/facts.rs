//! What there is of a job: its pods by what became of them, and what has been counted. Pure.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use polder_model::{SmolStr, Value};

use super::failure_policy::{Effect, effect};
use super::indexes::Indexes;
use super::{FINALIZER, index_limit, is_indexed, replaces_only_failed};
use crate::timestamp;
use crate::workload::{Meta as _, condition, pod};

pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub(super) const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
pub(super) const INDEX_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

pub(super) struct Facts {
    pub(super) pods: Vec<Arc<Value>>,
    pub(super) active: Vec<Arc<Value>>,
    pub(super) ready: i64,
    /// Pods on their way out.
    pub(super) terminating: i64,
    /// UIDs written down and not yet counted.
    pub(super) noted_succeeded: HashSet<SmolStr>,
    pub(super) noted_failed: HashSet<SmolStr>,
    pub(super) succeeded: i64,
    pub(super) failed: i64,
    /// The indexes that were known to have succeeded, and those that have.
    pub(super) known_indexes: Indexes,
    pub(super) indexes: Indexes,
    pub(super) failed_indexes: Option<Indexes>,
    /// The last failed pod of an index that will be tried again: it is kept until then, since it knows how often
    /// the index has failed.
    pub(super) delayed: BTreeMap<i64, Arc<Value>>,
    pub(super) now: i64,
}

pub(super) fn completions(job: &Value) -> Option<i64> {
    job.value().i64_at(&["spec", "completions"])
}

/// The index of a pod.
pub(super) fn index(pod: &Value) -> Option<i64> {
    pod.annotation(INDEX)?.parse::<i32>().ok().filter(|index| *index >= 0).map(i64::from)
}

pub(super) fn is_failed(job: &Value, one: &Value) -> bool {
    match pod::phase(one) {
        "Failed" => true,
        "Succeeded" => false,
        _ => !replaces_only_failed(job) && one.is_terminating(),
    }
}

/// How often an index had failed when this pod was made.
pub(super) fn failures(pod: &Value, annotation: &str) -> i64 {
    let count = pod.annotation(annotation).and_then(|text| text.parse::<i32>().ok());
    count.filter(|count| *count >= 0).map_or(0, i64::from)
}

impl Facts {
    pub(super) fn gather(job: &Value, pods: Vec<Arc<Value>>, now: i64) -> Facts {
        let noted = |field| {
            let uids = job.array_at(&["status", "uncountedTerminatedPods", field]).iter();
            uids.filter_map(Value::as_str).map(SmolStr::new).collect::<HashSet<_>>()
        };
        let active: Vec<Arc<Value>> = pods.iter().filter(|one| pod::is_active(one)).cloned().collect();
        let ready = active.iter().filter(|one| pod::is_ready(one)).count();
        let terminating = pods.iter().filter(|one| one.is_terminating() && !pod::is_finished(one)).count();
        let mut facts = Facts {
            ready: count(ready),
            terminating: count(terminating),
            active,
            noted_succeeded: noted("succeeded"),
            noted_failed: noted("failed"),
            succeeded: 0,
            failed: 0,
            known_indexes: Indexes::default(),
            indexes: Indexes::default(),
            failed_indexes: None,
            delayed: BTreeMap::new(),
            pods,
            now,
        };
        facts.count(job);
        if is_indexed(job) {
            facts.count_indexes(job);
        }
        facts
    }

    /// Whether a pod is to be counted some time.
    fn is_open(&self, job: &Value, pod: &Value) -> bool {
        pod.has_finalizer(FINALIZER)
            && (!is_indexed(job)
                || index(pod).is_some_and(|index| index < completions(job).unwrap_or_default()))
    }

    fn count(&mut self, job: &Value) {
        let open = || self.pods.iter().filter(|one| self.is_open(job, one));
        let is_new = |one: &&Arc<Value>, noted: &HashSet<SmolStr>| !noted.contains(one.uid());
        let succeeded =
            open().filter(|one| is_new(one, &self.noted_succeeded) && pod::phase(one) == "Succeeded").count();
        let failed = open()
            .filter(|one| is_new(one, &self.noted_failed) && is_failed(job, one))
            .filter(|one| effect(job, one) != Effect::Ignore)
            .count();
        self.succeeded =
            job.count_at(&["status", "succeeded"]) + count(succeeded) + count(self.noted_succeeded.len());
        self.failed = job.count_at(&["status", "failed"]) + count(failed) + count(self.noted_failed.len());
    }

    fn count_indexes(&mut self, job: &Value) {
        let completions = completions(job).unwrap_or_default();
        let known = |field| Indexes::parse(job.str_at(&["status", field]).unwrap_or_default(), completions);
        let open: Vec<&Arc<Value>> = self.pods.iter().filter(|one| self.is_open(job, one)).collect();
        let succeeded = open.iter().filter(|one| pod::phase(one) == "Succeeded");
        let known_indexes = known("completedIndexes");
        let indexes = known_indexes.with(succeeded.filter_map(|one| index(one)));
        let succeeded = indexes.len();
        let (mut failed_indexes, mut delayed) = (None, BTreeMap::new());
        if let Some(limit) = index_limit(job) {
            let failed = open.iter().filter(|one| is_index_failed(job, one, limit));
            let failed = known("failedIndexes").with(failed.filter_map(|one| index(one)));
            let running: HashSet<i64> = self.active.iter().filter_map(|one| index(one)).collect();
            for one in open.iter().filter(|one| is_failed(job, one)) {
                let Some(index) = index(one) else { continue };
                if indexes.has(index) || failed.has(index) || running.contains(&index) {
                    continue;
                }
                let key = |one: &Value| {
                    (failures(one, INDEX_FAILURES) + failures(one, INDEX_IGNORED), finished_at(one))
                };
                let last = delayed.entry(index).or_insert_with(|| Arc::clone(one));
                if key(one) > key(last) {
                    *last = Arc::clone(one);
                }
            }
            failed_indexes = Some(failed);
        }
        self.known_indexes = known_indexes;
        self.indexes = indexes;
        self.succeeded = succeeded;
        self.failed_indexes = failed_indexes;
        self.delayed = delayed;
    }
}

fn is_index_failed(job: &Value, pod: &Value, limit: i64) -> bool {
    is_failed(job, pod)
        && match effect(job, pod) {
            Effect::FailIndex => true,
            Effect::Ignore => false,
            _ => failures(pod, INDEX_FAILURES) >= limit,
        }
}

/// When a pod ended, as well as that can be known.
pub(super) fn finished_at(one: &Value) -> i64 {
    let containers = one.array_at(&["status", "containerStatuses"]).iter();
    let times: Option<Vec<i64>> =
        containers.map(|status| status.seconds_at(&["state", "terminated", "finishedAt"])).collect();
    let by_containers = times.and_then(|times| times.into_iter().max());
    let by_condition = || {
        let ready = condition::find(condition::of(one), "Ready")?;
        let is_over = ready.str_at(&["status"]) == Some("False");
        ready.str_at(&["lastTransitionTime"]).filter(|_| is_over).and_then(timestamp::seconds)
    };
    let by_deletion = || {
        let grace = one.count_at(&["metadata", "deletionGracePeriodSeconds"]);
        one.seconds_at(&["metadata", "deletionTimestamp"]).map(|time| time - grace)
    };
    by_containers.or_else(by_condition).or_else(by_deletion).unwrap_or_else(|| one.created())
}

pub(super) fn count(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}
