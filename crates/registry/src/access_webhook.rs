//! Webhooks of the provider's that are asked what somebody may do: who is asked when, how often, and what is remembered of it.
//!
//! A plane has a bounded number of questions under way and planes take turns, so a webhook that hangs is felt by each plane for as
//! long as one question may take; a plane that got no answer several times in a row asks only now and then ([`Breaker`]). A question
//! that fails quickly is asked again within its time, as upstream does.
//!
//! What is remembered is bounded, in parts that planes are spread over, and found only by the plane it is about.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use polder_auth::authz::configuration::{FailurePolicy, WebhookSettings};
use polder_auth::authz::webhook::{self, Place, Review};
use polder_auth::authz::{Attributes, Authorizer, Decision, DecisionFuture, Fault, Reason};
use polder_auth::{ReviewClient, ReviewFailure};
use polder_model::{GroupResource, PlaneId, Recent, SmolStr, Status, Value};
use polder_store::{ObjectName, Plane, Store, Turns};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::breaker::{Breaker, Leave};
use crate::memo::Memo;
use crate::planes;
use crate::resources::plane::{Origin, origin as origin_of};
use crate::status::read_failed;

/// Questions of one plane under way, and of all; the next one waits, and its time runs.
const PLANE_CALLS_MAX: usize = 32;
const CALLS_MAX: usize = 1024;
/// How often a question is asked at most, and how long it waits before it is asked again: at first, how much longer each time, and how
/// much longer at random.
const TRIES_MAX: u32 = 5;
const AGAIN_AFTER: Duration = Duration::from_millis(500);
const AGAIN_FACTOR: f64 = 1.5;
const AGAIN_JITTER: f64 = 0.2;
/// What is remembered of one webhook, in parts: a plane fills one of them.
const ANSWERS_BYTES_MAX: usize = 32 << 20;
const PARTS: usize = 64;
/// What an answer takes beside its reason.
const ANSWER_BYTES: usize = 160;
/// Planes whose origins are kept, and how many of one plane are told.
const ORIGINS_LEN_MAX: usize = 100_000;
const ORIGINS_OF_PLANE_MAX: usize = 16;
/// What happens is told in the log no more often than this.
const TOLD_EVERY_SECONDS: i64 = 1;

/// A webhook, and what it said lately.
pub struct AccessWebhook {
    name: SmolStr,
    settings: WebhookSettings,
    client: Arc<dyn ReviewClient>,
    origins: Arc<Origins>,
    clock: fn() -> i64,
    turns: Arc<Turns>,
    breaker: Breaker,
    answers: Vec<Mutex<Recent<[u8; 32], Remembered>>>,
    told: AtomicI64,
    counts: Arc<WebhookCounts>,
}

/// How often it was asked, and what became of that.
#[derive(Debug, Default)]
pub struct WebhookCounts {
    pub answered: AtomicU64,
    pub timed_out: AtomicU64,
    pub failed: AtomicU64,
    /// Questions it was not asked because a condition does not hold.
    pub excluded: AtomicU64,
    /// Conditions that could not be told to hold.
    pub unclear: AtomicU64,
    /// Questions that went on to others because it could not be asked.
    pub passed_over: AtomicU64,
}

#[derive(Clone)]
struct Remembered {
    until: i64,
    review: Review,
}

/// Why there is no answer.
enum NoAnswer {
    Late,
    /// Nobody answered the last ones.
    Resting,
    Failed(ReviewFailure),
}

impl AccessWebhook {
    pub(crate) fn new(
        name: SmolStr,
        settings: WebhookSettings,
        client: Arc<dyn ReviewClient>,
        origins: Arc<Origins>,
        clock: fn() -> i64,
    ) -> AccessWebhook {
        let part = || Mutex::new(Recent::new(ANSWERS_BYTES_MAX / PARTS));
        AccessWebhook {
            name,
            settings,
            client,
            origins,
            clock,
            turns: Turns::new(CALLS_MAX, PLANE_CALLS_MAX),
            breaker: Breaker::default(),
            answers: std::iter::repeat_with(part).take(PARTS).collect(),
            told: AtomicI64::new(i64::MIN),
            counts: Arc::default(),
        }
    }

    pub fn name(&self) -> &SmolStr {
        &self.name
    }

    /// What it was made from.
    pub fn settings(&self) -> &WebhookSettings {
        &self.settings
    }

    pub fn counts(&self) -> &Arc<WebhookCounts> {
        &self.counts
    }

    /// The same counts for one that takes the place of this one.
    #[must_use]
    pub fn with_counts(self, counts: Arc<WebhookCounts>) -> AccessWebhook {
        AccessWebhook { counts, ..self }
    }

    async fn decide(&self, attributes: &Attributes<'_>) -> Result<Decision, Fault> {
        let Some(plane) = self.origins.store.plane_by_id(attributes.plane) else {
            return Ok(Decision::NO_OPINION);
        };
        let origins = self.origins.of(&plane).await.map_err(|status| self.fault(&status.message))?;
        let place = Place { plane: plane.id, name: plane.name.as_str(), forked_from: &origins };
        let spec = webhook::spec(attributes, place);
        match self.settings.conditions.hold(&spec) {
            Ok(true) => {}
            Ok(false) => {
                self.counts.excluded.fetch_add(1, Ordering::Relaxed);
                return Ok(Decision::NO_OPINION);
            }
            Err(why) => {
                self.counts.unclear.fetch_add(1, Ordering::Relaxed);
                return Err(self.fault(&why));
            }
        }
        let key: [u8; 32] = Sha256::new()
            .chain_update(plane.id.0.to_le_bytes())
            .chain_update(spec.to_vec())
            .finalize()
            .into();
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits choose")]
        let answers = &self.answers[plane.id.0 as usize % PARTS];
        let known = answers.lock().get(&key).filter(|known| (self.clock)() < known.until);
        let review = match known {
            Some(known) => known.review,
            None => {
                let review = self.ask(plane.id, &spec).await.map_err(|why| self.fault(&why))?;
                let ttl = if review.allowed { self.settings.authorized } else { self.settings.unauthorized };
                if !ttl.is_zero() {
                    let until = (self.clock)().saturating_add(seconds(ttl));
                    let bytes = ANSWER_BYTES + review.reason.len();
                    let remembered = Remembered { until, review: review.clone() };
                    drop(answers.lock().insert(key, remembered, bytes));
                }
                review
            }
        };
        let Review { allowed, denied, reason } = review;
        Ok(match (allowed, denied) {
            (true, _) => Decision::Allow { reason: Reason::Told(reason) },
            (_, true) => Decision::Deny { reason },
            _ => Decision::NoOpinion { reason },
        })
    }

    async fn ask(&self, plane: PlaneId, spec: &Value) -> Result<Review, String> {
        let asked = match self.breaker.leave(plane, self.settings.timeout) {
            None => Err(NoAnswer::Resting),
            Some(leave) => {
                let asking = tokio::time::timeout(self.settings.timeout, self.try_to_ask(plane, spec, leave));
                asking.await.unwrap_or(Err(NoAnswer::Late))
            }
        };
        match &asked {
            Ok(_) => self.breaker.answered(),
            Err(NoAnswer::Late | NoAnswer::Failed(ReviewFailure::Passing(_))) => self.breaker.failed(plane),
            Err(NoAnswer::Resting | NoAnswer::Failed(ReviewFailure::Lasting(_))) => {}
        }
        let (count, outcome) = match asked {
            Ok(review) => (&self.counts.answered, Ok(review)),
            Err(NoAnswer::Late) => (&self.counts.timed_out, Err("no answer in time".into())),
            Err(NoAnswer::Resting) => (&self.counts.failed, Err("the last questions got no answer".into())),
            Err(NoAnswer::Failed(failure)) => (&self.counts.failed, Err(failure.to_string())),
        };
        count.fetch_add(1, Ordering::Relaxed);
        outcome
    }

    /// Asks, and asks again when that may help.
    async fn try_to_ask(&self, plane: PlaneId, spec: &Value, leave: Leave) -> Result<Review, NoAnswer> {
        let end = Instant::now() + self.settings.timeout;
        let mut wait = AGAIN_AFTER;
        let mut tries = 0;
        loop {
            tries += 1;
            let question = webhook::question(spec, self.settings.version);
            let answer = {
                let _turn = self.turns.take(plane).await;
                self.client.review(question).await
            };
            let next = Instant::now() + wait.mul_f64(1.0 + AGAIN_JITTER * random());
            let may_try_again = leave == Leave::Freely && tries < TRIES_MAX && next < end;
            match answer {
                Ok(answer) => {
                    let read = webhook::read(&answer);
                    return read.map_err(|why| NoAnswer::Failed(ReviewFailure::Lasting(why)));
                }
                Err(ReviewFailure::Passing(_)) if may_try_again => {
                    tokio::time::sleep_until(next).await;
                    wait = wait.mul_f64(AGAIN_FACTOR);
                }
                Err(failure) => return Err(NoAnswer::Failed(failure)),
            }
        }
    }

    /// What it means that there is no answer. Why there is none is the provider's business.
    fn fault(&self, why: &str) -> Fault {
        let now = (self.clock)();
        let told = self.told.load(Ordering::Relaxed);
        let is_due = now >= told.saturating_add(TOLD_EVERY_SECONDS);
        if is_due && self.told.compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            tracing::warn!(webhook = %self.name, why, "cannot ask an authorization webhook");
        }
        let text =
            format!("the authorizer {:?} of the server could not be asked: try again later", self.name);
        match self.settings.failure {
            FailurePolicy::Deny => Fault::Stop(Status::internal(text)),
            FailurePolicy::NoOpinion => {
                self.counts.passed_over.fetch_add(1, Ordering::Relaxed);
                Fault::Pass(Status::internal(text))
            }
        }
    }
}

impl Authorizer for AccessWebhook {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> DecisionFuture<'a> {
        Box::pin(self.decide(attributes))
    }
}

/// At least 0, and less than 1.
fn random() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_fields().0) / (f64::from(u32::MAX) + 1.0)
}

/// Whole seconds, as clocks here count them: at least as long.
fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
}

/// What planes were forked from. That never changes, so it is read once while it is used.
pub(crate) struct Origins {
    store: Arc<Store>,
    planes: Memo<Arc<[SmolStr]>>,
}

impl Origins {
    pub(crate) fn new(store: Arc<Store>) -> Origins {
        Origins { store, planes: Memo::default() }
    }

    /// `spec.forkFrom` of its `Plane`, of the one that names, and so on; none for one that was made anew.
    async fn of(&self, plane: &Plane) -> Result<Arc<[SmolStr]>, Status> {
        if let Some(known) = self.planes.get(plane.id) {
            return Ok(known);
        }
        let epoch = self.planes.epoch(plane.id);
        let core = self.store.plane_by_id(PlaneId::CORE);
        let mut origins = Vec::new();
        if let Some(core) = core.filter(|_| plane.id != PlaneId::CORE) {
            let (mut id, mut name) = (plane.id, SmolStr::new(plane.name.as_str()));
            while let Some(origin) = self.told(&core, "planes", &name, "forkFrom").await? {
                origins.push(origin.clone());
                match origin_of(&origin) {
                    Origin::Layer(layer) => {
                        // Which plane of that name it was sealed from, and so where that came from, nobody knows any more.
                        origins.extend(self.told(&core, "layers", layer, "plane").await?);
                        break;
                    }
                    Origin::Plane(parent) => {
                        // Numbers grow: one that came later has only the name of the parent.
                        let parent = self.store.plane(parent).filter(|parent| parent.id < id);
                        let Some(parent) = parent.filter(|_| origins.len() < ORIGINS_OF_PLANE_MAX) else {
                            break;
                        };
                        (id, name) = (parent.id, SmolStr::new(parent.name.as_str()));
                    }
                }
            }
        }
        let origins: Arc<[SmolStr]> = origins.into();
        if self.planes.len() >= ORIGINS_LEN_MAX {
            self.planes.let_go(|_| true);
        }
        self.planes.keep(plane.id, origins.clone(), epoch);
        Ok(origins)
    }

    /// What the `spec` of an object of the provider's says, if it says something.
    async fn told(
        &self,
        core: &Arc<Plane>,
        plural: &'static str,
        name: &str,
        field: &str,
    ) -> Result<Option<SmolStr>, Status> {
        let resource = self.store.resource_id(&GroupResource::new(planes::GROUP, plural));
        let found = self.store.get(core, resource, &ObjectName::cluster(name)).await;
        let found = found.map_err(|error| read_failed(core, error))?;
        let object = found.and_then(|found| Value::parse_own(found.record.body()).ok());
        let told = object.as_ref().and_then(|object| object.str_at(&["spec", field]));
        Ok(told.filter(|text| !text.is_empty()).map(SmolStr::new))
    }
}
