//! Discovery: which groups, versions and resources a plane serves, in the old form and in the aggregated one. What other
//! servers serve for it is among them.

use std::collections::BTreeMap;

use base64::Engine as _;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use polder_model::{Object, SmolStr, Value, json};
use polder_registry::ResourceDefinition;
use polder_registry::catalog::Catalog;
use polder_registry::definition::{ServedVersion, Subresource};
use sha2::{Digest, Sha256, Sha512};

use crate::aggregator::{MergedGroup, MergedVersion, RemoteVersion, merge};
use crate::answer::Answer;
use crate::body::AnswerBody;

/// Where the catalog keeps the aggregated documents.
const DOCUMENT_SLOT: usize = 0;

/// The aggregated documents of `/api` and `/apis`.
struct Aggregated {
    core: Document,
    groups: Document,
}

/// A document with its entity tag.
struct Document {
    json: Bytes,
    etag: HeaderValue,
}

/// `/api` or `/apis` in the aggregated form.
pub(crate) fn aggregated(catalog: &Catalog, core: bool, if_none_match: Option<&str>) -> Answer {
    let documents = catalog.document(DOCUMENT_SLOT, || {
        let document = |core: bool| Document::new(&aggregate(catalog, core, &[]));
        Aggregated { core: document(true), groups: document(false) }
    });
    let document = if core { &documents.core } else { &documents.groups };
    send(document, if_none_match, AnswerBody::shared)
}

/// `/apis` in the aggregated form, where other servers serve some of it.
pub(crate) fn aggregated_with(
    catalog: &Catalog,
    remote: &[RemoteVersion],
    if_none_match: Option<&str>,
) -> Answer {
    send(&Document::new(&aggregate(catalog, false, remote)), if_none_match, AnswerBody::whole)
}

impl Document {
    fn new(value: &Value) -> Document {
        let mut json = value.to_vec();
        let etag = format!("\"{}\"", hex(&Sha512::digest(&json)));
        json.push(b'\n');
        let etag = HeaderValue::from_str(&etag).unwrap_or(HeaderValue::from_static("\"\""));
        Document { json: Bytes::from(json), etag }
    }
}

fn send(document: &Document, if_none_match: Option<&str>, body: fn(Bytes) -> AnswerBody) -> Answer {
    let mut answer = Response::new(AnswerBody::empty());
    let headers = answer.headers_mut();
    headers.insert(header::ETAG, document.etag.clone());
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    if if_none_match.is_some_and(|tag| tag.as_bytes() == document.etag.as_bytes()) {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        return answer;
    }
    let content_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    *answer.body_mut() = body(document.json.clone());
    answer
}

fn aggregate(catalog: &Catalog, core: bool, remote: &[RemoteVersion]) -> Value {
    let mut items = Vec::new();
    for MergedGroup { name: group, versions } in groups(catalog, remote) {
        if group.is_empty() != core {
            continue;
        }
        let versions: Vec<Value> =
            versions.iter().map(|version| aggregated_version(catalog, &group, version)).collect();
        let mut metadata = Object::new();
        if !group.is_empty() {
            metadata.insert("name", group.clone());
        }
        items.push(json!({"metadata": metadata, "versions": versions}));
    }
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

fn aggregated_version(catalog: &Catalog, group: &str, version: &MergedVersion<'_>) -> Value {
    let (resources, freshness) = match version.remote {
        Some(remote) => (remote.resources.to_vec(), if remote.stale { "Stale" } else { "Current" }),
        None => {
            let served = served(catalog, group, &version.name);
            (served.map(|(definition, served)| aggregated_resource(definition, served)).collect(), "Current")
        }
    };
    json!({"version": (version.name.clone()), "freshness": freshness, "resources": resources})
}

/// Groups and versions in discovery order. Where nobody else serves anything, the catalog's own.
fn groups<'r>(catalog: &Catalog, remote: &'r [RemoteVersion]) -> Vec<MergedGroup<'r>> {
    let local = catalog.group_versions();
    if !remote.is_empty() {
        return merge(local, remote);
    }
    let here = |name| MergedVersion { name, remote: None };
    let group = |(name, versions): (SmolStr, Vec<SmolStr>)| MergedGroup {
        name,
        versions: versions.into_iter().map(here).collect(),
    };
    local.into_iter().map(group).collect()
}

/// What is on its way out is no longer offered for writing; finalizers can still be taken away.
fn verbs(definition: &ResourceDefinition, served: &ServedVersion) -> Vec<Value> {
    let writes = ["create", "update", "patch"];
    let offered =
        served.verbs.iter().filter(|verb| !definition.terminating || !writes.contains(&verb.as_str()));
    offered.map(Value::from).collect()
}

fn aggregated_resource(definition: &ResourceDefinition, served: &ServedVersion) -> Value {
    let group_version = (definition.group.clone(), served.name.clone());
    let mut resource = json!({
        "resource": (definition.plural.clone()),
        "responseKind": {
            "group": (group_version.0), "version": (group_version.1), "kind": (definition.kind.clone()),
        },
        "scope": (if definition.namespaced { "Namespaced" } else { "Cluster" }),
        "singularResource": (definition.singular.clone()),
        "verbs": (verbs(definition, served)),
    });
    for (key, names) in [("shortNames", &definition.short_names), ("categories", &definition.categories)] {
        if !names.is_empty() {
            resource.set_at(&[key], strings(names));
        }
    }
    let subresources: Vec<Value> = served
        .subresources
        .iter()
        .map(|subresource| {
            let kind = &subresource.kind;
            json!({
                "subresource": (subresource.name.clone()),
                "responseKind": {
                    "group": (kind.group.clone()), "version": (kind.version.clone()), "kind": (kind.kind.clone()),
                },
                "verbs": (strings(&subresource.verbs)),
            })
        })
        .collect();
    if !subresources.is_empty() {
        resource.set_at(&["subresources"], subresources);
    }
    resource
}

/// `/api`.
pub(crate) fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`.
pub(crate) fn group_list(catalog: &Catalog, remote: &[RemoteVersion]) -> Value {
    let groups = groups(catalog, remote);
    let groups: Vec<Value> = groups.iter().filter(|group| !group.name.is_empty()).map(group_value).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`.
pub(crate) fn group(catalog: &Catalog, remote: &[RemoteVersion], name: &str) -> Option<Value> {
    let groups = groups(catalog, remote);
    let mut value = group_value(groups.iter().find(|group| group.name == name && !name.is_empty())?);
    value.set_at(&["kind"], "APIGroup");
    value.set_at(&["apiVersion"], "v1");
    Some(value)
}

fn group_value(group: &MergedGroup<'_>) -> Value {
    let MergedGroup { name, versions } = group;
    let version = |one: &MergedVersion<'_>| json!({"groupVersion": (format!("{name}/{}", one.name)), "version": (one.name.clone())});
    let listed: Vec<Value> = versions.iter().map(version).collect();
    json!({
        "name": (name.clone()), "versions": listed,
        "preferredVersion": (versions.first().map(version).unwrap_or_default()),
    })
}

/// `/api/v1`, `/apis/<group>/<version>`.
pub(crate) fn resource_list(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let mut resources = BTreeMap::new();
    for (definition, served) in served(catalog, group, version) {
        let plural = &definition.plural;
        resources.insert(plural.to_string(), plain_resource(definition, served));
        for subresource in &served.subresources {
            let name = format!("{plural}/{}", subresource.name);
            resources.insert(name.clone(), plain_subresource(definition, served, subresource, &name));
        }
    }
    if resources.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() { version.to_string() } else { format!("{group}/{version}") };
    let resources: Vec<Value> = resources.into_values().collect();
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    if !group.is_empty() {
        list.set_at(&["apiVersion"], "v1");
    }
    Some(list)
}

fn plain_resource(definition: &ResourceDefinition, served: &ServedVersion) -> Value {
    let mut resource = json!({
        "name": (definition.plural.clone()), "singularName": (definition.singular.clone()),
        "namespaced": (definition.namespaced), "kind": (definition.kind.clone()),
        "verbs": (verbs(definition, served)),
    });
    for (key, names) in [("shortNames", &definition.short_names), ("categories", &definition.categories)] {
        if !names.is_empty() {
            resource.set_at(&[key], strings(names));
        }
    }
    if served.allows("list") {
        let storage = &definition.storage;
        let text = format!("{}/{}/{}", storage.group, storage.version, definition.kind);
        let hash = Sha256::digest(text.as_bytes());
        let hash = base64::engine::general_purpose::STANDARD.encode(&hash[..8]);
        resource.set_at(&["storageVersionHash"], hash);
    }
    resource
}

fn plain_subresource(
    definition: &ResourceDefinition,
    served: &ServedVersion,
    subresource: &Subresource,
    name: &str,
) -> Value {
    let mut resource = json!({
        "name": name, "singularName": "", "namespaced": (definition.namespaced),
        "kind": (subresource.kind.kind.clone()), "verbs": (strings(&subresource.verbs)),
    });
    if (&subresource.kind.group, &subresource.kind.version) != (&definition.group, &served.name) {
        resource.set_at(&["group"], subresource.kind.group.clone());
        resource.set_at(&["version"], subresource.kind.version.clone());
    }
    resource
}

fn served<'a>(
    catalog: &'a Catalog,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = (&'a ResourceDefinition, &'a ServedVersion)> {
    let own = catalog.definitions().filter(move |definition| definition.group == group);
    own.filter_map(move |definition| {
        let index = definition.version(version)?;
        Some((&**definition, &definition.versions[index]))
    })
}

fn strings(names: &[SmolStr]) -> Vec<Value> {
    names.iter().map(Value::from).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        text.push_str(&format!("{byte:02X}"));
        text
    })
}
