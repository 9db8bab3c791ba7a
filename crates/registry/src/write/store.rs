//! An object on its way into the store: the form it is stored in, its size, and the commit with all that goes with it.

use std::sync::Arc;

use polder_machinery::apply::keep_times;
use polder_model::{Status, Value};
use polder_store::{Change, CommitError, Committed, Expect, Key, PlaneChange, Record, StoredObject, Write};

use super::ATTEMPTS_MAX;
use super::modify::{copy_member, same_but_status};
use crate::allotment::Allotment;
use crate::context::{Reading, RequestContext, WriteOptions};
use crate::definition::Target;
use crate::finalize::begins_to_go;
use crate::registry::{Answered, Registry, convert, needs_conversion};
use crate::status::commit_failed;
use crate::{custom, planes};

impl Registry {
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
    pub(super) async fn store_allotted(
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
            if !self.is_newest(context, target, stored).await? {
                return Ok(None);
            }
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
            let (plane, needs_lead) = (plane.clone(), context.needs_lead);
            let change = Change { writes: all, plane, needs_lead, ..Change::default() };
            match self.store.commit(change).await {
                Err(CommitError::Conflict { key: other, .. })
                    if other != *key && writes.iter().all(|write| write.key != other) => {}
                outcome => return Ok(outcome),
            }
        }
        Err(Status::modified(&target.definition.group_resource(), &target.name))
    }

    /// The last finalizer of a deleted object went: now it goes too.
    pub(super) async fn remove_finished(
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
                self.nudge_holder(context.plane.id, &target.definition.group_resource(), &key.name);
                Ok(Some(Answered::Made(new)))
            }
            Err(CommitError::Conflict { .. }) => Ok(None),
            Err(error) => {
                Err(commit_failed(&context.plane, &target.definition.group_resource(), &target.name, error))
            }
        }
    }

    /// The object as it is stored. One that is too large only because of its owners loses them.
    pub(super) async fn fitted(
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
    pub(super) async fn encoded(
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
    pub(super) async fn shown(
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
    pub(super) fn as_if_stored(
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
