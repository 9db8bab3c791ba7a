//! How many pods a set lacks or has too many. Pure.

use polder_model::Value;

use crate::workload::Meta as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Rest,
    Create(usize),
    Delete(usize),
}

/// What a set needs, given how many pods it has.
pub(super) fn plan(set: &Value, active: usize) -> Step {
    let wanted = usize::try_from(wanted(set)).unwrap_or_default();
    if set.is_terminating() || active == wanted {
        Step::Rest
    } else if active < wanted {
        Step::Create(wanted - active)
    } else {
        Step::Delete(active - wanted)
    }
}

pub(super) fn wanted(set: &Value) -> i64 {
    set.value().i64_at(&["spec", "replicas"]).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[test]
    fn steps() {
        let check = |set: Value, active, step| assert_eq!(plan(&set, active), step, "{set} has {active}");
        check(json!({"spec": {"replicas": 3}}), 1, Step::Create(2));
        check(json!({"spec": {"replicas": 3}}), 3, Step::Rest);
        check(json!({"spec": {"replicas": 0}}), 3, Step::Delete(3));
        check(json!({"spec": {}}), 0, Step::Create(1));
        check(
            json!({"spec": {"replicas": 3}, "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            1,
            Step::Rest,
        );
    }
}
