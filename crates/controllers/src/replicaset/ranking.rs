//! Which pods go first when there are too many: those that are least missed. Pure.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use polder_model::{SmolStr, Value};

use crate::workload::{Meta as _, pod};

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The pods to be deleted, so many of them. `on_node` says how many pods of the same owner's owner are on a node.
pub(crate) fn first_to_go(
    mut pods: Vec<Arc<Value>>,
    count: usize,
    on_node: &HashMap<SmolStr, usize>,
    now: i64,
) -> Vec<Arc<Value>> {
    if count < pods.len() {
        pods.sort_by_cached_key(|pod| rank(pod, on_node, now));
        pods.truncate(count);
    }
    pods
}

/// The lower the sooner: not on a node, not running, not ready, cheap, crowded, ready for a short time, often
/// restarted, young. Times count by their order of magnitude, so that age alone does not always hit the youngest.
fn rank(one: &Value, on_node: &HashMap<SmolStr, usize>, now: i64) -> impl Ord + use<> {
    let node = pod::node(one);
    let phase = match pod::phase(one) {
        "Running" => 2,
        "Unknown" => 1,
        _ => 0,
    };
    let ready = pod::is_ready(one);
    let cost = one.annotation(DELETION_COST).and_then(|cost| cost.parse::<i32>().ok()).unwrap_or_default();
    let crowd = Reverse(on_node.get(node).copied().unwrap_or_default());
    let ready_for = ready.then(|| magnitude(pod::ready_since(one), now));
    let restarts = Reverse(restarts(one));
    let age = magnitude(one.seconds_at(&["metadata", "creationTimestamp"]), now);
    (!node.is_empty(), phase, ready, cost, crowd, ready_for, restarts, age, SmolStr::new(one.uid()))
}

/// The order of magnitude of the time since then.
fn magnitude(since: Option<i64>, now: i64) -> i64 {
    match since.map(|since| now.saturating_sub(since)) {
        None => -2,
        Some(..=0) => -1,
        Some(seconds) => i64::from(seconds.saturating_mul(1_000_000_000).ilog2()),
    }
}

/// The most restarts of a container, and of one that runs beside the others from the start.
fn restarts(pod: &Value) -> (i64, i64) {
    let most = |path: &[&str], of: &dyn Fn(&Value) -> bool| {
        let containers = pod.array_at(path).iter().filter(|one| of(one));
        containers.filter_map(|one| one.i64_at(&["restartCount"])).max().unwrap_or_default()
    };
    let sidecars: Vec<&str> = (pod.array_at(&["spec", "initContainers"]).iter())
        .filter(|one| one.str_at(&["restartPolicy"]) == Some("Always"))
        .filter_map(|one| one.str_at(&["name"]))
        .collect();
    let is_sidecar = |one: &Value| one.str_at(&["name"]).is_some_and(|name| sidecars.contains(&name));
    (
        most(&["status", "containerStatuses"], &|_| true),
        most(&["status", "initContainerStatuses"], &is_sidecar),
    )
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    fn pod(name: &str, node: &str, phase: &str, ready: bool) -> Value {
        let status = if ready { "True" } else { "False" };
        json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": node},
            "status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ]},
        })
    }

    /// The pod that is in the first place goes before the one in the second.
    #[test]
    fn who_goes_first() {
        let now = crate::timestamp::seconds("2026-01-01T10:00:00Z").unwrap();
        let crowded = HashMap::from([(SmolStr::new("full"), 3), (SmolStr::new("n"), 1)]);
        let check = |name: &str, goes: Value, stays: Value| {
            for pods in [[goes.clone(), stays.clone()], [stays.clone(), goes.clone()]] {
                let doomed = first_to_go(pods.map(Arc::new).to_vec(), 1, &crowded, now);
                assert_eq!(doomed[0].name(), goes.name(), "{name}");
            }
        };
        let with = |mut pod: Value, path: &[&str], value: Value| {
            pod.set_at(path, value);
            pod
        };
        check("unassigned", pod("b", "", "Pending", false), pod("a", "n", "Pending", false));
        check("pending", pod("b", "n", "Pending", false), pod("a", "n", "Unknown", false));
        check("unknown", pod("b", "n", "Unknown", false), pod("a", "n", "Running", false));
        check("not ready", pod("b", "n", "Running", false), pod("a", "n", "Running", true));
        let cheap = with(
            pod("b", "n", "Running", true),
            &["metadata", "annotations"],
            json!({"controller.kubernetes.io/pod-deletion-cost": "-5"}),
        );
        check("cheap", cheap, pod("a", "n", "Running", true));
        check("crowded", pod("b", "full", "Running", true), pod("a", "n", "Running", true));
        let restarted = with(
            pod("b", "n", "Running", true),
            &["status", "containerStatuses"],
            json!([{"name": "c", "restartCount": 4}]),
        );
        check("restarted", restarted, pod("a", "n", "Running", true));
        let young = with(
            pod("b", "n", "Running", false),
            &["metadata", "creationTimestamp"],
            json!("2026-01-01T09:59:00Z"),
        );
        check("young", young, pod("a", "n", "Running", false));
    }
}
