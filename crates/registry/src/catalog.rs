//! Which resources a plane serves: the built-in ones, shared by all planes, and its own.
//!
//! A catalog is immutable. The next one differs by one CRD and shares everything else with it, so a plane with
//! hundreds of CRDs pays no more for one more than a plane with none. What is computed from a catalog (discovery,
//! OpenAPI) is made when somebody asks for it and shared by content.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use imbl::OrdMap;
use parking_lot::Mutex;
use polder_admission::Plugins;
use polder_machinery::schema::table::{BuiltinResource, builtin};
use polder_model::{GroupResource, GroupVersion, SmolStr, format_smolstr};
use polder_store::Store;
use sha2::{Digest, Sha256};

use crate::behavior::Behavior;
use crate::custom::{Crd, hex};
use crate::definition::{Origin, ResourceDefinition, Scale, ServedVersion, type_meta};
use crate::resources;

/// The resources of a plane.
pub struct Catalog {
    base: Arc<Base>,
    own: OrdMap<GroupResource, Arc<Crd>>,
    digest: OnceLock<SmolStr>,
    documents: OnceLock<Arc<Documents>>,
}

/// What planes serve without any CRD.
struct Base {
    /// In discovery order.
    definitions: Vec<Arc<ResourceDefinition>>,
    by_name: HashMap<GroupResource, Arc<ResourceDefinition>>,
    name: &'static str,
    /// Documents of catalogs on this base, by digest.
    documents: Mutex<HashMap<SmolStr, Arc<Documents>>>,
}

/// Documents of catalogs nobody holds are kept up to this many.
const DOCUMENTS_LEN_MAX: usize = 32;

/// Documents computed from a catalog on first use, kept as long as it is: discovery, OpenAPI.
#[derive(Default)]
struct Documents {
    slots: [OnceLock<Box<dyn Any + Send + Sync>>; 4],
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog")
            .field("base", &self.base.name)
            .field("own", &self.own.len())
            .finish_non_exhaustive()
    }
}

impl Catalog {
    /// A catalog without CRDs.
    pub(crate) fn base(definitions: Vec<Arc<ResourceDefinition>>, name: &'static str) -> Catalog {
        let by_name =
            definitions.iter().map(|definition| (definition.group_resource(), definition.clone())).collect();
        let base = Base { definitions, by_name, name, documents: Mutex::default() };
        Catalog {
            base: Arc::new(base),
            own: OrdMap::new(),
            digest: OnceLock::new(),
            documents: OnceLock::new(),
        }
    }

    /// The same base with other CRDs.
    pub(crate) fn with_all(&self, own: OrdMap<GroupResource, Arc<Crd>>) -> Catalog {
        Catalog { base: self.base.clone(), own, digest: OnceLock::new(), documents: OnceLock::new() }
    }

    /// With one CRD put in, or taken out.
    pub(crate) fn with(&self, name: &GroupResource, crd: Option<Arc<Crd>>) -> Catalog {
        self.with_all(match crd {
            Some(crd) => self.own.update(name.clone(), crd),
            None => self.own.without(name),
        })
    }

    /// The plane's own CRDs, served or not, by group and name.
    pub(crate) fn crds(&self) -> impl Iterator<Item = (&GroupResource, &Arc<Crd>)> {
        self.own.iter()
    }

    /// The CRDs of one group.
    pub(crate) fn crds_of<'a>(
        &'a self,
        group: &'a str,
    ) -> impl Iterator<Item = (&'a GroupResource, &'a Arc<Crd>)> {
        let first = GroupResource::new(group, "");
        self.own.range(first..).take_while(move |(name, _)| name.group == group)
    }

    pub(crate) fn crd(&self, name: &GroupResource) -> Option<&Arc<Crd>> {
        self.own.get(name)
    }

    /// What the catalog stands on: catalogs with the same name share their built-in kinds.
    pub fn base_name(&self) -> &'static str {
        self.base.name
    }

    /// Whether a resource is served without any CRD.
    pub(crate) fn is_base(&self, name: &GroupResource) -> bool {
        self.base.by_name.contains_key(name)
    }

    /// Everything that is served, in discovery order.
    pub fn definitions(&self) -> impl Iterator<Item = &Arc<ResourceDefinition>> {
        self.base.definitions.iter().chain(self.own.values().filter_map(|crd| crd.definition()))
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<(Arc<ResourceDefinition>, usize)> {
        let definition = self.by_group_resource(&GroupResource::new(group, plural))?;
        Some((definition.clone(), definition.version(version)?))
    }

    pub fn by_group_resource(&self, name: &GroupResource) -> Option<&Arc<ResourceDefinition>> {
        let base = self.base.by_name.get(name);
        base.or_else(|| self.own.get(name).and_then(|crd| crd.definition()))
    }

    /// Whether anything is served under a group, or a group and version.
    pub fn has_group(&self, group: &str, version: Option<&str>) -> bool {
        self.definitions().any(|definition| {
            definition.group == group && version.is_none_or(|version| definition.version(version).is_some())
        })
    }

    /// Content address: catalogs that serve the same have the same.
    pub fn digest(&self) -> &str {
        self.digest.get_or_init(|| {
            let mut hash = Sha256::new();
            hash.update(self.base.name.as_bytes());
            for crd in self.own.values().filter(|crd| crd.definition().is_some()) {
                hash.update(crd.digest);
            }
            SmolStr::from(hex(&hash.finalize()))
        })
    }

    /// The served group versions in discovery order: groups in theirs, versions by priority.
    pub fn group_versions(&self) -> Vec<(SmolStr, Vec<SmolStr>)> {
        let mut groups: Vec<(SmolStr, Vec<SmolStr>)> = Vec::new();
        let mut index: HashMap<SmolStr, usize> = HashMap::new();
        for definition in self.definitions() {
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
        let documents = self.documents.get_or_init(|| {
            let mut shared = self.base.documents.lock();
            if shared.len() >= DOCUMENTS_LEN_MAX && !shared.contains_key(self.digest()) {
                shared.retain(|_, documents| Arc::strong_count(documents) > 1);
            }
            shared.entry(SmolStr::new(self.digest())).or_default().clone()
        });
        let document = documents.slots[slot].get_or_init(|| Box::new(make()));
        document.downcast_ref().expect("each slot is used with one type")
    }

    /// How many catalogs of this base have documents that somebody holds: those are large.
    pub(crate) fn documents_len(&self) -> usize {
        self.base.documents.lock().values().filter(|documents| Arc::strong_count(documents) > 1).count()
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

/// Whether Kubernetes itself has such a resource.
pub fn is_builtin(name: &GroupResource) -> bool {
    builtin().resources.iter().any(|own| own.group == name.group && own.plural == name.resource)
}

/// The kinds of Kubernetes itself, built once from the table.
pub(crate) fn builtin_definitions(store: &Store, plugins: &Plugins) -> Vec<Arc<ResourceDefinition>> {
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
            forms: Vec::new(),
            conversion: None,
            resource_id: store.resource_id(&storage_name),
            behavior,
            admission: crate::admission::chain(plugins, &name, first.namespaced),
            origin: Origin::Builtin,
            ledger: None,
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
        subresources: resource.subresources.clone(),
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
