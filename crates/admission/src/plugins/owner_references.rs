//! OwnerReferencesPermissionEnforcement: whoever makes an object go with another must be allowed to delete it, and
//! whoever makes the other wait for it, to change that one's finalizers. Off unless a server turns it on.

use polder_model::{GroupResource, Status, Value};

use crate::attributes::{Attributes, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict};
use crate::world::{Question, World};

pub(super) struct OwnerReferencesPermissionEnforcement;

impl Plugin for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    fn interest(&self, _kind: Kind<'_>) -> Interest {
        Interest::validate(Operations::WRITE)
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a Value>,
        world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(async move {
            let Some(object) = object.filter(|_| !is_exempt(request)) else { return Ok(()) };
            let (new, old) = (owners(object), request.old.map(owners).unwrap_or_default());
            if new == old {
                return Ok(());
            }
            if !request.is_create() {
                may_delete(request, world).await?;
            }
            let blocks =
                |owner: &Value| owner.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true);
            let blocked =
                |owner: &Value| old.iter().any(|own| own.get("uid") == owner.get("uid") && blocks(own));
            let fresh: Vec<&Value> = new.iter().filter(|owner| blocks(owner) && !blocked(owner)).collect();
            let all = GroupResource::new("*", "*");
            let anything = Question {
                verb: "update",
                resource: &all,
                subresource: "finalizers",
                namespace: "",
                name: "*",
            };
            if fresh.is_empty() || world.allows(anything).await? {
                return Ok(());
            }
            for owner in fresh {
                may_hold(request, owner, world).await?;
            }
            Ok(())
        })
    }
}

/// Pods bound to nodes and evicted ones keep their owners.
fn is_exempt(request: &Attributes<'_>) -> bool {
    request.is("", "pods") && ["status", "binding", "eviction"].contains(&request.subresource)
}

fn owners(object: &Value) -> &[Value] {
    object.array_at(&["metadata", "ownerReferences"])
}

async fn may_delete(request: &Attributes<'_>, world: &dyn World) -> Result<(), Status> {
    let question = Question {
        verb: "delete",
        resource: request.resource,
        subresource: request.subresource,
        namespace: request.namespace,
        name: request.name,
    };
    match world.allows(question).await? {
        true => Ok(()),
        false => Err(request.forbidden("cannot set an ownerRef on a resource you can't delete: , <nil>")),
    }
}

async fn may_hold(request: &Attributes<'_>, owner: &Value, world: &dyn World) -> Result<(), Status> {
    let text = |field: &str| owner.str_at(&[field]).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let Some((resource, namespaced)) = world.resource(group, None, kind).await? else {
        return Err(request.forbidden(format!(
            "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} Kind \
             {kind}: no matches for kind {kind:?} in version {version:?}"
        )));
    };
    let namespace = if namespaced { request.namespace } else { "" };
    let (verb, subresource, name) = ("update", "finalizers", text("name"));
    match world.allows(Question { verb, resource: &resource, subresource, namespace, name }).await? {
        true => Ok(()),
        false => Err(request.forbidden(
            "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Operation;
    use crate::fake::{Fake, Request};

    #[test]
    fn rows() {
        #[track_caller]
        fn check(operation: Operation, new: &str, allowed: bool, expected: Option<&str>) {
            let world = Fake { allowed, ..Fake::default() };
            let plugin = &OwnerReferencesPermissionEnforcement;
            let request = Request { plugin, world: &world, path: "configmaps", operation };
            let new = format!(r#"{{"metadata":{{"name":"c","ownerReferences":[{new}]}}}}"#);
            let old = (operation == Operation::Update).then_some(r#"{"metadata":{"name":"c"}}"#);
            let text = expected.map(|text| format!("configmaps \"c\" is forbidden: {text}"));
            assert_eq!(request.validate(&new, old).err(), text);
        }
        let owner = r#"{"apiVersion":"v1","kind":"Secret","name":"s","uid":"1"}"#;
        let blocking =
            r#"{"apiVersion":"v1","kind":"Secret","name":"s","uid":"1","blockOwnerDeletion":true}"#;
        check(Operation::Create, owner, false, None);
        check(Operation::Update, "", false, None);
        check(Operation::Update, owner, true, None);
        check(Operation::Create, blocking, true, None);
        check(
            Operation::Update,
            owner,
            false,
            Some("cannot set an ownerRef on a resource you can't delete: , <nil>"),
        );
        check(
            Operation::Create,
            blocking,
            false,
            Some(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>",
            ),
        );
    }
}
