//! Publication: schemas and resources as OpenAPI documents, for built-in kinds and custom resources alike.
//!
//! Version 3 has one document per group version, version 2 one for everything. kubectl reads them for `explain`,
//! to learn merge keys, and to see whether a server knows `dryRun` and `fieldValidation`. Both documents depend on
//! their input only and objects are sorted by key, so that equal input gives equal bytes and one hash.
//! The protobuf form of version 2 is made from its document by [`super::gnostic`].

mod custom;
mod definitions;
mod paths;

use std::sync::Arc;

use polder_model::{GroupVersion, GroupVersionKind, Object, SmolStr, Value, format_smolstr, json};

use super::table::{self, BuiltinResource, BuiltinTypes, Subresource};
use super::{Schema, descriptions};
use definitions::Definitions;

/// What documents of built-in kinds are made from: when these texts change, so do the documents.
pub const SOURCES: [&str; 3] = [table::TABLE, table::DEFAULTS, descriptions::TEXT];

/// A resource to publish.
#[derive(Clone, Debug)]
pub struct PublishedResource {
    pub group_version: GroupVersion,
    pub plural: SmolStr,
    pub kind: SmolStr,
    pub list_kind: SmolStr,
    pub namespaced: bool,
    pub verbs: Vec<SmolStr>,
    pub subresources: Vec<Subresource>,
    /// Name of its definition; see [`custom_type_name`].
    pub type_name: SmolStr,
    pub schema: PublishedSchema,
}

/// Where the definition of a resource comes from.
#[derive(Clone, Debug)]
pub enum PublishedSchema {
    /// The built-in type of that name.
    Builtin,
    /// A custom resource, from its compiled schema. That one holds no descriptions.
    Compiled(Schema),
    /// A custom resource, from `openAPIV3Schema` as its author wrote it, descriptions included.
    Written(Arc<Value>),
    /// A custom resource without a schema: any object.
    Unknown,
}

/// The versions of OpenAPI, which differ in how they refer, and in what they can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    V2,
    V3,
}

impl PublishedResource {
    pub fn builtin(resource: &BuiltinResource) -> PublishedResource {
        PublishedResource {
            group_version: resource.group_version(),
            plural: resource.plural.clone(),
            kind: resource.kind.clone(),
            list_kind: format_smolstr!("{}List", resource.kind),
            namespaced: resource.namespaced,
            verbs: resource.verbs.clone(),
            subresources: resource.subresources.clone(),
            type_name: resource.type_name.clone(),
            schema: PublishedSchema::Builtin,
        }
    }

    fn group_version_kind(&self) -> GroupVersionKind {
        self.group_version.kind(self.kind.clone())
    }

    /// The definition of its list: a sibling of its own.
    fn list_type_name(&self) -> SmolStr {
        let package = self.type_name.strip_suffix(self.kind.as_str()).unwrap_or("");
        format_smolstr!("{package}{}", self.list_kind)
    }
}

/// The definition name of a custom kind: `Foo` of `example.com/v1` is `com.example.v1.Foo`.
pub fn custom_type_name(kind: &GroupVersionKind) -> SmolStr {
    let labels: Vec<&str> = kind.group.rsplit('.').collect();
    format_smolstr!("{}.{}.{}", labels.join("."), kind.version, kind.kind)
}

/// The OpenAPI v3 document of one group version; resources of others are left out.
pub fn v3_document(
    types: &BuiltinTypes,
    group_version: &GroupVersion,
    resources: &[PublishedResource],
) -> Value {
    let mut definitions = Definitions::new(types, Dialect::V3);
    let own = resources.iter().filter(|resource| resource.group_version == *group_version);
    let paths = paths_of(own, &mut definitions);
    let schemas = definitions.finish();
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}}
        }
    })
}

/// The OpenAPI v2 (Swagger) document of all resources.
pub fn v2_document(types: &BuiltinTypes, resources: &[PublishedResource]) -> Value {
    let mut definitions = Definitions::new(types, Dialect::V2);
    let paths = paths_of(resources.iter(), &mut definitions);
    let definitions = definitions.finish();
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "definitions": definitions,
        "security": [{"BearerToken": []}],
        "securityDefinitions": {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}}
    })
}

fn paths_of<'r>(
    resources: impl Iterator<Item = &'r PublishedResource>,
    definitions: &mut Definitions<'_>,
) -> Object {
    let mut paths = Vec::new();
    for resource in resources {
        definitions.resource_add(resource);
        paths::resource_paths(resource, definitions, &mut paths);
    }
    paths.into_iter().collect()
}

#[cfg(test)]
mod tests;
