//! What controllers of pods share: owning them, backing off, hashes, conditions, revisions.
//!
//! Nothing here decides anything about one kind. Everything but [`claim`], [`events`] and [`revision`] is pure.

pub(crate) mod backoff;
pub(crate) mod claim;
pub(crate) mod condition;
pub(crate) mod events;
pub(crate) mod hash;
pub(crate) mod kind;
pub(crate) mod percent;
pub(crate) mod placement;
pub(crate) mod pod;
pub(crate) mod revision;

use std::time::Duration;

use polder_client::{Change, Next, Wake};
use polder_model::Status;

pub(crate) use crate::batch;
pub(crate) use crate::meta::{self, Meta};
pub(crate) use kind::Kind;

/// Wakes those of a kind who control an object or did before a change.
pub(crate) fn wake_owners(change: &Change, kind: &Kind, wake: Wake<'_>) {
    let snapshots = [&change.old, &change.new];
    if snapshots.into_iter().flatten().any(|snapshot| snapshot.may_contain(kind.kind)) {
        change.controllers(kind.group, kind.kind).into_iter().for_each(wake);
    }
}

/// Somebody else was faster, a pod's kubelet for instance: the world is looked at again soon. Not at once, so that two who
/// always meet do not keep each other busy.
pub(crate) fn soon_after_conflict(outcome: Result<Next, Status>) -> Result<Next, Status> {
    match outcome {
        Err(status) if status.code == 409 => Ok(Next::After(Duration::from_millis(10))),
        outcome => outcome,
    }
}

/// Namespace and name of a key.
pub(crate) fn parts(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}
