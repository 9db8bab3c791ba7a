//! Which of the nodes a pod may be on is best for it: where it prefers to be, and then where most is left. Pure.

use polder_model::{SmolStr, Value};

use super::filter::prefers;
use super::picture::{NodeView, Picture};
use crate::workload::placement::{term_fits, tolerates};

pub(super) fn best(picture: &Picture, pod: &Value, fitting: &[SmolStr]) -> Option<SmolStr> {
    let nominated = pod.str_at(&["status", "nominatedNodeName"]).unwrap_or_default();
    if let Some(own) = fitting.iter().find(|name| *name == nominated) {
        return Some(own.clone());
    }
    let candidates = picture.nodes.iter().filter(|view| fitting.contains(&view.name));
    let best = candidates.max_by_key(|view| {
        let soft = tolerates(pod.array_at(&["spec", "tolerations"]), &view.node, &["PreferNoSchedule"]);
        (
            soft,
            preference(view, pod) + prefers(picture, view, pod),
            free(view),
            std::cmp::Reverse(view.name.clone()),
        )
    });
    best.map(|view| view.name.clone())
}

/// The weight of what a pod prefers of a node.
fn preference(view: &NodeView, pod: &Value) -> i64 {
    let path = ["spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"];
    let terms = pod.array_at(&path).iter();
    let holds = |term: &&Value| term.get("preference").is_some_and(|wanted| term_fits(wanted, &view.node));
    terms.filter(holds).map(|term| term.i64_at(&["weight"]).unwrap_or(0)).sum()
}

/// How much is left, in thousandths of what there is, of what is most in use.
fn free(view: &NodeView) -> i128 {
    let left = |(resource, offered): (&SmolStr, &i128)| {
        let asked = view.asked.get(resource).copied().unwrap_or(0);
        (*offered > 0).then(|| (offered - asked) * 1_000 / offered)
    };
    view.offers.iter().filter_map(left).min().unwrap_or(0)
}
