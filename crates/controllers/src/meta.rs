//! What controllers ask of any object: its name, whether it goes away, who owns it. And of namespaces, whether they
//! take new objects.

use polder_client::resource::NAMESPACES;
use polder_client::{Change, InPlane};
use polder_model::selector::LabelSelector;
use polder_model::{Reason, Status, Value};

use crate::timestamp;

pub(crate) fn is_deleting(object: &Value) -> bool {
    object.at(&["metadata", "deletionTimestamp"]).is_some_and(|timestamp| !timestamp.is_null())
}

/// Whether a change of namespaces is one that has just been made, or has just been found. Those every plane has from
/// the start, and nobody can delete, begin with all they need: a new plane wakes nobody.
pub(crate) fn is_new_namespace(change: &Change) -> bool {
    let found = change.revision == 0;
    let there_already = matches!(change.name.as_str(), "default" | "kube-system" | "kube-public");
    change.old.is_none() && change.new.is_some() && (found || !there_already)
}

/// Whether a namespace is there and stays.
pub(crate) async fn is_active(plane: &InPlane, namespace: &str) -> Result<bool, Status> {
    let found = plane.get(&NAMESPACES, "", namespace).await?;
    Ok(found.is_some_and(|found| {
        !is_deleting(&found) && found.str_at(&["status", "phase"]) != Some("Terminating")
    }))
}

/// What came of a create: one that somebody else made meanwhile is as good as ours, and a namespace that goes away
/// needs none.
pub(crate) fn created(outcome: Result<Value, Status>) -> Result<(), Status> {
    match outcome {
        Err(status) if status.reason == Some(Reason::AlreadyExists) || is_terminating(&status) => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// Whether a write was refused because its namespace goes away.
pub(crate) fn is_terminating(status: &Status) -> bool {
    status.code == 403 && status.message.contains("because it is being terminated")
}

/// A condition of an object.
pub(crate) fn find_condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    let mut conditions = object.array_at(&["status", "conditions"]).iter();
    conditions.find(|condition| condition.str_at(&["type"]) == Some(kind))
}

/// The status of a condition.
pub(crate) fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v str> {
    find_condition(object, kind)?.str_at(&["status"])
}

/// `namespace` and `name` of a key.
pub(crate) fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

pub(crate) fn name(object: &Value) -> &str {
    object.str_at(&["metadata", "name"]).unwrap_or_default()
}

pub(crate) fn namespace(object: &Value) -> &str {
    object.str_at(&["metadata", "namespace"]).unwrap_or_default()
}

pub(crate) fn uid(object: &Value) -> &str {
    object.str_at(&["metadata", "uid"]).unwrap_or_default()
}

/// The reference to whoever controls an object.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    let owners = object.array_at(&["metadata", "ownerReferences"]).iter();
    owners.into_iter().find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))
}

/// Sets a condition. The time of the transition stays when its status does.
pub(crate) fn set_condition(object: &mut Value, condition: Value, now: i64) {
    put_condition(object, &["status", "conditions"], condition, &timestamp::text(now));
}

/// The same, in a list at a path.
pub(crate) fn put_condition(object: &mut Value, path: &[&str], mut condition: Value, time: &str) {
    let mut conditions = object.array_at(path).to_vec();
    let same = |other: &&mut Value| other.get("type") == condition.get("type");
    match conditions.iter_mut().find(same) {
        Some(old) => {
            let kept = old.get("lastTransitionTime").filter(|_| old.get("status") == condition.get("status"));
            let time = kept.cloned().unwrap_or_else(|| time.into());
            condition.set_at(&["lastTransitionTime"], time);
            *old = condition;
        }
        None => {
            condition.set_at(&["lastTransitionTime"], time);
            conditions.push(condition);
        }
    }
    object.set_at(path, conditions);
}

/// Whether an object has a finalizer.
pub(crate) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    object.array_at(&["metadata", "finalizers"]).iter().any(|one| one.as_str() == Some(finalizer))
}

/// The object with a finalizer, or without it.
pub(crate) fn with_finalizer(object: &Value, finalizer: &str, there: bool) -> Value {
    let mut new = object.clone();
    let mut finalizers = object.array_at(&["metadata", "finalizers"]).to_vec();
    finalizers.retain(|one| one.as_str() != Some(finalizer));
    if there {
        finalizers.push(finalizer.into());
    }
    new.set_at(&["metadata", "finalizers"], finalizers);
    new
}

/// The reference by which an object is controlled by its owner, and holds up the owner's deletion.
pub(crate) fn owned_by(api_version: &str, kind: &str, owner: &Value) -> Value {
    polder_model::json!({
        "apiVersion": api_version, "kind": kind, "name": (name(owner)), "uid": (uid(owner)),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// The same as methods, and what else controllers of pods read from objects.
pub(crate) trait Meta {
    fn value(&self) -> &Value;

    fn text(&self, field: &str) -> &str {
        self.value().str_at(&["metadata", field]).unwrap_or_default()
    }

    fn name(&self) -> &str {
        name(self.value())
    }

    fn namespace(&self) -> &str {
        namespace(self.value())
    }

    fn uid(&self) -> &str {
        uid(self.value())
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.value().str_at(&["metadata", "labels", key])
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.value().str_at(&["metadata", "annotations", key])
    }

    fn generation(&self) -> i64 {
        self.value().i64_at(&["metadata", "generation"]).unwrap_or_default()
    }

    /// The generation its controller has seen.
    fn observed_generation(&self) -> i64 {
        self.value().i64_at(&["status", "observedGeneration"]).unwrap_or_default()
    }

    /// Somebody wants it to go.
    fn is_terminating(&self) -> bool {
        is_deleting(self.value())
    }

    /// When it was made, in seconds since 1970.
    fn created(&self) -> i64 {
        self.seconds_at(&["metadata", "creationTimestamp"]).unwrap_or_default()
    }

    fn seconds_at(&self, path: &[&str]) -> Option<i64> {
        timestamp::seconds(self.value().str_at(path)?)
    }

    /// A number of a status or spec; zero when it is not there.
    fn count_at(&self, path: &[&str]) -> i64 {
        self.value().i64_at(path).unwrap_or_default()
    }

    /// The reference to its controller.
    fn controller(&self) -> Option<&Value> {
        controller(self.value())
    }

    fn controller_uid(&self) -> Option<&str> {
        self.controller()?.str_at(&["uid"])
    }

    fn is_controlled_by(&self, owner: &Value) -> bool {
        self.controller_uid().is_some_and(|uid| uid == owner.uid())
    }

    fn has_finalizer(&self, finalizer: &str) -> bool {
        has_finalizer(self.value(), finalizer)
    }

    fn is_selected(&self, selector: &LabelSelector) -> bool {
        selector.matches(|key| self.label(key))
    }
}

impl Meta for Value {
    fn value(&self) -> &Value {
        self
    }
}

/// Seconds since 1970 as the API writes them.
pub(crate) fn time(seconds: i64) -> Value {
    Value::from(timestamp::text(seconds))
}

/// The selector of a kind whose selector is a `LabelSelector`. One that cannot be read, or that selects everything,
/// selects nothing.
pub(crate) fn selector_of(object: &Value) -> LabelSelector {
    let selector = object.at(&["spec", "selector"]).map(LabelSelector::from_value);
    match selector {
        Some(Ok(selector)) if !selector.is_everything() => selector,
        _ => LabelSelector::nothing(),
    }
}

/// A selector for objects that have all these labels.
pub(crate) fn selector_for(labels: Option<&Value>) -> LabelSelector {
    let mut selector = Value::default();
    selector.set_at(&["matchLabels"], labels.cloned().unwrap_or_default());
    match LabelSelector::from_value(&selector) {
        Ok(selector) if !selector.is_everything() => selector,
        _ => LabelSelector::nothing(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polder_client::Snapshot;
    use polder_client::resource::NAMESPACES;
    use polder_model::{PlaneId, json};

    use super::*;

    #[track_caller]
    fn check(revision: u64, name: &str, versions: (bool, bool), expected: bool) {
        let version = |there: bool| there.then(|| Snapshot::from(Arc::new(json!({}))));
        let change = Change {
            revision,
            resource_version: revision,
            plane: PlaneId(1),
            is_copy: false,
            resource: NAMESPACES.group_resource(),
            namespace: "".into(),
            name: name.into(),
            old: version(versions.0),
            new: version(versions.1),
        };
        assert_eq!(is_new_namespace(&change), expected);
    }

    #[test]
    fn a_new_plane_has_no_new_namespaces() {
        check(7, "shop", (false, true), true);
        check(7, "shop", (true, true), false);
        check(7, "shop", (true, false), false);
        check(7, "kube-system", (false, true), false);
        check(7, "kube-node-lease", (false, true), true);
        check(0, "kube-system", (false, true), true);
    }
}
