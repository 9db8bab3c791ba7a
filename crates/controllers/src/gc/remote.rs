//! Owners that extension servers keep. No change tells of their end, so whoever depends on one is looked at again from time to
//! time.
//!
//! Invariant: an owner is gone only if its server says so in so many words. One that does not answer proves nothing.

use std::time::Duration;

use polder_client::extension::{ExtensionRequest, ExtensionVerb};
use polder_model::{Reason, SmolStr, Status, Value};

use super::act::Turn;
use super::index::ObjectRef;
use super::plan::{FOREGROUND, Owner};
use crate::meta::{has_finalizer, is_deleting};

/// How often somebody with an owner elsewhere is looked at.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(120);
/// In whose name extension servers are asked.
const ACCOUNT: &str = "generic-garbage-collector";

impl Turn<'_> {
    /// What an owner of a kind that is not served here is, for an object that names it.
    pub(super) async fn remote_owner(
        &self,
        object: &ObjectRef,
        reference: &Value,
        uid: &SmolStr,
    ) -> Result<Owner, Status> {
        let text = |field: &str| reference.str_at(&[field]).unwrap_or_default();
        let Some((group, version)) = text("apiVersion").split_once('/') else { return Ok(Owner::Unclear) };
        let request = || ExtensionRequest::new(ACCOUNT, ExtensionVerb::Get, group, version);
        let (client, plane) = (&self.plane.client, self.plane.plane);
        let list = client.extension(plane, request()).await.map_err(unknown)?;
        let Some(list) = list else { return Ok(Owner::Unclear) };
        let found =
            resource_of(&list, text("kind")).map(|(name, namespaced)| (SmolStr::new(name), namespaced));
        // It may be long, and is not held while somebody is waited for.
        drop(list);
        let Some((resource, namespaced)) = found else { return Ok(Owner::Unclear) };
        if namespaced && object.namespace.is_empty() {
            return Ok(Owner::Unclear);
        }
        let place = match namespaced {
            true => request().under(&["namespaces", &object.namespace, resource.as_str(), text("name")]),
            false => request().under(&[resource.as_str(), text("name")]),
        };
        let owner = match client.extension(plane, place).await {
            Ok(None) => Owner::Unclear,
            Ok(Some(found)) if found.str_at(&["metadata", "uid"]) != Some(uid) => Owner::Gone,
            Ok(Some(found)) if is_deleting(&found) && has_finalizer(&found, FOREGROUND) => Owner::Waiting,
            Ok(Some(_)) => Owner::Solid,
            Err(status) if status.code == 404 && status.reason == Some(Reason::NotFound) => Owner::Gone,
            Err(status) => return Err(unknown(status)),
        };
        self.elsewhere.lock().insert(uid.clone());
        Ok(owner)
    }
}

/// A plane's own server does not tell: it is asked again, and that is no news for whoever runs this one.
fn unknown(status: Status) -> Status {
    Status::untyped(424, status.message)
}

/// The resource of a kind, and whether its objects are in namespaces.
fn resource_of<'v>(list: &'v Value, kind: &str) -> Option<(&'v str, bool)> {
    list.array_at(&["resources"]).iter().find_map(|one| {
        let name = one.str_at(&["name"]).filter(|name| !name.is_empty() && !name.contains('/'))?;
        let namespaced = one.get("namespaced").and_then(Value::as_bool) == Some(true);
        (one.str_at(&["kind"]) == Some(kind)).then_some((name, namespaced))
    })
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[test]
    fn kinds_are_found() {
        let list = json!({"resources": [
            {"name": "flunders/status", "kind": "Flunder", "namespaced": true},
            {"name": "flunders", "kind": "Flunder", "namespaced": true},
            {"name": "fischers", "kind": "Fischer"},
        ]});
        assert_eq!(resource_of(&list, "Flunder"), Some(("flunders", true)));
        assert_eq!(resource_of(&list, "Fischer"), Some(("fischers", false)));
        assert_eq!(resource_of(&list, "Other"), None);
        assert_eq!(resource_of(&json!(1), "Other"), None);
    }
}
