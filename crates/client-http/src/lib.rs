//! A small Kubernetes client for the command line, tests and benchmarks.
//!
//! It reads a kubeconfig ([`kubeconfig`]), keeps a few connections open, and speaks verbs on paths ([`Client`]). It has
//! no kinds, no cache and no retries of its own. Invariants: every wait has a deadline (but a watch's), everything read
//! from a server is bounded, and an error says what to do about it.

pub mod grpc;
pub mod kms;
pub mod kubeconfig;

mod answer;
mod body;
mod client;
mod connection;
mod dial;
mod egress;
mod error;
mod fetch;
mod forward;
mod idle;
mod room;
mod tls;
mod webhook;

pub use answer::{Answer, Lines};
pub use body::Upload;
pub use client::{Client, ClientOptions};
pub use egress::{Egress, Network, NetworkError};
pub use error::{ApiError, ClientError};
pub use fetch::{Fetch, Fetcher};
pub use forward::{Forward, ForwardBody, Forwarder};
pub use http::Method;
pub use kubeconfig::{Access, Kubeconfig, KubeconfigError};
pub use tls::{ClientIdentity, Trust};
pub use webhook::{Post, Poster};
