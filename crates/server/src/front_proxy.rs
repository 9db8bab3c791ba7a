//! By what extension servers know that a request comes from this server: an authority of its own, and a client certificate
//! for each plane that has an extension server.
//!
//! Invariant: this authority vouches for nobody to this server. A plane's certificate carries a name that is that plane's
//! alone, so that what one plane's extension server believes, no other plane can send (ADR 0012).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use polder_client::extension::front_proxy_name;
use polder_model::PlaneId;
use rcgen::{DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};

use crate::keys::{DAY, Family, Keys, LEAF_SECONDS};
use crate::pki::{PkiError, named};

/// Certificates that are kept, and for how long: signing one takes a tenth of a millisecond.
const KEPT_LEN_MAX: usize = 1024;
const KEPT_SECONDS: i64 = 30 * DAY;

/// What signs for extension servers, by the generation that is used.
pub struct FrontProxy {
    used: Mutex<Used>,
}

struct Used {
    generation: u32,
    issuer: Issuer<'static, KeyPair>,
    intermediates: Vec<Vec<u8>>,
    key: KeyPair,
    made: i64,
    kept: HashMap<PlaneId, Arc<FrontProxyCertificate>>,
}

/// What goes with the requests of one plane; all in DER, the key as PKCS #8.
pub struct FrontProxyCertificate {
    pub certificate: Vec<u8>,
    /// By which extension servers that know only an older authority find the way to this one.
    pub intermediates: Vec<Vec<u8>>,
    pub key: Vec<u8>,
}

impl FrontProxy {
    pub(crate) fn new(keys: &Keys, now: i64) -> Result<FrontProxy, PkiError> {
        Ok(FrontProxy { used: Mutex::new(Used::new(keys, now)?) })
    }

    /// Another authority may be used by now. What is kept is made anew now and then, long before it ends.
    pub(crate) fn replace(&self, keys: &Keys, now: i64) -> Result<(), PkiError> {
        let (generation, made) = {
            let used = self.used.lock();
            (used.generation, used.made)
        };
        let wanted = keys.used(Family::FrontProxy, now).map_or(0, |own| own.number);
        // A clock that was set back must not keep what is old.
        if wanted != generation || !(0..KEPT_SECONDS).contains(&(now - made)) {
            *self.used.lock() = Used::new(keys, now)?;
        }
        Ok(())
    }

    pub(crate) fn certificate(&self, plane: PlaneId) -> Result<Arc<FrontProxyCertificate>, PkiError> {
        let mut used = self.used.lock();
        if let Some(known) = used.kept.get(&plane) {
            return Ok(known.clone());
        }
        let mut params = named(&[(DnType::CommonName, &front_proxy_name(plane))], used.made, LEAF_SECONDS);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&used.key, &used.issuer)?.der().to_vec();
        let (intermediates, key) = (used.intermediates.clone(), used.key.serialize_der());
        let made = Arc::new(FrontProxyCertificate { certificate, intermediates, key });
        if used.kept.len() >= KEPT_LEN_MAX {
            used.kept.clear();
        }
        used.kept.insert(plane, made.clone());
        Ok(made)
    }
}

impl Used {
    fn new(keys: &Keys, now: i64) -> Result<Used, PkiError> {
        let used = keys.used(Family::FrontProxy, now);
        let used = used.ok_or_else(|| PkiError::Tls("there is no front-proxy authority".into()))?;
        let (generation, issuer, key) = (used.number, used.issuer()?, KeyPair::generate()?);
        let intermediates = keys.crosses(Family::FrontProxy, now)?.iter().map(|der| der.to_vec()).collect();
        Ok(Used { generation, issuer, intermediates, key, made: now, kept: HashMap::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::When;

    #[test]
    fn planes_have_names_of_their_own() {
        let mut keys = Keys::default();
        keys.keep_up(1_000).unwrap();
        let proxy = FrontProxy::new(&keys, 1_000).unwrap();
        let names = |plane: u64| {
            let made = proxy.certificate(PlaneId(plane)).unwrap();
            let (_, parsed) = x509_parser::parse_x509_certificate(&made.certificate).unwrap();
            (parsed.subject().to_string(), parsed.issuer().to_string())
        };
        let expected = |plane: u64, issuer: &str| {
            (format!("CN=front-proxy-client-plane-{plane}"), format!("CN={issuer}"))
        };
        assert_eq!(names(7), expected(7, "polder-front-proxy"));
        assert_eq!(names(8), expected(8, "polder-front-proxy"));
        keys.rotate(Family::FrontProxy, 2_000, When::Told).unwrap();
        proxy.replace(&keys, 2_000).unwrap();
        assert_eq!(names(7), expected(7, "polder-front-proxy"), "told, not used");
        proxy.replace(&keys, 2_000 + DAY).unwrap();
        assert_eq!(names(7), expected(7, "polder-front-proxy-2"));
        let first = proxy.certificate(PlaneId(7)).unwrap();
        let anybody = polder_auth::authn::ProxyHeaders::default();
        assert!(
            !anybody.allows(&first.certificate),
            "a server that a tenant has call itself does not believe itself"
        );
        proxy.replace(&keys, 2_000 + DAY + KEPT_SECONDS).unwrap();
        let later = proxy.certificate(PlaneId(7)).unwrap();
        assert_ne!(first.certificate, later.certificate, "none is shown until it ends");
    }
}
