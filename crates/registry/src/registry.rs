//! The registry: every verb on every resource of every plane. Callers are authorized here, whether they come over
//! HTTP or from inside the process.

use std::collections::HashSet;
use std::sync::Arc;

use polder_admission::Plugins;
use polder_auth::MASTERS;
use polder_auth::authn::Authenticators;
use polder_auth::authz::{self, Attributes, Chain, Decision, Selectors};
use polder_model::{GroupResource, GroupVersion, PlaneId, Status, Value};
use polder_store::{Key, ObjectName, Plane, Profile, ResourceId, Store, StoredObject};
use tokio_util::task::TaskTracker;

use crate::access_webhook::Origins;
use crate::admission::NamespaceTurns;
use crate::audit::PoliciesOfPlanes;
use crate::authentication::IssuersOfPlanes;
use crate::authorizers::{Authorizers, Decider};
use crate::catalog::{Catalog, builtin_definitions};
use crate::context::{Reading, RequestContext};
use crate::custom::{Customs, Turns};
use crate::default_roles::DefaultRoles;
use crate::definition::{ResourceDefinition, Target};
use crate::extensions::ExtensionLists;
use crate::finalize::Chores;
use crate::flows::FlowsOfPlanes;
use crate::ledger::Ledger;
use crate::nodes::Nodes;
use crate::planes;
use crate::profile;
use crate::resources::audit_event;
use crate::roles::Roles;
use crate::rulebooks::Rulebooks;
use crate::selection::Selection;
use crate::status::read_failed;
use crate::tokens::UsedSecrets;
use crate::webhooks::Webhooks;

/// What a server tells its registry about itself.
#[derive(Clone, Debug)]
pub struct RegistryOptions {
    /// Where planes are reached: `https://host:6443`. A plane's URL is this and `/clusters/<name>`.
    pub base_url: String,
    /// Limits of planes that name none of their own.
    pub default_limits: polder_store::Limits,
    /// Seconds since 1970.
    pub clock: fn() -> i64,
    /// Who people are.
    pub authenticators: Arc<Authenticators>,
    /// Who has a say in writes.
    pub plugins: Plugins,
}

pub struct Registry {
    pub store: Arc<Store>,
    pub authorizer: Chain,
    pub options: RegistryOptions,
    /// What every plane of the first profile serves: all there is.
    pub(crate) builtin: Arc<Catalog>,
    /// What generic planes serve.
    generic: Arc<Catalog>,
    /// What the core plane serves: the same, and our own kinds.
    pub(crate) core: Arc<Catalog>,
    pub(crate) customs: Arc<Customs>,
    pub(crate) chores: Chores,
    pub(crate) namespace_turns: NamespaceTurns,
    pub(crate) rulebooks: Arc<Rulebooks>,
    pub(crate) roles: Arc<Roles>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) authorizers: Authorizers,
    pub(crate) default_roles: DefaultRoles,
    pub(crate) flows: FlowsOfPlanes,
    pub(crate) webhooks: Arc<Webhooks>,
    pub(crate) extensions: ExtensionLists,
    pub(crate) issuers: IssuersOfPlanes,
    pub(crate) audit_policies: PoliciesOfPlanes,
    /// Planes whose rules take long to run take turns with themselves.
    pub(crate) rule_turns: Turns,
    pub(crate) bootstrap_turns: Turns,
    pub(crate) used_secrets: UsedSecrets,
    /// Planes that are being filled right now.
    pub(crate) importing: parking_lot::Mutex<HashSet<PlaneId>>,
    /// Everything the registry starts by itself.
    pub tasks: TaskTracker,
    pub(crate) namespaces: ResourceId,
    pub(crate) crds: ResourceId,
}

/// An object on its way to a client.
#[derive(Debug)]
pub struct ObjectAnswer {
    pub body: Answered,
    /// The request made it.
    pub created: bool,
}

#[derive(Debug)]
pub enum Answered {
    /// As stored: the client's version needs no conversion, so bytes are copied.
    Stored(Arc<StoredObject>),
    /// Computed: another version, a dry run, a subresource.
    Made(Value),
}

impl Registry {
    /// Nodes see what their pods need, and roles of planes decide about the rest, until others are chosen.
    pub fn new(store: Arc<Store>, authorizer: Chain, options: RegistryOptions) -> Registry {
        let (roles, nodes) = (Arc::new(Roles::new(store.clone())), Arc::new(Nodes::new(store.clone())));
        let authorizers = Authorizers::new(nodes.clone(), roles.clone(), Origins::new(store.clone()));
        authorizers.choose(&authorizer, &[("node".into(), Decider::Node), ("rbac".into(), Decider::Rbac)]);
        let definitions = builtin_definitions(&store, &options.plugins);
        let generic = definitions.iter().filter(|one| profile::has(Profile::Generic, &one.group_resource()));
        let generic = Catalog::base(generic.cloned().collect(), "generic");
        let mut core = definitions.clone();
        core.extend(planes::definitions(&store, &options.plugins));
        Registry {
            namespaces: store.resource_id(&GroupResource::new("", "namespaces")),
            crds: store.resource_id(&GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions")),
            builtin: Arc::new(Catalog::base(definitions, "builtin")),
            generic: Arc::new(generic),
            core: Arc::new(Catalog::base(core, "core")),
            customs: Arc::new(Customs::new(options.plugins.clone())),
            chores: Chores::default(),
            namespace_turns: NamespaceTurns::default(),
            rulebooks: Arc::default(),
            roles,
            nodes,
            authorizers,
            default_roles: DefaultRoles::new(store.current()),
            flows: FlowsOfPlanes::default(),
            webhooks: Arc::new(Webhooks::new(&store)),
            extensions: ExtensionLists::default(),
            issuers: IssuersOfPlanes::default(),
            audit_policies: PoliciesOfPlanes::default(),
            rule_turns: Turns::default(),
            bootstrap_turns: Turns::default(),
            used_secrets: UsedSecrets::default(),
            importing: parking_lot::Mutex::default(),
            tasks: TaskTracker::new(),
            store,
            authorizer,
            options,
        }
    }

    /// The same, where planes can read what happened in them.
    #[must_use]
    pub fn with_audit_trail(self, ledger: Arc<dyn Ledger>) -> Registry {
        let definition = audit_event::definition(&self.store, ledger);
        let with = |catalog: &Catalog, name| {
            let all = catalog.definitions().cloned().chain([definition.clone()]);
            Arc::new(Catalog::base(all.collect(), name))
        };
        Registry {
            builtin: with(&self.builtin, "builtin and audit"),
            generic: with(&self.generic, "generic and audit"),
            core: with(&self.core, "core and audit"),
            ..self
        }
    }

    /// The resource a path names. Built-in kinds are found without looking at the plane.
    pub async fn resolve(
        &self,
        plane: &Arc<Plane>,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Result<Option<(Arc<ResourceDefinition>, usize)>, Status> {
        if let Some(found) = self.base(plane).find(group, version, plural) {
            return Ok(Some(found));
        }
        let found = self.catalog(plane).await?.find(group, version, plural);
        if found.is_none() && self.catch_up(plane).await? {
            return Ok(self.catalog(plane).await?.find(group, version, plural));
        }
        Ok(found)
    }

    /// What a plane serves without any CRD.
    pub(crate) fn base(&self, plane: &Plane) -> &Arc<Catalog> {
        match plane.profile {
            _ if plane.id == PlaneId::CORE => &self.core,
            Profile::Cluster => &self.builtin,
            Profile::Generic => &self.generic,
        }
    }

    /// Whether a resource is defined as somebody took it to be. Read after what it is used for has begun, this says that
    /// the definition was good when it began: nothing written under another one is read with it.
    pub(crate) async fn is_current(&self, plane: &Arc<Plane>, target: &Target) -> Result<bool, Status> {
        let definition = &target.definition;
        if !definition.is_custom() {
            return Ok(true);
        }
        let found = self.resolve(plane, &definition.group, &target.served().name, &definition.plural).await?;
        Ok(found.is_some_and(|(found, version)| Arc::ptr_eq(&found, definition) && version == target.version))
    }

    pub async fn authorize(
        &self,
        context: &RequestContext,
        verb: &str,
        target: &Target,
    ) -> Result<(), Status> {
        // A namespace is in itself.
        let is_namespace = target.definition.resource_id == self.namespaces;
        let namespace = if is_namespace { &target.name } else { &target.namespace };
        self.authorize_at(context, verb, target, (namespace, &target.name), Selectors::default()).await
    }

    async fn authorize_at(
        &self,
        context: &RequestContext,
        verb: &str,
        target: &Target,
        (namespace, name): (&str, &str),
        selectors: Selectors<'_>,
    ) -> Result<(), Status> {
        let (resource, subresource) = (&target.definition.group_resource(), target.subresource.as_str());
        let version = target.served().name.as_str();
        let target = authz::Target::Resource { resource, version, subresource, namespace, name };
        self.authorize_selected(context, verb, target, selectors).await
    }

    /// May somebody look for objects. Who asks for those of one name needs no more than the right to that one.
    pub(crate) async fn authorize_many(
        &self,
        context: &RequestContext,
        verb: &str,
        target: &Target,
        selection: &Selection,
    ) -> Result<(), Status> {
        // Not who deletes them: upstream asks for the right to all.
        let only = selection.only_name().filter(|_| target.name.is_empty() && verb != "deletecollection");
        let is_namespace = target.definition.resource_id == self.namespaces && only.is_none();
        let namespace = if is_namespace { &target.name } else { &target.namespace };
        let place = (namespace.as_str(), only.unwrap_or(&target.name));
        self.authorize_at(context, verb, target, place, selection.selectors()).await
    }

    /// The same for what the plane may not even have: whoever may not look learns nothing about what is there.
    pub async fn authorize_target(
        &self,
        context: &RequestContext,
        verb: &str,
        target: authz::Target<'_>,
    ) -> Result<(), Status> {
        self.authorize_selected(context, verb, target, Selectors::default()).await
    }

    /// The same for whoever narrows down what they ask for.
    pub async fn authorize_selected(
        &self,
        context: &RequestContext,
        verb: &str,
        target: authz::Target<'_>,
        selectors: Selectors<'_>,
    ) -> Result<(), Status> {
        let attributes = Attributes { user: &context.user, plane: context.plane.id, verb, target, selectors };
        let decision = self.decide(context, &attributes).await?;
        if context.audited {
            context.decided(&decision);
        }
        match decision {
            Decision::Allow { .. } => {
                context.allow();
                Ok(())
            }
            refused => {
                let text = authz::refusal(&attributes, &refused);
                Err(match attributes.target {
                    authz::Target::Resource { resource, name, .. } => {
                        Status::forbidden(resource, name, &text)
                    }
                    authz::Target::Path(_) => Status::forbidden(&GroupResource::new("", ""), "", &text),
                })
            }
        }
    }

    /// Asks whoever decides, about the user of a request or somebody else. A request that has a turn gives it back where a
    /// webhook may have to be waited for.
    pub(crate) async fn decide(
        &self,
        context: &RequestContext,
        attributes: &Attributes<'_>,
    ) -> Result<Decision, Status> {
        if !attributes.user.in_group(MASTERS) && !self.access_webhooks().is_empty() {
            context.may_wait()?;
        }
        self.authorizer.authorize(attributes).await
    }

    /// May somebody read a path that is no resource.
    pub async fn authorize_path(
        &self,
        context: &RequestContext,
        verb: &str,
        path: &str,
    ) -> Result<(), Status> {
        self.authorize_target(context, verb, authz::Target::Path(path)).await
    }

    pub async fn get(
        &self,
        context: &RequestContext,
        target: &Target,
        resource_version: &str,
    ) -> Result<ObjectAnswer, Status> {
        self.authorize(context, "get", target).await?;
        if let Some(ledger) = &target.definition.ledger {
            let entry = self.ledger_get(context, target, ledger).await?;
            return Ok(ObjectAnswer { body: Answered::Stored(entry), created: false });
        }
        if resource_version.is_empty() {
            self.fresh(&context.plane).await?;
        } else if resource_version != "0" {
            let version = crate::list::resource_version(resource_version)
                .map_err(|problem| Status::untyped(500, problem))?;
            self.wait_for(&context.plane, version).await?;
        }
        let stored = self.must_find(context, target).await?;
        let stored = self.in_version(context, target, stored).await?;
        if target.subresource == "scale" {
            let value = self.to_client(context, target, &stored)?;
            return Ok(ObjectAnswer {
                body: Answered::Made(crate::scale::read(target, &value)?),
                created: false,
            });
        }
        Ok(ObjectAnswer { body: self.answer(context, target, stored)?, created: false })
    }

    /// The object that somebody connects to. Whoever may connect need not be allowed to read it.
    pub async fn connected_to(&self, context: &RequestContext, target: &Target) -> Result<Value, Status> {
        let stored = self.must_find(context, target).await?;
        stored.record.to_value(0).map_err(|error| Status::internal(error.to_string()))
    }

    /// The newest version of the target, or that it is not there.
    pub(crate) async fn must_find(
        &self,
        context: &RequestContext,
        target: &Target,
    ) -> Result<Arc<StoredObject>, Status> {
        let found = self.find(context, target).await?;
        found.ok_or_else(|| Status::not_found(&target.definition.group_resource(), &target.name))
    }

    /// The same for somebody who is about to write: what another replica has made just now is there, too.
    pub(crate) async fn must_find_newest(
        &self,
        context: &RequestContext,
        target: &Target,
    ) -> Result<Arc<StoredObject>, Status> {
        match self.find(context, target).await? {
            Some(found) => Ok(found),
            None => {
                self.catch_up(&context.plane).await?;
                self.must_find(context, target).await
            }
        }
    }

    /// Waits for what other replicas have written, for whoever is about to say that something is not there, or not as it was seen.
    /// Whether it is worth looking again.
    pub(crate) async fn catch_up(&self, plane: &Plane) -> Result<bool, Status> {
        if self.store.is_shared() {
            self.fresh(plane).await?;
        }
        Ok(self.store.is_shared())
    }

    /// Whether a version is the newest, also where other replicas write: for whoever commits nothing, so that no commit checks it.
    pub(crate) async fn is_newest(
        &self,
        context: &RequestContext,
        target: &Target,
        stored: &StoredObject,
    ) -> Result<bool, Status> {
        if !self.catch_up(&context.plane).await? {
            return Ok(true);
        }
        let newest = self.find(context, target).await?;
        Ok(newest.is_some_and(|newest| newest.revision == stored.revision))
    }

    /// How much a stored object is, in whatever way the caller weighs it; nothing if it cannot be read. Nobody is asked who may
    /// know: it is for whoever must make room before the object is looked at, not for clients.
    pub async fn weigh(
        &self,
        context: &RequestContext,
        target: &Target,
        weigh: impl FnOnce(&[u8]) -> usize,
    ) -> usize {
        let found = self.find(context, target).await;
        found.ok().flatten().map_or(0, |stored| weigh(stored.record.body()))
    }

    pub(crate) async fn find(
        &self,
        context: &RequestContext,
        target: &Target,
    ) -> Result<Option<Arc<StoredObject>>, Status> {
        let name = ObjectName::new(target.namespace.clone(), target.name.clone());
        let found = self.store.get(&context.plane, target.definition.resource_id, &name).await;
        found.map_err(|error| read_failed(&context.plane, error))
    }

    pub(crate) fn key(&self, context: &RequestContext, target: &Target) -> Key {
        Key {
            plane: context.plane.id,
            resource: target.definition.resource_id,
            name: ObjectName::new(target.namespace.clone(), target.name.clone()),
        }
    }

    /// Whether the bytes of a stored object go out as they are.
    fn copies(&self, context: &RequestContext, target: &Target, stored: &StoredObject) -> bool {
        !needs_conversion(target)
            && !target.definition.needs_webhook(&target.served().name, &stored.record)
            && !planes::has_live_status(context, target)
            && target.definition.rereading(&target.served().name, &stored.record).is_none()
    }

    /// A stored object as the client's version shows it: copied if it can be, converted if it must be. What a webhook
    /// converts has come out of `in_version` before.
    pub fn answer(
        &self,
        context: &RequestContext,
        target: &Target,
        stored: Arc<StoredObject>,
    ) -> Result<Answered, Status> {
        if !self.copies(context, target, &stored) {
            return Ok(Answered::Made(self.to_client(context, target, &stored)?));
        }
        Ok(Answered::Stored(stored))
    }

    /// A stored object, parsed, in the client's version, with kind and apiVersion.
    pub fn to_client(
        &self,
        context: &RequestContext,
        target: &Target,
        stored: &StoredObject,
    ) -> Result<Value, Status> {
        if context.reading == Reading::Converted
            && target.definition.needs_webhook(&target.served().name, &stored.record)
        {
            return Err(Status::internal("an object was not converted before it was shown"));
        }
        let version = context.plane.resource_version(stored.revision);
        let mut value =
            stored.record.to_value(version).map_err(|error| Status::internal(error.to_string()))?;
        convert(target, &mut value, &target.definition.storage, &target.group_version());
        if let Some(rereading) = target.definition.rereading(&target.served().name, &stored.record) {
            rereading.apply(&mut value);
        }
        value.set_at(&["kind"], target.definition.kind.clone());
        value.set_at(&["apiVersion"], target.api_version());
        if planes::has_live_status(context, target) {
            planes::live_status(self, &mut value);
        }
        Ok(value)
    }

    pub(crate) fn now(&self) -> String {
        timestamp((self.options.clock)())
    }
}

/// Whether the client's version of a kind has another shape than the stored one.
pub fn needs_conversion(target: &Target) -> bool {
    let storage = &target.definition.storage;
    let same = target.served().name == storage.version && target.definition.group == storage.group;
    !target.definition.is_custom() && !same
}

/// Turns an object into another version of its kind. Custom resources differ only in their apiVersion, or a webhook converts
/// them (`crate::conversion`).
pub(crate) fn convert(target: &Target, value: &mut Value, from: &GroupVersion, to: &GroupVersion) {
    if from != to && !target.definition.is_custom() {
        (target.definition.behavior.convert)(value, &from.to_string(), &to.to_string());
    }
}

/// RFC 3339 in UTC, to the second.
pub(crate) fn timestamp(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}
