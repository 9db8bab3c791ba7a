//! What a plugin knows about a request.

use polder_model::{GroupResource, GroupVersionKind, PlaneId, SmolStr, Status, Value};

/// One request. The object itself is handed to plugins beside this, so that they can change it.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    pub plane: PlaneId,
    pub user: User<'a>,
    pub operation: Operation,
    pub resource: &'a GroupResource,
    /// The version of the resource that the client speaks.
    pub version: &'a str,
    pub subresource: &'a str,
    /// Of what is sent, in the version it is sent in: for a part of an object not always that of the object.
    pub kind: &'a GroupVersionKind,
    pub namespace: &'a str,
    /// As refusals show it: of an object that has no name yet, what its name begins with.
    pub name: &'a str,
    pub dry_run: bool,
    /// A number that nobody can guess, for names that are made up.
    pub seed: u64,
    /// The object as it was; `None` when it is created.
    pub old: Option<&'a Value>,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct User<'a> {
    pub name: &'a str,
    pub groups: &'a [SmolStr],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// A set of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations(u8);

impl Operations {
    pub const NONE: Operations = Operations(0);
    pub const CREATE: Operations = Operations(1);
    pub const UPDATE: Operations = Operations(2);
    pub const DELETE: Operations = Operations(4);
    pub const CONNECT: Operations = Operations(8);
    /// Create and update: the two that bring an object.
    pub const WRITE: Operations = Operations(1 | 2);

    #[must_use]
    pub const fn and(self, other: Operations) -> Operations {
        Operations(self.0 | other.0)
    }

    pub const fn has(self, operation: Operation) -> bool {
        let bit = match operation {
            Operation::Create => Operations::CREATE,
            Operation::Update => Operations::UPDATE,
            Operation::Delete => Operations::DELETE,
            Operation::Connect => Operations::CONNECT,
        };
        self.0 & bit.0 != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Attributes<'_> {
    /// 403 about the object of this request.
    pub fn forbidden(&self, why: impl AsRef<str>) -> Status {
        let name = if self.name.is_empty() { "Unknown" } else { self.name };
        Status::forbidden(self.resource, name, why.as_ref())
    }

    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.resource.group == group && self.resource.resource == resource
    }

    pub fn is_create(&self) -> bool {
        self.operation == Operation::Create
    }

    pub fn is_update(&self) -> bool {
        self.operation == Operation::Update
    }

    /// About the object itself, not a part of it.
    pub fn is_whole(&self) -> bool {
        self.subresource.is_empty()
    }
}
