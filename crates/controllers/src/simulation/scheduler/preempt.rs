//! Who has to go so that a more important pod finds a place. Pure.

use std::sync::Arc;

use polder_model::{SmolStr, Value};

use super::filter::may_be_on;
use super::picture::{NodeView, Picture, priority};

/// The node on which the least important pods have to go, and these pods.
pub(super) fn find(picture: &Picture, pod: &Value) -> Option<(SmolStr, Vec<Arc<Value>>)> {
    let choices = picture.nodes.iter().filter_map(|view| {
        let victims = victims(picture, view, pod)?;
        let highest = victims.iter().map(|victim| priority(victim)).max().unwrap_or(i64::MIN);
        let sum: i64 = victims.iter().map(|victim| priority(victim)).sum();
        Some(((highest, sum, victims.len(), view.name.clone()), victims))
    });
    let ((.., node), victims) = choices.min_by(|(one, _), (other, _)| one.cmp(other))?;
    Some((node, victims))
}

/// The pods that have to go from a node: none of those less important that can stay.
fn victims(picture: &Picture, view: &NodeView, pod: &Value) -> Option<Vec<Arc<Value>>> {
    let mut lesser: Vec<Arc<Value>> =
        view.pods.iter().filter(|own| priority(own) < priority(pod)).cloned().collect();
    if lesser.is_empty() || !may_be_on(picture, &view.without(&lesser), pod) {
        return None;
    }
    // The most important ones are the first to stay.
    lesser.sort_by_key(|own| std::cmp::Reverse(priority(own)));
    let mut victims = lesser.clone();
    for one in lesser {
        let is_one = |own: &Arc<Value>| Arc::ptr_eq(own, &one);
        let without: Vec<_> = victims.iter().filter(|own| !is_one(own)).cloned().collect();
        if may_be_on(picture, &view.without(&without), pod) {
            victims = without;
        }
    }
    Some(victims)
}
