//! Strategic merge patch: a merge patch that knows from the schema which lists merge by key, and takes directives.
//!
//! Directives are members of the patch: `$patch` (delete, replace), `$retainKeys`, `$setElementOrder/<list>` and
//! `$deleteFromPrimitiveList/<list>`. Members the schema does not know merge as maps and replace as lists, where
//! upstream fails. The order of merged lists lives in `order`, everything else here.

pub(crate) mod go_text;
mod order;

use std::collections::{HashMap, HashSet};

use polder_model::{Object, SmolStr, Value};

use super::PatchError;
use crate::schema::NodeRef;
use go_text::GoText;
use order::{Identity, arrange};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";

/// A strategic merge patch as errors show it: `map[data:map[a:1]]`.
pub fn strategic_patch_text(patch: &Value) -> String {
    GoText::value(patch).to_string()
}

/// Merges `patch` into `doc`, an object of the kind `schema` describes.
pub fn apply_strategic_merge_patch(
    doc: Value,
    patch: Value,
    schema: NodeRef<'_>,
) -> Result<Value, PatchError> {
    let (Value::Object(doc), Value::Object(patch)) = (doc, patch) else {
        return Err(PatchError::Malformed("invalid JSON document".into()));
    };
    merge_maps(doc, patch, Some(schema)).map(Value::Object)
}

/// All a patch says about one member.
#[derive(Default)]
struct Change {
    order: Option<Value>,
    delete: Option<Value>,
    set: Option<Value>,
}

fn merge_maps(own: Object, mut patch: Object, schema: Option<NodeRef<'_>>) -> Result<Object, PatchError> {
    match patch.get(DIRECTIVE) {
        None => {}
        Some(Value::String(directive)) if directive == "replace" => {
            patch.remove(DIRECTIVE);
            return Ok(patch);
        }
        Some(Value::String(directive)) if directive == "delete" => return Ok(Object::new()),
        Some(other) => return Err(unknown_directive(other, &patch)),
    }
    let own = match patch.remove(RETAIN_KEYS) {
        Some(keys) => retain_keys(own, &keys, &patch)?,
        None => own,
    };
    own.merge_with(changes(patch)?, |key, own, change| {
        apply_change(own, change, schema.and_then(|schema| schema.member(key)))
    })
}

/// Sorts the members of a patch by the member of the object they are about.
fn changes(patch: Object) -> Result<Vec<(SmolStr, Change)>, PatchError> {
    let mut parts: Vec<(SmolStr, Change)> = Vec::with_capacity(patch.len());
    for (key, value) in patch {
        let (key, change) = if let Some(rest) = key.strip_prefix(SET_ORDER) {
            let Some(list) = rest.strip_prefix('/') else {
                return Err(PatchError::Malformed("invalid patch format of setElementOrder list".into()));
            };
            (list.into(), Change { order: Some(value), ..Change::default() })
        } else if let Some(rest) = key.strip_prefix(DELETE_FROM_LIST) {
            let Some(list) = rest.strip_prefix('/') else {
                return Err(PatchError::Malformed("invalid patch format of primitive list".into()));
            };
            (list.into(), Change { delete: Some(value), ..Change::default() })
        } else {
            (key, Change { set: Some(value), ..Change::default() })
        };
        parts.push((key, change));
    }
    if !parts.is_sorted_by(|(left, _), (right, _)| left < right) {
        parts.sort_by(|(left, _), (right, _)| left.cmp(right));
        parts.dedup_by(|(later_key, later), (key, kept)| {
            let same = later_key == key;
            if same {
                kept.order = kept.order.take().or(later.order.take());
                kept.delete = kept.delete.take().or(later.delete.take());
                kept.set = kept.set.take().or(later.set.take());
            }
            same
        });
    }
    Ok(parts)
}

fn retain_keys(mut own: Object, keys: &Value, patch: &Object) -> Result<Object, PatchError> {
    let malformed = || PatchError::Malformed("invalid patch format of retainKeys".into());
    let kept: HashSet<&str> =
        keys.as_array().ok_or_else(malformed)?.iter().filter_map(Value::as_str).collect();
    let all_kept = patch.iter().all(|(key, value)| {
        value.is_null()
            || key.starts_with(DELETE_FROM_LIST)
            || key.starts_with(SET_ORDER)
            || kept.contains(key.as_str())
    });
    if !all_kept {
        return Err(malformed());
    }
    own.retain(|key, _| kept.contains(key.as_str()));
    Ok(own)
}

/// What becomes of one member: first the order with the list it orders, then the deletions, then the rest.
fn apply_change(
    mut own: Option<Value>,
    mut change: Change,
    schema: Option<NodeRef<'_>>,
) -> Result<Option<Value>, PatchError> {
    if let Some(order) = change.order {
        own = merge_ordered(own, change.set.take(), order, schema)?;
    }
    match (&mut own, change.delete) {
        (_, Some(Value::Null)) => own = None,
        (Some(Value::Array(items)), Some(Value::Array(delete))) => {
            *items = merge_lists(std::mem::take(items), delete, ListRule::of(schema), Lists::Delete)?.items;
        }
        _ => {}
    }
    let Some(new) = change.set else { return Ok(own) };
    let strategy = schema.map(|schema| schema.get().patch).unwrap_or_default();
    Ok(match (own, new) {
        (_, Value::Null) => None,
        (Some(Value::Object(_)), new @ Value::Object(_)) if strategy.replace => Some(new),
        (Some(Value::Object(own)), Value::Object(new)) => Some(Value::Object(merge_maps(own, new, schema)?)),
        (Some(Value::Array(own)), Value::Array(new)) if strategy.merge => {
            Some(Value::Array(merge_lists(own, new, ListRule::of(schema), Lists::Merge)?.items))
        }
        (Some(Value::Array(_)), new @ Value::Array(_)) => Some(new),
        (_, mut new) => {
            drop_nulls(&mut new);
            without_directives(new)
        }
    })
}

/// How the elements of a list find each other.
#[derive(Clone, Copy)]
struct ListRule<'a> {
    merge: bool,
    merge_key: Option<&'a str>,
    items: Option<NodeRef<'a>>,
}

impl<'a> ListRule<'a> {
    fn of(schema: Option<NodeRef<'a>>) -> ListRule<'a> {
        let node = schema.map(NodeRef::get);
        ListRule {
            merge: node.is_some_and(|node| node.patch.merge),
            merge_key: node.and_then(|node| node.patch_merge_key.as_deref()),
            items: schema.and_then(NodeRef::items),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lists {
    Merge,
    Delete,
}

/// A merged list, and the order of the live list it came from.
struct MergedList {
    items: Vec<Value>,
    live: Vec<Identity>,
}

/// Merges a list that comes with `$setElementOrder`, and puts it in that order.
fn merge_ordered(
    own: Option<Value>,
    patch: Option<Value>,
    order: Value,
    schema: Option<NodeRef<'_>>,
) -> Result<Option<Value>, PatchError> {
    let rule = ListRule::of(schema);
    let order = list(order)?;
    let own = own.map(list).transpose()?;
    let patch = patch.map(list).transpose()?;
    check_order(patch.as_deref().unwrap_or_default(), &order, rule.merge_key)?;
    if own.is_none() && patch.is_none() {
        return Ok(None);
    }
    let kind = element_kind(own.as_deref().unwrap_or_default(), patch.as_deref().unwrap_or_default());
    let merged = match (own, patch) {
        (Some(own), Some(patch)) if rule.merge => merge_lists(own, patch, rule, Lists::Merge)?,
        (own, None) => {
            let items = own.unwrap_or_default();
            MergedList { live: identities(&items, rule.merge_key)?, items }
        }
        (None, Some(patch)) => {
            let items = patch.into_iter().filter_map(without_directives).collect();
            MergedList { items, live: Vec::new() }
        }
        (Some(own), Some(patch)) => MergedList { items: patch, live: identities(&own, rule.merge_key)? },
    };
    kind?;
    let wanted = identities(&order, rule.merge_key)?;
    let own = identities(&merged.items, rule.merge_key)?;
    Ok(Some(Value::Array(arrange(merged.items, own, &wanted, &merged.live))))
}

fn merge_lists(
    own: Vec<Value>,
    patch: Vec<Value>,
    rule: ListRule<'_>,
    lists: Lists,
) -> Result<MergedList, PatchError> {
    if own.is_empty() && patch.is_empty() {
        return Ok(MergedList { items: own, live: Vec::new() });
    }
    if element_kind(&own, &patch)? == ElementKind::Map {
        let Some(merge_key) = rule.merge_key else {
            return Err(PatchError::Unclassified("cannot merge lists without merge key for struct".into()));
        };
        return merge_lists_of_maps(own, patch, merge_key, rule.items);
    }
    let live = identities(&own, None)?;
    let wanted = identities(&patch, None)?;
    if lists == Lists::Delete {
        let gone: HashSet<Identity> = wanted.into_iter().collect();
        let mut keep = live.iter().map(|identity| !gone.contains(identity));
        let items = own.into_iter().filter(|_| keep.next().unwrap_or(true)).collect();
        return Ok(MergedList { items, live });
    }
    if let (Some(_), Some(first)) = (rule.merge_key, own.first().or(patch.first())) {
        return Err(wrong_type("map[string]interface {}", first));
    }
    let mut seen = HashSet::with_capacity(live.len() + wanted.len());
    let both = own.into_iter().chain(patch).zip(live.iter().chain(&wanted));
    let (items, identities) = both
        .filter(|(_, identity)| seen.insert(*identity))
        .map(|(item, identity)| (item, identity.clone()))
        .unzip();
    Ok(MergedList { items: arrange(items, identities, &wanted, &live), live })
}

fn merge_lists_of_maps(
    own: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
    schema: Option<NodeRef<'_>>,
) -> Result<MergedList, PatchError> {
    let own_len = own.len();
    let directives = take_directives(patch, merge_key)?;
    let mut own = own;
    if !directives.deleted.is_empty() {
        own.retain(|item| {
            let identity = item.get(merge_key).and_then(Identity::of);
            identity.is_none_or(|identity| !directives.deleted.contains(&identity))
        });
    }
    let (own, patch) = match directives.replace {
        true => (directives.rest, Vec::new()),
        false => (own, directives.rest),
    };
    // Elements without their key fail below, after the patch's own had the chance to.
    let mut places: HashMap<Identity, usize> = HashMap::with_capacity(own.len() + patch.len());
    for (place, item) in own.iter().enumerate() {
        if let Some(identity) = item.get(merge_key).and_then(Identity::of) {
            places.entry(identity).or_insert(place);
        }
    }
    let live_len = own.len();
    let wanted = identities(&patch, Some(merge_key))?;
    let mut items = own;
    for (item, identity) in patch.into_iter().zip(&wanted) {
        match (places.get(identity), item) {
            (Some(&place), Value::Object(change)) => {
                let Some(Value::Object(object)) = items.get_mut(place) else { continue };
                *object = merge_maps(std::mem::take(object), change, schema)?;
            }
            (_, item) => {
                places.insert(identity.clone(), items.len());
                items.push(item);
            }
        }
    }
    let merged = identities(&items, Some(merge_key))?;
    // Upstream deletes and appends in the array of the live list itself, so that a new element stands in its order
    // as far as there was room. Elements the server added keep their place before those.
    let live = merged[..own_len.min(merged.len())].to_vec();
    let before = merged[..live_len].to_vec();
    let items = arrange(items, merged, &wanted, &before);
    Ok(MergedList { items, live: if directives.replace { Vec::new() } else { live } })
}

/// The patch of a list of maps, without the elements that are directives.
struct Directives {
    deleted: HashSet<Identity>,
    replace: bool,
    rest: Vec<Value>,
}

fn take_directives(patch: Vec<Value>, merge_key: &str) -> Result<Directives, PatchError> {
    let mut directives =
        Directives { deleted: HashSet::new(), replace: false, rest: Vec::with_capacity(patch.len()) };
    for item in patch {
        let Value::Object(object) = &item else { return Err(wrong_type("map[string]interface {}", &item)) };
        match object.get(DIRECTIVE) {
            None => directives.rest.push(item),
            Some(Value::String(directive)) if directive == "delete" => {
                directives.deleted.insert(Identity::in_map(&item, merge_key)?);
            }
            Some(Value::String(directive)) if directive == "replace" => directives.replace = true,
            Some(Value::String(directive)) if directive == "merge" => {
                return Err(PatchError::Unclassified(
                    "merging lists cannot yet be specified in the patch".into(),
                ));
            }
            Some(other) => return Err(unknown_directive(other, object)),
        }
    }
    Ok(directives)
}

/// The elements of the patch must stand in the order in which `$setElementOrder` has them.
fn check_order(patch: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut left = Vec::with_capacity(patch.len());
    for item in patch {
        let directive = match (item, merge_key) {
            (Value::Object(object), _) => object.get(DIRECTIVE),
            (other, Some(_)) => return Err(wrong_type("map[string]interface {}", other)),
            (_, None) => None,
        };
        if merge_key.is_none() || directive.and_then(Value::as_str) != Some("delete") {
            left.push((item, directive.is_some()));
        }
    }
    let mut left = left.into_iter().peekable();
    for wanted in order {
        while left.next_if(|(_, directive)| *directive).is_some() {}
        let Some((item, _)) = left.peek() else { return Ok(()) };
        if Identity::in_list(item, merge_key)? == Identity::in_list(wanted, merge_key)? {
            left.next();
        }
    }
    if left.peek().is_none() {
        return Ok(());
    }
    Err(PatchError::Unclassified(format!(
        "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
        GoText::list(patch),
        GoText::list(order)
    )))
}

fn identities(items: &[Value], merge_key: Option<&str>) -> Result<Vec<Identity>, PatchError> {
    items.iter().map(|item| Identity::in_list(item, merge_key)).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ElementKind {
    Map,
    Scalar,
}

/// All elements of both lists must have one type.
fn element_kind(own: &[Value], patch: &[Value]) -> Result<ElementKind, PatchError> {
    let mut all = own.iter().chain(patch);
    let Some(first) = all.next() else {
        return Err(PatchError::Unclassified("no elements in any of the given slices".into()));
    };
    if let Value::Array(_) = first {
        return Err(PatchError::NotApplicable("lists of lists are not supported".into()));
    }
    let kind = std::mem::discriminant(first);
    if first.is_null() || all.any(|item| std::mem::discriminant(item) != kind) {
        return Err(PatchError::Unclassified(format!(
            "list element types are not identical: [{} {}]",
            GoText::list(own),
            GoText::list(patch)
        )));
    }
    Ok(if matches!(first, Value::Object(_)) { ElementKind::Map } else { ElementKind::Scalar })
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(object) => object.retain(|_, member| {
            let keep = !member.is_null();
            drop_nulls(member);
            keep
        }),
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// A value that is new to the object: what has a directive in it had nothing to act on and vanishes.
fn without_directives(value: Value) -> Option<Value> {
    fn clean(value: &mut Value) -> bool {
        match value {
            Value::Object(object) if object.contains_key(DIRECTIVE) => false,
            Value::Object(object) => {
                object.retain(|_, member| clean(member));
                true
            }
            Value::Array(items) => {
                items.retain_mut(clean);
                true
            }
            _ => true,
        }
    }
    let mut value = value;
    clean(&mut value).then_some(value)
}

fn list(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(wrong_type("[]interface {}", &other)),
    }
}

fn wrong_type(expected: &str, found: &Value) -> PatchError {
    let found = go_text::type_name(found);
    PatchError::Unclassified(format!("expected a {expected}, but received a {found}"))
}

fn unknown_directive(directive: &Value, patch: &Object) -> PatchError {
    PatchError::Unclassified(format!(
        "unknown patch type: {} in map: {}",
        GoText::value(directive),
        GoText::map(patch)
    ))
}

#[cfg(test)]
mod tests;
