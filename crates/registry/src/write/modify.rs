//! A change of an object that is there: what it will be, of whatever was sent, and what of that the request may not change.

use polder_admission::Operation;
use polder_machinery::patch::{
    PatchError, apply_json_patch, apply_merge_patch, apply_strategic_merge_patch, strategic_patch_text,
};
use polder_model::{FieldError, GroupKind, GroupResource, Object, SmolStr, Status, Value};

use super::{ATTEMPTS_MAX, PatchKind, Source};
use crate::behavior::Occasion;
use crate::context::{FieldValidation, RequestContext, WriteOptions};
use crate::custom;
use crate::decode::{self, Duplicates};
use crate::definition::{Origin, Target};
use crate::identity::{check_name, check_same_kind, check_same_uid, check_uid};
use crate::metadata;
use crate::registry::{Answered, ObjectAnswer, Registry};

impl Registry {
    /// Changes an object from inside the registry, without asking who may: the caller has.
    pub(crate) async fn modify_with(
        &self,
        context: &RequestContext,
        target: &Target,
        options: &WriteOptions,
        change: impl Fn(&mut Value) -> Result<(), Status>,
    ) -> Result<Answered, Status> {
        for _ in 0..ATTEMPTS_MAX {
            let stored = self.must_find_newest(context, target).await?;
            let old = self.read_client(context, target, &stored).await?;
            let mut new = old.clone();
            change(&mut new)?;
            if let Some(answer) = self.store_changed(context, target, new, &old, &stored, options).await? {
                return Ok(answer);
            }
        }
        Err(Status::modified(&target.definition.group_resource(), &target.name))
    }

    pub(super) async fn modify(
        &self,
        context: &RequestContext,
        target: &Target,
        source: Source<'_>,
        options: &WriteOptions,
    ) -> Result<ObjectAnswer, Status> {
        let resource = target.definition.group_resource();
        let _turn = custom::turn(self, context, target).await;
        let mut has_asked = false;
        for _ in 0..ATTEMPTS_MAX {
            let stored = self.must_find_newest(context, target).await?;
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
                    // Somebody may have seen it on another replica.
                    let is_ahead = sent.parse().is_ok_and(|sent: u64| sent > current);
                    if is_ahead
                        && !std::mem::replace(&mut has_asked, true)
                        && self.catch_up(&context.plane).await?
                    {
                        continue;
                    }
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
            self.check_escalation(context, target, (&new, Some(&old)), &target.name).await?;
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
    pub(super) fn merge(&self, context: &RequestContext, target: &Target, new: &mut Value, old: &Value) {
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
pub(super) fn shape_applied(
    context: &RequestContext,
    target: &Target,
    new: &mut Value,
) -> Result<(), Status> {
    let shaped = decode::shape(context, target, new, Duplicates::default(), FieldValidation::Ignore);
    shaped.map_err(|problem| problem.in_document(&target.definition.kind, &target.served().name))
}

pub(super) fn same_but_status(new: &Value, old: &Value, status_apart: bool) -> bool {
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

pub(super) fn copy_member(to: &mut Value, from: &Value, member: &str) {
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
