//! What a failed pod means to its job, by the rules the job has for that. Pure.

use polder_model::Value;

use crate::workload::{Meta as _, condition};

/// What comes of a failed pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It counts as a failure.
    Count,
    Ignore,
    FailIndex,
    /// The whole job fails, for this reason.
    FailJob(String),
}

/// The effect of the first rule that matches.
pub(super) fn effect(job: &Value, pod: &Value) -> Effect {
    for (number, rule) in job.array_at(&["spec", "podFailurePolicy", "rules"]).iter().enumerate() {
        let action = rule.str_at(&["action"]).unwrap_or_default();
        let cause = match rule.get("onExitCodes").filter(|codes| !codes.is_null()) {
            Some(codes) => exited(codes, pod).map(|(container, code)| {
                format!(
                    "Container {container} for pod {}/{} failed with exit code {code}",
                    pod.namespace(),
                    pod.name()
                )
            }),
            None => has_condition(rule.array_at(&["onPodConditions"]), pod)
                .map(|kind| format!("Pod {}/{} has condition {kind}", pod.namespace(), pod.name())),
        };
        let Some(cause) = cause else { continue };
        match action {
            "Ignore" => return Effect::Ignore,
            "Count" => return Effect::Count,
            "FailIndex" => return Effect::FailIndex,
            "FailJob" => return Effect::FailJob(format!("{cause} matching {action} rule at index {number}")),
            _ => {}
        }
    }
    Effect::Count
}

/// The first container that ended with a code the rule is about.
fn exited<'a>(codes: &Value, pod: &'a Value) -> Option<(&'a str, i64)> {
    let wanted = codes.str_at(&["containerName"]);
    let lists = [["status", "containerStatuses"], ["status", "initContainerStatuses"]];
    for status in lists.iter().flat_map(|path| pod.array_at(path)) {
        let name = status.str_at(&["name"]).unwrap_or_default();
        let Some(code) = status.i64_at(&["state", "terminated", "exitCode"]) else { continue };
        let listed = codes.array_at(&["values"]).iter().any(|value| value.as_i64() == Some(code));
        let matches = match codes.str_at(&["operator"]) {
            Some("In") => listed,
            Some("NotIn") => !listed,
            _ => false,
        };
        if code != 0 && matches && wanted.is_none_or(|wanted| wanted == name) {
            return Some((name, code));
        }
    }
    None
}

/// The first condition of a pod that one of the patterns is about.
fn has_condition<'a>(patterns: &[Value], pod: &'a Value) -> Option<&'a str> {
    let matches = |one: &Value, pattern: &Value| {
        one.get("type") == pattern.get("type")
            && one.str_at(&["status"]) == Some(pattern.str_at(&["status"]).unwrap_or("True"))
    };
    let found = condition::of(pod).iter().find(|one| patterns.iter().any(|pattern| matches(one, pattern)));
    found.and_then(|one| one.str_at(&["type"]))
}
