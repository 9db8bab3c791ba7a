//! The way from the server to extension servers of planes: over HTTPS, to addresses a tenant may name.

use polder_client_http::{ClientIdentity, Egress, Forward, Forwarder, Trust as By};
use polder_model::PlaneId;
use polder_registry::extensions::Trust;
use polder_server::{ExtensionCall, ExtensionClient, Sending};

pub(crate) struct Extensions(Forwarder);

impl Extensions {
    pub(crate) fn new(egress: Egress) -> Extensions {
        Extensions(Forwarder::new(egress))
    }
}

impl ExtensionClient for Extensions {
    fn send<'a>(&'a self, call: ExtensionCall<'a>) -> Sending<'a> {
        let ExtensionCall { plane, host, dial, trust, certificate, request } = call;
        Box::pin(self.0.forward(Forward {
            tenant: plane.0,
            host,
            dial,
            trust: match trust {
                Trust::Authorities(pem) => By::Authorities(pem),
                Trust::Anybody => By::Anybody,
            },
            identity: ClientIdentity {
                certificate: &certificate.certificate,
                intermediates: &certificate.intermediates,
                key: &certificate.key,
            },
            // The core plane is the provider's own.
            trusted: plane == PlaneId::CORE,
            request,
        }))
    }
}
