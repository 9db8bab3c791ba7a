//! Whether a job has come to its end, and which. Pure.

use polder_model::Value;

use super::facts::{Facts, completions, is_failed};
use super::failure_policy::{Effect, effect};
use super::indexes::Indexes;
use super::is_suspended;
use crate::workload::{Meta as _, condition, pod};

/// The end of a job, once its pods are gone and counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) is_success: bool,
    pub(super) reason: String,
    pub(super) message: String,
    /// The status says so already.
    pub(super) is_told: bool,
}

impl End {
    fn failed(reason: &str, message: impl Into<String>) -> Option<End> {
        Some(End { is_success: false, reason: reason.into(), message: message.into(), is_told: false })
    }

    fn met(reason: &str, message: impl Into<String>) -> Option<End> {
        Some(End { is_success: true, reason: reason.into(), message: message.into(), is_told: false })
    }

    /// All that was asked for has been done.
    pub(super) fn completed() -> Option<End> {
        End::met("CompletionsReached", "Reached expected number of succeeded pods")
    }
}

pub(super) fn verdict(job: &Value, facts: &Facts) -> Option<End> {
    told(job)
        .or_else(|| by_policy(job, facts))
        .or_else(|| by_limits(job, facts))
        .or_else(|| by_indexes(job, facts))
}

/// What the status says already.
fn told(job: &Value) -> Option<End> {
    let conditions = condition::of(job);
    let text = |one: &Value, field: &str| one.str_at(&[field]).unwrap_or_default().to_string();
    for (kind, is_success) in [("SuccessCriteriaMet", true), ("FailureTarget", false)] {
        if let Some(one) = condition::find(conditions, kind).filter(|_| condition::holds(conditions, kind)) {
            let (reason, message) = (text(one, "reason"), text(one, "message"));
            return Some(End { is_success, reason, message, is_told: true });
        }
    }
    None
}

/// A pod failed in a way that ends the job.
fn by_policy(job: &Value, facts: &Facts) -> Option<End> {
    let failed = facts.pods.iter().filter(|one| is_failed(job, one));
    let message = failed.map(|one| effect(job, one)).find_map(|effect| match effect {
        Effect::FailJob(message) => Some(message),
        _ => None,
    });
    End::failed("PodFailurePolicy", message?)
}

fn by_limits(job: &Value, facts: &Facts) -> Option<End> {
    let limit = job.value().i64_at(&["spec", "backoffLimit"]).unwrap_or(6);
    if facts.failed > limit || restarted_too_often(job, facts, limit) {
        return End::failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if deadline_in(job, facts.now).is_some_and(|seconds| seconds <= 0) {
        return End::failed("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    None
}

/// Containers that are started again in their pod count as failures too.
fn restarted_too_often(job: &Value, facts: &Facts, limit: i64) -> bool {
    if job.str_at(&["spec", "template", "spec", "restartPolicy"]) != Some("OnFailure") {
        return false;
    }
    let running = facts.pods.iter().filter(|one| matches!(pod::phase(one), "Running" | "Pending"));
    let lists = [["status", "initContainerStatuses"], ["status", "containerStatuses"]];
    let restarts: i64 = running
        .flat_map(|one| lists.iter().flat_map(|path| one.array_at(path)))
        .filter_map(|status| status.i64_at(&["restartCount"]))
        .fold(0, i64::saturating_add);
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}

/// In how many seconds the job will have run for too long.
pub(super) fn deadline_in(job: &Value, now: i64) -> Option<i64> {
    let seconds = job.value().i64_at(&["spec", "activeDeadlineSeconds"]).filter(|_| !is_suspended(job))?;
    let start = job.seconds_at(&["status", "startTime"])?;
    Some(start.saturating_add(seconds) - now)
}

fn by_indexes(job: &Value, facts: &Facts) -> Option<End> {
    if !super::is_indexed(job) {
        return None;
    }
    let completions = completions(job).unwrap_or_default();
    if let Some(failed) = &facts.failed_indexes {
        let max = job.value().i64_at(&["spec", "maxFailedIndexes"]);
        if max.is_some_and(|max| failed.len() > max) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return End::failed("MaxFailedIndexesExceeded", message);
        }
        if !failed.is_empty() && failed.len() + facts.indexes.len() >= completions {
            return End::failed("FailedIndexes", "Job has failed indexes");
        }
    }
    if facts.indexes.is_empty() {
        return None;
    }
    for (number, rule) in job.array_at(&["spec", "successPolicy", "rules"]).iter().enumerate() {
        let enough = rule.value().i64_at(&["succeededCount"]);
        let is_met = match rule.str_at(&["succeededIndexes"]) {
            Some(text) => {
                let wanted = Indexes::parse(text, completions);
                let common = wanted.common_len(&facts.indexes);
                !wanted.is_empty()
                    && (common == wanted.len() || enough.is_some_and(|enough| common >= enough))
            }
            None => enough.is_some_and(|enough| facts.indexes.len() >= enough),
        };
        if is_met {
            return End::met("SuccessPolicy", format!("Matched rules at index {number}"));
        }
    }
    None
}
