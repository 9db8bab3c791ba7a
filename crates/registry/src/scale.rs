//! The `scale` subresource: one number of an object, in a form that is the same for every kind.

use polder_admission::Operation;
use polder_machinery::apply::Force;
use polder_model::selector::LabelSelector;
use polder_model::{FieldError, GroupKind, SmolStr, Status, Value, json};

use crate::context::{RequestContext, WriteOptions};
use crate::decode::{Document, shape_part};
use crate::definition::{Scale, Target};
use crate::identity::check_name;
use crate::registry::{Answered, ObjectAnswer, Registry};
use crate::write::{ATTEMPTS_MAX, PatchKind, apply_patch};

/// Stands for replicas that an object does not name, so that a patch that names none either is noticed.
const UNSET: i64 = i32::MIN as i64;

/// The scale of an object, for somebody who reads it.
pub(crate) fn read(target: &Target, object: &Value) -> Result<Value, Status> {
    let path = &paths(target)?.spec_replicas;
    if target.definition.is_custom() && matches!(nested(object, path), Ok(None)) {
        let path = text(path);
        let why = format!("the spec replicas field {path:?} does not exist");
        return Err(Status::internal(why.as_str()).with_cause("", why, ""));
    }
    scale(target, object)
}

/// The scale of an object. A built-in kind's fields have their types; a custom one's may be anything.
fn scale(target: &Target, object: &Value) -> Result<Value, Status> {
    let paths = paths(target)?;
    let number = |path: &[SmolStr]| number(object, path).map_err(|problem| Status::untyped(500, problem));
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {},
        "spec": {}, "status": {"replicas": (number(&paths.status_replicas)?)},
    });
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.at(&["metadata", field]) {
            scale.set_at(&["metadata", field], value.clone());
        }
    }
    let replicas = number(&paths.spec_replicas)?;
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
    let mut scale = document.value;
    if scale.str_at(&["kind"]).is_some_and(|kind| kind != "Scale") {
        return Err(Status::bad_request("the body of a scale update must be a Scale"));
    }
    let shaped = shape_part(context, target, &mut scale, options.field_validation);
    shaped.map_err(|problem| problem.in_document("Scale", "v1"))?;
    write(registry, context, target, options, Source::Put(scale)).await
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
    write(registry, context, target, options, Source::Patch(kind, patch)).await
}

/// Applies to a scale by applying the number to the object.
pub(crate) async fn apply(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
    intent: &Value,
    force: Force,
    options: &WriteOptions,
) -> Result<ObjectAnswer, Status> {
    let is = |name: &str, expected: &str| intent.str_at(&[name]) == Some(expected);
    if !is("kind", "Scale") || !is("apiVersion", "autoscaling/v1") {
        let text = |name: &str| intent.str_at(&[name]).unwrap_or_default();
        return Err(Status::bad_request(format!(
            "invalid object type: {}, Kind={}",
            text("apiVersion"),
            text("kind")
        )));
    }
    let mut number = json!({"kind": (target.definition.kind.clone()), "apiVersion": (target.api_version())});
    number.set_at(&["metadata", "name"], target.name.clone());
    if let Some(replicas) = intent.at(&["spec", "replicas"]) {
        number.set_at(&steps(&paths(target)?.spec_replicas), replicas.clone());
    }
    write(registry, context, target, options, Source::Apply(number, force)).await
}

/// A conflict names the version in which the other one wrote: here that of the scale, not of the object.
fn as_of_scale(target: &Target, mut status: Status) -> Status {
    let (own, scale) = (format!(" using {}", target.api_version()), " using autoscaling/v1");
    status.message = status.message.replace(&own, scale);
    for cause in status.details.iter_mut().flat_map(|details| &mut details.causes) {
        cause.message = cause.message.replace(&own, scale);
    }
    status
}

const OWNERS: [&str; 2] = ["metadata", "managedFields"];

/// Where a new scale comes from.
enum Source<'a> {
    Put(Value),
    Patch(PatchKind, &'a Value),
    /// The object, as far as its number is wanted.
    Apply(Value, Force),
}

/// What a request makes of a scale.
struct Wanted {
    scale: Value,
    /// Who owns what of the object then; `None`: whoever asks owns what changes.
    owners: Option<Value>,
}

impl From<Value> for Wanted {
    fn from(scale: Value) -> Wanted {
        Wanted { scale, owners: None }
    }
}

impl Source<'_> {
    async fn wanted(
        &self,
        registry: &Registry,
        context: &RequestContext,
        target: &Target,
        options: &WriteOptions,
        (object, old): (&Value, Value),
    ) -> Result<Wanted, Status> {
        match self {
            Source::Put(scale) => Ok(scale.clone().into()),
            Source::Patch(kind, patch) => {
                let mut new = apply_patch(target, *kind, patch, old)?;
                let patched = new.clone();
                let shaped = shape_part(context, target, &mut new, options.field_validation);
                shaped.map_err(|problem| problem.in_patch(&patched.to_string()))?;
                Ok(new.into())
            }
            Source::Apply(number, force) => {
                let merged = registry.applied(context, target, Some(object), number, *force, options).await;
                let merged = merged.map_err(|status| as_of_scale(target, status))?;
                Ok(Wanted { scale: scale(target, &merged)?, owners: merged.at(&OWNERS).cloned() })
            }
        }
    }
}

async fn write(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
    options: &WriteOptions,
    source: Source<'_>,
) -> Result<ObjectAnswer, Status> {
    let paths = paths(target)?;
    let mut has_asked = false;
    for _ in 0..ATTEMPTS_MAX {
        let stored = registry.must_find_newest(context, target).await?;
        let before = registry.read_client(context, target, &stored).await?;
        let mut old = scale(target, &before)?;
        let unset =
            target.definition.is_custom() && matches!(nested(&before, &paths.spec_replicas), Ok(None));
        if unset {
            old.set_at(&["spec", "replicas"], UNSET);
        }
        let Wanted { scale: mut new, owners } =
            source.wanted(registry, context, target, options, (&before, old.clone())).await?;
        check_name(target, new.str_at(&["metadata", "name"]).unwrap_or_default())?;
        let sent = new.str_at(&["metadata", "resourceVersion"]).unwrap_or_default();
        if !sent.is_empty() && Some(sent) != old.str_at(&["metadata", "resourceVersion"]) {
            if !std::mem::replace(&mut has_asked, true) && registry.catch_up(&context.plane).await? {
                continue;
            }
            return Err(Status::modified(&target.definition.group_resource(), &target.name));
        }
        let operation = Operation::Update;
        registry.admit(context, target, operation, &mut new, Some(&old), options.into()).await?;
        let replicas = replicas(target, &new)?;
        if unset && replicas == UNSET {
            let path = text(&paths.spec_replicas);
            return Err(Status::bad_request(format!("the spec replicas field {path:?} cannot be empty")));
        }
        let mut object = before.clone();
        let path = steps(&paths.spec_replicas);
        if path.is_empty() {
            return Err(Status::internal("the scale path of this resource names no plain field"));
        }
        if unset || object.at(&path).and_then(Value::as_i64).unwrap_or(0) != replicas {
            object.set_at(&path, replicas);
            target.definition.complete(&target.served().name, &mut object)?;
            if let Some(generation) = object.i64_at(&["metadata", "generation"]) {
                object.set_at(&["metadata", "generation"], generation + 1);
            }
            let whole = Target { subresource: SmolStr::default(), ..target.clone() };
            registry.validate(context, &whole, &object, Some(&before))?;
        }
        registry.judge(context, target, operation, Some(&new), Some(&old), options.into()).await?;
        match owners {
            Some(owners) => object.set_at(&OWNERS, owners),
            None => {
                let both = (&before, &mut object);
                registry.note_scaled(context, target, &paths.spec_replicas, both, options).await;
            }
        }
        let answered = registry.store_changed(context, target, object, &before, &stored, options).await?;
        let object = match answered {
            Some(Answered::Stored(stored)) => registry.to_client(context, target, &stored)?,
            Some(Answered::Made(value)) => value,
            None => continue,
        };
        return Ok(ObjectAnswer { body: Answered::Made(scale(target, &object)?), created: false });
    }
    Err(Status::modified(&target.definition.group_resource(), &target.name))
}

/// The number a scale asks for.
fn replicas(target: &Target, scale: &Value) -> Result<i64, Status> {
    let replicas = match scale.at(&["spec", "replicas"]) {
        None | Some(Value::Null) => 0,
        Some(Value::Int(replicas)) => *replicas,
        Some(other) => {
            return Err(Status::bad_request(format!(
                "json: cannot unmarshal {} into Go struct field ScaleSpec.spec.replicas of type int32",
                other.type_name()
            )));
        }
    };
    if !target.definition.is_custom() && !(0..=i64::from(i32::MAX)).contains(&replicas) {
        let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        let kind = GroupKind { group: "autoscaling".into(), kind: "Scale".into() };
        return Err(Status::invalid(&kind, &target.name, &[error]));
    }
    Ok(replicas)
}

/// What is wrong with the numbers a custom object is scaled by. A status is checked without the rest.
pub(crate) fn validate(target: &Target, object: &Value, errors: &mut Vec<FieldError>) {
    let Some(paths) = &target.served().scale else { return };
    let mut check = |path: &[SmolStr]| {
        let (value, problem) = match number(object, path) {
            Err(problem) => (0, problem),
            Ok(value @ ..0) => (value, "should be a non-negative integer".into()),
            Ok(value) if value > i64::from(i32::MAX) => {
                (value, format!("should be less than or equal to {}", i32::MAX))
            }
            Ok(_) => return,
        };
        errors.push(FieldError::invalid(text(path), value, problem));
    };
    if target.subresource != "status" {
        check(&paths.spec_replicas);
    }
    check(&paths.status_replicas);
    let selector = &paths.selector;
    let problem = match nested(object, selector) {
        Ok(None | Some(Value::String(_))) => None,
        Ok(Some(other)) => Some(accessor(selector, other, "string")),
        Err(problem) => Some(problem),
    };
    if let Some(problem) = problem.filter(|_| !selector.is_empty()) {
        errors.push(FieldError::invalid(text(selector), "", problem));
    }
}

/// What stands at a path, if everything around it can have members.
fn nested<'v>(object: &'v Value, path: &[SmolStr]) -> Result<Option<&'v Value>, String> {
    let mut value = object;
    for (index, step) in path.iter().enumerate() {
        value = match value {
            Value::Null => return Ok(None),
            Value::Object(members) => match members.get(step) {
                Some(member) => member,
                None => return Ok(None),
            },
            other => return Err(accessor(&path[..=index], other, "map[string]interface{}")),
        };
    }
    Ok(Some(value))
}

/// The number at a path; zero when there is none.
fn number(object: &Value, path: &[SmolStr]) -> Result<i64, String> {
    match nested(object, path)? {
        None => Ok(0),
        Some(Value::Int(number)) => Ok(*number),
        Some(other) => Err(accessor(path, other, "int64")),
    }
}

fn accessor(path: &[SmolStr], found: &Value, expected: &str) -> String {
    let (shown, kind) = match found {
        Value::Null => ("<nil>".to_string(), "<nil>"),
        Value::Bool(_) => (found.to_string(), "bool"),
        Value::Int(_) => (found.to_string(), "int64"),
        Value::Float(_) => (found.to_string(), "float64"),
        Value::String(text) => (text.to_string(), "string"),
        Value::Array(_) => ("[...]".to_string(), "[]interface {}"),
        Value::Object(_) => ("map[...]".to_string(), "map[string]interface {}"),
    };
    format!("{} accessor error: {shown} is of the type {kind}, expected {expected}", text(path))
}

/// A path as a CRD writes it.
fn text(path: &[SmolStr]) -> String {
    path.iter().fold(String::new(), |text, step| text + "." + step)
}

fn paths(target: &Target) -> Result<&Scale, Status> {
    target.served().scale.as_ref().ok_or_else(Status::path_not_found)
}

fn steps(path: &[SmolStr]) -> Vec<&str> {
    path.iter().map(SmolStr::as_str).collect()
}
