//! The registry as programs inside Polder use it: [`polder_client::Client`], with the same authorization, defaults,
//! validation and limits as over HTTP.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use polder_auth::UserInfo;
use polder_client::extension::ExtensionRequest;
use polder_client::large::Places;
use polder_client::{
    Answer, At, Change, Changes, ChangesError, Client, Cursor, Delete, Patch, Query, ResourceFacts, Snapshot,
    Stored,
};
use polder_model::selector::LabelSelector;
use polder_model::{GroupResource, GroupVersionResource, PlaneId, SmolStr, Status, Value, json};
use polder_store::{
    Event, Expect, Filter, Key, ListQuery, ObjectName, Plane, Record, ResourceId, Revision, StoredObject,
    Watch, WatchError, WatchScope,
};

use crate::context::{RequestContext, WriteOptions};
use crate::decode::{Document, Duplicates};
use crate::definition::Target;
use crate::delete::DeleteOptions;
use crate::parsed::ParsedObjects;
use crate::registry::{Answered, ObjectAnswer, Registry};
use crate::status::{commit_failed, read_failed};
use crate::write::PatchKind;

/// The manager of the fields that controllers write.
const MANAGER: SmolStr = SmolStr::new_static("kube-controller-manager");
/// Where the cursor of controllers is: a resource nobody serves, one object of it.
const CURSORS: (&str, &str) = ("polder.dev", "cursors");
const CURSOR: &str = "controllers";
/// Objects are read and parsed in pieces of about this size.
const PIECE_BYTES: usize = 256 * 1024;
/// Lists up to this size are read by whoever wants to.
const SMALL_BYTES: usize = 1024 * 1024;
/// Larger ones by so many at a time.
const LARGE_LISTS: usize = 2;
const LIST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The registry for callers in this process.
pub struct LocalClient {
    registry: Arc<Registry>,
    user: UserInfo,
    options: WriteOptions,
    /// Those who read much at once.
    large: Places,
    parsed: Arc<ParsedObjects>,
}

impl LocalClient {
    pub fn new(registry: Arc<Registry>) -> LocalClient {
        let options = WriteOptions { field_manager: Some(MANAGER), ..WriteOptions::default() };
        let (user, large, parsed) = (UserInfo::system(), Places::new(LARGE_LISTS), Arc::default());
        LocalClient { registry, user, options, large, parsed }
    }

    fn context(&self, plane: PlaneId) -> Result<RequestContext, Status> {
        let plane = self.plane_of(plane)?;
        Ok(RequestContext::new(plane, self.user.clone()).of_controller())
    }

    fn plane_of(&self, plane: PlaneId) -> Result<Arc<Plane>, Status> {
        // What is missing there now may come yet: whoever made it would be in the way.
        if self.registry.is_importing(plane) {
            return Err(Status::untyped(409, format!("plane {plane} is being imported")));
        }
        let gone = || Status::untyped(404, format!("plane {plane} is gone"));
        self.registry.store.plane_by_id(plane).ok_or_else(gone)
    }

    async fn target(&self, context: &RequestContext, at: &At) -> Result<Target, Status> {
        let name = &at.resource;
        let found = self.registry.resolve(&context.plane, &name.group, &name.version, &name.resource).await?;
        let (definition, version) = found.ok_or_else(Status::path_not_found)?;
        let subresource = SmolStr::new_static(at.subresource);
        Ok(Target {
            definition,
            version,
            namespace: at.namespace.clone(),
            name: at.name.clone(),
            subresource,
        })
    }

    /// The same for a program that looks at metadata: where a webhook converts, objects are as they are stored, and nothing
    /// waits for it. A scale is a number of one version.
    async fn plain(&self, at: &At) -> Result<(RequestContext, Target), Status> {
        let (context, target) = self.whole(at).await?;
        Ok((if at.subresource == "scale" { context } else { context.without_conversion() }, target))
    }

    /// Whether planes like this one have a resource, if it is built in: there is nothing of a kind that is not theirs.
    fn has(&self, plane: PlaneId, resource: &GroupVersionResource) -> Result<bool, Status> {
        let (plane, name) = (self.plane_of(plane)?, resource.group_resource());
        Ok(self.registry.base(&plane).is_base(&name) || !self.registry.builtin.is_base(&name))
    }

    async fn whole(&self, at: &At) -> Result<(RequestContext, Target), Status> {
        let context = self.context(at.plane)?;
        let target = self.target(&context, at).await?;
        Ok((context, target))
    }

    fn value(
        &self,
        context: &RequestContext,
        target: &Target,
        answer: ObjectAnswer,
    ) -> Result<Value, Status> {
        match answer.body {
            Answered::Made(value) => Ok(value),
            // Read like any other, so that whoever looks at it next finds it read.
            Answered::Stored(stored) => {
                self.parsed.read(&self.registry, context, target, &stored).map(Arc::unwrap_or_clone)
            }
        }
    }

    fn cursor_key(&self) -> Key {
        let resource = self.registry.store.resource_id(&GroupResource::new(CURSORS.0, CURSORS.1));
        Key { plane: PlaneId::CORE, resource, name: ObjectName::cluster(CURSOR) }
    }
}

impl Client for LocalClient {
    fn resources(&self, plane: PlaneId) -> Answer<'_, Vec<ResourceFacts>> {
        Box::pin(async move {
            let plane = self.plane_of(plane)?;
            let catalog = self.registry.catalog(&plane).await?;
            let facts = catalog.definitions().map(|definition| {
                let preferred = &definition.versions[0];
                ResourceFacts {
                    name: definition.group_resource().with_version(preferred.name.clone()),
                    versions: definition.versions.iter().map(|version| version.name.clone()).collect(),
                    kind: definition.kind.clone(),
                    namespaced: definition.namespaced,
                    deletable: preferred.allows("delete") && preferred.allows("list"),
                }
            });
            Ok(facts.collect())
        })
    }

    fn get<'a>(&'a self, at: &'a At) -> Answer<'a, Option<Arc<Value>>> {
        Box::pin(async move {
            if !self.has(at.plane, &at.resource)? {
                return Ok(None);
            }
            let (context, target) = self.plain(at).await?;
            match self.registry.get(&context, &target, "0").await {
                Ok(ObjectAnswer { body: Answered::Stored(stored), .. }) => {
                    self.parsed.read(&self.registry, &context, &target, &stored).map(Some)
                }
                Ok(answer) => Ok(Some(Arc::new(self.value(&context, &target, answer)?))),
                Err(status) if status.code == 404 => Ok(None),
                Err(status) => Err(status),
            }
        })
    }

    fn list<'a>(
        &'a self,
        plane: PlaneId,
        resource: &'a GroupVersionResource,
        query: Query,
    ) -> Answer<'a, Vec<Arc<Value>>> {
        Box::pin(async move {
            let at = At {
                plane,
                resource: resource.clone(),
                namespace: query.namespace.clone(),
                name: SmolStr::default(),
                subresource: "",
            };
            if !self.has(plane, &at.resource)? {
                return Ok(Vec::new());
            }
            let (context, target) = self.plain(&at).await?;
            self.registry.authorize(&context, "list", &target).await?;
            let mut list = ListQuery {
                namespace: (!query.namespace.is_empty()).then_some(query.namespace),
                after: query.after.map(|(namespace, name)| ObjectName { namespace, name }),
                limit: query.limit,
                bytes_max: PIECE_BYTES,
                filter: filter(query.labels, query.containing),
                ..ListQuery::all(target.definition.resource_id)
            };
            let (mut values, mut bytes, mut _place) = (Vec::new(), 0, None);
            loop {
                let page = self.registry.store.list(&context.plane, list.clone()).await;
                let page = page.map_err(|error| read_failed(&context.plane, error))?;
                for stored in &page.objects {
                    bytes += stored.record.len();
                    values.push(self.parsed.read(&self.registry, &context, &target, stored)?);
                }
                let is_page = query.limit > 0 && (values.len() >= query.limit || bytes >= SMALL_BYTES);
                let Some(last) = page.objects.last().filter(|_| page.more && !is_page) else { break };
                if bytes > LIST_BYTES_MAX {
                    let name = &resource.resource;
                    return Err(Status::too_large(format!(
                        "there are too many {name} for a controller to look at"
                    )));
                }
                if bytes > SMALL_BYTES && _place.is_none() {
                    _place = self.large.take().await;
                }
                list.after = Some(last.name.clone());
                list.at = Some(page.revision);
                list.limit = query.limit.saturating_sub(values.len());
                // Other planes get on meanwhile.
                tokio::task::yield_now().await;
            }
            Ok(values)
        })
    }

    fn create<'a>(&'a self, at: &'a At, object: Value) -> Answer<'a, Value> {
        Box::pin(async move {
            let (context, target) = self.whole(at).await?;
            match at.subresource {
                "binding" => {
                    self.registry.authorize(&context, "create", &target).await?;
                    self.registry.bind(&context, &target, object, &self.options).await?;
                    return Ok(crate::actions::success());
                }
                "token" => {
                    self.registry.authorize(&context, "create", &target).await?;
                    return self.registry.make_token(&context, &target, object, &self.options).await;
                }
                "eviction" => {
                    self.registry.authorize(&context, "create", &target).await?;
                    self.registry.evict(&context, &target, object, &crate::Query::default()).await?;
                    return Ok(crate::actions::success());
                }
                _ => {}
            }
            let document = Document { value: object, duplicates: Duplicates::default() };
            let answer = self.registry.create(&context, &target, document, &self.options).await?;
            self.value(&context, &target, answer)
        })
    }

    fn update<'a>(&'a self, at: &'a At, object: Value) -> Answer<'a, Value> {
        Box::pin(async move {
            let (context, target) = self.whole(at).await?;
            let document = Document { value: object, duplicates: Duplicates::default() };
            let answer = self.registry.update(&context, &target, document, &self.options).await?;
            self.value(&context, &target, answer)
        })
    }

    fn patch<'a>(&'a self, at: &'a At, patch: Patch) -> Answer<'a, Value> {
        Box::pin(async move {
            let (Patch::Merge(sent) | Patch::Strategic(sent)) = &patch;
            let is_metadata = is_metadata_merge(sent);
            let (context, target) = if is_metadata { self.plain(at).await? } else { self.whole(at).await? };
            let (kind, value) = match patch {
                Patch::Merge(value) => (PatchKind::Merge, value),
                Patch::Strategic(value) => (PatchKind::Strategic, value),
            };
            let document = Document { value, duplicates: Duplicates::default() };
            let answer = self.registry.patch(&context, &target, kind, &document, &self.options).await?;
            self.value(&context, &target, answer)
        })
    }

    fn delete<'a>(&'a self, at: &'a At, options: Delete) -> Answer<'a, ()> {
        Box::pin(async move {
            let (context, target) = self.plain(at).await?;
            let options = DeleteOptions {
                dry_run: false,
                grace_period_seconds: options.grace_period_seconds,
                uid: options.uid,
                resource_version: options.resource_version,
                propagation: options.propagation,
            };
            self.registry.delete(&context, &target, &options).await.map(drop)
        })
    }

    fn extension(&self, plane: PlaneId, request: ExtensionRequest) -> Answer<'_, Option<Value>> {
        Box::pin(async move {
            self.plane_of(plane)?;
            // No commit checks what is changed elsewhere.
            if request.verb.is_write() && !self.registry.store.leads() {
                return Err(Status::unavailable("another replica leads"));
            }
            self.registry.call_extension(plane, request).await
        })
    }

    fn plane(&self, name: &str) -> Option<PlaneId> {
        self.registry.store.plane(name).map(|plane| plane.id)
    }

    fn has_plane(&self, plane: PlaneId) -> bool {
        self.registry.store.plane_by_id(plane).is_some()
    }

    fn planes_changed(&self, after: u64) -> Vec<PlaneId> {
        self.registry.store.planes_changed(Revision(after))
    }

    fn plane_object(&self, plane: PlaneId) -> Answer<'_, Option<Arc<Value>>> {
        Box::pin(async move {
            if plane == PlaneId::CORE {
                return Ok(None);
            }
            let name = SmolStr::new(self.plane_of(plane)?.name.as_str());
            let resource = GroupResource::new("polder.dev", "planes").with_version("v1alpha1");
            let (namespace, subresource) = (SmolStr::default(), "");
            self.get(&At { plane: PlaneId::CORE, resource, namespace, name, subresource }).await
        })
    }

    fn changes(&self, after: u64) -> Result<Box<dyn Changes>, ChangesError> {
        let watch = self.registry.store.watch(WatchScope::Everything, Revision(after));
        let watch = watch.map_err(|error| ended(error, after))?;
        let (registry, parsed) = (self.registry.clone(), self.parsed.clone());
        Ok(Box::new(Feed { registry, parsed, watch, followed: after }))
    }

    fn revision(&self) -> u64 {
        self.registry.store.current().0
    }

    fn cursor(&self) -> Answer<'_, Option<Cursor>> {
        Box::pin(async move {
            let core = self.plane_of(PlaneId::CORE)?;
            let key = self.cursor_key();
            let found = self.registry.store.get(&core, key.resource, &key.name).await;
            let found = found.map_err(|error| read_failed(&core, error))?;
            Ok(found.and_then(|stored| read_cursor(&stored.record)))
        })
    }

    fn cursor_save(&self, cursor: Cursor) -> Answer<'_, ()> {
        Box::pin(async move {
            let number = |number: u64| Value::from(SmolStr::from(number.to_string()));
            let unfinished: Vec<Value> = cursor.unfinished.iter().map(|plane| number(plane.0)).collect();
            let record = Record::encode(&json!({
                "metadata": {"name": CURSOR},
                "revision": (number(cursor.revision)),
                "unfinished": unfinished,
            }));
            let change = polder_store::Change::put(self.cursor_key(), record, Expect::Anything);
            let change = polder_store::Change { needs_lead: true, ..change };
            let core = self.plane_of(PlaneId::CORE)?;
            let resource = GroupResource::new(CURSORS.0, CURSORS.1);
            let committed = self.registry.store.commit(change).await;
            committed.map(drop).map_err(|error| commit_failed(&core, &resource, CURSOR, error))
        })
    }

    fn now(&self) -> i64 {
        (self.registry.options.clock)()
    }
}

/// Whether a merge patch changes nothing but metadata.
fn is_metadata_merge(patch: &Value) -> bool {
    let members = patch.as_object().into_iter().flat_map(|members| members.keys());
    members.into_iter().all(|member| matches!(member.as_str(), "metadata" | "kind" | "apiVersion"))
}

fn filter(labels: Option<LabelSelector>, containing: &'static [&'static str]) -> Option<Arc<Filter>> {
    if labels.is_none() && containing.is_empty() {
        return None;
    }
    Some(Arc::new(move |stored: &StoredObject| {
        let wanted = |labels: &LabelSelector| labels.matches(|key| stored.record.label(key));
        let has = |text: &&str| memchr::memmem::find(stored.record.body(), text.as_bytes()).is_some();
        labels.as_ref().is_none_or(wanted) && (containing.is_empty() || containing.iter().any(has))
    }))
}

fn read_cursor(record: &Record) -> Option<Cursor> {
    let value = Value::parse_own(record.body()).ok()?;
    let number = |value: &Value| value.as_str()?.parse::<u64>().ok();
    let unfinished = value.array_at(&["unfinished"]).iter().filter_map(number).map(PlaneId).collect();
    Some(Cursor { revision: number(value.get("revision")?)?, unfinished })
}

fn ended(error: WatchError, after: u64) -> ChangesError {
    match error {
        WatchError::Compacted { .. } => ChangesError::Gone { after },
        WatchError::Ended => ChangesError::Ended,
        WatchError::Engine(error) => ChangesError::Failed(error.to_string()),
    }
}

/// The store's feed in the words of the API.
struct Feed {
    registry: Arc<Registry>,
    parsed: Arc<ParsedObjects>,
    watch: Watch,
    followed: u64,
}

impl Changes for Feed {
    fn next(&mut self) -> BoxFuture<'_, Result<Change, ChangesError>> {
        Box::pin(async move {
            loop {
                let event = match self.watch.ready() {
                    Some(event) => event,
                    None => self.watch.next().await.map_err(|error| ended(error, self.followed))?,
                };
                self.followed = event.revision.0;
                if let Some(change) = self.change(&event) {
                    return Ok(change);
                }
            }
        })
    }
}

impl Feed {
    fn change(&self, event: &Event) -> Option<Change> {
        let name = event.name()?;
        // A plane that has been deleted since has nothing left to look at; only its number is needed.
        let plane = self.registry.store.plane_by_id(event.plane);
        let resource = self.registry.store.resource_name(event.resource)?;
        let definition = self.registry.builtin.by_group_resource(&resource);
        let is_plain =
            definition.is_some_and(|definition| definition.versions[0].name == definition.storage.version);
        let snapshot = |stored: &Arc<StoredObject>| {
            let version = plane.as_ref().map_or(0, |plane| plane.resource_version(stored.revision));
            let parsed = is_plain.then(|| self.parsed.clone());
            let (plane, resource) = (event.plane, event.resource);
            Snapshot::new(StoredForm { stored: stored.clone(), plane, resource, version, parsed })
        };
        Some(Change {
            revision: event.revision.0,
            resource_version: plane.as_ref().map_or(0, |plane| plane.resource_version(event.revision)),
            plane: event.plane,
            is_copy: plane.as_ref().is_some_and(|plane| plane.stack.len() > 2),
            resource,
            namespace: name.namespace.clone(),
            name: name.name.clone(),
            old: event.old.as_ref().map(snapshot),
            new: event.new.as_ref().map(snapshot),
        })
    }
}

struct StoredForm {
    stored: Arc<StoredObject>,
    plane: PlaneId,
    resource: ResourceId,
    version: u64,
    /// Where it may be found read already: as its first version shows it, which is how it is stored.
    parsed: Option<Arc<ParsedObjects>>,
}

impl Stored for StoredForm {
    fn contains(&self, text: &str) -> bool {
        memchr::memmem::find(self.json(), text.as_bytes()).is_some()
    }

    fn json(&self) -> &[u8] {
        self.stored.record.body()
    }

    fn parse(&self) -> Arc<Value> {
        let find = |parsed: &Arc<ParsedObjects>| {
            parsed.find(self.plane, self.resource, 0, self.version, &self.stored)
        };
        let parse = || Arc::new(self.stored.record.to_unmanaged_value(self.version).unwrap_or_default());
        self.parsed.as_ref().and_then(find).unwrap_or_else(parse)
    }
}
