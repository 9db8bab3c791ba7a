//! Admission inside the registry: the world that plugins see, and the places where they are asked.
//!
//! Plugins change an object before it is validated and judge it before it is stored. What they ask to be written goes
//! into the commit of the object itself, with the expectation that nobody else wrote it meanwhile; writers that share
//! such an object in a namespace take turns, so that they wait for each other instead of losing races.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polder_admission::{
    About, Answer, Asked, Attributes, Chain, Endpoint, Expected, Form, Found, Kind, Notes, Operation,
    Options, Plugins, Question, Rulebook, User, World, quota,
};
use polder_auth::UserInfo;
use polder_auth::authz;
use polder_machinery::apply;
use polder_machinery::schema::table::builtin;
use polder_model::{
    GroupResource, GroupVersion, GroupVersionKind, PlaneId, SmolStr, Status, Value, format_smolstr, json,
};
use polder_store::{Expect, Key, ListQuery, ObjectName, Record, Remaining, Revision, StoredObject, Write};
use tokio::sync::OwnedMutexGuard;

use crate::context::{FieldValidation, RequestContext, WriteOptions};
use crate::custom::Turns;
use crate::decode::Misshapen;
use crate::definition::{ResourceDefinition, Target};
use crate::delete::DeleteOptions;
use crate::registry::{Registry, convert};
use crate::status::read_failed;
use crate::{decode, metadata};

/// Objects are looked through in pieces of this size.
const PAGE_BYTES_MAX: usize = 256 * 1024;
/// The account every namespace has.
const DEFAULT_ACCOUNT: &str = "default";

/// Writers that must not run at the same time: those whose use of something in a namespace is counted.
pub(crate) type NamespaceTurns = Turns<(PlaneId, SmolStr)>;

/// Who has a say in writes of a resource. Found once, when the resource is defined.
pub(crate) fn chain(plugins: &Plugins, resource: &GroupResource, namespaced: bool) -> Chain {
    plugins.chain(Kind { group: &resource.group, resource: &resource.resource, namespaced })
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
    target: &'a Target,
    /// When plugins were first asked.
    began: Instant,
}

/// What a client says beside the object.
#[derive(Clone, Copy)]
pub(crate) enum Wish<'a> {
    Write(&'a WriteOptions),
    Delete(&'a DeleteOptions),
}

impl<'a> From<&'a WriteOptions> for Wish<'a> {
    fn from(options: &'a WriteOptions) -> Wish<'a> {
        Wish::Write(options)
    }
}

impl<'a> From<&'a DeleteOptions> for Wish<'a> {
    fn from(options: &'a DeleteOptions) -> Wish<'a> {
        Wish::Delete(options)
    }
}

impl<'a> Wish<'a> {
    fn dry_run(self) -> bool {
        match self {
            Wish::Write(options) => options.dry_run,
            Wish::Delete(options) => options.dry_run,
        }
    }

    fn options(self) -> Options<'a> {
        match self {
            Wish::Write(options) => Options {
                field_manager: options.field_manager.as_deref(),
                field_validation: match options.field_validation {
                    FieldValidation::Ignore => Some("Ignore"),
                    FieldValidation::Strict => Some("Strict"),
                    FieldValidation::Warn => None,
                },
                ..Options::default()
            },
            Wish::Delete(options) => Options {
                grace_period_seconds: options.grace_period_seconds,
                uid: options.uid.as_deref(),
                resource_version: options.resource_version.as_deref(),
                ..Options::default()
            },
        }
    }
}

impl Registry {
    /// Lets plugins change an object that a client sent. Nothing is sent with a delete.
    pub(crate) async fn admit(
        &self,
        context: &RequestContext,
        target: &Target,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
        wish: Wish<'_>,
    ) -> Result<(), Status> {
        let chain = &target.definition.admission;
        let rules = self.rules_for(context, target).await?;
        if !chain.admits(operation, &rules) {
            return Ok(());
        }
        let subject = Subject::of(self, context, target, Some(object), &rules);
        let mut request = subject.attributes(context, target, operation, old, &rules);
        (request.dry_run, request.options) = (wish.dry_run(), wish.options());
        request.seed = uuid::Uuid::new_v4().as_u64_pair().0;
        let (world, mut notes) = (Surroundings::new(self, context, target), Notes::default());
        let kept = Kept::take(operation, target, object, &rules);
        let outcome = chain.admit(&request, object, &world, &mut notes).await;
        tell(context, &mut notes);
        context.check_refusal()?;
        outcome?;
        kept.put_back(target, object)
    }

    /// The rules of the plane, where they can be about this resource.
    async fn rules_for(&self, context: &RequestContext, target: &Target) -> Result<Arc<Rulebook>, Status> {
        match target.definition.admission.heeds_rules() {
            true => Ok(self.rules(&context.plane).await?.book),
            false => Ok(self.rulebooks.none().clone()),
        }
    }

    /// Lets plugins judge an object as it is to be stored, or its end.
    pub(crate) async fn judge(
        &self,
        context: &RequestContext,
        target: &Target,
        operation: Operation,
        object: Option<&Value>,
        old: Option<&Value>,
        wish: Wish<'_>,
    ) -> Result<(), Status> {
        let chain = &target.definition.admission;
        let rules = self.rules_for(context, target).await?;
        if !chain.validates(operation, &rules) {
            return Ok(());
        }
        let subject = Subject::of(self, context, target, object, &rules);
        let mut request = subject.attributes(context, target, operation, old, &rules);
        (request.dry_run, request.options) = (wish.dry_run(), wish.options());
        let (world, mut notes) = (Surroundings::new(self, context, target), Notes::default());
        let outcome = chain.validate(&request, object, &world, &mut notes).await;
        tell(context, &mut notes);
        context.check_refusal()?;
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
        let released = self.released(context, target, object, old).await?;
        // Quotas are all that is accounted for.
        if !chain.accounts(operation) || !self.rules(&context.plane).await?.quotas {
            return Ok(Account { writes: released, _turn: None });
        }
        // Accounts are kept by the server itself.
        let rules = self.rulebooks.none();
        let subject = Subject::of(self, context, target, object, rules);
        let mut request = subject.attributes(context, target, operation, old, rules);
        request.dry_run = dry_run;
        let world = Surroundings::new(self, context, target);
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
        let world = Surroundings::new(self, context, target);
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

/// What webhooks neither see nor change: of a new object what the server sets itself, of any who owns what.
#[derive(Default)]
struct Kept {
    fields: Vec<(&'static [&'static str], Option<Value>)>,
    owners: Option<Option<Value>>,
}

const OWNERS: [&str; 2] = ["metadata", "managedFields"];

impl Kept {
    fn take(operation: Operation, target: &Target, object: &mut Value, rules: &Rulebook) -> Kept {
        if rules.changes_nothing() || object.is_null() {
            return Kept::default();
        }
        let mut fields = Vec::new();
        let whole = target.subresource.is_empty();
        if operation == Operation::Create && whole {
            // Nobody's new object is about to go.
            let all: [&'static [&'static str]; 5] = [
                &["metadata", "uid"],
                &["metadata", "creationTimestamp"],
                &["metadata", "generation"],
                &["metadata", "deletionTimestamp"],
                &["metadata", "deletionGracePeriodSeconds"],
            ];
            fields.extend(all.map(|path| (path, object.remove_at(path))));
            let apart = target.served().subresource("status").is_some();
            if apart && !target.definition.behavior.status_on_create {
                fields.push((&["status"], object.at(&["status"]).cloned()));
            }
        }
        Kept { fields, owners: Some(object.at(&OWNERS).cloned()) }
    }

    fn put_back(self, target: &Target, object: &mut Value) -> Result<(), Status> {
        let Some(owners) = self.owners else { return Ok(()) };
        let fields = self.fields.into_iter().chain([(&OWNERS as &'static [&'static str], owners)]);
        for (path, value) in fields {
            match value {
                Some(value) => object.set_at(path, value),
                None => drop(object.remove_at(path)),
            }
        }
        metadata::check_namespace(object, target)
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
    shown_name: SmolStr,
    name: SmolStr,
    others: Vec<Form>,
}

impl Subject {
    fn of(
        registry: &Registry,
        context: &RequestContext,
        target: &Target,
        object: Option<&Value>,
        rules: &Rulebook,
    ) -> Subject {
        let (definition, version) = (&target.definition, target.version);
        let name =
            object.filter(|_| target.name.is_empty()).and_then(|one| one.str_at(&["metadata", "name"]));
        let others = match rules.judges_nothing() && rules.changes_nothing() {
            true => Vec::new(),
            false => other_forms(registry, context, target),
        };
        Subject {
            resource: definition.group_resource(),
            kind: sent_kind(definition, version, &target.subresource),
            shown_name: shown_name(target, object),
            name: name.map_or_else(|| target.name.clone(), SmolStr::new),
            others,
        }
    }

    fn attributes<'a>(
        &'a self,
        context: &'a RequestContext,
        target: &'a Target,
        operation: Operation,
        old: Option<&'a Value>,
        rules: &'a Rulebook,
    ) -> Attributes<'a> {
        let UserInfo { name, uid, groups, extra, .. } = &context.user;
        Attributes {
            plane: context.plane.id,
            user: User { name, uid, groups, extra },
            operation,
            resource: &self.resource,
            version: &target.served().name,
            subresource: &target.subresource,
            kind: &self.kind,
            namespace: &target.namespace,
            name: &self.shown_name,
            own_name: &self.name,
            dry_run: false,
            options: Options::default(),
            seed: 0,
            old,
            others: &self.others,
            rules,
        }
    }
}

/// The kind of what is sent to a resource, or to a part of it.
fn sent_kind(definition: &ResourceDefinition, version: usize, subresource: &str) -> GroupVersionKind {
    let served = &definition.versions[version];
    let part = served.subresource(subresource).filter(|_| !subresource.is_empty());
    part.map_or_else(
        || definition.group_version(version).kind(definition.kind.clone()),
        |part| part.kind.clone(),
    )
}

/// The other versions in which the same object is served: of the same resource, or of one that shares its place.
fn other_forms(registry: &Registry, context: &RequestContext, target: &Target) -> Vec<Form> {
    let form = |definition: &ResourceDefinition, version: usize| Form {
        resource: definition.group_resource(),
        version: definition.versions[version].name.clone(),
        kind: sent_kind(definition, version, &target.subresource),
    };
    let own = &target.definition;
    let has_part = |definition: &ResourceDefinition, version: usize| {
        let part = &target.subresource;
        part.is_empty() || definition.versions[version].subresource(part).is_some()
    };
    let versions = (0..own.versions.len()).filter(|version| *version != target.version);
    let mut others: Vec<Form> =
        versions.filter(|version| has_part(own, *version)).map(|version| form(own, version)).collect();
    let catalog = registry.base(&context.plane);
    let shared = catalog
        .definitions()
        .filter(|other| !own.is_custom() && other.resource_id == own.resource_id && other.group != own.group);
    others.extend(shared.filter(|other| has_part(other, 0)).map(|other| form(other, 0)));
    others
}

fn tell(context: &RequestContext, notes: &mut Notes) {
    notes.warnings.drain(..).for_each(|warning| context.warn(warning));
    notes.audit.drain(..).for_each(|(key, text)| context.annotate(key, text));
}

impl<'a> Surroundings<'a> {
    fn new(registry: &'a Registry, context: &'a RequestContext, target: &'a Target) -> Surroundings<'a> {
        Surroundings { registry, context, target, began: Instant::now() }
    }

    fn found(&self, stored: &StoredObject) -> Result<Found, Status> {
        let version = self.context.plane.resource_version(stored.revision);
        let value = stored.record.to_value(version).map_err(|error| Status::internal(error.to_string()))?;
        Ok(Found { value, revision: stored.revision.0 })
    }

    /// Brings what is sent into the form of its kind.
    fn shaped(&self, object: &mut Value, validation: FieldValidation) -> Result<(), Misshapen> {
        let (context, target) = (self.context, self.target);
        let part = target.served().subresource(&target.subresource);
        match part.is_none_or(|part| part.kind.kind == target.definition.kind) {
            true => decode::shape(context, target, object, decode::Duplicates::default(), validation),
            false => decode::shape_part(context, target, object, validation),
        }
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

    fn resource<'a>(
        &'a self,
        group: &'a str,
        version: Option<&'a str>,
        kind: &'a str,
    ) -> Answer<'a, Option<(GroupResource, bool)>> {
        Box::pin(async move {
            let catalog = self.registry.catalog(&self.context.plane).await?;
            let mut definitions = catalog.definitions();
            let found = definitions.find(|definition| {
                let serves = version.is_none_or(|version| definition.version(version).is_some());
                definition.group == group && definition.kind == kind && serves
            });
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
                selectors: authz::Selectors::default(),
            };
            Ok(self.registry.decide(self.context, &attributes).await?.is_allow())
        })
    }

    fn decide<'a>(&'a self, asked: &'a Asked) -> Answer<'a, polder_admission::Decision> {
        Box::pin(async move {
            let account = asked.service_account.as_ref().map(|(namespace, name)| {
                let groups =
                    ["system:serviceaccounts".into(), format_smolstr!("system:serviceaccounts:{namespace}")];
                let name = format!("system:serviceaccount:{namespace}:{name}");
                UserInfo { home: Some(self.context.plane.id), ..UserInfo::authenticated(name, groups) }
            });
            let resource;
            let target = match &asked.about {
                About::Path(path) => authz::Target::Path(path),
                About::Resource { group, resource: plural, subresource, namespace, name } => {
                    resource = GroupResource::new(group.clone(), plural.clone());
                    authz::Target::Resource {
                        resource: &resource,
                        version: "*",
                        subresource,
                        namespace,
                        name,
                    }
                }
            };
            let attributes = authz::Attributes {
                user: account.as_ref().unwrap_or(&self.context.user),
                plane: self.context.plane.id,
                verb: &asked.verb,
                target,
                selectors: authz::Selectors::default(),
            };
            Ok(match self.registry.decide(self.context, &attributes).await {
                Ok(decision) => polder_admission::Decision {
                    allowed: decision.is_allow(),
                    reason: decision.reason().to_string(),
                    error: None,
                },
                Err(status) => polder_admission::Decision {
                    allowed: false,
                    reason: String::new(),
                    error: Some(status.message),
                },
            })
        })
    }

    fn converted<'a>(&'a self, object: &'a Value, to: &'a GroupVersionKind) -> Answer<'a, Value> {
        Box::pin(async move {
            let mut converted = object.clone();
            // Kinds that are not the resource's own are the same in all of its versions.
            if to.kind != self.target.definition.kind {
                return Ok(converted);
            }
            let from = converted.str_at(&["apiVersion"]).and_then(GroupVersion::parse);
            let from = from.unwrap_or_else(|| self.target.group_version());
            if self.target.definition.conversion.is_some() {
                // Also for whoever does without otherwise: a rule says in which version it looks.
                let converted = self.registry.convert(self.context, self.target, converted, &to.version);
                return converted.await.map_err(|status| Status::internal(status.message));
            }
            convert(self.target, &mut converted, &from, &to.group_version());
            converted.set_at(&["apiVersion"], to.group_version().to_string());
            Ok(converted)
        })
    }

    fn shape(&self, object: &mut Value) -> Result<(), Status> {
        self.shaped(object, FieldValidation::Ignore).map_err(|problem| match problem {
            Misshapen::Unfit(text) => Status::untyped(500, text),
            Misshapen::Refused(status) => status,
        })
    }

    fn shape_strictly(&self, object: &mut Value) -> Result<(), Status> {
        let strictly = match self.target.definition.is_custom() {
            true => FieldValidation::Ignore,
            false => FieldValidation::Strict,
        };
        self.shaped(object, strictly).map_err(|problem| match problem {
            Misshapen::Unfit(text) => Status::internal(text.as_str()).with_cause("", text, ""),
            Misshapen::Refused(status) => status,
        })
    }

    fn overlaid(&self, object: Value, overlay: &Value, kind: &GroupVersionKind) -> Result<Value, String> {
        let (target, definition) = (self.target, &self.target.definition);
        let part;
        let schema = match kind.kind == definition.kind {
            true => {
                let version = definition.version(&kind.version).filter(|_| kind.group == definition.group);
                definition.versions[version.unwrap_or(target.version)].schema.node()
            }
            false => {
                let found = target.served().subresource(&target.subresource);
                let found = found.and_then(|part| builtin().schema(part.type_name.as_deref()?));
                part = found.ok_or_else(|| format!("no schema of {} is known", kind.kind))?;
                part.node()
            }
        };
        apply::overlay(schema, object, overlay).map_err(|error| error.to_string())
    }

    fn call<'a>(
        &'a self,
        endpoint: &'a Arc<Endpoint>,
        body: Vec<u8>,
        timeout: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + 'a>> {
        Box::pin(async move {
            self.context.about_to_wait()?;
            let plane = &self.context.plane;
            self.registry.call_webhook(plane, endpoint, body, timeout, self.began).await
        })
    }

    fn aside<'a>(&'a self, work: Box<dyn FnOnce() + Send>) -> Answer<'a, ()> {
        Box::pin(async move {
            let _turn = self.registry.rule_turns.take(self.context.plane.id).await;
            let done = tokio::task::spawn_blocking(work).await;
            done.map_err(|_| Status::internal("the rules of the plane cannot be run"))
        })
    }
}
