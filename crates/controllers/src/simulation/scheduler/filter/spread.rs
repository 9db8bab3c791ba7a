//! Pods that want to be spread evenly over places.

use std::collections::BTreeMap;

use polder_model::{SmolStr, Value};

use super::super::picture::{NodeView, Picture};
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
    pub(super) fn of(picture: &Picture, pod: &Value) -> Spread {
        let constraints = pod.array_at(&["spec", "topologySpreadConstraints"]).iter();
        let must = constraints.filter(|one| one.str_at(&["whenUnsatisfiable"]) != Some("ScheduleAnyway"));
        Spread { constraints: must.map(|one| Constraint::of(picture, pod, one)).collect() }
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

impl Constraint {
    fn of(picture: &Picture, pod: &Value, constraint: &Value) -> Constraint {
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
        for view in &picture.nodes {
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
