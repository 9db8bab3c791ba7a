//! Addresses: revisions, spaces, resources, names.

use std::fmt;

use polder_model::{PlaneId, SmolStr};

/// A position in one store's history: the number of a commit. Zero is the empty store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// Later than every commit: reads at it see the newest state.
    pub const NEWEST: Revision = Revision(u64::MAX);

    #[must_use]
    pub fn next(self) -> Revision {
        Revision(self.0.saturating_add(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of object versions with at most one parent: the overlay of a plane, or a sealed layer. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub u64);

/// A group and resource name, interned by the store so that keys stay short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u32);

/// Namespace and name; the namespace of a cluster-scoped object is empty. Ordered as lists are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    pub namespace: SmolStr,
    pub name: SmolStr,
}

impl ObjectName {
    pub fn new(namespace: impl Into<SmolStr>, name: impl Into<SmolStr>) -> ObjectName {
        ObjectName { namespace: namespace.into(), name: name.into() }
    }

    pub fn cluster(name: impl Into<SmolStr>) -> ObjectName {
        ObjectName::new("", name)
    }

    /// Whether something can have this name. Engines part namespace and name by a zero byte, so neither has one.
    pub(crate) fn is_storable(&self) -> bool {
        !self.namespace.contains('\0') && !self.name.contains('\0')
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// Where an object lives. There is no key outside a plane.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub plane: PlaneId,
    pub resource: ResourceId,
    pub name: ObjectName,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.plane, self.resource.0, self.name)
    }
}
