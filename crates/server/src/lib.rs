//! The server: TLS, routing to a plane, authentication, limits, answers and watch streams. Everything an answer says
//! comes from the registry; nothing here knows how objects are kept.

mod aggregator;
mod answer;
pub mod audit;
mod body;
mod bounds;
mod budget;
mod certificate;
mod client_certificate;
mod connection;
mod discovery;
mod drive;
mod drive_http1;
mod fairness;
mod finish;
mod flow;
mod front_proxy;
mod gather;
mod handler;
mod health;
mod impersonate;
mod indent;
mod limits;
mod line;
mod list_answer;
mod list_layout;
mod messages;
mod metrics;
mod openapi;
mod patient;
mod present;
mod presented;
mod protobuf;
mod provided;
mod quiet;
mod socket;
mod strangers;
mod stream;
mod subresource;
mod table;
mod threads;
mod transfer;
mod turns;
mod websocket;
mod weight;
mod yaml;

pub mod chain;
pub mod keys;
pub mod negotiate;
pub mod pki;
pub mod route;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use polder_client::Seldom;
use polder_model::{SmolStr, Value, json};
use polder_registry::Registry;
use tokio_util::sync::CancellationToken;

pub use aggregator::{Aggregator, ExtensionBody, ExtensionCall, ExtensionClient, Sending};
pub use bounds::Bounds;
pub use connection::{Server, ServerError};
pub use front_proxy::{FrontProxy, FrontProxyCertificate};
pub use pki::{Pki, PkiError, write_private};
pub use provided::ServingFiles;

/// The Kubernetes version whose API this is.
pub const KUBERNETES_VERSION: &str = "v1.35.8";

/// No more often than this it is said of a plane that a request to it failed.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// What every request needs.
pub struct State {
    pub registry: Arc<Registry>,
    pub pki: Arc<Pki>,
    /// Domains whose subdomains are planes.
    pub base_domains: Vec<SmolStr>,
    /// How long the server goes on, no longer ready, after it was told to stop.
    pub shutdown_delay: Duration,
    bounds: Bounds,
    gates: Arc<limits::Gates>,
    heavy: weight::Heavy,
    messages: messages::Messages,
    /// Answers on their way that no plane counts.
    strangers: Arc<AtomicUsize>,
    threads: Arc<threads::Threads>,
    metrics: metrics::Metrics,
    /// About requests that failed.
    complaints: Seldom,
    /// No longer ready: new requests go elsewhere, old ones finish.
    draining: AtomicBool,
    /// Watches end now.
    stopping: CancellationToken,
    /// Who notes requests, if somebody does.
    audit: Option<Arc<audit::Audit>>,
    /// The way to extension servers, if there is one.
    aggregator: Option<Arc<Aggregator>>,
}

impl State {
    pub fn new(
        registry: Arc<Registry>,
        pki: Arc<Pki>,
        base_domains: Vec<SmolStr>,
        shutdown_delay: Duration,
    ) -> State {
        let bounds = Bounds::default();
        State {
            registry,
            pki,
            base_domains,
            shutdown_delay,
            bounds,
            gates: Arc::new(limits::Gates::new(bounds.in_flight_bytes_max)),
            heavy: weight::Heavy::new(cores(), bounds.in_flight_bytes_max),
            messages: messages::Messages::default(),
            strangers: Arc::default(),
            threads: Arc::new(threads::Threads::new(2 * cores(), Vec::new())),
            metrics: metrics::Metrics::new(),
            complaints: Seldom::new(COMPLAIN_EVERY),
            draining: AtomicBool::new(false),
            stopping: CancellationToken::new(),
            aggregator: None,
            audit: None,
        }
    }

    /// The same with a way to extension servers.
    #[must_use]
    pub fn with_aggregator(self, aggregator: Arc<Aggregator>) -> State {
        State { aggregator: Some(aggregator), ..self }
    }

    /// The same with threads of their own for planes that use much.
    #[must_use]
    pub fn with_busy_threads(self, busy: Vec<tokio::runtime::Handle>) -> State {
        State { threads: Arc::new(threads::Threads::new(2 * cores(), busy)), ..self }
    }

    /// The same with requests noted.
    #[must_use]
    pub fn with_audit(self, audit: Option<Arc<audit::Audit>>) -> State {
        State { audit, ..self }
    }

    /// The same with other bounds.
    #[must_use]
    pub fn with_bounds(self, bounds: Bounds) -> State {
        State {
            bounds,
            gates: Arc::new(limits::Gates::new(bounds.in_flight_bytes_max)),
            heavy: weight::Heavy::new(cores(), bounds.in_flight_bytes_max),
            ..self
        }
    }

    pub(crate) fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What `/version` says.
fn version() -> Value {
    let numbers: Vec<&str> = KUBERNETES_VERSION.trim_start_matches('v').split('.').collect();
    let number = |index: usize| *numbers.get(index).unwrap_or(&"0");
    json!({
        "major": (number(0)), "minor": (number(1)),
        "emulationMajor": (number(0)), "emulationMinor": (number(1)),
        "minCompatibilityMajor": (number(0)), "minCompatibilityMinor": "34",
        "gitVersion": (format!("{KUBERNETES_VERSION}+polder-{}", env!("CARGO_PKG_VERSION"))),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc",
        "platform": (format!("{}/{}", std::env::consts::OS, architecture())),
    })
}

/// The processor by the name Go has for it: programs choose images by it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
