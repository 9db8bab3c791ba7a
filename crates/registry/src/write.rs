//! Create, update and patch: one pipeline. Decode, default, put back what clients cannot change, validate, commit; a
//! write without a resource version starts over when somebody else was faster.

use polder_machinery::apply::{Force, keep_times};
use polder_machinery::patch::{
    PatchError, apply_json_patch, apply_merge_patch, apply_strategic_merge_patch, strategic_patch_text,
};
use polder_model::{FieldError, GroupKind, GroupResource, Object, Reason, SmolStr, Status, Value};
use polder_store::{
    Change, CommitError, Committed, Expect, Key, ObjectName, PlaneChange, Record, StoredObject, Write,
};
use std::sync::Arc;

use polder_admission::Operation;

use crate::admission::shown_name;
use crate::allotment::Allotment;
use crate::behavior::Occasion;
use crate::context::{FieldValidation, Reading, RequestContext, WriteOptions};
use crate::decode::{self, Document, Duplicates};
use crate::definition::{Origin, Target};
use crate::finalize::{begins_to_go, is_marked};
use crate::identity::{check_missing_uid, check_name, check_same_kind, check_same_uid, check_uid, uid};
use crate::metadata;
use crate::registry::{Answered, ObjectAnswer, Registry, convert, needs_conversion};
use crate::status::{commit_failed, read_failed};
use crate::{custom, planes, scale};

/// How often a write without a resource version starts over before the client is told.
pub(crate) const ATTEMPTS_MAX: usize = 32;
/// How often a generated name may turn out to be taken.
const GENERATED_NAMES_MAX: usize = 8;

/// How a patch is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    Json,
    Merge,
    Strategic,
}

/// Where the new state of an object comes from.
enum Source<'a> {
    /// A whole object.
    Put(Value),
    /// A change to what is there.
    Patch(PatchKind, &'a Value, Duplicates),
    /// What somebody wants the object to say, whatever others want.
    Apply(&'a Value, Force),
}

impl Registry {
    pub async fn create(
        &self,
        context: &RequestContext,
        target: &Target,
        document: Document,
        options: &WriteOptions,
    ) -> Result<ObjectAnswer, Status> {
        self.authorize(context, "create", target).await?;
        check_verb(target, "create")?;
        if target.definition.terminating {
            let name = document.value.str_at(&["metadata", "name"]).unwrap_or_default();
            custom::refuse_terminating(self, context, &target.with_name(&target.namespace, name)).await?;
        }
        let mut value = decode::decode(context, target, document, options.field_validation)?;
        if target.definition.group.is_empty() && target.definition.plural == "bindings" {
            let answer = self.bind_named(context, target, &value, options).await?;
            return Ok(ObjectAnswer { body: Answered::Made(answer), created: true });
        }
        if crate::reviews::is_question(target) {
            let operation = Operation::Create;
            metadata::check_namespace(&mut value, target)?;
            self.admit(context, target, operation, &mut value, None, options.into()).await?;
            crate::reviews::validate(target, &value)?;
            self.judge(context, target, operation, Some(&value), None, options.into()).await?;
            if let Some(answer) = crate::reviews::answer(self, context, target, &value).await? {
                return Ok(ObjectAnswer { body: Answered::Made(answer), created: true });
            }
        }
        if value.str_at(&["metadata", "resourceVersion"]).is_some_and(|version| !version.is_empty()) {
            return Err(Status::untyped(500, "resourceVersion should not be set on objects to be created"));
        }
        self.note_created(context, target, &mut value, options).await;
        self.create_decoded(context, target, value, options).await
    }

    async fn create_decoded(
        &self,
        context: &RequestContext,
        target: &Target,
        mut value: Value,
        options: &WriteOptions,
    ) -> Result<ObjectAnswer, Status> {
        let behavior = target.definition.behavior;
        let now = self.now();
        metadata::prepare_create(&mut value, target, &now, uuid::Uuid::new_v4())?;
        if target.served().subresource("status").is_some() && !behavior.status_on_create {
            value.remove_at(&["status"]);
            if target.definition.is_custom() {
                // What the client may not set still has its default.
                decode::default(target, &mut value)?;
            }
        }
        let _turn = custom::turn(self, context, target).await;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut candidate = value.clone();
            let guards = self.namespace_guard(context, target, &candidate).await?;
            self.admit(context, target, Operation::Create, &mut candidate, None, options.into()).await?;
            (behavior.prepare_create)(&mut candidate);
            (behavior.sign)(&mut candidate, &Occasion { user: &context.user, now: &now, part: "" });
            let generated = metadata::generate_name(&mut candidate, uuid::Uuid::new_v4());
            let name = SmolStr::new(candidate.str_at(&["metadata", "name"]).unwrap_or_default());
            let target = target.with_name(&target.namespace, &name);
            custom::prepare(self, context, &target, &mut candidate, None).await?;
            planes::prepare(self, context, &target, &mut candidate);
            self.measure_quota(context, &target, &mut candidate, None).await?;
            self.check_escalation(context, &target, &candidate, None).await?;
            self.validate(context, &target, &candidate, None)?;
            self.settle_rules(context, &target, &mut candidate, None).await?;
            let allotted = self.allot_judged(context, &target, &mut candidate, None).await?;
            self.judge(context, &target, Operation::Create, Some(&candidate), None, options.into()).await?;
            let outcome = self.commit_new(context, &target, candidate, (guards, allotted), options).await;
            match outcome {
                Err(CreateError::Exists) if generated && attempt < GENERATED_NAMES_MAX => {}
                Err(CreateError::Exists) => {
                    let prefix = value.str_at(&["metadata", "generateName"]).unwrap_or_default();
                    return Err(self.exists(context, &target, !prefix.is_empty()).await);
                }
                Err(CreateError::HolderChanged) if attempt < ATTEMPTS_MAX => {}
                Err(CreateError::HolderChanged) => {
                    return Err(Status::modified(&target.definition.group_resource(), &name));
                }
                Err(CreateError::Status(status)) => return Err(*status),
                Ok(body) => return Ok(ObjectAnswer { body, created: true }),
            }
        }
    }

    /// Says that an object is there already, and if it will not be for long.
    async fn exists(&self, context: &RequestContext, target: &Target, prefixed: bool) -> Status {
        let mut status = Status::already_exists(&target.definition.group_resource(), &target.name);
        if prefixed {
            status.message.push_str(", the server was not able to generate a unique name for the object");
            status = status.with_retry_after(1);
        }
        if let Ok(Some(found)) = self.find(context, target).await
            && is_marked(&found.record)
        {
            status.message.insert_str(0, "object is being deleted: ");
        }
        status
    }

    /// One try to store a new object.
    async fn commit_new(
        &self,
        context: &RequestContext,
        target: &Target,
        mut value: Value,
        (mut guards, allotted): (Vec<(Key, Expect)>, Allotment),
        options: &WriteOptions,
    ) -> Result<Answered, CreateError> {
        guards.extend(custom::guard(self, context, target).await?);
        let key = self.key(context, target);
        let plane = planes::change(self, context, target, Some(&value), None)?;
        let record = self.fitted(context, target, &mut value).await?;
        let shown = self.shown(context, target, &record).await?;
        let account = self.account(context, target, Some(&value), None, options.dry_run).await?;
        if options.dry_run {
            if self.find(context, target).await?.is_some() {
                return Err(CreateError::Exists);
            }
            let mut value =
                self.as_if_stored(context, target, value, &shown, polder_store::Revision::default())?;
            value.remove_at(&["metadata", "resourceVersion"]);
            return Ok(Answered::Made(value));
        }
        let mut writes =
            vec![Write { key: key.clone(), record: Some(record.clone()), expect: Expect::Absent }];
        let renewals = planes::renewal(self, plane.as_ref()).into_iter().collect();
        writes.extend(self.namespace_contents(context, target));
        writes.extend(account.writes.iter().cloned());
        writes.extend(allotted.writes.iter().cloned());
        let change = Change { writes, guards, plane, renewals };
        match self.store.commit(change).await {
            Ok(committed) => {
                let revision = committed.revision;
                custom::committed(self, context, target, revision, Some(&value));
                planes::warn_if_full(context, committed.plane.as_deref());
                // The space is of no interest to whoever answers a client.
                let space = context.plane.overlay();
                let stored = Arc::new(StoredObject { name: key.name, revision, space, record: shown });
                Ok(self.answer(context, target, stored)?)
            }
            Err(CommitError::Conflict { key: other, .. }) if other == key => Err(CreateError::Exists),
            Err(CommitError::Conflict { key: other, .. }) => {
                if other.resource == self.crds {
                    self.customs.forget(context.plane.id);
                }
                Err(CreateError::HolderChanged)
            }
            Err(error) => {
                Err(commit_failed(&context.plane, &target.definition.group_resource(), &target.name, error)
                    .into())
            }
        }
    }

    /// A namespace must be there, not on its way out, and stay so until the object is stored.
    async fn namespace_guard(
        &self,
        context: &RequestContext,
        target: &Target,
        object: &Value,
    ) -> Result<Vec<(Key, Expect)>, Status> {
        if !target.definition.namespaced {
            return Ok(Vec::new());
        }
        let name = ObjectName::cluster(target.namespace.clone());
        let found = self.store.get(&context.plane, self.namespaces, &name).await;
        let found = found.map_err(|error| read_failed(&context.plane, error))?;
        let Some(namespace) = found else {
            return Err(Status::not_found(&GroupResource::new("", "namespaces"), &target.namespace));
        };
        if is_marked(&namespace.record) {
            let place = &target.namespace;
            let why =
                format!("unable to create new content in namespace {place} because it is being terminated");
            let name = shown_name(target, Some(object));
            let status = Status::forbidden(&target.definition.group_resource(), &name, &why);
            let cause = format!("namespace {place} is being terminated");
            return Err(status.with_cause("NamespaceTerminating", cause, "metadata.namespace"));
        }
        let key = Key { plane: context.plane.id, resource: self.namespaces, name };
        Ok(vec![(key, Expect::At(namespace.revision))])
    }

    pub async fn update(
        &self,
        context: &RequestContext,
        target: &Target,
        document: Document,
        options: &WriteOptions,
    ) -> Result<ObjectAnswer, Status> {
        self.authorize(context, "update", target).await?;
        check_verb(target, "update")?;
        if target.subresource == "scale" {
            return scale::update(self, context, target, document, options).await;
        }
        let mut value = decode::decode(context, target, document, options.field_validation)?;
        check_name(target, value.str_at(&["metadata", "name"]).unwrap_or_default())?;
        metadata::check_namespace(&mut value, target)?;
        if target.definition.behavior.create_on_update && target.subresource.is_empty() {
            return self.put(context, target, value, options).await;
        }
        self.modify(context, target, Source::Put(value), options).await
    }

    /// Creates or replaces, whichever it takes: somebody else may create or delete the object meanwhile.
    async fn put(
        &self,
        context: &RequestContext,
        target: &Target,
        value: Value,
        options: &WriteOptions,
    ) -> Result<ObjectAnswer, Status> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let last = attempt >= ATTEMPTS_MAX;
            if self.find(context, target).await?.is_none() {
                check_missing_uid(target, &value)?;
                self.authorize(context, "create", target).await?;
                let mut new = value.clone();
                new.remove_at(&["metadata", "resourceVersion"]);
                self.note_created(context, target, &mut new, options).await;
                match self.create_decoded(context, target, new, options).await {
                    Err(status) if status.reason == Some(Reason::AlreadyExists) && !last => {}
                    outcome => return outcome,
                }
            }
            match self.modify(context, target, Source::Put(value.clone()), options).await {
                Err(status) if status.code == 404 && !last => {}
                outcome => return outcome,
            }
        }
    }

    pub async fn patch(
        &self,
        context: &RequestContext,
        target: &Target,
        kind: PatchKind,
        patch: &Document,
        options: &WriteOptions,
    ) -> Result<ObjectAnswer, Status> {
        self.authorize(context, "patch", target).await?;
        check_verb(target, "patch")?;
        if kind == PatchKind::Strategic && target.definition.is_custom() {
            return Err(Status::unsupported_media_type(&[
                "application/json-patch+json",
                "application/merge-patch+json",
                "application/apply-patch+yaml",
            ]));
        }
        if target.subresource == "scale" {
            return scale::patch(self, context, target, kind, &patch.value, options).await;
        }
        let source = Source::Patch(kind, &patch.value, patch.duplicates.clone());
        self.modify(context, target, source, options).await
    }

    /// Merges what a client wants an object to say; makes it when it is not there.
    pub async fn apply(
        &self,
        context: &RequestContext,
        target: &Target,
        intent: &Value,
        force: Force,
        options: &WriteOptions,
    ) -> Result<ObjectAnswer, Status> {
        self.authorize(context, "patch", target).await?;
        check_verb(target, "patch")?;
        if target.subresource == "scale" {
            return scale::apply(self, context, target, intent, force, options).await;
        }
        let mut attempt = 0;
        loop {
            attempt += 1;
            let last = attempt >= ATTEMPTS_MAX;
            if target.subresource.is_empty() && self.find(context, target).await?.is_none() {
                match self.apply_new(context, target, intent, force, options).await {
                    Err(status) if status.reason == Some(Reason::AlreadyExists) && !last => {}
                    outcome => return outcome,
                }
            }
            match self.modify(context, target, Source::Apply(intent, force), options).await {
                Err(status) if status.code == 404 && target.subresource.is_empty() && !last => {}
                outcome => return outcome,
            }
        }
    }

    async fn apply_new(
        &self,
        context: &RequestContext,
        target: &Target,
        intent: &Value,
        force: Force,
        options: &WriteOptions,
    ) -> Result<ObjectAnswer, Status> {
        let mut new = self.applied(context, target, None, intent, force, options).await?;
        match uid(&new) {
            "" => {}
            sent => {
                let why = format!(
                    "uid mismatch: the provided object specified uid {sent}, and no existing object was found"
                );
                let resource = target.definition.group_resource();
                return Err(Status::conflict(&resource, &target.name, &why));
            }
        }
        check_name(target, new.str_at(&["metadata", "name"]).unwrap_or_default())?;
        self.authorize(context, "create", target).await?;
        if target.definition.terminating {
            custom::refuse_terminating(self, context, target).await?;
        }
        shape_applied(context, target, &mut new)?;
        new.remove_at(&["metadata", "resourceVersion"]);
        self.create_decoded(context, target, new, options).await
    }

    /// Changes an object from inside the registry, without asking who may: the caller has.
    pub(crate) async fn modify_with(
        &self,
        context: &RequestContext,
        target: &Target,
        options: &WriteOptions,
        change: impl Fn(&mut Value) -> Result<(), Status>,
    ) -> Result<Answered, Status> {
        for _ in 0..ATTEMPTS_MAX {
            let stored = self.must_find(context, target).await?;
            let old = self.read_client(context, target, &stored).await?;
            let mut new = old.clone();
            change(&mut new)?;
            if let Some(answer) = self.store_changed(context, target, new, &old, &stored, options).await? {
                return Ok(answer);
            }
        }
        Err(Status::modified(&target.definition.group_resource(), &target.name))
    }

    async fn modify(
        &self,
        context: &RequestContext,
        target: &Target,
        source: Source<'_>,
        options: &WriteOptions,
    ) -> Result<ObjectAnswer, Status> {
        let resource = target.definition.group_resource();
        let _turn = custom::turn(self, context, target).await;
        for _ in 0..ATTEMPTS_MAX {
            let stored = self.must_find(context, target).await?;
            let target = self.stored_target(context, target, &stored);
            let target = target.as_ref();
            let old = self.read_client(context, target, &stored).await?;
            let new = match &source {
                Source::Put(value) => {
                    check_uid(target, value, &old)?;
                    let mut new = value.clone();
                    self.note_updated(context, target, &old, &mut new, options).await;
                    new
                }
                Source::Patch(kind, patch, duplicates) => {
                    let mut new = apply_patch(target, *kind, patch, old.clone())?;
                    check_same_kind(target, *kind, &mut new, &old)?;
                    let strictness = options.field_validation;
                    let shaped = decode::shape(context, target, &mut new, duplicates.clone(), strictness);
                    if let Err(problem) = shaped {
                        // Shown as the patch left it.
                        let shown = match kind {
                            PatchKind::Strategic => strategic_patch_text(patch),
                            _ => apply_patch(target, *kind, patch, old.clone())?.to_string(),
                        };
                        return Err(problem.in_patch(&shown));
                    }
                    check_name(target, new.str_at(&["metadata", "name"]).unwrap_or_default())?;
                    metadata::check_namespace(&mut new, target)?;
                    self.note_updated(context, target, &old, &mut new, options).await;
                    new
                }
                Source::Apply(intent, force) => {
                    let mut new = self.applied(context, target, Some(&old), intent, *force, options).await?;
                    check_name(target, new.str_at(&["metadata", "name"]).unwrap_or_default())?;
                    metadata::check_namespace(&mut new, target)?;
                    shape_applied(context, target, &mut new)?;
                    new
                }
            };
            let mut new = new;
            let sent_version = new.str_at(&["metadata", "resourceVersion"]).unwrap_or_default();
            let current = context.plane.resource_version(stored.revision);
            let conditional = match (&source, sent_version) {
                (_, "" | "0") if !target.definition.behavior.unconditional_update => {
                    let error =
                        FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
                    // Upstream names the resource where other refusals name the kind.
                    let GroupResource { group, resource } = resource;
                    let kind = GroupKind { group, kind: resource };
                    return Err(Status::invalid(&kind, &target.name, &[error]));
                }
                (_, "" | "0") => false,
                (_, sent) if sent != current.to_string() => {
                    return Err(Status::modified(&resource, &target.name));
                }
                // A patch starts from the stored object, so its version being there says nothing.
                (Source::Put(_), _) => true,
                (Source::Patch(_, patch, _) | Source::Apply(patch, _), _) => {
                    patch.at(&["metadata", "resourceVersion"]).is_some()
                }
            };
            check_same_uid(target, &new, &old)?;
            metadata::check_end(target, &new, &old)?;
            let operation = Operation::Update;
            self.admit(context, target, operation, &mut new, Some(&old), options.into()).await?;
            self.merge(context, target, &mut new, &old);
            custom::prepare(self, context, target, &mut new, Some(&old)).await?;
            self.measure_quota(context, target, &mut new, Some(&old)).await?;
            self.check_escalation(context, target, &new, Some(&old)).await?;
            self.validate(context, target, &new, Some(&old))?;
            self.settle_rules(context, target, &mut new, Some(&old)).await?;
            let allotted = self.allot_judged(context, target, &mut new, Some(&old)).await?;
            self.judge(context, target, operation, Some(&new), Some(&old), options.into()).await?;
            let changed = self.store_allotted(context, target, (new, allotted), &old, &stored, options);
            if let Some(body) = changed.await? {
                return Ok(ObjectAnswer { body, created: false });
            }
            if conditional {
                break;
            }
        }
        Err(Status::modified(&resource, &target.name))
    }

    /// Puts back what this request may not change: identity, and the half of the object that the other endpoint owns.
    fn merge(&self, context: &RequestContext, target: &Target, new: &mut Value, old: &Value) {
        metadata::keep_identity(new, old);
        let definition = &target.definition;
        match target.subresource.as_str() {
            "" => {
                if target.served().subresource("status").is_some() {
                    copy_member(new, old, "status");
                }
                (definition.behavior.prepare_update)(new, old);
            }
            subresource => {
                let mut merged = old.clone();
                if definition.origin == Origin::Builtin {
                    copy_member(&mut merged, new, "metadata");
                } else {
                    copy_at(&mut merged, new, &["metadata", "managedFields"]);
                }
                match subresource {
                    "finalize" => copy_at(&mut merged, new, &["spec", "finalizers"]),
                    "approval" => copy_at(&mut merged, new, &["status", "conditions"]),
                    "ephemeralcontainers" => copy_at(&mut merged, new, &["spec", "ephemeralContainers"]),
                    "resize" => copy_resources(&mut merged, new),
                    _ => copy_member(&mut merged, new, "status"),
                }
                *new = merged;
                let (user, now) = (&context.user, self.now());
                let occasion = Occasion { user, now: &now, part: subresource };
                (definition.behavior.prepare_part)(new, old, &occasion);
            }
        }
        let counts = definition.behavior.generation || definition.is_custom();
        if counts && !same_but_status(new, old, target.served().subresource("status").is_some()) {
            let generation = old.i64_at(&["metadata", "generation"]).unwrap_or(0);
            new.set_at(&["metadata", "generation"], generation + 1);
        }
    }

    pub(crate) fn validate(
        &self,
        context: &RequestContext,
        target: &Target,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let mut errors = Vec::new();
        metadata::validate(new, old, target, &mut errors);
        let behavior = target.definition.behavior;
        match (target.subresource.as_str(), old) {
            ("", _) => (behavior.validate)(new, old, &mut errors),
            ("status", Some(old)) => (behavior.validate_status)(new, old, &mut errors),
            (part, Some(old)) => (behavior.validate_part)(part, new, old, &mut errors),
            _ => {}
        }
        decode::validate_schema(target, new, old, &mut errors);
        if errors.is_empty() {
            // A kind that counts its changes has nothing to say about what did not change.
            let counted = |value: &Value| value.i64_at(&["metadata", "generation"]);
            let same = behavior.generation && old.is_some_and(|old| counted(old) == counted(new));
            let mut warnings = Vec::new();
            if target.subresource.is_empty() && !same {
                warnings = (behavior.warnings)(new);
            }
            warnings.extend(custom::warnings(target, new, old));
            warnings.into_iter().for_each(|warning| context.warn(warning));
            return Ok(());
        }
        Err(Status::invalid(&target.definition.error_kind(), &target.name, &errors))
    }

    /// One try to replace an object. `None` when somebody else was faster.
    pub(crate) async fn store_changed(
        &self,
        context: &RequestContext,
        target: &Target,
        mut new: Value,
        old: &Value,
        stored: &Arc<StoredObject>,
        options: &WriteOptions,
    ) -> Result<Option<Answered>, Status> {
        let allotted = self.allot(context, target, &mut new, Some(old)).await?;
        self.store_allotted(context, target, (new, allotted), old, stored, options).await
    }

    /// The same for an object that has what it gets from its plane.
    async fn store_allotted(
        &self,
        context: &RequestContext,
        target: &Target,
        (mut new, allotted): (Value, Allotment),
        old: &Value,
        stored: &Arc<StoredObject>,
        options: &WriteOptions,
    ) -> Result<Option<Answered>, Status> {
        let key = self.key(context, target);
        let plane = planes::change(self, context, target, Some(&new), Some(old))?;
        let version = &target.served().name;
        let reread = target.definition.rereading(version, &stored.record).is_some();
        if reread {
            // Parts of it come from a read, which brings only so many defaults; what is stored has them all.
            target.definition.complete(version, &mut new).ok();
        }
        keep_times(&mut new, old);
        if is_finished(&new) && !options.dry_run {
            // Nobody needs to know how it would have been stored.
            let plane = planes::change(self, context, target, None, Some(old))?;
            return self.remove_finished(context, target, (new, old), stored, plane).await;
        }
        let keeps_form = keeps_form(context, target);
        let mut record = match keeps_form {
            true => with_metadata(&new, stored)?,
            false => self.encoded(context, target, &new).await?,
        };
        // What is on its way out goes, and what does not grow stays, however large it is.
        if record.len() > stored.record.len()
            && !is_finished(&new)
            && self.check_size(context, target, &record).is_err()
        {
            let kept = if reread { untouched_but_metadata(target, &new, old, stored) } else { None };
            record = match kept {
                Some(record) => record,
                None if keeps_form => {
                    self.check_size(context, target, &record)?;
                    record
                }
                None => self.fitted(context, target, &mut new).await?,
            };
        }
        let shown = self.shown(context, target, &record).await?;
        if options.dry_run {
            self.account(context, target, Some(&new), Some(old), true).await?;
            return Ok(Some(Answered::Made(self.as_if_stored(
                context,
                target,
                new,
                &shown,
                stored.revision,
            )?)));
        }
        if custom::is_unchanged(target, &record, &stored.record) {
            let stored = StoredObject { record: shown, ..StoredObject::clone(stored) };
            return self.answer(context, target, Arc::new(stored)).map(Some);
        }
        let mut writes = vec![Write {
            key: key.clone(),
            record: Some(record.clone()),
            expect: Expect::At(stored.revision),
        }];
        writes.extend(allotted.writes.iter().cloned());
        let begins = custom::chore(self, target).is_some() && begins_to_go(&new, old);
        if begins || custom::frees_names(self, context, target, Some((old, &new))).await? {
            writes.push(self.chore_mark(&context.plane));
        }
        let limited = matches!(plane, Some(PlaneChange::SetLimits { .. }));
        match self.commit_counted(context, target, (Some(&new), old), &key, writes, plane).await? {
            Ok(committed) => {
                custom::committed(self, context, target, committed.revision, Some(&new));
                if limited {
                    planes::warn_if_full(context, self.store.plane(&target.name).as_deref());
                }
                if begins {
                    custom::deleted(self, context, target);
                }
                let (revision, space) = (committed.revision, context.plane.overlay());
                let stored = Arc::new(StoredObject { name: key.name, revision, space, record: shown });
                self.answer(context, target, stored).map(Some)
            }
            Err(CommitError::Conflict { found: Some(_), .. }) => Ok(None),
            Err(CommitError::Conflict { found: None, .. }) => {
                Err(Status::not_found(&target.definition.group_resource(), &target.name))
            }
            Err(error) => {
                Err(commit_failed(&context.plane, &target.definition.group_resource(), &target.name, error))
            }
        }
    }

    /// Commits a change of an object that was there, with what else it makes true. Starts over while it is only that
    /// which others change; a conflict that comes back is about the object itself or what it was allotted.
    pub(crate) async fn commit_counted(
        &self,
        context: &RequestContext,
        target: &Target,
        (new, old): (Option<&Value>, &Value),
        key: &Key,
        writes: Vec<Write>,
        plane: Option<PlaneChange>,
    ) -> Result<Result<Committed, CommitError>, Status> {
        for _ in 0..ATTEMPTS_MAX {
            let account = self.account(context, target, new, Some(old), false).await?;
            let all = writes.iter().chain(&account.writes).cloned().collect();
            let change = Change { writes: all, plane: plane.clone(), ..Change::default() };
            match self.store.commit(change).await {
                Err(CommitError::Conflict { key: other, .. })
                    if other != *key && writes.iter().all(|write| write.key != other) => {}
                outcome => return Ok(outcome),
            }
        }
        Err(Status::modified(&target.definition.group_resource(), &target.name))
    }

    /// The last finalizer of a deleted object went: now it goes too.
    async fn remove_finished(
        &self,
        context: &RequestContext,
        target: &Target,
        (new, old): (Value, &Value),
        stored: &Arc<StoredObject>,
        plane: Option<PlaneChange>,
    ) -> Result<Option<Answered>, Status> {
        let key = self.key(context, target);
        let mut writes = vec![Write { key: key.clone(), record: None, expect: Expect::At(stored.revision) }];
        if custom::frees_names(self, context, target, None).await? {
            writes.push(self.chore_mark(&context.plane));
        }
        match self.commit_counted(context, target, (None, old), &key, writes, plane).await? {
            Ok(committed) => {
                custom::committed(self, context, target, committed.revision, None);
                self.nudge_holder(context, target);
                Ok(Some(Answered::Made(new)))
            }
            Err(CommitError::Conflict { .. }) => Ok(None),
            Err(error) => {
                Err(commit_failed(&context.plane, &target.definition.group_resource(), &target.name, error))
            }
        }
    }

    /// The object as it is stored. One that is too large only because of its owners loses them.
    async fn fitted(
        &self,
        context: &RequestContext,
        target: &Target,
        value: &mut Value,
    ) -> Result<Record, Status> {
        let record = self.encoded(context, target, value).await?;
        match self.check_size(context, target, &record) {
            Err(_) if value.remove_at(&["metadata", "managedFields"]).is_some() => {
                let record = self.encoded(context, target, value).await?;
                self.check_size(context, target, &record).map(|()| record)
            }
            outcome => outcome.map(|()| record),
        }
    }

    /// An object in the form it is stored in; copied only when that differs from the client's.
    async fn encoded(
        &self,
        context: &RequestContext,
        target: &Target,
        value: &Value,
    ) -> Result<Record, Status> {
        let definition = &target.definition;
        let stored = |value: &Value| definition.to_stored(&target.served().name, value);
        if definition.conversion.is_some() {
            let storage = &definition.storage.version;
            if target.served().name == *storage {
                return Ok(stored(value));
            }
            let converted = self.convert(context, target, value.clone(), storage).await?;
            // What a webhook made is not complete: it comes in no version.
            return Ok(definition.to_stored("", &converted));
        }
        if !needs_conversion(target) && !planes::has_live_status(context, target) {
            return Ok(stored(value));
        }
        let mut stored_form = value.clone();
        convert(target, &mut stored_form, &target.group_version(), &definition.storage);
        planes::strip_live(context, target, &mut stored_form);
        Ok(stored(&stored_form))
    }

    /// What is about to be stored, as the client will be shown it. Known before it is stored: what cannot be shown is not
    /// done.
    async fn shown(
        &self,
        context: &RequestContext,
        target: &Target,
        record: &Record,
    ) -> Result<Record, Status> {
        let needs = target.definition.needs_webhook(&target.served().name, record);
        if !needs || self.converter(context, target).is_none() {
            return Ok(record.clone());
        }
        let (name, space) = (self.key(context, target).name, context.plane.overlay());
        let revision = polder_store::Revision::default();
        let stored = Arc::new(StoredObject { name, revision, space, record: record.clone() });
        Ok(self.in_version(context, target, stored).await?.record.clone())
    }

    /// What a dry run answers: for a custom object, what a read would show of the record.
    fn as_if_stored(
        &self,
        context: &RequestContext,
        target: &Target,
        value: Value,
        record: &Record,
        revision: polder_store::Revision,
    ) -> Result<Value, Status> {
        if !target.definition.is_custom() || planes::has_live_status(context, target) {
            return Ok(value);
        }
        let (name, space) = (self.key(context, target).name, context.plane.overlay());
        self.to_client(context, target, &StoredObject { name, revision, space, record: record.clone() })
    }

    /// What one object of the plane may weigh; 0 stands for anything.
    pub(crate) fn object_limit(&self, context: &RequestContext) -> u64 {
        match context.plane.limits.object_bytes {
            0 => self.options.default_limits.object_bytes,
            own => own,
        }
    }

    pub(crate) fn check_size(
        &self,
        context: &RequestContext,
        target: &Target,
        record: &Record,
    ) -> Result<(), Status> {
        let limit = self.object_limit(context);
        if limit > 0 && record.len() as u64 > limit {
            return Err(Status::too_large(format!(
                "{} {:?} is too large: {} bytes, and plane {} has a limit of {limit} bytes an object",
                target.definition.group_resource(),
                target.name,
                record.len(),
                context.plane.name
            )));
        }
        Ok(())
    }
}

enum CreateError {
    Exists,
    /// The namespace, or the CRD, is not as it was a moment ago.
    HolderChanged,
    Status(Box<Status>),
}

impl From<Status> for CreateError {
    fn from(status: Status) -> CreateError {
        CreateError::Status(Box::new(status))
    }
}

/// Whether the resource, or the subresource the target names, has a verb.
pub fn check_verb(target: &Target, verb: &str) -> Result<(), Status> {
    let served = target.served();
    let allowed = match target.subresource.as_str() {
        "" => served.allows(verb),
        name => served.subresource(name).is_some_and(|subresource| subresource.allows(verb)),
    };
    if allowed { Ok(()) } else { Err(Status::method_not_allowed()) }
}

pub(crate) fn apply_patch(
    target: &Target,
    kind: PatchKind,
    patch: &Value,
    old: Value,
) -> Result<Value, Status> {
    let patched = match kind {
        PatchKind::Json => apply_json_patch(old, patch),
        PatchKind::Merge => apply_merge_patch(old, patch.clone()),
        PatchKind::Strategic => {
            apply_strategic_merge_patch(old, patch.clone(), target.served().schema.node())
        }
    };
    patched.map_err(|error| match error {
        PatchError::Malformed(text) => Status::bad_request(text),
        PatchError::TooManyOperations { .. } => Status::too_large(error.to_string()),
        PatchError::NotApplicable(_) | PatchError::TestFailed(_) => {
            let mut status = Status::untyped(422, PatchError::NOT_APPLICABLE);
            status.reason = Some(polder_model::Reason::Invalid);
            status.details = Some(Box::default());
            status
        }
        PatchError::Unclassified(text) => Status::untyped(500, text),
    })
}

/// Brings a merged object into shape. What nobody knows was refused before it was merged.
fn shape_applied(context: &RequestContext, target: &Target, new: &mut Value) -> Result<(), Status> {
    let shaped = decode::shape(context, target, new, Duplicates::default(), FieldValidation::Ignore);
    shaped.map_err(|problem| problem.in_document(&target.definition.kind, &target.served().name))
}

/// Whether a write changes metadata only, of an object that stays in the version it is stored in.
fn keeps_form(context: &RequestContext, target: &Target) -> bool {
    target.definition.conversion.is_some() && context.reading == Reading::AsStored
}

/// A stored object with other metadata.
fn with_metadata(new: &Value, stored: &StoredObject) -> Result<Record, Status> {
    let body = Value::parse(stored.record.body());
    let mut body = body.map_err(|error| Status::internal(error.to_string()))?;
    copy_member(&mut body, new, "metadata");
    Ok(Record::encode_as(&body, stored.record.form()))
}

/// If a write changes nothing but metadata, the object with the rest as it is stored, under the schema of that time:
/// today's defaults, which would make it too large, must not keep it from being deleted.
fn untouched_but_metadata(
    target: &Target,
    new: &Value,
    old: &Value,
    stored: &StoredObject,
) -> Option<Record> {
    let mut before = old.clone();
    target.definition.complete(&target.served().name, &mut before).ok();
    if !same_but_status(new, &before, false) {
        return None;
    }
    with_metadata(new, stored).ok()
}

/// A deleted object that nothing holds back any more.
fn is_finished(value: &Value) -> bool {
    let deleted = value.at(&["metadata", "deletionTimestamp"]).is_some();
    let held = !value.array_at(&["metadata", "finalizers"]).is_empty();
    // A namespace is also held by its own list; everything else has no such member.
    let held = held
        || (value.str_at(&["kind"]) == Some("Namespace")
            && !value.array_at(&["spec", "finalizers"]).is_empty());
    let graceful = value.i64_at(&["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0) > 0;
    deleted && !held && !graceful
}

fn same_but_status(new: &Value, old: &Value, status_apart: bool) -> bool {
    fn counted(value: &Value, status_apart: bool) -> impl Iterator<Item = (&SmolStr, &Value)> {
        let members = value.as_object().into_iter().flat_map(Object::iter);
        members.filter(move |(key, _)| match key.as_str() {
            "metadata" | "kind" | "apiVersion" => false,
            "status" => !status_apart,
            _ => true,
        })
    }
    counted(new, status_apart).count() == counted(old, status_apart).count()
        && counted(new, status_apart).all(|(key, value)| old.get(key) == Some(value))
}

fn copy_member(to: &mut Value, from: &Value, member: &str) {
    copy_at(to, from, &[member]);
}

fn copy_at(to: &mut Value, from: &Value, path: &[&str]) {
    match from.at(path) {
        Some(value) => to.set_at(path, value.clone()),
        None => drop(to.remove_at(path)),
    }
}

/// In-place resize: only the resources of the containers that are there.
fn copy_resources(to: &mut Value, from: &Value) {
    for list in ["containers", "initContainers"] {
        let source = from.array_at(&["spec", list]).to_vec();
        let Some(Value::Array(containers)) = to.at_mut(&["spec", list]) else { continue };
        for container in containers {
            let name = container.get("name").cloned();
            if let Some(new) = source.iter().find(|new| new.get("name") == name.as_ref()) {
                for member in ["resources", "resizePolicy"] {
                    copy_member(container, new, member);
                }
            }
        }
    }
}
