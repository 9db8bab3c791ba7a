//! The server's configuration file: everything `polder serve` can be told, in the manner of Kubernetes components.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use polder_server::ServingFiles;
use polder_store::Limits;
use serde::Deserialize;

use crate::authentication::Authentication;
use crate::authorization::Authorization;
use crate::encryption::Encryption;
use crate::follow;
use crate::storage::StoreSettings;

/// `apiVersion: config.polder.dev/v1alpha1`, `kind: ServerConfiguration`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Configuration {
    api_version: String,
    kind: String,
    /// Domains whose subdomains are planes, beside `localhost`.
    pub(crate) base_domains: Vec<String>,
    /// The URL clients reach this server at, if it is not the address it listens on.
    pub(crate) external_url: Option<String>,
    /// Further names and addresses for the serving certificate.
    pub(crate) hosts: Vec<String>,
    /// Certificates of the provider's, each for its names, beside the one that the server makes for itself.
    pub(crate) tls: Vec<TlsFiles>,
    /// Static bearer tokens.
    pub(crate) token_file: Option<PathBuf>,
    /// Everything else about who people are.
    pub(crate) authentication: Authentication,
    /// Who decides what they may do.
    pub(crate) authorization: Authorization,
    /// Addresses that webhooks of planes may have beside public ones: `10.0.0.0/8`.
    pub(crate) webhook_networks: Vec<String>,
    /// Addresses that webhooks of planes may not have although they are public or listed: the provider's own.
    pub(crate) webhook_denied_networks: Vec<String>,
    /// Limits of planes that name none of their own.
    pub(crate) default_limits: PlaneLimits,
    /// What planes are kept in.
    pub(crate) store: StoreSettings,
    /// Which records are sealed on disk, and with which keys.
    pub(crate) encryption: Encryption,
    /// Memory for hot objects.
    pub(crate) cache_bytes: Option<usize>,
    /// How long old versions are kept.
    pub(crate) history_seconds: Option<u64>,
    /// Who has a say in writes of all planes, beside those who usually have.
    pub(crate) admission: Admission,
    /// What is noted of requests, and where.
    pub(crate) audit: Option<crate::audit::AuditConfiguration>,
    /// How long the server goes on, no longer ready, after it was told to stop.
    pub(crate) shutdown_delay_seconds: u64,
}

/// A certificate of the provider's.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct TlsFiles {
    cert_file: PathBuf,
    key_file: PathBuf,
    ca_file: Option<PathBuf>,
    #[serde(default)]
    names: Vec<String>,
}

impl TlsFiles {
    pub(crate) fn read(&self) -> anyhow::Result<ServingFiles> {
        Ok(ServingFiles {
            name: self.cert_file.display().to_string(),
            certificates: follow::read(&self.cert_file)?,
            key: follow::read(&self.key_file)?,
            authority: self.ca_file.as_deref().map(follow::read).transpose()?,
            names: self.names.clone(),
        })
    }

    pub(crate) fn read_all(files: &[TlsFiles]) -> anyhow::Result<Vec<ServingFiles>> {
        files.iter().map(TlsFiles::read).collect()
    }
}

/// Names of admission plugins, as kube-apiserver's flags have them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Admission {
    enable: Vec<String>,
    disable: Vec<String>,
}

impl Admission {
    pub(crate) fn plugins(&self) -> anyhow::Result<polder_registry::Plugins> {
        polder_registry::Plugins::chosen(&self.enable, &self.disable).context("admission")
    }
}

/// `Plane.spec.limits`. Zero means unlimited.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct PlaneLimits {
    objects: u64,
    stored_bytes: u64,
    object_bytes: u64,
    watches: u64,
    requests_in_flight: u64,
    requests_per_second: u64,
}

impl Default for PlaneLimits {
    fn default() -> PlaneLimits {
        PlaneLimits {
            objects: 100_000,
            stored_bytes: 1 << 30,
            object_bytes: 3 << 19,
            watches: 10_000,
            requests_in_flight: 400,
            requests_per_second: 0,
        }
    }
}

impl From<PlaneLimits> for Limits {
    fn from(limits: PlaneLimits) -> Limits {
        Limits {
            objects: limits.objects,
            bytes: limits.stored_bytes,
            object_bytes: limits.object_bytes,
            watches: limits.watches,
            requests_in_flight: limits.requests_in_flight,
            requests_per_second: limits.requests_per_second,
            // Each is as important as the other until its Plane says otherwise.
            weight: 0,
        }
    }
}

impl Configuration {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Configuration> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let configuration: Configuration = serde_saphyr::from_str(&text)
            // Without the piece of the file: that says the same again.
            .map_err(|error| anyhow::anyhow!(error.without_snippet().to_string()))
            .with_context(|| format!("{} is not a server configuration", path.display()))?;
        let found = (configuration.api_version.as_str(), configuration.kind.as_str());
        anyhow::ensure!(
            found == ("config.polder.dev/v1alpha1", "ServerConfiguration"),
            "{} must say `apiVersion: config.polder.dev/v1alpha1` and `kind: ServerConfiguration`",
            path.display()
        );
        configuration.check().with_context(|| format!("{} cannot be used", path.display()))?;
        Ok(configuration)
    }

    /// What can be told to be wrong before anything is done.
    fn check(&self) -> anyhow::Result<()> {
        self.admission.plugins()?;
        self.authentication.account_seconds_max().context("authentication")?;
        Ok(())
    }
}
