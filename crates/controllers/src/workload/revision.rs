//! `ControllerRevision`s: the templates an object has had, numbered, so that pods can be told apart by their template and
//! people can go back.

use std::sync::Arc;

use polder_client::resource::CONTROLLER_REVISIONS;
use polder_client::{Delete, InPlane};
use polder_model::{SmolStr, Status, Value, json};

use super::claim::Claimant;
use super::{Meta as _, hash};

/// The label of pods that says which revision they are of.
pub(crate) const REVISION_LABEL: &str = "controller-revision-hash";
/// What is left of an object's name in the name of a revision.
const NAME_LEN_MAX: usize = 223;

/// All revisions of an object.
pub(crate) struct History {
    /// That of the template it has now.
    pub(crate) current: Arc<Value>,
    /// The others, from old to new.
    pub(crate) old: Vec<Arc<Value>>,
}

/// What came of looking for the revisions of an object.
pub(crate) enum Found {
    History(History),
    /// Somebody else has a revision of the name that is needed: the object must count one more collision.
    Collision,
}

/// The template of an object as a patch that brings it back.
pub(crate) fn snapshot(object: &Value) -> Value {
    let mut template = object.at(&["spec", "template"]).cloned().unwrap_or_default();
    template.set_at(&["$patch"], "replace");
    json!({"spec": {"template": template}})
}

fn number(revision: &Value) -> i64 {
    revision.count_at(&["revision"])
}

/// Finds the revisions of an object, and makes or renumbers that of its present template. `label` is where the hash
/// of a revision is noted.
pub(crate) async fn history(plane: &InPlane, claimant: &Claimant<'_>, label: &str) -> Result<Found, Status> {
    let object = claimant.object;
    let found =
        plane.list_selected(&CONTROLLER_REVISIONS, object.namespace(), claimant.selector.clone()).await?;
    let mut old = claimant.claim(plane, &CONTROLLER_REVISIONS, found).await?;
    old.sort_by_key(|one| (number(one), one.created(), SmolStr::new(one.name())));
    let data = snapshot(object);
    let equal = old.iter().rposition(|one| one.get("data") == Some(&data));
    let current = equal.map(|place| old.remove(place));
    let next = old.last().map_or(0, |one| number(one)).saturating_add(1);
    let current = match current {
        Some(current) if number(&current) >= next => current,
        Some(current) => {
            let mut renumbered = Value::clone(&current);
            renumbered.set_at(&["revision"], next);
            Arc::new(plane.update(&CONTROLLER_REVISIONS, renumbered).await?)
        }
        None => match create(plane, claimant, label, data, next).await? {
            Some(made) => made,
            None => return Ok(Found::Collision),
        },
    };
    Ok(Found::History(History { current, old }))
}

/// Makes a revision. Nothing when its name is somebody else's.
async fn create(
    plane: &InPlane,
    claimant: &Claimant<'_>,
    label: &str,
    data: Value,
    revision: i64,
) -> Result<Option<Arc<Value>>, Status> {
    let object = claimant.object;
    let template = object.at(&["spec", "template"]).cloned().unwrap_or_default();
    let hash = hash::of(&template, object.value().i64_at(&["status", "collisionCount"]));
    let name = &object.name()[..object.name().floor_char_boundary(NAME_LEN_MAX)];
    let name = format!("{name}-{hash}");
    let mut new = json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": (name.as_str()),
            "namespace": (object.namespace()),
            "ownerReferences": [(claimant.kind.controller_reference(object))],
        },
        "data": data,
        "revision": revision,
    });
    if let Some(labels) = template.at(&["metadata", "labels"]) {
        new.set_at(&["metadata", "labels"], labels.clone());
    }
    if let Some(annotations) = object.at(&["metadata", "annotations"]) {
        new.set_at(&["metadata", "annotations"], annotations.clone());
    }
    new.set_at(&["metadata", "labels", label], hash);
    match plane.create(&CONTROLLER_REVISIONS, object.namespace(), new).await {
        Ok(made) => Ok(Some(Arc::new(made))),
        Err(status) if status.code == 409 => {
            let other = plane.get(&CONTROLLER_REVISIONS, object.namespace(), &name).await?;
            let is_ours = |other: &Arc<Value>| {
                other.is_controlled_by(object) && other.get("data") == Some(&snapshot(object))
            };
            match other {
                Some(other) if is_ours(&other) => Ok(Some(other)),
                Some(_) => Ok(None),
                None => Err(status),
            }
        }
        Err(status) => Err(status),
    }
}

/// Old revisions that are more than an object wants to remember, and that no pod is of.
pub(crate) fn surplus(
    object: &Value,
    old: &[Arc<Value>],
    is_live: impl Fn(&Value) -> bool,
) -> Vec<Arc<Value>> {
    let limit = object.value().i64_at(&["spec", "revisionHistoryLimit"]).unwrap_or(10);
    let unused: Vec<&Arc<Value>> = old.iter().filter(|one| !is_live(one)).collect();
    let count = unused.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
    unused[..count].iter().map(|one| Arc::clone(one)).collect()
}

pub(crate) async fn forget(plane: &InPlane, revisions: &[Arc<Value>]) -> Result<(), Status> {
    for one in revisions {
        let only = Delete { uid: Some(SmolStr::new(one.uid())), ..Delete::default() };
        plane.delete(&CONTROLLER_REVISIONS, one.namespace(), one.name(), only).await?;
    }
    Ok(())
}
