//! Nobody reads through a policy what they may not read: whoever writes one that looks at parameters must have the right to
//! get them, and whoever binds it the right to those the binding names.

use polder_auth::{MASTERS, UserInfo};
use polder_model::{FieldError, GroupResource, GroupVersion, SmolStr, Status, Value};
use polder_store::ObjectName;

use crate::context::RequestContext;
use crate::definition::Target;
use crate::registry::Registry;
use crate::status::read_failed;

/// Where the parameters of a policy are: everywhere, as long as it cannot be told.
struct Parameters {
    resource: GroupResource,
    /// What of them could not be found out.
    unknown: Option<&'static str>,
}

impl Registry {
    /// Refuses a policy, or a binding of one, that looks where its writer may not.
    pub(crate) async fn check_parameters(
        &self,
        context: &RequestContext,
        target: &Target,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if context.user.in_group(MASTERS) {
            return Ok(());
        }
        let some =
            |value: &Value, key: &str| value.at(&["spec", key]).filter(|part| !part.is_null()).cloned();
        let is_same = |key: &str| old.is_some_and(|old| some(old, key) == some(new, key));
        let problem = match target.definition.plural.as_str() {
            "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
                let Some(kind) = some(new, "paramKind").filter(|_| !is_same("paramKind")) else {
                    return Ok(());
                };
                let of = self.parameters(context, &kind).await?;
                if self.may(context, "get", &of.resource, "*", "*").await? {
                    return Ok(());
                }
                let text = |key: &str| kind.str_at(&[key]).unwrap_or_default();
                let why = format!(
                    "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
                    shown(&context.user),
                    text("kind"),
                    text("apiVersion"),
                );
                FieldError::forbidden("spec.paramKind", why)
            }
            "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => {
                let is_same = is_same("paramRef") && is_same("policyName");
                let Some(reference) = some(new, "paramRef").filter(|_| !is_same) else { return Ok(()) };
                let text = |key: &str| reference.str_at(&[key]).unwrap_or_default();
                let policy = new.str_at(&["spec", "policyName"]).unwrap_or_default();
                let of = self.parameters_of(context, target, policy).await?;
                let verb = if text("name").is_empty() { "list" } else { "get" };
                if self.may(context, verb, &of.resource, text("namespace"), text("name")).await? {
                    return Ok(());
                }
                let user = shown(&context.user);
                FieldError::forbidden(
                    "spec.paramRef",
                    match of.unknown {
                        Some("policy") => format!(
                            "unable to get policy {policy} to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, versions and resources"
                        ),
                        Some(what) => format!(
                            "unable to {what} paramKind of policy {policy} to determine minimum required permissions and user {user} does not have \"{verb}\" permission for all groups, versions and resources"
                        ),
                        None => format!(
                            "user {user} does not have \"{verb}\" permission on the object referenced by paramRef"
                        ),
                    },
                )
            }
            _ => return Ok(()),
        };
        Err(Status::invalid(&target.definition.error_kind(), &target.name, &[problem]))
    }

    /// The parameters of a kind.
    async fn parameters(&self, context: &RequestContext, kind: &Value) -> Result<Parameters, Status> {
        let all = SmolStr::new_static("*");
        let version = kind.str_at(&["apiVersion"]).and_then(GroupVersion::parse);
        let Some(GroupVersion { group, version }) = version else {
            let resource = GroupResource::new(all.clone(), all);
            return Ok(Parameters { resource, unknown: Some("parse") });
        };
        let catalog = self.catalog(&context.plane).await?;
        let kind = kind.str_at(&["kind"]).unwrap_or_default();
        let found = catalog.definitions().find(|definition| {
            definition.group == group && definition.kind == kind && definition.version(&version).is_some()
        });
        Ok(match found {
            Some(definition) => Parameters { resource: definition.group_resource(), unknown: None },
            None => Parameters { resource: GroupResource::new(group, all), unknown: Some("resolve") },
        })
    }

    /// The parameters of the policy that a binding is for.
    async fn parameters_of(
        &self,
        context: &RequestContext,
        binding: &Target,
        policy: &str,
    ) -> Result<Parameters, Status> {
        let plural = match binding.definition.plural.starts_with("mutating") {
            true => "mutatingadmissionpolicies",
            false => "validatingadmissionpolicies",
        };
        let policies = GroupResource::new(binding.definition.group.clone(), plural);
        let (resource, name) = (self.store.resource_id(&policies), ObjectName::cluster(policy));
        let found = self.store.get(&context.plane, resource, &name).await;
        let found = found.map_err(|error| read_failed(&context.plane, error))?;
        let everything = GroupResource::new("*", "*");
        let Some(found) = found else {
            return Ok(Parameters { resource: everything, unknown: Some("policy") });
        };
        let policy = Value::parse_own(found.record.body()).unwrap_or_default();
        match policy.at(&["spec", "paramKind"]).filter(|kind| !kind.is_null()) {
            Some(kind) => self.parameters(context, kind).await,
            None => Ok(Parameters { resource: everything, unknown: None }),
        }
    }
}

/// A user as Go prints one.
fn shown(user: &UserInfo) -> String {
    let extra: Vec<String> =
        user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}
