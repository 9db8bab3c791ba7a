//! What becomes of an object whose owners are looked at: a pure function.

use polder_client::Propagation;
use polder_model::{SmolStr, Value};

use crate::meta::{has_finalizer, is_deleting};

pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// What an owner is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// There, and staying.
    Solid,
    /// There, and waits for its dependents to go before it.
    Waiting,
    /// Not there any more: another object may have its name by now.
    Gone,
    /// Nothing can be said: its kind is unknown here, or it cannot own this object. Nothing is done then.
    Unclear,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    /// Some owners stay: these references are dropped.
    Release(Vec<SmolStr>),
    Delete(Propagation),
}

/// What to do with an object that has these owners. `has_dependents` says whether others depend on it.
pub(super) fn plan(object: &Value, owners: &[(SmolStr, Owner)], has_dependents: bool) -> Action {
    let is = |wanted: Owner| owners.iter().any(|(_, owner)| *owner == wanted);
    if owners.is_empty() || is(Owner::Unclear) || is_deleting(object) {
        return Action::Nothing;
    }
    if is(Owner::Solid) {
        let left = owners.iter().filter(|(_, owner)| *owner != Owner::Solid);
        let left: Vec<SmolStr> = left.map(|(uid, _)| uid.clone()).collect();
        return if left.is_empty() { Action::Nothing } else { Action::Release(left) };
    }
    if is(Owner::Waiting) && has_dependents {
        // Its own dependents go before it too, so that the owner's wait means something.
        return Action::Delete(Propagation::Foreground);
    }
    Action::Delete(match () {
        () if has_finalizer(object, ORPHAN) => Propagation::Orphan,
        () if has_finalizer(object, FOREGROUND) => Propagation::Foreground,
        () => Propagation::Background,
    })
}

/// What people are told of an owner that is in another namespace than the object that names it.
pub(super) fn misplaced(namespace: &str, reference: &Value) -> String {
    let text = |field: &str| reference.str_at(&[field]).unwrap_or_default();
    format!(
        "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace {namespace:?}",
        text("apiVersion"),
        text("kind"),
        text("name"),
        text("uid"),
    )
}

/// An object's finalizers without one.
pub(super) fn finalizers_without(object: &Value, finalizer: &str) -> Vec<Value> {
    let own = object.array_at(&["metadata", "finalizers"]).iter();
    own.filter(|own| own.as_str() != Some(finalizer)).cloned().collect()
}

/// An object's owner references without those to some owners.
pub(super) fn references_without(object: &Value, uids: &[SmolStr]) -> Vec<Value> {
    let own = object.array_at(&["metadata", "ownerReferences"]).iter();
    let stays = |reference: &&Value| {
        let uid = reference.str_at(&["uid"]).unwrap_or_default();
        !uids.iter().any(|gone| gone == uid)
    };
    own.filter(stays).cloned().collect()
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[test]
    fn an_object_goes_when_nobody_it_belongs_to_stays() {
        use Owner::{Gone, Solid, Unclear, Waiting};
        let release = |uids: &[&str]| Action::Release(uids.iter().map(SmolStr::new).collect());
        let delete = Action::Delete;
        let plain = json!({"metadata": {}});
        let orphaning = json!({"metadata": {"finalizers": ["x", "orphan"]}});
        let patient = json!({"metadata": {"finalizers": ["foregroundDeletion"]}});
        let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let rows: &[(&Value, &[Owner], bool, Action)] = &[
            (&plain, &[], false, Action::Nothing),
            (&plain, &[Solid], true, Action::Nothing),
            (&plain, &[Gone], false, delete(Propagation::Background)),
            (&plain, &[Gone, Gone], true, delete(Propagation::Background)),
            (&plain, &[Solid, Gone], false, release(&["1"])),
            (&plain, &[Waiting, Solid, Gone], false, release(&["0", "2"])),
            (&plain, &[Waiting], false, delete(Propagation::Background)),
            (&plain, &[Waiting, Gone], true, delete(Propagation::Foreground)),
            (&plain, &[Gone, Unclear], false, Action::Nothing),
            (&orphaning, &[Gone], false, delete(Propagation::Orphan)),
            (&patient, &[Gone], true, delete(Propagation::Foreground)),
            (&leaving, &[Gone], false, Action::Nothing),
        ];
        for (object, owners, has_dependents, expected) in rows {
            let named = owners.iter().enumerate();
            let owners: Vec<_> =
                named.map(|(number, owner)| (SmolStr::from(number.to_string()), *owner)).collect();
            assert_eq!(plan(object, &owners, *has_dependents), *expected, "{owners:?} of {object}");
        }
    }
}
