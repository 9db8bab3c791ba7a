//! Delete and deletecollection: preconditions, finalizers, grace, and what each kind answers.

use std::sync::Arc;

use polder_admission::Operation;
use polder_client::Propagation;
use polder_model::{FieldError, GroupResource, SmolStr, Status, Value, json};
use polder_store::{CommitError, Expect, StoredObject, Write};

use crate::context::{Query, RequestContext, WriteOptions, dry_run, invalid_options};
use crate::definition::Target;
use crate::list::{ListOptions, signed};
use crate::registry::{Answered, Registry};
use crate::resources::priorityclass;
use crate::status::commit_failed;
use crate::write::check_verb;
use crate::{custom, planes};

const ATTEMPTS_MAX: usize = 32;
/// What deletecollection answers with: all that it took on, or nothing when that is heavier. Clients do not look.
const TAKEN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Namespaces a plane cannot do without.
const KEPT_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Finalizers of the garbage collector.
const ORPHAN_FINALIZER: &str = "orphan";
const FOREGROUND_FINALIZER: &str = "foregroundDeletion";

/// Options of a delete, from its body or its query.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub grace_period_seconds: Option<i64>,
    pub uid: Option<SmolStr>,
    pub resource_version: Option<SmolStr>,
    /// What happens to dependents; `None` leaves it to the kind.
    pub propagation: Option<Propagation>,
}

/// Who is asked before an object is deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asking {
    Admission,
    /// The delete is part of another request, about which admission has been asked.
    Nobody,
}

/// What a delete answers with.
#[derive(Debug)]
pub enum DeleteAnswer {
    /// Gone, said with a `Status`.
    Gone(Value),
    /// The object: gone, or marked and waiting for its finalizers.
    Object(Answered),
}

impl DeleteOptions {
    /// The body wins over the query where both are there.
    pub fn read(body: Option<&Value>, query: &Query) -> Result<DeleteOptions, Status> {
        let mut errors = Vec::new();
        let Some(body) = body.filter(|body| !body.is_null()) else {
            let grace = signed(query, "gracePeriodSeconds")?;
            let policy = query.get("propagationPolicy");
            let orphan = query.get("orphanDependents").map(|_| query.flag("orphanDependents"));
            check_policy(policy, orphan.is_some(), &mut errors);
            let dry_run = dry_run(query.all("dryRun"), &mut errors);
            invalid_options("DeleteOptions", &errors)?;
            let propagation = propagation(policy, orphan);
            return Ok(DeleteOptions {
                dry_run,
                grace_period_seconds: grace,
                propagation,
                ..DeleteOptions::default()
            });
        };
        if !matches!(body, Value::Object(_)) {
            return Err(Status::bad_request("the body of a delete must be DeleteOptions"));
        }
        if body.str_at(&["kind"]).is_some_and(|kind| kind != "DeleteOptions") {
            return Err(Status::bad_request(format!(
                "{} cannot be handled as DeleteOptions",
                body.str_at(&["kind"]).unwrap_or_default()
            )));
        }
        check_types(body)?;
        let policy = body.str_at(&["propagationPolicy"]);
        let orphan = body.get("orphanDependents").and_then(Value::as_bool);
        check_policy(policy, orphan.is_some(), &mut errors);
        let values = body.array_at(&["dryRun"]).iter().filter_map(Value::as_str);
        let dry_run = dry_run(values.chain(query.all("dryRun")), &mut errors);
        invalid_options("DeleteOptions", &errors)?;
        Ok(DeleteOptions {
            dry_run,
            grace_period_seconds: body.i64_at(&["gracePeriodSeconds"]),
            uid: body.str_at(&["preconditions", "uid"]).map(SmolStr::new),
            resource_version: body.str_at(&["preconditions", "resourceVersion"]).map(SmolStr::new),
            propagation: propagation(policy, orphan),
        })
    }
}

/// An option that is not understood is refused: what somebody wanted to limit must not happen without limit.
fn check_types(body: &Value) -> Result<(), Status> {
    type Fits = fn(&Value) -> bool;
    let is_text: Fits = |value| value.as_str().is_some();
    let is_texts: Fits =
        |value| value.as_array().is_some_and(|items| items.iter().all(|item| item.as_str().is_some()));
    let rows: [(&[&str], &str, Fits); 7] = [
        (&["gracePeriodSeconds"], "int64", |value| value.as_i64().is_some()),
        (&["propagationPolicy"], "v1.DeletionPropagation", is_text),
        (&["orphanDependents"], "bool", |value| matches!(value, Value::Bool(_))),
        (&["dryRun"], "[]string", is_texts),
        (&["preconditions"], "v1.Preconditions", |value| matches!(value, Value::Object(_))),
        (&["preconditions", "uid"], "types.UID", is_text),
        (&["preconditions", "resourceVersion"], "string", is_text),
    ];
    for (path, wanted, fits) in rows {
        match body.at(path) {
            None | Some(Value::Null) => {}
            Some(given) if fits(given) => {}
            Some(given) => {
                let found = match given {
                    Value::Int(_) | Value::Float(_) => "number",
                    Value::Bool(_) => "bool",
                    other => other.type_name(),
                };
                let holder = if path.len() == 1 { "DeleteOptions" } else { "Preconditions" };
                return Err(Status::bad_request(format!(
                    "json: cannot unmarshal {found} into Go struct field {holder}.{} of type {wanted}",
                    path.join("."),
                )));
            }
        }
    }
    Ok(())
}

/// What a client wants to happen to dependents, in either of the two ways it can say so.
fn propagation(policy: Option<&str>, orphan: Option<bool>) -> Option<Propagation> {
    match (policy, orphan) {
        (Some("Foreground"), _) => Some(Propagation::Foreground),
        (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
        (Some(_), _) | (None, Some(false)) => Some(Propagation::Background),
        (None, None) => None,
    }
}

fn check_policy(policy: Option<&str>, orphan_set: bool, errors: &mut Vec<FieldError>) {
    let Some(policy) = policy else { return };
    if orphan_set {
        errors.push(FieldError::invalid(
            "propagationPolicy",
            policy,
            "orphanDependents and deletionPropagation cannot be both set",
        ));
    }
    if !matches!(policy, "Foreground" | "Background" | "Orphan") {
        errors.push(FieldError::not_supported(
            "propagationPolicy",
            policy,
            ["Foreground", "Background", "Orphan", "nil"],
        ));
    }
}

impl Registry {
    pub async fn delete(
        &self,
        context: &RequestContext,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<DeleteAnswer, Status> {
        self.authorize(context, "delete", target).await?;
        check_verb(target, "delete")?;
        warn_of_orphans(context, target, options);
        self.delete_unchecked(context, target, options).await
    }

    /// A delete for somebody whose right to it has been checked.
    pub(crate) async fn delete_unchecked(
        &self,
        context: &RequestContext,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<DeleteAnswer, Status> {
        self.delete_asking(context, target, options, Asking::Admission).await
    }

    pub(crate) async fn delete_asking(
        &self,
        context: &RequestContext,
        target: &Target,
        options: &DeleteOptions,
        asking: Asking,
    ) -> Result<DeleteAnswer, Status> {
        let resource = target.definition.group_resource();
        let mut has_asked = false;
        for _ in 0..ATTEMPTS_MAX {
            let stored = self.must_find_newest(context, target).await?;
            let target = self.stored_target(context, target, &stored);
            let target = target.as_ref();
            let shown = self.in_version(context, target, stored.clone()).await?;
            let old = self.to_client(context, target, &shown)?;
            if let Err(status) = check_preconditions(target, options, &old) {
                if !std::mem::replace(&mut has_asked, true) && self.catch_up(&context.plane).await? {
                    continue;
                }
                return Err(status);
            }
            check_protected(context, target)?;
            if asking == Asking::Admission {
                let wish = options.into();
                let mut nothing = Value::Null;
                self.admit(context, target, Operation::Delete, &mut nothing, Some(&old), wish).await?;
                self.judge(context, target, Operation::Delete, None, Some(&old), wish).await?;
            }
            if let Some(marked) = self.mark(target, &old, options) {
                let write = WriteOptions { dry_run: options.dry_run, ..WriteOptions::default() };
                if marked == old {
                    if !self.is_newest(context, target, &stored).await? {
                        continue;
                    }
                    if !options.dry_run {
                        custom::deleted(self, context, target);
                    }
                    return Ok(DeleteAnswer::Object(self.answer(context, target, shown)?));
                }
                // The mark was computed from this version; if there is another one by now, it starts over.
                match self.store_changed(context, target, marked, &old, &stored, &write).await? {
                    Some(body) => {
                        if !options.dry_run {
                            custom::deleted(self, context, target);
                        }
                        return Ok(DeleteAnswer::Object(body));
                    }
                    None => continue,
                }
            }
            if options.dry_run || self.remove(context, target, &stored, &old).await? {
                return Ok(gone(target, old));
            }
        }
        Err(Status::modified(&resource, &target.name))
    }

    /// The object as it waits for its end, when it does not go at once.
    fn mark(&self, target: &Target, old: &Value, options: &DeleteOptions) -> Option<Value> {
        let is_namespace = is_core(target, "namespaces");
        let grace = grace_seconds(target, old, options);
        let mut marked = old.clone();
        custom::hold(target, &mut marked, &self.now());
        hold_for_dependents(target, &mut marked, options.propagation);
        let held = !marked.array_at(&["metadata", "finalizers"]).is_empty()
            || (is_namespace && !old.array_at(&["spec", "finalizers"]).is_empty());
        if !held && grace == 0 {
            return None;
        }
        if old.at(&["metadata", "deletionTimestamp"]).is_none() {
            let when = crate::registry::timestamp((self.options.clock)().saturating_add(grace));
            marked.set_at(&["metadata", "deletionTimestamp"], when);
            // These two are marked by code of their own upstream, which does no more than that.
            let only_marked = is_namespace || custom::is_crd(target);
            if !only_marked {
                marked.set_at(&["metadata", "deletionGracePeriodSeconds"], grace);
            }
            if let Some(generation) = old.i64_at(&["metadata", "generation"]).filter(|_| !only_marked) {
                marked.set_at(&["metadata", "generation"], generation + 1);
            }
        } else if old.i64_at(&["metadata", "deletionGracePeriodSeconds"]).is_some_and(|own| own > grace) {
            marked.set_at(&["metadata", "deletionGracePeriodSeconds"], grace);
        }
        if is_namespace {
            marked.set_at(&["status", "phase"], "Terminating");
        }
        Some(marked)
    }

    /// One try to remove an object; false when somebody changed it meanwhile.
    async fn remove(
        &self,
        context: &RequestContext,
        target: &Target,
        stored: &Arc<StoredObject>,
        old: &Value,
    ) -> Result<bool, Status> {
        let plane = planes::change(self, context, target, None, Some(old))?;
        let key = self.key(context, target);
        let mut writes = vec![Write { key: key.clone(), record: None, expect: Expect::At(stored.revision) }];
        if matches!(plane, Some(polder_store::PlaneChange::Delete { .. })) {
            writes.extend(self.chore_unmark(&target.name).await?);
        }
        match self.commit_counted(context, target, (None, old), &key, writes, plane).await? {
            Ok(committed) => {
                custom::committed(self, context, target, committed.revision, None);
                self.nudge_holder(context.plane.id, &target.definition.group_resource(), &key.name);
                Ok(true)
            }
            Err(CommitError::Conflict { .. }) => Ok(false),
            Err(error) => {
                Err(commit_failed(&context.plane, &target.definition.group_resource(), &target.name, error))
            }
        }
    }

    /// Deletes what a list would show, page by page; answers with what it took on, unless that is too much to keep.
    pub async fn delete_collection(
        &self,
        context: &RequestContext,
        target: &Target,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<(Vec<Arc<StoredObject>>, u64), Status> {
        self.authorize_many(context, "deletecollection", target, &list.selection).await?;
        check_verb(target, "deletecollection")?;
        warn_of_orphans(context, target, options);
        let mut listing = self.listing_unchecked(context, target, list).await?;
        let (mut taken, mut taken_bytes) = (Vec::new(), 0);
        loop {
            let page = listing.objects.page().await?;
            if page.is_empty() {
                return Ok((taken, listing.resource_version));
            }
            for stored in page {
                let one = target.with_name(&stored.name.namespace, &stored.name.name);
                match self.delete_unchecked(context, &one, options).await {
                    Ok(_) => taken_bytes += stored.record.len(),
                    // Somebody else was faster, which is what was wanted.
                    Err(status) if status.code == 404 => continue,
                    Err(status) => return Err(status),
                }
                if taken_bytes <= TAKEN_BYTES_MAX {
                    taken.push(stored);
                } else {
                    taken = Vec::new();
                }
            }
        }
    }
}

/// Jobs leave their pods behind unless told otherwise, which surprises people.
fn warn_of_orphans(context: &RequestContext, target: &Target, options: &DeleteOptions) {
    let is_job = target.definition.group_resource() == GroupResource::new("batch", "jobs");
    if is_job && options.propagation.is_none() {
        context.warn(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them \
             or set propagationPolicy=Orphan to suppress this warning",
        );
    }
}

/// Gives an object the finalizer that makes the garbage collector see to its dependents first, as whoever deletes it
/// wants; as whoever made it wants, or its kind has it, if that is left open.
fn hold_for_dependents(target: &Target, marked: &mut Value, wanted: Option<Propagation>) {
    let is_event = |group: &str| matches!(group, "" | "events.k8s.io");
    if target.definition.kind == "Event" && is_event(&target.definition.group) {
        return;
    }
    let own = marked.array_at(&["metadata", "finalizers"]);
    let has = |finalizer: &str| own.iter().any(|own| own.as_str() == Some(finalizer));
    let wanted = match wanted {
        Some(wanted) => wanted,
        None if has(ORPHAN_FINALIZER) => Propagation::Orphan,
        None if has(FOREGROUND_FINALIZER) => Propagation::Foreground,
        None if target.definition.behavior.orphans_by_default => Propagation::Orphan,
        None => Propagation::Background,
    };
    let rows = [(ORPHAN_FINALIZER, Propagation::Orphan), (FOREGROUND_FINALIZER, Propagation::Foreground)];
    if rows.iter().all(|(finalizer, propagation)| has(finalizer) == (wanted == *propagation)) {
        return;
    }
    let others = own.iter().filter(|own| rows.iter().all(|(finalizer, _)| own.as_str() != Some(finalizer)));
    let mut finalizers: Vec<Value> = others.cloned().collect();
    let added = rows.iter().filter(|(_, propagation)| wanted == *propagation);
    finalizers.extend(added.map(|(finalizer, _)| Value::from(*finalizer)));
    match finalizers.is_empty() {
        true => drop(marked.remove_at(&["metadata", "finalizers"])),
        false => marked.set_at(&["metadata", "finalizers"], finalizers),
    }
}

fn is_core(target: &Target, plural: &str) -> bool {
    target.definition.group.is_empty() && target.definition.plural == plural
}

/// Pods on a node get time to stop; nobody waits for anything else.
fn grace_seconds(target: &Target, old: &Value, options: &DeleteOptions) -> i64 {
    if !is_core(target, "pods") {
        return 0;
    }
    if old.at(&["metadata", "deletionTimestamp"]).is_some() && options.grace_period_seconds.is_none() {
        // It is stopping already, and nobody asks for less time.
        return old.i64_at(&["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
    }
    let scheduled = old.str_at(&["spec", "nodeName"]).is_some_and(|node| !node.is_empty());
    let over = matches!(old.str_at(&["status", "phase"]), Some("Failed" | "Succeeded"));
    if !scheduled || over {
        return 0;
    }
    let wanted = options.grace_period_seconds;
    let grace = wanted.or_else(|| old.i64_at(&["spec", "terminationGracePeriodSeconds"])).unwrap_or(30);
    if grace < 0 { 1 } else { grace }
}

fn check_preconditions(target: &Target, options: &DeleteOptions, old: &Value) -> Result<(), Status> {
    let rows = [
        ("UID", "uid", &options.uid, "deleted and then recreated"),
        ("ResourceVersion", "resourceVersion", &options.resource_version, "modified"),
    ];
    for (label, field, wanted, perhaps) in rows {
        let own = old.str_at(&["metadata", field]).unwrap_or_default();
        if let Some(wanted) = wanted
            && wanted != own
        {
            let why = format!(
                "the {label} in the precondition ({wanted}) does not match the {label} in record ({own}). The object might have been {perhaps}"
            );
            // Upstream names the kind where other conflicts name the resource.
            let kind = target.definition.error_kind();
            let kind = GroupResource { group: kind.group, resource: kind.kind };
            return Err(Status::conflict(&kind, &target.name, &why));
        }
    }
    Ok(())
}

fn check_protected(context: &RequestContext, target: &Target) -> Result<(), Status> {
    if is_core(target, "namespaces") && KEPT_NAMESPACES.contains(&target.name.as_str()) {
        return Err(Status::forbidden(
            &GroupResource::new("", "namespaces"),
            &target.name,
            "this namespace may not be deleted",
        ));
    }
    let classes = GroupResource::new("scheduling.k8s.io", "priorityclasses");
    if target.definition.group_resource() == classes && priorityclass::is_system(&target.name) {
        return Err(Status::forbidden(
            &classes,
            &target.name,
            "this is a system priority class and cannot be deleted",
        ));
    }
    planes::check_delete(context, target)
}

fn gone(target: &Target, old: Value) -> DeleteAnswer {
    if target.definition.behavior.delete_returns_object {
        return DeleteAnswer::Object(Answered::Made(old));
    }
    let mut details = json!({
        "name": (target.name.as_str()),
        "kind": (target.definition.plural.as_str()),
        "uid": (old.str_at(&["metadata", "uid"]).unwrap_or_default()),
    });
    if !target.definition.group.is_empty() {
        details.set_at(&["group"], target.definition.group.clone());
    }
    DeleteAnswer::Gone(json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    }))
}
