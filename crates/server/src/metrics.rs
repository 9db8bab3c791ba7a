//! Prometheus metrics, with upstream's names where there is one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polder_registry::Registry;
use polder_registry::flows::Flows;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry as MetricRegistry;

use polder_store::Plane;

use crate::audit::Counts;
use crate::limits::Gates;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub(crate) verb: &'static str,
    pub(crate) code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct VerbLabel {
    verb: &'static str,
}

/// Who should have had an event.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BackendLabel {
    backend: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DecisionLabels {
    r#type: &'static str,
    name: String,
    decision: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EvaluationLabels {
    name: String,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NameLabel {
    name: String,
}

pub(crate) struct Metrics {
    exposed: MetricRegistry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<VerbLabel, Histogram>,
    in_flight: Gauge,
    watches: Gauge,
    planes: Gauge,
    revision: Gauge<i64>,
    cache_bytes: Gauge,
    body_bytes: Gauge,
    watch_events: Counter<u64, AtomicU64>,
    audit_events: Counter<u64, AtomicU64>,
    audit_lost: Family<BackendLabel, Counter<u64, AtomicU64>>,
    authentication_reloads: Family<StatusLabel, Counter<u64, AtomicU64>>,
    authorization: Authorization,
    key_seconds: Family<NameLabel, Gauge>,
    leads: Gauge,
    behind: Gauge,
    overtaken: Counter<u64, AtomicU64>,
    questions: Counter<u64, AtomicU64>,
}

/// Who decided what. Names are those the provider gave its authorizers.
#[derive(Default)]
struct Authorization {
    reloads: Family<StatusLabel, Counter<u64, AtomicU64>>,
    decisions: Family<DecisionLabels, Counter<u64, AtomicU64>>,
    evaluations: Family<EvaluationLabels, Counter<u64, AtomicU64>>,
    passed_over: Family<NameLabel, Counter<u64, AtomicU64>>,
    excluded: Family<NameLabel, Counter<u64, AtomicU64>>,
    unclear: Family<NameLabel, Counter<u64, AtomicU64>>,
}

impl Authorization {
    fn register(&self, exposed: &mut MetricRegistry) {
        exposed.register(
            "apiserver_authorization_config_controller_automatic_reloads",
            "Changes of the authorization configuration that were taken over, or not",
            self.reloads.clone(),
        );
        exposed.register(
            "apiserver_authorization_decisions",
            "Decisions by the authorizer that made them",
            self.decisions.clone(),
        );
        exposed.register(
            "apiserver_authorization_webhook_evaluations",
            "Questions to authorization webhooks",
            self.evaluations.clone(),
        );
        exposed.register(
            "apiserver_authorization_webhook_evaluations_fail_open",
            "Questions that went on to others because a webhook gave no answer",
            self.passed_over.clone(),
        );
        exposed.register(
            "apiserver_authorization_match_condition_exclusions",
            "Questions a webhook was not asked because of its conditions",
            self.excluded.clone(),
        );
        exposed.register(
            "apiserver_authorization_match_condition_evaluation_errors",
            "Conditions of webhooks that could not be told to hold",
            self.unclear.clone(),
        );
    }

    fn copy(&self, registry: &Registry) {
        let set = |counter: &Counter<u64, AtomicU64>, count: u64| {
            counter.inner().store(count, Ordering::Relaxed);
        };
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        for (status, count) in ["success", "failure"].into_iter().zip(registry.authorization_reloads()) {
            set(&self.reloads.get_or_create(&StatusLabel { status }), count);
        }
        for step in registry.authorizer.steps().iter() {
            let counts = [("allowed", &step.counts.allowed), ("denied", &step.counts.denied)];
            for (decision, count) in counts {
                let labels = DecisionLabels { r#type: step.kind, name: step.name.to_string(), decision };
                set(&self.decisions.get_or_create(&labels), read(count));
            }
        }
        for webhook in registry.access_webhooks().iter() {
            let (name, counts) = (webhook.name().to_string(), webhook.counts());
            let results =
                [("success", &counts.answered), ("timeout", &counts.timed_out), ("error", &counts.failed)];
            for (result, count) in results {
                let labels = EvaluationLabels { name: name.clone(), result };
                set(&self.evaluations.get_or_create(&labels), read(count));
            }
            let label = NameLabel { name };
            set(&self.passed_over.get_or_create(&label), read(&counts.passed_over));
            set(&self.excluded.get_or_create(&label), read(&counts.excluded));
            set(&self.unclear.get_or_create(&label), read(&counts.unclear));
        }
    }
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let histogram = || Histogram::new(exponential_buckets(0.000_25, 4.0, 9));
        let mut metrics = Metrics {
            exposed: MetricRegistry::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(histogram),
            in_flight: Gauge::default(),
            watches: Gauge::default(),
            planes: Gauge::default(),
            revision: Gauge::default(),
            cache_bytes: Gauge::default(),
            body_bytes: Gauge::default(),
            watch_events: Counter::default(),
            audit_events: Counter::default(),
            audit_lost: Family::default(),
            authentication_reloads: Family::default(),
            authorization: Authorization::default(),
            key_seconds: Family::default(),
            leads: Gauge::default(),
            behind: Gauge::default(),
            overtaken: Counter::default(),
            questions: Counter::default(),
        };
        let exposed = &mut metrics.exposed;
        exposed.register("apiserver_request", "Requests by verb and code", metrics.requests.clone());
        exposed.register("apiserver_request_duration_seconds", "Time to answer", metrics.durations.clone());
        exposed.register(
            "apiserver_current_inflight_requests",
            "Requests being answered",
            metrics.in_flight.clone(),
        );
        exposed.register("apiserver_longrunning_requests", "Open watches", metrics.watches.clone());
        exposed.register("apiserver_watch_events", "Events sent to watchers", metrics.watch_events.clone());
        exposed.register(
            "apiserver_authentication_config_controller_automatic_reloads",
            "Changes of the authentication configuration that were taken over, or not",
            metrics.authentication_reloads.clone(),
        );
        metrics.authorization.register(exposed);
        exposed.register(
            "polder_key_expiry_seconds",
            "Time until a key or certificate of the server ends",
            metrics.key_seconds.clone(),
        );
        exposed.register("polder_planes", "Planes in the store", metrics.planes.clone());
        exposed.register("polder_store_revision", "Newest revision", metrics.revision.clone());
        let (leads, behind) = (metrics.leads.clone(), metrics.behind.clone());
        exposed.register("polder_replica_leads", "Whether controllers run on this replica", leads);
        exposed.register("polder_replica_lag_revisions", "Commits known of and not here yet", behind);
        exposed.register(
            "polder_replica_overtaken",
            "Groups of changes planned again because another replica was first",
            metrics.overtaken.clone(),
        );
        exposed.register(
            "polder_replica_questions",
            "Questions to what replicas share about what is newest",
            metrics.questions.clone(),
        );
        exposed.register("polder_store_cache_bytes", "Hot objects in memory", metrics.cache_bytes.clone());
        exposed.register(
            "polder_body_bytes",
            "Bodies of requests and answers in memory",
            metrics.body_bytes.clone(),
        );
        exposed.register("apiserver_audit_event", "Audit events made", metrics.audit_events.clone());
        exposed.register("polder_audit_lost_events", "Audit events lost", metrics.audit_lost.clone());
        metrics
    }

    pub(crate) fn answered(&self, verb: &'static str, code: u16, took: Duration) {
        self.requests.get_or_create(&RequestLabels { verb, code }).inc();
        self.durations.get_or_create(&VerbLabel { verb }).observe(took.as_secs_f64());
    }

    pub(crate) fn events_sent(&self, count: u64) {
        self.watch_events.inc_by(count);
    }

    fn audit(&self, counts: &Counts) {
        let copy = |counter: &Counter<u64, AtomicU64>, count: &AtomicU64| {
            counter.inner().store(count.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        copy(&self.audit_events, &counts.events);
        for (backend, count) in [
            ("queue", &counts.lost_queue),
            ("log", &counts.lost_log),
            ("webhook", &counts.lost_webhook),
            ("trail", &counts.lost_trail),
        ] {
            copy(&self.audit_lost.get_or_create(&BackendLabel { backend }), count);
        }
    }

    /// When keys and certificates end, in seconds from now; those that are gone are not told of.
    pub(crate) fn keys(&self, ends: Vec<(String, i64)>, now: i64) {
        self.key_seconds.clear();
        for (name, end) in ends {
            self.key_seconds.get_or_create(&NameLabel { name }).set(end - now);
        }
    }

    /// The text a scraper reads.
    pub(crate) fn scrape(&self, registry: &Registry, gates: &Arc<Gates>, audit: Option<&Counts>) -> String {
        audit.into_iter().for_each(|counts| self.audit(counts));
        let gauge = |gauge: &Gauge, value: usize| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        gauge(&self.planes, registry.store.planes_len());
        gauge(&self.cache_bytes, registry.store.cache_bytes());
        gauge(&self.body_bytes, gates.bytes());
        self.in_flight.set(i64::try_from(gates.requests()).unwrap_or(i64::MAX));
        self.watches.set(i64::try_from(gates.watches()).unwrap_or(i64::MAX));
        self.revision.set(i64::try_from(registry.store.current().0).unwrap_or(i64::MAX));
        self.leads.set(i64::from(registry.store.leads()));
        if let Some(sharing) = registry.store.sharing() {
            self.behind.set(i64::try_from(sharing.behind).unwrap_or(i64::MAX));
            self.overtaken.inner().store(sharing.overtaken, Ordering::Relaxed);
            self.questions.inner().store(sharing.questions, Ordering::Relaxed);
        }
        let reloads = registry.options.authenticators.reloads();
        for (status, count) in ["success", "failure"].into_iter().zip(reloads) {
            let counter = self.authentication_reloads.get_or_create(&StatusLabel { status });
            counter.inner().store(count, Ordering::Relaxed);
        }
        self.authorization.copy(registry);
        let mut out = String::new();
        // Writing into a string does not fail.
        text::encode(&mut out, &self.exposed).ok();
        out
    }
}

/// What a tenant may know: numbers of its own plane, and nothing that tells of others.
pub(crate) fn of_plane(plane: &Plane, gates: &Gates) -> String {
    let load = gates.of_plane(plane.id);
    let rows = [
        ("apiserver_current_inflight_requests", "Requests of this plane being answered", load.requests),
        ("apiserver_longrunning_requests", "Open watches of this plane", load.watches),
        ("apiserver_flowcontrol_current_executing_seats", "Seats of this plane that are taken", load.seats),
        ("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait for seats", load.waiting),
        ("polder_plane_objects", "Objects in this plane", plane.usage.objects()),
        ("polder_plane_stored_bytes", "What this plane's objects take up", plane.usage.bytes()),
    ];
    let rows = rows
        .map(|(name, help, value)| format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n"));
    rows.concat()
}

/// What the priority levels of a plane stand for, of the requests it may have under way.
pub(crate) fn of_levels(flows: &Flows, requests_max: u64) -> String {
    const NAME: &str = "apiserver_flowcontrol_nominal_limit_seats";
    let help = "Share of each priority level in the requests of this plane";
    let mut text = format!("# HELP {NAME} {help}\n# TYPE {NAME} gauge\n");
    for (level, extent) in flows.extents(requests_max) {
        let (level, seats) = (&level.name, extent.nominal);
        text.push_str(&format!("{NAME}{{priority_level=\"{level}\"}} {seats}\n"));
    }
    text
}
