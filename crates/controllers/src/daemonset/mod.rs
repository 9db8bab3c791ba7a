//! Daemon sets: a pod on every node where it may run.
//!
//! Nodes come and go without telling which sets that concerns, so a change of a node wakes a key that stands for all
//! sets of the plane. A set is looked after by one at a time, whichever key that was for.

mod act;
mod plan;
mod rollout;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;
use polder_client::resource::{NODES, PODS};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Query, Wake};
use polder_model::{PlaneId, SmolStr, Status, Value};

use crate::recorder::Recorder;
use crate::workload::backoff::Backoff;
use crate::workload::kind::DAEMON_SET;
use crate::workload::{self, Meta as _};

/// Stands for all sets of a plane.
const NODES_KEY: &str = "+nodes";
/// Sets that are read at once.
const PAGE_LEN: usize = 100;

pub(crate) struct DaemonSets {
    recorder: Recorder,
    /// Pods that fail again and again are replaced more and more slowly.
    failures: Backoff,
    /// Sets that are being looked after.
    busy: Mutex<HashSet<(PlaneId, SmolStr)>>,
}

impl DaemonSets {
    pub(crate) fn new() -> DaemonSets {
        DaemonSets {
            recorder: Recorder::new("daemonset-controller"),
            failures: Backoff::new(1, 15 * 60),
            busy: Mutex::default(),
        }
    }
}

impl Controller for DaemonSets {
    fn name(&self) -> &'static str {
        "daemonset-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&DAEMON_SET.resource, &PODS, &NODES])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&DAEMON_SET.resource) {
            wake(change.key());
        } else if change.is(&PODS) {
            workload::wake_owners(change, &DAEMON_SET, wake);
        } else if matters(change) {
            wake(SmolStr::new_static(NODES_KEY));
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(
            async move { if key == NODES_KEY { self.all(plane).await } else { self.one(plane, key).await } },
        )
    }
}

/// Whether a change of a node may let a pod run there, or not run there any longer.
fn matters(change: &Change) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return true };
    let seen = |node: &Value| {
        let part = |path: &[&str]| node.at(path).cloned();
        (part(&["metadata", "labels"]), part(&["spec"]))
    };
    seen(old.value()) != seen(new.value())
}

impl DaemonSets {
    async fn all(&self, plane: &InPlane) -> Result<Next, Status> {
        let (mut next, mut failure) = (Next::Done, None);
        let mut after = None;
        loop {
            let query = Query { after, limit: PAGE_LEN, ..Query::default() };
            let page = plane.client.list(plane.plane, &DAEMON_SET.resource, query).await?;
            for set in &page {
                let key = polder_client::key(set.namespace(), set.name());
                // One that fails does not keep the others from their pods.
                match self.one(plane, &key).await {
                    Ok(one) => next = sooner(next, one),
                    Err(status) => failure = failure.or(Some(status)),
                }
            }
            match page.last() {
                Some(last) => after = Some((SmolStr::new(last.namespace()), SmolStr::new(last.name()))),
                None => return failure.map_or(Ok(next), Err),
            }
        }
    }

    async fn one(&self, plane: &InPlane, key: &str) -> Result<Next, Status> {
        let Some(_turn) = Turn::take(&self.busy, plane.plane, key) else {
            return Ok(Next::After(Duration::from_millis(50)));
        };
        let (namespace, name) = workload::parts(key);
        match plane.get(&DAEMON_SET.resource, namespace, name).await? {
            Some(set) => workload::soon_after_conflict(act::reconcile(plane, self, &set).await),
            None => Ok(Next::Done),
        }
    }
}

/// The earlier of two.
fn sooner(one: Next, other: Next) -> Next {
    match (one, other) {
        // It would be asked for in vain until its plane has room.
        (Next::Aside, _) | (_, Next::Aside) => Next::Aside,
        (Next::Again, _) | (_, Next::Again) => Next::Again,
        (Next::After(one), Next::After(other)) => Next::After(one.min(other)),
        (Next::Done, other) => other,
        (one, Next::Done) => one,
        (after @ Next::After(_), Next::Later | Next::Seldom) | (Next::Later | Next::Seldom, after) => after,
    }
}

/// The right to look after a set.
struct Turn<'a> {
    busy: &'a Mutex<HashSet<(PlaneId, SmolStr)>>,
    what: (PlaneId, SmolStr),
}

impl<'a> Turn<'a> {
    fn take(busy: &'a Mutex<HashSet<(PlaneId, SmolStr)>>, plane: PlaneId, key: &str) -> Option<Turn<'a>> {
        let what = (plane, SmolStr::new(key));
        let is_free = busy.lock().insert(what.clone());
        // Not before it is known: a turn that was never taken must not be given back.
        is_free.then(|| Turn { busy, what })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.busy.lock().remove(&self.what);
    }
}

#[cfg(test)]
mod turn_tests {
    use super::*;

    #[test]
    fn a_set_is_looked_after_by_one_at_a_time() {
        let busy = Mutex::default();
        let turn = Turn::take(&busy, PlaneId(2), "n/a");
        assert!(turn.is_some());
        assert!(Turn::take(&busy, PlaneId(2), "n/a").is_none());
        assert!(Turn::take(&busy, PlaneId(3), "n/a").is_some());
        drop(turn);
        assert!(Turn::take(&busy, PlaneId(2), "n/a").is_some());
        assert!(busy.lock().is_empty());
    }
}
