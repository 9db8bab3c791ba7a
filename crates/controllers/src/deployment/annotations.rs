//! What a deployment notes on its sets: their revision, and the size it had when it gave them theirs. Pure.

use polder_model::{SmolStr, Value};

use super::set::Set;
use crate::workload::Meta as _;

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// Annotations of a deployment that are not its sets' too.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];
/// Revisions a set once had are remembered up to this length.
const HISTORY_LEN_MAX: usize = 2000;

/// Gives the newest set the annotations of its deployment and its revision.
pub(super) fn sync(deployment: &Value, set: &mut Set, revision: i64) {
    if let Some(annotations) = deployment.at(&["metadata", "annotations"]).and_then(Value::as_object) {
        for (key, value) in annotations.iter().filter(|(key, _)| !OWN.contains(&key.as_str())) {
            set.new.set_at(&["metadata", "annotations", key], value.clone());
        }
    }
    let before = set.new.annotation(REVISION).map(SmolStr::new);
    let Some(number) = before.as_ref().map_or(Some(0), |text| text.parse::<i64>().ok()) else { return };
    if number >= revision {
        return;
    }
    set.new.set_at(&["metadata", "annotations", REVISION], revision.to_string());
    // It had a revision, so this is a return to an older template.
    if let Some(before) = before {
        let history = set.new.annotation(HISTORY).unwrap_or_default();
        let mut revisions: Vec<&str> = history.split(',').filter(|one| !one.is_empty()).collect();
        revisions.push(&before);
        let mut len = revisions.iter().map(|one| one.len() + 1).sum::<usize>().saturating_sub(1);
        let mut first = 0;
        while len > HISTORY_LEN_MAX && first + 1 < revisions.len() {
            len -= revisions[first].len() + 1;
            first += 1;
        }
        let history = revisions[first..].join(",");
        set.new.set_at(&["metadata", "annotations", HISTORY], history);
    }
}

/// Notes the size of the deployment on a set.
pub(super) fn note_size(set: &mut Set, desired: i64, max: i64) {
    set.new.set_at(&["metadata", "annotations", DESIRED], desired.to_string());
    set.new.set_at(&["metadata", "annotations", MAX], max.to_string());
}

/// A size noted on a set.
pub(super) fn noted(set: &Set, annotation: &str) -> Option<i64> {
    set.new.annotation(annotation)?.parse::<i32>().ok().filter(|size| *size >= 0).map(i64::from)
}
