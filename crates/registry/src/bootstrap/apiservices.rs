//! What a plane tells about extension of its API from the start: an `APIService` for each built-in group version, and what
//! extension servers need to know in order to believe this server.
//!
//! Invariant: the names of clients that the shared map allows are nobody's. A plane with an extension server gets a map of
//! its own, by a controller, with the one name that its requests carry (ADR 0012): one tenant's requests must not be
//! believed by another tenant's extension server.

use polder_model::{Value, json};

use super::{BootstrapObject, CONFIG_MAP, Kind, one};

const API_SERVICE: Kind = Kind::new("apiregistration.k8s.io", "apiservices", "APIService");

/// Where extension servers look for whom to believe.
pub const AUTHENTICATION: &str = "extension-apiserver-authentication";
pub const AUTHENTICATION_NAMESPACE: &str = "kube-system";

/// Groups and versions with their priorities: the place of the group among groups, and of the version in its group.
const LOCAL: [(&str, &str, i64, i64); 22] = [
    ("", "v1", 18_000, 1),
    ("apps", "v1", 17_800, 15),
    ("events.k8s.io", "v1", 17_750, 15),
    ("authentication.k8s.io", "v1", 17_700, 15),
    ("authorization.k8s.io", "v1", 17_600, 15),
    ("autoscaling", "v2", 17_500, 30),
    ("autoscaling", "v1", 17_500, 15),
    ("batch", "v1", 17_400, 15),
    ("certificates.k8s.io", "v1", 17_300, 15),
    ("networking.k8s.io", "v1", 17_200, 15),
    ("policy", "v1", 17_100, 15),
    ("rbac.authorization.k8s.io", "v1", 17_000, 15),
    ("storage.k8s.io", "v1", 16_800, 15),
    ("admissionregistration.k8s.io", "v1", 16_700, 15),
    ("admissionregistration.k8s.io", "v1beta1", 16_700, 12),
    ("apiextensions.k8s.io", "v1", 16_700, 15),
    ("scheduling.k8s.io", "v1", 16_600, 15),
    ("coordination.k8s.io", "v1", 16_500, 15),
    ("node.k8s.io", "v1", 16_300, 15),
    ("discovery.k8s.io", "v1", 16_200, 15),
    ("resource.k8s.io", "v1", 16_200, 21),
    ("flowcontrol.apiserver.k8s.io", "v1", 16_100, 21),
];

/// Before all others, though nobody registers it: it is how the others are registered.
const REGISTRATION: (&str, i64) = ("apiregistration.k8s.io", 20_001);

/// The place of a built-in group among groups, higher first.
pub fn group_priority(group: &str) -> Option<i64> {
    if group == REGISTRATION.0 {
        return Some(REGISTRATION.1);
    }
    LOCAL.iter().find(|(own, ..)| *own == group).map(|(_, _, priority, _)| *priority)
}

/// The place of a built-in version in its group, higher first.
pub fn version_priority(group: &str, version: &str) -> Option<i64> {
    let mut local = LOCAL.iter();
    let found = local.find(|(own, own_version, ..)| (*own, *own_version) == (group, version));
    found.map(|(.., priority)| *priority)
}

pub(super) fn objects(now: &str) -> impl Iterator<Item = BootstrapObject> {
    LOCAL.into_iter().map(move |(group, version, group_priority, version_priority)| {
        let mut members = json!({
            "metadata": {"labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}},
            "spec": {
                "version": version, "groupPriorityMinimum": group_priority, "versionPriority": version_priority,
            },
            "status": {"conditions": [(crate::resources::apiservice::local_condition(now))]},
        });
        // The oldest group has no name.
        if !group.is_empty() {
            members.set_at(&["spec", "group"], group);
        }
        API_SERVICE.object(None, &format!("{version}.{group}"), members)
    })
}

/// Whom extension servers believe before a plane has any.
pub(super) fn authentication(front_proxy_ca: &str) -> BootstrapObject {
    let data = polder_client::extension::authentication_data(front_proxy_ca, "front-proxy-client");
    CONFIG_MAP.object(Some(AUTHENTICATION_NAMESPACE), AUTHENTICATION, one("data", Value::Object(data)))
}

#[cfg(test)]
mod tests {
    use polder_machinery::schema::table::builtin;

    use super::*;

    #[test]
    fn every_group_version_has_its_place() {
        for resource in &builtin().resources {
            let (group, version) = (resource.group.as_str(), resource.version.as_str());
            let known = group_priority(group).is_some();
            let local = group == REGISTRATION.0 || version_priority(group, version).is_some();
            assert!(known && local, "{group}/{version}");
        }
        let in_order = LOCAL.windows(2).all(|pair| pair[0].2 >= pair[1].2);
        assert!(in_order, "groups are in the order of their priorities");
    }
}
