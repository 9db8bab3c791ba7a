//! Which records are sealed, and with whose keys: the `encryption` part of the configuration, made into a keyring.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use polder_model::GroupResource;
use polder_registry::catalog::is_builtin;
use polder_store::sealed::{KeyEncryption, KeyFile, Keyring};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::kms::{Kms, KmsConfiguration};

/// How often it is looked for a new key. A plugin is asked less often than a file is read.
const FILE_INTERVAL: Duration = Duration::from_secs(5);
const KMS_INTERVAL: Duration = Duration::from_secs(60);

/// `encryption`. Without it secrets are sealed with keys in a file beside the store.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Encryption {
    /// What is sealed: `secrets`, `configmaps`, `widgets.example.com`. Empty: nothing more; what is can still be read.
    resources: Option<Vec<String>>,
    /// Where the keys are, if not in the data directory.
    key_file: Option<PathBuf>,
    /// Who has the key, if it is in no file.
    kms: Option<KmsConfiguration>,
}

impl Encryption {
    /// The file of a flag comes before what the configuration says.
    pub(crate) fn with_key_file(self, path: Option<PathBuf>) -> Encryption {
        match path {
            Some(path) => Encryption { key_file: Some(path), kms: None, ..self },
            None => self,
        }
    }

    /// `shared`: what of the server's own is sealed where other servers have it too.
    pub(crate) fn keyring(
        &self,
        data_dir: &Path,
        shared: Option<GroupResource>,
    ) -> anyhow::Result<Arc<Keyring>> {
        let mut resources = match &self.resources {
            Some(names) => names.iter().map(|name| resource(name)).collect::<anyhow::Result<Vec<_>>>()?,
            None => vec![GroupResource::new("", "secrets")],
        };
        if !resources.contains(&GroupResource::new("", "secrets")) {
            tracing::warn!("encryption.resources leaves secrets out: new ones are stored as they are");
        }
        let own = data_dir.join("keys").join("encryption.key");
        let is_shared = shared.is_some();
        resources.extend(shared);
        let keys: Box<dyn KeyEncryption> = match (&self.key_file, &self.kms) {
            (Some(_), Some(_)) => anyhow::bail!("encryption: write keyFile or kms, not both"),
            (Some(path), None) => Box::new(KeyFile::at(path)),
            (None, Some(kms)) => Box::new(Kms::new(kms)?),
            (None, None) if !is_shared => Box::new(KeyFile::made_at(own)),
            // One that each made for itself would be of no use to the others.
            (None, None) if own.exists() => Box::new(KeyFile::at(own)),
            (None, None) => anyhow::bail!(
                "servers that share a store need the same encryption key: make one with `polder store add-key FILE`, \
                 give a copy to each of them, and name it with --encryption-key-file FILE (or encryption.kms in the configuration)"
            ),
        };
        Ok(Keyring::new(keys, resources))
    }

    /// Looks for a new key until the server stops.
    pub(crate) async fn keep_up(self, keyring: Arc<Keyring>, stop: CancellationToken) {
        let interval = if self.kms.is_some() { KMS_INTERVAL } else { FILE_INTERVAL };
        let mut failing = false;
        while stop.run_until_cancelled(tokio::time::sleep(interval)).await.is_some() {
            let own = keyring.clone();
            let Ok(refreshed) = tokio::task::spawn_blocking(move || own.refresh()).await else { return };
            match refreshed {
                Ok(_) => failing = false,
                // Once, and not every few seconds: what is open stays open.
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot look for a new encryption key; the server goes on with the one it has"
                    );
                }
                Err(_) => {}
            }
        }
    }
}

/// `resource` or `resource.group`.
fn resource(name: &str) -> anyhow::Result<GroupResource> {
    let (resource, group) = name.split_once('.').unwrap_or((name, ""));
    let is_name = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte))
    };
    anyhow::ensure!(
        !resource.is_empty() && is_name(resource) && is_name(group) && !name.ends_with('.'),
        "encryption.resources: {name:?} is no resource: write secrets, or widgets.example.com"
    );
    let resource = GroupResource::new(group, resource);
    // Whatever has no group is known; what a CRD adds is not.
    anyhow::ensure!(
        !resource.group.is_empty() || is_builtin(&resource),
        "encryption.resources: there is no resource {name:?}: write secrets, or widgets.example.com"
    );
    Ok(resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_named_as_kubectl_does() {
        for (name, expected) in [
            ("secrets", Some(("", "secrets"))),
            ("widgets.example.com", Some(("example.com", "widgets"))),
            ("", None),
            ("secrts", None),
            ("secrets.", None),
            ("*.*", None),
            (".apps", None),
            ("Secrets", None),
        ] {
            let found = resource(name).ok();
            assert_eq!(
                found,
                expected.map(|(group, resource)| GroupResource::new(group, resource)),
                "{name}"
            );
        }
    }
}
