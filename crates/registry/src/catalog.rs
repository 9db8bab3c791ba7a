//! Which resources a plane serves: the built-in ones, shared by all planes, and its own.
//!
//! Planes with the same CRDs share one catalog, whatever documents were computed from it included; a plane without
//! CRDs costs nothing here.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use polder_machinery::schema::table::{BuiltinResource, builtin};
use polder_model::{GroupResource, GroupVersion, SmolStr, format_smolstr};
use polder_store::Store;

use crate::behavior::Behavior;
use crate::definition::{Origin, ResourceDefinition, Scale, ServedVersion, Subresource, type_meta};
use crate::resources;

/// The resources of a plane.
#[derive(Debug)]
pub struct Catalog {
    /// In discovery order.
    pub definitions: Vec<Arc<ResourceDefinition>>,
    by_name: HashMap<GroupResource, Arc<ResourceDefinition>>,
    /// Content address; equal catalogs have equal ones.
    pub digest: SmolStr,
    documents: Documents,
}

/// Documents computed from a catalog on first use, kept as long as it is: discovery, OpenAPI.
#[derive(Default)]
pub struct Documents {
    slots: [OnceLock<Box<dyn Any + Send + Sync>>; 4],
}

impl std::fmt::Debug for Documents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Documents")
    }
}

impl Catalog {
    pub(crate) fn new(definitions: Vec<Arc<ResourceDefinition>>, digest: SmolStr) -> Catalog {
        let by_name =
            definitions.iter().map(|definition| (definition.group_resource(), definition.clone())).collect();
        Catalog { definitions, by_name, digest, documents: Documents::default() }
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<(Arc<ResourceDefinition>, usize)> {
        let definition = self.by_name.get(&GroupResource::new(group, plural))?;
        Some((definition.clone(), definition.version(version)?))
    }

    pub fn by_group_resource(&self, name: &GroupResource) -> Option<&Arc<ResourceDefinition>> {
        self.by_name.get(name)
    }

    /// Whether anything is served under a group, or a group and version.
    pub fn has_group(&self, group: &str, version: Option<&str>) -> bool {
        self.definitions.iter().any(|definition| {
            definition.group == group && version.is_none_or(|version| definition.version(version).is_some())
        })
    }

    /// The served group versions in discovery order: groups in theirs, versions by priority.
    pub fn group_versions(&self) -> Vec<(SmolStr, Vec<SmolStr>)> {
        let mut groups: Vec<(SmolStr, Vec<SmolStr>)> = Vec::new();
        let mut index: HashMap<SmolStr, usize> = HashMap::new();
        for definition in &self.definitions {
            let at = *index.entry(definition.group.clone()).or_insert_with(|| {
                groups.push((definition.group.clone(), Vec::new()));
                groups.len() - 1
            });
            for version in &definition.versions {
                if !groups[at].1.contains(&version.name) {
                    groups[at].1.push(version.name.clone());
                }
            }
        }
        for (_, versions) in &mut groups {
            versions.sort_by_key(|version| version_priority(version));
        }
        groups
    }

    /// A document computed from this catalog, made on first use. `slot` is one of a few fixed numbers, each always
    /// used with the same type.
    pub fn document<T: Send + Sync + 'static>(&self, slot: usize, make: impl FnOnce() -> T) -> &T {
        let document = self.documents.slots[slot].get_or_init(|| Box::new(make()));
        document.downcast_ref().expect("each slot is used with one type")
    }
}

/// Kubernetes' order of versions: v2, v1, v1beta2, v1beta1, v1alpha1, then others by name. Lower sorts first.
pub fn version_priority(version: &str) -> (u8, std::cmp::Reverse<u32>, std::cmp::Reverse<u32>, SmolStr) {
    use std::cmp::Reverse;
    let parsed = (|| {
        let rest = version.strip_prefix('v')?;
        let digits = rest.len() - rest.trim_start_matches(|char: char| char.is_ascii_digit()).len();
        let (major, rest) = rest.split_at(digits);
        let major: u32 = major.parse().ok()?;
        if rest.is_empty() {
            return Some((0, Reverse(major), Reverse(0)));
        }
        let (class, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => (1, minor),
            (_, Some(minor)) => (2, minor),
            _ => return None,
        };
        Some((class, Reverse(major), Reverse(minor.parse().ok()?)))
    })();
    match parsed {
        Some((class, major, minor)) => (class, major, minor, SmolStr::default()),
        None => (3, Reverse(0), Reverse(0), SmolStr::new(version)),
    }
}

/// The kinds of Kubernetes itself, built once from the table.
pub(crate) fn builtin_definitions(store: &Store) -> Vec<Arc<ResourceDefinition>> {
    let types = builtin();
    let mut grouped: Vec<(GroupResource, Vec<&BuiltinResource>)> = Vec::new();
    for resource in &types.resources {
        let name = GroupResource::new(resource.group.clone(), resource.plural.clone());
        match grouped.iter_mut().find(|(own, _)| *own == name) {
            Some((_, versions)) => versions.push(resource),
            None => grouped.push((name, vec![resource])),
        }
    }
    let definition = |(name, mut versions): (GroupResource, Vec<&BuiltinResource>)| {
        versions.sort_by_key(|resource| version_priority(&resource.version));
        let first = versions[0];
        let behavior = resources::behavior(&name);
        // Events of both groups are one collection, kept in the core group's form.
        let (storage_name, storage) = if name.resource == "events" {
            (GroupResource::new("", "events"), GroupVersion::new("", "v1"))
        } else {
            (name.clone(), first.group_version())
        };
        let scale = behavior.scale.as_ref().map(|paths| {
            let own = |path: &[&'static str]| path.iter().map(|step| SmolStr::new_static(step)).collect();
            Scale {
                spec_replicas: own(paths.spec_replicas),
                status_replicas: own(paths.status_replicas),
                selector: own(paths.selector),
            }
        });
        let served = |resource: &&BuiltinResource| served_version(resource, scale.clone());
        Arc::new(ResourceDefinition {
            group: name.group.clone(),
            plural: name.resource.clone(),
            singular: first.singular.clone(),
            kind: first.kind.clone(),
            list_kind: format_smolstr!("{}List", first.kind),
            short_names: first.short_names.clone(),
            categories: first.categories.clone(),
            namespaced: first.namespaced,
            versions: versions.iter().map(served).collect(),
            storage,
            resource_id: store.resource_id(&storage_name),
            behavior,
            origin: Origin::Builtin,
            terminating: false,
        })
    };
    grouped.into_iter().map(definition).collect()
}

fn served_version(resource: &BuiltinResource, scale: Option<Scale>) -> ServedVersion {
    let schema = builtin().schema(&resource.type_name);
    ServedVersion {
        name: resource.version.clone(),
        schema: schema.expect("the table names a type for every resource"),
        type_name: resource.type_name.clone(),
        verbs: resource.verbs.clone(),
        subresources: resource
            .subresources
            .iter()
            .map(|subresource| Subresource {
                name: subresource.name.clone(),
                kind: subresource.kind.clone(),
                verbs: subresource.verbs.clone(),
                type_name: subresource.type_name.clone(),
            })
            .collect(),
        columns: Vec::new(),
        selectable: Vec::new(),
        scale: resource
            .subresources
            .iter()
            .any(|subresource| subresource.name == "scale")
            .then_some(scale)
            .flatten(),
        deprecation: deprecation(resource),
        published: None,
        type_meta: type_meta(&resource.kind, &resource.group_version()),
    }
}

fn deprecation(resource: &BuiltinResource) -> Option<String> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "componentstatuses") => Some("v1 ComponentStatus is deprecated in v1.19+".into()),
        ("", "endpoints") => {
            Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".into())
        }
        _ => None,
    }
}

/// The behavior of kinds that have none of their own.
pub(crate) static PLAIN: Behavior = Behavior::PLAIN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_like_kubernetes() {
        let mut versions = ["v1alpha1", "foo", "v1", "v10", "v2beta1", "v1beta2", "v2", "v1beta10", "bar"];
        versions.sort_by_key(|version| version_priority(version));
        assert_eq!(versions, ["v10", "v2", "v1", "v2beta1", "v1beta10", "v1beta2", "v1alpha1", "bar", "foo"]);
    }
}
