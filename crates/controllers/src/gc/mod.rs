//! The garbage collector: objects go when their owners have, owners that are deleted in the foreground wait for them,
//! and owners that leave orphans behind let go of them first.
//!
//! Which objects depend on an owner is asked of an [`index::Index`] of the plane, made by one look at the whole plane
//! when an object that may have dependents goes, kept up by the feed, and dropped when other planes need the room. An
//! owner's end is told once, so a plane in which nothing is deleted has no index.
//!
//! Owners, and those who depend on them, may be objects of extension servers (`remote`). No feed tells of those: in planes
//! that have such servers, and in no others, what they keep is listed now and then and put into the index (`sweep`).
//!
//! Invariant: an object is deleted only after a fresh look at all its owners, and only the very version that was looked at.

mod act;
mod index;
mod plan;
mod remote;
mod sweep;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use polder_client::resource::{API_SERVICES, EVENTS};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Snapshot, Wake};
use polder_model::{GroupResource, PlaneId, SmolStr, Value, format_smolstr};
use tokio::sync::OnceCell;

use self::index::{Index, ObjectRef, owners};
use self::plan::{FOREGROUND, ORPHAN};
use crate::meta::{has_finalizer, is_deleting};
use crate::recorder::Recorder;

/// Planes, and references to owners in all of them, that are remembered. The one looked at longest ago is forgotten first.
const PLANES_MAX: usize = 4_096;
const REFERENCES_MAX: usize = 1_000_000;

pub(super) struct GarbageCollector {
    recorder: Recorder,
    planes: Mutex<HashMap<PlaneId, Arc<Tended>>>,
    clock: AtomicU64,
}

impl Default for GarbageCollector {
    fn default() -> GarbageCollector {
        let recorder = Recorder::new("garbage-collector-controller");
        GarbageCollector { recorder, planes: Mutex::default(), clock: AtomicU64::default() }
    }
}

/// What is known of a plane.
#[derive(Default)]
struct Tended {
    index: Mutex<Index>,
    built: OnceCell<()>,
    /// All of it has been put among the unseen.
    scanned: AtomicBool,
    /// What a look at the whole plane found and nobody has looked at yet.
    unseen: Mutex<Vec<ObjectRef>>,
    /// What was looked at and must be looked at again, since nobody tells of the end of its owners.
    later: Mutex<Vec<ObjectRef>>,
    /// What extension servers keep.
    elsewhere: Mutex<sweep::Elsewhere>,
    used: AtomicU64,
}

/// What a key stands for.
#[derive(Debug, PartialEq, Eq)]
enum Task {
    /// An owner is gone: those who depend on it are looked at.
    Gone(SmolStr),
    /// One object is looked at, with its owners.
    Object(ObjectRef),
    /// Somebody an owner may wait for is gone. The owner, as references name it, and its namespace.
    Owner { group: SmolStr, kind: SmolStr, namespace: SmolStr, name: SmolStr },
    /// Everything.
    Scan,
    /// Everything that extension servers keep.
    Sweep,
}

impl Task {
    fn key(&self) -> SmolStr {
        match self {
            Task::Gone(uid) => format_smolstr!("gone,{uid}"),
            Task::Object(ObjectRef { resource, namespace, name }) => {
                format_smolstr!("object,{},{},{namespace},{name}", resource.group, resource.resource)
            }
            Task::Owner { group, kind, namespace, name } => {
                format_smolstr!("owner,{group},{kind},{namespace},{name}")
            }
            Task::Scan => SmolStr::new_static("scan"),
            Task::Sweep => SmolStr::new_static("sweep"),
        }
    }

    /// Groups, kinds, resources, namespaces and names have no commas; UIDs are the server's own.
    fn parse(key: &str) -> Option<Task> {
        let parts: Vec<&str> = key.split(',').collect();
        Some(match parts[..] {
            ["gone", uid] => Task::Gone(SmolStr::new(uid)),
            ["object", group, resource, namespace, name] => Task::Object(ObjectRef {
                resource: GroupResource::new(group, resource),
                namespace: SmolStr::new(namespace),
                name: SmolStr::new(name),
            }),
            ["owner", group, kind, namespace, name] => Task::Owner {
                group: SmolStr::new(group),
                kind: SmolStr::new(kind),
                namespace: SmolStr::new(namespace),
                name: SmolStr::new(name),
            },
            ["scan"] => Task::Scan,
            ["sweep"] => Task::Sweep,
            _ => return None,
        })
    }
}

impl Controller for GarbageCollector {
    fn name(&self) -> &'static str {
        "garbage-collector-controller"
    }

    fn interest(&self) -> Interest {
        Interest::Everything
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        // Events come and go in great numbers and own nothing.
        if change.is(&EVENTS) {
            return;
        }
        let tended = self.planes.lock().get(&change.plane).cloned();
        let object = ObjectRef {
            resource: change.resource.clone(),
            namespace: change.namespace.clone(),
            name: change.name.clone(),
        };
        if change.is(&API_SERVICES)
            && [&change.old, &change.new].into_iter().flatten().any(|one| one.may_contain(sweep::SIGN))
        {
            if let Some(tended) = &tended {
                tended.elsewhere.lock().look_again();
            }
            wake(Task::Sweep.key());
        }
        let (old, new) = (owned(&change.old), owned(&change.new));
        if let Some(new) = &change.new {
            let tied = owned(&change.new)
                .is_some_and(|new| old.is_none_or(|old| references(old) != references(new)));
            let held = new.may_contain("deletionTimestamp")
                && is_deleting(new.value())
                && [FOREGROUND, ORPHAN].iter().any(|finalizer| has_finalizer(new.value(), finalizer));
            if tied || held {
                wake(Task::Object(object.clone()).key());
            }
        } else if let Some(old) = &change.old {
            let uid = old.value().str_at(&["metadata", "uid"]).unwrap_or_default();
            if !tended.as_ref().is_some_and(|tended| tended.index.lock().is_free(uid)) {
                wake(Task::Gone(SmolStr::new(uid)).key());
            }
            // Somebody may depend on it of whom nobody has told.
            if tended.as_ref().is_some_and(|tended| tended.elsewhere.lock().is_extended()) {
                wake(Task::Sweep.key());
            }
        }
        if let Some(tended) = tended {
            let mut index = tended.index.lock();
            match &change.new {
                None => index.remove(&object, change.resource_version),
                Some(_) => index.put(
                    &object,
                    change.resource_version,
                    new.map(|new| owners(new)).unwrap_or_default(),
                ),
            }
        }
        // An owner that waited for this object, and need not any longer.
        let left = old.map(|old| references(old)).unwrap_or_default().iter();
        for reference in left.filter(|reference| !new.is_some_and(|new| references(new).contains(reference)))
        {
            if reference.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true) {
                let text = |field| SmolStr::new(reference.str_at(&[field]).unwrap_or_default());
                let api_version = text("apiVersion");
                let group = api_version.split_once('/').map_or("", |(group, _)| group);
                let (group, namespace) = (SmolStr::new(group), change.namespace.clone());
                wake(Task::Owner { group, kind: text("kind"), namespace, name: text("name") }.key());
            }
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            match Task::parse(key) {
                Some(task) => self.act(plane, task).await,
                None => Ok(Next::Done),
            }
        })
    }

    fn look(&self, plane: PlaneId, wake: Wake<'_>) {
        // What was remembered may lack what no change told of.
        self.planes.lock().remove(&plane);
        wake(Task::Scan.key());
        wake(Task::Sweep.key());
    }

    fn forget(&self, is_gone: &dyn Fn(PlaneId) -> bool) {
        self.planes.lock().retain(|plane, _| !is_gone(*plane));
    }
}

impl GarbageCollector {
    /// What is known of a plane; of a new one nothing, and so it must be looked at.
    fn tend(&self, plane: PlaneId) -> Arc<Tended> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut planes = self.planes.lock();
        let tended = planes.entry(plane).or_default().clone();
        tended.used.store(now, Ordering::Relaxed);
        let len = |planes: &HashMap<PlaneId, Arc<Tended>>| {
            planes.values().map(|tended| tended.index.lock().len()).sum::<usize>()
        };
        // Counting is dear only when there are many planes, and then it is done rarely.
        let crowded = planes.len() > PLANES_MAX || (now.is_multiple_of(256) && len(&planes) > REFERENCES_MAX);
        if crowded && planes.len() > 1 {
            let oldest = planes.iter().min_by_key(|(_, tended)| tended.used.load(Ordering::Relaxed));
            let oldest = oldest.map(|(plane, _)| *plane);
            oldest.and_then(|oldest| planes.remove(&oldest));
        }
        tended
    }
}

/// An object that names owners.
fn owned(snapshot: &Option<Snapshot>) -> Option<&Arc<Value>> {
    let snapshot = snapshot.as_ref().filter(|snapshot| snapshot.may_contain("\"ownerReferences\""))?;
    Some(snapshot.value()).filter(|value| !references(value).is_empty())
}

fn references(object: &Value) -> &[Value] {
    object.array_at(&["metadata", "ownerReferences"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_say_what_they_stand_for() {
        let object = ObjectRef {
            resource: GroupResource::new("apps", "replicasets"),
            namespace: SmolStr::new("default"),
            name: SmolStr::new("web-1"),
        };
        let owner = Task::Owner {
            group: SmolStr::default(),
            kind: SmolStr::new("Pod"),
            namespace: SmolStr::default(),
            name: SmolStr::new("a"),
        };
        for task in [Task::Gone(SmolStr::new("u")), Task::Object(object), owner, Task::Scan, Task::Sweep] {
            assert_eq!(Task::parse(&task.key()), Some(task));
        }
        assert_eq!(Task::parse("else"), None);
    }
}
