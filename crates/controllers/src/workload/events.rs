//! What people are told when pods are made and deleted for an object.

use polder_client::InPlane;
use polder_model::{Status, Value};

use crate::meta;
use crate::recorder::Recorder;

/// An object gets no more than a burst of events; more are not even tried.
const NAMES_MAX: usize = 25;

pub(crate) async fn created<'a>(
    plane: &InPlane,
    recorder: &Recorder,
    owner: &Value,
    names: impl Iterator<Item = &'a str>,
    failure: Option<&Status>,
) {
    tell(plane, recorder, owner, "SuccessfulCreate", "Created pod: ", names).await;
    if let Some(failure) = failure.filter(|failure| !meta::is_terminating(failure)) {
        let message = format!("Error creating: {}", failure.message);
        recorder.warning(plane, owner, "FailedCreate", &message).await;
    }
}

pub(crate) async fn deleted<'a>(
    plane: &InPlane,
    recorder: &Recorder,
    owner: &Value,
    names: impl Iterator<Item = &'a str>,
    failure: Option<&Status>,
) {
    tell(plane, recorder, owner, "SuccessfulDelete", "Deleted pod: ", names).await;
    if let Some(failure) = failure {
        let message = format!("Error deleting: {}", failure.message);
        recorder.warning(plane, owner, "FailedDelete", &message).await;
    }
}

async fn tell<'a>(
    plane: &InPlane,
    recorder: &Recorder,
    owner: &Value,
    reason: &str,
    what: &str,
    names: impl Iterator<Item = &'a str>,
) {
    let messages: Vec<String> = names.take(NAMES_MAX).map(|name| format!("{what}{name}")).collect();
    recorder.normals(plane, owner, reason, messages.iter().map(String::as_str)).await;
}
