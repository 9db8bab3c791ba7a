//! Where planes are kept: in the data directory alone, or in a history that several servers share, of which each has a copy there
//! (ADR 0020). The `store` part of the configuration and the flags that say the same.
//!
//! One more kind is one more variant of [`Storage`], and an arm in each of its functions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use polder_client_http::grpc::Identity;
use polder_store::engine::{Engine, EngineError};
use polder_store::replica::{Journal, Replica};
use polder_store::sealed::{Keyring, SealedEngine};
use polder_store_embedded::{Options as DiskOptions, SqliteEngine};
use polder_store_etcd::client::ClientOptions;
use polder_store_etcd::{EtcdJournal, JournalOptions};
use polder_store_postgres::{JournalOptions as PostgresOptions, PostgresJournal};
use serde::Deserialize;

use crate::follow;

/// When a replica that leads and is gone is replaced.
const LEASE: Duration = Duration::from_secs(5);

/// `store`. Flags say the same, and come first.
#[derive(Clone, Debug, Default, Deserialize, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct StoreSettings {
    /// What planes are kept in: `embedded`, or what several servers share: an etcd, as etcd://HOST:PORT[,HOST:PORT...] (etcds:// with
    /// TLS), or PostgreSQL, as postgres://USER@HOST:PORT[,HOST:PORT...]/DATABASE[?sslrootcert=FILE&schema=NAME] [default: embedded]
    #[arg(id = "store", long = "store", value_name = "URL", env = "POLDER_STORE", hide_env_values = true)]
    url: Option<String>,
    /// A file with the password for PostgreSQL.
    #[arg(id = "postgres_password_file", long = "postgres-password-file", value_name = "FILE")]
    postgres_password_file: Option<PathBuf>,
    #[serde(default)]
    #[command(flatten)]
    etcd: EtcdSettings,
}

/// How to talk to etcd.
#[derive(Clone, Debug, Default, Deserialize, clap::Args)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct EtcdSettings {
    /// What all keys in etcd begin with: servers with the same are replicas of each other [default: /polder]
    #[arg(id = "etcd_prefix", long = "etcd-prefix", value_name = "PREFIX")]
    prefix: Option<String>,
    /// Who vouches for etcd, in PEM. With it the connection is encrypted.
    #[arg(id = "etcd_ca", long = "etcd-ca", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The certificate that etcd knows this server by, in PEM.
    #[arg(id = "etcd_cert", long = "etcd-cert", value_name = "FILE")]
    cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(id = "etcd_key", long = "etcd-key", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Who this server is to etcd, if not by a certificate.
    #[arg(id = "etcd_user", long = "etcd-user", value_name = "NAME")]
    user: Option<String>,
    /// A file with the password.
    #[arg(id = "etcd_password_file", long = "etcd-password-file", value_name = "FILE")]
    password_file: Option<PathBuf>,
}

impl StoreSettings {
    /// A store at an address, with whatever of the settings is for one like it.
    pub(crate) fn at(url: &str, etcd: &EtcdSettings, postgres_password_file: Option<&Path>) -> StoreSettings {
        StoreSettings {
            url: Some(url.to_owned()),
            postgres_password_file: postgres_password_file
                .filter(|_| url.starts_with("postgres"))
                .map(Path::to_owned),
            etcd: if url.starts_with("etcd") { etcd.clone() } else { EtcdSettings::default() },
        }
    }

    /// These where they say something, and others where they do not.
    pub(crate) fn or(self, other: StoreSettings) -> StoreSettings {
        let (own, others) = (self.etcd, other.etcd);
        StoreSettings {
            url: self.url.or(other.url),
            postgres_password_file: self.postgres_password_file.or(other.postgres_password_file),
            etcd: EtcdSettings {
                prefix: own.prefix.or(others.prefix),
                ca_file: own.ca_file.or(others.ca_file),
                cert_file: own.cert_file.or(others.cert_file),
                key_file: own.key_file.or(others.key_file),
                user: own.user.or(others.user),
                password_file: own.password_file.or(others.password_file),
            },
        }
    }

    /// Whether they say what planes are kept in.
    pub(crate) fn is_told(&self) -> bool {
        self.url.is_some()
    }

    pub(crate) fn storage(self) -> anyhow::Result<Storage> {
        let url = self.url.unwrap_or_default();
        let (scheme, hosts) = url.split_once("://").unwrap_or((&url, ""));
        let (is_etcd, is_postgres) =
            (matches!(scheme, "etcd" | "etcds"), matches!(scheme, "postgres" | "postgresql"));
        anyhow::ensure!(
            is_etcd || !self.etcd.is_told(),
            "there are settings for etcd, but store is not an etcd:// URL"
        );
        anyhow::ensure!(
            is_postgres || self.postgres_password_file.is_none(),
            "there is a password for PostgreSQL, but store is not a postgres:// URL"
        );
        if is_etcd {
            return Ok(Storage::Etcd(Box::new(self.etcd.options(scheme == "etcds", hosts)?)));
        }
        if is_postgres {
            let password = self.postgres_password_file.as_deref().map(follow::read).transpose()?;
            let password = password.as_deref().map(|password| password.trim_end().as_bytes());
            let options = PostgresOptions::parse(&url, password).context("store")?;
            return Ok(Storage::Postgres(Box::new(PostgresOptions { lease: LEASE, ..options })));
        }
        // What is wrong with it is not repeated: there may be a password in it.
        anyhow::ensure!(
            matches!(url.as_str(), "" | "embedded"),
            "store is none of embedded, etcd://HOST:PORT,HOST:PORT and postgres://USER@HOST:PORT/DATABASE"
        );
        Ok(Storage::Embedded)
    }
}

impl EtcdSettings {
    fn is_told(&self) -> bool {
        let files = [&self.ca_file, &self.cert_file, &self.key_file, &self.password_file];
        files.into_iter().any(Option::is_some) || self.prefix.is_some() || self.user.is_some()
    }

    fn options(&self, is_tls: bool, hosts: &str) -> anyhow::Result<JournalOptions> {
        let is_tls = is_tls || self.ca_file.is_some() || self.cert_file.is_some();
        let scheme = if is_tls { "https" } else { "http" };
        let endpoints = hosts.trim_end_matches('/').split(',').map(|host| {
            let is_host = host.rsplit_once(':').is_some_and(|(name, port)| {
                !name.is_empty() && !name.contains(['/', '@']) && port.parse::<u16>().is_ok()
            });
            // Not repeated: there may be a password in it.
            anyhow::ensure!(
                is_host,
                "store: each host is like HOST:PORT, such as 10.0.0.1:2379, and nothing else"
            );
            Ok(format!("{scheme}://{host}"))
        });
        let endpoints = endpoints.collect::<anyhow::Result<Vec<String>>>()?;
        let read = |file: &PathBuf| anyhow::Ok(follow::read(file)?.into_bytes());
        let certificate = match (&self.cert_file, &self.key_file) {
            (Some(chain), Some(key)) => Some((read(chain)?, read(key)?)),
            (None, None) => None,
            _ => anyhow::bail!("store: a certificate for etcd needs its key, and a key its certificate"),
        };
        let user = match (&self.user, &self.password_file) {
            (Some(user), Some(file)) => Some((user.clone(), follow::read(file)?.trim_end().to_owned())),
            (None, None) => None,
            _ => anyhow::bail!("store: a user of etcd needs a file with the password, and the file a user"),
        };
        if user.is_some() && !is_tls {
            tracing::warn!("the password for etcd goes over a connection that is not encrypted");
        }
        let prefix = self.prefix.clone().unwrap_or_else(|| "/polder".to_owned());
        let prefix = prefix.trim_end_matches('/');
        anyhow::ensure!(
            prefix.starts_with('/') && prefix.bytes().all(|byte| byte.is_ascii_graphic()),
            "store: the prefix of keys in etcd is like /polder"
        );
        let authorities = self.ca_file.as_ref().map(read).transpose()?;
        let identity = Identity { authorities, certificate };
        let client = ClientOptions { endpoints, identity, user, ..ClientOptions::default() };
        let prefix = prefix.to_owned();
        Ok(JournalOptions { client, prefix, lease: LEASE, ..JournalOptions::default() })
    }
}

/// Lets another server lead.
pub(crate) type Resign = Box<dyn Fn() + Send + Sync>;

/// What planes are kept in.
pub(crate) enum Storage {
    /// By this server alone.
    Embedded,
    /// With others, in the order that etcd gives.
    Etcd(Box<JournalOptions>),
    /// The same with PostgreSQL.
    Postgres(Box<PostgresOptions>),
}

impl Storage {
    /// Whether other servers may have the same planes.
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self, Storage::Embedded)
    }

    /// Where what is kept here is.
    pub(crate) fn directory(&self, data_dir: &Path) -> PathBuf {
        // Not the same one: a store of this server alone is no part of what others have.
        data_dir.join(if self.is_shared() { "replica" } else { "store" })
    }

    /// Whether something is kept here already.
    pub(crate) fn is_begun(&self, data_dir: &Path) -> bool {
        self.directory(data_dir).exists()
    }

    /// The engine, and how to let another server lead before this one is gone.
    pub(crate) fn engine(
        &self,
        data_dir: &Path,
        keyring: Arc<Keyring>,
    ) -> anyhow::Result<(Box<dyn Engine>, Resign)> {
        let directory = self.directory(data_dir);
        match self {
            Storage::Embedded => {
                let local = SqliteEngine::open(&directory, &DiskOptions::default())?;
                Ok((Box::new(SealedEngine::new(local, keyring)), Box::new(|| {})))
            }
            Storage::Etcd(options) => {
                let journal = EtcdJournal::open((**options).clone()).context("store")?;
                let leading = journal.leading();
                let engine = SealedEngine::new(self.replica(&directory, journal)?, keyring);
                Ok((Box::new(engine), Box::new(move || leading.stand(false))))
            }
            Storage::Postgres(options) => {
                let journal = PostgresJournal::open((**options).clone()).context("store")?;
                let leading = journal.leading();
                let engine = SealedEngine::new(self.replica(&directory, journal)?, keyring);
                Ok((Box::new(engine), Box::new(move || leading.stand(false))))
            }
        }
    }

    /// What is kept, as it is kept, for whoever copies it: nothing is unsealed, and nobody leads. What is here of it is in `directory`.
    pub(crate) fn bare(&self, directory: &Path) -> anyhow::Result<Box<dyn Engine>> {
        Ok(match self {
            Storage::Embedded => Box::new(SqliteEngine::open(directory, &DiskOptions::default())?),
            Storage::Etcd(options) => {
                let options = JournalOptions { is_candidate: false, ..(**options).clone() };
                Box::new(self.replica(directory, EtcdJournal::open(options).context("store")?)?)
            }
            Storage::Postgres(options) => {
                let options = PostgresOptions { is_candidate: false, ..(**options).clone() };
                Box::new(self.replica(directory, PostgresJournal::open(options).context("store")?)?)
            }
        })
    }

    /// What this server keeps of a journal that it shares.
    fn replica<J: Journal>(
        &self,
        directory: &Path,
        mut journal: J,
    ) -> anyhow::Result<Replica<SqliteEngine, J>> {
        // Before anything is done here: whether it is there, and lets us in.
        journal.end().with_context(|| format!("cannot use {}", self.name(directory)))?;
        let disk = DiskOptions::default();
        let local = SqliteEngine::open(directory, &disk)?;
        let renew = |local: SqliteEngine| {
            local.renew(directory, &disk).map_err(|error| EngineError::Failed(Box::new(error)))
        };
        Replica::open(local, journal, renew)
            .with_context(|| format!("{} is no part of {}", directory.display(), self.name(directory)))
    }

    /// For people, without anything secret.
    pub(crate) fn name(&self, data_dir: &Path) -> String {
        match self {
            Storage::Embedded => self.directory(data_dir).display().to_string(),
            Storage::Etcd(options) => {
                format!("etcd at {}, under {}", options.client.endpoints.join(", "), options.prefix)
            }
            Storage::Postgres(options) => format!("PostgreSQL, in the schema {}", options.schema),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> StoreSettings {
        StoreSettings { url: Some(url.into()), ..StoreSettings::default() }
    }

    #[test]
    fn urls() {
        for (url, expected) in [
            ("", Ok(None)),
            ("embedded", Ok(None)),
            ("etcd://h1:2379,[::1]:2379/", Ok(Some("http://h1:2379 http://[::1]:2379"))),
            ("etcds://h1:2379", Ok(Some("https://h1:2379"))),
            ("etcd://h1", Err("is like HOST:PORT")),
            ("etcd://", Err("is like HOST:PORT")),
            ("etcd://user:pass@h1:2379", Err("is like HOST:PORT")),
            ("http://h1:2379", Err("none of embedded, ")),
            ("sqlite", Err("none of embedded, ")),
            ("postgres://polder@h1:5432/planes?schema=x", Ok(Some("PostgreSQL, in the schema x"))),
            ("postgres://h1:5432/planes", Err("store")),
        ] {
            match (settings(url).storage(), expected) {
                (Ok(Storage::Embedded), Ok(None)) => {}
                (Ok(Storage::Etcd(options)), Ok(Some(endpoints))) => {
                    assert_eq!(options.client.endpoints.join(" "), endpoints, "{url}");
                    assert_eq!(options.prefix, "/polder");
                }
                (Ok(storage @ Storage::Postgres(_)), Ok(Some(name))) => {
                    assert_eq!(storage.name(Path::new("")), name);
                }
                (Err(error), Err(hint)) => assert!(error.to_string().contains(hint), "{url}: {error}"),
                (found, _) => panic!("{url}: {:?}", found.map(|found| found.is_shared())),
            }
        }
    }

    #[test]
    fn flags_come_before_the_file() {
        let file: StoreSettings =
            serde_saphyr::from_str("url: etcd://a:1\netcd: {prefix: /a, caFile: /no/such/file}").unwrap();
        let mut flags = settings("etcd://b:2");
        let both = flags.clone().or(file.clone());
        assert_eq!((both.url.as_deref(), both.etcd.prefix.as_deref()), (Some("etcd://b:2"), Some("/a")));
        assert!(both.storage().is_err_and(|error| format!("{error:#}").contains("/no/such/file")));
        flags.etcd.prefix = Some("b".into());
        assert!(flags.storage().is_err_and(|error| error.to_string().contains("like /polder")));
        let orphan = StoreSettings { url: None, ..file };
        assert!(orphan.storage().is_err_and(|error| error.to_string().contains("not an etcd:// URL")));
    }
}
