//! Nodes that fall silent are not known to be well, and what nodes tell of themselves becomes taints that keep pods away.
//!
//! A key is a node. It waits until the node would have been silent for too long, and then asks for its lease: renewals
//! wake nobody. A node without a lease has nobody who would renew it: it was made by hand, or is played by a program
//! that is never silent, and what its status says stays as it is.

mod plan;
pub(crate) mod taint_eviction;
#[cfg(test)]
mod tests;

use std::time::Duration;

use polder_client::resource::{LEASES, NODES, PODS};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Query, Wake};
use polder_model::{Status, Value, json};

use crate::recorder::Recorder;
use crate::{batch, meta, timestamp};

const LEASE_NAMESPACE: &str = "kube-node-lease";

pub(crate) struct NodeLifecycle {
    recorder: Recorder,
}

impl NodeLifecycle {
    pub(crate) fn new() -> NodeLifecycle {
        NodeLifecycle { recorder: Recorder::new("node-controller") }
    }
}

impl Controller for NodeLifecycle {
    fn name(&self) -> &'static str {
        "node-lifecycle-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&NODES, &LEASES])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&LEASES) && (change.old.is_some() || change.namespace != LEASE_NAMESPACE) {
            return;
        }
        if change.new.is_some() {
            wake(change.name.clone());
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let Some(node) = plane.get(&NODES, "", key).await? else { return Ok(Next::Done) };
            if meta::is_deleting(&node) {
                return Ok(Next::Done);
            }
            let mut node = Value::clone(&node);
            let now = plane.client.now();
            let mut next = Next::Done;
            if meta::condition(&node, "Ready") != Some("Unknown")
                && let Some(lease) = plane.get(&LEASES, LEASE_NAMESPACE, key).await?
            {
                let renewed = lease.str_at(&["spec", "renewTime"]).and_then(timestamp::seconds);
                let patience = plan::patience(&node, renewed, now);
                if patience > 0 {
                    next = Next::After(Duration::from_secs(patience.unsigned_abs()));
                } else {
                    let was_ready = meta::condition(&node, "Ready") == Some("True");
                    node = plane.update_status(&NODES, plan::lost(&node, now)).await?;
                    if was_ready {
                        let message = format!("Node {key} status is now: NodeNotReady");
                        self.recorder.normal(plane, &node, "NodeNotReady", &message).await;
                        self.mark_pods(plane, key).await?;
                    }
                }
            }
            let tainted = plan::tainted(&node, now);
            if tainted != node {
                plane.update(&NODES, tainted).await?;
            }
            Ok(next)
        })
    }
}

impl NodeLifecycle {
    /// Pods of a node nobody hears of are not ready, as far as anybody knows.
    async fn mark_pods(&self, plane: &InPlane, node: &str) -> Result<(), Status> {
        let now = plane.client.now();
        let query = Query { containing: &["nodeName"], ..Query::default() };
        let pods = plane.client.list(plane.plane, &PODS, query).await?;
        let pods = pods.into_iter().filter(|pod| {
            pod.str_at(&["spec", "nodeName"]) == Some(node) && meta::condition(pod, "Ready") == Some("True")
        });
        batch::all(pods.map(|pod| async move {
            self.recorder.warning(plane, &pod, "NodeNotReady", "Node is not ready").await;
            let condition = json!({
                "type": "Ready", "status": "False", "lastTransitionTime": (timestamp::text(now)),
            });
            let patch = json!({"status": {"conditions": [condition]}});
            let at = polder_client::At {
                subresource: "status",
                ..plane.at(&PODS, meta::namespace(&pod), meta::name(&pod))
            };
            match plane.client.patch(&at, polder_client::Patch::Strategic(patch)).await {
                Err(status) if status.code == 404 => Ok(()),
                outcome => outcome.map(drop),
            }
        }))
        .await
    }
}
