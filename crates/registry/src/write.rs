//! Create, update, patch and apply: one pipeline. Decode, default, put back what clients cannot change, validate, commit; a
//! write without a resource version starts over when somebody else was faster.
//!
//! Here is what clients ask for; `create` and `modify` prepare an object that is new or that was there, `store` commits it.

mod create;
mod modify;
mod store;

use polder_admission::Operation;
use polder_machinery::apply::Force;
use polder_model::{Reason, Status, Value};

pub(crate) use self::modify::apply_patch;
use crate::context::{RequestContext, WriteOptions};
use crate::decode::{self, Document, Duplicates};
use crate::definition::Target;
use crate::identity::{check_missing_uid, check_name, uid};
use crate::metadata;
use crate::registry::{Answered, ObjectAnswer, Registry};
use crate::{custom, scale};

/// How often a write without a resource version starts over before the client is told.
pub(crate) const ATTEMPTS_MAX: usize = 32;

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
        modify::shape_applied(context, target, &mut new)?;
        new.remove_at(&["metadata", "resourceVersion"]);
        self.create_decoded(context, target, new, options).await
    }

    pub(crate) fn validate(
        &self,
        context: &RequestContext,
        target: &Target,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let behavior = target.definition.behavior;
        let errors_beside = |old: Option<&Value>| {
            let mut errors = Vec::new();
            metadata::validate(new, old, target, &mut errors);
            match (target.subresource.as_str(), old) {
                ("", _) => (behavior.validate)(new, old, &mut errors),
                ("status", Some(old)) => (behavior.validate_status)(new, old, &mut errors),
                (part, Some(old)) => (behavior.validate_part)(part, new, old, &mut errors),
                _ => {}
            }
            decode::validate_schema(target, new, old, &mut errors);
            errors
        };
        let mut errors = errors_beside(old);
        // What an earlier version has stored may have zeros that are not written today: that they are missing changes nothing.
        if !errors.is_empty()
            && let Some(old) = old.and_then(|old| decode::in_form_of_today(target, old))
        {
            errors = errors_beside(Some(&old));
        }
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
