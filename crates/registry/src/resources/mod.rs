//! Built-in kinds: what is special about each. One file a kind, one line below.
//!
//! The files in the middle block are what several kinds share.

use polder_model::Value;
use polder_model::names::dns_label_problem;

use crate::behavior::Behavior;

mod autoscaler_v1;
mod container_rules;
mod label_selector;
mod pod_rules;
mod pod_spec;
mod pod_spec_rules;
mod print;
mod resource_names;
mod rules;
#[cfg(test)]
mod tests;
mod workload;

mod componentstatuses;
mod configmaps;
mod controllerrevisions;
mod cron;
mod cronjobs;
mod daemonsets;
mod deployments;
mod endpoints;
mod events;
mod horizontalpodautoscalers;
mod jobs;
mod limitranges;
mod namespaces;
mod nodes;
mod persistentvolumeclaims;
mod persistentvolumes;
mod poddisruptionbudgets;
mod pods;
mod podtemplates;
mod replicasets;
mod replicationcontrollers;
mod resourcequotas;
mod secrets;
mod service_rules;
mod serviceaccounts;
mod services;
mod statefulsets;

/// Every kind with a behavior of its own. Kinds of the table that are not here are [`Behavior::PLAIN`].
pub(crate) const ALL: &[&Behavior] = &[
    &componentstatuses::COMPONENTSTATUSES,
    &configmaps::CONFIGMAPS,
    &controllerrevisions::CONTROLLERREVISIONS,
    &cronjobs::CRONJOBS,
    &daemonsets::DAEMONSETS,
    &deployments::DEPLOYMENTS,
    &endpoints::ENDPOINTS,
    &events::EVENTS,
    &events::EVENTS_K8S_IO,
    &horizontalpodautoscalers::HORIZONTALPODAUTOSCALERS,
    &jobs::JOBS,
    &limitranges::LIMITRANGES,
    &namespaces::NAMESPACES,
    &nodes::NODES,
    &persistentvolumeclaims::PERSISTENTVOLUMECLAIMS,
    &persistentvolumes::PERSISTENTVOLUMES,
    &poddisruptionbudgets::PODDISRUPTIONBUDGETS,
    &pods::PODS,
    &podtemplates::PODTEMPLATES,
    &replicasets::REPLICASETS,
    &replicationcontrollers::REPLICATIONCONTROLLERS,
    &resourcequotas::RESOURCEQUOTAS,
    &secrets::SECRETS,
    &serviceaccounts::SERVICEACCOUNTS,
    &services::SERVICES,
    &statefulsets::STATEFULSETS,
];

/// Names of things that become host names should be DNS labels.
fn name_warning(object: &Value, used: &str) -> Vec<String> {
    let name = object.str_at(&["metadata", "name"]).unwrap_or_default();
    match dns_label_problem(name) {
        None => Vec::new(),
        Some(_) if name.is_empty() => Vec::new(),
        Some(problem) => vec![format!(
            "metadata.name: {used}, which can result in surprising behavior; a DNS label is recommended: [{problem}]"
        )],
    }
}
