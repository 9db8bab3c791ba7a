//! The resources controllers deal with, and what a plane tells about those it serves.

use polder_model::{GroupVersionResource, SmolStr};

/// One resource of a plane, in its preferred version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceFacts {
    pub name: GroupVersionResource,
    /// All versions it is served in.
    pub versions: Vec<SmolStr>,
    pub kind: SmolStr,
    pub namespaced: bool,
    /// Its objects can be listed and deleted.
    pub deletable: bool,
}

const fn of(group: &'static str, version: &'static str, resource: &'static str) -> GroupVersionResource {
    GroupVersionResource {
        group: SmolStr::new_static(group),
        version: SmolStr::new_static(version),
        resource: SmolStr::new_static(resource),
    }
}

pub const ACCESS_REVIEWS: GroupVersionResource = of("authorization.k8s.io", "v1", "subjectaccessreviews");
pub const API_SERVICES: GroupVersionResource = of("apiregistration.k8s.io", "v1", "apiservices");
pub const CERTIFICATE_REQUESTS: GroupVersionResource =
    of("certificates.k8s.io", "v1", "certificatesigningrequests");
pub const FLOW_SCHEMAS: GroupVersionResource = of("flowcontrol.apiserver.k8s.io", "v1", "flowschemas");
pub const PRIORITY_LEVELS: GroupVersionResource =
    of("flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations");
pub const CLUSTER_ROLES: GroupVersionResource = of("rbac.authorization.k8s.io", "v1", "clusterroles");
pub const CONFIG_MAPS: GroupVersionResource = of("", "v1", "configmaps");
pub const CONTROLLER_REVISIONS: GroupVersionResource = of("apps", "v1", "controllerrevisions");
pub const CRON_JOBS: GroupVersionResource = of("batch", "v1", "cronjobs");
pub const CRDS: GroupVersionResource = of("apiextensions.k8s.io", "v1", "customresourcedefinitions");
pub const DAEMON_SETS: GroupVersionResource = of("apps", "v1", "daemonsets");
pub const DEPLOYMENTS: GroupVersionResource = of("apps", "v1", "deployments");
pub const ENDPOINTS: GroupVersionResource = of("", "v1", "endpoints");
pub const ENDPOINT_SLICES: GroupVersionResource = of("discovery.k8s.io", "v1", "endpointslices");
pub const EVENTS: GroupVersionResource = of("", "v1", "events");
pub const AUTOSCALERS: GroupVersionResource = of("autoscaling", "v2", "horizontalpodautoscalers");
pub const IP_ADDRESSES: GroupVersionResource = of("networking.k8s.io", "v1", "ipaddresses");
pub const JOBS: GroupVersionResource = of("batch", "v1", "jobs");
pub const LEASES: GroupVersionResource = of("coordination.k8s.io", "v1", "leases");
pub const NAMESPACES: GroupVersionResource = of("", "v1", "namespaces");
pub const NODES: GroupVersionResource = of("", "v1", "nodes");
pub const DISRUPTION_BUDGETS: GroupVersionResource = of("policy", "v1", "poddisruptionbudgets");
pub const PODS: GroupVersionResource = of("", "v1", "pods");
pub const REPLICA_SETS: GroupVersionResource = of("apps", "v1", "replicasets");
pub const REPLICATION_CONTROLLERS: GroupVersionResource = of("", "v1", "replicationcontrollers");
pub const RESOURCE_CLAIMS: GroupVersionResource = of("resource.k8s.io", "v1", "resourceclaims");
pub const RESOURCE_CLAIM_TEMPLATES: GroupVersionResource =
    of("resource.k8s.io", "v1", "resourceclaimtemplates");
pub const RESOURCE_QUOTAS: GroupVersionResource = of("", "v1", "resourcequotas");
pub const SECRETS: GroupVersionResource = of("", "v1", "secrets");
pub const SERVICES: GroupVersionResource = of("", "v1", "services");
pub const SERVICE_ACCOUNTS: GroupVersionResource = of("", "v1", "serviceaccounts");
pub const SERVICE_CIDRS: GroupVersionResource = of("networking.k8s.io", "v1", "servicecidrs");
pub const STATEFUL_SETS: GroupVersionResource = of("apps", "v1", "statefulsets");
pub const STORAGE_CLASSES: GroupVersionResource = of("storage.k8s.io", "v1", "storageclasses");
pub const VOLUMES: GroupVersionResource = of("", "v1", "persistentvolumes");
pub const VOLUME_CLAIMS: GroupVersionResource = of("", "v1", "persistentvolumeclaims");
