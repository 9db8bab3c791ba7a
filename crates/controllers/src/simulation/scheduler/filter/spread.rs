//! Pods that want to be spread evenly over places, and those that only would like to be.

use std::collections::BTreeMap;

use polder_model::{SmolStr, Value};

use super::super::picture::NodeView;
use super::affinity::selects;
use crate::workload::placement::{fits, tolerates};

/// The constraints of a pod that must hold, with how many it selects in each place.
pub(super) struct Spread {
    constraints: Vec<Constraint>,
}

struct Constraint {
    key: SmolStr,
    skew_max: i64,
    places: BTreeMap<SmolStr, i64>,
    fewest: i64,
    /// The pod selects itself.
    counts_itself: bool,
}

impl Spread {
    pub(super) fn of<'a>(nodes: impl Iterator<Item = &'a NodeView> + Clone, pod: &Value) -> Spread {
        Spread::with(nodes, pod, |wish| wish != Some("ScheduleAnyway"))
    }

    fn with<'a>(
        nodes: impl Iterator<Item = &'a NodeView> + Clone,
        pod: &Value,
        is_meant: impl Fn(Option<&str>) -> bool,
    ) -> Spread {
        let constraints = pod.array_at(&["spec", "topologySpreadConstraints"]).iter();
        let meant = constraints.filter(|one| is_meant(one.str_at(&["whenUnsatisfiable"])));
        Spread { constraints: meant.map(|one| Constraint::of(nodes.clone(), pod, one)).collect() }
    }

    pub(super) fn obstacle(&self, view: &NodeView) -> Option<String> {
        for constraint in &self.constraints {
            let Some(place) = label(&view.node, &constraint.key) else {
                return Some(
                    "node(s) didn't match pod topology spread constraints (missing required label)".into(),
                );
            };
            let there = constraint.places.get(place).copied().unwrap_or(0);
            if there + i64::from(constraint.counts_itself) - constraint.fewest > constraint.skew_max {
                return Some("node(s) didn't match pod topology spread constraints".into());
            }
        }
        None
    }
}

/// How crowded each of some nodes is for a pod that would like to be spread, in thousandths of a pod. `None` where a node has no
/// place at all.
pub(in super::super) fn crowds(nodes: &[&NodeView], all: &[NodeView], pod: &Value) -> Vec<Option<i64>> {
    let spread = Spread::with(all.iter(), pod, |wish| wish == Some("ScheduleAnyway"));
    let crowd = |view: &&NodeView| {
        spread.constraints.iter().try_fold(0, |sum, constraint| {
            let there = constraint.places.get(label(&view.node, &constraint.key)?).copied().unwrap_or(0);
            // A pod more counts for more where there are many places, as upstream has it: by the logarithm of their number.
            let places = u32::try_from(constraint.places.len()).unwrap_or(u32::MAX).saturating_add(2);
            let weight =
                1_000 * i64::from(places.ilog2()) + i64::from(places) * 1_000 / (1 << places.ilog2()) - 1_000;
            Some(sum + there * weight + (constraint.skew_max - 1) * 1_000)
        })
    };
    nodes.iter().map(crowd).collect()
}

impl Constraint {
    fn of<'a>(nodes: impl Iterator<Item = &'a NodeView>, pod: &Value, constraint: &Value) -> Constraint {
        let empty = Value::Null;
        let key = SmolStr::new(constraint.str_at(&["topologyKey"]).unwrap_or_default());
        let selector = constraint.get("labelSelector").unwrap_or(&empty);
        let namespace = pod.str_at(&["metadata", "namespace"]);
        let is_counted = |other: &Value| {
            other.str_at(&["metadata", "namespace"]) == namespace
                && other.at(&["metadata", "deletionTimestamp"]).is_none()
                && selects(selector, other.at(&["metadata", "labels"]).unwrap_or(&empty))
        };
        let mut places: BTreeMap<SmolStr, i64> = BTreeMap::new();
        let spec = pod.get("spec").unwrap_or(&empty);
        let honors_taints = constraint.str_at(&["nodeTaintsPolicy"]) == Some("Honor");
        let ignores_affinity = constraint.str_at(&["nodeAffinityPolicy"]) == Some("Ignore");
        for view in nodes {
            let tolerations = pod.array_at(&["spec", "tolerations"]);
            if (!ignores_affinity && !fits(spec, &view.node))
                || (honors_taints && !tolerates(tolerations, &view.node, &["NoSchedule", "NoExecute"]))
            {
                continue;
            }
            if let Some(place) = label(&view.node, &key) {
                let count = view.pods.iter().filter(|own| is_counted(own)).count();
                *places.entry(SmolStr::new(place)).or_default() += i64::try_from(count).unwrap_or(i64::MAX);
            }
        }
        let places_min = constraint.i64_at(&["minDomains"]).unwrap_or(1);
        let too_few = i64::try_from(places.len()).unwrap_or(i64::MAX) < places_min;
        Constraint {
            fewest: if too_few { 0 } else { places.values().copied().min().unwrap_or(0) },
            counts_itself: selects(selector, pod.at(&["metadata", "labels"]).unwrap_or(&empty)),
            skew_max: constraint.i64_at(&["maxSkew"]).unwrap_or(1),
            places,
            key,
        }
    }
}

fn label<'v>(node: &'v Value, key: &str) -> Option<&'v str> {
    node.at(&["metadata", "labels"])?.str_at(&[key])
}
