//! A replica set as its deployment sees it: what it was, and what it should be. Pure.

use std::sync::Arc;

use polder_machinery::schema::coerce::coerce;
use polder_machinery::schema::table::builtin;
use polder_model::Value;

use super::annotations::REVISION;
use crate::workload::Meta as _;

pub(super) const HASH_LABEL: &str = "pod-template-hash";

/// A replica set that is being thought about. `new` differs from `old` in what is to be written.
#[derive(Clone, Debug)]
pub(super) struct Set {
    /// Nothing when it is yet to be made.
    pub(super) old: Option<Arc<Value>>,
    pub(super) new: Value,
}

impl Set {
    pub(super) fn found(old: Arc<Value>) -> Set {
        Set { new: Value::clone(&old), old: Some(old) }
    }

    pub(super) fn is_changed(&self) -> bool {
        self.old.as_ref().is_none_or(|old| **old != self.new)
    }

    /// The size it should have.
    pub(super) fn size(&self) -> i64 {
        self.new.value().i64_at(&["spec", "replicas"]).unwrap_or(1)
    }

    /// The size it had before.
    pub(super) fn size_before(&self) -> i64 {
        self.old.as_ref().map_or(0, |old| old.i64_at(&["spec", "replicas"]).unwrap_or(1))
    }

    pub(super) fn pods(&self) -> i64 {
        self.new.count_at(&["status", "replicas"])
    }

    pub(super) fn ready(&self) -> i64 {
        self.new.count_at(&["status", "readyReplicas"])
    }

    pub(super) fn available(&self) -> i64 {
        self.new.count_at(&["status", "availableReplicas"])
    }

    /// How many of its pods are on their way out; nothing if it has not said so.
    pub(super) fn terminating(&self) -> Option<i64> {
        let told = self.new.value().i64_at(&["status", "terminatingReplicas"]);
        told.or((self.new.observed_generation() == 0).then_some(0))
    }

    /// Which template this is, counted from one; nothing if that cannot be read.
    pub(super) fn revision(&self) -> Option<i64> {
        self.new.annotation(REVISION).map_or(Some(0), |text| text.parse().ok())
    }

    /// From old to new.
    pub(super) fn age_key(&self) -> (i64, String) {
        (self.new.created(), self.new.name().to_string())
    }
}

/// The sum of a number over sets.
pub(super) fn sum<'a>(sets: impl IntoIterator<Item = &'a Set>, of: impl Fn(&Set) -> i64) -> i64 {
    sets.into_iter().map(of).fold(0, i64::saturating_add)
}

/// Whether two templates are the same but for the hash that tells sets apart.
pub(super) fn same_template(one: &Value, other: &Value) -> bool {
    let (mut one, mut other) = (plain(one), plain(other));
    if one == other {
        return true;
    }
    // Objects from before zeros were dropped have them still; they mean nothing.
    let Some(schema) = builtin().schema("io.k8s.api.core.v1.PodTemplateSpec") else { return false };
    let whole = [&mut one, &mut other].into_iter().all(|template| coerce(schema.node(), template).is_ok());
    whole && one == other
}

/// A template without what says nothing.
fn plain(template: &Value) -> Value {
    let mut template = template.clone();
    template.remove_at(&["metadata", "labels", HASH_LABEL]);
    for field in ["labels", "annotations", "creationTimestamp"] {
        let empty = |value: &Value| value.is_null() || value.as_object().is_some_and(|one| one.is_empty());
        if template.at(&["metadata", field]).is_some_and(empty) {
            template.remove_at(&["metadata", field]);
        }
    }
    template
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[test]
    fn zeros_make_no_difference() {
        let template = |spec: Value| json!({"metadata": {"labels": {"a": "b"}}, "spec": spec});
        let plain = template(json!({"containers": [{"name": "c", "env": [{"name": "E"}]}]}));
        let zeros = template(json!({
            "hostNetwork": false, "containers": [{"name": "c", "tty": false, "env": [{"name": "E", "value": ""}]}],
        }));
        let other =
            template(json!({"hostNetwork": true, "containers": [{"name": "c", "env": [{"name": "E"}]}]}));
        assert!(same_template(&plain, &zeros));
        assert!(!same_template(&plain, &other));
    }
}
