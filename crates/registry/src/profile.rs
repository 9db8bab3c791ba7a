//! Which built-in kinds planes of a profile have.
//!
//! A generic plane is a control plane for somebody's own kinds: it has what those need and nothing that runs. What a plane
//! does not have is unknown in it, as any other resource is: in paths, discovery, OpenAPI, and to controllers. Its
//! name stays taken all the same: a CRD cannot define it.

use polder_model::GroupResource;
use polder_store::Profile;

/// Groups of which a generic plane has everything.
const GENERIC_GROUPS: [&str; 10] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "rbac.authorization.k8s.io",
];

/// What it has of the core group.
const GENERIC_CORE: [&str; 6] =
    ["configmaps", "events", "namespaces", "resourcequotas", "secrets", "serviceaccounts"];

/// Whether planes of a profile have a built-in kind.
pub(crate) fn has(profile: Profile, resource: &GroupResource) -> bool {
    match profile {
        Profile::Cluster => true,
        Profile::Generic => match resource.group.as_str() {
            "" => GENERIC_CORE.contains(&resource.resource.as_str()),
            group => GENERIC_GROUPS.contains(&group),
        },
    }
}

/// Whether planes of a profile have anything of a built-in group.
pub(crate) fn has_group(profile: Profile, group: &str) -> bool {
    match profile {
        Profile::Cluster => true,
        Profile::Generic => group.is_empty() || GENERIC_GROUPS.contains(&group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_planes_run_nothing() {
        #[track_caller]
        fn check(group: &str, resource: &str, expected: bool) {
            let resource = GroupResource::new(group, resource);
            assert_eq!(has(Profile::Generic, &resource), expected, "{resource}");
            assert!(has(Profile::Cluster, &resource));
        }
        for (group, resource) in [
            ("", "namespaces"),
            ("", "events"),
            ("events.k8s.io", "events"),
            ("rbac.authorization.k8s.io", "roles"),
            ("apiextensions.k8s.io", "customresourcedefinitions"),
            ("coordination.k8s.io", "leases"),
        ] {
            check(group, resource, true);
        }
        for (group, resource) in [
            ("", "pods"),
            ("", "nodes"),
            ("", "services"),
            ("", "persistentvolumeclaims"),
            ("", "bindings"),
            ("apps", "deployments"),
            ("batch", "jobs"),
            ("storage.k8s.io", "storageclasses"),
            ("networking.k8s.io", "ipaddresses"),
            ("scheduling.k8s.io", "priorityclasses"),
        ] {
            check(group, resource, false);
        }
    }
}
