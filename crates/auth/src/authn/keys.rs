//! The public keys of issuers: fetched when a token needs them, kept for a while, and fetched again when a token names a key
//! that is not among them.
//!
//! An issuer that is dead, slow or hostile hurts those who believe it and nobody else: one fetch of an issuer at a time, none
//! soon after the last one, a bounded number of those who wait. Planes take turns in fetching, and issuers that did not answer the last time
//! have places of their own: those who are asked for the first time do not wait for them. Keys are kept for each plane by itself: what
//! one plane's issuer says is nothing to another plane.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use parking_lot::Mutex;
use polder_model::{PlaneId, Recent, Value};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::jwt::KeySet;
use super::oidc::Issuer;
use super::places::Places;
use super::waiting::Waiting;

/// Keys of issuers that are kept at hand.
const SLOTS_LEN_MAX: usize = 4096;
/// Keys that are older are fetched again: one that was withdrawn is believed no longer than this.
const FRESH_SECONDS: i64 = 10 * 60;
/// After one attempt the next may be this much later, whatever tokens name.
const RETRY_SECONDS: i64 = 10;
/// One attempt: the discovery document and the keys.
const FETCH_MAX: Duration = Duration::from_secs(10);
/// Those who wait for the keys of one issuer; the next ones are refused at once.
const WAITING_MAX: usize = 64;
/// Attempts under way for all planes together, those with issuers that did not answer the last time, and for one plane of each.
const FETCHES_MAX: usize = 192;
const DOUBTFUL_FETCHES_MAX: usize = 64;
const PLANE_FETCHES_MAX: usize = 4;
/// Verifications under way for all planes together: each has a thread.
const PLANE_VERIFICATIONS_MAX: usize = 16;
/// What is read of an answer.
const ANSWER_BYTES_MAX: usize = 512 << 10;

/// Reads documents of issuers, over HTTPS only. Whoever starts the server brings it.
pub trait IssuerClient: Send + Sync {
    /// The body of a successful answer, or why there is none.
    fn get<'a>(&'a self, get: IssuerGet<'a>) -> IssuerAnswer<'a>;
}

pub type IssuerAnswer<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + 'a>>;

/// One question to an issuer.
#[derive(Clone, Copy, Debug)]
pub struct IssuerGet<'a> {
    /// Whose issuer it is; `None` for the provider's, who may be anywhere.
    pub plane: Option<PlaneId>,
    pub url: &'a str,
    /// PEM; empty means those of the system.
    pub authorities: &'a [u8],
    pub timeout: Duration,
    pub answer_bytes_max: usize,
}

/// Whose issuer, and which.
type IssuerKey = (Option<PlaneId>, [u8; 32]);

/// Keys by issuer.
pub(super) struct KeySets {
    slots: Mutex<Recent<IssuerKey, Arc<Slot>>>,
    fetches: Arc<Places>,
    doubtful_fetches: Arc<Places>,
    verifications: Arc<Semaphore>,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Slot {
    state: Mutex<State>,
    fetching: Arc<tokio::sync::Mutex<()>>,
    verifying: Arc<tokio::sync::Mutex<()>>,
    waiting: AtomicUsize,
}

#[derive(Clone, Default)]
struct State {
    keys: Option<Arc<KeySet>>,
    /// In seconds since 1970: when the keys were had, and when they were last asked for.
    fetched: i64,
    tried: Option<i64>,
    /// The last time it did not answer.
    is_doubtful: bool,
}

impl State {
    /// The keys, if they will do for a token that names this one.
    fn good(&self, key_id: &str, now: i64) -> Option<Arc<KeySet>> {
        let fresh = now.saturating_sub(self.fetched) < FRESH_SECONDS;
        self.keys.clone().filter(|keys| fresh && keys.has(key_id))
    }

    fn may_try(&self, now: i64) -> bool {
        // A clock that was set back must not keep anybody waiting.
        self.tried.is_none_or(|tried| !(0..RETRY_SECONDS).contains(&(now - tried)))
    }
}

impl Default for KeySets {
    fn default() -> KeySets {
        KeySets {
            slots: Mutex::new(Recent::new(SLOTS_LEN_MAX)),
            // One of an issuer at a time: no more wait than a plane has issuers.
            fetches: Places::new(FETCHES_MAX, PLANE_FETCHES_MAX, WAITING_MAX),
            doubtful_fetches: Places::new(DOUBTFUL_FETCHES_MAX, PLANE_FETCHES_MAX, WAITING_MAX),
            verifications: Arc::new(Semaphore::new(PLANE_VERIFICATIONS_MAX)),
            tasks: TaskTracker::new(),
        }
    }
}

impl fmt::Debug for KeySets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySets").finish_non_exhaustive()
    }
}

impl KeySets {
    fn slot(&self, plane: Option<PlaneId>, issuer: &Issuer) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        let key = (plane, issuer.digest);
        if let Some(slot) = slots.get(&key) {
            return slot;
        }
        let slot = Arc::<Slot>::default();
        drop(slots.insert(key, slot.clone(), 1));
        slot
    }

    /// Computes what an issuer of a plane makes of a token: its keys and expressions are a tenant's, so it is done apart from
    /// requests, and one at a time. `None` if too many wait for that.
    pub(super) async fn apart<T: Send + 'static>(
        &self,
        plane: PlaneId,
        issuer: &Issuer,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let slot = self.slot(Some(plane), issuer);
        let _waiting = Waiting::enter(&slot.waiting, WAITING_MAX)?;
        let own = slot.verifying.clone().lock_owned().await;
        let place = self.verifications.clone().acquire_owned().await.ok()?;
        let work = move || {
            // Until it has ended, also when whoever asked hangs up.
            let _held = (own, place);
            work()
        };
        tokio::task::spawn_blocking(work).await.ok()
    }

    /// The newest keys there are of an issuer, for a token that names one of them; `None` if there are none to be had.
    pub(super) async fn of(
        &self,
        client: &Arc<dyn IssuerClient>,
        plane: Option<PlaneId>,
        issuer: &Arc<Issuer>,
        key_id: &str,
        clock: fn() -> i64,
    ) -> Option<Arc<KeySet>> {
        let slot = self.slot(plane, issuer);
        let seen = slot.state.lock().clone();
        if let Some(keys) = seen.good(key_id, clock()) {
            return Some(keys);
        }
        if !seen.may_try(clock()) {
            return seen.keys;
        }
        let Some(_waiting) = Waiting::enter(&slot.waiting, WAITING_MAX) else { return seen.keys };
        let turn = slot.fetching.clone().lock_owned().await;
        let now = slot.state.lock().clone();
        if now.tried != seen.tried {
            // Somebody else has asked meanwhile.
            return now.keys;
        }
        let (client, issuer, own) = (client.clone(), issuer.clone(), slot.clone());
        let places = if now.is_doubtful { &self.doubtful_fetches } else { &self.fetches };
        let places = plane.map(|plane| (places.clone(), plane));
        // To the end, also when whoever asked hangs up: others wait for the same.
        let fetching = self.tasks.spawn(async move {
            let (is_asked, outcome) = match places {
                None => (true, timeout(FETCH_MAX, fetch(&*client, plane, &issuer)).await),
                Some((places, own)) => match timeout(FETCH_MAX, places.enter(own)).await {
                    Ok(Some(_place)) => (true, timeout(FETCH_MAX, fetch(&*client, plane, &issuer)).await),
                    _ => (false, Ok(Err("too many issuers are asked at this time".into()))),
                },
            };
            let outcome = outcome.unwrap_or_else(|_| Err("no answer in time".into()));
            let mut state = own.state.lock();
            state.tried = Some(clock());
            state.is_doubtful = is_asked && outcome.is_err();
            match outcome {
                Ok(keys) => {
                    state.keys = Some(Arc::new(keys));
                    state.fetched = clock();
                }
                // Old keys go on being good: an issuer that is away takes nobody's access.
                Err(why) => match plane {
                    None => tracing::warn!(issuer = %issuer.url, why, "cannot get the keys of an issuer"),
                    Some(plane) => {
                        tracing::debug!(%plane, issuer = %issuer.url, why, "cannot get the keys of an issuer")
                    }
                },
            }
            drop(turn);
        });
        fetching.await.ok();
        slot.state.lock().keys.clone()
    }
}

async fn fetch(client: &dyn IssuerClient, plane: Option<PlaneId>, issuer: &Issuer) -> Result<KeySet, String> {
    let get = |url: &str| {
        let url = url.to_owned();
        async move {
            let get = IssuerGet {
                plane,
                url: &url,
                authorities: issuer.authorities.as_bytes(),
                timeout: FETCH_MAX,
                answer_bytes_max: ANSWER_BYTES_MAX,
            };
            client.get(get).await
        }
    };
    let own = || format!("{}/.well-known/openid-configuration", issuer.url.trim_end_matches('/'));
    let discovery = issuer.discovery_url.as_ref().map_or_else(own, |url| url.to_string());
    let document = get(&discovery).await?;
    let document = Value::parse(&document).map_err(|_| "the discovery document is no JSON".to_owned())?;
    let told = document.str_at(&["issuer"]).unwrap_or_default();
    if told != issuer.url {
        let expected = &issuer.url;
        return Err(format!(
            "oidc: issuer did not match the issuer returned by provider, expected {expected:?} got {:?}",
            polder_model::field::bounded(told)
        ));
    }
    let keys = document.str_at(&["jwks_uri"]).unwrap_or_default();
    if !keys.starts_with("https://") {
        return Err("the discovery document names no jwks_uri with https".into());
    }
    KeySet::parse(&get(keys).await?).ok_or_else(|| "what jwks_uri leads to is no set of keys".into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use polder_model::{FieldPath, json};

    use super::super::configuration::plane_issuers;
    use super::super::jwt::testing::curve;
    use super::*;

    static NOW: AtomicI64 = AtomicI64::new(1_000);

    fn clock() -> i64 {
        NOW.load(Ordering::Relaxed)
    }

    /// Answers with a set of keys whose names are told, and counts.
    struct Fake {
        answers: Mutex<Option<Value>>,
        issuer: &'static str,
        asked: AtomicUsize,
    }

    impl IssuerClient for Fake {
        fn get<'a>(&'a self, get: IssuerGet<'a>) -> IssuerAnswer<'a> {
            Box::pin(async move {
                if get.url.ends_with("openid-configuration") {
                    self.asked.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    return Ok(json!({"issuer": (self.issuer), "jwks_uri": "https://i/keys"}).to_vec());
                }
                assert_eq!(get.url, "https://i/keys");
                self.answers.lock().as_ref().map(Value::to_vec).ok_or_else(|| "dead".into())
            })
        }
    }

    fn issuer() -> Arc<Issuer> {
        let entry = json!({"issuer": {"url": "https://i", "audiences": ["a"]}, "claimMappings": {"username": {"claim": "sub", "prefix": ""}}});
        plane_issuers(&json!({"jwt": [entry]}), &FieldPath::ROOT).0.remove(0)
    }

    fn fake(issuer: &'static str) -> Arc<Fake> {
        Arc::new(Fake { answers: Mutex::default(), issuer, asked: AtomicUsize::new(0) })
    }

    #[tokio::test]
    async fn keys_are_fetched_when_they_are_needed_and_not_often() {
        let (sets, issuer, fake) = (KeySets::default(), issuer(), fake("https://i"));
        let client: Arc<dyn IssuerClient> = fake.clone();
        let key = curve("P-256");
        let asked = || fake.asked.load(Ordering::Relaxed);
        let of = async |id: &str, plane: u64| {
            let keys = sets.of(&client, Some(PlaneId(plane)), &issuer, id, clock).await;
            keys.is_some_and(|keys| keys.has(id))
        };
        assert!(!of("one", 2).await && !of("one", 2).await);
        assert_eq!(asked(), 1, "a dead issuer is not asked again at once");
        *fake.answers.lock() = Some(key.set("one"));
        NOW.fetch_add(RETRY_SECONDS, Ordering::Relaxed);
        let many = futures_of(50, || of("one", 2)).await;
        assert_eq!((many, asked()), (50, 2), "those who wait share one fetch");
        assert!(of("one", 3).await);
        assert_eq!(asked(), 3, "another plane asks by itself");
        assert!(!of("two", 2).await, "the name is not among them, and it was asked a moment ago");
        *fake.answers.lock() = Some(key.set("two"));
        NOW.fetch_add(RETRY_SECONDS, Ordering::Relaxed);
        assert!(of("two", 2).await && !of("one", 2).await, "a key was turned over");
        *fake.answers.lock() = None;
        NOW.fetch_add(FRESH_SECONDS, Ordering::Relaxed);
        assert!(of("two", 2).await, "an issuer that is away takes nobody's access");
        let other = self::fake("https://other");
        *other.answers.lock() = Some(key.set("one"));
        let other: Arc<dyn IssuerClient> = other;
        assert!(sets.of(&other, None, &issuer, "one", clock).await.is_none(), "it says it is somebody else");
    }

    /// Answers for one issuer, and never for others.
    struct Dead;

    impl IssuerClient for Dead {
        fn get<'a>(&'a self, get: IssuerGet<'a>) -> IssuerAnswer<'a> {
            Box::pin(async move {
                if get.plane != Some(PlaneId(9_999)) {
                    return std::future::pending().await;
                }
                match get.url.ends_with("openid-configuration") {
                    true => Ok(json!({"issuer": "https://i", "jwks_uri": "https://i/keys"}).to_vec()),
                    false => Ok(curve("P-256").set("one").to_vec()),
                }
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn issuers_that_are_dead_do_not_keep_others_waiting() {
        static LATER: AtomicI64 = AtomicI64::new(1_000);
        let clock = || LATER.load(Ordering::Relaxed);
        let sets = Arc::new(KeySets::default());
        let client: Arc<dyn IssuerClient> = Arc::new(Dead);
        // As many planes with dead issuers as there are places.
        let ask = |plane: u64| {
            let (sets, client, issuer) = (sets.clone(), client.clone(), issuer());
            async move { sets.of(&client, Some(PlaneId(plane)), &issuer, "one", clock).await.is_some() }
        };
        for round in 0..2 {
            for plane in 0..FETCHES_MAX as u64 {
                sets.tasks.spawn(ask(plane + 2));
            }
            if round == 0 {
                tokio::time::sleep(3 * FETCH_MAX).await;
                LATER.fetch_add(RETRY_SECONDS, Ordering::Relaxed);
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        let started = tokio::time::Instant::now();
        assert!(ask(9_999).await);
        assert_eq!(started.elapsed(), Duration::ZERO, "it waited for the dead");
    }

    async fn futures_of<F: Future<Output = bool>>(count: usize, make: impl Fn() -> F) -> usize {
        let mut all: Vec<_> = (0..count).map(|_| Box::pin(make())).collect();
        let mut good = 0;
        std::future::poll_fn(|context| {
            all.retain_mut(|one| match one.as_mut().poll(context) {
                std::task::Poll::Ready(outcome) => {
                    good += usize::from(outcome);
                    false
                }
                std::task::Poll::Pending => true,
            });
            if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        good
    }
}
