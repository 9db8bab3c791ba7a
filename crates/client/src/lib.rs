//! How programs inside Polder use planes: the verbs ([`Client`]), the feed of all changes ([`Change`]), and controllers
//! ([`Controller`]) with the queue and the workers they share ([`Runner`]).
//!
//! Whoever is written against this sees the API and nothing below it, so it has the API's power and no more, and can be
//! moved to another process.
//!
//! Invariants: there is one feed, one queue and one set of workers for all planes; planes take turns; a plane with
//! nothing to do costs nothing.

mod afterwards;
mod authority;
mod client;
mod controller;
pub mod extension;
mod in_plane;
pub mod large;
pub mod queue;
pub mod resource;
mod runner;
mod seldom;
pub mod slice;
pub mod stage;

pub use afterwards::afterwards;
pub use authority::{CertificateAuthority, CertificateRequest, CertificateTerms, TokenKeys};
pub use client::{Answer, At, Changes, ChangesError, Client, Cursor, Delete, Patch, Propagation, Query};
pub use controller::{Change, Controller, Interest, Next, Snapshot, Stored, Wake, key};
pub use in_plane::InPlane;
pub use resource::ResourceFacts;
pub use runner::Runner;
pub use seldom::Seldom;
