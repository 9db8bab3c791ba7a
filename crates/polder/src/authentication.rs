//! How people are known, as the configuration says it: files that are read at start and again when they change, and the way from
//! the server to issuers.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use polder_auth::authn::{
    ACCOUNT_SECONDS_MAX, Authenticators, Configuration, IssuerAnswer, IssuerClient, IssuerGet, ProxyHeaders,
    Sources, StaticTokens, TokenWebhook,
};
use polder_client_http::{Egress, Fetch, Fetcher};
use polder_model::PlaneId;
use polder_store::Store;
use serde::Deserialize;

use crate::follow::{self, Followed, read};
use crate::reviewer::{self, Reviewer};

/// For an answer of the token webhook.
const REVIEW_PATIENCE: Duration = Duration::from_secs(10);

/// `authentication` of the server's configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Authentication {
    /// A file with an `AuthenticationConfiguration` of `apiserver.config.k8s.io`.
    config: Option<PathBuf>,
    token_webhook: Option<Webhook>,
    request_header: Option<RequestHeader>,
    /// How long tokens of service accounts are good at most, as kube-apiserver's `--service-account-max-token-expiration` has it.
    service_account_max_token_expiration_seconds: Option<i64>,
}

/// What upstream takes.
const ACCOUNT_SECONDS: RangeInclusive<i64> = 60 * 60..=1 << 32;

/// A webhook that is asked about tokens nobody else knows.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Webhook {
    kubeconfig: PathBuf,
    #[serde(default = "two_minutes")]
    cache_seconds: u32,
}

fn two_minutes() -> u32 {
    120
}

/// Proxies that authenticate for others.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RequestHeader {
    #[serde(rename = "clientCAFile")]
    client_ca_file: PathBuf,
    #[serde(default)]
    allowed_names: Vec<String>,
    username_headers: Vec<String>,
    #[serde(default)]
    uid_headers: Vec<String>,
    #[serde(default)]
    group_headers: Vec<String>,
    #[serde(default)]
    extra_header_prefixes: Vec<String>,
}

impl Authentication {
    /// How long tokens of service accounts are good at most.
    pub(crate) fn account_seconds_max(&self) -> anyhow::Result<i64> {
        let seconds = self.service_account_max_token_expiration_seconds.unwrap_or(ACCOUNT_SECONDS_MAX);
        anyhow::ensure!(
            ACCOUNT_SECONDS.contains(&seconds),
            "serviceAccountMaxTokenExpirationSeconds is {seconds}, and must be between 1 hour (3600) and 2^32 seconds"
        );
        Ok(seconds)
    }

    /// The authorities of proxies, in PEM.
    pub(crate) fn proxy_authorities(&self) -> anyhow::Result<Option<String>> {
        let Some(own) = &self.request_header else { return Ok(None) };
        let text = read(&own.client_ca_file)?;
        anyhow::ensure!(
            text.contains("-----BEGIN CERTIFICATE-----"),
            "{} has no certificate",
            own.client_ca_file.display()
        );
        Ok(Some(text))
    }
}

/// The files, and what is made of them.
pub(crate) struct Files {
    token_file: Option<PathBuf>,
    settings: Authentication,
    /// Where this server is.
    own_url: String,
}

/// What the files held when they were last looked at.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Held {
    tokens: Option<String>,
    config: Option<String>,
    webhook: Option<reviewer::Held>,
}

/// The files of a running server.
pub(crate) struct FollowedFiles {
    files: Files,
    taken: parking_lot::Mutex<Held>,
    authenticators: Arc<Authenticators>,
    store: Arc<Store>,
}

impl Files {
    pub(crate) fn new(token_file: Option<PathBuf>, settings: Authentication, own_url: &str) -> Files {
        Files { token_file, settings, own_url: own_url.to_owned() }
    }

    /// Reads all of them; fails if something is wrong with one.
    pub(crate) fn load(&self, store: &Store) -> anyhow::Result<(Sources, Held)> {
        let held = self.held()?;
        Ok((self.sources(&held, None, store)?, held))
    }

    fn held(&self) -> anyhow::Result<Held> {
        let text = |path: Option<&PathBuf>| path.map(|path| read(path)).transpose();
        Ok(Held {
            tokens: text(self.token_file.as_ref())?,
            config: text(self.settings.config.as_ref())?,
            webhook: self.settings.token_webhook.as_ref().map(|own| reviewer::held(&own.kubeconfig)),
        })
    }

    fn sources(
        &self,
        held: &Held,
        before: Option<(&Held, &Sources)>,
        store: &Store,
    ) -> anyhow::Result<Sources> {
        let mut sources = Sources::default();
        if let (Some(text), Some(path)) = (&held.tokens, &self.token_file) {
            sources.tokens = StaticTokens::parse(text).with_context(|| path.display().to_string())?;
            for plane in sources.tokens.planes() {
                if store.plane_by_id(plane).is_none() {
                    tracing::warn!(%plane, file = %path.display(), "the token file names a plane that does not exist");
                }
            }
        }
        if let (Some(text), Some(path)) = (&held.config, &self.settings.config) {
            let what = || path.display().to_string();
            let document = follow::document(text).with_context(what)?;
            let Configuration { issuers, anonymous } =
                Configuration::read(&document, &self.own_url).with_context(what)?;
            (sources.issuers, sources.anonymous) = (issuers, anonymous);
        }
        if let (Some(access), Some(own)) = (&held.webhook, &self.settings.token_webhook) {
            // One that is the same goes on knowing what it knows.
            let same = before.filter(|(before, _)| before.webhook.as_ref() == Some(access));
            sources.webhook = match same.and_then(|(_, sources)| sources.webhook.clone()) {
                Some(webhook) => Some(webhook),
                None => {
                    let reviewer = Reviewer::new(access, REVIEW_PATIENCE)?;
                    Some(Arc::new(TokenWebhook::new(Arc::new(reviewer), own.cache_seconds.into())))
                }
            };
        }
        sources.proxies = self.settings.request_header.clone().map(|own| ProxyHeaders {
            allowed_names: own.allowed_names,
            username: own.username_headers,
            uid: own.uid_headers,
            group: own.group_headers,
            extra_prefixes: own.extra_header_prefixes,
        });
        Ok(sources)
    }

    /// The same to be followed, if there are any.
    pub(crate) fn followed(
        self,
        taken: Held,
        authenticators: Arc<Authenticators>,
        store: Arc<Store>,
    ) -> Option<Arc<FollowedFiles>> {
        let settings = &self.settings;
        let is_any =
            self.token_file.is_some() || settings.config.is_some() || settings.token_webhook.is_some();
        let taken = parking_lot::Mutex::new(taken);
        is_any.then(|| Arc::new(FollowedFiles { files: self, taken, authenticators, store }))
    }
}

impl Followed for FollowedFiles {
    type Held = Held;

    const WHAT: &'static str = "authentication";

    fn held(&self) -> anyhow::Result<Held> {
        self.files.held()
    }

    fn take(&self, held: Held) -> anyhow::Result<()> {
        let mut taken = self.taken.lock();
        let old = self.authenticators.sources();
        let sources = self.files.sources(&held, Some((&taken, &old)), &self.store)?;
        self.authenticators.replace(sources);
        *taken = held;
        Ok(())
    }

    fn note(&self, taken: bool) {
        // What was taken over is counted with it.
        if !taken {
            self.authenticators.note_failed_reload();
        }
    }
}

/// The way to issuers: over HTTPS; to those that a tenant's plane names at addresses a tenant may name.
pub(crate) struct Issuers(Fetcher);

impl Issuers {
    pub(crate) fn new(egress: Egress) -> Issuers {
        Issuers(Fetcher::new(egress))
    }
}

impl IssuerClient for Issuers {
    fn get<'a>(&'a self, get: IssuerGet<'a>) -> IssuerAnswer<'a> {
        let IssuerGet { plane, url, authorities, timeout, answer_bytes_max } = get;
        Box::pin(self.0.fetch(Fetch {
            tenant: plane.unwrap_or(PlaneId::CORE).0,
            url,
            authorities,
            timeout,
            answer_bytes_max,
            trusted: plane.is_none(),
        }))
    }
}
