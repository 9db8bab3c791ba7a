//! Built-in kinds: types and resources, read once from two embedded text tables.
//!
//! `kubernetes-1.35.txt` is generated from upstream's published facts (`cargo xtask gen`), `defaults.txt` is
//! written by hand and adds the defaults that upstream applies in code. Both are ours, so a mistake in them is a
//! bug of this program and panics with its line; everything else here cannot fail. All types share one arena.
//!
//! The syntax, a line each:
//!
//! ```text
//! resource apps/v1 deployments namespaced kind=Deployment singular=deployment short=deploy categories=all
//!   verbs create,delete,...                       of the resource itself
//!   /scale get,patch,update kind=autoscaling/v1/Scale     a subresource; the group version only if it differs
//!
//! type io.k8s.api.core.v1.Thing kind=v1/Thing     `kind=*`: a kind of every group version; `atomic`: replaced whole
//!   name! string                                  required
//!   port integer fmt=int32 default=8080           a default is JSON and ends the line
//!   mode string enum=A|B_C                        A or "B C"; in lists and maps this and fmt= are about the elements
//!   labels {string}                               map; `atomic`: replaced whole, `granular`: not, whatever its type says
//!   parts [Part] keys=name patch=merge merge-key=name     list of a type of the same package, merged by name
//!   tags [string] set                             a list that says neither `keys` nor `set` is atomic
//!   size integer #3                               protobuf number 3; left out of JSON when zero, `#3=`: written all
//!                                                 the same, `#3*`: a pointer in Go, `#3*=`: one that is written as null,
//!                                                 `#2.3`: 3 in the message that is 2
//! type io.k8s.api.core.v1.When = time             int-or-string, quantity, time, micro-time, raw (JSON object), any
//! ```

mod build;
mod lines;
mod messages;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use polder_model::{GroupVersion, GroupVersionKind, SmolStr};

use super::{Arena, NodeId, Schema};
use crate::protobuf::{Layout, MessageRef};

pub(super) const TABLE: &str = include_str!("kubernetes-1.35.txt");
pub(super) const DEFAULTS: &str = include_str!("defaults.txt");

/// The types and resources this program was built with.
pub fn builtin() -> &'static BuiltinTypes {
    static BUILTIN: LazyLock<BuiltinTypes> = LazyLock::new(|| {
        BuiltinTypes::read(TABLE, DEFAULTS).unwrap_or_else(|error| panic!("built-in kinds: {error}"))
    });
    &BUILTIN
}

/// Types by name and kind, and the resources that serve them.
#[derive(Debug)]
pub struct BuiltinTypes {
    pub arena: Arc<Arena>,
    /// In the order clients see: core first, then by group priority.
    pub resources: Vec<BuiltinResource>,
    types: HashMap<SmolStr, BuiltinType>,
    names: HashMap<GroupVersionKind, SmolStr>,
    /// The type of each node that stands for a named type, directly or as a field with attributes of its own.
    node_types: HashMap<NodeId, SmolStr>,
    layout: Layout,
}

#[derive(Debug)]
struct BuiltinType {
    root: NodeId,
    kind: TypeKind,
}

/// What kinds a type is registered as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeKind {
    /// A part of other types.
    None,
    One(GroupVersionKind),
    /// A kind of that name in every group version: `DeleteOptions`.
    Every,
}

/// A resource as discovery shows it.
#[derive(Clone, Debug)]
pub struct BuiltinResource {
    pub group: SmolStr,
    pub version: SmolStr,
    pub plural: SmolStr,
    pub singular: SmolStr,
    pub kind: SmolStr,
    pub namespaced: bool,
    pub verbs: Vec<SmolStr>,
    pub short_names: Vec<SmolStr>,
    pub categories: Vec<SmolStr>,
    pub subresources: Vec<Subresource>,
    /// Name of the type of its objects.
    pub type_name: SmolStr,
}

/// A part of a resource with a path of its own, such as `status`; of custom resources, too.
#[derive(Clone, Debug)]
pub struct Subresource {
    pub name: SmolStr,
    pub kind: GroupVersionKind,
    pub verbs: Vec<SmolStr>,
    /// Name of the type of its body; streams such as `pods/exec` have none.
    pub type_name: Option<SmolStr>,
}

impl Subresource {
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|own| own == verb)
    }
}

/// A line that breaks the syntax above.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub(crate) struct TableError {
    line: usize,
    problem: String,
}

impl BuiltinTypes {
    fn read(table: &str, defaults: &str) -> Result<BuiltinTypes, TableError> {
        let mut lines = lines::Lines::read(table)?;
        lines.defaults_add(defaults)?;
        build::build(&lines)
    }

    /// A type by its definition name, such as `io.k8s.api.core.v1.Pod`.
    pub fn schema(&self, type_name: &str) -> Option<Schema> {
        let own = self.types.get(type_name)?;
        Some(Schema { arena: Arc::clone(&self.arena), root: own.root })
    }

    /// How a type stands in protobuf. `PartialObjectMetadata` and its list are known here, too.
    pub fn message(&self, type_name: &str) -> Option<MessageRef<'_>> {
        self.layout.message(type_name)
    }

    /// The definition name of a kind.
    pub fn type_name(&self, kind: &GroupVersionKind) -> Option<&SmolStr> {
        self.names.get(kind)
    }

    /// What kind a type is.
    pub fn kind(&self, type_name: &str) -> Option<&TypeKind> {
        self.types.get(type_name).map(|own| &own.kind)
    }

    /// The definition name of the type a node stands for; `None` for plain scalars, lists and maps.
    pub fn name_of(&self, node: NodeId) -> Option<&SmolStr> {
        self.node_types.get(&node)
    }

    /// All definition names, in no order.
    pub fn type_names(&self) -> impl Iterator<Item = &SmolStr> {
        self.types.keys()
    }
}

impl BuiltinResource {
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion::new(self.group.clone(), self.version.clone())
    }

    pub fn group_version_kind(&self) -> GroupVersionKind {
        self.group_version().kind(self.kind.clone())
    }
}

#[cfg(test)]
mod tests;
