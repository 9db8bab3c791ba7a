//! What extension servers keep in a namespace that is on its way out: it is deleted there, and what is left, or could not be
//! found out, is told in the words of upstream.
//!
//! Invariant: a namespace goes only when every extension server of the plane has said that nothing of it is left. One that does
//! not answer is asked again later; it holds up its own plane's namespaces and nobody else.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use polder_client::extension::{ExtensionRequest, ExtensionVerb};
use polder_model::{GroupResource, SmolStr, Status, Value, json};
use polder_store::Plane;
use tokio::time::Instant;

use crate::extensions::Extension;
use crate::registry::Registry;
use crate::remains::Remains;

/// In whose name extension servers are asked.
const ACCOUNT: &str = "namespace-controller";
/// Whoever has not been asked after this time is asked the next time.
const TURN_MAX: Duration = Duration::from_secs(60);
/// Resources of one group version that are looked at.
const RESOURCES_MAX: usize = 1000;
/// Objects that are listed, and deleted one by one, in one turn.
const PAGE_LEN: usize = 100;
const PAGE_LEN_TEXT: &str = "100";

/// One resource of an extension server.
struct Remote<'a> {
    extension: &'a Extension,
    resource: &'a str,
    /// All its objects in a namespace can be deleted with one request.
    all_at_once: bool,
}

impl Registry {
    /// Deletes what extension servers have in a namespace. What is left is added to what remains.
    pub(crate) async fn empty_remote(
        &self,
        plane: &Arc<Plane>,
        namespace: &str,
        remains: &mut Remains,
    ) -> Result<(), Status> {
        let mut extensions = self.remote_extensions(plane).await?;
        // Of several versions of a resource the preferred one is asked.
        extensions.sort_by_key(|one| (one.group.clone(), -one.version_priority));
        let began = Instant::now();
        let mut seen = HashSet::new();
        for extension in &extensions {
            let list = match began.elapsed() < TURN_MAX {
                true => self.call_extension(plane.id, request(extension, ExtensionVerb::Get)).await,
                false => Err(Status::timeout("the others took too long")),
            };
            let list = match list {
                Ok(Some(list)) if list.str_at(&["kind"]) == Some("APIResourceList") => list,
                // Nobody serves it any longer.
                Ok(None) => continue,
                _ => {
                    remains.undiscovered(&extension.group, &extension.version);
                    continue;
                }
            };
            let resources = deletable(&list);
            // It may be long, and is not held while somebody is waited for.
            drop(list);
            for (resource, all_at_once) in resources {
                if !seen.insert((extension.group.clone(), resource.clone())) {
                    continue;
                }
                let remote = Remote { extension, resource: &resource, all_at_once };
                if let Err(status) = self.empty_one(plane, namespace, &remote, remains).await {
                    remains.failed(status.message);
                }
            }
        }
        Ok(())
    }

    async fn empty_one(
        &self,
        plane: &Arc<Plane>,
        namespace: &str,
        remote: &Remote<'_>,
        remains: &mut Remains,
    ) -> Result<(), Status> {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
        let at = |verb: ExtensionVerb, name: &str| {
            let about = format!("{}.{}", remote.resource, remote.extension.group);
            let request = request(remote.extension, verb).under(&["namespaces", namespace, remote.resource]);
            match name {
                "" => request.about(about),
                name => request.under(&[name]).about(format!("{about} {name}")),
            }
        };
        let list = || self.call_extension(plane.id, at(ExtensionVerb::Get, "").with("limit", PAGE_LEN_TEXT));
        let deleted = match remote.all_at_once {
            true => {
                let request = at(ExtensionVerb::Delete(options.clone()), "");
                is_supported(self.call_extension(plane.id, request).await)?.is_some()
            }
            false => false,
        };
        if !deleted {
            let Some(page) = is_supported(list().await)? else { return Ok(()) };
            let name =
                |object: &Value| SmolStr::new(object.str_at(&["metadata", "name"]).unwrap_or_default());
            let names: Vec<SmolStr> = page.array_at(&["items"]).iter().take(PAGE_LEN).map(name).collect();
            drop(page);
            for name in names.iter().filter(|name| !name.is_empty()) {
                let request = at(ExtensionVerb::Delete(options.clone()), name);
                is_supported(self.call_extension(plane.id, request).await)?;
            }
        }
        let Some(page) = is_supported(list().await)? else { return Ok(()) };
        let left = page.array_at(&["items"]);
        let name = GroupResource::new(remote.extension.group.clone(), remote.resource);
        left.iter().for_each(|object| remains.add(&name, object));
        let held = left.iter().any(|object| !object.array_at(&["metadata", "finalizers"]).is_empty());
        let more = page.str_at(&["metadata", "continue"]).is_some_and(|token| !token.is_empty());
        if !left.is_empty() && !held && !more {
            let Extension { group, version, .. } = remote.extension;
            let resource = remote.resource;
            remains.failed(format!(
                "unexpected items still remain in namespace: {namespace} for gvr: {group}/{version}, Resource={resource}"
            ));
        }
        Ok(())
    }
}

fn request(extension: &Extension, verb: ExtensionVerb) -> ExtensionRequest {
    ExtensionRequest::new(ACCOUNT, verb, &extension.group, &extension.version)
}

/// Resources in namespaces whose objects can be deleted; and whether all at once.
fn deletable(list: &Value) -> Vec<(SmolStr, bool)> {
    let resources = list.array_at(&["resources"]).iter().take(RESOURCES_MAX).filter_map(|one| {
        let name = one.str_at(&["name"]).filter(|name| !name.is_empty() && !name.contains('/'))?;
        let has = |wanted: &str| one.array_at(&["verbs"]).iter().any(|verb| verb.as_str() == Some(wanted));
        let namespaced = one.get("namespaced").and_then(Value::as_bool) == Some(true);
        (namespaced && has("delete")).then(|| (SmolStr::new(name), has("deletecollection")))
    });
    resources.collect()
}

/// What was answered; nothing if that cannot be asked for there, or is gone.
fn is_supported(answer: Result<Option<Value>, Status>) -> Result<Option<Value>, Status> {
    match answer {
        Err(status) if matches!(status.code, 404 | 405) => Ok(None),
        answer => answer,
    }
}
