//! What kube-controller-manager does, for all planes at once. One folder a controller, one line in [`all`].
//!
//! Controllers see [`polder_client::Client`] and nothing below it. Each looks at the world, plans with a pure function
//! and acts; each can run twice without harm.

use polder_client::Controller;

mod workload;

mod adoption;
mod replicaset;

/// Every controller there is.
pub fn all() -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(adoption::Adoption),
        Box::new(replicaset::Replicas::of_sets()),
        Box::new(replicaset::Replicas::of_controllers()),
    ]
}
