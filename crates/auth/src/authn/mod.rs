//! Who are you: from a client certificate, a proxy's headers or a bearer token. The first credential that is presented decides; a bad
//! token is refused even where anonymous access would be allowed.
//!
//! A file for each way. What depends on the objects of a plane (service accounts, bootstrap tokens, issuers of a plane) is
//! asked for by whoever knows planes, `registry`; what the provider configures is in [`Sources`], which can be replaced while the
//! server runs. Invariant: whoever is made here for a plane has that plane as home.

mod account;
mod bootstrap;
mod certificate;
mod configuration;
pub(crate) mod expressions;
mod headers;
mod jwt;
mod keys;
mod oidc;
mod places;
mod token;
mod waiting;
mod webhook;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use polder_model::{PlaneId, Recent};
use sha2::{Digest as _, Sha256};

use jwt::Unverified;
use keys::KeySets;
use oidc::Verified;

pub use account::{AccountKeyError, AccountSecret, AccountTokens, Bound, Claims, TokenNotary};
pub use bootstrap::{BOOTSTRAP_NAMESPACE, BOOTSTRAP_PREFIX, BootstrapToken};
pub use certificate::{ClientCertificate, PLANE_URI_SCHEME};
pub use configuration::{Anonymous, Configuration, PLANE_ISSUERS_LEN_MAX, plane_issuers};
pub use headers::ProxyHeaders;
pub use keys::{IssuerAnswer, IssuerClient, IssuerGet};
pub use oidc::Issuer;
pub use token::{StaticTokens, TokenFileError};
pub use webhook::{TokenWebhook, read_token_review};

use crate::UserInfo;

/// What an extra of a user says: by which credential they came.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// An extra that issuers, proxies and webhooks of the provider may give somebody: the name of the only plane they exist in.
pub const PLANE_EXTRA: &str = "polder.dev/plane";

/// How long tokens of service accounts are good unless the provider says otherwise: a year. What signs them is believed for as long.
pub const ACCOUNT_SECONDS_MAX: i64 = 365 * 24 * 60 * 60;

/// What users may take who are remembered by tokens of issuers, how long they are, and how long those may be: verifying one
/// costs more than to answer most requests.
const VERIFIED_BYTES_MAX: usize = 16 << 20;
/// What one takes beside the user.
const REMEMBERED_BYTES: usize = 2 * size_of::<(TokenKey, Remembered, usize)>();
const VERIFIED_SECONDS: i64 = 10;
const REMEMBERED_TOKEN_LEN_MAX: usize = 8 * 1024;

/// The credential is not valid; the client learns no more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the credential is not valid")]
pub struct Unauthenticated;

/// What the provider configures.
#[derive(Debug, Default)]
pub struct Sources {
    pub tokens: StaticTokens,
    pub issuers: Vec<Arc<Issuer>>,
    pub anonymous: Anonymous,
    pub proxies: Option<ProxyHeaders>,
    pub webhook: Option<Arc<TokenWebhook>>,
}

/// All ways to authenticate whoever shows no certificate.
pub struct Authenticators {
    /// Tokens of service accounts, whose users depend on what is in a plane: whoever knows planes reads them.
    pub accounts: Option<Arc<AccountTokens>>,
    /// How long those are good at most, whoever asks for more.
    pub account_seconds_max: i64,
    sources: ArcSwap<Sources>,
    client: OnceLock<Arc<dyn IssuerClient>>,
    keys: KeySets,
    verified: Mutex<Recent<TokenKey, Remembered>>,
    /// Changes of the configuration that were taken over, and that were not.
    reloads: [AtomicU64; 2],
}

/// Whose issuers were asked, and the digest of the token.
type TokenKey = (Option<PlaneId>, [u8; 32]);

#[derive(Clone)]
struct Remembered {
    user: UserInfo,
    /// Nobody's any more when the configuration has changed.
    issuer: Weak<Issuer>,
    until: i64,
}

impl fmt::Debug for Authenticators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticators").finish_non_exhaustive()
    }
}

impl Default for Authenticators {
    fn default() -> Authenticators {
        Authenticators::new(None, Sources::default())
    }
}

impl Authenticators {
    pub fn new(accounts: Option<Arc<AccountTokens>>, sources: Sources) -> Authenticators {
        Authenticators {
            accounts,
            account_seconds_max: ACCOUNT_SECONDS_MAX,
            sources: ArcSwap::from_pointee(sources),
            client: OnceLock::new(),
            keys: KeySets::default(),
            verified: Mutex::new(Recent::new(VERIFIED_BYTES_MAX)),
            reloads: Default::default(),
        }
    }

    /// The same with tokens of service accounts that end sooner or later.
    #[must_use]
    pub fn with_account_seconds_max(self, seconds: i64) -> Authenticators {
        Authenticators { account_seconds_max: seconds, ..self }
    }

    /// Brings the way to issuers; without one none of their tokens is good.
    pub fn set_issuer_client(&self, client: Arc<dyn IssuerClient>) {
        self.client.set(client).ok();
    }

    /// What the provider has configured by now.
    pub fn sources(&self) -> Arc<Sources> {
        self.sources.load_full()
    }

    /// The provider has changed its mind: in force from the next request on.
    pub fn replace(&self, sources: Sources) {
        self.sources.store(Arc::new(sources));
        self.reloads[0].fetch_add(1, Ordering::Relaxed);
    }

    /// A change was not taken over because something is wrong with it.
    pub fn note_failed_reload(&self) {
        self.reloads[1].fetch_add(1, Ordering::Relaxed);
    }

    /// Changes that were taken over, and that were not.
    pub fn reloads(&self) -> [u64; 2] {
        [&self.reloads[0], &self.reloads[1]].map(|count| count.load(Ordering::Relaxed))
    }

    /// Whether a text is in the form of an issuer's token: what issuers there are is not looked up for others.
    pub fn is_issuer_token(&self, token: &str) -> bool {
        jwt::is_compact(token)
    }

    /// Who a token is of by one of these issuers, and by which. With a plane, they are that plane's, and so is the user.
    pub async fn issued(
        &self,
        plane: Option<PlaneId>,
        issuers: &[Arc<Issuer>],
        token: &str,
        clock: fn() -> i64,
    ) -> Option<(UserInfo, Arc<Issuer>)> {
        if issuers.is_empty() {
            return None;
        }
        let client = self.client.get()?;
        let key = (plane, Sha256::digest(token).into());
        let known = self.verified.lock().get(&key).filter(|known| clock() < known.until);
        if let Some(known) = known
            && let Some(issuer) = known.issuer.upgrade()
            && issuers.iter().any(|own| Arc::ptr_eq(own, &issuer))
        {
            return Some((known.user, issuer));
        }
        let read = Unverified::parse(token)?;
        let issuer = issuers.iter().find(|issuer| issuer.url() == read.issuer())?;
        let keys = self.keys.of(client, plane, issuer, &read.key_id, clock).await?;
        let outcome = match plane {
            None => issuer.verify(&read, &keys, clock()),
            Some(plane) => {
                let (own, token) = (issuer.clone(), token.to_owned());
                let work = move || {
                    let read = Unverified::parse(&token).ok_or("it is no token")?;
                    own.verify(&read, &keys, clock())
                };
                self.keys.apart(plane, issuer, work).await.unwrap_or_else(|| Err("too many wait".into()))
            }
        };
        let Verified { mut user, until } = match outcome {
            Ok(verified) => verified,
            Err(why) => {
                tracing::debug!(issuer = issuer.url(), why, "a token is refused");
                return None;
            }
        };
        user.home = plane;
        if token.len() <= REMEMBERED_TOKEN_LEN_MAX {
            let until = until.min(clock().saturating_add(VERIFIED_SECONDS));
            let remembered = Remembered { user: user.clone(), issuer: Arc::downgrade(issuer), until };
            let bytes = REMEMBERED_BYTES + remembered.user.bytes();
            drop(self.verified.lock().insert(key, remembered, bytes));
        }
        Some((user, issuer.clone()))
    }

    /// Who the provider's webhook says a token is of that was shown in a request to a plane.
    pub async fn reviewed(
        &self,
        sources: &Sources,
        plane: Option<PlaneId>,
        token: &str,
        audience: &str,
        clock: fn() -> i64,
    ) -> Option<UserInfo> {
        sources.webhook.as_ref()?.user(plane, token, audience, clock).await
    }
}
