//! The seam: every verb on every resource of every plane, for programs inside Polder. The registry is behind it, and
//! authorizes and admits as it does for everybody.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use polder_model::selector::LabelSelector;
use polder_model::{GroupVersionResource, PlaneId, SmolStr, Status, Value};

use crate::controller::Change;
use crate::extension::ExtensionRequest;
use crate::resource::ResourceFacts;

pub type Answer<'a, T> = BoxFuture<'a, Result<T, Status>>;

/// An object, or a part of one. Names are empty where they do not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    pub plane: PlaneId,
    pub resource: GroupVersionResource,
    pub namespace: SmolStr,
    pub name: SmolStr,
    pub subresource: &'static str,
}

/// Which objects of a resource. With a limit one page is read, which may be shorter than that when its objects are heavy; the
/// next begins after its last object, and the end is a page without objects.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// All namespaces when empty.
    pub namespace: SmolStr,
    pub labels: Option<LabelSelector>,
    /// Only objects whose stored form has one of these texts in it: a cheap look before they are parsed. All when empty.
    pub containing: &'static [&'static str],
    /// Namespace and name of the last object of the page before.
    pub after: Option<(SmolStr, SmolStr)>,
    /// Zero means all.
    pub limit: usize,
}

/// A change to an object.
#[derive(Clone, Debug)]
pub enum Patch {
    Merge(Value),
    Strategic(Value),
}

/// What happens to an object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// How to delete.
#[derive(Clone, Debug, Default)]
pub struct Delete {
    /// Only the object with this UID.
    pub uid: Option<SmolStr>,
    /// Only this version of it.
    pub resource_version: Option<SmolStr>,
    pub propagation: Option<Propagation>,
    pub grace_period_seconds: Option<i64>,
}

/// How far controllers have come, kept over restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Everything up to here has been observed.
    pub revision: u64,
    /// Planes with work that was not finished then.
    pub unfinished: Vec<PlaneId>,
}

/// Why the feed cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ChangesError {
    /// What comes next is no longer kept.
    #[error("the changes after {after} are no longer kept")]
    Gone { after: u64 },
    #[error("the server stops")]
    Ended,
    #[error("cannot read the feed: {0}")]
    Failed(String),
}

/// The feed: every change of every plane, once and in order.
pub trait Changes: Send {
    fn next(&mut self) -> BoxFuture<'_, Result<Change, ChangesError>>;
}

/// Every verb. What is not there is told by `None` in a read and by a `Status` with code 404 in a write. Objects are
/// read in the version asked for, with `kind`, `apiVersion` and `resourceVersion`.
pub trait Client: Send + Sync + 'static {
    /// What a plane serves, its custom resources included.
    fn resources(&self, plane: PlaneId) -> Answer<'_, Vec<ResourceFacts>>;
    fn get<'a>(&'a self, at: &'a At) -> Answer<'a, Option<Arc<Value>>>;
    /// The newest state, in the order of names; one page of it, if the query has a limit. What is too large to be held is
    /// refused.
    fn list<'a>(
        &'a self,
        plane: PlaneId,
        resource: &'a GroupVersionResource,
        query: Query,
    ) -> Answer<'a, Vec<Arc<Value>>>;
    fn create<'a>(&'a self, at: &'a At, object: Value) -> Answer<'a, Value>;
    /// Replaces an object; with its resource version, only if nobody changed it.
    fn update<'a>(&'a self, at: &'a At, object: Value) -> Answer<'a, Value>;
    fn patch<'a>(&'a self, at: &'a At, patch: Patch) -> Answer<'a, Value>;
    fn delete<'a>(&'a self, at: &'a At, options: Delete) -> Answer<'a, ()>;
    /// Asks an extension server of the plane, if one serves what is asked for: see
    /// [`ExtensionCaller`](crate::extension::ExtensionCaller).
    fn extension(&self, plane: PlaneId, request: ExtensionRequest) -> Answer<'_, Option<Value>>;

    /// The plane of a name, if it is there.
    fn plane(&self, name: &str) -> Option<PlaneId>;
    fn has_plane(&self, plane: PlaneId) -> bool;
    /// The planes in which something changed after a revision.
    fn planes_changed(&self, after: u64) -> Vec<PlaneId>;
    /// The `Plane` object of a plane; nothing for the core plane, which has none.
    fn plane_object(&self, plane: PlaneId) -> Answer<'_, Option<Arc<Value>>>;
    /// Changes after a revision.
    fn changes(&self, after: u64) -> Result<Box<dyn Changes>, ChangesError>;
    /// The newest revision.
    fn revision(&self) -> u64;
    fn cursor(&self) -> Answer<'_, Option<Cursor>>;
    fn cursor_save(&self, cursor: Cursor) -> Answer<'_, ()>;
    /// Seconds since 1970.
    fn now(&self) -> i64;
}
