//! Reading what every object has: names, labels, owners, times.

use polder_model::Value;
use polder_model::selector::LabelSelector;

use crate::timestamp;

pub(crate) trait Meta {
    fn value(&self) -> &Value;

    fn text(&self, field: &str) -> &str {
        self.value().str_at(&["metadata", field]).unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.text("name")
    }

    fn namespace(&self) -> &str {
        self.text("namespace")
    }

    fn uid(&self) -> &str {
        self.text("uid")
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.value().str_at(&["metadata", "labels", key])
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.value().str_at(&["metadata", "annotations", key])
    }

    fn generation(&self) -> i64 {
        self.value().i64_at(&["metadata", "generation"]).unwrap_or_default()
    }

    /// The generation its controller has seen.
    fn observed_generation(&self) -> i64 {
        self.value().i64_at(&["status", "observedGeneration"]).unwrap_or_default()
    }

    /// Somebody wants it to go.
    fn is_terminating(&self) -> bool {
        self.value().at(&["metadata", "deletionTimestamp"]).is_some_and(|time| !time.is_null())
    }

    /// When it was made, in seconds since 1970.
    fn created(&self) -> i64 {
        self.seconds_at(&["metadata", "creationTimestamp"]).unwrap_or_default()
    }

    fn seconds_at(&self, path: &[&str]) -> Option<i64> {
        timestamp::seconds(self.value().str_at(path)?)
    }

    /// A number of a status or spec; zero when it is not there.
    fn count_at(&self, path: &[&str]) -> i64 {
        self.value().i64_at(path).unwrap_or_default()
    }

    /// The reference to its controller.
    fn controller(&self) -> Option<&Value> {
        let references = self.value().array_at(&["metadata", "ownerReferences"]).iter();
        references.into_iter().find(|one| one.get("controller").and_then(Value::as_bool) == Some(true))
    }

    fn controller_uid(&self) -> Option<&str> {
        self.controller()?.str_at(&["uid"])
    }

    fn is_controlled_by(&self, owner: &Value) -> bool {
        self.controller_uid().is_some_and(|uid| uid == owner.uid())
    }

    fn has_finalizer(&self, finalizer: &str) -> bool {
        self.value().array_at(&["metadata", "finalizers"]).iter().any(|one| one.as_str() == Some(finalizer))
    }

    fn is_selected(&self, selector: &LabelSelector) -> bool {
        selector.matches(|key| self.label(key))
    }
}

impl Meta for Value {
    fn value(&self) -> &Value {
        self
    }
}

/// Seconds since 1970 as the API writes them.
pub(crate) fn time(seconds: i64) -> Value {
    Value::from(timestamp::text(seconds))
}

/// The selector of a kind whose selector is a `LabelSelector`. One that cannot be read, or that selects everything,
/// selects nothing.
pub(crate) fn selector_of(object: &Value) -> LabelSelector {
    let selector = object.at(&["spec", "selector"]).map(LabelSelector::from_value);
    match selector {
        Some(Ok(selector)) if !selector.is_everything() => selector,
        _ => LabelSelector::nothing(),
    }
}

/// A selector for objects that have all these labels.
pub(crate) fn selector_for(labels: Option<&Value>) -> LabelSelector {
    let mut selector = Value::default();
    selector.set_at(&["matchLabels"], labels.cloned().unwrap_or_default());
    match LabelSelector::from_value(&selector) {
        Ok(selector) if !selector.is_everything() => selector,
        _ => LabelSelector::nothing(),
    }
}
