//! Conditions of a status: found, set and removed by type, with their times.

use polder_model::Value;

use crate::meta::time;

/// A condition to be set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    pub(crate) kind: &'static str,
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

pub(crate) fn find<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|one| one.str_at(&["type"]) == Some(kind))
}

/// Whether a condition is there and true.
pub(crate) fn holds(conditions: &[Value], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|one| one.str_at(&["status"]) == Some("True"))
}

pub(crate) fn remove(conditions: &mut Vec<Value>, kind: &str) {
    conditions.retain(|one| one.str_at(&["type"]) != Some(kind));
}

/// Sets a condition, unless it has this status and reason already. One that keeps its status keeps the time
/// of its last transition. `stamps` are the times that are now whatever the status was.
pub(crate) fn set(conditions: &mut Vec<Value>, new: &Condition, now: i64, stamps: &[&str]) {
    let old = find(conditions, new.kind);
    let is = |field: &str, text: &str| old.is_some_and(|old| old.str_at(&[field]) == Some(text));
    if is("status", new.status) && is("reason", new.reason) {
        return;
    }
    let kept = old.filter(|_| is("status", new.status)).and_then(|old| old.get("lastTransitionTime"));
    let transition = kept.cloned().unwrap_or_else(|| time(now));
    put(conditions, new, transition, now, stamps);
}

/// Puts a condition in place of the one there was, if any.
pub(crate) fn put(
    conditions: &mut Vec<Value>,
    new: &Condition,
    transition: Value,
    now: i64,
    stamps: &[&str],
) {
    let mut value = Value::default();
    value.set_at(&["type"], new.kind);
    value.set_at(&["status"], new.status);
    value.set_at(&["reason"], new.reason);
    value.set_at(&["message"], new.message.as_str());
    value.set_at(&["lastTransitionTime"], transition);
    for stamp in stamps {
        value.set_at(&[stamp], time(now));
    }
    remove(conditions, new.kind);
    conditions.push(value);
}

/// The conditions of an object.
pub(crate) fn of(object: &Value) -> &[Value] {
    object.array_at(&["status", "conditions"])
}
