//! The order of groups and versions, when some of them are served elsewhere. Pure.

use std::cmp::Reverse;

use polder_model::SmolStr;
use polder_registry::bootstrap::{group_priority, version_priority};
use polder_registry::catalog;

use super::RemoteVersion;

/// Where upstream puts what a CRD defines.
const CUSTOM: (i64, i64) = (1000, 100);

/// A group with its versions, the preferred one first.
pub(crate) struct MergedGroup<'r> {
    pub(crate) name: SmolStr,
    pub(crate) versions: Vec<MergedVersion<'r>>,
}

pub(crate) struct MergedVersion<'r> {
    pub(crate) name: SmolStr,
    /// Nothing if it is served here.
    pub(crate) remote: Option<&'r RemoteVersion>,
}

/// Puts versions that are served elsewhere among those that are served here: groups by their highest priority, then in the
/// order they have here, then by name; versions by priority, then as Kubernetes orders versions.
pub(crate) fn merge<'r>(
    local: Vec<(SmolStr, Vec<SmolStr>)>,
    remote: &'r [RemoteVersion],
) -> Vec<MergedGroup<'r>> {
    let here = |name| MergedVersion { name, remote: None };
    let mut groups: Vec<MergedGroup<'r>> = local
        .into_iter()
        .map(|(name, versions)| MergedGroup { name, versions: versions.into_iter().map(here).collect() })
        .collect();
    for one in remote {
        let version = MergedVersion { name: one.version.clone(), remote: Some(one) };
        match groups.iter_mut().find(|group| group.name == one.group) {
            Some(group) if group.versions.iter().all(|own| own.name != version.name) => {
                group.versions.push(version);
            }
            Some(_) => {}
            None => groups.push(MergedGroup { name: one.group.clone(), versions: vec![version] }),
        }
    }
    for group in &mut groups {
        let name = group.name.clone();
        group.versions.sort_by_key(|version| {
            let own = || version_priority(&name, &version.name).unwrap_or(CUSTOM.1);
            let priority = version.remote.map_or_else(own, |remote| remote.version_priority);
            (Reverse(priority), catalog::version_priority(&version.name))
        });
    }
    groups.sort_by_cached_key(|group| {
        let own = group_priority(&group.name);
        let priority = group.versions.iter().map(|version| match version.remote {
            Some(remote) => remote.group_priority,
            None => own.unwrap_or(CUSTOM.0),
        });
        let name = if own.is_some() { SmolStr::default() } else { group.name.clone() };
        (Reverse(priority.max().unwrap_or_default()), name)
    });
    groups
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn remote(group: &str, version: &str, priorities: (i64, i64)) -> RemoteVersion {
        RemoteVersion {
            group: group.into(),
            version: version.into(),
            group_priority: priorities.0,
            version_priority: priorities.1,
            resources: Arc::from([]),
            stale: false,
            bytes: 0,
        }
    }

    #[test]
    fn order() {
        let local = [
            ("apiregistration.k8s.io", &["v1"][..]),
            ("apps", &["v1"]),
            ("autoscaling", &["v2", "v1"]),
            ("apiextensions.k8s.io", &["v1"]),
            ("b.example", &["v1", "v1beta1"]),
            ("d.example", &["v1"]),
        ];
        let local = local
            .map(|(group, versions)| (group.into(), versions.iter().map(SmolStr::new).collect()))
            .to_vec();
        let remotes = [
            remote("b.example", "v2", (1000, 100)),
            remote("b.example", "v3", (1000, 15)),
            remote("c.example", "v1", (1000, 15)),
            remote("first.example", "v1", (20_000, 1)),
            remote("last.example", "v1", (1, 1)),
        ];
        let merged = merge(local, &remotes);
        let shown: Vec<String> = merged
            .iter()
            .map(|group| {
                let versions: Vec<&str> = group.versions.iter().map(|one| one.name.as_str()).collect();
                format!("{} {}", group.name, versions.join(","))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "apiregistration.k8s.io v1",
                "first.example v1",
                "apps v1",
                "autoscaling v2,v1",
                "apiextensions.k8s.io v1",
                "b.example v2,v1,v1beta1,v3",
                "c.example v1",
                "d.example v1",
                "last.example v1",
            ]
        );
    }
}
