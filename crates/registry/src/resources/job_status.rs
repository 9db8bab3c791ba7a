//! What may be said of a job through its `status` subresource. Jobs can be run by others than the job controller (`managedBy`), so
//! what clients rely on is checked: how a job ends, that it stays ended, what its indexes are.
//!
//! Most rules look only at what a write changes: a status that was wrong before may be mended a piece at a time.

use std::collections::HashSet;

use polder_model::{FieldError, FieldPath, Value};

use super::status_rules::Counters;
use super::{cells, checks};

const COUNTERS: Counters =
    Counters { not_negative: &["active", "ready", "succeeded", "failed", "terminating"], at_most: &[] };

/// A job as one version of its status tells it.
struct Told<'v> {
    status: &'v Value,
    complete: bool,
    failed: bool,
    failing: bool,
    succeeding: bool,
}

impl<'v> Told<'v> {
    fn of(job: &'v Value) -> Told<'v> {
        let has = |kind: &str| cells::condition(job, kind) == Some("True");
        Told {
            status: job.get("status").unwrap_or(&Value::Null),
            complete: has("Complete"),
            failed: has("Failed"),
            failing: has("FailureTarget"),
            succeeding: has("SuccessCriteriaMet"),
        }
    }

    fn finished(&self) -> bool {
        self.complete || self.failed
    }

    fn count(&self, key: &str) -> i64 {
        self.status.get(key).and_then(Value::as_i64).unwrap_or_default()
    }

    fn some(&self, key: &str) -> Option<&'v Value> {
        checks::some(self.status, key)
    }

    fn text(&self, key: &str) -> &'v str {
        self.status.str_at(&[key]).unwrap_or_default()
    }
}

pub(super) fn validate(new_job: &Value, old_job: &Value, errors: &mut Vec<FieldError>) {
    COUNTERS.validate(new_job, errors);
    let (new, old) = (Told::of(new_job), Told::of(old_job));
    validate_uncounted(&new, errors);
    validate_conditions(&new, &old, new_job, errors);
    validate_times(&new, &old, new_job, errors);
    validate_counts(&new, &old, new_job, errors);
    validate_indexes(&new, &old, new_job, errors);
}

/// What is said of the conditions as a whole.
fn about_conditions(text: impl Into<String>) -> FieldError {
    FieldError { value: None, ..FieldError::invalid("status.conditions", Value::Null, text) }
}

fn validate_uncounted(new: &Told<'_>, errors: &mut Vec<FieldError>) {
    let mut seen = HashSet::new();
    let path = FieldPath::root("status");
    let path = path.member("uncountedTerminatedPods");
    for list in ["succeeded", "failed"] {
        let path = path.member(list);
        let uids = new.status.array_at(&["uncountedTerminatedPods", list]);
        for (index, uid) in uids.iter().filter_map(Value::as_str).enumerate() {
            if uid.is_empty() {
                errors.push(FieldError::invalid(path.index(index), uid, "must not be empty"));
            } else if !seen.insert(uid) {
                errors.push(FieldError::duplicate(path.index(index), uid));
            }
        }
    }
}

fn validate_conditions(new: &Told<'_>, old: &Told<'_>, job: &Value, errors: &mut Vec<FieldError>) {
    let changes = |of: fn(&Told<'_>) -> bool| of(new) != of(old);
    let complete_changes = changes(|job| job.complete);
    let indexes_change = !checks::same(new.some("failedIndexes"), old.some("failedIndexes"));
    let rows = [
        (
            new.complete && new.failed && (complete_changes || changes(|job| job.failed)),
            "cannot set Complete=True and Failed=true conditions",
        ),
        (
            new.complete && new.failing && (complete_changes || changes(|job| job.failing)),
            "cannot set Complete=True and FailureTarget=true conditions",
        ),
        (
            new.failed && !new.failing && (changes(|job| job.failed) || indexes_change),
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ),
        (
            new.complete && !new.succeeding && (complete_changes || changes(|job| job.succeeding)),
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ),
        (new.succeeding && new.failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions"),
        (
            new.succeeding && new.failing,
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
        (
            job.at(&["spec", "successPolicy"]).is_some_and(|policy| !policy.is_null())
                && !new.succeeding
                && new.complete,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
        (old.failed && !new.failed, "cannot disable the terminal Failed=True condition"),
        (old.complete && !new.complete, "cannot disable the terminal Complete=True condition"),
        (old.failing && !new.failing, "cannot disable the terminal FailureTarget=True condition"),
        (old.succeeding && !new.succeeding, "cannot disable the SuccessCriteriaMet=True condition"),
        (
            old.complete && !old.succeeding && new.succeeding,
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        ),
    ];
    errors.extend(rows.into_iter().filter(|(wrong, _)| *wrong).map(|(_, text)| about_conditions(text)));
}

fn validate_times(new: &Told<'_>, old: &Told<'_>, job: &Value, errors: &mut Vec<FieldError>) {
    let time = |told: &Told<'_>, key: &str| cells::seconds(told.text(key));
    let (started, completed) = (time(new, "startTime"), time(new, "completionTime"));
    let starts = started != time(old, "startTime");
    let completes = completed != time(old, "completionTime");
    let end = "status.completionTime";
    let told_end = || new.some("completionTime").cloned().unwrap_or_default();
    if new.complete != old.complete || completes {
        if completed.is_some() && !new.complete {
            let text = "cannot set completionTime when there is no Complete=True condition";
            errors.push(FieldError::invalid(end, told_end(), text));
        }
        if completed.is_none() && new.complete {
            errors.push(FieldError::required(end, "completionTime is required for Complete jobs"));
        }
    }
    if (starts || completes) && completed.zip(started).is_some_and(|(completed, started)| completed < started)
    {
        errors.push(FieldError::invalid(end, told_end(), "must be equal to or after `startTime`"));
    }
    if completed.is_some() && time(old, "completionTime").is_some() && completes {
        errors.push(FieldError::invalid(end, told_end(), checks::IMMUTABLE));
    }
    let is_suspended = job.at(&["spec", "suspend"]).and_then(Value::as_bool) == Some(true);
    let never_runs = is_suspended && job.i64_at(&["spec", "completions"]) == Some(0);
    let begin = "status.startTime";
    if new.finished() && started.is_none() && (new.finished() != old.finished() || starts) && !never_runs {
        errors.push(FieldError::required(begin, "startTime is required for finished job"));
    }
    let was = |told: &Told<'_>, status: &str| {
        let mut conditions = told.status.array_at(&["conditions"]).iter();
        conditions
            .any(|one| one.str_at(&["type"]) == Some("Suspended") && one.str_at(&["status"]) == Some(status))
    };
    let resumes = was(old, "True") && was(new, "False");
    if starts && !resumes && time(old, "startTime").is_some() && !is_suspended {
        errors.push(FieldError::required(begin, "startTime cannot be removed for unsuspended job"));
    }
}

fn validate_counts(new: &Told<'_>, old: &Told<'_>, job: &Value, errors: &mut Vec<FieldError>) {
    let ends = new.finished() != old.finished();
    let changes = |key: &str| !checks::same(new.some(key), old.some(key));
    let mut wrong = |is: bool, key: &str, text: &str| {
        if is {
            errors.push(FieldError::invalid(format!("status.{key}"), new.count(key), text));
        }
    };
    for key in ["active", "terminating"] {
        let text = format!("{key}>0 is invalid for finished job");
        wrong(new.finished() && new.count(key) > 0 && (ends || changes(key)), key, &text);
    }
    let more = new.count("ready") > new.count("active");
    wrong(more && (changes("ready") || changes("active")), "ready", "cannot set more ready pods than active");
    wrong(new.count("failed") < old.count("failed"), "failed", "cannot decrease the failed counter");
    // An indexed job with as many completions as pods can be made smaller.
    let number = |key: &str| job.i64_at(&["spec", key]);
    let elastic = is_indexed(job) && number("completions") == number("parallelism");
    let less = new.count("succeeded") < old.count("succeeded");
    wrong(less && !elastic, "succeeded", "cannot decrease the succeeded counter");
    let key = "uncountedTerminatedPods";
    let uncounted = ["succeeded", "failed"].iter().any(|list| !new.status.array_at(&[key, list]).is_empty());
    if new.finished() && uncounted && (ends || changes(key)) {
        let value = new.some(key).cloned().unwrap_or_default();
        errors.push(FieldError::invalid(format!("status.{key}"), value, "must be empty for finished job"));
    }
}

fn is_indexed(job: &Value) -> bool {
    job.str_at(&["spec", "completionMode"]) == Some("Indexed")
}

fn validate_indexes(new: &Told<'_>, old: &Told<'_>, job: &Value, errors: &mut Vec<FieldError>) {
    let completions = job.i64_at(&["spec", "completions"]);
    let by_index = job.i64_at(&["spec", "backoffLimitPerIndex"]).is_some();
    let completed_changes = new.text("completedIndexes") != old.text("completedIndexes");
    let failed = new.some("failedIndexes").and_then(Value::as_str);
    let failed_changes = !checks::same(new.some("failedIndexes"), old.some("failedIndexes"));
    let mut wrong = |key: &str, text: String| {
        errors.push(FieldError::invalid(format!("status.{key}"), new.text(key), text));
    };
    let completed = completions.map(|completions| intervals(new.text("completedIndexes"), completions));
    if completed_changes && let Some(Err(problem)) = &completed {
        wrong("completedIndexes", format!("error parsing completedIndexes: {problem}"));
    }
    let failed_parsed = completions.zip(failed).map(|(completions, failed)| intervals(failed, completions));
    if failed_changes
        && by_index
        && let Some(Err(problem)) = &failed_parsed
    {
        wrong("failedIndexes", format!("error parsing failedIndexes: {problem}"));
    }
    if completed_changes && !new.text("completedIndexes").is_empty() && !is_indexed(job) {
        wrong(
            "completedIndexes",
            "cannot set non-empty completedIndexes when non-indexed completion mode".into(),
        );
    }
    if failed_changes && failed.is_some() && !by_index {
        wrong("failedIndexes", "cannot set non-null failedIndexes when backoffLimitPerIndex is null".into());
    }
    if (failed_changes || completed_changes)
        && let (Some(Ok(completed)), Some(Ok(failed))) = (completed, failed_parsed)
        && let Some(index) = shared(&completed, &failed)
    {
        wrong("failedIndexes", format!("failedIndexes and completedIndexes overlap at index: {index}"));
    }
}

/// Reads `0-2,5`: intervals in order, all below the number of completions.
fn intervals(text: &str, completions: i64) -> Result<Vec<(i64, i64)>, String> {
    let mut all: Vec<(i64, i64)> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let number = |text: &str| -> Result<i64, String> {
            let number: i64 =
                text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
            if number >= completions {
                return Err(format!("too large index: {text:?}"));
            }
            Ok(number)
        };
        let falls = |previous: i64, current: i64| {
            Err(format!("non-increasing order, previous: {previous}, current: {current}"))
        };
        let (first, last) = match part.split_once('-') {
            None => {
                let only = number(part)?;
                (only, only)
            }
            Some((_, rest)) if rest.contains('-') => {
                return Err(format!(
                    "the fragment {part:?} violates the requirement that an index interval can have at most two parts separated by '-'"
                ));
            }
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first >= last {
                    return falls(first, last);
                }
                (first, last)
            }
        };
        if let Some((_, previous)) = all.last().filter(|(_, previous)| *previous >= first) {
            return falls(*previous, first);
        }
        all.push((first, last));
    }
    Ok(all)
}

/// The first index that is in both.
fn shared(one: &[(i64, i64)], other: &[(i64, i64)]) -> Option<i64> {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    while let (Some((from, to)), Some((others_from, others_to))) = (one.peek(), other.peek()) {
        if from.max(others_from) <= to.min(others_to) {
            return Some(*from.max(others_from));
        }
        if to < others_to {
            one.next();
        } else {
            other.next();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::rows::parse;
    use super::*;

    #[track_caller]
    fn check(spec: &str, old: &str, new: &str, expected: &[&str]) {
        let job = |status: &str| parse(&format!(r#"{{"spec":{{{spec}}},"status":{{{status}}}}}"#));
        let mut errors = Vec::new();
        validate(&job(new), &job(old), &mut errors);
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors, expected, "{new}");
    }

    fn conditions(kinds: &[&str]) -> String {
        let one = |kind: &&str| format!(r#"{{"type":"{kind}","status":"True"}}"#);
        format!(r#""conditions":[{}]"#, kinds.iter().map(one).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn a_job_ends_one_way() {
        let times = r#""startTime":"2026-01-01T00:00:00Z","completionTime":"2026-01-01T00:01:00Z","#;
        let start = r#""startTime":"2026-01-01T00:00:00Z","#;
        let said = |times: &str, kinds: &[&str]| format!("{times}{}", conditions(kinds));
        check("", "", &said(times, &["Complete", "SuccessCriteriaMet"]), &[]);
        check("", "", &said(start, &["Failed", "FailureTarget"]), &[]);
        check(
            "",
            "",
            &said(times, &["Complete", "SuccessCriteriaMet", "Failed", "FailureTarget"]),
            &[
                "status.conditions: Invalid value: cannot set Complete=True and Failed=true conditions",
                "status.conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions",
                "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and Failed=true conditions",
                "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
            ],
        );
        check(
            "",
            "",
            &said("", &["Complete"]),
            &[
                "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
                "status.completionTime: Required value: completionTime is required for Complete jobs",
                "status.startTime: Required value: startTime is required for finished job",
            ],
        );
        let ended = said(start, &["Failed", "FailureTarget"]);
        check(
            "",
            &ended,
            start.trim_end_matches(','),
            &[
                "status.conditions: Invalid value: cannot disable the terminal Failed=True condition",
                "status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition",
            ],
        );
        // What was wrong before does not keep the rest from being told.
        let wrong = said(start, &["Failed"]);
        check("", &wrong, &format!(r#"{wrong},"failed":1"#), &[]);
    }

    #[test]
    fn counts_grow_and_indexes_are_of_the_job() {
        check(
            "",
            r#""failed":2,"succeeded":2"#,
            r#""failed":1,"succeeded":1,"ready":1,"completedIndexes":"0","failedIndexes":"1""#,
            &[
                "status.ready: Invalid value: 1: cannot set more ready pods than active",
                "status.failed: Invalid value: 1: cannot decrease the failed counter",
                "status.succeeded: Invalid value: 1: cannot decrease the succeeded counter",
                r#"status.completedIndexes: Invalid value: "0": cannot set non-empty completedIndexes when non-indexed completion mode"#,
                r#"status.failedIndexes: Invalid value: "1": cannot set non-null failedIndexes when backoffLimitPerIndex is null"#,
            ],
        );
        let spec = r#""completionMode":"Indexed","completions":5,"backoffLimitPerIndex":1"#;
        check(spec, "", r#""completedIndexes":"0-2,4","failedIndexes":"3""#, &[]);
        check(
            spec,
            "",
            r#""completedIndexes":"0-5","failedIndexes":"3-1""#,
            &[
                r#"status.completedIndexes: Invalid value: "0-5": error parsing completedIndexes: too large index: "5""#,
                r#"status.failedIndexes: Invalid value: "3-1": error parsing failedIndexes: non-increasing order, previous: 3, current: 1"#,
            ],
        );
        check(
            spec,
            "",
            r#""completedIndexes":"0,2-4","failedIndexes":"1,3""#,
            &[
                r#"status.failedIndexes: Invalid value: "1,3": failedIndexes and completedIndexes overlap at index: 3"#,
            ],
        );
        check(
            "",
            "",
            r#""uncountedTerminatedPods":{"succeeded":["a",""],"failed":["a"]}"#,
            &[
                r#"status.uncountedTerminatedPods.succeeded[1]: Invalid value: "": must not be empty"#,
                r#"status.uncountedTerminatedPods.failed[0]: Duplicate value: "a""#,
            ],
        );
    }
}
