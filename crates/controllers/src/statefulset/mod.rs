//! Stateful sets: numbered pods, each with its own name and its own volumes, that come and go in order.
//!
//! `plan` says which pods come, go or are mended; `claims` looks after their volumes; `act` writes.

mod act;
mod claims;
mod plan;
#[cfg(test)]
mod tests;

use polder_client::resource::{PODS, VOLUME_CLAIMS};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake};

use crate::recorder::Recorder;
use crate::workload;
use crate::workload::kind::STATEFUL_SET;

/// So many sets are thought of for a claim.
const OWNERS_MAX: usize = 16;

pub(crate) struct StatefulSets {
    recorder: Recorder,
}

impl StatefulSets {
    pub(crate) fn new() -> StatefulSets {
        StatefulSets { recorder: Recorder::new("statefulset-controller") }
    }
}

impl Controller for StatefulSets {
    fn name(&self) -> &'static str {
        "statefulset-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&STATEFUL_SET.resource, &PODS, &VOLUME_CLAIMS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&STATEFUL_SET.resource) {
            wake(change.key());
        } else if change.is(&PODS) {
            workload::wake_owners(change, &STATEFUL_SET, wake);
        } else if change.new.is_none() {
            // A pod may wait for this claim to be gone, or to be made again.
            owners(&change.name).for_each(|set| wake(polder_client::key(&change.namespace, set)));
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let (namespace, name) = workload::parts(key);
            match plane.get(&STATEFUL_SET.resource, namespace, name).await? {
                Some(set) => workload::soon_after_conflict(act::reconcile(plane, &self.recorder, &set).await),
                None => Ok(Next::Done),
            }
        })
    }
}

/// The sets a claim may be of by its name, `template-set-number`: both names may have dashes in them.
fn owners(claim: &str) -> impl Iterator<Item = &str> {
    let names = claim.rsplit_once('-').filter(|(_, number)| number.parse::<u32>().is_ok());
    let names = names.map_or("", |(names, _)| names);
    names
        .match_indices('-')
        .take(OWNERS_MAX)
        .map(|(dash, _)| &names[dash + 1..])
        .filter(|name| !name.is_empty())
}
