//! The certificate that a client showed when it connected, and what it is good for. That is judged in the handshake, and again when
//! another set of authorities is believed: a connection may live longer than the trust in whoever vouched for its client.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use polder_auth::authn::{ClientCertificate, Unauthenticated};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::State;
use crate::client_certificate::Vouched;
use crate::pki::Current;

/// A certificate with what came with it; none if the client has none.
#[derive(Default)]
pub(crate) struct Presented {
    chain: Vec<CertificateDer<'static>>,
    judged: Mutex<Arc<Identity>>,
}

/// What a client is by its certificate.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// By which authorities.
    epoch: u64,
    /// Who the certificate says it is, read once: it is the same for every request. `None` without a certificate.
    pub(crate) certificate: Option<Result<ClientCertificate, Unauthenticated>>,
    /// Whether it is a proxy whose word about others counts.
    pub(crate) is_proxy: bool,
    /// Its certificate says nothing about itself: it is one for proxies.
    pub(crate) is_only_proxy: bool,
}

impl Presented {
    /// What was verified in a handshake a moment ago, by these authorities.
    pub(crate) fn new(chain: &[CertificateDer<'_>], state: &State, verified_by: &Current) -> Presented {
        let vouched = verified_by.clients.vouched(chain, UnixTime::now());
        let identity = identity(chain, vouched, state, verified_by.epoch);
        let chain = chain.iter().map(|one| one.clone().into_owned()).collect();
        Presented { chain, judged: Mutex::new(Arc::new(identity)) }
    }

    /// What it is good for now.
    pub(crate) fn identity(&self, state: &State) -> Arc<Identity> {
        let known = self.judged.lock().clone();
        if self.chain.is_empty() {
            return known;
        }
        let current = state.pki.current();
        if known.epoch == current.epoch {
            return known;
        }
        let vouched = current.clients.vouched_anew(&self.chain, UnixTime::now());
        let identity = Arc::new(identity(&self.chain, vouched, state, current.epoch));
        *self.judged.lock() = identity.clone();
        identity
    }
}

fn identity(chain: &[CertificateDer<'_>], vouched: Vouched, state: &State, epoch: u64) -> Identity {
    let Some(first) = chain.first() else { return Identity { epoch, ..Identity::default() } };
    let sources = state.registry.options.authenticators.sources();
    let is_allowed = || sources.proxies.as_ref().is_some_and(|own| own.allows(first));
    Identity {
        epoch,
        certificate: match vouched {
            Vouched { of_client: true, .. } => Some(ClientCertificate::read(first).ok_or(Unauthenticated)),
            Vouched { of_proxy: true, .. } => None,
            // Nobody vouches for it any more: that makes nobody in particular of nobody.
            _ => Some(Err(Unauthenticated)),
        },
        is_proxy: vouched.of_proxy && is_allowed(),
        is_only_proxy: vouched.of_proxy && !vouched.of_client,
    }
}

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presented").field("judged", &*self.judged.lock()).finish_non_exhaustive()
    }
}
