//! Pods that nobody else removes: those of nodes that are gone or out of service, those that should go and never had a
//! node, and the oldest of those that ended when there are too many.
//!
//! A node must be gone for a while, and a pod must wait for a while, before anything is done. What is remembered for
//! that is a table of fixed size; after a restart the wait begins anew.

use std::sync::Arc;
use std::time::Duration;

use polder_client::resource::{NODES, PODS};
use polder_client::{Answer, Change, Controller, Delete, InPlane, Interest, Next, Query, Wake};
use polder_model::{SmolStr, Status, Value, format_smolstr, json};

use crate::workload::backoff::Sightings;
use crate::workload::{Meta as _, batch, condition, meta, pod};

/// So many pods that ended are kept.
const ENDED_MAX: usize = 12_500;
/// How long a node must have been gone.
const QUARANTINE_SECONDS: i64 = 40;
/// How long other things wait at most.
const PERIOD_SECONDS: i64 = 20;
const ENDED: &str = "+ended";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Keys are `+ended`, `node/name` and `pod/namespace/name`.
#[derive(Default)]
pub(crate) struct PodGc {
    seen: Sightings,
}

impl Controller for PodGc {
    fn name(&self) -> &'static str {
        "pod-garbage-collector-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&PODS, &NODES])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&NODES) {
            let is_out = |new: &polder_client::Snapshot| new.may_contain(OUT_OF_SERVICE);
            if change.new.as_ref().is_none_or(is_out) {
                wake(format_smolstr!("node/{}", change.name));
            }
            return;
        }
        let Some(new) = change.new.as_ref().map(|new| new.value()) else { return };
        let old = change.old.as_ref().map(|old| old.value());
        let node = pod::node(new);
        if !node.is_empty() && (new.is_terminating() || old.is_none_or(|old| pod::node(old) != node)) {
            wake(format_smolstr!("node/{node}"));
        }
        if node.is_empty() && new.is_terminating() {
            wake(format_smolstr!("pod/{}/{}", change.namespace, change.name));
        }
        if pod::is_finished(new) && !old.is_some_and(|old| pod::is_finished(old)) {
            wake(SmolStr::new_static(ENDED));
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            match key.split_once('/') {
                Some(("node", name)) => self.node(plane, name).await,
                Some(("pod", key)) => self.pod(plane, key).await,
                _ => self.ended(plane).await,
            }
        })
    }
}

impl PodGc {
    /// Pods of a node that is gone, or that cannot end them.
    async fn node(&self, plane: &InPlane, name: &str) -> Result<Next, Status> {
        let what = (plane.plane.0, "node", name);
        let found = plane.get(&NODES, "", name).await?;
        let is_gone = found.is_none();
        if !is_gone && !found.is_some_and(|node| is_out_of_service(&node)) {
            self.seen.forget(what);
            return Ok(Next::Done);
        }
        if is_gone {
            let now = plane.client.now();
            let left = self.seen.first(what, now) + QUARANTINE_SECONDS - now;
            if left > 0 {
                return Ok(Next::After(Duration::from_secs(left.unsigned_abs())));
            }
        }
        self.seen.forget(what);
        let mut pods = plane.list(&PODS, "").await?;
        pods.retain(|one| pod::node(one) == name && (is_gone || one.is_terminating()));
        let reason = is_gone.then_some("PodGC: node no longer exists");
        remove(plane, &pods, reason).await
    }

    /// A pod that should go and has no node: nobody but its finalizers holds it.
    async fn pod(&self, plane: &InPlane, key: &str) -> Result<Next, Status> {
        let (namespace, name) = crate::workload::parts(key);
        let found = plane.get(&PODS, namespace, name).await?;
        let what = (plane.plane.0, "pod", key);
        let goes =
            |one: &Arc<Value>| one.is_terminating() && pod::node(one).is_empty() && !pod::is_finished(one);
        let Some(one) = found.filter(goes) else {
            self.seen.forget(what);
            return Ok(Next::Done);
        };
        let now = plane.client.now();
        let left = self.seen.first(what, now) + PERIOD_SECONDS - now;
        if left > 0 {
            return Ok(Next::After(Duration::from_secs(left.unsigned_abs())));
        }
        self.seen.forget(what);
        remove(plane, &[one], None).await
    }

    /// The oldest of too many pods that ended.
    async fn ended(&self, plane: &InPlane) -> Result<Next, Status> {
        let (what, now) = ((plane.plane.0, ENDED, ""), plane.client.now());
        let left = self.seen.first(what, now) + PERIOD_SECONDS - now;
        if left > 0 {
            return Ok(Next::After(Duration::from_secs(left.unsigned_abs())));
        }
        self.seen.forget(what);
        let query = Query { containing: &["\"Succeeded\"", "\"Failed\""], ..Query::default() };
        let mut pods = plane.client.list(plane.plane, &PODS, query).await?;
        pods.retain(|one| pod::is_finished(one));
        remove(plane, &surplus(pods, ENDED_MAX), None).await
    }
}

/// Those that go first: evicted ones, then the oldest.
fn surplus(mut pods: Vec<Arc<Value>>, kept_len: usize) -> Vec<Arc<Value>> {
    let count = pods.len().saturating_sub(kept_len);
    if count > 0 {
        let is_kept = |one: &Value| one.str_at(&["status", "reason"]) != Some("Evicted");
        pods.sort_by_cached_key(|one| (is_kept(one), one.created(), SmolStr::new(one.name())));
    }
    pods.truncate(count);
    pods
}

/// Whether a node does not work, and somebody has said that it will not.
fn is_out_of_service(node: &Value) -> bool {
    let taints = node.array_at(&["spec", "taints"]).iter();
    let mut keys = taints.filter_map(|taint| taint.str_at(&["key"]));
    keys.any(|key| key == OUT_OF_SERVICE) && !condition::holds(condition::of(node), "Ready")
}

/// Marks pods as failed, unless they have ended, and removes them without waiting for anybody.
async fn remove(plane: &InPlane, pods: &[Arc<Value>], reason: Option<&'static str>) -> Result<Next, Status> {
    let turn = &pods[..pods.len().min(batch::TURN_LEN_MAX)];
    let now = plane.client.now();
    let outcome = batch::each(turn, async |number| {
        let one = &turn[number];
        if !pod::is_finished(one) {
            let mut patch = json!({"metadata": {"uid": (one.uid())}, "status": {"phase": "Failed"}});
            if let Some(message) = reason {
                let mut conditions = condition::of(one).to_vec();
                condition::remove(&mut conditions, "DisruptionTarget");
                conditions.push(json!({
                    "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                    "message": message, "lastTransitionTime": (meta::time(now)),
                }));
                patch.set_at(&["status", "conditions"], conditions);
            }
            match plane.merge_status(&PODS, one.namespace(), one.name(), patch).await {
                Err(status) if status.code != 404 => return Err(status),
                _ => {}
            }
        }
        let uid = Some(SmolStr::new(one.uid()));
        let options = Delete { uid, grace_period_seconds: Some(0), ..Delete::default() };
        plane.delete(&PODS, one.namespace(), one.name(), options).await
    })
    .await;
    match outcome.failure {
        Some(failure) => Err(failure),
        None if turn.len() < pods.len() => Ok(Next::Again),
        None => Ok(Next::Done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_evicted_and_the_oldest_go_first() {
        let pod = |name: &str, day: u8, reason: &str| {
            Arc::new(json!({
                "metadata": {"name": name, "creationTimestamp": (format!("2026-01-0{day}T00:00:00Z"))},
                "status": {"phase": "Failed", "reason": reason},
            }))
        };
        let check = |kept, expected: &[&str]| {
            let pods = vec![pod("a", 3, ""), pod("b", 1, ""), pod("c", 4, "Evicted"), pod("d", 1, "")];
            let gone = surplus(pods, kept);
            assert_eq!(gone.iter().map(|one| one.name()).collect::<Vec<_>>(), expected);
        };
        check(4, &[]);
        check(3, &["c"]);
        check(1, &["c", "b", "d"]);
        check(0, &["c", "b", "d", "a"]);
    }

    #[test]
    fn a_node_must_be_down_and_said_to_be() {
        let check = |taint: &str, ready: &str, expected| {
            let node = json!({"spec": {"taints": [{"key": taint}]}, "status": {"conditions": [
                {"type": "Ready", "status": ready}
            ]}});
            assert_eq!(is_out_of_service(&node), expected);
        };
        check(OUT_OF_SERVICE, "False", true);
        check(OUT_OF_SERVICE, "True", false);
        check("other", "False", false);
    }
}
