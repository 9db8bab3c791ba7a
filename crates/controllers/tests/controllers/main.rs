//! Controllers in a whole server on a memory store, seen as their users see them: over HTTP. Every wait is bounded, and
//! ends as soon as what is waited for is there.

mod api_services;
mod autoscaling;
mod bootstrap;
mod certificates;
mod claims;
mod endpoints;
mod forks;
mod gc;
mod kept_objects;
mod namespaces;
mod nodes;
mod policies;
mod profiles;
mod service_ranges;
mod simulation;
mod volumes;
mod workloads;
mod world;
