//! In which order the elements of a merged list stand.
//!
//! What the patch names keeps the patch's order, what it does not name keeps the live order, and the two are
//! interleaved by the live order as far as it knows both elements.

use std::collections::HashMap;

use polder_model::{SmolStr, Value};

use super::go_text::GoText;
use super::{PatchError, wrong_type};

/// What makes two elements the same: the merge key of a map, or the scalar itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    Null,
    Bool(bool),
    Int(i64),
    Float(u64),
    String(SmolStr),
}

impl Identity {
    /// `None` for lists and maps: they identify nothing.
    pub(super) fn of(value: &Value) -> Option<Identity> {
        Some(match value {
            Value::Null => Identity::Null,
            Value::Bool(flag) => Identity::Bool(*flag),
            Value::Int(number) => Identity::Int(*number),
            Value::Float(number) => Identity::Float(number.to_bits()),
            Value::String(text) => Identity::String(text.clone()),
            Value::Array(_) | Value::Object(_) => return None,
        })
    }

    pub(super) fn in_list(item: &Value, merge_key: Option<&str>) -> Result<Identity, PatchError> {
        match merge_key {
            Some(merge_key) => Identity::in_map(item, merge_key),
            None => Identity::of(item).ok_or_else(|| unidentified(item)),
        }
    }

    pub(super) fn in_map(item: &Value, merge_key: &str) -> Result<Identity, PatchError> {
        let Value::Object(object) = item else { return Err(wrong_type("map[string]interface {}", item)) };
        let Some(value) = object.get(merge_key) else {
            return Err(PatchError::Unclassified(format!(
                "map: {} does not contain declared merge key: {merge_key}",
                GoText::map(object)
            )));
        };
        Identity::of(value).ok_or_else(|| unidentified(value))
    }
}

fn unidentified(value: &Value) -> PatchError {
    PatchError::Unclassified(format!("a {} cannot identify a list element", value.type_name()))
}

/// Where an element stands in the two orders.
struct Placed {
    item: Value,
    wanted: Option<usize>,
    live: Option<usize>,
}

/// Puts `items`, known by `identities`, in order.
pub(super) fn arrange(
    items: Vec<Value>,
    identities: Vec<Identity>,
    wanted: &[Identity],
    live: &[Identity],
) -> Vec<Value> {
    let (wanted, live) = (first_places(wanted), first_places(live));
    let placed = items.into_iter().zip(identities).map(|(item, identity)| Placed {
        item,
        wanted: wanted.get(&identity).copied(),
        live: live.get(&identity).copied(),
    });
    let (mut named, mut others): (Vec<Placed>, Vec<Placed>) = placed.partition(|one| one.wanted.is_some());
    named.sort_by_key(|one| one.wanted);
    sort_by_live(&mut others);

    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for one in named {
        let goes_before =
            |other: &Placed| matches!((other.live, one.live), (Some(left), Some(right)) if left < right);
        while let Some(other) = others.next_if(goes_before) {
            arranged.push(other.item);
        }
        arranged.push(one.item);
    }
    arranged.extend(others.map(|other| other.item));
    arranged
}

fn first_places(identities: &[Identity]) -> HashMap<&Identity, usize> {
    let mut places = HashMap::with_capacity(identities.len());
    for (place, identity) in identities.iter().enumerate() {
        places.entry(identity).or_insert(place);
    }
    places
}

/// Sorts by live order. An empty `$setElementOrder` leaves elements that are new in this list; upstream's comparison
/// calls them smaller than whatever they are compared with, and in a short list what comes of that is well defined.
fn sort_by_live(items: &mut [Placed]) {
    const SHORT: usize = 20;
    if items.len() > SHORT || items.iter().all(|one| one.live.is_some()) {
        return items.sort_by_key(|one| one.live.unwrap_or(usize::MAX));
    }
    for start in 1..items.len() {
        for at in (1..=start).rev() {
            let smaller = match (items[at].live, items[at - 1].live) {
                (Some(right), Some(left)) => right < left,
                _ => true,
            };
            if !smaller {
                break;
            }
            items.swap(at, at - 1);
        }
    }
}
