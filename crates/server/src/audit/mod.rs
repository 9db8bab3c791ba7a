//! Audit: who asked for what, when, and how it was answered ([ADR 0015]).
//!
//! `trace` follows a request and writes its events (`event`) into a queue (`sink`), which one thread empties: into the provider's
//! `log`, to the provider's `webhook`, and into the `trail` that each plane reads through its own API. What is noted for the
//! provider is said by its policy file; what is noted for a plane by `Plane.spec.auditPolicy`, or by a policy for all planes.
//!
//! Invariant: without this configured, a request pays one branch. With it, no request waits for a disk or a server. What is lost is
//! counted, and no body that may hold a credential is ever noted.
//!
//! [ADR 0015]: ../../../../docs/adr/0015-audit-and-the-trail-of-planes.md

mod event;
mod log;
mod retain;
mod segment;
mod sink;
mod trace;
mod trail;
mod webhook;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use http::header::HeaderValue;
use http::{HeaderMap, Method, Uri};
use parking_lot::Mutex;
use polder_auth::UserInfo;
use polder_model::{PlaneId, Status};
use polder_registry::audit::policy::{Asked, Level, Policy, Verdict};
use polder_registry::ledger::Ledger;
use polder_registry::{Query, Registry};
use polder_store::Plane;
use tokio_util::sync::CancellationToken;

pub(crate) use self::sink::Counts;
pub(crate) use self::trace::{Closing, Trace};

pub use self::log::LogOptions;
pub use self::trail::TrailOptions;
pub use self::webhook::{AuditPoster, WebhookOptions};

use self::log::Log;
use self::sink::{Buffer, Outlets, Sink};
use self::trail::{Batch, Trail};
use crate::handler::api_verb;
use crate::route::{Request, Route};

/// What may wait to be written.
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// How often the policy file is looked at, and what is too old forgotten.
const TEND_EVERY: Duration = Duration::from_secs(5);
/// No more often than this it is said that events are lost.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// What is noted, and where it goes.
#[derive(Default)]
pub struct AuditOptions {
    /// What the provider wants noted. Without it nothing goes to its log or webhook.
    pub policy: Option<PathBuf>,
    pub log: Option<LogOptions>,
    pub webhook: Option<(WebhookOptions, Arc<dyn AuditPoster>)>,
    /// Where the trails of planes are kept.
    pub trail: Option<(PathBuf, TrailOptions)>,
    pub when_full: WhenFull,
}

/// What becomes of requests while events cannot be written as fast as they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// They are answered; what does not fit is not noted, and counted.
    #[default]
    Drop,
    /// Those that should be noted for the provider are refused.
    Refuse,
}

#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("cannot read the audit policy {}", .path.display())]
    PolicyFile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not an audit policy: {why}", .path.display())]
    Policy { path: PathBuf, why: String },
    #[error("cannot open the audit log {}", .path.display())]
    Log {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot open the audit trail in {}", .path.display())]
    Trail {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot start a thread for audit events")]
    Thread(#[source] io::Error),
}

/// Everything that notes.
pub struct Audit {
    sink: Sink,
    when_full: WhenFull,
    /// The provider's.
    policy: ArcSwap<Policy>,
    trail: Option<Arc<Trail>>,
    waiting: Option<(Arc<webhook::Waiting>, Arc<dyn AuditPoster>)>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// A request that has just come, as far as it has been understood.
pub(crate) struct Arrival<'a> {
    pub(crate) audit_id: &'a HeaderValue,
    pub(crate) route: &'a Route,
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) query: &'a Query,
    pub(crate) address: Option<IpAddr>,
    pub(crate) user: Option<&'a UserInfo>,
    pub(crate) plane: Option<&'a Arc<Plane>>,
}

/// What only the writing thread has.
struct Writer {
    audit: Arc<Audit>,
    log: Option<Log>,
    policy: Option<(PathBuf, Stamp)>,
    batch: Batch,
    lines: Vec<u8>,
    complained: Option<Instant>,
    lost_told: u64,
}

type Stamp = Option<(SystemTime, u64)>;

impl Audit {
    /// Opens everything, and starts to write.
    pub fn open(options: AuditOptions) -> Result<Arc<Audit>, AuditError> {
        let AuditOptions { policy, log, webhook, trail, when_full } = options;
        let stamp = policy.as_deref().and_then(stamp);
        let provider = policy.as_deref().map_or(Ok(Policy::default()), read_policy)?;
        let log = log.map(|options| {
            let path = options.path.clone();
            Log::open(options).map_err(|source| AuditError::Log { path, source })
        });
        let trail = trail.map(|(path, options)| {
            Trail::open(&path, options).map_err(|source| AuditError::Trail { path, source })
        });
        let sink = Sink::new(QUEUE_BYTES_MAX);
        let waiting = webhook.map(|(options, poster)| {
            let path = options.owed.clone().unwrap_or_default();
            let opened = webhook::Waiting::open(options);
            let (waiting, left) = opened.map_err(|source| AuditError::Log { path, source })?;
            if left > 0 {
                sink.counts.lost_webhook.fetch_add(left, Ordering::Relaxed);
                tracing::error!(
                    events = left,
                    "the server was ended while audit events waited for the webhook: so many at most were not sent, and are lost to it"
                );
            }
            Ok((Arc::new(waiting), poster))
        });
        let audit = Arc::new(Audit {
            sink,
            when_full,
            policy: ArcSwap::from_pointee(provider),
            trail: trail.transpose()?.map(Arc::new),
            waiting: waiting.transpose()?,
            writer: Mutex::default(),
        });
        let mut writer = Writer {
            audit: audit.clone(),
            log: log.transpose()?,
            policy: policy.map(|path| (path, stamp)),
            batch: Batch::default(),
            lines: Vec::new(),
            complained: None,
            lost_told: 0,
        };
        let thread = std::thread::Builder::new().name("audit".into()).spawn(move || writer.run());
        *audit.writer.lock() = Some(thread.map_err(AuditError::Thread)?);
        Ok(audit)
    }

    /// What planes read their trails from.
    pub fn ledger(&self) -> Option<Arc<dyn Ledger>> {
        self.trail.clone().map(|trail| -> Arc<dyn Ledger> { trail })
    }

    /// Posts events to the webhook, if there is one, until told to stop.
    pub async fn post(self: Arc<Self>, stop: CancellationToken) {
        if let Some((waiting, poster)) = self.waiting.clone() {
            webhook::run(self, waiting, poster, stop).await;
        }
    }

    /// Waits until everything has been written. Nothing is noted afterwards.
    pub fn close(&self) {
        self.sink.close();
        if let Some(writer) = self.writer.lock().take() {
            writer.join().ok();
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.sink.counts
    }

    /// Begins to follow a request, if somebody wants it noted.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        registry: &Registry,
        arrival: Arrival<'_>,
    ) -> Option<Arc<Trace>> {
        let Arrival { audit_id, route, method, uri, headers, query, address, user, plane } = arrival;
        let path = route.path();
        let (resource, verb) = match route.request() {
            Request::Resource(path) => (Some(path), api_verb(method, route, query).to_string()),
            _ => (None, method.as_str().to_ascii_lowercase()),
        };
        let asked = Asked { user, verb: &verb, resource: resource.as_ref().map(trace::asked), path: &path };
        let provider = self.policy.load().judge(&asked);
        let own = match (&self.trail, plane) {
            (Some(_), Some(plane)) => registry.audit_policy(plane).await.judge(&asked),
            _ => Verdict::default(),
        };
        if provider.level == Level::None && own.level == Level::None {
            return None;
        }
        let beginning = trace::Beginning {
            plane: plane.map(|plane| (plane.id, plane.name.clone())),
            verdicts: [provider, own],
            audit_id,
            user,
            verb: &verb,
            uri,
            headers,
            address,
            resource,
        };
        Some(Trace::begin(self, beginning))
    }

    /// Refuses what could not be noted for the provider, if it wants that.
    pub(crate) fn check_room(&self, trace: Option<&Arc<Trace>>) -> Result<(), Status> {
        let wanted =
            trace.filter(|_| self.when_full == WhenFull::Refuse).and_then(|trace| trace.of_provider());
        if wanted.is_some_and(|plane| self.sink.is_full(plane)) {
            let why = "requests cannot be noted as fast as they come: try again";
            return Err(Status::unavailable(why).with_retry_after(1));
        }
        Ok(())
    }

    /// Gives out an empty buffer to write into.
    fn with_buffer(&self, write: impl FnOnce(&mut Vec<u8>)) {
        thread_local! {
            static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            write(buffer);
            // What one long event needed is not kept for all that follow.
            buffer.shrink_to(16 * 1024);
        });
    }

    fn push(&self, plane: PlaneId, outlets: Outlets, seconds: i64, tail: &[u8]) {
        self.sink.push(plane, outlets, seconds, tail);
    }
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").field("trail", &self.trail.is_some()).finish_non_exhaustive()
    }
}

impl Writer {
    fn run(&mut self) {
        let audit = self.audit.clone();
        let mut buffer = Buffer::default();
        let mut tended = Instant::now();
        while audit.sink.take(&mut buffer, TEND_EVERY) {
            self.write(&buffer);
            if tended.elapsed() >= TEND_EVERY {
                tended = Instant::now();
                self.tend();
            }
        }
        self.complain(true);
    }

    fn write(&mut self, buffer: &Buffer) {
        let audit = self.audit.clone();
        self.lines.clear();
        let (mut logged, mut newest) = (0, jiff::Timestamp::now().as_second());
        let overfull = audit.trail.as_ref().is_some_and(|trail| trail.is_overfull());
        let mut lost: HashMap<PlaneId, u64> = buffer.lost().collect();
        for (note, tail) in buffer.events() {
            newest = newest.max(note.seconds);
            if note.outlets.provider() {
                if self.log.is_some() {
                    self.lines.extend_from_slice(event::HEAD);
                    self.lines.extend_from_slice(tail);
                    self.lines.push(b'\n');
                    logged += 1;
                }
                if let Some((waiting, _)) = &audit.waiting
                    && !waiting.push(&[event::HEAD, tail])
                {
                    audit.sink.counts.lost_webhook.fetch_add(1, Ordering::Relaxed);
                }
            }
            if let Some(trail) = audit.trail.as_ref().filter(|_| note.outlets.plane()) {
                match overfull {
                    true => {
                        audit.sink.counts.lost_trail.fetch_add(1, Ordering::Relaxed);
                        *lost.entry(note.plane).or_default() += 1;
                    }
                    false => trail.add(&mut self.batch, note.plane, note.seconds, tail, false),
                }
            }
        }
        if let Some(log) = self.log.as_mut().filter(|_| logged > 0)
            && let Err(error) = log.write(&self.lines)
        {
            audit.sink.counts.lost_log.fetch_add(logged, Ordering::Relaxed);
            tracing::error!(%error, "cannot write the audit log");
        }
        self.lines.shrink_to(QUEUE_BYTES_MAX);
        if let Some(trail) = &audit.trail {
            for (plane, lost) in lost {
                trail.add_gap(&mut self.batch, plane, newest, lost);
            }
            let entries = self.batch.planes().len() as u64;
            if let Err(error) = trail.write(&mut self.batch) {
                audit.sink.counts.lost_trail.fetch_add(entries, Ordering::Relaxed);
                tracing::error!(%error, "cannot write the audit trail");
                self.batch = Batch::default();
            }
        }
        self.complain(false);
    }

    /// Says that events are lost, not too often.
    fn complain(&mut self, at_last: bool) {
        let counts = &self.audit.sink.counts;
        let all = [&counts.lost_queue, &counts.lost_log, &counts.lost_webhook, &counts.lost_trail];
        let lost: u64 = all.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        let recently = self.complained.is_some_and(|when| when.elapsed() < COMPLAIN_EVERY);
        if lost > self.lost_told && (at_last || !recently) {
            tracing::warn!(events = lost - self.lost_told, in_all = lost, "audit events were lost");
            (self.lost_told, self.complained) = (lost, Some(Instant::now()));
        }
    }

    /// Takes a changed policy, and forgets what is too old.
    fn tend(&mut self) {
        if let Some((path, last)) = &mut self.policy {
            let found = stamp(path);
            if found != *last {
                *last = found;
                match read_policy(path) {
                    Ok(policy) => {
                        self.audit.policy.store(Arc::new(policy));
                        tracing::info!(path = %path.display(), "the audit policy has changed");
                    }
                    Err(error) => tracing::error!(%error, "the audit policy stays as it was"),
                }
            }
        }
        if let Some(trail) = &self.audit.trail
            && let Err(error) = trail.tend(jiff::Timestamp::now().as_second())
        {
            tracing::error!(%error, "cannot write the audit trail");
        }
    }
}

/// What changes when a file does.
fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn read_policy(path: &Path) -> Result<Policy, AuditError> {
    let bytes =
        std::fs::read(path).map_err(|source| AuditError::PolicyFile { path: path.to_path_buf(), source })?;
    let wrong = |why: String| AuditError::Policy { path: path.to_path_buf(), why };
    let parsed = crate::yaml::parse(&bytes).map_err(|status| wrong(status.message.to_string()))?;
    if let Some(first) = parsed.repeated.first() {
        return Err(wrong(first.clone()));
    }
    Policy::document(&parsed.value).map_err(wrong)
}
