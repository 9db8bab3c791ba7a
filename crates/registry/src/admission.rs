//! Admission inside the registry: the world that plugins see, and the places where they are asked.
//!
//! Plugins change an object before it is validated and judge it before it is stored. What they ask to be written goes
//! into the commit of the object itself, with the expectation that nobody else wrote it meanwhile; writers that share
//! such an object in a namespace take turns, so that they wait for each other instead of losing races.

use std::sync::Arc;

use polder_admission::{
    ALL, Answer, Attributes, Chain, Expected, Found, Kind, Notes, Operation, Question, User, World, quota,
};
use polder_auth::authz::{self, Decision};
use polder_model::{GroupResource, GroupVersionKind, PlaneId, SmolStr, Status, Value, json};
use polder_store::{Expect, Key, ListQuery, ObjectName, Record, Remaining, Revision, StoredObject, Write};
use tokio::sync::OwnedMutexGuard;

use crate::context::RequestContext;
use crate::custom::Turns;
use crate::definition::Target;
use crate::registry::Registry;
use crate::status::read_failed;

/// Objects are looked through in pieces of this size.
const PAGE_BYTES_MAX: usize = 256 * 1024;
/// The account every namespace has.
const DEFAULT_ACCOUNT: &str = "default";

/// Writers that must not run at the same time: those whose use of something in a namespace is counted.
pub(crate) type NamespaceTurns = Turns<(PlaneId, SmolStr)>;

/// Who has a say in writes of a resource. Found once, when the resource is defined.
pub(crate) fn chain(resource: &GroupResource, namespaced: bool) -> Chain {
    Chain::new(ALL, Kind { group: &resource.group, resource: &resource.resource, namespaced })
}

/// What is written with an object, and the turn that makes it likely to work.
#[derive(Default)]
pub(crate) struct Account {
    pub(crate) writes: Vec<Write>,
    _turn: Option<OwnedMutexGuard<()>>,
}

/// The plane of a request, as plugins see it.
struct Surroundings<'a> {
    registry: &'a Registry,
    context: &'a RequestContext,
}

impl Registry {
    /// Lets plugins change an object that a client sent.
    pub(crate) async fn admit(
        &self,
        context: &RequestContext,
        target: &Target,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<(), Status> {
        let chain = &target.definition.admission;
        if !chain.admits(operation) {
            return Ok(());
        }
        let subject = Subject::of(target, Some(object));
        let mut request = subject.attributes(context, target, operation, old, dry_run);
        request.seed = uuid::Uuid::new_v4().as_u64_pair().0;
        let (world, mut notes) = (Surroundings { registry: self, context }, Notes::default());
        let outcome = chain.admit(&request, object, &world, &mut notes).await;
        tell(context, &mut notes);
        outcome
    }

    /// Lets plugins judge an object as it is to be stored, or its end.
    pub(crate) async fn judge(
        &self,
        context: &RequestContext,
        target: &Target,
        operation: Operation,
        object: Option<&Value>,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<(), Status> {
        let chain = &target.definition.admission;
        if !chain.validates(operation) {
            return Ok(());
        }
        let subject = Subject::of(target, object);
        let request = subject.attributes(context, target, operation, old, dry_run);
        let (world, mut notes) = (Surroundings { registry: self, context }, Notes::default());
        let outcome = chain.validate(&request, object, &world, &mut notes).await;
        tell(context, &mut notes);
        outcome
    }

    /// The last question before a commit: what else is written with it. Whoever writes something else waits for its
    /// turn in the namespace first.
    pub(crate) async fn account(
        &self,
        context: &RequestContext,
        target: &Target,
        object: Option<&Value>,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<Account, Status> {
        let operation = match (object, old) {
            (Some(_), None) => Operation::Create,
            (Some(_), Some(_)) => Operation::Update,
            _ => Operation::Delete,
        };
        let chain = &target.definition.admission;
        let released = self.released(context, target, object, old);
        if !chain.accounts(operation) {
            return Ok(Account { writes: released, _turn: None });
        }
        let subject = Subject::of(target, object);
        let request = subject.attributes(context, target, operation, old, dry_run);
        let world = Surroundings { registry: self, context };
        let mut notes = Notes::default();
        chain.account(&request, object, &world, &mut notes).await?;
        if notes.writes.is_empty() || dry_run {
            return Ok(Account { writes: released, _turn: None });
        }
        let turn = self.namespace_turns.take((context.plane.id, target.namespace.clone())).await;
        notes = Notes::default();
        chain.account(&request, object, &world, &mut notes).await?;
        let writes = notes.writes.into_iter().map(|write| Write {
            key: Key {
                plane: context.plane.id,
                resource: self.store.resource_id(&write.resource),
                name: ObjectName::new(write.namespace, write.name),
            },
            record: Some(Record::encode(&write.value)),
            expect: match write.expected {
                Expected::Absent => Expect::Absent,
                Expected::At(revision) => Expect::At(Revision(revision)),
            },
        });
        Ok(Account { writes: writes.chain(released).collect(), _turn: Some(turn) })
    }

    /// A quota tells how much of it is used from its first moment on, and anew when it allows something else.
    pub(crate) async fn measure_quota(
        &self,
        context: &RequestContext,
        target: &Target,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let definition = &target.definition;
        let is_quota = definition.group.is_empty() && definition.plural == "resourcequotas";
        if !is_quota || !target.subresource.is_empty() || quota::is_measured(object) {
            return Ok(());
        }
        let world = Surroundings { registry: self, context };
        let mut used = quota::measure(object, &target.namespace, &world).await?;
        if old.is_none() {
            let counted = quota::Counted { group: "", resource: "resourcequotas" };
            polder_admission::amounts::add(&mut used, &quota::share(object, counted, Some(object)));
        }
        quota::set_status(object, &used);
        Ok(())
    }

    /// What a new namespace has from its first moment on: the account its pods run as.
    pub(crate) fn namespace_contents(&self, context: &RequestContext, target: &Target) -> Option<Write> {
        let definition = &target.definition;
        if !definition.group.is_empty() || definition.plural != "namespaces" {
            return None;
        }
        let uid = uuid::Uuid::new_v4().to_string();
        let account = json!({
            "kind": "ServiceAccount", "apiVersion": "v1", "metadata": {
                "name": DEFAULT_ACCOUNT, "namespace": (target.name.clone()), "uid": uid,
                "creationTimestamp": (self.now()),
            },
        });
        let resource = self.store.resource_id(&GroupResource::new("", "serviceaccounts"));
        let name = ObjectName::new(target.name.clone(), DEFAULT_ACCOUNT);
        let key = Key { plane: context.plane.id, resource, name };
        Some(Write { key, record: Some(Record::encode(&account)), expect: Expect::Anything })
    }
}

/// The name that refusals show: of an object that has none yet, what it begins with.
pub(crate) fn shown_name(target: &Target, object: Option<&Value>) -> SmolStr {
    if !target.name.is_empty() {
        return target.name.clone();
    }
    let field = |field: &str| object.and_then(|one| one.str_at(&["metadata", field])).unwrap_or_default();
    SmolStr::new(if field("name").is_empty() { field("generateName") } else { field("name") })
}

/// What a request is about, in the words of plugins.
struct Subject {
    resource: GroupResource,
    kind: GroupVersionKind,
    name: SmolStr,
}

impl Subject {
    fn of(target: &Target, object: Option<&Value>) -> Subject {
        let (definition, served) = (&target.definition, target.served());
        let whole = || GroupVersionKind {
            group: definition.group.clone(),
            version: served.name.clone(),
            kind: definition.kind.clone(),
        };
        let part = served.subresource(&target.subresource).filter(|_| !target.subresource.is_empty());
        Subject {
            resource: definition.group_resource(),
            kind: part.map_or_else(whole, |part| part.kind.clone()),
            name: shown_name(target, object),
        }
    }

    fn attributes<'a>(
        &'a self,
        context: &'a RequestContext,
        target: &'a Target,
        operation: Operation,
        old: Option<&'a Value>,
        dry_run: bool,
    ) -> Attributes<'a> {
        Attributes {
            plane: context.plane.id,
            user: User { name: &context.user.name, groups: &context.user.groups },
            operation,
            resource: &self.resource,
            version: &target.served().name,
            subresource: &target.subresource,
            kind: &self.kind,
            namespace: &target.namespace,
            name: &self.name,
            dry_run,
            seed: 0,
            old,
        }
    }
}

fn tell(context: &RequestContext, notes: &mut Notes) {
    notes.warnings.drain(..).for_each(|warning| context.warn(warning));
    notes.audit.drain(..).for_each(|(key, text)| context.annotate(key, text));
}

impl Surroundings<'_> {
    fn found(&self, stored: &StoredObject) -> Result<Found, Status> {
        let version = self.context.plane.resource_version(stored.revision);
        let value = stored.record.to_value(version).map_err(|error| Status::internal(error.to_string()))?;
        Ok(Found { value, revision: stored.revision.0 })
    }

    fn query(&self, resource: &GroupResource, namespace: &str) -> Option<ListQuery> {
        let namespace = (!namespace.is_empty()).then(|| SmolStr::new(namespace));
        // Nobody has one of a resource that nobody has named.
        let resource = self.registry.store.known_resource(resource)?;
        Some(ListQuery { namespace, ..ListQuery::all(resource) })
    }
}

impl World for Surroundings<'_> {
    fn get<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
    ) -> Answer<'a, Option<Found>> {
        Box::pin(async move {
            let plane = &self.context.plane;
            let Some(resource) = self.registry.store.known_resource(resource) else { return Ok(None) };
            let name = ObjectName::new(namespace, name);
            let found = self.registry.store.get(plane, resource, &name).await;
            let found: Option<Arc<StoredObject>> = found.map_err(|error| read_failed(plane, error))?;
            found.map(|stored| self.found(&stored)).transpose()
        })
    }

    fn each<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        visit: &'a mut (dyn FnMut(Found) + Send),
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            let plane = &self.context.plane;
            let Some(mut query) = self.query(resource, namespace) else { return Ok(()) };
            query.bytes_max = PAGE_BYTES_MAX;
            loop {
                let page = self.registry.store.list(plane, query.clone()).await;
                let page = page.map_err(|error| read_failed(plane, error))?;
                for stored in &page.objects {
                    visit(self.found(stored)?);
                }
                let Some(last) = page.objects.last().filter(|_| page.more) else { return Ok(()) };
                query.after = Some(last.name.clone());
                query.at = Some(page.revision);
                // Other connections get on meanwhile.
                tokio::task::yield_now().await;
            }
        })
    }

    fn count<'a>(&'a self, resource: &'a GroupResource, namespace: &'a str) -> Answer<'a, u64> {
        Box::pin(async move {
            let plane = &self.context.plane;
            let Some(query) = self.query(resource, namespace) else { return Ok(0) };
            let query = ListQuery { limit: 1, remaining: Remaining::Count, ..query };
            let page = self.registry.store.list(plane, query).await;
            let page = page.map_err(|error| read_failed(plane, error))?;
            Ok(page.objects.len() as u64 + page.remaining.unwrap_or(0))
        })
    }

    fn resource<'a>(&'a self, group: &'a str, kind: &'a str) -> Answer<'a, Option<(GroupResource, bool)>> {
        Box::pin(async move {
            let catalog = self.registry.catalog(&self.context.plane).await?;
            let mut definitions = catalog.definitions();
            let found = definitions.find(|definition| definition.group == group && definition.kind == kind);
            Ok(found.map(|definition| (definition.group_resource(), definition.namespaced)))
        })
    }

    fn allows<'a>(&'a self, question: Question<'a>) -> Answer<'a, bool> {
        Box::pin(async move {
            let attributes = authz::Attributes {
                user: &self.context.user,
                plane: self.context.plane.id,
                verb: question.verb,
                target: authz::Target::Resource {
                    resource: question.resource,
                    version: "*",
                    subresource: question.subresource,
                    namespace: question.namespace,
                    name: question.name,
                },
            };
            Ok(self.registry.authorizer.authorize(&attributes).await == Decision::Allow)
        })
    }
}
