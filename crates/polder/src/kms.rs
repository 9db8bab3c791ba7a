//! A KMS v2 plugin as the store's key-encryption key: store keys are wrapped and unwrapped by it, a few in the life of a server.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use polder_client_http::kms::{Encrypted, KmsError, Plugin};
use polder_store::sealed::{KeyEncryption, KeyError, Secret, WrappedKey};
use serde::Deserialize;

/// `encryption.kms`, as in upstream's `EncryptionConfiguration`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct KmsConfiguration {
    /// How messages call it.
    name: String,
    /// `unix:///path/to/socket`.
    endpoint: String,
    /// How long a call may take, in seconds.
    #[serde(default = "timeout_seconds")]
    timeout_seconds: u64,
}

fn timeout_seconds() -> u64 {
    3
}

pub(crate) struct Kms {
    name: String,
    plugin: Plugin,
}

impl Kms {
    pub(crate) fn new(configuration: &KmsConfiguration) -> anyhow::Result<Kms> {
        let KmsConfiguration { name, endpoint, timeout_seconds } = configuration;
        let path = endpoint.strip_prefix("unix://").filter(|path| path.starts_with('/'));
        let path = path.with_context(|| format!("encryption.kms: {endpoint:?} is no unix:///path"))?;
        let timeout = Duration::from_secs((*timeout_seconds).clamp(1, 60));
        Ok(Kms { name: name.clone(), plugin: Plugin::new(PathBuf::from(path), timeout) })
    }

    fn failed(&self, source: KmsError) -> KeyError {
        KeyError::Failed {
            what: format!("the KMS plugin {:?} does not do its part", self.name),
            source: source.into(),
        }
    }
}

impl KeyEncryption for Kms {
    fn current(&self) -> Result<String, KeyError> {
        self.plugin.status().map(|status| status.key_id).map_err(|error| self.failed(error))
    }

    fn wrap(&self, secret: &Secret) -> Result<WrappedKey, KeyError> {
        let encrypted = self.plugin.encrypt(secret.expose()).map_err(|error| self.failed(error))?;
        Ok(WrappedKey { key: encrypted.key_id.clone(), bytes: encrypted.to_bytes() })
    }

    fn unwrap(&self, wrapped: &WrappedKey) -> Result<Secret, KeyError> {
        let encrypted = Encrypted::from_bytes(&wrapped.bytes).filter(|found| found.key_id == wrapped.key);
        let unreadable =
            || KeyError::Unusable(format!("what KMS key {:?} has wrapped cannot be read", wrapped.key));
        let encrypted = encrypted.ok_or_else(unreadable)?;
        let secret = self.plugin.decrypt(&encrypted).map_err(|error| self.failed(error))?;
        Secret::from_slice(&secret).ok_or_else(unreadable)
    }
}
