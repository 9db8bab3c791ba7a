//! What a plugin knows about a request.

use polder_model::{GroupResource, GroupVersionKind, Object, PlaneId, SmolStr, Status, Value};

use crate::dynamic::Rulebook;

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
    /// Its name; empty while it has none.
    pub own_name: &'a str,
    pub dry_run: bool,
    pub options: Options<'a>,
    /// A number that nobody can guess, for names that are made up.
    pub seed: u64,
    /// The object as it was; `None` when it is created.
    pub old: Option<&'a Value>,
    /// The other versions that what is sent can be shown in.
    pub others: &'a [Form],
    /// What the plane itself has to say about its writes.
    pub rules: &'a Rulebook,
}

/// A resource in one version, and the kind of what is sent to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    pub resource: GroupResource,
    pub version: SmolStr,
    pub kind: GroupVersionKind,
}

/// What a client says beside the object.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    pub field_manager: Option<&'a str>,
    pub field_validation: Option<&'a str>,
    pub grace_period_seconds: Option<i64>,
    pub uid: Option<&'a str>,
    pub resource_version: Option<&'a str>,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct User<'a> {
    pub name: &'a str,
    pub uid: &'a str,
    pub groups: &'a [SmolStr],
    pub extra: &'a [(SmolStr, Vec<SmolStr>)],
}

impl User<'_> {
    /// As reviews show somebody.
    pub fn to_value(&self) -> Value {
        let texts = |all: &[SmolStr]| Value::Array(all.iter().map(Value::from).collect());
        let mut user = Object::new();
        user.insert("username", SmolStr::new(self.name));
        if !self.uid.is_empty() {
            user.insert("uid", SmolStr::new(self.uid));
        }
        if !self.groups.is_empty() {
            user.insert("groups", texts(self.groups));
        }
        if !self.extra.is_empty() {
            let extra: Object = self.extra.iter().map(|(key, values)| (key.clone(), texts(values))).collect();
            user.insert("extra", extra);
        }
        Value::Object(user)
    }
}

impl Options<'_> {
    /// As clients write them; a connection has none.
    pub fn to_value(&self, operation: Operation, dry_run: bool) -> Option<Value> {
        let kind = match operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => return None,
        };
        let mut value = Value::Object(Object::new());
        value.set_at(&["kind"], kind);
        value.set_at(&["apiVersion"], "meta.k8s.io/v1");
        if dry_run {
            value.set_at(&["dryRun"], vec![Value::from("All")]);
        }
        let texts: [(&[&str], Option<&str>); 4] = [
            (&["fieldManager"], self.field_manager),
            (&["fieldValidation"], self.field_validation),
            (&["preconditions", "uid"], self.uid),
            (&["preconditions", "resourceVersion"], self.resource_version),
        ];
        for (path, text) in texts {
            if let Some(text) = text {
                value.set_at(path, SmolStr::new(text));
            }
        }
        if let Some(seconds) = self.grace_period_seconds {
            value.set_at(&["gracePeriodSeconds"], seconds);
        }
        Some(value)
    }
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
    pub const ALL: Operations = Operations(1 | 2 | 4 | 8);

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

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

impl<'a> Attributes<'a> {
    /// The namespace as rules see it: a namespace is in itself.
    pub fn place(&self) -> &'a str {
        if self.is("", "namespaces") { self.own_name } else { self.namespace }
    }

    /// What is sent, in the version it is sent in.
    pub fn form(&self) -> Form {
        Form { resource: self.resource.clone(), version: self.version.into(), kind: self.kind.clone() }
    }

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
