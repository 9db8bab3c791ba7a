//! A kind, built-in or custom, as one value. There is no second path: a CRD builds the same value at run time.

use std::sync::Arc;

use polder_machinery::jsonpath::JsonPath;
use polder_machinery::schema::Schema;
use polder_machinery::schema::openapi::PublishedSchema;
pub use polder_machinery::schema::table::Subresource;
use polder_model::{GroupKind, GroupResource, GroupVersion, SmolStr, format_smolstr};
use polder_store::ResourceId;

use crate::behavior::Behavior;
use crate::custom::{Conversion, StoredForm};
use crate::ledger::Ledger;

/// Everything the registry and the server know about a resource.
#[derive(Debug)]
pub struct ResourceDefinition {
    pub group: SmolStr,
    pub plural: SmolStr,
    pub singular: SmolStr,
    pub kind: SmolStr,
    pub list_kind: SmolStr,
    pub short_names: Vec<SmolStr>,
    pub categories: Vec<SmolStr>,
    pub namespaced: bool,
    /// The served versions, the preferred one first.
    pub versions: Vec<ServedVersion>,
    /// The version objects are stored in.
    pub storage: GroupVersion,
    /// The versions objects may be stored in, served or not; custom resources only.
    pub(crate) forms: Vec<StoredForm>,
    /// Who turns versions into one another; `None` where they differ in their names only, or we know how.
    pub(crate) conversion: Option<Conversion>,
    /// Where objects are stored; two groups may share one (events).
    pub resource_id: ResourceId,
    pub behavior: &'static Behavior,
    /// Who has a say in writes of this resource.
    pub admission: polder_admission::Chain,
    pub origin: Origin,
    /// Who keeps the objects, if it is not the store: a resource that is only read.
    pub ledger: Option<Arc<dyn Ledger>>,
    /// On its way out: what is there can be read and deleted, nothing new is made.
    pub terminating: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Part of Kubernetes: typed, strategic merge patch, protobuf.
    Builtin,
    /// From a CRD of the plane, or one of our own kinds, which are built the same way.
    Custom,
}

/// One version of a resource, as clients see it.
#[derive(Debug)]
pub struct ServedVersion {
    pub name: SmolStr,
    pub schema: Schema,
    /// Name of the schema in OpenAPI documents.
    pub type_name: SmolStr,
    pub verbs: Vec<SmolStr>,
    pub subresources: Vec<Subresource>,
    /// Printed by path instead of by the behavior; custom resources only.
    pub columns: Vec<PathColumn>,
    /// Selectable by path; custom resources only.
    pub selectable: Vec<(SmolStr, JsonPath)>,
    pub scale: Option<Scale>,
    /// Sent as a warning to whoever uses this version.
    pub deprecation: Option<String>,
    /// The schema as OpenAPI documents show it; `None` for the types of the table.
    pub published: Option<PublishedSchema>,
    /// `"kind":"X","apiVersion":"Y",`: what reads splice in front of a stored body.
    pub type_meta: Box<[u8]>,
}

/// A printer column of a custom resource.
#[derive(Debug)]
pub struct PathColumn {
    pub name: SmolStr,
    pub kind: SmolStr,
    pub format: SmolStr,
    pub description: String,
    pub priority: i64,
    pub path: JsonPath,
}

/// Where the `scale` subresource finds its numbers.
#[derive(Clone, Debug)]
pub struct Scale {
    pub spec_replicas: Vec<SmolStr>,
    pub status_replicas: Vec<SmolStr>,
    pub selector: Vec<SmolStr>,
}

impl ResourceDefinition {
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.plural.clone() }
    }

    pub fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.group.clone(), kind: self.kind.clone() }
    }

    /// The kind as refusals of invalid objects name it: that of the stored form, which two groups may share (events).
    pub fn error_kind(&self) -> GroupKind {
        GroupKind { group: self.storage.group.clone(), kind: self.kind.clone() }
    }

    pub fn version(&self, name: &str) -> Option<usize> {
        self.versions.iter().position(|version| version.name == name)
    }

    pub fn group_version(&self, version: usize) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.versions[version].name.clone() }
    }

    pub fn is_custom(&self) -> bool {
        self.origin == Origin::Custom
    }
}

impl ServedVersion {
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|own| own == verb)
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }
}

/// The members that reads splice in front of a stored body.
pub(crate) fn type_meta(kind: &str, api_version: &GroupVersion) -> Box<[u8]> {
    // Kinds and versions are validated names: nothing in them needs escaping.
    format!("\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",").into_bytes().into()
}

/// What a request is about: a resource in one version, perhaps one object of it, perhaps a part of that.
#[derive(Clone, Debug)]
pub struct Target {
    pub definition: Arc<ResourceDefinition>,
    pub version: usize,
    pub namespace: SmolStr,
    pub name: SmolStr,
    pub subresource: SmolStr,
}

impl Target {
    pub fn served(&self) -> &ServedVersion {
        &self.definition.versions[self.version]
    }

    pub fn group_version(&self) -> GroupVersion {
        self.definition.group_version(self.version)
    }

    /// `apps/v1`: the version the client speaks.
    pub fn api_version(&self) -> SmolStr {
        format_smolstr!("{}", self.group_version())
    }

    pub fn with_name(&self, namespace: &str, name: &str) -> Target {
        Target { namespace: SmolStr::new(namespace), name: SmolStr::new(name), ..self.clone() }
    }
}
