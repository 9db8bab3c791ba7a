//! Who decides what somebody may do, in the order the provider has chosen: nodes by their pods, roles of the plane, webhooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use polder_auth::ReviewClient;
use polder_auth::authz::configuration::WebhookSettings;
use polder_auth::authz::{Authorizer, Chain, Step};
use polder_model::SmolStr;

use crate::access_webhook::Origins;
pub use crate::access_webhook::{AccessWebhook, WebhookCounts};
use crate::nodes::Nodes;
use crate::registry::Registry;
use crate::roles::Roles;

/// One of those who can be asked.
#[derive(Clone)]
pub enum Decider {
    Node,
    Rbac,
    Webhook(Arc<AccessWebhook>),
}

impl Decider {
    /// As configurations have it.
    pub fn kind(&self) -> &'static str {
        match self {
            Decider::Node => "Node",
            Decider::Rbac => "RBAC",
            Decider::Webhook(_) => "Webhook",
        }
    }
}

/// What decisions are made from.
pub(crate) struct Authorizers {
    nodes: Arc<Nodes>,
    roles: Arc<Roles>,
    origins: Arc<Origins>,
    webhooks: ArcSwap<Vec<Arc<AccessWebhook>>>,
    /// Changes of the configuration that were taken over, and that were not.
    reloads: [AtomicU64; 2],
}

impl Authorizers {
    pub(crate) fn new(nodes: Arc<Nodes>, roles: Arc<Roles>, origins: Origins) -> Authorizers {
        let (origins, webhooks) = (Arc::new(origins), ArcSwap::default());
        Authorizers { nodes, roles, origins, webhooks, reloads: Default::default() }
    }

    /// Who decides from now on. Those who did before go on counting.
    pub(crate) fn choose(&self, chain: &Chain, all: &[(SmolStr, Decider)]) {
        let before = chain.steps();
        let steps = all.iter().map(|(name, decider)| {
            let authorizer: Arc<dyn Authorizer> = match decider {
                Decider::Node => self.nodes.clone(),
                Decider::Rbac => self.roles.clone(),
                Decider::Webhook(webhook) => webhook.clone(),
            };
            let mut step = Step::new(decider.kind(), name.clone(), authorizer);
            let same = before.iter().find(|old| old.kind == step.kind && old.name == step.name);
            if let Some(old) = same {
                step.counts = old.counts.clone();
            }
            step
        });
        chain.replace(steps.collect());
        let webhooks = all.iter().filter_map(|(_, decider)| match decider {
            Decider::Webhook(webhook) => Some(webhook.clone()),
            Decider::Node | Decider::Rbac => None,
        });
        self.webhooks.store(Arc::new(webhooks.collect()));
    }
}

impl Registry {
    /// A webhook that can be asked. What one of that name has counted goes on.
    pub fn access_webhook(
        &self,
        name: SmolStr,
        settings: WebhookSettings,
        client: Arc<dyn ReviewClient>,
    ) -> AccessWebhook {
        let before = self.access_webhooks();
        let same = before.iter().find(|old| *old.name() == name);
        let counts = same.map(|old| old.counts().clone()).unwrap_or_default();
        let origins = self.authorizers.origins.clone();
        AccessWebhook::new(name, settings, client, origins, self.options.clock).with_counts(counts)
    }

    /// Takes over a configuration: in force from the next request on.
    pub fn set_authorizers(&self, all: &[(SmolStr, Decider)]) {
        self.authorizers.choose(&self.authorizer, all);
    }

    /// Those that are asked by now.
    pub fn access_webhooks(&self) -> Arc<Vec<Arc<AccessWebhook>>> {
        self.authorizers.webhooks.load_full()
    }

    /// A change of the configuration was taken over, or not, because something is wrong with it.
    pub fn note_authorization_reload(&self, taken: bool) {
        self.authorizers.reloads[usize::from(!taken)].fetch_add(1, Ordering::Relaxed);
    }

    /// Changes that were taken over, and that were not.
    pub fn authorization_reloads(&self) -> [u64; 2] {
        self.authorizers.reloads.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}
