//! What controllers ask of any object: its name, whether it goes away, who owns it. And of namespaces, whether they
//! take new objects.

use polder_client::InPlane;
use polder_client::resource::NAMESPACES;
use polder_model::{Status, Value};

pub(crate) fn is_deleting(object: &Value) -> bool {
    object.at(&["metadata", "deletionTimestamp"]).is_some_and(|timestamp| !timestamp.is_null())
}

/// Whether a namespace is there and stays.
pub(crate) async fn is_active(plane: &InPlane, namespace: &str) -> Result<bool, Status> {
    let found = plane.get(&NAMESPACES, "", namespace).await?;
    Ok(found.is_some_and(|found| {
        !is_deleting(&found) && found.str_at(&["status", "phase"]) != Some("Terminating")
    }))
}

/// What came of a create: one that somebody else made meanwhile is as good as ours, and a namespace that goes away
/// needs none.
pub(crate) fn created(outcome: Result<Value, Status>) -> Result<(), Status> {
    match outcome {
        Err(status) if status.code == 409 || is_terminating(&status) => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// Whether a write was refused because its namespace goes away.
pub(crate) fn is_terminating(status: &Status) -> bool {
    status.code == 403 && status.message.contains("because it is being terminated")
}
