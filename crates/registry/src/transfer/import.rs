//! In: lines become the contents of a plane.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use polder_auth::UserInfo;
use polder_model::{GroupKind, GroupVersion, PlaneId, SmolStr, Status, Value, json, value};
use polder_store::{
    Change, CommitError, Expect, Key, ListQuery, ObjectName, Plane, PlaneChange, ResourceId, Revision, Write,
};
use sha2::{Digest as _, Sha256};

use crate::bootstrap;
use crate::context::{RequestContext, WriteOptions};
use crate::custom;
use crate::definition::{ResourceDefinition, Target};
use crate::finalize::Chore;
use crate::metadata;
use crate::registry::{Registry, convert};
use crate::status::{commit_failed, plane_not_found, read_failed};
use crate::transfer::{API_VERSION, END_KIND, FORMAT_VERSION, HEADER_KIND, IMPORT_KIND};

/// What one commit writes at most.
const CHUNK_LEN_MAX: usize = 256;
const CHUNK_BYTES_MAX: usize = 2 << 20;
/// Resource versions stay far from where numbers end.
const RESOURCE_VERSION_MAX: u64 = 1 << 62;

/// An import on its way: feed it lines, then finish it. Dropped before that, the plane is marked as incomplete.
pub struct Import {
    registry: Arc<Registry>,
    /// Who asked, in the core plane, and the `Plane` object there.
    context: Arc<RequestContext>,
    target: Target,
    /// The plane that is filled.
    inside: RequestContext,
    kinds: HashMap<GroupKind, Arc<ResourceDefinition>>,
    /// What the plane started with and the file has not mentioned yet.
    base: HashMap<(ResourceId, ObjectName), Revision>,
    chunk: Vec<Write>,
    chunk_bytes: usize,
    /// The store expects each object once in a commit.
    chunk_names: HashSet<(ResourceId, ObjectName)>,
    /// The chunk changes what the plane serves.
    chunk_defines: bool,
    /// Something in it is being deleted, which must go on here.
    unfinished: bool,
    hash: Sha256,
    lines: u64,
    objects: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The header comes next. Nothing has been written.
    Header,
    Objects,
    /// The last line was right; nothing may follow.
    Ended,
    /// Finished or failed, and said so.
    Over,
}

impl Registry {
    /// Begins an import into the plane the target names; the target is the `import` subresource.
    pub async fn import(
        self: &Arc<Self>,
        context: Arc<RequestContext>,
        target: &Target,
    ) -> Result<Import, Status> {
        self.authorize(&context, "create", target).await?;
        let planes = target.definition.group_resource();
        // Controllers must know of it, and they run there.
        if self.store.is_shared() && !self.store.leads() {
            return Err(Status::unavailable(
                "imports are taken by the replica that leads: send this to the one whose metric polder_replica_leads is 1",
            ));
        }
        self.catch_up(&context.plane).await?;
        let whole = Target { subresource: Default::default(), ..target.clone() };
        self.must_find(&context, &whole).await?;
        let plane = self.store.plane(&target.name).ok_or_else(|| plane_not_found(&target.name))?;
        if plane.id == PlaneId::CORE {
            return Err(Status::forbidden(
                &planes,
                &target.name,
                "nothing can be imported into the core plane",
            ));
        }
        let not_fresh = |why| Status::conflict(&planes, &target.name, why);
        if !self.importing.lock().insert(plane.id) {
            return Err(not_fresh("another import into this plane is under way"));
        }
        let kinds = self.base(&plane).definitions();
        let mut import = Import {
            registry: self.clone(),
            context,
            target: whole,
            inside: RequestContext::new(plane.clone(), UserInfo::system()),
            kinds: kinds.map(|definition| (definition.group_kind(), definition.clone())).collect(),
            base: HashMap::new(),
            chunk: Vec::new(),
            chunk_bytes: 0,
            chunk_names: HashSet::new(),
            chunk_defines: false,
            unfinished: false,
            hash: Sha256::new(),
            lines: 0,
            objects: 0,
            state: State::Header,
        };
        let untouched = self.store.is_untouched(&plane).await;
        if !untouched.map_err(|error| read_failed(&plane, error))? {
            return Err(not_fresh(
                "it already holds objects of its own: an import needs a plane that was just created",
            ));
        }
        import.base = self.everything_in(&plane).await?;
        Ok(import)
    }

    async fn everything_in(
        &self,
        plane: &Arc<Plane>,
    ) -> Result<HashMap<(ResourceId, ObjectName), Revision>, Status> {
        let mut found = HashMap::new();
        for definition in self.base(plane).definitions() {
            let resource = definition.resource_id;
            let page = self
                .store
                .list(plane, ListQuery::all(resource))
                .await
                .map_err(|error| read_failed(plane, error))?;
            found
                .extend(page.objects.iter().map(|object| ((resource, object.name.clone()), object.revision)));
        }
        Ok(found)
    }

    /// Says on the `Plane` object how its contents are.
    async fn set_phase(
        &self,
        context: &RequestContext,
        plane: &Target,
        phase: &str,
        ready: bool,
        message: &str,
    ) -> Result<(), Status> {
        let now = self.now();
        let (status, reason) = if ready { ("True", "Imported") } else { ("False", phase) };
        let condition = json!({
            "type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
        });
        let target = Target { subresource: SmolStr::new_static("status"), ..plane.clone() };
        let change = |object: &mut Value| {
            let mut conditions = object.array_at(&["status", "conditions"]).to_vec();
            conditions.retain(|one| one.str_at(&["type"]) != Some("Ready"));
            conditions.push(condition.clone());
            object.set_at(&["status", "phase"], phase);
            object.set_at(&["status", "conditions"], conditions);
            Ok(())
        };
        self.modify_with(context, &target, &WriteOptions::default(), change).await.map(drop)
    }
}

impl Import {
    /// Takes the next line, without its line break.
    pub async fn line(&mut self, line: &[u8]) -> Result<(), Status> {
        match self.take(line).await {
            Ok(()) => Ok(()),
            Err(status) => Err(self.fail(status).await),
        }
    }

    /// All lines have been given. Answers with what was imported.
    pub async fn finish(mut self) -> Result<Value, Status> {
        match self.complete().await {
            Ok(summary) => Ok(summary),
            Err(status) => Err(self.fail(status).await),
        }
    }

    /// Ends the import because of something outside of it: the client went away, a line was too long.
    pub async fn fail(&mut self, mut status: Status) -> Status {
        let started = matches!(self.state, State::Objects | State::Ended);
        self.state = State::Over;
        status.message = format!("line {}: {}", self.lines.max(1), status.message);
        if started {
            let name = &self.target.name;
            let why = status.message.clone();
            let marked =
                self.registry.set_phase(&self.context, &self.target, "ImportFailed", false, &why).await;
            if let Err(error) = marked {
                tracing::warn!(plane = %name, %error, "cannot mark a plane as incompletely imported");
            }
            status.message.push_str(&format!(
                "; plane {name} holds only a part of the file: delete it (polder plane delete {name}) and import again"
            ));
        }
        status
    }

    async fn take(&mut self, line: &[u8]) -> Result<(), Status> {
        self.lines += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            // Behind the end it means nothing; before it, the checksum knows whether it belongs there.
            self.hash.update(line);
            self.hash.update(b"\n");
            return Ok(());
        }
        if self.state == State::Ended {
            return Err(Status::bad_request("something follows the end of the export"));
        }
        let parsed =
            value::parse(line).map_err(|error| Status::bad_request(format!("this is not JSON: {error}")))?;
        if let Some(path) = parsed.duplicates.first() {
            return Err(Status::bad_request(format!("duplicate field {path:?}")));
        }
        let value = parsed.value;
        let is_end = value.str_at(&["kind"]) == Some(END_KIND) && value.get("apiVersion").is_none();
        if is_end && self.state == State::Objects {
            return self.end(&value).await;
        }
        self.hash.update(line);
        self.hash.update(b"\n");
        match self.state {
            State::Header => self.header(&value).await,
            _ => self.object(value).await,
        }
    }

    async fn header(&mut self, header: &Value) -> Result<(), Status> {
        let found = (header.str_at(&["kind"]), header.str_at(&["apiVersion"]));
        if found != (Some(HEADER_KIND), Some(API_VERSION)) {
            return Err(Status::bad_request("this is not the header of a plane export"));
        }
        if header.i64_at(&["formatVersion"]) != Some(FORMAT_VERSION) {
            return Err(Status::bad_request(format!(
                "this export has another format than {FORMAT_VERSION}, the only one this server knows"
            )));
        }
        let above = header.str_at(&["resourceVersion"]).and_then(|text| text.parse().ok());
        let above = above.filter(|above: &u64| *above < RESOURCE_VERSION_MAX);
        let above = above.ok_or_else(|| Status::bad_request("the header has no usable resourceVersion"))?;
        self.registry
            .set_phase(&self.context, &self.target, "Importing", false, "contents are being imported")
            .await?;
        self.state = State::Objects;
        let plane = Some(PlaneChange::RaiseVersions { plane: self.inside.plane.id, above });
        let raised = self.registry.store.commit(Change { plane, ..Change::default() }).await;
        raised.map_err(|error| self.commit_failed(error))?;
        Ok(())
    }

    async fn object(&mut self, mut value: Value) -> Result<(), Status> {
        let kind = SmolStr::new(value.str_at(&["kind"]).unwrap_or_default());
        let api_version = value.str_at(&["apiVersion"]).unwrap_or_default();
        if kind == "Status" && api_version == "v1" {
            let why = value.str_at(&["message"]).unwrap_or_default();
            return Err(Status::bad_request(format!("the export failed when it was made: {why}")));
        }
        let version =
            GroupVersion::parse(api_version).filter(|_| !kind.is_empty() && !api_version.is_empty());
        let version = version.ok_or_else(|| Status::bad_request("an object without kind and apiVersion"))?;
        let definition = self.kinds.get(&GroupKind { group: version.group.clone(), kind: kind.clone() });
        let definition = definition.cloned().filter(|definition| {
            let is_known = definition.version(&version.version).is_some();
            definition.storage == version || is_known || definition.keeps(&version.version)
        });
        let definition = definition.ok_or_else(|| {
            Status::bad_request(format!(
                "nothing here serves {kind} of {version}; a CustomResourceDefinition comes before its objects"
            ))
        })?;
        let text = |field: &str| SmolStr::new(value.str_at(&["metadata", field]).unwrap_or_default());
        let (namespace, name) = (text("namespace"), text("name"));
        let served = definition.version(&version.version).unwrap_or(0);
        let target = Target {
            definition: definition.clone(),
            version: served,
            namespace: namespace.clone(),
            name: name.clone(),
            subresource: SmolStr::default(),
        };
        check_object(&value, &target)?;
        convert(&target, &mut value, &version, &definition.storage);
        self.note(&target, &value)?;
        // What is imported was stored under a schema that may have changed since: it is taken as it would be read.
        let record = match definition.keeps(&version.version) {
            true => definition.to_kept(&version.version, &value),
            false => definition.to_stored("", &value),
        };
        self.registry.check_size(&self.inside, &target, &record)?;
        let (resource, name) = (definition.resource_id, ObjectName::new(namespace, name));
        let own = self.base.remove(&(resource, name.clone()));
        if own.is_some() && bootstrap::is_of_site(&definition.group_resource(), &name) {
            self.objects += 1;
            return Ok(());
        }
        let expect = match own {
            Some(revision) => Expect::At(revision),
            None => Expect::Absent,
        };
        if !self.chunk_names.insert((resource, name.clone())) {
            return Err(self.written_twice(&name));
        }
        self.chunk_bytes += record.len();
        let key = Key { plane: self.inside.plane.id, resource, name };
        self.chunk.push(Write { key, record: Some(record), expect });
        self.objects += 1;
        if self.chunk.len() >= CHUNK_LEN_MAX || self.chunk_bytes >= CHUNK_BYTES_MAX {
            self.flush().await?;
        }
        Ok(())
    }

    /// What an object means for the rest of the import, and what must go on after it.
    fn note(&mut self, target: &Target, value: &Value) -> Result<(), Status> {
        let deleted = value.at(&["metadata", "deletionTimestamp"]).is_some();
        if target.definition.resource_id == self.registry.crds {
            self.chunk_defines = true;
            match custom::served_definition(&self.registry, value) {
                Some(definition) => {
                    self.kinds.entry(definition.group_kind()).or_insert(definition);
                }
                None if custom::is_established(value) => {
                    let name = &target.name;
                    return Err(Status::bad_request(format!("the definition {name} cannot be served")));
                }
                None => {}
            }
        }
        if deleted && custom::chore(&self.registry, target).is_some() && !self.unfinished {
            self.unfinished = true;
            self.chunk.push(self.registry.chore_mark(&self.inside.plane));
        }
        Ok(())
    }

    /// The last line: is everything here?
    async fn end(&mut self, end: &Value) -> Result<(), Status> {
        let objects = end.i64_at(&["objects"]).and_then(|objects| u64::try_from(objects).ok());
        if objects != Some(self.objects) {
            return Err(Status::bad_request(format!(
                "the export says it has {} objects, but {} came",
                objects.unwrap_or_default(),
                self.objects
            )));
        }
        let digest = custom::hex(&self.hash.clone().finalize());
        if end.str_at(&["sha256"]) != Some(digest.as_str()) {
            return Err(Status::bad_request("the checksum is wrong: the export was damaged or changed"));
        }
        self.state = State::Ended;
        self.flush().await?;
        // What every plane starts with and this one had deleted.
        let leftovers: Vec<_> = self.base.drain().collect();
        for ((resource, name), revision) in leftovers {
            let key = Key { plane: self.inside.plane.id, resource, name };
            self.chunk.push(Write { key, record: None, expect: Expect::At(revision) });
            if self.chunk.len() >= CHUNK_LEN_MAX {
                self.flush().await?;
            }
        }
        self.flush().await
    }

    async fn complete(&mut self) -> Result<Value, Status> {
        match self.state {
            State::Ended => {}
            State::Header => return Err(Status::bad_request("the body is empty")),
            _ => return Err(Status::bad_request("the export ends early: its last line is missing")),
        }
        self.registry.set_phase(&self.context, &self.target, "Ready", true, "").await?;
        self.state = State::Over;
        if self.unfinished {
            self.registry.add_chore(self.inside.plane.id, Chore::Look);
        }
        let plane = self.registry.store.plane_by_id(self.inside.plane.id);
        let version = plane.map(|plane| plane.resource_version(self.registry.store.current()));
        Ok(json!({
            "kind": IMPORT_KIND, "apiVersion": API_VERSION, "metadata": {"name": (self.target.name.clone())},
            "objects": (i64::try_from(self.objects).unwrap_or(i64::MAX)),
            "resourceVersion": (version.unwrap_or_default().to_string()),
        }))
    }

    async fn flush(&mut self) -> Result<(), Status> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        self.chunk_bytes = 0;
        self.chunk_names.clear();
        let change = Change { writes: std::mem::take(&mut self.chunk), ..Change::default() };
        let committed = self.registry.store.commit(change).await;
        committed.map_err(|error| self.commit_failed(error))?;
        self.registry.extensions.forget(self.inside.plane.id);
        if std::mem::take(&mut self.chunk_defines) {
            self.registry.customs.forget(self.inside.plane.id);
        }
        self.registry.rulebooks.forget(self.inside.plane.id);
        self.registry.roles.forget(self.inside.plane.id);
        self.registry.nodes.forget(self.inside.plane.id);
        self.registry.flows.forget(self.inside.plane.id);
        self.registry.issuers.forget_bootstrap(self.inside.plane.id);
        Ok(())
    }

    fn written_twice(&self, name: &ObjectName) -> Status {
        let why = format!("{name} is in the file twice, or somebody else writes to the plane");
        Status::conflict(&self.target.definition.group_resource(), &self.target.name, &why)
    }

    fn commit_failed(&self, error: CommitError) -> Status {
        let planes = self.target.definition.group_resource();
        match error {
            CommitError::Conflict { key, .. } => self.written_twice(&key.name),
            error => commit_failed(&self.inside.plane, &planes, &self.target.name, error),
        }
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        self.registry.importing.lock().remove(&self.inside.plane.id);
        if matches!(self.state, State::Objects | State::Ended) {
            let (registry, context, target) =
                (self.registry.clone(), self.context.clone(), self.target.clone());
            let mark = async move {
                let why = "the client went away during the import";
                registry.set_phase(&context, &target, "ImportFailed", false, why).await.ok();
            };
            self.registry.tasks.spawn(mark);
        }
    }
}

/// An export holds what was stored, which was checked when it was written. This checks what others rely on.
fn check_object(value: &Value, target: &Target) -> Result<(), Status> {
    let mut errors = Vec::new();
    metadata::validate(value, None, target, &mut errors);
    if !errors.is_empty() {
        return Err(Status::invalid(&target.definition.error_kind(), &target.name, &errors));
    }
    let kind = &target.definition.kind;
    let name = &target.name;
    for field in ["uid", "creationTimestamp"] {
        if value.str_at(&["metadata", field]).is_none_or(str::is_empty) {
            return Err(Status::bad_request(format!("{kind} {name:?} has no metadata.{field}")));
        }
    }
    if target.definition.namespaced == target.namespace.is_empty() {
        let has = if target.definition.namespaced { "needs a namespace" } else { "cannot have a namespace" };
        return Err(Status::bad_request(format!("{kind} {name:?} {has}")));
    }
    if let Some(problem) = polder_model::names::dns_label_problem(&target.namespace)
        && target.definition.namespaced
    {
        return Err(Status::bad_request(format!("the namespace of {kind} {name:?} is no name: {problem}")));
    }
    Ok(())
}
