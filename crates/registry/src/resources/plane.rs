//! `Plane` (polder.dev): one isolated control plane.

use polder_model::{Value, json};

use crate::behavior::Behavior;

pub(crate) static PLANE: Behavior = Behavior { group: "polder.dev", resource: "planes", ..Behavior::PLAIN };

/// The schema of one of our own kinds.
pub(crate) fn schema_json(_kind: &str) -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
