//! The way from the registry to webhooks: over HTTPS, to addresses a tenant may name.

use polder_client_http::{Egress, Post, Poster};
use polder_model::PlaneId;
use polder_registry::webhooks::{Posting, WebhookCall, WebhookClient};

pub(crate) struct Webhooks(Poster);

impl Webhooks {
    pub(crate) fn new(egress: Egress) -> Webhooks {
        Webhooks(Poster::new(egress))
    }
}

impl WebhookClient for Webhooks {
    fn post<'a>(&'a self, call: WebhookCall<'a>) -> Posting<'a> {
        Box::pin(async move {
            let WebhookCall { plane, url, dial, authorities, body, timeout } = call;
            let post = Post {
                tenant: plane.0,
                url: &url,
                dial: dial.as_ref().map(|(host, port)| (host.as_str(), *port)),
                authorities,
                body,
                timeout,
                // The core plane is the provider's own.
                trusted: plane == PlaneId::CORE,
            };
            self.0.post(post).await
        })
    }
}
