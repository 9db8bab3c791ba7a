//! The `scale` subresource: one number of an object, in a form that is the same for every kind.

use polder_model::selector::LabelSelector;
use polder_model::{FieldError, GroupKind, SmolStr, Status, Value, json};

use crate::context::{RequestContext, WriteOptions};
use crate::decode::Document;
use crate::definition::{Scale, Target};
use crate::registry::{Answered, ObjectAnswer, Registry};
use crate::write::{PatchKind, apply_patch};

/// The scale of an object.
pub(crate) fn read(target: &Target, object: &Value) -> Result<Value, Status> {
    let paths = paths(target)?;
    let number = |path: &[SmolStr]| object.at(&steps(path)).and_then(Value::as_i64).unwrap_or(0);
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {},
        "spec": {}, "status": {"replicas": (number(&paths.status_replicas))},
    });
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.at(&["metadata", field]) {
            scale.set_at(&["metadata", field], value.clone());
        }
    }
    let replicas = number(&paths.spec_replicas);
    if replicas != 0 {
        scale.set_at(&["spec", "replicas"], replicas);
    }
    let selector = match object.at(&steps(&paths.selector)) {
        Some(Value::String(text)) => text.to_string(),
        Some(selector @ Value::Object(map)) => {
            // A replication controller's selector is the map itself.
            let plain = !map.contains_key("matchLabels") && !map.contains_key("matchExpressions");
            let selector = if plain { json!({"matchLabels": (selector.clone())}) } else { selector.clone() };
            LabelSelector::from_value(&selector).map(|selector| selector.to_string()).unwrap_or_default()
        }
        _ => String::new(),
    };
    if !selector.is_empty() {
        scale.set_at(&["status", "selector"], selector);
    }
    Ok(scale)
}

pub(crate) async fn update(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
    document: Document,
    options: &WriteOptions,
) -> Result<ObjectAnswer, Status> {
    let scale = document.value;
    if scale.str_at(&["kind"]).is_some_and(|kind| kind != "Scale") {
        return Err(Status::bad_request("the body of a scale update must be a Scale"));
    }
    write(registry, context, target, options, |_| Ok(scale.clone())).await
}

pub(crate) async fn patch(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
    kind: PatchKind,
    patch: &Value,
    options: &WriteOptions,
) -> Result<ObjectAnswer, Status> {
    // A scale has no lists: merging strategically and merging are the same.
    let kind = if kind == PatchKind::Strategic { PatchKind::Merge } else { kind };
    write(registry, context, target, options, |old| apply_patch(target, kind, patch, old)).await
}

async fn write(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
    options: &WriteOptions,
    change: impl Fn(Value) -> Result<Value, Status>,
) -> Result<ObjectAnswer, Status> {
    let paths = paths(target)?;
    let answered = registry.modify_with(context, target, options, |object| {
        let old = read(target, object)?;
        let new = change(old.clone())?;
        let sent = new.str_at(&["metadata", "resourceVersion"]).unwrap_or_default();
        if !sent.is_empty() && Some(sent) != old.str_at(&["metadata", "resourceVersion"]) {
            return Err(Status::modified(&target.definition.group_resource(), &target.name));
        }
        let replicas = match new.at(&["spec", "replicas"]) {
            None | Some(Value::Null) => 0,
            Some(Value::Int(replicas)) => *replicas,
            Some(other) => {
                return Err(Status::bad_request(format!(
                    "json: cannot unmarshal {} into Go struct field ScaleSpec.spec.replicas of type int32",
                    other.type_name()
                )));
            }
        };
        if !(0..=i64::from(i32::MAX)).contains(&replicas) {
            let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
            let kind = GroupKind { group: "autoscaling".into(), kind: "Scale".into() };
            return Err(Status::invalid(&kind, &target.name, &[error]));
        }
        let path = steps(&paths.spec_replicas);
        if path.is_empty() {
            return Err(Status::internal("the scale path of this resource names no plain field"));
        }
        let before = object.clone();
        if object.at(&path).and_then(Value::as_i64).unwrap_or(0) != replicas {
            object.set_at(&path, replicas);
            target.definition.complete(&target.served().name, object)?;
            if let Some(generation) = object.i64_at(&["metadata", "generation"]) {
                object.set_at(&["metadata", "generation"], generation + 1);
            }
            let whole = Target { subresource: SmolStr::default(), ..target.clone() };
            registry.validate(context, &whole, object, Some(&before))?;
        }
        Ok(())
    });
    let object = match answered.await? {
        Answered::Stored(stored) => registry.to_client(context, target, &stored)?,
        Answered::Made(value) => value,
    };
    Ok(ObjectAnswer { body: Answered::Made(read(target, &object)?), created: false })
}

fn paths(target: &Target) -> Result<&Scale, Status> {
    target.served().scale.as_ref().ok_or_else(Status::path_not_found)
}

fn steps(path: &[SmolStr]) -> Vec<&str> {
    path.iter().map(SmolStr::as_str).collect()
}
