//! Default roles and bindings come back: those that were deleted, rules and subjects that were taken from them. Upstream does that
//! when an API server starts; here it is done when a plane is first used after that, so that idle planes cost nothing
//! ([ADR 0018](../../../docs/adr/0018-default-roles-come-back-when-a-plane-is-used.md)).
//!
//! What somebody added stays. An object with the annotation `rbac.authorization.kubernetes.io/autoupdate: "false"` is left as it is.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use polder_auth::UserInfo;
use polder_auth::authz::rbac::cover::{self, Missing};
use polder_auth::authz::rbac::{Role, RoleSet, Rule};
use polder_model::{GroupResource, SmolStr, Status, Value, json};
use polder_store::{ListQuery, ObjectName, Plane, Revision, SpaceId, StoredObject};
use tokio::sync::Semaphore;

use crate::bootstrap::{self, BootstrapObject};
use crate::context::{RequestContext, WriteOptions};
use crate::decode::{Document, Duplicates};
use crate::definition::Target;
use crate::delete::DeleteOptions;
use crate::registry::Registry;
use crate::roles::GROUP;
use crate::status::read_failed;

const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// Planes that are looked at at a time.
const PLACES: usize = 2;
/// Of a plane with more of a kind, nothing is looked at: its rules are not in force either.
const KIND_BYTES_MAX: usize = 16 << 20;

static DEFAULTS: LazyLock<Vec<BootstrapObject>> = LazyLock::new(bootstrap::default_roles);

/// What is known of layers that planes stand on.
pub(crate) struct DefaultRoles {
    /// How far the store had come when the server started: planes made later have what they should.
    started: Revision,
    /// Bases whose default roles lack nothing: those are not looked at again.
    whole: Mutex<HashSet<SpaceId>>,
    places: Semaphore,
}

impl DefaultRoles {
    pub(crate) fn new(started: Revision) -> DefaultRoles {
        DefaultRoles { started, whole: Mutex::default(), places: Semaphore::new(PLACES) }
    }
}

/// What an object needs to be what it should be.
#[derive(Debug, PartialEq)]
enum Repair {
    Nothing,
    Update(Value),
    /// What a binding is to cannot be changed, so it goes and comes again, as upstream has it.
    Anew,
}

/// Compares an object with what it should have at least.
fn repair(wanted: &Value, found: &Value) -> Repair {
    if found.str_at(&["metadata", "annotations", AUTOUPDATE]) == Some("false") {
        return Repair::Nothing;
    }
    let is_binding = wanted.get("roleRef").is_some();
    if is_binding && wanted.get("roleRef") != found.get("roleRef") {
        return Repair::Anew;
    }
    let mut repaired = found.clone();
    for place in ["labels", "annotations"] {
        let wanted = wanted.at(&["metadata", place]).and_then(Value::as_object);
        for (key, value) in wanted.into_iter().flat_map(|wanted| wanted.iter()) {
            if found.at(&["metadata", place, key]).is_none() {
                repaired.set_at(&["metadata", place, key], value.clone());
            }
        }
    }
    if is_binding {
        add_missing(&mut repaired, wanted, &["subjects"]);
    } else if wanted.get("aggregationRule").is_some() {
        // What it allows is for the controller to put together.
        add_missing(&mut repaired, wanted, &["aggregationRule", "clusterRoleSelectors"]);
    } else {
        let set = RoleSet::new(vec![Arc::new(Role::read(found))]);
        let missing =
            cover::missing(|permission, looked| set.covers(permission, looked), &Role::read(wanted).rules);
        match missing {
            None => {}
            Some(Missing::Rules(rules)) => {
                let mut all = found.array_at(&["rules"]).to_vec();
                all.extend(rules.iter().map(rule_value));
                repaired.set_at(&["rules"], all);
            }
            // Somebody made it so large that it cannot be compared: it is theirs.
            Some(Missing::TooMany) => return Repair::Nothing,
        }
    }
    if repaired == *found { Repair::Nothing } else { Repair::Update(repaired) }
}

fn add_missing(repaired: &mut Value, wanted: &Value, path: &[&str]) {
    let mut all = repaired.array_at(path).to_vec();
    let lacks: Vec<Value> = wanted.array_at(path).iter().filter(|one| !all.contains(one)).cloned().collect();
    if !lacks.is_empty() {
        all.extend(lacks);
        repaired.set_at(path, all);
    }
}

fn rule_value(rule: &Rule) -> Value {
    let list = |texts: &[SmolStr]| Value::Array(texts.iter().map(Value::from).collect());
    if !rule.urls.is_empty() {
        return json!({"verbs": (list(&rule.verbs)), "nonResourceURLs": (list(&rule.urls))});
    }
    let mut value = json!({
        "verbs": (list(&rule.verbs)), "apiGroups": (list(&rule.groups)), "resources": (list(&rule.resources)),
    });
    if !rule.names.is_empty() {
        value.set_at(&["resourceNames"], list(&rule.names));
    }
    value
}

impl Registry {
    /// Brings default roles and bindings of a plane back. What cannot be written stays away: it is tried again after the next start.
    pub(crate) async fn restore_default_roles(&self, plane: &Arc<Plane>) -> Result<(), Status> {
        if plane.floor > self.default_roles.started || self.is_importing(plane.id) {
            return Ok(());
        }
        let lacking = {
            let _place = self.default_roles.places.acquire().await;
            self.lacking_roles(plane).await?
        };
        // Without a place: these are written as everybody's objects are, and a webhook of the plane may take its time.
        for default in lacking {
            if let Err(status) = self.restore(plane, default).await {
                tracing::warn!(plane = %plane.id, object = %default.name, error = %status, "cannot bring a default role back");
            }
        }
        Ok(())
    }

    /// Default roles and bindings of a plane that are not as they should be.
    async fn lacking_roles(&self, plane: &Arc<Plane>) -> Result<Vec<&'static BootstrapObject>, Status> {
        let Some(found) = self.found_roles(plane).await? else { return Ok(Vec::new()) };
        let base = plane.stack.last().copied();
        let is_whole = base.is_some_and(|base| self.default_roles.whole.lock().contains(&base));
        let is_base = |stored: &StoredObject| Some(stored.space) == base;
        let (mut lacking, mut is_base_whole) = (Vec::new(), true);
        for default in DEFAULTS.iter().filter(|default| bootstrap::is_in(plane.profile, default)) {
            let stored = found.get(&(default.resource, object_name(default)));
            if is_whole && stored.is_some_and(|stored| is_base(stored)) {
                continue;
            }
            let is_lacking = stored.is_none_or(|stored| {
                let value = Value::parse_own(stored.record.body()).unwrap_or_default();
                repair(&default.value, &value) != Repair::Nothing
            });
            // What a plane has instead of what is below says nothing about that.
            is_base_whole &= !is_lacking && stored.is_some_and(|stored| is_base(stored));
            if is_lacking {
                lacking.push(default);
            }
        }
        if let Some(base) = base.filter(|_| is_base_whole) {
            self.default_roles.whole.lock().insert(base);
        }
        Ok(lacking)
    }

    /// All roles and bindings of a plane; nothing if there are too many.
    async fn found_roles(
        &self,
        plane: &Arc<Plane>,
    ) -> Result<Option<HashMap<(&'static str, ObjectName), Arc<StoredObject>>>, Status> {
        let mut found = HashMap::new();
        for plural in ["clusterroles", "clusterrolebindings", "roles", "rolebindings"] {
            let resource = self.store.resource_id(&GroupResource::new(GROUP, plural));
            let query = ListQuery { bytes_max: KIND_BYTES_MAX, ..ListQuery::all(resource) };
            let page = self.store.list(plane, query).await.map_err(|error| read_failed(plane, error))?;
            if page.more {
                return Ok(None);
            }
            found.extend(page.objects.into_iter().map(|stored| ((plural, stored.name.clone()), stored)));
        }
        Ok(Some(found))
    }

    /// Makes one what it should be, through the registry as everybody does.
    async fn restore(&self, plane: &Arc<Plane>, default: &BootstrapObject) -> Result<(), Status> {
        let resource = self.store.resource_id(&GroupResource::new(GROUP, default.resource));
        let stored = self.store.get(plane, resource, &object_name(default)).await;
        let stored = stored.map_err(|error| read_failed(plane, error))?;
        let found = stored.map(|stored| {
            let mut value = Value::parse_own(stored.record.body()).unwrap_or_default();
            // Not over what somebody writes meanwhile.
            let version = plane.resource_version(stored.revision).to_string();
            value.set_at(&["metadata", "resourceVersion"], version);
            value
        });
        let context = RequestContext::new(plane.clone(), UserInfo::system());
        let resolved = self.resolve(plane, default.group, default.version, default.resource).await?;
        let Some((definition, version)) = resolved else { return Ok(()) };
        let target = |name: &SmolStr| Target {
            definition: definition.clone(),
            version,
            namespace: default.namespace.clone().unwrap_or_default(),
            name: name.clone(),
            subresource: SmolStr::default(),
        };
        let options = WriteOptions::default();
        let document = |mut value: Value| {
            value.set_at(&["kind"], default.kind);
            value.set_at(&["apiVersion"], format!("{}/{}", default.group, default.version));
            Document { value, duplicates: Duplicates::default() }
        };
        if let Some(found) = found {
            match repair(&default.value, &found) {
                Repair::Nothing => return Ok(()),
                Repair::Update(value) => {
                    self.update(&context, &target(&default.name), document(value), &options).await?;
                    return Ok(());
                }
                Repair::Anew => {
                    let version = found.str_at(&["metadata", "resourceVersion"]).map(SmolStr::new);
                    let wish = DeleteOptions { resource_version: version, ..DeleteOptions::default() };
                    self.delete(&context, &target(&default.name), &wish).await?;
                }
            }
        }
        let mut value = default.value.clone();
        for field in ["uid", "creationTimestamp", "resourceVersion", "managedFields"] {
            value.remove_at(&["metadata", field]);
        }
        self.create(&context, &target(&SmolStr::default()), document(value), &options).await?;
        tracing::info!(plane = %plane.id, kind = default.kind, name = %default.name, "a default object is back");
        Ok(())
    }
}

fn object_name(default: &BootstrapObject) -> ObjectName {
    ObjectName::new(default.namespace.clone().unwrap_or_default(), default.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(verbs: &[&str], annotation: &str) -> Value {
        let verbs: Vec<Value> = verbs.iter().map(|verb| Value::from(*verb)).collect();
        json!({
            "metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": annotation}},
            "rules": [{"verbs": verbs, "apiGroups": [""], "resources": ["pods"]}],
        })
    }

    #[test]
    fn what_is_missing_is_added() {
        let wanted = role(&["get", "list"], "true");
        assert_eq!(repair(&wanted, &role(&["get", "list", "delete"], "true")), Repair::Nothing);
        assert_eq!(repair(&wanted, &role(&["*"], "true")), Repair::Nothing);
        assert_eq!(repair(&wanted, &role(&[], "false")), Repair::Nothing);
        let Repair::Update(repaired) = repair(&wanted, &role(&["delete", "get"], "true")) else {
            panic!("no update")
        };
        assert_eq!(repaired.array_at(&["rules"]).len(), 2);
        assert_eq!(
            repaired.array_at(&["rules"])[1],
            json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]})
        );
        let bare = json!({"rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]});
        let Repair::Update(repaired) = repair(&wanted, &bare) else { panic!("no update") };
        assert_eq!(repaired.str_at(&["metadata", "annotations", AUTOUPDATE]), Some("true"));
    }

    #[test]
    fn bindings_get_their_subjects_back() {
        let binding = |role: &str, users: &[&str]| {
            let subjects: Vec<Value> =
                users.iter().map(|user| json!({"kind": "User", "name": (*user)})).collect();
            json!({"roleRef": {"name": role}, "subjects": subjects})
        };
        let wanted = binding("r", &["ann"]);
        assert_eq!(repair(&wanted, &binding("r", &["bob", "ann"])), Repair::Nothing);
        assert_eq!(repair(&wanted, &binding("r", &["bob"])), Repair::Update(binding("r", &["bob", "ann"])));
        assert_eq!(repair(&wanted, &binding("s", &["ann"])), Repair::Anew);
    }

    /// What every plane starts with lacks nothing, so nothing is written for it.
    #[test]
    fn defaults_are_whole() {
        for default in DEFAULTS.iter() {
            assert_eq!(repair(&default.value, &default.value), Repair::Nothing, "{}", default.name);
        }
        assert!(DEFAULTS.len() > 100);
    }
}
