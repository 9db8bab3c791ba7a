//! Objects that extension servers keep: what becomes of them, and what they are as owners. No change tells of an owner's end, so
//! whoever depends on one is looked at again from time to time.
//!
//! Invariant: an owner is gone only if its server says so in so many words. One that does not answer proves nothing.

use std::sync::Arc;
use std::time::Duration;

use polder_client::extension::{ExtensionRequest, ExtensionVerb};
use polder_client::{Delete, Propagation};
use polder_model::{Reason, SmolStr, Status, Value, json};

use super::act::Turn;
use super::index::ObjectRef;
use super::plan::{FOREGROUND, Owner};
use crate::meta::{has_finalizer, is_deleting};

/// How often somebody with an owner elsewhere is looked at.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(120);
/// In whose name extension servers are asked.
const ACCOUNT: &str = "generic-garbage-collector";

/// A question about a group version.
pub(super) fn request(group: &str, version: &str) -> ExtensionRequest {
    ExtensionRequest::new(ACCOUNT, ExtensionVerb::Get, group, version)
}

impl Turn<'_> {
    /// A request about an object; nothing if it is not known that an extension server has its kind.
    fn request_for(&self, object: &ObjectRef, verb: ExtensionVerb) -> Option<ExtensionRequest> {
        let version = self.tended.elsewhere.lock().version_of(&object.resource)?;
        let ObjectRef { resource, namespace, name } = object;
        let request = ExtensionRequest::new(ACCOUNT, verb, &resource.group, &version);
        Some(match namespace.as_str() {
            "" => request.under(&[&resource.resource, name]),
            namespace => request.under(&["namespaces", namespace, &resource.resource, name]),
        })
    }

    /// What was answered; nothing if the object, or whoever has it, is gone.
    async fn ask_elsewhere(
        &self,
        object: &ObjectRef,
        verb: ExtensionVerb,
    ) -> Result<Option<Arc<Value>>, Status> {
        let Some(request) = self.request_for(object, verb) else { return Ok(None) };
        match self.plane.client.extension(self.plane.plane, request).await {
            Ok(answer) => Ok(answer.map(Arc::new)),
            Err(status) if is_not_found(&status) => Ok(None),
            Err(status) => Err(unknown(status)),
        }
    }

    pub(super) async fn get_elsewhere(&self, object: &ObjectRef) -> Result<Option<Arc<Value>>, Status> {
        self.ask_elsewhere(object, ExtensionVerb::Get).await
    }

    pub(super) async fn patch_elsewhere(&self, object: &ObjectRef, patch: Value) -> Result<(), Status> {
        self.ask_elsewhere(object, ExtensionVerb::Patch(patch)).await.map(drop)
    }

    pub(super) async fn delete_elsewhere(&self, object: &ObjectRef, options: Delete) -> Result<(), Status> {
        let policy = match options.propagation {
            Some(Propagation::Foreground) => "Foreground",
            Some(Propagation::Orphan) => "Orphan",
            Some(Propagation::Background) | None => "Background",
        };
        let mut preconditions = json!({});
        for (field, value) in [("uid", options.uid), ("resourceVersion", options.resource_version)] {
            if let Some(value) = value {
                preconditions.set_at(&[field], value);
            }
        }
        let options = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions, "propagationPolicy": policy,
        });
        self.ask_elsewhere(object, ExtensionVerb::Delete(options)).await.map(drop)
    }

    /// What an owner of a kind that is not served here is, for an object that names it.
    pub(super) async fn remote_owner(
        &self,
        object: &ObjectRef,
        reference: &Value,
        uid: &SmolStr,
    ) -> Result<Owner, Status> {
        let text = |field: &str| reference.str_at(&[field]).unwrap_or_default();
        let Some((group, version)) = text("apiVersion").split_once('/') else { return Ok(Owner::Unclear) };
        let request = || request(group, version);
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
            Err(status) if is_not_found(&status) => Owner::Gone,
            Err(status) => return Err(unknown(status)),
        };
        self.elsewhere.lock().insert(uid.clone());
        Ok(owner)
    }
}

/// Its server says in so many words that an object is not there.
fn is_not_found(status: &Status) -> bool {
    status.code == 404 && status.reason == Some(Reason::NotFound)
}

/// A plane's own server does not tell: it is asked again, and that is no news for whoever runs this one.
pub(super) fn unknown(status: Status) -> Status {
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
