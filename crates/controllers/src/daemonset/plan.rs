//! On which nodes a set lacks a pod, and which pods are too many. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use polder_model::{SmolStr, Value, json};

use super::rollout;
use crate::workload::revision::REVISION_LABEL;
use crate::workload::{Meta as _, placement, pod};

const GENERATION: &str = "deprecated.daemonset.template.generation";
const GENERATION_LABEL: &str = "pod-template-generation";

/// What is seen of a set's world.
pub(super) struct World<'a> {
    pub(super) set: &'a Value,
    pub(super) nodes: Vec<Arc<Value>>,
    /// The set's own pods by the node they are on, or are meant for.
    pub(super) pods: BTreeMap<SmolStr, Vec<Arc<Value>>>,
    /// What pods of the present template are labeled with.
    pub(super) hash: SmolStr,
    pub(super) now: i64,
}

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Nodes that get a pod.
    pub(super) create: Vec<SmolStr>,
    pub(super) delete: Vec<Arc<Value>>,
    /// Pods that failed: they are deleted too, but not too often on one node.
    pub(super) failed: Vec<(SmolStr, Arc<Value>)>,
}

impl Plan {
    pub(super) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.delete.is_empty() && self.failed.is_empty()
    }
}

/// Whether a pod may come to a node, and whether one that is there may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) may_run: bool,
    pub(super) may_stay: bool,
}

pub(super) fn judge(set: &Value, node: &Value) -> Verdict {
    let spec = set.at(&["spec", "template", "spec"]).cloned().unwrap_or_default();
    let wanted = spec.str_at(&["nodeName"]).unwrap_or_default();
    if (!wanted.is_empty() && wanted != node.name()) || !placement::fits(&spec, node) {
        return Verdict { may_run: false, may_stay: false };
    }
    let tolerations = tolerations(&spec);
    Verdict {
        may_run: placement::tolerates(&tolerations, node, &["NoSchedule", "NoExecute"]),
        may_stay: placement::tolerates(&tolerations, node, &["NoExecute"]),
    }
}

/// What a daemon tolerates: what its template says, and trouble of nodes.
fn tolerations(spec: &Value) -> Vec<Value> {
    let mut tolerations = spec.array_at(&["tolerations"]).to_vec();
    let mut own = vec![
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ];
    if spec.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
        own.push(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    }
    for (key, effect) in own {
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    tolerations
}

/// The pod of a set for a node.
pub(super) fn template(set: &Value, hash: &str, node: &str) -> Value {
    let mut template = set.at(&["spec", "template"]).cloned().unwrap_or_default();
    let spec = template.get("spec").cloned().unwrap_or_default();
    template.set_at(&["spec", "tolerations"], tolerations(&spec));
    template.set_at(
        &["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"],
        json!({"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        ]}),
    );
    template.set_at(&["metadata", "labels", REVISION_LABEL], hash);
    if let Some(generation) = set.annotation(GENERATION) {
        template.set_at(&["metadata", "labels", GENERATION_LABEL], generation);
    }
    template
}

/// The node a pod is on, or is meant for.
pub(super) fn target(one: &Value) -> Option<&str> {
    if !pod::node(one).is_empty() {
        return Some(pod::node(one));
    }
    let path = [
        "spec",
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
    ];
    let fields = one.array_at(&path).iter().flat_map(|term| term.array_at(&["matchFields"]));
    let mut names = fields.filter(|field| field.str_at(&["key"]) == Some("metadata.name"));
    names.find_map(|field| field.array_at(&["values"]).first()?.as_str())
}

/// Whether a pod is of the present template.
pub(super) fn is_updated(set: &Value, hash: &str, pod: &Value) -> bool {
    let generation = set.annotation(GENERATION);
    pod.label(REVISION_LABEL) == Some(hash)
        || (generation.is_some() && pod.label(GENERATION_LABEL) == generation)
}

/// Pods of a node in the order in which they stay: on the node already, then the oldest.
pub(super) fn by_age(pods: &[Arc<Value>]) -> Vec<&Arc<Value>> {
    let mut pods: Vec<&Arc<Value>> = pods.iter().collect();
    pods.sort_by_key(|one| (pod::node(one).is_empty(), one.created(), SmolStr::new(one.name())));
    pods
}

pub(super) fn plan(world: &World<'_>) -> Plan {
    let mut plan = Plan::default();
    let surges = rollout::Bounds::of(world.set, 1).surge_max > 0;
    for node in &world.nodes {
        let verdict = judge(world.set, node);
        let pods = world.pods.get(node.name()).map_or(&[][..], Vec::as_slice);
        if verdict.may_run && pods.is_empty() {
            plan.create.push(SmolStr::new(node.name()));
        } else if verdict.may_stay {
            keep(world, node.name(), pods, surges, verdict.may_run, &mut plan);
        } else {
            plan.delete.extend(pods.iter().filter(|pod| !pod.is_terminating()).cloned());
        }
    }
    // Pods that wait for a node that is gone.
    for (name, pods) in &world.pods {
        if !world.nodes.iter().any(|node| node.name() == name.as_str()) {
            let waiting = pods.iter().filter(|one| pod::node(one).is_empty() && !one.is_terminating());
            plan.delete.extend(waiting.cloned());
        }
    }
    if plan.is_empty() && world.set.str_at(&["spec", "updateStrategy", "type"]) != Some("OnDelete") {
        plan = rollout::plan(world);
    }
    plan
}

/// One pod stays on a node; with a rollout that adds before it takes away, one of each template.
fn keep(world: &World<'_>, node: &str, pods: &[Arc<Value>], surges: bool, may_run: bool, plan: &mut Plan) {
    let mut live = Vec::new();
    for one in by_age(pods).into_iter().filter(|one| !one.is_terminating()) {
        match pod::phase(one) {
            "Failed" => plan.failed.push((SmolStr::new(node), one.clone())),
            "Succeeded" => plan.delete.push(one.clone()),
            _ => live.push(one),
        }
    }
    if !surges {
        plan.delete.extend(live.into_iter().skip(1).cloned());
        return;
    }
    if live.is_empty() && may_run {
        plan.create.push(SmolStr::new(node));
    }
    if live.len() <= 1 {
        return;
    }
    let (mut new, mut old) = (None, None);
    for one in live {
        let place = if one.label(REVISION_LABEL) == Some(&world.hash) { &mut new } else { &mut old };
        match place {
            None => *place = Some(one),
            Some(_) => plan.delete.push(one.clone()),
        }
    }
    if let (Some(new), Some(old)) = (new, old)
        && (!pod::is_ready(old) || pod::is_available(new, rollout::ready_seconds_min(world.set), world.now))
    {
        plan.delete.push(old.clone());
    }
}

/// What a set says about its pods.
pub(super) fn status(world: &World<'_>) -> Value {
    let set = world.set;
    let mut status = set.get("status").cloned().unwrap_or_default();
    let (mut desired, mut current, mut stray, mut ready, mut updated, mut available) = (0, 0, 0, 0, 0, 0);
    for node in &world.nodes {
        let pods = world.pods.get(node.name()).map_or(&[][..], Vec::as_slice);
        let first = by_age(pods).into_iter().next();
        match (judge(set, node).may_run, first) {
            (true, None) => desired += 1,
            (true, Some(one)) => {
                desired += 1;
                current += 1;
                ready += i64::from(pod::is_ready(one));
                available += i64::from(pod::is_available(one, rollout::ready_seconds_min(set), world.now));
                updated += i64::from(is_updated(set, &world.hash, one));
            }
            (false, Some(_)) => stray += 1,
            (false, None) => {}
        }
    }
    let always = [
        ("desiredNumberScheduled", desired),
        ("currentNumberScheduled", current),
        ("numberMisscheduled", stray),
        ("numberReady", ready),
    ];
    for (field, count) in always {
        status.set_at(&[field], count);
    }
    let counts = [
        ("updatedNumberScheduled", updated),
        ("numberAvailable", available),
        ("numberUnavailable", desired - available),
        ("observedGeneration", set.generation()),
    ];
    for (field, count) in counts {
        if count == 0 {
            status.remove_at(&[field]);
        } else {
            status.set_at(&[field], count);
        }
    }
    status
}
