//! Who decides what somebody may do, as the configuration says it: a file that is read at start and again when it changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use polder_auth::authz::configuration::{AuthorizationConfiguration, AuthorizerKind};
use polder_registry::Registry;
use polder_registry::authorizers::{AccessWebhook, Decider};
use serde::Deserialize;

use crate::follow::{self, Followed};
use crate::reviewer::{self, Reviewer};

/// `authorization` of the server's configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Authorization {
    /// A file with an `AuthorizationConfiguration` of `apiserver.config.k8s.io`. Without one, nodes and roles decide.
    config: Option<PathBuf>,
}

/// The file, those it names, and whose decisions they are about.
pub(crate) struct AuthorizationFiles {
    config: PathBuf,
    registry: Arc<Registry>,
    /// How the webhooks that are asked by now are reached.
    taken: parking_lot::Mutex<BTreeMap<PathBuf, reviewer::Held>>,
}

/// What the files held when they were last looked at.
#[derive(Clone, PartialEq)]
pub(crate) struct Held {
    config: String,
    kubeconfigs: BTreeMap<PathBuf, reviewer::Held>,
}

impl Authorization {
    /// Takes over what the file says, if there is one; fails if something is wrong with it.
    pub(crate) fn load(
        &self,
        registry: &Arc<Registry>,
    ) -> anyhow::Result<Option<(Arc<AuthorizationFiles>, Held)>> {
        let Some(config) = self.config.clone() else { return Ok(None) };
        let registry = registry.clone();
        let files = AuthorizationFiles { config, registry, taken: parking_lot::Mutex::default() };
        let held = files.held()?;
        files.take(held.clone())?;
        Ok(Some((Arc::new(files), held)))
    }
}

impl AuthorizationFiles {
    fn read(&self, text: &str) -> anyhow::Result<AuthorizationConfiguration> {
        let what = || self.config.display().to_string();
        let document = follow::document(text).with_context(what)?;
        AuthorizationConfiguration::read(&document).with_context(what)
    }

    /// One that is asked already, if it is the same: it goes on knowing what it knows.
    fn same(
        &self,
        name: &str,
        source: &polder_model::Value,
        (path, held): (&Path, &reviewer::Held),
    ) -> Option<Arc<AccessWebhook>> {
        let is_reached_as_before = self.taken.lock().get(path) == Some(held);
        let webhooks = self.registry.access_webhooks();
        let mut webhooks = webhooks.iter().filter(|_| is_reached_as_before);
        webhooks.find(|old| old.name() == name && old.settings().source == *source).cloned()
    }
}

impl Followed for AuthorizationFiles {
    type Held = Held;

    const WHAT: &'static str = "authorization";

    fn held(&self) -> anyhow::Result<Held> {
        let config = follow::read(&self.config)?;
        // What is wrong with it is told when it is taken over.
        let authorizers = self.read(&config).map(|read| read.authorizers).unwrap_or_default();
        let kubeconfigs = authorizers.iter().filter_map(|entry| match &entry.kind {
            AuthorizerKind::Webhook(settings) => {
                Some((settings.kubeconfig.clone(), reviewer::held(&settings.kubeconfig)))
            }
            AuthorizerKind::Node | AuthorizerKind::Rbac => None,
        });
        let kubeconfigs = kubeconfigs.collect();
        Ok(Held { config, kubeconfigs })
    }

    fn take(&self, held: Held) -> anyhow::Result<()> {
        let mut all = Vec::new();
        for entry in self.read(&held.config)?.authorizers {
            let decider = match entry.kind {
                AuthorizerKind::Node => Decider::Node,
                AuthorizerKind::Rbac => Decider::Rbac,
                AuthorizerKind::Webhook(settings) => {
                    let path = settings.kubeconfig.clone();
                    let what = || format!("the webhook {:?} of {}", entry.name, self.config.display());
                    let own = held.kubeconfigs.get(&path).with_context(what)?;
                    let webhook = match self.same(&entry.name, &settings.source, (&path, own)) {
                        Some(same) => same,
                        None => {
                            // Whoever asks ends it in time; what is left behind ends soon after.
                            let patience = settings.timeout + Duration::from_secs(1);
                            let client = Reviewer::new(own, patience).with_context(what)?;
                            let name = entry.name.clone();
                            Arc::new(self.registry.access_webhook(name, settings, Arc::new(client)))
                        }
                    };
                    Decider::Webhook(webhook)
                }
            };
            all.push((entry.name, decider));
        }
        self.registry.set_authorizers(&all);
        *self.taken.lock() = held.kubeconfigs;
        Ok(())
    }

    fn note(&self, taken: bool) {
        self.registry.note_authorization_reload(taken);
    }
}
