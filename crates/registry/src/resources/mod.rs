//! Built-in kinds: what is special about each. One file a kind, one line below.
//!
//! The first block of files is what several kinds share.

mod addresses;
mod admission_rules;
pub(crate) mod audit_event;
mod autoscaler_v1;
mod blank_status;
mod cells;
mod checks;
mod container_rules;
mod cron;
mod deprecations;
mod device_claim;
mod device_rules;
mod downward;
mod env_rules;
mod go_json;
mod job_policy;
mod job_status;
mod label_selector;
mod mount_rules;
mod operating_system;
mod own_kinds;
mod pod_rules;
mod pod_spec;
mod pod_spec_rules;
mod pod_warnings;
mod probe_rules;
mod resource_amounts;
mod resource_names;
mod scheduling_rules;
mod security_rules;
mod service_rules;
mod status_rules;
mod volume_rules;
mod webhook;
mod workload;

#[cfg(test)]
mod every_kind_tests;
#[cfg(test)]
mod rows;

mod accessreview;
pub(crate) mod apiservice;
pub(crate) mod certificatesigningrequest;
mod clusterrole;
mod clusterrolebinding;
mod componentstatus;
mod configmap;
mod controllerrevision;
mod cronjob;
mod csidriver;
mod csinode;
mod csistoragecapacity;
mod customresourcedefinition;
mod daemonset;
mod deployment;
mod deviceclass;
mod endpoints;
mod endpointslice;
mod event;
mod flowschema;
mod horizontalpodautoscaler;
mod ingress;
mod ingressclass;
mod ipaddress;
mod job;
pub(crate) mod layer;
mod lease;
mod limitrange;
mod mutatingadmissionpolicy;
mod mutatingadmissionpolicybinding;
mod mutatingwebhookconfiguration;
mod namespace;
mod networkpolicy;
mod node;
mod persistentvolume;
mod persistentvolumeclaim;
pub(crate) mod plane;
mod plane_authentication;
mod pod;
mod poddisruptionbudget;
mod podtemplate;
pub(crate) mod priorityclass;
mod prioritylevelconfiguration;
mod replicaset;
mod replicationcontroller;
mod resourceclaim;
mod resourceclaimtemplate;
mod resourcequota;
mod resourceslice;
mod role;
mod rolebinding;
mod runtimeclass;
mod secret;
pub(crate) mod service;
mod serviceaccount;
mod servicecidr;
mod statefulset;
mod storageclass;
mod validatingadmissionpolicy;
mod validatingadmissionpolicybinding;
mod validatingwebhookconfiguration;
mod volumeattachment;
mod volumeattributesclass;

use polder_model::names::dns_label_problems;
use polder_model::{GroupResource, Value};

use crate::behavior::Behavior;
use crate::catalog::PLAIN;

/// Every kind with a behavior of its own. Kinds of the table that are not here are [`Behavior::PLAIN`].
pub(crate) static ALL: &[&Behavior] = &[
    &accessreview::LOCAL_SUBJECT_ACCESS_REVIEW,
    &accessreview::SELF_SUBJECT_ACCESS_REVIEW,
    &accessreview::SUBJECT_ACCESS_REVIEW,
    &apiservice::API_SERVICE,
    &certificatesigningrequest::CERTIFICATE_SIGNING_REQUEST,
    &clusterrole::CLUSTER_ROLE,
    &clusterrolebinding::CLUSTER_ROLE_BINDING,
    &componentstatus::COMPONENTSTATUSES,
    &configmap::CONFIGMAPS,
    &controllerrevision::CONTROLLERREVISIONS,
    &cronjob::CRONJOBS,
    &csidriver::CSI_DRIVER,
    &csinode::CSI_NODE,
    &csistoragecapacity::CSI_STORAGE_CAPACITY,
    &customresourcedefinition::CUSTOM_RESOURCE_DEFINITION,
    &daemonset::DAEMONSETS,
    &deployment::DEPLOYMENTS,
    &deviceclass::DEVICE_CLASS,
    &endpoints::ENDPOINTS,
    &endpointslice::ENDPOINT_SLICE,
    &event::EVENTS,
    &event::EVENTS_K8S_IO,
    &flowschema::FLOW_SCHEMA,
    &horizontalpodautoscaler::HORIZONTALPODAUTOSCALERS,
    &ingress::INGRESS,
    &ingressclass::INGRESS_CLASS,
    &ipaddress::IP_ADDRESS,
    &job::JOBS,
    &layer::LAYER,
    &lease::LEASE,
    &limitrange::LIMITRANGES,
    &mutatingadmissionpolicy::MUTATING_ADMISSION_POLICY,
    &mutatingadmissionpolicybinding::MUTATING_ADMISSION_POLICY_BINDING,
    &mutatingwebhookconfiguration::MUTATING_WEBHOOK_CONFIGURATION,
    &namespace::NAMESPACES,
    &networkpolicy::NETWORK_POLICY,
    &node::NODES,
    &persistentvolumeclaim::PERSISTENTVOLUMECLAIMS,
    &persistentvolume::PERSISTENTVOLUMES,
    &plane::PLANE,
    &poddisruptionbudget::PODDISRUPTIONBUDGETS,
    &pod::PODS,
    &podtemplate::PODTEMPLATES,
    &priorityclass::PRIORITY_CLASS,
    &prioritylevelconfiguration::PRIORITY_LEVEL_CONFIGURATION,
    &replicaset::REPLICASETS,
    &replicationcontroller::REPLICATIONCONTROLLERS,
    &resourceclaim::RESOURCE_CLAIM,
    &resourceclaimtemplate::RESOURCE_CLAIM_TEMPLATE,
    &resourcequota::RESOURCEQUOTAS,
    &resourceslice::RESOURCE_SLICE,
    &role::ROLE,
    &rolebinding::ROLE_BINDING,
    &runtimeclass::RUNTIME_CLASS,
    &secret::SECRETS,
    &serviceaccount::SERVICEACCOUNTS,
    &servicecidr::SERVICE_CIDR,
    &service::SERVICES,
    &statefulset::STATEFULSETS,
    &storageclass::STORAGE_CLASS,
    &validatingadmissionpolicy::VALIDATING_ADMISSION_POLICY,
    &validatingadmissionpolicybinding::VALIDATING_ADMISSION_POLICY_BINDING,
    &validatingwebhookconfiguration::VALIDATING_WEBHOOK_CONFIGURATION,
    &volumeattachment::VOLUME_ATTACHMENT,
    &volumeattributesclass::VOLUME_ATTRIBUTES_CLASS,
];

/// The behavior of a built-in kind.
pub(crate) fn behavior(name: &GroupResource) -> &'static Behavior {
    let own = ALL.iter().find(|own| own.group == name.group && own.resource == name.resource);
    own.copied().unwrap_or(&PLAIN)
}

/// The structural schema of a kind of our own (`Plane`, `Layer`); built-in kinds have theirs in the table.
pub(crate) fn schema_json(kind: &str) -> Option<polder_model::Value> {
    match kind {
        "Plane" => Some(plane::schema()),
        "Layer" => Some(layer::schema()),
        _ => None,
    }
}

/// Names of things that become host names should be DNS labels.
fn name_warning(object: &Value, used: &str) -> Vec<String> {
    let name = object.str_at(&["metadata", "name"]).unwrap_or_default();
    let problems: Vec<&str> = dns_label_problems(name).collect();
    if name.is_empty() || problems.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: {used}, which can result in surprising behavior; a DNS label is recommended: [{}]",
        problems.join(" ")
    )]
}
