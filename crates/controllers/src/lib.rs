//! What kube-controller-manager does, for all planes at once. One folder a controller, one line in [`all`].
//!
//! Controllers see [`polder_client::Client`] and nothing below it. Each looks at the world, plans with a pure function
//! and acts; each can run twice without harm.

mod api_service;
mod autoscaler;
mod batch;
mod bootstrap_cleaner;
mod bootstrap_signer;
mod certificate_cleaner;
mod certificates;
mod clusterrole_aggregation;
mod disruption;
mod endpoints;
mod ephemeral_volume;
mod event_expiry;
mod flow_schemas;
mod gc;
mod kept_objects;
mod marks;
mod meta;
mod node_lifecycle;
mod protection;
mod recorder;
mod resource_claim;
mod resource_quota;
mod root_ca;
mod service_account;
mod service_range;
mod simulation;
mod timestamp;
mod token_cleaner;
mod token_secrets;
mod told;
mod volume_binder;

mod workload;

mod adoption;
mod cronjob;
mod daemonset;
mod deployment;
mod job;
mod job_ttl;
mod pod_gc;
mod replicaset;
mod statefulset;

use std::sync::Arc;

use polder_client::extension::ExtensionProbe;
use polder_client::{CertificateAuthority, Controller, TokenKeys};

pub use told::Told;

pub use kept_objects::KeptObject;

/// What controllers need to know of the server they run in.
#[derive(Clone, Default)]
pub struct Options {
    /// The certificate authorities in PEM that every namespace is told of; none when empty.
    pub root_ca: Told,
    /// The authorities by whose certificates extension servers know this server, in PEM; they are not told when empty.
    pub front_proxy_ca: Told,
    /// Who asks extension servers whether they are there.
    pub extensions: Option<Arc<dyn ExtensionProbe>>,
    /// Knows which tokens of service accounts are believed.
    pub token_keys: Option<Arc<dyn TokenKeys>>,
    /// Signs certificates for planes; none are signed when there is nobody.
    pub authority: Option<Arc<dyn CertificateAuthority>>,
    /// What planes start with and get again when somebody deletes it.
    pub kept: Vec<KeptObject>,
}

/// Every controller there is.
pub fn all(options: &Options) -> Vec<Box<dyn Controller>> {
    vec![
        Box::<gc::GarbageCollector>::default(),
        Box::new(root_ca::RootCa::new(options.root_ca.clone())),
        Box::new(service_account::ServiceAccount),
        Box::new(kept_objects::KeptObjects::new(&options.kept)),
        Box::new(event_expiry::EventExpiry::default()),
        Box::new(endpoints::Endpoints::new()),
        Box::new(endpoints::mirror::Mirror),
        Box::new(clusterrole_aggregation::ClusterRoleAggregation),
        Box::new(flow_schemas::FlowSchemas),
        Box::new(disruption::Disruption::new()),
        Box::new(protection::Protection::Claims),
        Box::new(protection::Protection::Volumes),
        Box::new(protection::Protection::Classes),
        Box::new(token_secrets::TokenSecrets::new(options.root_ca.clone(), options.token_keys.clone())),
        Box::new(resource_claim::ResourceClaim::new()),
        Box::new(resource_quota::ResourceQuota),
        Box::new(volume_binder::VolumeBinder::new()),
        Box::new(ephemeral_volume::EphemeralVolume::new()),
        Box::new(token_cleaner::TokenCleaner),
        Box::new(bootstrap_cleaner::BootstrapCleaner),
        Box::new(bootstrap_signer::BootstrapSigner),
        Box::new(autoscaler::Autoscaler::new()),
        Box::new(service_range::ServiceRanges),
        Box::new(service_range::repair::AddressRepair::new()),
        Box::new(certificates::Approver(options.authority.clone())),
        Box::new(certificates::Signer(options.authority.clone())),
        Box::new(certificate_cleaner::CertificateCleaner),
        Box::new(api_service::Availability::new(options.front_proxy_ca.clone(), options.extensions.clone())),
        Box::new(api_service::registration::Registration),
        Box::new(node_lifecycle::NodeLifecycle::new()),
        Box::new(node_lifecycle::taint_eviction::TaintEviction::new()),
        Box::new(adoption::Adoption),
        Box::new(replicaset::Replicas::of_sets()),
        Box::new(replicaset::Replicas::of_controllers()),
        Box::new(deployment::Deployments::new()),
        Box::new(daemonset::DaemonSets::new()),
        Box::new(statefulset::StatefulSets::new()),
        Box::new(job::Jobs::new()),
        Box::new(cronjob::CronJobs::new()),
        Box::new(job_ttl::JobTtl),
        Box::new(pod_gc::PodGc::default()),
        Box::new(simulation::Nodes),
        Box::<simulation::Scheduler>::default(),
        Box::new(simulation::Kubelet::default()),
    ]
}
