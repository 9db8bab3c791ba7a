//! Resources, subresources and their verbs, from upstream's discovery documents.
//!
//! The order of groups, versions and resources is upstream's: clients that resolve a short name take the first hit.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::sources::Sources;

pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    plural: String,
    singular: String,
    namespaced: bool,
    verbs: Vec<String>,
    short_names: Vec<String>,
    categories: Vec<String>,
    pub(crate) subresources: Vec<Subresource>,
}

pub(crate) struct Subresource {
    name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    verbs: Vec<String>,
}

/// All resources of served group versions: the core group first, then as the aggregated document lists them.
pub(crate) fn read(sources: &Sources) -> anyhow::Result<Vec<Resource>> {
    let mut resources = read_core(&sources.json("api/discovery/api__v1.json")?)?;
    let aggregated = sources.json("api/discovery/aggregated_v2.json")?;
    for group in array(&aggregated, "items")? {
        let group_name = string(&group["metadata"], "name")?;
        for version in array(group, "versions")? {
            let version_name = string(version, "version")?;
            if !is_served(&group_name, &version_name) {
                continue;
            }
            for resource in array(version, "resources")? {
                resources.push(read_aggregated(resource, &group_name, &version_name)?);
            }
        }
    }
    Ok(resources)
}

impl Resource {
    pub(crate) fn write(&self, out: &mut String) -> anyhow::Result<()> {
        let scope = if self.namespaced { "namespaced" } else { "cluster" };
        write!(out, "resource {} {} {scope}", group_version(&self.group, &self.version), self.plural)?;
        write!(out, " kind={} singular={}", self.kind, self.singular)?;
        if !self.short_names.is_empty() {
            write!(out, " short={}", self.short_names.join(","))?;
        }
        if !self.categories.is_empty() {
            write!(out, " categories={}", self.categories.join(","))?;
        }
        writeln!(out, "\n  verbs {}", self.verbs.join(","))?;
        for subresource in &self.subresources {
            let own = (&self.group, &self.version) == (&subresource.group, &subresource.version);
            let prefix = match own {
                true => String::new(),
                false => group_version(&subresource.group, &subresource.version) + "/",
            };
            let (name, kind, verbs) = (&subresource.name, &subresource.kind, subresource.verbs.join(","));
            writeln!(out, "  /{name} {verbs} kind={prefix}{kind}")?;
        }
        Ok(writeln!(out)?)
    }
}

/// `apps/v1`, or `v1` for the core group.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Beta versions that are served although upstream has them off by default.
const BETAS: [(&str, &str); 1] = [("admissionregistration.k8s.io", "v1beta1")];

/// Stable versions, and few others.
pub(crate) fn is_served(group: &str, version: &str) -> bool {
    let stable = !version.contains("alpha") && !version.contains("beta");
    stable || BETAS.contains(&(group, version))
}

/// The core group is published in the flat form only: `pods` and `pods/status` are neighbors in one list.
fn read_core(document: &Value) -> anyhow::Result<Vec<Resource>> {
    let version = string(document, "groupVersion")?;
    let mut resources: Vec<Resource> = Vec::new();
    for entry in array(document, "resources")? {
        let name = string(entry, "name")?;
        if let Some((parent, name)) = name.split_once('/') {
            let Some(resource) = resources.iter_mut().find(|resource| resource.plural == parent) else {
                bail!("{parent}/{name} comes before {parent}");
            };
            resource.subresources.push(Subresource {
                name: name.to_owned(),
                group: entry["group"].as_str().unwrap_or_default().to_owned(),
                version: entry["version"].as_str().unwrap_or(&version).to_owned(),
                kind: string(entry, "kind")?,
                verbs: strings(entry, "verbs"),
            });
            continue;
        }
        resources.push(Resource {
            group: String::new(),
            version: version.clone(),
            kind: string(entry, "kind")?,
            plural: name,
            singular: string(entry, "singularName")?,
            namespaced: entry["namespaced"].as_bool().context("namespaced is missing")?,
            verbs: strings(entry, "verbs"),
            short_names: strings(entry, "shortNames"),
            categories: strings(entry, "categories"),
            subresources: Vec::new(),
        });
    }
    Ok(resources)
}

fn read_aggregated(entry: &Value, group: &str, version: &str) -> anyhow::Result<Resource> {
    let subresources = entry["subresources"].as_array().into_iter().flatten();
    Ok(Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: string(&entry["responseKind"], "kind")?,
        plural: string(entry, "resource")?,
        singular: string(entry, "singularResource")?,
        namespaced: string(entry, "scope")? == "Namespaced",
        verbs: strings(entry, "verbs"),
        short_names: strings(entry, "shortNames"),
        categories: strings(entry, "categories"),
        subresources: subresources
            .map(|subresource| {
                let kind = &subresource["responseKind"];
                // An empty version means the group version of the resource.
                let (own_group, own_version) = match string(kind, "version")?.as_str() {
                    "" => (group.to_owned(), version.to_owned()),
                    other => (string(kind, "group")?, other.to_owned()),
                };
                Ok(Subresource {
                    name: string(subresource, "subresource")?,
                    group: own_group,
                    version: own_version,
                    kind: string(kind, "kind")?,
                    verbs: strings(subresource, "verbs"),
                })
            })
            .collect::<anyhow::Result<_>>()?,
    })
}

fn array<'a>(value: &'a Value, key: &str) -> anyhow::Result<&'a Vec<Value>> {
    value[key].as_array().with_context(|| format!("no list {key} in {value}"))
}

fn string(value: &Value, key: &str) -> anyhow::Result<String> {
    Ok(value[key].as_str().with_context(|| format!("no text {key} in {value}"))?.to_owned())
}

fn strings(value: &Value, key: &str) -> Vec<String> {
    value[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
