//! Who depends on whom in one plane: from the UID of an owner to the objects that name it.
//!
//! Filled by a look at the whole plane and kept up by the feed at the same time. Both tell versions, and the newer one
//! counts, so the order in which they come does not matter.

use std::collections::{HashMap, HashSet};

use polder_model::{GroupResource, SmolStr, Value};

/// An object, whatever its version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ObjectRef {
    pub(super) resource: GroupResource,
    pub(super) namespace: SmolStr,
    pub(super) name: SmolStr,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    objects: HashMap<ObjectRef, Known>,
    /// Owners of all of them: an object may name thousands.
    references: usize,
    dependents: HashMap<SmolStr, HashSet<ObjectRef>>,
    /// What the feed said is gone, or has no owners, while the plane was looked at.
    gone: HashMap<ObjectRef, u64>,
    complete: bool,
}

#[derive(Debug)]
struct Known {
    version: u64,
    owners: Vec<Owner>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: SmolStr,
    /// It waits for this dependent when it is deleted in the foreground.
    pub(super) waits: bool,
}

/// The owners an object names.
pub(super) fn owners(object: &Value) -> Vec<Owner> {
    let references = object.array_at(&["metadata", "ownerReferences"]).iter();
    let owner = |reference: &Value| Owner {
        uid: SmolStr::new(reference.str_at(&["uid"]).unwrap_or_default()),
        waits: reference.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true),
    };
    references.map(owner).collect()
}

impl Index {
    /// How much there is to remember.
    pub(super) fn len(&self) -> usize {
        self.references
    }

    /// Everything that was there has been told.
    pub(super) fn set_complete(&mut self) {
        self.complete = true;
        self.gone = HashMap::new();
    }

    /// Whether it is certain that nobody depends on an owner.
    pub(super) fn is_free(&self, uid: &str) -> bool {
        self.complete && !self.dependents.contains_key(uid)
    }

    /// An object is, at this version, owned by these.
    pub(super) fn put(&mut self, object: &ObjectRef, version: u64, owners: Vec<Owner>) {
        let is_newer = |known: &Known| known.version >= version;
        if self.objects.get(object).is_some_and(is_newer)
            || self.gone.get(object).is_some_and(|gone| *gone >= version)
        {
            return;
        }
        self.detach_all(object);
        if owners.is_empty() {
            // An older version with owners may still be told.
            if !self.complete {
                self.gone.insert(object.clone(), version);
            }
            return;
        }
        for owner in &owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(object.clone());
        }
        self.references += owners.len();
        self.objects.insert(object.clone(), Known { version, owners });
    }

    /// An object went at this version.
    pub(super) fn remove(&mut self, object: &ObjectRef, version: u64) {
        if self.objects.get(object).is_some_and(|known| known.version > version) {
            return;
        }
        self.detach_all(object);
        if !self.complete {
            self.gone.insert(object.clone(), version);
        }
    }

    /// An object has nothing more to do with an owner.
    pub(super) fn detach(&mut self, object: &ObjectRef, uid: &str) {
        if let Some(known) = self.objects.get_mut(object) {
            let before = known.owners.len();
            known.owners.retain(|owner| owner.uid != uid);
            self.references -= before - known.owners.len();
            if known.owners.is_empty() {
                self.objects.remove(object);
            }
        }
        self.unlink(object, uid);
    }

    fn detach_all(&mut self, object: &ObjectRef) {
        let Some(known) = self.objects.remove(object) else { return };
        self.references -= known.owners.len();
        for owner in known.owners {
            self.unlink(object, &owner.uid);
        }
    }

    fn unlink(&mut self, object: &ObjectRef, uid: &str) {
        if let Some(dependents) = self.dependents.get_mut(uid) {
            dependents.remove(object);
            if dependents.is_empty() {
                self.dependents.remove(uid);
            }
        }
    }

    /// Some of those who name an owner.
    pub(super) fn dependents(&self, uid: &str, len_max: usize) -> Vec<ObjectRef> {
        self.dependents.get(uid).into_iter().flatten().take(len_max).cloned().collect()
    }

    /// Some of those an owner waits for.
    pub(super) fn awaited(&self, uid: &str, len_max: usize) -> Vec<ObjectRef> {
        let waits = |object: &&ObjectRef| {
            let known = self.objects.get(*object);
            known.is_some_and(|known| known.owners.iter().any(|owner| owner.uid == uid && owner.waits))
        };
        self.dependents.get(uid).into_iter().flatten().filter(waits).take(len_max).cloned().collect()
    }

    pub(super) fn objects(&self) -> Vec<ObjectRef> {
        self.objects.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> ObjectRef {
        let resource = GroupResource::new("", "pods");
        ObjectRef { resource, namespace: SmolStr::new("default"), name: SmolStr::new(name) }
    }

    fn owner(uid: &str, waits: bool) -> Owner {
        Owner { uid: SmolStr::new(uid), waits }
    }

    #[test]
    fn the_newer_version_counts_whoever_tells_it_first() {
        let mut index = Index::default();
        index.put(&object("a"), 7, vec![owner("x", false)]);
        index.put(&object("a"), 5, vec![owner("y", false)]);
        assert_eq!(index.dependents("x", 9), [object("a")]);
        assert!(index.dependents("y", 9).is_empty());
        index.remove(&object("a"), 6);
        assert_eq!(index.dependents("x", 9).len(), 1, "an older end does not count");
        index.remove(&object("a"), 8);
        index.put(&object("a"), 7, vec![owner("x", false)]);
        assert!(
            index.dependents("x", 9).is_empty(),
            "what is gone does not come back while the plane is looked at"
        );
        assert!(!index.is_free("x"), "not all has been told");
        index.set_complete();
        assert!(index.is_free("x"));
    }

    #[test]
    fn owners_wait_only_for_those_who_say_so() {
        let mut index = Index::default();
        index.put(&object("a"), 1, vec![owner("x", true)]);
        index.put(&object("b"), 1, vec![owner("x", false), owner("y", true)]);
        assert_eq!(index.len(), 3, "references count, not objects");
        assert_eq!(index.awaited("x", 9), [object("a")]);
        assert_eq!(index.dependents("x", 9).len(), 2);
        assert_eq!(index.dependents("x", 1).len(), 1);
        index.detach(&object("b"), "x");
        assert_eq!(index.dependents("x", 9), [object("a")]);
        assert_eq!(index.awaited("y", 9), [object("b")]);
        index.put(&object("b"), 2, Vec::new());
        index.put(&object("b"), 1, vec![owner("y", true)]);
        assert!(index.awaited("y", 9).is_empty(), "an older version does not count");
        index.detach(&object("a"), "x");
        assert_eq!((index.len(), index.dependents.len()), (0, 0));
    }
}
