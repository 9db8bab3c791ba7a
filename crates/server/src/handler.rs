//! From a routed, authenticated request to an answer: resources by verb, documents, probes.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use polder_auth::authz;
use polder_machinery::apply::Force;
use polder_machinery::protobuf::MEDIA_TYPE as PROTOBUF;
use polder_model::selector::FieldSelector;
use polder_model::{FieldError, GroupKind, GroupResource, PlaneId, Status, Value, json, value};
use polder_registry::context::{FieldValidation, WriteOptions, manager_of};
use polder_registry::decode::{Document, Duplicates};
use polder_registry::delete::{DeleteAnswer, DeleteOptions};
use polder_registry::list::ListOptions;
use polder_registry::listing::{Listing, Objects};
use polder_registry::watch::WatchOptions;
use polder_registry::write::PatchKind;
use polder_registry::{Answered, Query, RequestContext, Target};

use crate::aggregator::RemoteVersion;
use crate::answer::{self, Answer, Draft, Style};
use crate::audit::Trace;
use crate::body::{self, Unread};
use crate::budget::{ORDINARY_BYTES, Room};
use crate::limits::Pass;
use crate::list_answer;
use crate::negotiate::{self, Form, Media, Messages};
use crate::present::Presenter;
use crate::route::{PAGES, Page, Request, ResourcePath, Route};
use crate::stream;
use crate::table::IncludeObject;
use crate::weight::{TEXT_WEIGHT, message_bytes, parsed_bytes};
use crate::{State, discovery, openapi, protobuf, yaml};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const APPLY: &str = "application/apply-patch+yaml";

/// What discovery of a plane takes while it is written, without what other servers say.
const DISCOVERY_BYTES: usize = 1 << 20;
/// A selector of this length is nothing remarkable.
const SELECTORS_LEN_FREE: usize = 1024;
/// A long selector weighs so many times its text.
const SELECTOR_WEIGHT: usize = 16;

/// A request past routing, authentication and limits.
pub(crate) struct Call {
    pub(crate) state: Arc<State>,
    pub(crate) context: Arc<RequestContext>,
    pub(crate) route: Route,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) query: Query,
    /// Taken by whoever reads it.
    pub(crate) body: Option<Unread>,
    /// What the body, and what is made of it, takes up.
    pub(crate) body_room: Option<Room>,
    /// The place this request holds.
    pub(crate) pass: Option<Pass>,
    /// When an ordinary request must have been answered.
    pub(crate) deadline: tokio::time::Instant,
    /// What clients put in front of paths in this plane.
    pub(crate) prefix: String,
    /// As the client wrote it.
    pub(crate) uri: http::Uri,
    /// What is noted of it, if something is.
    pub(crate) trace: Option<Arc<Trace>>,
}

impl Call {
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.method, Method::GET | Method::HEAD)
    }

    pub(crate) async fn answer(self) -> Result<Answer, Status> {
        match self.route.request() {
            Request::Resource(path) => self.resource(path).await,
            Request::Groups { core } => self.groups(core).await,
            Request::Group(group) => {
                self.authorize_path().await?;
                let catalog = self.state.registry.catalog(&self.context.plane).await?;
                let found = discovery::group(&catalog, &self.remote_names().await?, &group);
                let found = found.ok_or_else(Status::path_not_found)?;
                self.document_answer(&found, self.style()?)
            }
            Request::GroupVersion { group, version } => {
                self.authorize_path().await?;
                let catalog = self.state.registry.catalog(&self.context.plane).await?;
                let found = discovery::resource_list(&catalog, &group, &version);
                let found = found.ok_or_else(Status::path_not_found)?;
                self.document_answer(&found, self.style()?)
            }
            Request::Other(path) => self.other(&path).await,
        }
    }

    /// The style of answers that are documents of their own and have no other form.
    fn style(&self) -> Result<Style, Status> {
        let accepted = negotiate::accept(self.header(header::ACCEPT), Messages::None)?;
        Ok(Style::new(accepted.media, &self.headers, self.query.get("pretty")))
    }

    /// The style of documents that are JSON whatever the client says it can read.
    fn json_style(&self) -> Style {
        Style::new(Media::Json, &self.headers, self.query.get("pretty"))
    }

    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) async fn authorize_path(&self) -> Result<(), Status> {
        let verb = self.method.as_str().to_ascii_lowercase();
        let verb = if verb == "head" { "get".into() } else { verb };
        self.state.registry.authorize_path(&self.context, &verb, &self.route.path()).await?;
        if matches!(self.method, Method::GET | Method::HEAD) {
            Ok(())
        } else {
            Err(Status::method_not_allowed())
        }
    }

    async fn groups(self, core: bool) -> Result<Answer, Status> {
        self.authorize_path().await?;
        let catalog = self.state.registry.catalog(&self.context.plane).await?;
        let accepted = negotiate::accept(self.header(header::ACCEPT), Messages::None)?;
        if accepted.form == Form::Discovery {
            let tag = self.header(header::IF_NONE_MATCH);
            let remote = match &self.state.aggregator {
                Some(aggregator) if !core => Box::pin(aggregator.versions(&self.context.plane)).await?,
                _ => Vec::new(),
            };
            if remote.is_empty() {
                return Ok(discovery::aggregated(&catalog, core, tag));
            }
            // What others say is copied, and written.
            let told: usize = remote.iter().map(|version| version.bytes).sum();
            let room = self.room(2 * told + DISCOVERY_BYTES).await?;
            return Ok(roomy(discovery::aggregated_with(&catalog, &remote, tag), room));
        }
        let document = if core {
            discovery::core_versions(self.header(header::HOST).unwrap_or_default())
        } else {
            discovery::group_list(&catalog, &self.remote_names().await?)
        };
        self.document_answer(&document, self.style()?)
    }

    /// Group versions of the plane that other servers serve.
    async fn remote_names(&self) -> Result<Vec<RemoteVersion>, Status> {
        match &self.state.aggregator {
            Some(aggregator) => Box::pin(aggregator.names(&self.context.plane)).await,
            None => Ok(Vec::new()),
        }
    }

    async fn other(self, path: &str) -> Result<Answer, Status> {
        self.authorize_path().await?;
        let registry = &self.state.registry;
        let nothing = || Ok(answer::text(StatusCode::NOT_FOUND, "404 page not found\n"));
        let Some((page, part)) = Page::find(path) else { return nothing() };
        match page {
            Page::Paths => Ok(answer::value(StatusCode::OK, &paths(), self.json_style())),
            Page::Version => Ok(answer::value(StatusCode::OK, &crate::version(), self.json_style())),
            Page::Health => crate::health::answer(&self.state, path, &self.query).map_or_else(nothing, Ok),
            Page::Issuer => {
                let configuration = registry.issuer_configuration(&self.context.plane);
                Ok(for_verifiers(&configuration, "application/json"))
            }
            Page::IssuerKeys => {
                let keys = registry.issuer_keys(&self.context.plane)?;
                Ok(for_verifiers(&keys, "application/jwk-set+json"))
            }
            Page::Metrics => self.metrics().await,
            Page::Indicators => Ok(answer::text(StatusCode::OK, crate::health::indicators(&self.state))),
            Page::OpenApiV2 => {
                let catalog = registry.catalog(&self.context.plane).await?;
                let remote = match &self.state.aggregator {
                    Some(aggregator) => Box::pin(aggregator.swagger(&self.context.plane)).await?,
                    None => Vec::new(),
                };
                Ok(openapi::v2(&catalog, remote, &self.headers))
            }
            Page::OpenApiV3 if part.is_empty() => {
                let catalog = registry.catalog(&self.context.plane).await?;
                let remote = match &self.state.aggregator {
                    Some(aggregator) => Box::pin(aggregator.openapi(&self.context.plane)).await?,
                    None => Vec::new(),
                };
                self.document_answer(&openapi::v3_index(&catalog, &self.prefix, &remote), self.style()?)
            }
            Page::OpenApiV3 => {
                let catalog = registry.catalog(&self.context.plane).await?;
                let hash = self.query.get("hash");
                if let Some(found) = openapi::v3(&catalog, part, hash, &self.prefix, &self.headers) {
                    return Ok(found);
                }
                if let ["apis", group, version] = *part.split('/').collect::<Vec<_>>()
                    && self.state.aggregator.is_some()
                    && let Some(elsewhere) =
                        Box::pin(registry.extension(&self.context.plane, group, version)).await?
                {
                    return Box::pin(self.hand_on(&elsewhere)).await;
                }
                nothing()
            }
        }
    }

    async fn metrics(self) -> Result<Answer, Status> {
        let registry = &self.state.registry;
        let plane = &self.context.plane;
        if plane.id != PlaneId::CORE {
            let mut text = crate::metrics::of_plane(plane, &self.state.gates);
            let limits = [&plane.limits, &registry.options.default_limits];
            let requests_max = limits.map(|limits| limits.requests_in_flight);
            let requests_max = requests_max.into_iter().find(|max| *max > 0).unwrap_or(REQUESTS_MAX);
            text.push_str(&crate::metrics::of_levels(&*registry.flows(plane).await?, requests_max));
            return Ok(answer::text(StatusCode::OK, text));
        }
        // Numbers of the whole server: the provider's, not a tenant's.
        let text = {
            let counts = self.state.audit.as_ref().map(|audit| audit.counts());
            let now = (registry.options.clock)();
            self.state.metrics.keys(self.state.pki.ends(now), now);
            self.state.metrics.scrape(registry, &self.state.gates, counts)
        };
        let mut answer = answer::text(StatusCode::OK, text);
        let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
        Ok(answer)
    }

    /// Whether this client may ask for a resource that is not served here.
    pub(crate) async fn authorize_unknown(&self, path: &ResourcePath) -> Result<(), Status> {
        let verb = api_verb(&self.method, &self.route, &self.query);
        let resource = GroupResource::new(path.group.clone(), path.resource.clone());
        // Who looks for objects of one name needs no more than the right to that one.
        let looks = matches!(verb, "list" | "watch") && path.name.is_empty();
        let fields = self.query.get("fieldSelector").filter(|_| looks);
        let fields = fields.and_then(|text| FieldSelector::parse(text).ok());
        let only = fields.as_ref().and_then(|fields| fields.required_value("metadata.name"));
        let target = authz::Target::Resource {
            resource: &resource,
            version: &path.version,
            subresource: &path.subresource,
            namespace: &path.namespace,
            name: only.unwrap_or(&path.name),
        };
        let fields = fields.as_ref().map(FieldSelector::requirements).unwrap_or_default();
        let selectors = authz::Selectors { fields, labels: &[] };
        self.state.registry.authorize_selected(&self.context, verb, target, selectors).await
    }

    async fn resource(self, path: ResourcePath) -> Result<Answer, Status> {
        let found = self
            .state
            .registry
            .resolve(&self.context.plane, &path.group, &path.version, &path.resource)
            .await?;
        let Some((definition, version)) = found else {
            self.authorize_unknown(&path).await?;
            return Err(Status::path_not_found());
        };
        if !path.rest.is_empty() && path.subresource != "proxy" {
            return Err(Status::path_not_found());
        }
        if path.namespace.is_empty() && definition.namespaced && !path.name.is_empty() {
            return Err(Status::path_not_found());
        }
        if !path.namespace.is_empty() && !definition.namespaced {
            return Err(Status::path_not_found());
        }
        let reads = matches!(self.method, Method::GET | Method::HEAD);
        // All namespaces at once can be read, and nothing else: a forgotten namespace must not empty the plane.
        if path.namespace.is_empty() && definition.namespaced && !reads {
            let custom = definition.is_custom();
            return Err(if custom { Status::path_not_found() } else { Status::method_not_allowed() });
        }
        if path.watch_prefix && !reads {
            return Err(Status::method_not_allowed());
        }
        let watch = is_watch(&path, &self.query);
        let target = Target {
            definition,
            version,
            namespace: path.namespace,
            name: path.name,
            subresource: path.subresource,
        };
        if let Some(warning) = &target.served().deprecation {
            self.context.warn(warning.clone());
        }
        if !target.subresource.is_empty() {
            if target.served().subresource(&target.subresource).is_none() {
                // Upstream has a path for whatever follows a custom object, and finds nothing there.
                return Err(match target.definition.is_custom() {
                    true => Status::not_found(&target.definition.group_resource(), &target.name),
                    false => Status::path_not_found(),
                });
            }
            if crate::subresource::is_special(&target) {
                return crate::subresource::answer(self, target).await;
            }
        }
        match (self.method.clone(), target.name.is_empty()) {
            (Method::GET | Method::HEAD, _) if watch && target.subresource.is_empty() => {
                self.watch(target).await
            }
            (Method::GET | Method::HEAD, true) => self.list(target).await,
            (Method::GET | Method::HEAD, false) => self.get(target).await,
            (Method::POST, true) => self.create(target).await,
            (Method::PUT, false) => self.update(target).await,
            (Method::PATCH, false) => self.patch(target).await,
            (Method::DELETE, false) => self.delete(target).await,
            (Method::DELETE, true) => self.delete_collection(target).await,
            _ => Err(Status::method_not_allowed()),
        }
    }

    async fn get(self, target: Target) -> Result<Answer, Status> {
        polder_registry::write::check_verb(&target, "get")?;
        let draft = self.got(&target).await?;
        let len = draft.len();
        if let Some(room) = self.room(len).now_or_never() {
            return Ok(roomy(draft.answer(StatusCode::OK), room?));
        }
        drop(draft);
        // Whoever waits holds nothing meanwhile, and what was true before may not be afterwards.
        let room = self.room(len).await?;
        let draft = self.got(&self.again(&target).await?).await?;
        Ok(roomy(draft.answer(StatusCode::OK), room))
    }

    /// The object, written but for its style.
    async fn got(&self, target: &Target) -> Result<Draft, Status> {
        let (style, form) = self.negotiated(target)?;
        let version = self.query.get("resourceVersion").unwrap_or_default();
        let found = self.state.registry.get(&self.context, target, version).await?;
        Ok(Draft::new(self.presenter(target, form, style)?.object(found.body)?, style))
    }

    /// The target as it is defined today: a definition may change while somebody waits.
    async fn again(&self, target: &Target) -> Result<Target, Status> {
        let (definition, served) = (&target.definition, target.served());
        let registry = &self.state.registry;
        let found = registry
            .resolve(&self.context.plane, &definition.group, &served.name, &definition.plural)
            .await?;
        let (definition, version) = found.ok_or_else(Status::path_not_found)?;
        Ok(Target { definition, version, ..target.clone() })
    }

    /// Room for so much, and the target as it is defined when there is room.
    async fn room_for(&self, target: Target, bytes: usize) -> Result<(Option<Room>, Target), Status> {
        if let Some(room) = self.room(bytes).now_or_never() {
            return Ok((room?, target));
        }
        let room = self.room(bytes).await?;
        Ok((room, self.again(&target).await?))
    }

    /// Answers with a document that was made for this answer. Who holds one does not wait for room.
    fn document_answer(&self, document: &Value, style: Style) -> Result<Answer, Status> {
        let draft = answer::draft(document, style);
        let room = self.room_now(draft.len())?;
        Ok(roomy(draft.answer(StatusCode::OK), room))
    }

    /// Answers a write with the object. What has been done must be told, so if there is no room it is told without
    /// indentation, and counted.
    fn write_answer(
        &self,
        code: StatusCode,
        target: &Target,
        form: Form,
        style: Style,
        body: Answered,
    ) -> Result<Answer, Status> {
        let draft = Draft::new(self.presenter(target, form, style)?.object(body)?, style);
        if let Ok(room) = self.room_now(draft.len()) {
            return Ok(roomy(draft.answer(code), room));
        }
        let draft = draft.plain();
        let room = self.pass.as_ref().map(|pass| pass.count(draft.len()));
        Ok(roomy(draft.answer(code), room))
    }

    /// Room for what is there already; none is needed where nobody counts.
    fn room_now(&self, bytes: usize) -> Result<Option<Room>, Status> {
        self.pass.as_ref().map(|pass| pass.room_now(&self.context.plane, bytes)).transpose()
    }

    /// Room for what is about to be made or to arrive; none is needed where nobody counts.
    pub(crate) async fn room(&self, bytes: usize) -> Result<Option<Room>, Status> {
        match &self.pass {
            Some(pass) => pass.room(&self.context.plane, bytes, self.deadline).await.map(Some),
            None => Ok(None),
        }
    }

    /// Room for what this request's selectors are parsed into, if it is worth counting.
    fn selectors_room(&self) -> Result<Option<Room>, Status> {
        let len = |name: &str| self.query.get(name).map_or(0, str::len);
        let len = len("labelSelector") + len("fieldSelector");
        match (&self.pass, len.saturating_sub(SELECTORS_LEN_FREE).saturating_mul(SELECTOR_WEIGHT)) {
            (None, _) | (_, 0) => Ok(None),
            (Some(pass), weight) => pass.selectors_room(&self.context.plane, weight).map(Some),
        }
    }

    /// What one object may weigh in this plane.
    pub(crate) fn object_bytes_max(&self) -> usize {
        let default = self.state.registry.options.default_limits.object_bytes;
        let own = self.context.plane.limits.object_bytes;
        let limit = if own > 0 { own } else { default };
        match usize::try_from(limit) {
            Ok(limit) if limit > 0 => limit.min(body::BODY_BYTES_MAX),
            _ => body::BODY_BYTES_MAX,
        }
    }

    async fn list(mut self, target: Target) -> Result<Answer, Status> {
        let (style, _) = self.negotiated(&target)?;
        polder_registry::write::check_verb(&target, "list")?;
        // Held with the call, until the list has been sent.
        self.body_room = self.selectors_room()?;
        ListOptions::from_query(&self.query, &target)?;
        let (room, target) = self.room_for(target, list_answer::step_bytes(&self, style)).await?;
        let (style, form) = self.negotiated(&target)?;
        let options = ListOptions::from_query(&self.query, &target)?;
        let list = self.state.registry.listing(&self.context, &target, &options).await?;
        list_answer::answer(self, target, form, style, list, room).await
    }

    async fn watch(self, target: Target) -> Result<Answer, Status> {
        let (style, _) = self.negotiated(&target)?;
        let begins_with_state = WatchOptions::from_query(&self.query, &target)?.begins_with_state();
        let include = IncludeObject::parse(self.query.get("includeObject"))?;
        // Before anything is read: whoever may have no more watches may not make us read for them either.
        if let Some(pass) = &self.pass {
            pass.become_watch(&self.context.plane, &self.state.registry.options.default_limits)?;
        }
        let selectors = self.selectors_room()?;
        let step = list_answer::step_bytes(&self, style);
        let (room, target) = self.room_for(target, if begins_with_state { step } else { 0 }).await?;
        let (style, form) = self.negotiated(&target)?;
        let options = WatchOptions::from_query(&self.query, &target)?;
        let watch = self.state.registry.watch(self.context.clone(), &target, &options).await?;
        let room = room.map(Arc::new);
        let memory = stream::Memory { pass: self.pass.clone(), step, room, _selectors: selectors };
        Ok(stream::answer(self.state.clone(), watch, style.media, form, include, memory))
    }

    async fn create(mut self, target: Target) -> Result<Answer, Status> {
        let (style, form) = self.negotiated(&target)?;
        let options = self.write_options("CreateOptions")?;
        let document = self.document(&target).await?;
        let made = self.state.registry.create(&self.context, &target, document, &options).await?;
        if let (Some(trace), Answered::Stored(stored)) = (&self.trace, &made.body) {
            trace.named(&stored.name.name);
        }
        self.write_answer(StatusCode::CREATED, &target, form, style, made.body)
    }

    async fn update(mut self, target: Target) -> Result<Answer, Status> {
        let (style, form) = self.negotiated(&target)?;
        let options = self.write_options("UpdateOptions")?;
        let document = self.document(&target).await?;
        let made = self.state.registry.update(&self.context, &target, document, &options).await?;
        let code = if made.created { StatusCode::CREATED } else { StatusCode::OK };
        self.write_answer(code, &target, form, style, made.body)
    }

    async fn patch(mut self, target: Target) -> Result<Answer, Status> {
        let (style, form) = self.negotiated(&target)?;
        if self.media() == APPLY {
            return self.apply(target, form, style).await;
        }
        let options = self.write_options("PatchOptions")?;
        let kind = match self.media().as_str() {
            "application/json-patch+json" => PatchKind::Json,
            "application/merge-patch+json" => PatchKind::Merge,
            "application/strategic-merge-patch+json" => PatchKind::Strategic,
            _ => return Err(Status::unsupported_media_type(patch_types(&target))),
        };
        if self.query.get("force").is_some_and(|force| !force.is_empty()) {
            return Err(patch_refused(FieldError::forbidden(
                "force",
                "may not be specified for non-apply patch",
            )));
        }
        let bytes = self.take_body(&target).await?;
        let parsed = value::parse(&bytes)
            .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
        self.heard(&parsed.value);
        let patch = Document { value: parsed.value, duplicates: Duplicates::Fields(parsed.duplicates) };
        let made = self.state.registry.patch(&self.context, &target, kind, &patch, &options).await?;
        self.write_answer(StatusCode::OK, &target, form, style, made.body)
    }

    async fn apply(mut self, target: Target, form: Form, style: Style) -> Result<Answer, Status> {
        let options = WriteOptions::from_query(&self.query, "PatchOptions")?;
        if options.field_manager.is_none() {
            return Err(patch_refused(FieldError::required("fieldManager", "is required for apply patch")));
        }
        let force = if self.query.flag("force") { Force::Take } else { Force::Refuse };
        let bytes = self.take_body(&target).await?;
        let parsed = yaml::parse(&bytes)
            .map_err(|status| Status::bad_request(format!("error decoding YAML: {}", status.message)))?;
        let intent = match parsed.value {
            // An empty document says nothing, and that is no error yet.
            Value::Null => json!({}),
            intent @ Value::Object(_) => intent,
            other => {
                return Err(Status::bad_request(format!(
                    "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go \
                     value of type map[string]interface {{}}",
                    other.type_name()
                )));
            }
        };
        self.heard(&intent);
        if !parsed.repeated.is_empty() && options.field_validation == FieldValidation::Strict {
            return Err(Status::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: {}",
                Duplicates::Lines(parsed.repeated)
            )));
        }
        let made = self.state.registry.apply(&self.context, &target, &intent, force, &options).await?;
        if options.field_validation == FieldValidation::Warn {
            parsed.repeated.into_iter().for_each(|line| self.context.warn(line));
        }
        let code = if made.created { StatusCode::CREATED } else { StatusCode::OK };
        self.write_answer(code, &target, form, style, made.body)
    }

    /// The options of a write. A program that gives no name writes under its own.
    fn write_options(&self, kind: &'static str) -> Result<WriteOptions, Status> {
        let mut options = WriteOptions::from_query(&self.query, kind)?;
        if options.field_manager.is_none() {
            options.field_manager = self.header(header::USER_AGENT).and_then(manager_of);
        }
        Ok(options)
    }

    async fn delete(mut self, target: Target) -> Result<Answer, Status> {
        let (style, form) = self.negotiated(&target)?;
        let options = self.delete_options(&target).await?;
        match self.state.registry.delete(&self.context, &target, &options).await? {
            DeleteAnswer::Gone(status) => Ok(answer::value(StatusCode::OK, &status, style)),
            DeleteAnswer::Object(body) => self.write_answer(StatusCode::OK, &target, form, style, body),
        }
    }

    async fn delete_collection(mut self, target: Target) -> Result<Answer, Status> {
        let (style, form) = self.negotiated(&target)?;
        let list = ListOptions::from_query(&self.query, &target)?;
        let options = self.delete_options(&target).await?;
        // The list of what was deleted takes as long as the client does.
        self.context.set_pace(None);
        let registry = &self.state.registry;
        let (objects, resource_version) =
            registry.delete_collection(&self.context, &target, &list, &options).await?;
        let objects = Objects::given(objects);
        let list = Listing { resource_version, continue_token: None, remaining: None, objects };
        list_answer::answer(self, target, form, style, list, None).await
    }

    async fn delete_options(&mut self, target: &Target) -> Result<DeleteOptions, Status> {
        let bytes = self.take_body(target).await?;
        let body = match self.media().as_str() {
            _ if bytes.is_empty() => None,
            PROTOBUF => Some(protobuf::delete_options(&bytes)?.value),
            _ => Some(self.parse(&bytes, &[JSON, YAML, PROTOBUF])?.value),
        };
        body.iter().for_each(|body| self.heard(body));
        DeleteOptions::read(body.as_ref(), &self.query)
    }

    /// How this answer is written, and in which form. Questions have no metadata to make a table of.
    pub(crate) fn negotiated(&self, target: &Target) -> Result<(Style, Form), Status> {
        let accepted = negotiate::accept(self.header(header::ACCEPT), protobuf::messages(target))?;
        let transforms = matches!(accepted.form, Form::Table { .. } | Form::Metadata { .. });
        if transforms && !target.served().allows("get") && !target.served().allows("list") {
            return Err(Status::not_acceptable(&[JSON, YAML, PROTOBUF]));
        }
        let form = if accepted.form == Form::Discovery { Form::Whole } else { accepted.form };
        Ok((Style::new(accepted.media, &self.headers, self.query.get("pretty")), form))
    }

    pub(crate) fn presenter<'a>(
        &'a self,
        target: &'a Target,
        form: Form,
        style: Style,
    ) -> Result<Presenter<'a>, Status> {
        Ok(Presenter {
            state: &self.state,
            context: &self.context,
            target,
            form,
            media: style.media,
            include: IncludeObject::parse(self.query.get("includeObject"))?,
        })
    }

    /// The media type of the body, in small letters.
    fn media(&self) -> String {
        let content_type = self.header(header::CONTENT_TYPE).unwrap_or_default();
        content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// The body of a write, when there is room for it, for the object it is about, and for what both are parsed into.
    pub(crate) async fn take_body(&mut self, target: &Target) -> Result<Bytes, Status> {
        let Some(body) = self.body.clone() else { return Ok(Bytes::new()) };
        let stored = match target.name.as_str() {
            "" => 0,
            _ => self.state.registry.weigh(&self.context, target, parsed_bytes).await,
        };
        let expected = body.bytes_expected().saturating_mul(TEXT_WEIGHT).saturating_add(stored);
        let room = self.room(expected.min(ORDINARY_BYTES)).await?;
        let bytes = body::read(&body).await?;
        let own = if self.media() == PROTOBUF { message_bytes(&bytes) } else { parsed_bytes(&bytes) };
        let weight = own.saturating_add(stored);
        if let Some(room) = &room {
            room.set(weight.min(ORDINARY_BYTES));
        }
        // What the body is parsed into is there until the request has been answered.
        self.body_room = room;
        if let Some(turn) = self.state.heavy.enter(self.context.plane.id, weight).await {
            // Held as long as the context is.
            self.context.set_pace(Some(Arc::new(turn)));
        }
        Ok(bytes)
    }

    /// The object in the body. Custom resources have no messages.
    pub(crate) async fn document(&mut self, target: &Target) -> Result<Document, Status> {
        let bytes = self.take_body(target).await?;
        let document = match self.media().as_str() {
            _ if protobuf::messages(target) != Messages::All => self.parse(&bytes, &[JSON, YAML]),
            PROTOBUF => protobuf::document(&bytes, target),
            _ => self.parse(&bytes, &[JSON, YAML, PROTOBUF]),
        }?;
        self.heard(&document.value);
        Ok(document)
    }

    /// Notes what the client sent, if that is noted.
    fn heard(&self, object: &Value) {
        if let Some(trace) = &self.trace {
            trace.heard(object);
        }
    }

    fn parse(&self, bytes: &[u8], accepted: &[&str]) -> Result<Document, Status> {
        match self.media().as_str() {
            "" | JSON => {
                let parsed = value::parse(bytes).map_err(|error| {
                    Status::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
                })?;
                Ok(Document { value: parsed.value, duplicates: Duplicates::Fields(parsed.duplicates) })
            }
            YAML => {
                let yaml::Parsed { value, repeated } = yaml::parse(bytes)?;
                Ok(Document { value, duplicates: Duplicates::Lines(repeated) })
            }
            _ => Err(Status::unsupported_media_type(accepted)),
        }
    }
}

/// An answer with what was set aside for it.
fn roomy(mut answer: Answer, room: Option<Room>) -> Answer {
    answer.body_mut().set_room(room);
    answer
}

fn patch_refused(error: FieldError) -> Status {
    let kind = GroupKind { group: "meta.k8s.io".into(), kind: "PatchOptions".into() };
    Status::invalid(&kind, "", &[error])
}

fn patch_types(target: &Target) -> &'static [&'static str] {
    if target.definition.is_custom() {
        &["application/json-patch+json", "application/merge-patch+json", APPLY]
    } else {
        &[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
            APPLY,
        ]
    }
}

/// Something that others may keep for a while.
fn for_verifiers(value: &Value, content_type: &'static str) -> Answer {
    let mut answer = answer::text(StatusCode::OK, value.to_string());
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    answer
}

/// What `/` answers.
fn paths() -> Value {
    let pages = PAGES.iter().filter(|(_, page)| *page != Page::Paths).map(|(path, _)| *path);
    let mut paths: Vec<&str> = pages.chain(["/api", "/apis"]).collect();
    paths.sort_unstable();
    let paths: Vec<Value> = paths.into_iter().map(Value::from).collect();
    json!({"paths": paths})
}

/// What a server has under way at most that says nothing else, upstream.
const REQUESTS_MAX: u64 = 600;

/// The verb of a request, for metrics: one of a fixed set.
pub(crate) fn verb(method: &Method, route: &Route, query: &Query) -> &'static str {
    let named = match route.request() {
        Request::Resource(path) => {
            if is_watch(&path, query) {
                return "WATCH";
            }
            !path.name.is_empty()
        }
        _ => true,
    };
    match (method.as_str(), named) {
        ("GET" | "HEAD", false) => "LIST",
        ("GET" | "HEAD", true) => "GET",
        ("POST", _) => "POST",
        ("PUT", _) => "PUT",
        ("PATCH", _) => "PATCH",
        ("DELETE", false) => "DELETECOLLECTION",
        ("DELETE", true) => "DELETE",
        _ => "OTHER",
    }
}

/// The verb of a request, as authorizers know it.
pub(crate) fn api_verb(method: &Method, route: &Route, query: &Query) -> &'static str {
    named(verb(method, route, query))
}

/// A verb as rules spell it.
pub(crate) fn named(verb: &'static str) -> &'static str {
    match verb {
        "WATCH" => "watch",
        "LIST" => "list",
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETECOLLECTION" => "deletecollection",
        "DELETE" => "delete",
        _ => "other",
    }
}

/// A collection is watched when the query says so; one object only by the old prefix.
fn is_watch(path: &ResourcePath, query: &Query) -> bool {
    path.watch_prefix || (path.name.is_empty() && query.flag("watch"))
}

/// Whether a request goes on for as long as its client likes, and so has no deadline.
pub(crate) fn is_long_running(route: &Route, query: &Query) -> bool {
    match route.request() {
        Request::Resource(path) => {
            let streams = ["attach", "exec", "proxy", "log", "portforward", "export", "import"];
            is_watch(&path, query) || streams.contains(&path.subresource.as_str())
        }
        _ => false,
    }
}

/// For failures, whatever was negotiated for the answer.
pub(crate) fn failure_style(headers: &HeaderMap) -> Style {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    Style { gzip: false, ..Style::new(negotiate::accept_failure(accept), headers, None) }
}
