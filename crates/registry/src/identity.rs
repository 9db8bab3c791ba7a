//! Which object a write means: what a body or a patch says about name, kind and uid agrees with the path and with what is
//! stored.

use polder_model::{FieldError, Status, Value};

use crate::decode::{self, Misshapen};
use crate::definition::Target;
use crate::upstream_key::upstream_key;
use crate::write::PatchKind;

/// A whole object names itself, and as the path does.
pub(crate) fn check_name(target: &Target, given: &str) -> Result<(), Status> {
    let own = &target.name;
    let problem = if given.is_empty() {
        format!("the name of the object ({own} based on URL) was undeterminable: name must be provided")
    } else if given == own {
        return Ok(());
    } else {
        format!("the name of the object ({given}) does not match the name on the URL ({own})")
    };
    Err(Status::bad_request(problem))
}

/// What a patch makes of an object is an object of the same kind. Strategic patches know the kind anyway; the
/// others may forget it, but not change it.
pub(crate) fn check_same_kind(
    target: &Target,
    kind: PatchKind,
    new: &mut Value,
    old: &Value,
) -> Result<(), Status> {
    if !matches!(new, Value::Object(_)) {
        let problem = format!("cannot restore struct from: {}", new.type_name());
        return Err(Misshapen::Unfit(problem).in_patch(&new.to_string()));
    }
    let same_kind = ["apiVersion", "kind"].iter().all(|field| old.get(field) == new.get(field));
    if !same_kind && target.definition.is_custom() {
        return Err(decode::other_kind(new, target));
    }
    for field in ["apiVersion", "kind"] {
        let (before, after) =
            (old.str_at(&[field]).unwrap_or_default(), new.str_at(&[field]).unwrap_or_default());
        if before == after {
            continue;
        }
        if kind != PatchKind::Strategic && new.get(field).is_some_and(|value| !value.is_null()) {
            let problem = format!(
                "the {field} in the patched object ({after}) does not match that of the object ({before})"
            );
            return Err(Misshapen::Unfit(problem).in_patch(&new.to_string()));
        }
        new.set_at(&[field], before);
    }
    Ok(())
}

/// A uid in a whole object says which object is meant.
pub(crate) fn check_uid(target: &Target, new: &Value, old: &Value) -> Result<(), Status> {
    match (uid(new), uid(old)) {
        ("", _) => Ok(()),
        (sent, own) if sent == own => Ok(()),
        (sent, own) => Err(another_object(target, sent, own)),
    }
}

/// In a patch a uid would be a change, and it does not change.
pub(crate) fn check_same_uid(target: &Target, new: &Value, old: &Value) -> Result<(), Status> {
    match uid(new) {
        "" => Ok(()),
        sent if sent == uid(old) => Ok(()),
        sent => {
            let error = FieldError::invalid("metadata.uid", sent, "field is immutable");
            Err(Status::invalid(&target.definition.error_kind(), &target.name, &[error]))
        }
    }
}

/// A PUT that could create an object, but means a certain one, is told that it is another one.
pub(crate) fn check_missing_uid(target: &Target, value: &Value) -> Result<(), Status> {
    match uid(value) {
        "" => Ok(()),
        sent => Err(another_object(target, sent, "")),
    }
}

pub(crate) fn uid(value: &Value) -> &str {
    value.str_at(&["metadata", "uid"]).unwrap_or_default()
}

fn another_object(target: &Target, sent: &str, own: &str) -> Status {
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
         UID in precondition: {sent}, UID in object meta: {own}",
        upstream_key(target)
    );
    Status::conflict(&target.definition.group_resource(), &target.name, &why)
}
