//! How people are known, as the configuration says it: files that are read at start and again when they change, and the way from
//! the server to issuers and to the token webhook.
//!
//! A changed file that is wrong is reported and not taken over: who could work before still can.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use polder_auth::authn::{
    Authenticators, Configuration, IssuerAnswer, IssuerClient, IssuerGet, ProxyHeaders, ReviewAnswer,
    Sources, StaticTokens, TokenReviewer, TokenWebhook,
};
use polder_client_http::{Access, Client, ClientOptions, Egress, Fetch, Fetcher, Kubeconfig, Method};
use polder_model::{PlaneId, Value};
use polder_store::Store;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longer files are something else.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// What is read of a webhook's answer.
const REVIEW_BYTES_MAX: usize = 1 << 20;

/// `authentication` of the server's configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Authentication {
    /// A file with an `AuthenticationConfiguration` of `apiserver.config.k8s.io`.
    config: Option<PathBuf>,
    token_webhook: Option<Webhook>,
    request_header: Option<RequestHeader>,
}

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
    /// With what the files say that the kubeconfig names.
    webhook: Option<Access>,
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
            webhook: self.settings.token_webhook.as_ref().map(|own| access(&own.kubeconfig)).transpose()?,
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
            let document: Value = serde_saphyr::from_str(text)
                .map_err(|error| anyhow::anyhow!(error.without_snippet().to_string()))
                .with_context(what)?;
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
                    let what = || own.kubeconfig.display().to_string();
                    let reviewer = Reviewer::new(access.clone()).with_context(what)?;
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

    /// Takes over what the files come to say, until told to stop.
    pub(crate) async fn follow(
        self,
        mut taken: Held,
        authenticators: Arc<Authenticators>,
        store: Arc<Store>,
        stop: CancellationToken,
    ) {
        let files = Arc::new(self);
        if files.token_file.is_none()
            && files.settings.config.is_none()
            && files.settings.token_webhook.is_none()
        {
            return;
        }
        let mut seen = taken.clone();
        let mut was_unreadable = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let own = files.clone();
            // A file may be on a disk that is away.
            let Ok(held) = tokio::task::spawn_blocking(move || own.held()).await else { continue };
            let outcome = match held {
                Ok(held) if seen == held => {
                    was_unreadable = false;
                    continue;
                }
                Ok(held) => {
                    was_unreadable = false;
                    seen = held.clone();
                    let old = authenticators.sources();
                    files.sources(&held, Some((&taken, &old)), &store).map(|sources| (sources, held))
                }
                Err(_) if was_unreadable => continue,
                Err(error) => {
                    was_unreadable = true;
                    Err(error)
                }
            };
            match outcome {
                Ok((sources, held)) => {
                    authenticators.replace(sources);
                    taken = held;
                    tracing::info!("the authentication configuration has changed");
                }
                Err(error) => {
                    authenticators.note_failed_reload();
                    tracing::error!("the authentication configuration stays as it was: {error:#}");
                }
            }
        }
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    let what = || format!("cannot read {}", path.display());
    let len = std::fs::metadata(path).with_context(what)?.len();
    anyhow::ensure!(len <= FILE_BYTES_MAX, "{} is longer than {FILE_BYTES_MAX} bytes", path.display());
    std::fs::read_to_string(path).with_context(what)
}

/// What a kubeconfig says, with the files it names: a change of one of them is a change of it.
fn access(path: &Path) -> anyhow::Result<Access> {
    read(path)?;
    Ok(Kubeconfig::read(path)?.access(None)?)
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

/// The way to the token webhook, which is the provider's own.
struct Reviewer {
    client: Client,
    path: String,
}

impl Reviewer {
    fn new(mut access: Access) -> anyhow::Result<Reviewer> {
        let start = access.server.find("://").map_or(0, |at| at + 3);
        let path = match access.server[start..].find('/') {
            Some(at) => access.server.split_off(start + at),
            None => "/".to_owned(),
        };
        let options = ClientOptions {
            dial_patience: Duration::from_secs(5),
            patience: Duration::from_secs(10),
            answer_bytes_max: REVIEW_BYTES_MAX,
            ..ClientOptions::default()
        };
        Ok(Reviewer { client: Client::new(&access, options)?, path })
    }
}

impl TokenReviewer for Reviewer {
    fn review(&self, question: Vec<u8>) -> ReviewAnswer<'_> {
        Box::pin(async move {
            let body = Some(("application/json", Bytes::from(question)));
            let answer = self.client.send(Method::POST, &self.path, body).await;
            let answer = answer.map_err(|error| format!("{:#}", anyhow::Error::new(error)))?;
            match answer.status {
                200 | 201 => Ok(answer.body.to_vec()),
                code => Err(format!("the webhook answered {code}")),
            }
        })
    }
}
