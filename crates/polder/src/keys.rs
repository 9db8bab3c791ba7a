//! Keeps keys and certificates of a running server good: one timer for all of them. What is due is done, what an operator changes is
//! taken over, and everybody who should know is told (ADR 0019).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use polder_controllers::Told;
use polder_server::Pki;
use polder_store::Store;
use tokio_util::sync::CancellationToken;

use crate::authentication::Authentication;
use crate::config::TlsFiles;
use crate::key_request::KeyRequest;
use crate::terms::Terms;

/// How often the clock and the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Keeper {
    pub(crate) pki: Arc<Pki>,
    pub(crate) settings: Authentication,
    pub(crate) tls: Vec<TlsFiles>,
    pub(crate) root_ca: Told,
    pub(crate) front_proxy_ca: Told,
    pub(crate) controllers: Arc<Terms>,
    /// Where an operator may leave a request.
    pub(crate) data_dir: PathBuf,
    /// The administrator's, and the URL in it.
    pub(crate) kubeconfig: PathBuf,
    pub(crate) url: String,
    pub(crate) clock: fn() -> i64,
    pub(crate) store: Arc<Store>,
    /// What was believed when somebody last looked, and until when.
    pub(crate) believed: Arc<Mutex<Vec<(String, i64)>>>,
}

impl Keeper {
    /// Until told to stop.
    pub(crate) async fn keep_up(self, stop: CancellationToken) {
        let keep = async {
            let mut said = String::new();
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let own = self.clone();
                // A file may be on a disk that is away.
                let Ok(outcome) = tokio::task::spawn_blocking(move || own.look()).await else { continue };
                let problem = outcome.err().map(|error| format!("{error:#}")).unwrap_or_default();
                // Once, and not every second.
                if !problem.is_empty() && problem != said {
                    tracing::error!("keys and certificates stay as they were: {problem}");
                }
                said = problem;
            }
        };
        stop.run_until_cancelled(async { tokio::join!(keep, self.tell()) }).await;
    }

    fn look(&self) -> anyhow::Result<()> {
        let now = (self.clock)();
        let proxies = self.settings.proxy_authorities().and_then(|pem| Ok(self.pki.set_proxies(pem, now)?));
        let serving = TlsFiles::read_all(&self.tls).and_then(|files| Ok(self.pki.set_serving(files, now)?));
        // Before anything is told: whoever is told is told of what is believed.
        if self.store.is_shared() {
            KeyRequest::answer(&self.pki, &self.data_dir, now)?;
        }
        let is_news = self.pki.keep_up(now)?;
        if is_news {
            tracing::info!("the authorities of this server have changed: planes are told");
        }
        self.end_watches(now);
        self.tell_controllers();
        if self.pki.is_admin_due(now) {
            self.pki.admin_write(&self.kubeconfig, &self.url, now)?;
            tracing::info!(path = %self.kubeconfig.display(), "the administrator has a new kubeconfig");
        }
        proxies.and(serving)
    }

    /// A request is asked anew who it is from, a watch is not. So when something is dropped that was still believed, watches end, and
    /// whoever is still somebody goes on where it was.
    fn end_watches(&self, now: i64) {
        let believed = self.pki.ends(now);
        let before = std::mem::replace(&mut *self.believed.lock(), believed.clone());
        let is_dropped =
            |(name, end): &(String, i64)| *end > now && !believed.iter().any(|(own, _)| own == name);
        if before.iter().any(is_dropped) {
            tracing::info!("a key was dropped: watches end, and begin again for those who may");
            self.store.end_client_watches();
        }
    }

    fn tell_controllers(&self) {
        self.root_ca.set(&self.pki.ca());
        self.front_proxy_ca.set(&self.pki.front_proxy_ca());
    }

    /// Tells planes what they do not know. After a stop in the middle of it, all of them again.
    async fn tell(&self) {
        if self.pki.has_changed() {
            self.controllers.tell_new();
        }
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if !self.pki.is_untold() {
                continue;
            }
            let (digest, pki) = (self.pki.digest(), self.pki.clone());
            self.tell_controllers();
            if self.controllers.tell().await {
                let noted = tokio::task::spawn_blocking(move || pki.note_told(digest)).await;
                if let Ok(Err(error)) = noted {
                    tracing::warn!("cannot note that planes were told: {:#}", anyhow::Error::new(error));
                }
            }
        }
    }
}
