//! Server-side apply, and who owns which field of an object.
//!
//! Every write notes in `metadata.managedFields` who set what ([`created`], [`updated`]); [`apply`] merges somebody's
//! intent by these notes. The registry calls one of the three for every write, with a [`Writer`] that says who writes
//! and in which version, and [`keep_times`] before it looks whether anything changed.
//!
//! Invariant: what is noted follows from the two states of the object alone, never from what a client claims; a client
//! can only give up fields or throw all notes away.

pub(crate) mod blank;
mod check;
mod collect;
mod compare;
mod conflict;
pub mod entries;
pub mod fields_v1;
mod intent;
mod last_applied;
mod merge;
mod overlay;
mod path;
mod place;
mod remove;
mod set;
mod settle;
mod update;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use polder_model::{SmolStr, Value};

pub use check::Problems;
pub use conflict::{ConflictCause, Conflicts};
pub use intent::{ApplyError, Force, apply};
pub use overlay::{OverlayError, overlay};
pub use path::{Step, StepError};
pub use set::FieldSet;
pub use update::{created, is_owned, keep_times, updated};

use crate::schema::NodeRef;
use entries::{Entry, Operation};

/// Who writes, and what there is to know about the kind.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    /// The name under which fields are owned.
    pub manager: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// The version of the request: `apps/v1`.
    pub api_version: &'a str,
    pub kind: &'a str,
    pub schema: NodeRef<'a>,
    /// The time of this write: RFC 3339 in UTC, with seconds. Empty: it is not noted.
    pub now: &'a str,
    pub untracked: &'a Untracked,
    /// Custom resources: ownership may stem from another schema than today's.
    pub schema_may_change: bool,
    pub versions: &'a dyn Versions,
}

impl<'a> Writer<'a> {
    fn entry(&self, operation: Operation, fields: FieldSet) -> Entry {
        Entry {
            manager: SmolStr::new(if self.manager.is_empty() { "unknown" } else { self.manager }),
            operation,
            api_version: SmolStr::new(self.api_version),
            time: (!self.now.is_empty()).then(|| SmolStr::new(self.now)),
            subresource: SmolStr::new(self.subresource),
            fields,
        }
    }

    fn view<'v>(&'v self, object: &'v Value, api_version: &str) -> Option<View<'v>> {
        if object.str_at(&["apiVersion"]) == Some(api_version) && api_version == self.api_version {
            return Some(View { schema: self.schema, object: Cow::Borrowed(object) });
        }
        self.versions.view(object, api_version)
    }
}

/// An object as one version of its kind has it.
pub struct View<'v> {
    pub schema: NodeRef<'v>,
    pub object: Cow<'v, Value>,
}

/// The versions of a kind.
pub trait Versions {
    /// The object as another version has it; `None` when there is no such version any more.
    fn view<'v>(&'v self, object: &'v Value, api_version: &str) -> Option<View<'v>>;
}

/// Fields nobody owns: what identifies an object, and what this endpoint does not let clients set.
#[derive(Clone, Debug)]
pub struct Untracked {
    /// All of them.
    fields: FieldSet,
    /// What this endpoint ignores.
    reset: FieldSet,
}

impl Untracked {
    /// `reset` are the fields this endpoint ignores, such as `status`.
    pub fn new(reset: &[&[&str]]) -> Untracked {
        const METADATA: [&str; 9] = [
            "clusterName",
            "creationTimestamp",
            "generation",
            "managedFields",
            "name",
            "namespace",
            "resourceVersion",
            "selfLink",
            "uid",
        ];
        // An endpoint may ignore all of the metadata; otherwise these parts of it.
        let parts: &[&str] = if reset.contains(&&["metadata"][..]) { &[] } else { &METADATA };
        let metadata: Vec<[&str; 2]> = parts.iter().map(|field| ["metadata", *field]).collect();
        let always = [&["apiVersion"][..], &["kind"], &["metadata"]];
        let own = metadata.iter().map(|path| &path[..]).chain(always);
        let reset = reset.iter().copied();
        Untracked { fields: FieldSet::of_fields(own.chain(reset.clone())), reset: FieldSet::of_fields(reset) }
    }
}
