//! Nobody gives what they do not have: who writes a role must have all it allows, or the verb `escalate` on it; who binds one
//! must have all it allows, or the verb `bind`.
//!
//! Asked after a write was admitted and before it is judged, as upstream does. `system:masters` have everything.

use polder_auth::MASTERS;
use polder_auth::authz::rbac::cover::{self, Missing, quoted};
use polder_auth::authz::rbac::{Binding, Permission, Role, RoleKind, Rule};
use polder_auth::authz::{Attributes, Selectors, Target as AuthTarget};
use polder_model::{GroupResource, Object, SmolStr, Status, Value};
use polder_store::ObjectName;

use crate::context::RequestContext;
use crate::definition::Target;
use crate::registry::Registry;
use crate::roles::GROUP;
use crate::status::read_failed;

/// Metadata that the garbage collector changes in objects it has no other business with.
const OF_COLLECTOR: [&str; 3] = ["ownerReferences", "finalizers", "managedFields"];

impl Registry {
    /// Refuses a role or binding that gives more than its writer has. The path of a request may name the object or not.
    pub(crate) async fn check_escalation(
        &self,
        context: &RequestContext,
        target: &Target,
        (new, old): (&Value, Option<&Value>),
        path_name: &str,
    ) -> Result<(), Status> {
        let definition = &target.definition;
        if definition.group != GROUP || context.user.in_group(MASTERS) {
            return Ok(());
        }
        match definition.plural.as_str() {
            "roles" | "clusterroles" => self.check_role(context, target, (new, old), path_name).await,
            "rolebindings" | "clusterrolebindings" => self.check_binding(context, target, new, old).await,
            _ => Ok(()),
        }
    }

    async fn check_role(
        &self,
        context: &RequestContext,
        target: &Target,
        (new, old): (&Value, Option<&Value>),
        path_name: &str,
    ) -> Result<(), Status> {
        let resource = target.definition.group_resource();
        if self.may(context, "escalate", &resource, &target.namespace, path_name).await?
            || old.is_some_and(|old| only_collector_fields(new, old))
        {
            return Ok(());
        }
        self.check_held(context, target, &Role::read(new).rules).await?;
        let aggregates =
            |role: &Value| !role.array_at(&["aggregationRule", "clusterRoleSelectors"]).is_empty();
        if aggregates(new) || old.is_some_and(aggregates) {
            let all = || vec![SmolStr::new_static("*")];
            let everything = [
                Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
                Rule { verbs: all(), urls: all(), ..Rule::default() },
            ];
            if self.check_held(context, target, &everything).await.is_err() {
                let text = "must have cluster-admin privileges to use the aggregationRule";
                return Err(Status::forbidden(&resource, &target.name, text));
            }
        }
        Ok(())
    }

    async fn check_binding(
        &self,
        context: &RequestContext,
        target: &Target,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if old.is_some_and(|old| only_collector_fields(new, old)) {
            return Ok(());
        }
        // Whatever else it names is refused as no role.
        let Some(binding) = Binding::read(new) else { return Ok(()) };
        let (plural, namespace) = match binding.kind {
            RoleKind::Role => ("roles", target.namespace.clone()),
            RoleKind::ClusterRole => ("clusterroles", SmolStr::default()),
        };
        let resource = GroupResource::new(GROUP, plural);
        if self.may(context, "bind", &resource, &target.namespace, &binding.role).await? {
            return Ok(());
        }
        let id = self.store.resource_id(&resource);
        let role =
            self.store.get(&context.plane, id, &ObjectName::new(namespace, binding.role.clone())).await;
        let role = role.map_err(|error| read_failed(&context.plane, error))?;
        let Some(role) = role else {
            // Upstream names the resource of the request with the name of the role.
            return Err(Status::not_found(&target.definition.group_resource(), &binding.role));
        };
        let role = Value::parse_own(role.record.body()).unwrap_or_default();
        self.check_held(context, target, &Role::read(&role).rules).await
    }

    /// Refuses rules that the user does not have where the object is.
    async fn check_held(
        &self,
        context: &RequestContext,
        target: &Target,
        rules: &[Rule],
    ) -> Result<(), Status> {
        let user = &context.user;
        let book = self.roles.book(&context.plane).await?;
        let sets = book.sets(user, &target.namespace);
        let has = |permission: &Permission<'_>, looked: &mut usize| {
            sets.iter().any(|set| set.covers(permission, looked))
        };
        let refuse = |text: &str| {
            let resource = target.definition.group_resource();
            Err(Status::forbidden(&resource, &target.name, text))
        };
        match cover::missing(has, rules) {
            None => Ok(()),
            Some(Missing::TooMany) => refuse(
                "it has too many permissions to compare them with what you may: make several roles of it",
            ),
            Some(Missing::Rules(rules)) => {
                let (name, groups) = (&user.name, quoted(&user.groups));
                refuse(&format!(
                    "user {name:?} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{}",
                    cover::describe(&rules)
                ))
            }
        }
    }

    /// Whether the user of a request may do something else, too.
    pub(crate) async fn may(
        &self,
        context: &RequestContext,
        verb: &str,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> Result<bool, Status> {
        let target = AuthTarget::Resource { resource, version: "*", subresource: "", namespace, name };
        let (user, plane) = (&context.user, context.plane.id);
        let attributes = Attributes { user, plane, verb, target, selectors: Selectors::default() };
        Ok(self.decide(context, &attributes).await?.is_allow())
    }
}

/// Whether nothing is different but what the garbage collector changes.
fn only_collector_fields(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return false };
    let rest = |object: &Object, left_out: &[&str]| -> Vec<(SmolStr, Value)> {
        let kept = object.iter().filter(|(key, _)| !left_out.contains(&key.as_str()));
        kept.map(|(key, value)| (SmolStr::new(key.as_str()), value.clone())).collect()
    };
    let metadata = |object: &Object| -> Option<Vec<(SmolStr, Value)>> {
        let metadata = object.get("metadata")?.as_object()?;
        let mut rest = rest(metadata, &OF_COLLECTOR);
        // Written again by each write, or left out by the client.
        rest.retain(|(key, _)| !matches!(key.as_str(), "resourceVersion" | "generation"));
        rest.sort_by(|(one, _), (other, _)| one.cmp(other));
        Some(rest)
    };
    let sorted = |object: &Object| {
        let mut rest = rest(object, &["metadata"]);
        rest.sort_by(|(one, _), (other, _)| one.cmp(other));
        rest
    };
    sorted(new) == sorted(old) && metadata(new) == metadata(old)
}
