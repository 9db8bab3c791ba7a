//! The plugins, and the order they run in.

mod certificates;
mod default_ingress_class;
mod default_storage_class;
mod default_toleration_seconds;
mod limit_ranger;
mod mutating_policy;
#[cfg(test)]
mod mutating_policy_tests;
mod node_restriction;
mod owner_references;
mod pod_security;
mod pod_topology;
mod policies;
mod priority;
mod resize;
mod resource_quota;
mod rounds;
mod runtime_class;
mod service_account;
mod storage_protection;
mod taint_nodes;
mod validating_policy;
mod webhooks;
#[cfg(test)]
mod webhooks_tests;

pub(crate) use rounds::Rounds;

use polder_model::{GroupResource, Status, Value};

use crate::attributes::Attributes;
use crate::plugin::Place::{self, Elsewhere, Missing, Off, On};
use crate::plugin::{Interest, Kind};
use crate::world::World;

/// All of them, in upstream's order: each changes objects in this order, then each judges them in this order.
pub(crate) static ALL: &[Place] = &[
    // The registry guards the namespace of a new object until its commit, and keeps three namespaces from deletion.
    Elsewhere("NamespaceLifecycle"),
    On(&limit_ranger::LimitRanger),
    On(&service_account::ServiceAccount),
    On(&node_restriction::NodeRestriction),
    On(&taint_nodes::TaintNodesByCondition),
    On(&pod_security::PodSecurity),
    On(&priority::Priority),
    On(&default_toleration_seconds::DefaultTolerationSeconds),
    On(&default_storage_class::DefaultStorageClass),
    On(&storage_protection::StorageObjectInUseProtection),
    Off(&owner_references::OwnerReferencesPermissionEnforcement),
    On(&resize::PersistentVolumeClaimResize),
    On(&runtime_class::RuntimeClass),
    On(&certificates::CertificateApproval),
    On(&certificates::CertificateSigning),
    Missing("ClusterTrustBundleAttest"),
    On(&certificates::CertificateSubjectRestriction),
    On(&default_ingress_class::DefaultIngressClass),
    On(&pod_topology::PodTopologyLabels),
    Missing("NodeDeclaredFeatureValidator"),
    // Off by default in Kubernetes 1.35.
    On(&mutating_policy::MutatingAdmissionPolicy),
    On(&webhooks::MutatingAdmissionWebhook),
    On(&validating_policy::ValidatingAdmissionPolicy),
    On(&webhooks::ValidatingAdmissionWebhook),
    On(&resource_quota::ResourceQuota),
];

/// Nobody's rules are about rules: else a plane could lock itself out.
fn by_rules(interest: Interest, kind: Kind<'_>) -> Interest {
    interest.when(kind.group != "admissionregistration.k8s.io")
}

/// Questions are asked of nobody but whom they are for, so policies do not judge or change them.
fn is_question(kind: Kind<'_>) -> bool {
    matches!(kind.group, "authentication.k8s.io" | "authorization.k8s.io")
}

/// The namespace a request is in or about, if it is there.
async fn namespace_of(request: &Attributes<'_>, world: &dyn World) -> Result<Option<Value>, Status> {
    if request.place().is_empty() {
        return Ok(None);
    }
    let found = world.get(&GroupResource::new("", "namespaces"), "", request.place()).await?;
    Ok(found.map(|found| found.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Chain;
    use crate::plugin::Kind;

    #[test]
    fn every_name_is_there_once() {
        let mut names: Vec<&str> = ALL.iter().map(Place::name).collect();
        names.sort_unstable();
        let len = names.len();
        names.dedup();
        assert_eq!(names.len(), len);
    }

    #[test]
    fn a_resource_has_the_plugins_that_care() {
        #[track_caller]
        fn check(group: &str, resource: &str, namespaced: bool, expected: &str) {
            let chain = Chain::new(ALL, Kind { group, resource, namespaced });
            assert_eq!(format!("{chain:?}"), expected, "{resource}");
        }
        check("example.com", "clusterwidgets", false, "[]");
        check("admissionregistration.k8s.io", "validatingadmissionpolicies", false, "[]");
        check("events.k8s.io", "events", true, "[]");
        check("example.com", "widgets", true, "[ResourceQuota]");
        check("", "configmaps", true, "[ResourceQuota]");
        check("", "nodes", false, "[NodeRestriction, TaintNodesByCondition]");
        check("", "namespaces", false, "[PodSecurity]");
        check("apps", "deployments", true, "[PodSecurity, ResourceQuota]");
        check("networking.k8s.io", "ingresses", true, "[DefaultIngressClass, ResourceQuota]");
        check("scheduling.k8s.io", "priorityclasses", false, "[Priority]");
        check(
            "",
            "pods",
            true,
            "[LimitRanger, ServiceAccount, NodeRestriction, PodSecurity, Priority, DefaultTolerationSeconds, RuntimeClass, PodTopologyLabels, ResourceQuota]",
        );
        check(
            "",
            "persistentvolumeclaims",
            true,
            "[LimitRanger, NodeRestriction, DefaultStorageClass, StorageObjectInUseProtection, PersistentVolumeClaimResize, ResourceQuota]",
        );
        check(
            "certificates.k8s.io",
            "certificatesigningrequests",
            false,
            "[CertificateApproval, CertificateSigning, CertificateSubjectRestriction]",
        );
    }
}
