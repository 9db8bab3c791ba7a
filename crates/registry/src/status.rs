//! Domain errors become a Kubernetes `Status` here and nowhere else.

use polder_model::{GroupResource, Status};
use polder_store::engine::EngineError;
use polder_store::{CommitError, Plane, ReadError, Revision};

/// A read that failed. `resource_version` is what the client asked for.
pub(crate) fn read_failed(plane: &Plane, error: ReadError) -> Status {
    match error {
        ReadError::Compacted { at, compacted } => too_old(plane, at, compacted),
        ReadError::Future { at, current } => {
            Status::version_too_large(plane.resource_version(at), plane.resource_version(current))
        }
        ReadError::NoPlane => plane_not_found(plane.name.as_str()),
        ReadError::Unreachable(_) | ReadError::Behind => {
            tracing::warn!(%error, "a read of the newest state failed");
            Status::unavailable(
                "this replica cannot tell what is newest: ask again, or with resourceVersion=0 for what it has",
            )
        }
        ReadError::Closed => Status::unavailable("the server is shutting down"),
        ReadError::Engine(error) => engine_failed(&error),
    }
}

/// A commit that failed for another reason than the object's own state.
pub(crate) fn commit_failed(
    plane: &Plane,
    resource: &GroupResource,
    name: &str,
    error: CommitError,
) -> Status {
    match error {
        CommitError::Conflict { .. } => Status::modified(resource, name),
        CommitError::NotLeading => Status::unavailable("another replica leads"),
        CommitError::NoName(_) => Status::bad_request(error.to_string()),
        CommitError::TooLong { .. } => Status::too_large(error.to_string()),
        CommitError::NoPlane => plane_not_found(plane.name.as_str()),
        CommitError::PlaneExists(own) => {
            Status::already_exists(&GroupResource::new("polder.dev", "planes"), own.as_str())
        }
        CommitError::NoLayer(layer) => Status::not_found(&GroupResource::new("polder.dev", "layers"), &layer),
        CommitError::LayerExists(layer) => {
            Status::already_exists(&GroupResource::new("polder.dev", "layers"), &layer)
        }
        CommitError::TooManyLayers => Status::unavailable(format!(
            "plane {} was forked too often in a short time; try again in a few minutes",
            plane.name
        )),
        CommitError::LimitReached { what, limit } => Status::forbidden(
            resource,
            name,
            &format!("plane {} has reached its limit of {limit} {what}", plane.name),
        ),
        CommitError::CorePlane => Status::forbidden(resource, name, "the core plane cannot be deleted"),
        CommitError::Closed => Status::unavailable("the server is shutting down"),
        CommitError::Engine(error) => engine_failed(&error),
        CommitError::Unknown(error) => {
            tracing::error!(error = %error, "it is not known whether a change was made");
            Status::timeout("it is not known whether the change was made: read the object to see")
        }
        CommitError::Stopped => Status::unavailable("the server takes no changes until it is restarted"),
    }
}

fn engine_failed(error: &EngineError) -> Status {
    match error {
        EngineError::Full(_) => {
            Status::insufficient_storage("the server's disk is full: nothing was written, reads still work")
        }
        EngineError::Overtaken => {
            Status::too_many_requests("other replicas were first again and again: please try again", 1)
        }
        EngineError::Unavailable(_) | EngineError::Doubtful(_) => {
            tracing::warn!(error = %error, "what replicas share does not answer");
            Status::unavailable("the servers' shared storage does not answer: please try again")
        }
        EngineError::Damaged(_)
        | EngineError::Failed(_)
        | EngineError::Unknown(_)
        | EngineError::Compacted => {
            tracing::error!(error = %error, "the store failed a request");
            Status::internal("the store cannot be read or written; the server's log says why")
        }
    }
}

/// The revision a client asked for is no longer kept.
pub fn too_old(plane: &Plane, at: Revision, compacted: Revision) -> Status {
    Status::expired(format!(
        "too old resource version: {} ({})",
        plane.resource_version(at),
        plane.resource_version(compacted)
    ))
}

/// No plane of that name.
pub fn plane_not_found(name: &str) -> Status {
    Status::not_found(&GroupResource::new("polder.dev", "planes"), name)
}
