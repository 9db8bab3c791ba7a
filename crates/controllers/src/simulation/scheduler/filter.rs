//! What keeps a pod off a node. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use polder_model::{SmolStr, Value};

use super::picture::{NodeView, Picture, requests};
use crate::workload::placement::{fits, term_fits, tolerates};

mod affinity;
mod spread;

pub(super) use self::affinity::prefers;
pub(super) use self::spread::crowds;

/// The nodes a pod may be on; when there are none, why, as upstream says it. `volumes` are those of the pod that are bound.
pub(super) fn nodes(picture: &Picture, volumes: &[Arc<Value>], pod: &Value) -> (Vec<SmolStr>, String) {
    let mut fitting = Vec::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let spread = spread::Spread::of(picture.nodes.iter(), pod);
    for view in &picture.nodes {
        let found = obstacle(picture, view, pod).or_else(|| spread.obstacle(view));
        match found.or_else(|| are_elsewhere(volumes, &view.node).then(|| ELSEWHERE.to_owned())) {
            None => fitting.push(view.name.clone()),
            Some(reason) => *reasons.entry(reason).or_default() += 1,
        }
    }
    let mut parts: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    parts.sort_unstable();
    (fitting, format!("0/{} nodes are available: {}.", picture.nodes.len(), parts.join(", ")))
}

/// Whether a pod may be on a node as this view shows it.
pub(super) fn may_be_on(picture: &Picture, view: &NodeView, volumes: &[Arc<Value>], pod: &Value) -> bool {
    let nodes: Vec<&NodeView> = picture.with(view).collect();
    obstacle(picture, view, pod).is_none()
        && spread::Spread::of(nodes.iter().copied(), pod).obstacle(view).is_none()
        && !are_elsewhere(volumes, &view.node)
}

const ELSEWHERE: &str = "node(s) didn't match PersistentVolume's node affinity";

/// Whether some volumes cannot be reached from a node.
fn are_elsewhere(volumes: &[Arc<Value>], node: &Value) -> bool {
    volumes.iter().any(|volume| {
        let required =
            volume.at(&["spec", "nodeAffinity", "required"]).filter(|required| !required.is_null());
        required.is_some_and(|required| {
            !required.array_at(&["nodeSelectorTerms"]).iter().any(|term| term_fits(term, node))
        })
    })
}

fn obstacle(picture: &Picture, view: &NodeView, pod: &Value) -> Option<String> {
    let empty = Value::Null;
    let spec = pod.get("spec").unwrap_or(&empty);
    let tolerations = pod.array_at(&["spec", "tolerations"]);
    let node = &view.node;
    if node.at(&["spec", "unschedulable"]).and_then(Value::as_bool) == Some(true)
        && !tolerates_unschedulable(tolerations)
    {
        return Some("node(s) were unschedulable".into());
    }
    if !tolerates(tolerations, node, &["NoSchedule", "NoExecute"]) {
        return Some("node(s) had untolerated taint(s)".into());
    }
    if !fits(spec, node) {
        return Some("node(s) didn't match Pod's node affinity/selector".into());
    }
    if host_ports(pod).any(|port| view.pods.iter().any(|own| host_ports(own).any(|own| own.meets(&port)))) {
        return Some("node(s) didn't have free ports for the requested pod ports".into());
    }
    if let Some(resource) = view.lacks(&requests(pod)) {
        return Some(match resource.as_str() {
            "pods" => "Too many pods".into(),
            other => format!("Insufficient {other}"),
        });
    }
    affinity::obstacle(picture, view, pod).map(String::from)
}

fn tolerates_unschedulable(tolerations: &[Value]) -> bool {
    let taint = closed_node();
    tolerates(tolerations, &taint, &["NoSchedule"])
}

/// A node with the taint that stands for "unschedulable".
fn closed_node() -> Value {
    polder_model::json!({"spec": {"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}})
}

#[derive(PartialEq, Eq)]
struct HostPort {
    port: i64,
    protocol: SmolStr,
    address: SmolStr,
}

impl HostPort {
    fn meets(&self, other: &HostPort) -> bool {
        let any = |address: &str| matches!(address, "" | "0.0.0.0" | "::");
        self.port == other.port
            && self.protocol == other.protocol
            && (any(&self.address) || any(&other.address) || self.address == other.address)
    }
}

fn host_ports(pod: &Value) -> impl Iterator<Item = HostPort> {
    let containers = pod.array_at(&["spec", "containers"]).iter();
    containers.flat_map(|container| container.array_at(&["ports"])).filter_map(|port| {
        let number = port.i64_at(&["hostPort"]).filter(|number| *number > 0)?;
        Some(HostPort {
            port: number,
            protocol: SmolStr::new(port.str_at(&["protocol"]).unwrap_or("TCP")),
            address: SmolStr::new(port.str_at(&["hostIP"]).unwrap_or_default()),
        })
    })
}
