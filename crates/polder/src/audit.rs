//! Audit as the configuration file has it, and the way to the provider's webhook.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use parking_lot::Mutex;
use polder_client_http::{Access, Client, ClientOptions, Kubeconfig, Method};
use polder_server::audit::{
    Audit, AuditOptions, AuditPoster, LogOptions, TrailOptions, WebhookOptions, WhenFull,
};
use serde::Deserialize;

use crate::reviewer::split_path;

/// `audit:` of a server configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct AuditConfiguration {
    /// A file with an `audit.k8s.io/v1` Policy: what goes to the log and to the webhook. Read again when it changes.
    policy: Option<PathBuf>,
    /// What becomes of requests when events come faster than they can be written: `Drop` (the event) or `Refuse` (the request).
    when_full: When,
    log: Option<LogConfiguration>,
    webhook: Option<WebhookConfiguration>,
    /// What planes can read of what happened in them.
    trail: Option<TrailConfiguration>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum When {
    #[default]
    Drop,
    Refuse,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LogConfiguration {
    path: PathBuf,
    /// A file that is longer is set aside. Zero: never.
    #[serde(default = "log_bytes")]
    file_bytes: u64,
    /// Files that were set aside are deleted after this. Zero: never.
    #[serde(default)]
    age_days: u32,
    /// So many of them are kept. Zero: all.
    #[serde(default = "log_files")]
    files: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WebhookConfiguration {
    /// Where events are posted, and as whom: the server of its current context.
    kubeconfig: PathBuf,
    batch_events: Option<usize>,
    batch_seconds: Option<u64>,
    buffer_bytes: Option<usize>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct TrailConfiguration {
    /// What the trails of all planes may take.
    bytes: Option<u64>,
    /// For how long they are kept.
    age_days: Option<u32>,
}

fn log_bytes() -> u64 {
    100 << 20
}

fn log_files() -> usize {
    10
}

const DAY: i64 = 24 * 60 * 60;

impl AuditConfiguration {
    /// Opens what is configured.
    pub(crate) fn open(&self, data_dir: &Path) -> anyhow::Result<Arc<Audit>> {
        let outlets = self.log.is_some() || self.webhook.is_some();
        anyhow::ensure!(
            outlets == self.policy.is_some(),
            "audit: `policy` says what goes to `log` and `webhook`: write it with one of them, or none of the three"
        );
        let log = self.log.as_ref().map(|log| LogOptions {
            path: log.path.clone(),
            bytes_max: log.file_bytes,
            age_seconds_max: i64::from(log.age_days) * DAY,
            files_max: log.files,
        });
        let webhook = self.webhook.as_ref().map(|webhook| webhook.open(data_dir)).transpose();
        let trail = self.trail.as_ref().map(|trail| {
            let default = TrailOptions::default();
            let options = TrailOptions {
                bytes_max: trail.bytes.unwrap_or(default.bytes_max).max(1 << 20),
                age_seconds_max: trail
                    .age_days
                    .map_or(default.age_seconds_max, |days| i64::from(days.max(1)) * DAY),
            };
            (data_dir.join("audit"), options)
        });
        let when_full = match self.when_full {
            When::Drop => WhenFull::Drop,
            When::Refuse => WhenFull::Refuse,
        };
        let webhook = webhook.context("audit.webhook")?;
        let audit = Audit::open(AuditOptions { policy: self.policy.clone(), log, webhook, trail, when_full });
        audit.context("audit")
    }
}

impl WebhookConfiguration {
    fn open(&self, data_dir: &Path) -> anyhow::Result<(WebhookOptions, Arc<dyn AuditPoster>)> {
        let poster = Poster::new(&self.kubeconfig)?;
        let default = WebhookOptions::default();
        let options = WebhookOptions {
            owed: Some(data_dir.join("audit-webhook-owed")),
            batch_len_max: self.batch_events.unwrap_or(default.batch_len_max).max(1),
            batch_patience: self.batch_seconds.map_or(default.batch_patience, Duration::from_secs),
            buffer_bytes_max: self.buffer_bytes.unwrap_or(default.buffer_bytes_max),
            ..default
        };
        Ok((options, Arc::new(poster)))
    }
}

/// Posts to whom a kubeconfig names. It, and the files it names, are looked at before each batch: certificates and tokens in them are
/// renewed.
struct Poster {
    kubeconfig: PathBuf,
    used: Mutex<(Access, Arc<Client>, String)>,
}

impl Poster {
    fn new(kubeconfig: &Path) -> anyhow::Result<Poster> {
        let access = Kubeconfig::read(kubeconfig)?.access(None)?;
        let (client, path) = Poster::client(&access)?;
        Ok(Poster { kubeconfig: kubeconfig.into(), used: Mutex::new((access, client, path)) })
    }

    /// The way to a webhook, and the path it is at.
    fn client(access: &Access) -> anyhow::Result<(Arc<Client>, String)> {
        let mut access = access.clone();
        let path = split_path(&mut access);
        let bounds = ClientOptions {
            patience: Duration::from_secs(30),
            answer_bytes_max: 64 << 10,
            ..ClientOptions::default()
        };
        Ok((Arc::new(Client::new(&access, bounds)?), path))
    }

    /// The client for what the files say by now; the one from before if something is wrong with them.
    async fn current(&self) -> (Arc<Client>, String) {
        let path = self.kubeconfig.clone();
        // A file may be on a disk that is away.
        let read = move || anyhow::Ok(Kubeconfig::read(&path)?.access(None)?);
        let access = tokio::task::spawn_blocking(read).await.map_err(anyhow::Error::from).flatten();
        let mut used = self.used.lock();
        let changed = access.and_then(|access| {
            Ok(match access == used.0 {
                true => None,
                false => Some((Poster::client(&access)?, access)),
            })
        });
        match changed {
            Ok(Some(((client, path), access))) => *used = (access, client, path),
            Ok(None) => {}
            Err(error) => tracing::warn!("the way to the audit webhook stays as it was: {error:#}"),
        }
        (used.1.clone(), used.2.clone())
    }
}

impl AuditPoster for Poster {
    fn post(&self, body: Vec<u8>) -> std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async move {
            let (client, path) = self.current().await;
            let body = Some(("application/json", Bytes::from(body)));
            let answer = client.send(Method::POST, &path, body).await;
            let answer = answer.map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
            match answer.status {
                200..300 => Ok(()),
                code => Err(format!("it answers {code}")),
            }
        })
    }
}
