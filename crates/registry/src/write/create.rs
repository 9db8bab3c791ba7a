//! A new object: its name, its namespace, and the commit that makes it. Starts over while others change what holds it.

use std::sync::Arc;

use polder_admission::Operation;
use polder_model::{GroupResource, SmolStr, Status, Value};
use polder_store::{Change, CommitError, Expect, Key, ObjectName, StoredObject, Write};

use super::ATTEMPTS_MAX;
use crate::admission::shown_name;
use crate::allotment::Allotment;
use crate::behavior::Occasion;
use crate::context::{RequestContext, WriteOptions};
use crate::decode;
use crate::definition::Target;
use crate::finalize::is_marked;
use crate::metadata;
use crate::registry::{Answered, ObjectAnswer, Registry};
use crate::status::{commit_failed, read_failed};
use crate::{custom, planes};

/// How often a generated name may turn out to be taken.
const GENERATED_NAMES_MAX: usize = 8;

impl Registry {
    pub(super) async fn create_decoded(
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
            let path_name = target.name.clone();
            let target = target.with_name(&target.namespace, &name);
            custom::prepare(self, context, &target, &mut candidate, None).await?;
            planes::prepare(self, context, &target, &mut candidate);
            planes::check_source(self, context, &target, &candidate).await?;
            planes::inherit(self, context, &target, &mut candidate).await?;
            self.measure_quota(context, &target, &mut candidate, None).await?;
            self.check_escalation(context, &target, (&candidate, None), &path_name).await?;
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
    pub(super) async fn exists(&self, context: &RequestContext, target: &Target, prefixed: bool) -> Status {
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
    pub(super) async fn commit_new(
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
        let change = Change { writes, guards, plane, renewals, needs_lead: context.needs_lead };
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
    pub(super) async fn namespace_guard(
        &self,
        context: &RequestContext,
        target: &Target,
        object: &Value,
    ) -> Result<Vec<(Key, Expect)>, Status> {
        if !target.definition.namespaced {
            return Ok(Vec::new());
        }
        let name = ObjectName::cluster(target.namespace.clone());
        let mut found = self.store.get(&context.plane, self.namespaces, &name).await;
        if matches!(found, Ok(None)) && self.catch_up(&context.plane).await? {
            found = self.store.get(&context.plane, self.namespaces, &name).await;
        }
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
}

pub(super) enum CreateError {
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
