//! What has changed in a namespace since somebody last looked: for controllers whose objects select others by labels.
//!
//! A change of a pod concerns whatever selects its labels, and which objects those are is known only when they are
//! listed. So `observe` notes the labels here and wakes the namespace, and `reconcile` takes all notes at once. Many pods
//! with the same labels are one note.
//!
//! Invariant: a namespace has a bounded number of notes of a bounded weight (more become "everything"), and what is taken and not
//! finished is put back.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use polder_model::selector::LabelSelector;
use polder_model::{Object, PlaneId, SmolStr, Value};

/// Notes of one namespace, and what their labels may weigh: an object may have a megabyte of them.
const NOTES_MAX: usize = 256;
const LABEL_BYTES_MAX: usize = 64 * 1024;

#[derive(Default)]
pub(crate) struct Marks {
    namespaces: Mutex<HashMap<(PlaneId, SmolStr), Mark>>,
}

/// The notes of one namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Mark {
    everything: bool,
    names: BTreeSet<SmolStr>,
    labels: Vec<Object>,
    label_bytes: usize,
}

/// Notes in work. Dropped before they are done, they are put back.
pub(crate) struct Taken<'m> {
    marks: &'m Marks,
    place: (PlaneId, SmolStr),
    mark: Mark,
}

impl Marks {
    /// The object of this name has changed.
    pub(crate) fn name(&self, plane: PlaneId, namespace: &SmolStr, name: &SmolStr) {
        let mut namespaces = self.namespaces.lock();
        let mark = namespaces.entry((plane, namespace.clone())).or_default();
        mark.names.insert(name.clone());
        mark.bound();
    }

    /// Something with these labels has changed, or had them before.
    pub(crate) fn labels(&self, plane: PlaneId, namespace: &SmolStr, labels: &Object) {
        let mut namespaces = self.namespaces.lock();
        let mark = namespaces.entry((plane, namespace.clone())).or_default();
        if !mark.everything && !mark.labels.contains(labels) {
            mark.label_bytes += weight(labels);
            if mark.label_bytes <= LABEL_BYTES_MAX {
                mark.labels.push(labels.clone());
            }
            mark.bound();
        }
    }

    pub(crate) fn take(&self, plane: PlaneId, namespace: &str) -> Taken<'_> {
        let place = (plane, SmolStr::new(namespace));
        let mark = self.namespaces.lock().remove(&place).unwrap_or_default();
        Taken { marks: self, place, mark }
    }

    pub(crate) fn forget(&self, is_gone: &dyn Fn(PlaneId) -> bool) {
        self.namespaces.lock().retain(|(plane, _), _| !is_gone(*plane));
    }
}

impl Mark {
    fn bound(&mut self) {
        let is_much = self.names.len() + self.labels.len() > NOTES_MAX || self.label_bytes > LABEL_BYTES_MAX;
        if self.everything || is_much {
            *self = Mark { everything: true, ..Mark::default() };
        }
    }
}

impl Taken<'_> {
    /// Whether an object of this name, which selects this, is to be looked at.
    pub(crate) fn concerns(&self, name: &str, selector: Option<&LabelSelector>) -> bool {
        let selects = |selector: &LabelSelector| {
            let has = |labels: &Object| selector.matches(|key| labels.str(key));
            self.mark.labels.iter().any(has)
        };
        self.mark.everything || self.mark.names.contains(name) || selector.is_some_and(selects)
    }

    /// The names noted, whether there is such an object or not.
    pub(crate) fn names(&self) -> impl Iterator<Item = &SmolStr> {
        self.mark.names.iter()
    }

    pub(crate) fn everything(&self) -> bool {
        self.mark.everything
    }

    pub(crate) fn done(mut self) {
        self.mark = Mark::default();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.mark == Mark::default() {
            return;
        }
        let mut namespaces = self.marks.namespaces.lock();
        let mark = namespaces.entry(self.place.clone()).or_default();
        mark.everything |= self.mark.everything;
        mark.names.append(&mut self.mark.names);
        mark.labels.append(&mut self.mark.labels);
        mark.label_bytes += self.mark.label_bytes;
        mark.bound();
    }
}

/// What labels take up, roughly: each has a place, and its texts.
fn weight(labels: &Object) -> usize {
    labels.iter().map(|(key, value)| 64 + key.len() + value.as_str().map_or(0, str::len)).sum()
}

/// The labels of an object, if it has any.
pub(crate) fn labels_of(object: &Value) -> Option<&Object> {
    object.at(&["metadata", "labels"])?.as_object().filter(|labels| !labels.is_empty())
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    const A: PlaneId = PlaneId(1);

    fn labels(value: &str) -> Object {
        json!({"app": value}).as_object().unwrap().clone()
    }

    #[test]
    fn heavy_notes_become_everything() {
        let (marks, space) = (Marks::default(), SmolStr::new("n"));
        let many: Object = (0..2_000).map(|index| (format!("key-{index}").into(), "x".into())).collect();
        marks.labels(A, &space, &labels("web"));
        assert!(!marks.take(A, "n").everything(), "and it is put back");
        marks.labels(A, &space, &many);
        let taken = marks.take(A, "n");
        assert!(taken.everything() && taken.mark.labels.is_empty());
    }

    #[test]
    fn what_is_not_done_is_put_back() {
        let (marks, space) = (Marks::default(), SmolStr::new("n"));
        marks.labels(A, &space, &labels("web"));
        marks.labels(A, &space, &labels("web"));
        marks.name(A, &space, &"db".into());
        let web = LabelSelector::parse("app=web").unwrap();
        let other = LabelSelector::parse("app=other").unwrap();
        let taken = marks.take(A, "n");
        assert_eq!(taken.mark.labels.len(), 1, "the same labels are one note");
        assert!(taken.concerns("x", Some(&web)) && taken.concerns("db", None));
        assert!(!taken.concerns("x", Some(&other)) && !taken.concerns("x", None));
        assert!(!marks.take(A, "n").concerns("db", None), "taken once");
        drop(taken);
        let taken = marks.take(A, "n");
        assert!(taken.concerns("x", Some(&web)) && taken.concerns("db", None));
        taken.done();
        assert!(marks.namespaces.lock().is_empty(), "nothing is kept of what is done");
    }

    #[test]
    fn too_many_notes_are_everything() {
        let (marks, space) = (Marks::default(), SmolStr::new("n"));
        for number in 0..1000 {
            marks.labels(A, &space, &labels(&number.to_string()));
        }
        let taken = marks.take(A, "n");
        assert!(taken.concerns("anything", None) && taken.mark.labels.is_empty());
        drop(taken);
        marks.forget(&|_| true);
        assert!(marks.namespaces.lock().is_empty());
    }
}
