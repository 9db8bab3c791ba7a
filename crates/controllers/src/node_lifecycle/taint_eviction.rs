//! Pods leave nodes that have a taint `NoExecute` which they do not tolerate, or tolerate for a while only.
//!
//! Keys are nodes. Since when a node has its taints is remembered for nodes that have some, and only for those; a taint
//! need not tell, and after a restart the time begins anew.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use polder_client::resource::{NODES, PODS};
use polder_client::{Answer, At, Change, Controller, Delete, InPlane, Interest, Next, Patch, Query, Wake};
use polder_model::{PlaneId, SmolStr, Status, Value, json};

use crate::recorder::Recorder;
use crate::{batch, meta, timestamp};

/// Taints as they are written, and since when each has been seen.
type Taints = Vec<(Value, i64)>;

pub(crate) struct TaintEviction {
    /// Nodes with such taints.
    nodes: Mutex<HashMap<(PlaneId, SmolStr), Taints>>,
    recorder: Recorder,
}

impl TaintEviction {
    pub(crate) fn new() -> TaintEviction {
        TaintEviction { nodes: Mutex::default(), recorder: Recorder::new("taint-eviction-controller") }
    }
}

/// What a pod on a tainted node can expect.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    /// It goes at this time, in seconds since 1970.
    Goes(i64),
}

impl Controller for TaintEviction {
    fn name(&self) -> &'static str {
        "taint-eviction-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&NODES, &PODS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&NODES) {
            let has = |version: &polder_client::Snapshot| version.may_contain("NoExecute");
            if [&change.old, &change.new].into_iter().flatten().any(has) {
                wake(change.name.clone());
            }
            return;
        }
        let nodes = self.nodes.lock();
        if nodes.is_empty() {
            return;
        }
        let node = change.new.as_ref().and_then(|pod| pod.value().str_at(&["spec", "nodeName"]));
        if let Some(node) =
            node.map(SmolStr::new).filter(|node| nodes.contains_key(&(change.plane, node.clone())))
        {
            wake(node);
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let node = plane.get(&NODES, "", key).await?;
            let now = plane.client.now();
            let taints = node.as_ref().map(|node| no_execute(node)).unwrap_or_default();
            let taints = self.remember((plane.plane, key.into()), taints, now);
            if taints.is_empty() {
                return Ok(Next::Done);
            }
            let query = Query { containing: &["nodeName"], ..Query::default() };
            let pods = plane.client.list(plane.plane, &PODS, query).await?;
            let mut due: Option<i64> = None;
            let mut going = Vec::new();
            for pod in pods {
                if pod.str_at(&["spec", "nodeName"]) != Some(key) || meta::is_deleting(&pod) {
                    continue;
                }
                match fate(&pod, &taints) {
                    Fate::Stays => {}
                    Fate::Goes(time) if time <= now => going.push(pod),
                    Fate::Goes(time) => due = Some(due.map_or(time, |due| due.min(time))),
                }
            }
            let more = going.len() > batch::TURN_LEN_MAX;
            going.truncate(batch::TURN_LEN_MAX);
            batch::all(going.into_iter().map(|pod| async move { self.evict(plane, &pod).await })).await?;
            if more {
                return Ok(Next::Again);
            }
            Ok(due.map_or(Next::Done, |due| {
                Next::After(Duration::from_secs(due.saturating_sub(now).max(1).unsigned_abs()))
            }))
        })
    }

    fn forget(&self, is_gone: &dyn Fn(PlaneId) -> bool) {
        self.nodes.lock().retain(|(plane, _), _| !is_gone(*plane));
    }
}

impl TaintEviction {
    /// Notes a node's taints; returns since when each has been seen.
    fn remember(&self, node: (PlaneId, SmolStr), taints: Vec<Value>, now: i64) -> Taints {
        let mut nodes = self.nodes.lock();
        if taints.is_empty() {
            nodes.remove(&node);
            return Taints::new();
        }
        let known = nodes.entry(node).or_default();
        let since = |taint: &Value| {
            let told = taint.str_at(&["timeAdded"]).and_then(timestamp::seconds).filter(|time| *time <= now);
            let seen = known.iter().find(|(known, _)| known == taint).map(|(_, since)| *since);
            told.or(seen).unwrap_or(now)
        };
        let taints: Taints = taints.into_iter().map(|taint| (taint.clone(), since(&taint))).collect();
        known.clone_from(&taints);
        taints
    }

    async fn evict(&self, plane: &InPlane, pod: &Value) -> Result<(), Status> {
        let (namespace, name) = (meta::namespace(pod), meta::name(pod));
        let message = format!("Marking for deletion Pod {namespace}/{name}");
        self.recorder.normal(plane, pod, "TaintManagerEviction", &message).await;
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": (timestamp::text(plane.client.now())),
        });
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        let at = At { subresource: "status", ..plane.at(&PODS, namespace, name) };
        match plane.client.patch(&at, patch).await {
            Err(status) if status.code == 404 => return Ok(()),
            outcome => drop(outcome?),
        }
        let delete = Delete { uid: Some(meta::uid(pod).into()), ..Delete::default() };
        plane.delete(&PODS, namespace, name, delete).await
    }
}

fn no_execute(node: &Value) -> Vec<Value> {
    let taints = node.array_at(&["spec", "taints"]).iter();
    taints.filter(|taint| taint.str_at(&["effect"]) == Some("NoExecute")).cloned().collect()
}

/// What becomes of a pod: it stays as long as the least patient of the tolerations it needs.
pub(super) fn fate(pod: &Value, taints: &[(Value, i64)]) -> Fate {
    let tolerations = pod.array_at(&["spec", "tolerations"]);
    let since = taints.iter().map(|(_, since)| *since).max().unwrap_or_default();
    let start = pod.str_at(&["status", "startTime"]).and_then(timestamp::seconds).unwrap_or_default();
    let mut patience: Option<i64> = None;
    for (taint, _) in taints {
        let Some(toleration) = tolerations.iter().find(|toleration| tolerates(toleration, taint)) else {
            return Fate::Goes(0);
        };
        if let Some(seconds) = toleration.i64_at(&["tolerationSeconds"]) {
            let seconds = seconds.max(0);
            patience = Some(patience.map_or(seconds, |patience| patience.min(seconds)));
        }
    }
    patience.map_or(Fate::Stays, |patience| Fate::Goes(since.max(start).saturating_add(patience)))
}

fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let text = |value: &'_ Value, field: &str| value.str_at(&[field]).unwrap_or_default().to_owned();
    let effect = text(toleration, "effect");
    let key = text(toleration, "key");
    (effect.is_empty() || effect == text(taint, "effect"))
        && (key.is_empty() || key == text(taint, "key"))
        && match text(toleration, "operator").as_str() {
            "" | "Equal" => text(toleration, "value") == text(taint, "value"),
            "Exists" => true,
            _ => false,
        }
}
