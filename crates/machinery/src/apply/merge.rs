//! Merging what somebody applies into the live object.
//!
//! The live object is changed in place, and only where the applied one says something: what it leaves out stays.
//! Elements of lists keep the applied order among themselves, and the live ones their places around them.

use std::collections::{HashMap, HashSet};

use polder_model::{Object, SmolStr, Value};

use super::place::{Items, Place, Shape};
use super::set::below;

/// The live value with what was applied.
pub(super) fn merge(here: Place<'_>, live: Value, applied: &Value) -> Value {
    let shape = match (here.shape(&live), here.shape(applied)) {
        // Where no type is known, nothing applied over a map leaves the map.
        (Shape::Map(here), Shape::Map(_)) => Shape::Map(here),
        (Shape::List(items), Shape::List(_)) => Shape::List(items),
        _ => return applied.clone(),
    };
    match (shape, live) {
        (Shape::Map(here), Value::Object(live)) if !live.is_empty() => {
            Value::Object(merge_members(here, live, below(applied)))
        }
        (Shape::List(items), Value::Array(live)) if !live.is_empty() => {
            match applied.as_array().unwrap_or_default() {
                [] => Value::Array(live),
                applied => Value::Array(merge_elements(items, live, applied)),
            }
        }
        _ => applied.clone(),
    }
}

fn merge_members(here: Place<'_>, mut live: Object, applied: &Object) -> Object {
    let mut missing: Vec<(SmolStr, &Value)> = Vec::new();
    for (name, applied) in applied.iter() {
        match live.get_mut(name) {
            Some(live) => *live = merge(here.member(name), std::mem::take(live), applied),
            None => missing.push((name.clone(), applied)),
        }
    }
    if missing.is_empty() {
        return live;
    }
    let put = |_: &SmolStr, _, applied: &Value| Ok::<_, std::convert::Infallible>(Some(applied.clone()));
    let Ok(merged) = live.merge_with(missing, put);
    merged
}

/// Live elements that nobody applies stay where they are; applied ones come in the applied order, each no later than
/// the live element it is merged with, as long as that order allows it.
fn merge_elements(items: Items<'_>, mut live: Vec<Value>, applied: &[Value]) -> Vec<Value> {
    let steps_of = |list: &[Value]| -> Vec<Option<SmolStr>> {
        list.iter().map(|element| items.step(element).ok()).collect()
    };
    let (live_steps, applied_steps) = (steps_of(&live), steps_of(applied));
    // Nothing is merged with an element that stands twice.
    let mut partners: HashMap<&SmolStr, Option<usize>> = HashMap::with_capacity(live.len());
    for (at, step) in live_steps.iter().enumerate() {
        if let Some(step) = step {
            partners.entry(step).and_modify(|twice| *twice = None).or_insert(Some(at));
        }
    }
    let is_applied: HashSet<&SmolStr> = applied_steps.iter().flatten().collect();
    let mut shared = applied_steps.iter().flatten().filter(|step| partners.contains_key(step)).peekable();
    let mut waiting = applied.iter().zip(&applied_steps);
    let mut merged = Vec::with_capacity(live.len().max(applied.len()));
    // Puts the next applied element and tells which it was.
    let mut put_applied = |live: &mut [Value], merged: &mut Vec<Value>| {
        let (value, step) = waiting.next()?;
        let partner = step.as_ref().and_then(|step| *partners.get(step)?);
        merged.push(match partner {
            Some(at) => merge(items.element, std::mem::take(&mut live[at]), value),
            None => value.clone(),
        });
        Some(step.as_ref())
    };
    for (at, step) in live_steps.iter().enumerate() {
        let Some(step) = step.as_ref().filter(|step| is_applied.contains(step)) else {
            merged.push(std::mem::take(&mut live[at]));
            continue;
        };
        match shared.peek() {
            Some(next) if *next == step => {
                while put_applied(&mut live, &mut merged).is_some_and(|put| put != Some(step)) {}
                shared.next();
            }
            // Its turn comes later, in the applied order.
            Some(_) => {}
            None => drop(put_applied(&mut live, &mut merged)),
        }
    }
    while put_applied(&mut live, &mut merged).is_some() {}
    merged
}
